"""Answers of one connection on their way out: in the order of its requests, those of one turn in one write.

    put -+-- nothing waits -----> outgoing, joined when the read is done -> send -> transport, or outbox
         +-- a Deferred, or behind one -> a slot; when it arrives: what is due -> late -> send in the next turn

As in Kafka, a request is not begun while an earlier one of its connection waits for its answer; produce requests alone
may overlap, so that acks=all doesn't cost a round trip each (`must_wait`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.connections.outbox import Outbox
from tidelog.broker.deferred import Deferred
from tidelog.broker.peer import CloseConnection
from tidelog.ports.disk import FileRange

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from tidelog.broker.connections.admission import Admission
    from tidelog.broker.connections.writable_sockets import WritableSockets
    from tidelog.broker.requests.dispatch import Answer
    from tidelog.broker.shell import Shell

OVERLAPPING_PRODUCE_MAX: Final = 64
"""Produce requests of one connection that may wait for their answers at once."""
_PRODUCE: Final = 0


class _Slot:
    """A place in the order of answers: the encoded answer once it is known."""

    __slots__ = ("answer", "filled", "produce", "waits_for")

    def __init__(self, waits_for: Deferred[Any] | None, produce: bool) -> None:
        self.waits_for = waits_for
        self.produce = produce
        self.answer: Answer = None
        self.filled = waits_for is None


class Answers:
    """The answers of one connection."""

    __slots__ = (
        "_admission",
        "_close",
        "_late",
        "_on_arrival",
        "_on_drained",
        "_send_buffer_bytes",
        "_shell",
        "_sockets",
        "closed",
        "outbox",
        "outgoing",
        "slots",
        "transport",
        "write_paused",
    )

    transport: asyncio.Transport

    def __init__(
        self,
        shell: Shell,
        admission: Admission[Any],
        sockets: WritableSockets,
        send_buffer_bytes: int,
        *,
        on_arrival: Callable[[], None],
        on_drained: Callable[[], None],
        close: Callable[..., None],
    ) -> None:
        """`on_arrival`: an answer that was waited for has come; `on_drained`: the client has read what there was.

        `close(reason, abort=...)` ends the connection, which sets `transport` before the first answer.
        """
        self._shell = shell
        self._admission = admission
        self._sockets = sockets
        self._send_buffer_bytes = send_buffer_bytes
        self._on_arrival = on_arrival
        self._on_drained = on_drained
        self._close = close
        self.slots: deque[_Slot] = deque()
        """Answers that can't go out yet, and those behind them; empty as a rule."""
        self.outgoing: list[Any] | None = None
        """Answers collected while requests are being handled; None at all other times."""
        self._late: list[Any] | None = None
        """Answers that came later, collected until the next turn of the loop."""
        self.outbox: Outbox | None = None
        """What answers go through once one of them has had a range of a file."""
        self.write_paused = False
        """Whether the transport holds as much as it may."""
        self.closed = False

    @property
    def are_unread(self) -> bool:
        """Whether answers have been made that the client does not take."""
        return self.write_paused or (self.outbox is not None and self.outbox.busy)

    @property
    def may_begin_produce(self) -> bool:
        """Whether a Produce request may be begun: no other is waited for, and the client reads its answers."""
        if self.are_unread:
            return False
        slots = self.slots
        return not slots or (slots[-1].produce and len(slots) < OVERLAPPING_PRODUCE_MAX)

    def collect(self) -> list[Any]:
        """Requests are about to be handled: `put` adds to the list that this gives, until `outgoing` is None again."""
        outgoing: list[Any] = []
        self.outgoing = outgoing
        return outgoing

    def put(self, answer: Answer | Deferred[Answer], produce: bool) -> None:
        """Puts an answer in its place: among the outgoing ones, or in the queue behind one that waits."""
        if isinstance(answer, Deferred):
            if not answer.done:
                slot = _Slot(answer, produce)
                self.slots.append(slot)
                answer.on_complete(lambda settled: self._arrived(slot, settled))
                return
            answer = answer.result()
        if self.slots:
            slot = _Slot(None, produce)
            slot.answer = answer
            self.slots.append(slot)
        else:
            assert self.outgoing is not None
            _append(self.outgoing, answer)

    def _arrived(self, slot: _Slot, settled: Deferred[Any]) -> None:
        slot.filled = True
        try:
            slot.answer = settled.result()
        except CloseConnection as reason:
            self._close(str(reason))
            return
        if self.closed:
            _release(slot.answer)
            return
        # While requests are handled the answers join those that were collected, which go before them.
        outgoing: list[Any] = [] if self.outgoing is None else self.outgoing
        while self.slots and self.slots[0].filled:
            _append(outgoing, self.slots.popleft().answer)
        if self.outgoing is None:
            if outgoing:
                self._send_soon(outgoing)
            self._on_arrival()

    def must_wait(self, following: memoryview) -> bool:
        """Whether the request at the start of `following` has to wait; asks what it waits for to hurry, if it can."""
        if self.slots and self.slots[0].waits_for is not None:
            # A follower's fetch waits for news, and it has some itself: it is answered, and the next one is begun.
            self.slots[0].waits_for.hurry()
        if self.are_unread:
            return True
        if not self.slots:
            return False
        overlapping = self.slots[-1].produce and following[4] == 0 and following[5] == _PRODUCE
        return not overlapping or len(self.slots) >= OVERLAPPING_PRODUCE_MAX

    # Sending.

    def _send_soon(self, chunks: list[Any]) -> None:
        """Late answers of one turn of the loop, as of all produce requests that one commit sets free, are one write."""
        if self._late is None:
            self._late = chunks
            self._shell.soon(self.send_late)
        else:
            self._late += chunks

    def send_late(self) -> None:
        """Sends what has been collected for the next turn of the loop."""
        if self._late is not None and not self.closed:
            self.send([])

    def send(self, chunks: list[Any]) -> None:
        """Sends `chunks`, behind what has been collected for the next turn."""
        if self._late is not None:
            chunks, self._late = self._late + chunks, None
        outbox = self.outbox
        if outbox is None:
            if len(chunks) == 1 and type(chunks[0]) is bytes:
                self.transport.write(chunks[0])
                return
            for chunk in chunks:
                if type(chunk) is FileRange:
                    break
            else:
                self.transport.write(chunks[0] if len(chunks) == 1 else b"".join(chunks))
                return
            outbox = self.outbox = Outbox(
                self.transport,
                self._shell,
                self._sockets,
                self._drained,
                lambda error: self._close(str(error), abort=True),
                send_buffer_bytes=self._send_buffer_bytes,
                admission=self._admission,
            )
            outbox.transport_paused = self.write_paused
        outbox.send(chunks)

    def _drained(self) -> None:
        self._on_drained()

    def pause(self) -> None:
        """The transport holds as much as it may."""
        self.write_paused = True
        if self.outbox is not None:
            self.outbox.transport_paused = True

    def resume(self) -> None:
        """The transport has room again."""
        self.write_paused = False
        if self.outbox is not None:
            self.outbox.resume()

    def abandon(self) -> None:
        """The connection is gone: nothing is waited for any more, and nothing here points to it."""
        self.closed = True
        for slot in self.slots:
            if slot.waits_for is not None and not slot.filled:
                slot.waits_for.abandon()
            _release(slot.answer)
        self.slots.clear()
        _release(self._late)
        self._late = None
        if self.outbox is not None:
            self.outbox.close()
        self._on_arrival = self._on_drained = self._close = _nothing


def memory_of(answer: Answer | Deferred[Answer]) -> int:
    """Bytes of an answer that are in memory; ranges stay in their files."""
    if type(answer) is bytes:
        return len(answer)
    if type(answer) is list:
        return sum(len(chunk) for chunk in answer if type(chunk) is not FileRange)
    return 0


def _append(outgoing: list[Any], answer: Answer) -> None:
    if type(answer) is bytes:
        outgoing.append(answer)
    elif answer is not None:
        outgoing.extend(answer)


def _release(answer: Answer) -> None:
    """Gives up an answer that will not be read."""
    if isinstance(answer, list):
        for chunk in answer:
            if isinstance(chunk, FileRange):
                chunk.release()


def _nothing(*_: Any, **__: Any) -> None:
    """What is called in the place of a connection that is gone."""
