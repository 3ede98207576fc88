"""What a broker serves before it knows its cluster: its controller, and questions that need no cluster.

A starting broker learns from the controller which brokers live and what they lead, by requests like any others. Until
then no client could be told the truth, so what clients ask is kept, and answered when the broker is ready.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING, Final

from tidelog.broker.deferred import Deferred
from tidelog.broker.peer import CloseConnection, Peer
from tidelog.broker.requests.dispatch import Answer, Dispatcher
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from tidelog.broker.cluster.forwarding import Forwarding
    from tidelog.broker.handler import Handler
    from tidelog.broker.node import Node

SERVED_FIRST: Final = frozenset(
    {ApiKey.API_VERSIONS, ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA}
)
KEPT_BYTES_MAX: Final = 16 << 20
"""Bytes of requests that wait for the broker to be ready; more connections than that have to come again."""

_KEY: Final = struct.Struct(">h")


class StartingDispatcher(Dispatcher):
    """Stands before the dispatcher until `open`."""

    def __init__(self, node: Node, handlers: dict[int, Handler], forwarding: Forwarding | None = None) -> None:
        super().__init__(node, handlers, forwarding)
        self._kept: dict[Deferred[Answer], tuple[Peer, bytes, int]] = {}
        """[answer] -> the request and when it came, in the order in which they came."""
        self._kept_bytes = 0

    def ordinary(self, received_ms: int) -> None:
        """Every request is kept, or comes by `request`."""
        return

    def request(
        self, peer: Peer, view: memoryview, position: int, end: int, received_ms: int
    ) -> Answer | Deferred[Answer]:
        (key,) = _KEY.unpack_from(view, position)
        if key in SERVED_FIRST:
            return super().request(peer, view, position, end, received_ms)
        if self._kept_bytes + end - position > KEPT_BYTES_MAX:
            raise CloseConnection("the broker is starting and its startup request queue is full")
        self._kept_bytes += end - position
        answer: Deferred[Answer] = Deferred()
        self._kept[answer] = peer, bytes(view[position:end]), received_ms
        answer.on_abandoned = partial(self._give_up, answer)
        return answer

    def _give_up(self, answer: Deferred[Answer]) -> None:
        """The client is gone, and may ask the same by another connection."""
        _, frame, _ = self._kept.pop(answer)
        self._kept_bytes -= len(frame)

    def open(self, dispatcher: Dispatcher) -> None:
        """Hands what was kept to `dispatcher`, in the order in which it came."""
        kept, self._kept = self._kept, {}
        for answer, (peer, frame, received_ms) in kept.items():
            answer.on_abandoned = None
            try:
                given = dispatcher.request(peer, memoryview(frame), 0, len(frame), received_ms)
            except CloseConnection as reason:
                answer.fail(reason)
                continue
            if isinstance(given, Deferred):
                given.forward_to(answer)
            else:
                answer.complete(given)
