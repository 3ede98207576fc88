"""From the bytes of one request to the bytes of its answer. No sockets here: the server and the controller's own
requests to this broker both come through it.
"""

from __future__ import annotations

import logging
import struct
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from tidelog.broker.cluster.forwarding import FORWARDED, Forwarding, throttle_ms_of
from tidelog.broker.context import RequestContext
from tidelog.broker.deferred import Deferred
from tidelog.broker.handler import Handler, advertised
from tidelog.broker.peer import CloseConnection, Peer
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.ports.disk import Chunk
from tidelog.protocol import apis, codec, framing, messages
from tidelog.protocol.errors import InvalidMessage, ProtocolError
from tidelog.protocol.wire import read_tags
from tidelog.quotas.request_quota import RequestQuota

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.handler import OrdinaryRequests
    from tidelog.broker.node import Node

logger: Final = logging.getLogger(__name__)

Answer: TypeAlias = bytes | list[Chunk] | None
"""An encoded response with its size prefix; None when none is due (acks=0)."""

_HEADER: Final = struct.Struct(">hhih")
_API_VERSIONS: Final = int(apis.ApiKey.API_VERSIONS)
_PRODUCE: Final = int(apis.ApiKey.PRODUCE)
_WRITE_TXN_MARKERS: Final = int(apis.ApiKey.WRITE_TXN_MARKERS)


class Dispatcher:
    """Finds the handler, decodes, calls, encodes. What only the controller carries out goes to it, wherever it is."""

    def __init__(self, node: Node, handlers: dict[int, Handler], forwarding: Forwarding | None = None) -> None:
        """Without `forwarding` every request is handled here."""
        self._node = node
        self._handlers = handlers
        self._forwarding = forwarding
        self._first_flexible = {key: apis.first_flexible_version(apis.ApiKey(key)) for key in handlers}
        self._exempt = frozenset(key for key, handler in handlers.items() if not handler.versions.advertised) | {
            _WRITE_TXN_MARKERS
        }
        """What brokers ask, which no quota limits."""
        produce = handlers.get(_PRODUCE)
        self._resume_body = self._resume
        """Made once, since each request's context has it."""
        self._ordinary: OrdinaryRequests | None = None
        if produce is not None and produce.ordinary is not None:
            self._ordinary = produce.ordinary(node, produce, self._resume_produce)
        made = {
            key: handler.frames(node, partial(self._context, key))
            for key, handler in handlers.items()
            if handler.frames is not None
        }
        self._frames = {key: frames.answer for key, frames in made.items() if frames is not None}
        """[API key] -> the compiled way of single requests, where there is one."""

    def ordinary(self, received_ms: int) -> OrdinaryRequests | None:
        """The compiled way of ordinary requests, which goes before `request` for the read that is being handled, and
        came at `received_ms`; None where all of them are to come by `request`."""
        return self._ordinary

    def connection_closed(self, peer: Peer) -> None:
        """The client is gone."""
        self._node.connection_closed(peer.connection_id)

    def request(
        self, peer: Peer, view: memoryview, position: int, end: int, received_ms: int
    ) -> Answer | Deferred[Answer]:
        """Handles the request in `view[position:end]`, at least 10 bytes. Raises CloseConnection."""
        key, version, correlation_id, client_id_size = _HEADER.unpack_from(view, position)
        handler = self._handlers.get(key)
        if handler is None:
            raise CloseConnection(f"API key {key} is not served")
        if not handler.version_min <= version <= handler.version_max:
            if key == _API_VERSIONS:
                return self._unsupported_api_versions(correlation_id)
            raise CloseConnection(f"{handler.name} version {version} is not served")
        handler.requests[version] += 1
        by_frame = self._frames.get(key)
        if by_frame is not None:
            try:
                answer = by_frame(peer, view, position, end, received_ms)
            except CloseConnection:
                raise
            except Exception:
                raise _failed(handler, version, peer) from None
            if answer is not NotImplemented:
                return answer  # type: ignore[no-any-return]  # NotImplemented makes it Any.
        start = position
        position += 10
        has_client_id = client_id_size >= 0
        if has_client_id:
            following = position + client_id_size
            raw = bytes(view[position:following])
            if following > end:
                raise CloseConnection("its client id is longer than its request")
            if raw != peer.raw_client_id:
                peer.client_id = raw.decode("utf-8", "replace")
                peer.raw_client_id = raw
            position = following
        if version >= self._first_flexible[key]:
            if position < end and not view[position]:
                position += 1
            else:
                position = _skip_tagged_fields(view, position, end)
        context = self._context(key, peer, version, correlation_id, has_client_id, received_ms)
        body = view[position:end]
        quotas = self._node.quotas
        if quotas.limits_clients and key not in self._exempt:
            context.quota = self._quota(context, end - start)
        if handler.handle_body is not None and (context.quota is None or context.quota.is_unnoticed):
            try:
                answer = handler.handle_body(self._node, context, body)
            except CloseConnection:
                raise
            except Exception:
                raise _failed(handler, version, peer) from None
            if answer is not NotImplemented:
                return answer  # type: ignore[no-any-return]  # NotImplemented makes it Any.
        return self._handle(handler, context, body, view[start:end])

    def _quota(self, context: RequestContext, size: int) -> RequestQuota | None:
        """What the request, `size` bytes with its header, uses of its client's quotas; None: it is not limited."""
        now_ms = context.received_ms
        client = self._node.quotas.of(context.principal.name, context.client_id or "", now_ms)
        if client is None:
            return None
        quota = RequestQuota(client)
        if context.api_key == _PRODUCE:
            quota.produced(size, now_ms)
            # What it has sent already is not begun either: produce requests overlap.
            assert context.peer is not None
            context.peer.throttle(quota.throttle_ms)
        if quota.limits_time:
            quota.begin(perf_counter_ns())
        return quota

    def _context(
        self, key: int, peer: Peer, version: int, correlation_id: int, has_client_id: bool, received_ms: int
    ) -> RequestContext:
        """The context of a request, under the client id that `peer` had last, if any; no quota limits it so far."""
        return RequestContext(
            key,
            version,
            correlation_id,
            peer.client_id if has_client_id else None,
            received_ms,
            peer.listener,
            peer.address,
            peer.connection_id,
            peer.principal,
            peer.access,
            peer,
            None,
            self._resume_body,
        )

    def _resume_produce(
        self,
        peer: Peer,
        version: int,
        correlation_id: int,
        has_client_id: bool,
        body: memoryview,
        handle: Callable[[Any, Any, Any], Any],
    ) -> Answer | Deferred[Answer]:
        """Goes on with a Produce request that the compiled way has begun: `handle` knows what is done.
        CloseConnection."""
        produce = self._handlers[_PRODUCE]
        produce.requests[version] += 1
        received_ms = self._node.clock.monotonic_ms()
        context = self._context(_PRODUCE, peer, version, correlation_id, has_client_id, received_ms)
        rest = Handler(produce.key, produce.name, produce.versions, handle, produce.error_response, None)
        return self._handle(rest, context, body, body)

    def _resume(
        self, context: RequestContext, body: bytes, handle: Callable[[Any, Any, Any], Any]
    ) -> Answer | Deferred[Answer]:
        """Goes on with a request that `handle_body` has begun: `handle` knows what is done. CloseConnection."""
        known = self._handlers[context.api_key]
        rest = Handler(known.key, known.name, known.versions, handle, known.error_response, None)
        view = memoryview(body)
        return self._handle(rest, context, view, view)

    def refuse(self, frame: memoryview, error: KafkaError) -> bytes:
        """The answer of a request's API to an error that is found before its handler is asked. CloseConnection.

        `frame` is the request, without its size.
        """
        try:
            header, position = framing.decode_request_header(frame)
            key, version = apis.ApiKey(header.request_api_key), header.request_api_version
            handler = self._handlers.get(key)
            if handler is None or not handler.versions.serves(version):
                raise CloseConnection(f"API key {key} version {version} is not served")
            request, _ = codec.decode(messages.request_class(key), version, frame[position:])
            response = handler.error_response(request, version, error)
            chunks = framing.encode_response(key, version, header.correlation_id, response)
        except ProtocolError as problem:
            raise CloseConnection(f"a malformed request: {problem}") from problem
        return b"".join(cast("list[bytes]", chunks))

    def _handle(
        self, handler: Handler, context: RequestContext, body: memoryview, frame: memoryview
    ) -> Answer | Deferred[Answer]:
        key, version = context.api_key, context.api_version
        try:
            request, _ = codec.decode(messages.request_class(handler.api_key), version, body)
        except ProtocolError as error:
            raise CloseConnection(f"{handler.name} version {version} is malformed: {error}") from error
        forwarding = self._forwarding
        response: Any
        try:
            if forwarding is not None and key in FORWARDED:
                response = self._by_controller(forwarding, handler, context, request, frame)
            else:
                response = handler.handle(self._node, context, request)
        except CloseConnection:
            raise
        except Exception as error:
            response = self._error_response(handler, context, request, error)
        if not isinstance(response, Deferred):
            return self._encode(handler, context, response)
        if context.quota is not None and context.quota.limits_time:
            context.quota.pause(perf_counter_ns())
        answer: Deferred[Answer] = Deferred()
        answer.on_abandoned = response.abandon
        answer.on_hurried = response.hurry if response.on_hurried is not None else None

        def encode(settled: Deferred[Any]) -> None:
            # What goes wrong here concerns this connection, and not the part that completed the response.
            try:
                try:
                    late = settled.result()
                except Exception as error:
                    late = self._error_response(handler, context, request, error)
                encoded = self._encode(handler, context, late)
            except CloseConnection as reason:
                answer.fail(reason)
            else:
                answer.complete(encoded)

        response.on_complete(encode)
        return answer.result() if answer.done else answer

    def _by_controller(
        self, forwarding: Forwarding, handler: Handler, context: RequestContext, request: Any, frame: memoryview
    ) -> Any:
        """Has the controller carry out a request, or what is left of it when this broker has refused a part."""
        node = self._node
        split = None if handler.preprocess is None else handler.preprocess(node, context, request)
        if split is None:
            return forwarding.carry_out(context, request, frame, lambda: handler.handle(node, context, request))
        rest, complete = split
        if rest is None:
            return complete(None)
        key, version, correlation_id = handler.api_key, context.api_version, context.correlation_id
        data = memoryview(framing.encode_request(key, version, correlation_id, context.client_id, rest))[4:]

        def whole(response: Any) -> Any:
            if type(response) is not bytes:
                return complete(response)
            # The controller on another broker has encoded it.
            _, answer = framing.decode_response(key, version, memoryview(response)[4:])
            chunks = framing.encode_response(key, version, correlation_id, complete(answer))
            return b"".join(cast("list[bytes]", chunks))

        return forwarding.carry_out(context, rest, data, lambda: handler.handle(node, context, rest)).then(whole)

    def _encode(self, handler: Handler, context: RequestContext, response: Any) -> Answer:
        """The response's bytes; CloseConnection when it cannot be encoded, which is our own mistake."""
        if response is None:
            # None is due.
            return None
        if type(response) is bytes:
            # The controller on another broker has encoded it.
            if context.peer is not None:
                context.peer.throttle(throttle_ms_of(apis.ApiKey(context.api_key), context.api_version, response))
            return response
        quota = context.quota
        if quota is not None:
            self._throttle(quota, context, response)
        try:
            encoded = framing.encode_response(handler.api_key, context.api_version, context.correlation_id, response)
        except InvalidMessage:
            logger.exception("answer not encoded: api=%s version=%d", handler.name, context.api_version)
            raise CloseConnection(f"the answer to its {handler.name} could not be encoded") from None
        if quota is not None and quota.limits_time:
            quota.pause(perf_counter_ns())
            quota.answered(self._node.clock.monotonic_ms())
        return encoded

    def _throttle(self, quota: RequestQuota, context: RequestContext, response: Any) -> None:
        """Tells a client that is over a quota for how long its requests are not read."""
        if quota.limits_time:
            quota.pause(perf_counter_ns())
            quota.spent(self._node.clock.monotonic_ms())
            quota.begin(perf_counter_ns())
        quota.mutated()
        if quota.throttle_ms:
            if hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = quota.throttle_ms
            if context.peer is not None:
                context.peer.throttle(quota.throttle_ms)

    def _error_response(self, handler: Handler, context: RequestContext, request: Any, error: Exception) -> Any:
        if not isinstance(error, KafkaError):
            logger.error(
                "request failed: api=%s version=%d client=%s peer=%s",
                handler.name,
                context.api_version,
                context.client_id,
                context.client_address,
                exc_info=error,
            )
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The broker failed unexpectedly; its log says why.")
        return handler.error_response(request, context.api_version, error)

    def _unsupported_api_versions(self, correlation_id: int) -> Answer:
        """Error 35 in the oldest format, which every client reads (KIP-511); closing would keep librdkafka away."""
        response = messages.ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=advertised(self._handlers.values())
        )
        return framing.encode_response(apis.ApiKey.API_VERSIONS, 0, correlation_id, response)


def _failed(handler: Handler, version: int, peer: Peer) -> CloseConnection:
    """Why the connection ends whose request met a fault of the broker; to be called while the exception is handled."""
    logger.exception("request failed: api=%s version=%d peer=%s", handler.name, version, peer.address)
    return CloseConnection(f"{handler.name} failed unexpectedly")


def _skip_tagged_fields(view: memoryview, position: int, end: int) -> int:
    """Skips a header's tagged fields, of which none is known; returns the position behind them."""
    request = view[:end]
    try:
        return read_tags(request, position + 1, end, request[position])[1]
    except (ProtocolError, IndexError) as error:
        raise CloseConnection(f"the tagged fields of its header are malformed: {error}") from error
