"""The address of a store that has moved, served on: every connection goes on to the servers where the store is now.

    broker --- the former store's address --- relay --- a server of the ensemble

So brokers need not be told where the store went, all at once: a client of the former address gets a session of the
new store, made by the new store. Sessions, passwords, pings, watches are between the two; the relay only looks at

- the first frame of each side. A client may come with a session of the former store, and with what it has seen there,
  which means nothing here: unless this relay has seen the session being made, that is left out, and the new store says
  itself whether it knows the session. One of the former store it does not: the client begins anew.
- paths, where the new place has a chroot (`rooted_frames`).

No client is let through before the node that keeps brokers out of the new store is gone (`moving.IMPORT`), which only
the former store may take away, once it serves no client itself. A client that cannot be served is cut off, and tries
again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from struct import Struct
from typing import TYPE_CHECKING, Final, cast

from tidelog.store.jute import MalformedRecord
from tidelog.store.moving import Servers
from tidelog.store.rooted_frames import RootedFrames

if TYPE_CHECKING:
    from tidelog.ports.network import Network

logger: Final = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 1000
"""Two file descriptors each."""
CONNECT_WAIT_S: Final = 10.0
"""For a client to say what it wants, and for a server to be reached."""
UNREAD_PAUSE: Final = 1 << 20
"""Bytes not taken by one side at which no more is read from the other."""
FRAME_SIZE_MAX: Final = 64 << 20
"""Bytes; a server's answer that is larger can be nothing but garbage."""
CONNECT_SIZE_MAX: Final = 1024
OPEN_DELAY_S: Final = 0.2
OPEN_DELAY_S_MAX: Final = 5.0
"""Between two attempts to reach the new store for the first time."""
TURNS_TO_CLOSE: Final = 3
"""Of the event loop, in which connections that were cut off are closed."""
SESSIONS_REMEMBERED: Final = 10_000

_LENGTH: Final = Struct(">i")
_CONNECT: Final = Struct(">iqiq")
"""Protocol version, last zxid seen, timeout, session: how a client's first frame begins."""
_CONNECTED: Final = Struct(">iiq")
"""Protocol version, timeout, session: how the answer begins."""


class Relay:
    """Where the store is now, and the clients on their way there."""

    def __init__(self, servers: Servers, network: Network, make_sure: Callable[[], Awaitable[None]]) -> None:
        """`make_sure` sees to it that the new store may be used; OSError or StoreError while that is not known."""
        self.servers = servers
        self._network = network
        self._make_sure = make_sure
        self._next = 0
        self._connections: dict[RelayConnection, None] = {}
        self._upstreams: dict[_Upstream, None] = {}
        self._sessions: dict[int, None] = {}
        """Sessions of the new store that this relay has seen being made or taken up again, the newest last."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self.is_open = False
        """Whether clients are let through."""

    def start(self) -> None:
        """Begins to let clients through as soon as the new store may be used."""
        self.spawn(self._open())

    async def _open(self) -> None:
        from tidelog.store.errors import StoreError

        delay_s = OPEN_DELAY_S
        while not self._closed:
            try:
                await self._make_sure()
            except (OSError, StoreError) as error:
                logger.warning("store has moved, its new place cannot be used yet: reason=%s", error)
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, OPEN_DELAY_S_MAX)
            else:
                self.is_open = True
                return

    def spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cuts off all clients. Idempotent."""
        self._closed = True
        self.is_open = False
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in list(self._connections):
            connection.abort()
        for upstream in list(self._upstreams):
            upstream.abort()
        for _ in range(TURNS_TO_CLOSE):
            await asyncio.sleep(0)

    @property
    def clients(self) -> list[str]:
        """Addresses of the clients that are served."""
        return [connection.peer for connection in self._connections if connection.is_through]

    def connection(self, report: Callable[[bytes], str]) -> RelayConnection:
        """What serves a client that has connected; `report` answers four-letter words."""
        return RelayConnection(self, report)

    # What connections ask.

    def admit(self, connection: RelayConnection) -> bool:
        """Whether one more connection is taken, be it for a word."""
        if self._closed or len(self._connections) >= CONNECTIONS_MAX:
            return False
        self._connections[connection] = None
        return True

    def left(self, connection: RelayConnection) -> None:
        self._connections.pop(connection, None)

    def knows(self, session_id: int) -> bool:
        return session_id in self._sessions

    def remember(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)
        self._sessions[session_id] = None
        if len(self._sessions) > SESSIONS_REMEMBERED:
            del self._sessions[next(iter(self._sessions))]

    def reached(self, upstream: _Upstream) -> None:
        self._upstreams[upstream] = None

    def lost(self, upstream: _Upstream) -> None:
        self._upstreams.pop(upstream, None)

    async def dial(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        """Connects to the first server that answers, another one to begin with each time. OSError."""
        addresses = self.servers.addresses
        self._next += 1
        failure: OSError | None = None
        for turn in range(len(addresses)):
            host, port = addresses[(self._next + turn) % len(addresses)]
            try:
                async with asyncio.timeout(CONNECT_WAIT_S / len(addresses)):
                    await self._network.connect(factory, host, port)
                return
            except OSError as error:  # TimeoutError is one.
                failure = error
        assert failure is not None
        raise failure


class _Side(asyncio.Protocol):
    """One of the two connections of a client that is relayed; what comes in here waits when the other does not read."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._input = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=UNREAD_PAUSE)

    def write(self, data: bytes) -> None:
        if self._transport is not None and data:
            self._transport.write(data)

    def close(self) -> None:
        """Sends what is to be sent and closes: nothing the client has asked for is taken back."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()


class RelayConnection(_Side):
    """A client's connection, and through `_Upstream` the server's that belongs to it."""

    def __init__(self, relay: Relay, report: Callable[[bytes], str]) -> None:
        """`report` answers four-letter words."""
        super().__init__()
        self._relay = relay
        self._report = report
        self._upstream: _Upstream | None = None
        self._asked = False
        self._timer: asyncio.TimerHandle | None = None
        root = relay.servers.root
        self.frames = RootedFrames(root) if root else None
        self.is_through = False
        """Whether the new store has answered."""

    @property
    def peer(self) -> str:
        """Address of the client."""
        address = self._transport.get_extra_info("peername") if self._transport is not None else None
        return f"{address[0]}:{address[1]}" if address else "?"

    # What the transport tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._timer = asyncio.get_running_loop().call_later(CONNECT_WAIT_S, self.abort)
        if not self._relay.admit(self):
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._relay.left(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._upstream is not None:
            self._upstream.close()

    def data_received(self, data: bytes) -> None:
        if self.is_through and self.frames is None and self._upstream is not None:
            self._upstream.write(data)
            return
        self._input += data
        try:
            self._take()
        except MalformedRecord as error:
            logger.warning("connection closed, malformed request: peer=%s reason=%s", self.peer, error)
            self.abort()

    def pause_writing(self) -> None:
        if self._upstream is not None:
            self._upstream.pause()

    def resume_writing(self) -> None:
        if self._upstream is not None:
            self._upstream.resume()

    # What the server's side tells.

    def connected(self, upstream: _Upstream) -> None:
        """The server is reached: what the client has said goes on to it."""
        if self._transport is None:
            upstream.close()
            return
        self._upstream = upstream
        self._take()

    def established(self, frame: bytes) -> None:
        """The server's first frame."""
        if len(frame) < _CONNECTED.size:
            raise MalformedRecord(f"an answer of {len(frame)} bytes to a connect")
        _, timeout_ms, session_id = _CONNECTED.unpack_from(frame)
        if timeout_ms > 0:
            self._relay.remember(session_id)
        if self._timer is not None:
            self._timer.cancel()
        self.is_through = True
        self._take()

    # Frames.

    def _take(self) -> None:
        if not self._asked:
            self._begin()
        elif self._upstream is not None and self.is_through:
            if self.frames is None:
                self._upstream.write(bytes(self._input))
                self._input.clear()
            else:
                for frame in take_frames(self._input, FRAME_SIZE_MAX):
                    self._upstream.write_frame(self.frames.request(frame))

    def _begin(self) -> None:
        """A four-letter word, or a request for a session."""
        if len(self._input) < 4:
            return
        if self._input[:4].isalpha():
            self._asked = True
            self.write(self._report(bytes(self._input[:4])).encode())
            self.close()
            return
        frame = next(take_frames(self._input, CONNECT_SIZE_MAX), None)
        if frame is None:
            return
        if len(frame) < _CONNECT.size:
            raise MalformedRecord(f"a connect of {len(frame)} bytes")
        self._asked = True
        if not self._relay.is_open:
            self.abort()
            return
        version, seen, timeout_ms, session_id = _CONNECT.unpack_from(frame)
        if not self._relay.knows(session_id):
            seen = 0
        self._relay.spawn(self._dial(_CONNECT.pack(version, seen, timeout_ms, session_id) + frame[_CONNECT.size :]))

    async def _dial(self, first: bytes) -> None:
        try:
            await self._relay.dial(lambda: _Upstream(self._relay, self, first))
        except OSError as error:
            logger.warning("no server of the moved store is reached: reason=%s", error)
            self.abort()


class _Upstream(_Side):
    """The connection to a server on behalf of one client."""

    def __init__(self, relay: Relay, client: RelayConnection, first: bytes) -> None:
        super().__init__()
        self._relay = relay
        self._client = client
        self._first = first

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._relay.reached(self)
        self.write_frame(self._first)
        self._client.connected(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._relay.lost(self)
        self._client.close()

    def data_received(self, data: bytes) -> None:
        client = self._client
        if client.is_through and client.frames is None:
            client.write(data)
            return
        self._input += data
        try:
            for frame in take_frames(self._input, FRAME_SIZE_MAX):
                translated = client.frames.answer(frame) if client.frames and client.is_through else frame
                client.write(_LENGTH.pack(len(translated)) + translated)
                if not client.is_through:
                    client.established(frame)
        except MalformedRecord as error:
            logger.warning("connection closed, malformed answer: client=%s reason=%s", client.peer, error)
            self.close()
            return
        if client.is_through and client.frames is None:
            # From now on bytes pass as they come.
            client.write(bytes(self._input))
            self._input.clear()

    def pause_writing(self) -> None:
        self._client.pause()

    def resume_writing(self) -> None:
        self._client.resume()

    def write_frame(self, frame: bytes) -> None:
        self.write(_LENGTH.pack(len(frame)) + frame)


def take_frames(data: bytearray, size_max: int) -> Iterator[bytes]:
    """Takes whole frames, without their lengths, off the front of `data`. MalformedRecord for an impossible length."""
    while len(data) >= _LENGTH.size:
        (size,) = _LENGTH.unpack_from(data)
        if not 0 <= size <= size_max:
            raise MalformedRecord(f"a frame of {size} bytes; at most {size_max} are taken")
        if len(data) - _LENGTH.size < size:
            return
        frame = bytes(data[_LENGTH.size : _LENGTH.size + size])
        del data[: _LENGTH.size + size]
        yield frame
