"""A dispatcher before the real one, which has a span for each admin operation: from its receipt to its answer.

    connection --> TracedDispatcher --> Dispatcher
                        '--> span: begun before, ended with the answer's error codes

All other requests pass by. A mistake in tracing fails no request: it is logged once.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.deferred import Deferred
from tidelog.broker.metrics.errors import error_codes
from tidelog.broker.peer import CloseConnection
from tidelog.broker.requests.dispatch import Dispatcher
from tidelog.broker.tracing.operations import TRACED, operation
from tidelog.model.errors import ErrorCode
from tidelog.protocol import framing
from tidelog.protocol.apis import ApiKey
from tidelog.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.handler import OrdinaryRequests
    from tidelog.broker.peer import Peer
    from tidelog.broker.requests.dispatch import Answer
    from tidelog.broker.tracing.exporting import Tracing
    from tidelog.broker.tracing.operations import Operation
    from tidelog.model.errors import KafkaError

logger: Final = logging.getLogger(__name__)

_SIZE_PREFIX: Final = 4


class TracedDispatcher(Dispatcher):
    """In the place of `inner`, for connections."""

    def __init__(self, inner: Dispatcher, tracing: Tracing) -> None:
        # Nothing of a dispatcher's own is made: what is not traced is `inner`'s, and what is traced too.
        self._inner = inner
        self._tracing = tracing
        self._complained = False

    def ordinary(self, received_ms: int) -> OrdinaryRequests | None:
        return self._inner.ordinary(received_ms)

    def connection_closed(self, peer: Peer) -> None:
        self._inner.connection_closed(peer)

    def refuse(self, frame: memoryview, error: KafkaError) -> bytes:
        return self._inner.refuse(frame, error)

    @property
    def request(self) -> Callable[[Peer, memoryview, int, int, int], Answer | Deferred[Answer]]:
        """What a read's requests are given to."""
        return functools.partial(self._request, self._inner.request)

    def _request(
        self,
        inner: Callable[[Peer, memoryview, int, int, int], Answer | Deferred[Answer]],
        peer: Peer,
        view: memoryview,
        position: int,
        end: int,
        received_ms: int,
    ) -> Answer | Deferred[Answer]:
        # All keys that are served fit into a byte.
        if view[position + 1] not in TRACED:
            return inner(peer, view, position, end, received_ms)
        begun = self._begin(peer, view[position:end])
        if begun is None:
            return inner(peer, view, position, end, received_ms)
        found, span = begun
        try:
            answer = inner(peer, view, position, end, received_ms)
        except CloseConnection as reason:
            self._closed(span, reason)
            raise
        if isinstance(answer, Deferred):
            answer.on_complete(functools.partial(self._answered_later, found, span))
        else:
            self._answered(found, span, answer)
        return answer

    def _begin(self, peer: Peer, frame: memoryview) -> tuple[Operation, Any] | None:
        try:
            found = operation(peer, frame)
            return None if found is None else (found, self._tracing.begin(found.attributes))
        except ProtocolError:
            # The dispatcher meets it, and says what it is.
            return None
        except Exception:  # A fault of tracing fails no request: it is logged once.
            self._fault()
            return None

    def _answered_later(self, found: Operation, span: Any, settled: Deferred[Answer]) -> None:
        try:
            answer = settled.result()
        except CloseConnection as reason:
            self._closed(span, reason)
            return
        self._answered(found, span, answer)

    def _answered(self, found: Operation, span: Any, answer: Answer) -> None:
        try:
            self._tracing.end(span, _errors(found, answer))
        except Exception:  # A fault of tracing fails no request: it is logged once.
            self._fault()

    def _closed(self, span: Any, reason: CloseConnection) -> None:
        try:
            self._tracing.end(span, ["CONNECTION_CLOSED"], str(reason))
        except Exception:  # A fault of tracing fails no request: it is logged once.
            self._fault()

    def _fault(self) -> None:
        if not self._complained:
            self._complained = True
            logger.exception("request not traced")


def _errors(found: Operation, answer: Answer) -> list[str]:
    """Names of the error codes of an answer, each once."""
    chunks = [answer] if isinstance(answer, bytes) else answer or []
    data = b"".join(chunks)  # type: ignore[arg-type]  # These APIs answer with bytes, never with parts of files.
    if not data:
        return []
    key, version, frame = found.key, found.version, data[_SIZE_PREFIX:]
    if found.attributes["tidelog.forwarded"]:
        _, envelope = framing.decode_response(ApiKey.ENVELOPE, 0, frame)
        if envelope.error_code:
            return [ErrorCode(envelope.error_code).name]
        frame = bytes(envelope.response_data)
    _, response = framing.decode_response(key, version, frame)
    return [ErrorCode(code).name for code in dict.fromkeys(error_codes(response))]
