"""One connection: frames in, answers out, in order.

    socket -> buffer -> received -> _take -> the dispatcher, for each whole frame -> Answers -> one write
                 |          |
                 |          +-- a frame larger than what came: its own buffer, after a reservation (`large_frame`)
                 +-- the shared receive buffer, or exactly the rest of the current large frame

asyncio calls `get_buffer` and `buffer_updated` (`single_requests`). Where these are compiled, they handle a read of one
request themselves, and it skips `received` and `_take`.

Whole frames are parsed in place, in the buffer that all connections share; a connection keeps a copy of what is left of
an incomplete frame.
Handlers are called synchronously: no task and no future for a request, unless its answer has to wait.

**Order.** Answers go out in the order of the requests (`answers`). Some that are not ready yet make the connection's
next request wait.

**Bounds.** Bytes of large frames are reserved first (`budget`); a connection whose answers aren't read has no further
requests begun. Bounds over all connections together are in `server`.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from socket import SO_LINGER, SOL_SOCKET
from typing import TYPE_CHECKING, Final, Protocol, cast

from tidelog.broker.connections.answers import Answers, memory_of
from tidelog.broker.connections.large_frame import LargeFrame
from tidelog.broker.connections.single_requests import SingleRequests
from tidelog.broker.peer import CloseConnection, Peer
from tidelog.protocol.framing import REQUEST_SIZE_MIN
from tidelog.security.access import UnknownPrincipal
from tidelog.security.authorizer import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.broker.connections.admission import Admission
    from tidelog.broker.connections.authentication import Gate
    from tidelog.broker.connections.budget import ByteBudget
    from tidelog.broker.connections.connection_rates import ConnectionRates
    from tidelog.broker.connections.tls import ListenerTls
    from tidelog.broker.connections.writable_sockets import WritableSockets
    from tidelog.broker.requests.dispatch import Dispatcher
    from tidelog.broker.shell import Shell, Timer
    from tidelog.security.authorizer import Authorizer

logger: Final = logging.getLogger(__name__)

AUTHENTICATION_MS_MAX: Final = 60_000
"""How long a connection may take to authenticate; Kafka has connections.max.idle.ms alone."""
CROWDED_WINDOW: Final = 4 << 10
"""Bytes of a read while others wait for memory: what is kept of frames that can't be begun stays small."""
TAIL_MAX: Final = 16 << 10
"""Bytes of an incomplete frame that are kept as a copy and put before the next read; longer ones get a buffer."""
WRITE_BUFFER_HIGH: Final = 256 << 10
"""Bytes of unread answers in the transport beyond which no further request of a connection is begun."""

_NO_LINGER: Final = struct.pack("ii", 1, 0)
_INT: Final = struct.Struct(">i")
_PRODUCE: Final = 0


class Served(Protocol):
    """What a connection needs of the server that it belongs to."""

    shell: Shell
    monotonic_ms: Callable[[], int]
    dispatcher: Dispatcher
    serving: bool
    """Whether requests are handled; before that, what comes waits."""
    stopping: bool
    request_bytes_max: int
    """Bytes of the largest request (socket.request.max.bytes)."""
    send_buffer_bytes: int
    view: memoryview
    """The buffer that all connections read into."""
    budget: ByteBudget
    admission: Admission[Connection]
    sockets: WritableSockets
    rates: ConnectionRates
    authorizer: Authorizer | None
    tls: Mapping[str, ListenerTls]

    def gate(self, connection: Connection) -> Gate | None:
        """What the connection has to pass before its requests are handled; None by a listener without SASL."""
        ...

    def admit(self, connection: Connection, address: str) -> str | None:
        """Counts the connection; the reason when it may not stay."""
        ...

    def dismiss(self, connection: Connection, address: str) -> None:
        """Counts the connection no more."""
        ...

    def hold(self, connection: Connection, milliseconds: int) -> None:
        """Resets the connection so much later."""
        ...

    def frames_now(self) -> int:
        """How many requests the connection that asks may have handled now."""
        ...

    def frames_handled(self, count: int) -> None:
        """Counts requests that were handled in this turn of the loop."""
        ...

    def unread(self, connection: Connection, size: int) -> None:
        """Notes how many bytes of answers the connection's client leaves unread."""
        ...

    def schedule_stall_check(self) -> None:
        """Has connections closed that hold memory and stall, while others wait for it."""
        ...


class Connection(SingleRequests, asyncio.BufferedProtocol):
    """One client."""

    __slots__ = (
        "_admitted",
        "_answers",
        "_backlog",
        "_closed",
        "_gate",
        "_large",
        "_muted",
        "_muted_until_ms",
        "_paused_reading",
        "_resuming",
        "_server",
        "_tail",
        "_transport",
        "active_ms",
        "begun_ms",
        "has_asked",
        "peer",
        "provisional",
    )

    _transport: asyncio.Transport

    def __init__(self, server: Served, listener: str, connection_id: int) -> None:
        self._server = server
        self.peer = Peer(listener, connection_id)
        self.active_ms = server.monotonic_ms()
        """When the last bytes came in or went out."""
        self.begun_ms = self.active_ms
        self._gate: Gate | None = None
        """By SASL listeners: what requests have to pass; None once that is done for good."""
        self.has_asked = False
        """Whether anything ever came in; by a SASL listener, from a client that has authenticated."""
        self.provisional = False
        """Whether its first request has to be a broker's: there was no room for a client (`admission`)."""
        self._tail = b""
        """The beginning of a frame, to be put before the next read."""
        self._large: LargeFrame | None = None
        """The large frame under way, or waiting for its memory."""
        self._backlog: memoryview | None = None
        """Bytes received that must wait: for an answer, for the client to read, for the next turn."""
        self._answers = Answers(
            server.shell,
            server.admission,
            server.sockets,
            server.send_buffer_bytes,
            on_arrival=self._arrived,
            on_drained=self._drained,
            close=self.close,
        )
        self._paused_reading = False
        self._resuming = False
        self._closed = False
        self._admitted = False
        self._muted: Timer | None = None
        """Runs while its client is over a quota: no further request is begun."""
        self._muted_until_ms = 0
        self.peer.on_throttled = self._mute

    # asyncio's side.

    def handshake_begins(self, transport: asyncio.Transport) -> int:
        """By TLS listeners: a client has connected. It is counted, and has its place, before its handshake.

        For how many milliseconds the handshake has to wait.
        """
        self._came_by(transport)
        held = self._server.rates.came(self.peer.listener, self.peer.address, self.begun_ms)
        if held.is_refused:
            self._server.hold(self, held.milliseconds)
            # No handshake is begun before it is reset.
            return held.milliseconds + 1
        self._take_place()
        return held.milliseconds

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes, though they have their methods.
        transport = cast(asyncio.Transport, transport)
        self._came_by(transport)
        if self._closed:
            # It had to make way in the moment in which its handshake was done.
            transport.abort()
            return
        try:
            self._gate = self._server.gate(self)
            self.peer.authorizer = self._server.authorizer
            if self._gate is None and not self._identify(transport):
                return
        except BaseException:
            # The loop logs what is raised, and reads on: nothing may be handled without a gate or a principal.
            self.close("authentication could not begin", abort=True)
            raise
        transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH)
        if not self._admitted:
            held = self._server.rates.came(self.peer.listener, self.peer.address, self.begun_ms)
            if held.milliseconds:
                self._mute(held.milliseconds)
            if held.is_refused:
                self._server.hold(self, held.milliseconds)
                return
            self._take_place()
        if not self._server.serving:
            self._pause_reading()

    def _came_by(self, transport: asyncio.Transport) -> None:
        self._transport = self._answers.transport = transport
        peer = transport.get_extra_info("peername")
        self.peer.address = str(peer[0]) if peer else ""
        self.peer.port = int(peer[1]) if peer else 0

    def _take_place(self) -> None:
        """Counts the connection, and closes it where there is no room."""
        refusal = self._server.admit(self, self.peer.address)
        if refusal is not None:
            self.close(refusal, abort=True, quiet=True)
            return
        self._admitted = True

    def _identify(self, transport: asyncio.Transport) -> bool:
        """Takes the principal of the client's certificate, if there is one; closes where it names no principal."""
        tls = self._server.tls.get(self.peer.listener)
        principal = self.peer.principal
        if tls is not None:
            try:
                principal = tls.principal(transport)
            except UnknownPrincipal as error:
                self.close(f"authentication failed: {one_line(str(error))}", abort=True)
                return False
        if tls is not None or self.peer.authorizer is not None:
            self.peer.authenticated(principal)
        return True

    def begin(self) -> None:
        """The broker is ready."""
        if self._backlog is not None:
            self._continue()
        else:
            self._resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = self._answers.closed = True
        if self._server.serving:
            self._server.dispatcher.connection_closed(self.peer)
        self.peer.on_throttled = None
        if self._muted is not None:
            self._muted.cancel()
        if self._admitted:
            self._admitted = False
            self._server.dismiss(self, self.peer.address)
        self._answers.abandon()
        self._backlog = None
        self._give_back_frame()

    def eof_received(self) -> bool:
        return False

    # Reads: `get_buffer` and `buffer_updated` are those of `SingleRequests`.

    def buffer(self) -> memoryview:
        """Where the next read goes."""
        large = self._large
        if large is not None and large.has_begun:
            return large.rest()
        view = self._server.view
        tail = self._tail
        if self._server.budget.crowded:
            view = view[: len(tail) + CROWDED_WINDOW]
        if tail:
            size = len(tail)
            view[:size] = tail
            return view[size:]
        return view

    def received(self, nbytes: int) -> None:
        """`nbytes` bytes were read into the buffer."""
        if self._closed:
            return
        server = self._server
        self.active_ms = server.monotonic_ms()
        if self.provisional:
            if not server.admission.prove(self, server.view[:nbytes]):
                self.close("there is no room for connections of clients", abort=True, quiet=True)
                return
            self.provisional = False
        if not server.serving:
            # uvloop begins to read when `connection_made` is over, whatever was asked there.
            self._backlog = memoryview(bytearray(server.view[:nbytes]))
            self._transport.pause_reading()
            return
        if self._muted is not None:
            # The same of uvloop, where the rate of connections is held.
            self._transport.pause_reading()
        large = self._large
        if large is not None and large.has_begun:
            large.filled(nbytes)
            if large.is_complete:
                self._take_frame(large)
            return
        tail = self._tail
        if tail:
            nbytes += len(tail)
            self._tail = b""
        self._take(server.view[:nbytes])

    def pause_writing(self) -> None:
        self._answers.pause()
        self._server.unread(self, self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self.active_ms = self._server.monotonic_ms()
        self._server.unread(self, 0)
        self._answers.resume()
        self._continue()

    # Requests.

    def _take_frame(self, large: LargeFrame) -> None:
        """A large frame is complete."""
        view = large.view()
        if self._blocked(view):
            # It stays where it is, reserved, and is taken up when its turn comes.
            self._pause_reading()
            return
        self._take(view)
        self._give_back_frame()
        if self._backlog is None and not self._closed:
            self._resume_reading()

    def _take(self, view: memoryview, *, owned: bool = False) -> None:
        """Handles the frames at the start of `view` and keeps what can't be handled now; `owned`: it may be kept."""
        position, end = 0, len(view)
        server = self._server
        turn = allowed = server.frames_now()
        unsent = 0
        answers = self._answers
        outgoing = answers.collect()
        received_ms = self.active_ms
        request = server.dispatcher.request
        ordinary = server.dispatcher.ordinary(received_ms)
        size_min, size_max = REQUEST_SIZE_MIN, server.request_bytes_max
        gate = self._gate
        if gate is not None:
            gate.dispatch, request = request, gate.request
            if not gate.admits(received_ms):
                ordinary = None
            if not gate.is_open:
                size_min, size_max = 0, gate.frame_size_max
        is_ordinary = False
        try:
            while end - position >= 4:
                if ordinary is not None and answers.may_begin_produce and not self._muted:
                    # Behind answers that are waited for there is one place for all that these requests have at once.
                    at_once = [] if answers.slots else outgoing
                    position, count, late = ordinary.take(
                        self.peer, view, position, end, turn, server.request_bytes_max, at_once
                    )
                    turn -= count
                    is_ordinary = count > 0
                    if at_once is not outgoing and at_once:
                        answers.put(at_once, produce=True)
                    if late is not None:
                        answers.put(late, produce=True)
                        continue
                    if end - position < 4:
                        break
                (size,) = _INT.unpack_from(view, position)
                if size < size_min or size > size_max:
                    if gate is not None and not gate.is_open:
                        gate.refuse_size(size)
                        break
                    if size < REQUEST_SIZE_MIN or size > server.request_bytes_max:
                        raise CloseConnection(_frame_complaint(size, server.request_bytes_max))
                frame_end = position + 4 + size
                if frame_end > end:
                    break
                if turn <= 0 or unsent > WRITE_BUFFER_HIGH:
                    break
                if (answers.slots or answers.write_paused or answers.outbox or self._muted) and self._blocked(
                    view[position:]
                ):
                    break
                turn -= 1
                frame_start = position + 4
                answer = request(self.peer, view, frame_start, frame_end, received_ms)
                position = frame_end
                if gate is not None and not gate.admits(received_ms):
                    # It has begun to authenticate again: what follows belongs to that.
                    ordinary = None
                if answer is not None:
                    if type(answer) is bytes and not answers.slots:
                        outgoing.append(answer)
                        # By an API's `handle_body`: it took as little as the compiled way.
                        is_ordinary = True
                    else:
                        unsent += memory_of(answer)
                        answers.put(answer, size > 1 and view[frame_start + 1] == _PRODUCE)
                        if gate is not None and gate.is_ending:
                            break
        except CloseConnection as reason:
            answers.outgoing = None
            if outgoing:
                answers.send(outgoing)
            self.close(str(reason))
            return
        answers.outgoing = None
        self.has_asked = gate is None or gate.is_open
        if gate is not None and gate.is_ending:
            # What it sends is not read any more: it is about to be closed.
            self._pause_reading()
            position = end
        elif gate is not None and gate.is_passed:
            self._gate = None
        if position < end or allowed - turn != 1 or not is_ordinary:
            # A single ordinary request is not counted: it may be handled whatever else the turn has done, and to reset
            # the count in the next turn would take longer than the request did.
            server.frames_handled(allowed - turn)
        if outgoing:
            answers.send(outgoing)
        if position < end and not self._closed:
            self._keep(view, position, end, owned)

    def _blocked(self, following: memoryview) -> bool:
        """Whether the request at the start of `following` has to wait: for answers, or for the end of a throttle."""
        return self._answers.must_wait(following) or self._muted is not None

    def _keep(self, view: memoryview, position: int, end: int, owned: bool) -> None:
        """Keeps the rest of what was received: frames that wait, or the beginning of one."""
        rest = end - position
        size = _INT.unpack_from(view, position)[0] + 4 if rest >= 4 else 0
        if 0 < size <= rest:
            # Whole frames that must wait. Stop reading: the kernel's window closes, and the client waits too.
            self._backlog = view[position:end] if owned else memoryview(bytearray(view[position:end]))
            self._pause_reading()
            if not self._answers.slots and not self._answers.are_unread:
                self._continue()
            return
        if size <= len(self._server.view) and rest <= TAIL_MAX:
            self._tail = bytes(view[position:end])
            return
        self._begin_frame(view[position:end], size)

    def _begin_frame(self, beginning: memoryview, size: int) -> None:
        """Gets a buffer for a frame of which only the beginning is here, or waits for the right to."""
        server = self._server
        large = self._large = LargeFrame(server.budget, size, self._granted)
        if large.may_begin:
            large.begin(self.active_ms, beginning)
        else:
            large.keep(beginning)
            self._pause_reading()
            server.schedule_stall_check()

    def _granted(self) -> None:
        """The memory for the frame that waited is there."""
        assert self._large is not None
        self.active_ms = self._server.monotonic_ms()
        self._large.begin(self.active_ms)
        self._resume_reading()

    def _give_back_frame(self) -> None:
        large, self._large = self._large, None
        if large is not None:
            large.give_back()

    def _continue(self) -> None:
        """Takes up, in the next turn, what had to wait."""
        if not self._resuming and not self._closed:
            self._resuming = True
            self._server.shell.soon(self._resume)

    def _resume(self) -> None:
        self._resuming = False
        if self._closed:
            return
        backlog, large = self._backlog, self._large
        if backlog is not None:
            if self._blocked(backlog):
                return
            self._backlog = None
            self._take(backlog, owned=True)
        elif large is not None and large.is_complete:
            self._take_frame(large)
            return
        if self._backlog is None and (self._large is None or self._large.has_begun):
            self._resume_reading()

    # Answers.

    def _arrived(self) -> None:
        """An answer that was waited for is there."""
        if self._paused_reading:
            self._continue()

    def _drained(self) -> None:
        """The client has read what there was."""
        self.active_ms = self._server.monotonic_ms()
        if self._paused_reading:
            self._continue()

    # Life and death.

    def stalled(self, now_ms: int) -> str | None:
        """Why a connection that holds memory for its frame should be closed, when others wait for it."""
        return None if self._large is None else self._large.stalled(now_ms, self.active_ms)

    def is_overdue(self, now_ms: int) -> bool:
        """Whether its client should have authenticated by now."""
        return self._gate is not None and not self._gate.is_open and now_ms - self.begun_ms >= AUTHENTICATION_MS_MAX

    @property
    def has_requests_waiting(self) -> bool:
        """Whether requests have been received that are not begun."""
        return self._backlog is not None

    @property
    def has_answers_waiting(self) -> bool:
        """Whether answers have been made that its client does not take."""
        return self._answers.are_unread

    @property
    def is_idle(self) -> bool:
        """Whether nothing is due to its client: no answer that waits or is unread, no request that is kept waiting."""
        answers, large = self._answers, self._large
        if answers.slots or answers.are_unread or self._closed or self._muted or self._backlog is not None:
            return False
        return large is None or large.may_begin

    def make_way(self) -> None:
        """Closes an idle connection for another one, and counts it no more."""
        self.close("idle, and its place is needed", abort=True, quiet=True)
        self._admitted = False
        self._server.dismiss(self, self.peer.address)

    def reset(self, reason: str) -> None:
        """Ends the connection so that its client sees it reset, as one that was never read."""
        socket = self._transport.get_extra_info("socket")
        if socket is not None and not self._closed:
            socket.setsockopt(SOL_SOCKET, SO_LINGER, _NO_LINGER)
        self.close(reason, abort=True, quiet=True)

    def close(self, reason: str, *, abort: bool = False, quiet: bool = False) -> None:
        """Closes the connection, after its buffered answers unless `abort`, and says why in the log."""
        if self._closed:
            if abort:
                self._transport.abort()
            return
        if not abort:
            self._answers.send_late()
        self._closed = self._answers.closed = True
        logger.log(
            logging.DEBUG if quiet or self._server.stopping else logging.WARNING,
            "connection closed: peer=%s:%d listener=%s reason=%s",
            self.peer.address,
            self.peer.port,
            self.peer.listener,
            reason,
        )
        if abort:
            self._transport.abort()
        else:
            self._transport.close()

    def _pause_reading(self) -> None:
        if not self._paused_reading and not self._closed:
            self._paused_reading = True
            self._transport.pause_reading()

    def _mute(self, milliseconds: int) -> None:
        """Begins no further request for so long; answers go out. A later end than the known one counts."""
        until_ms = self._server.monotonic_ms() + milliseconds
        if self._closed or (self._muted is not None and until_ms <= self._muted_until_ms):
            return
        if self._muted is not None:
            self._muted.cancel()
        self._muted_until_ms = until_ms
        self._muted = self._server.shell.after(milliseconds, self._unmute)
        self._pause_reading()

    def _unmute(self) -> None:
        self._muted = None
        if self._server.serving:
            self.active_ms = self._server.monotonic_ms()
            self._continue()

    def _resume_reading(self) -> None:
        if self._paused_reading and not self._closed and self._muted is None:
            self._paused_reading = False
            self._transport.resume_reading()


def _frame_complaint(size: int, size_max: int) -> str:
    if size > size_max:
        if _looks_like_tls(size):
            return "it speaks TLS, and this listener does not"
        return (
            f"a frame of {size} bytes is larger than socket.request.max.bytes={size_max}, or it is not a Kafka request"
        )
    return f"a frame of {size} bytes is not a valid Kafka request"


def _looks_like_tls(size: int) -> bool:
    return size >> 8 in (0x160301, 0x160302, 0x160303)
