"""Envelope: a client's request that another broker was asked, with the client's name and address (KIP-590).

Version 0. The request inside is handled as if its client had asked here, and its answer goes back as bytes. Only
brokers may send it, since its sender can speak in any client's name. It is judged by the ACLs that the store has when
it comes: one that the sender's broker has put in force is never unknown here. Not advertised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.cluster.forwarding import FORWARDED, decode_address, decode_principal
from tidelog.broker.deferred import Deferred
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._between_brokers import require_broker
from tidelog.broker.peer import CloseConnection, Peer
from tidelog.broker.requests.dispatch import Dispatcher
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import framing, messages
from tidelog.protocol.apis import ApiKey
from tidelog.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.handlers import Handler
    from tidelog.broker.node import Node
    from tidelog.broker.requests.dispatch import Answer

KEY: Final = ApiKey.ENVELOPE
VERSIONS: Final = Versions(0, 0, advertised=False)

SIZE_PREFIX: Final = 4


class _Deposed(CloseConnection):
    """The handler inside found that this broker is not the controller: the sender should look for the new one."""


class _InEnvelope(Dispatcher):
    """Handles here whatever comes, and tells "not the controller" to the sender of the envelope."""

    def _error_response(self, handler: Handler, context: RequestContext, request: Any, error: Exception) -> Any:
        if isinstance(error, KafkaError) and error.code is ErrorCode.NOT_CONTROLLER:
            raise _Deposed(str(error))
        return super()._error_response(handler, context, request, error)


def handle(
    node: Node, context: RequestContext, request: messages.EnvelopeRequest
) -> messages.EnvelopeResponse | Deferred[messages.EnvelopeResponse]:
    require_broker(node, context)
    if not node.controller.is_here:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    # It outlives the receive buffer, since the answer may wait.
    inside = memoryview(bytes(request.request_data))
    try:
        header, _ = framing.decode_request_header(inside)
    except ProtocolError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The forwarded request is malformed: {error}") from error
    if len(inside) < framing.REQUEST_SIZE_MIN or header.request_api_key not in FORWARDED:
        reason = f"Requests of API key {header.request_api_key} are not forwarded."
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    peer = Peer(context.listener, context.connection_id, decode_address(request.client_host_address))
    peer.authorizer = node.authorizer
    peer.authenticated(decode_principal(request.request_principal))
    authorizer = node.authorizer
    if authorizer is None or str(peer.principal) in authorizer.super_users:
        return _carry_out(node, context, peer, inside)

    def carry_out(_: None) -> Deferred[messages.EnvelopeResponse]:
        response = _carry_out(node, context, peer, inside)
        return response if isinstance(response, Deferred) else Deferred.of(response)

    return node.security.caught_up().and_then(carry_out)


def _carry_out(
    node: Node, context: RequestContext, peer: Peer, inside: memoryview
) -> messages.EnvelopeResponse | Deferred[messages.EnvelopeResponse]:
    dispatcher = _InEnvelope(node, node.handlers)
    try:
        answer = dispatcher.request(peer, inside, 0, len(inside), context.received_ms)
    except CloseConnection as reason:
        raise _refusal(reason) from reason
    if not isinstance(answer, Deferred):
        return _response(answer)

    def refuse(reason: CloseConnection) -> messages.EnvelopeResponse:
        raise _refusal(reason)

    return answer.then(_response).recover(CloseConnection, refuse)


def _refusal(reason: CloseConnection) -> KafkaError:
    if isinstance(reason, _Deposed):
        return KafkaError(ErrorCode.NOT_CONTROLLER, str(reason))
    return KafkaError(ErrorCode.INVALID_REQUEST, f"The forwarded request cannot be handled: {reason}")


def _response(answer: Answer) -> messages.EnvelopeResponse:
    chunks = [answer] if isinstance(answer, bytes) else answer or []
    data = b"".join(chunks)  # type: ignore[arg-type]  # These APIs answer with bytes, never with parts of files.
    return messages.EnvelopeResponse(response_data=data[SIZE_PREFIX:])


def error_response(request: messages.EnvelopeRequest, version: int, error: KafkaError) -> messages.EnvelopeResponse:
    return messages.EnvelopeResponse(error_code=error.code)
