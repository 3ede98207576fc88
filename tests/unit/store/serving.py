"""The embedded store served, for tests: in memory with a clock of their own, or on loopback in a thread."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from tidelog.ports.real import SystemClock, SystemNetwork, SystemRandom
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.persistence import MemoryPersistence, Persistence
from tidelog.store.server import StoreServer

DEADLINE_S = 180.0


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """A test's coroutine, in a loop of its own, with a deadline."""

    async def within() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await scenario()

    asyncio.run(within())


class ManualClock:
    """Goes when it is told to."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def wall_ms(self) -> int:
        return 1_500_000_000_000 + self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


class MemoryTransport(asyncio.Transport):
    """The server's side of a connection; what it writes is kept."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.protocol = protocol
        self.written = bytearray()
        self.reading = True
        self.closed = False
        self.high = 1 << 16
        self.stalled = False
        """The client takes nothing: what is written counts as unread."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 40000) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high or self.high

    def get_write_buffer_size(self) -> int:
        return len(self.written) if self.stalled else 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data
        if self.stalled and len(self.written) > self.high:
            self.protocol.pause_writing()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()


class MemoryNetwork:
    """A `Network` in which tests dial by hand."""

    def __init__(self) -> None:
        self.factory: Callable[[], asyncio.BaseProtocol] | None = None
        self.address = ("memory", 2181)

    async def listen(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> MemoryNetwork:
        self.factory = factory
        return self

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        raise NotImplementedError

    def close(self) -> None:
        self.factory = None


class RawClient:
    """Writes frames, and reads what came, byte for byte."""

    def __init__(self, network: MemoryNetwork) -> None:
        assert network.factory is not None
        protocol = network.factory()
        assert isinstance(protocol, asyncio.Protocol)
        self.protocol = protocol
        self.transport = MemoryTransport(protocol)
        protocol.connection_made(self.transport)

    @property
    def closed(self) -> bool:
        return self.transport.closed

    def hang_up(self) -> None:
        """The connection breaks."""
        self.transport.close()

    def send(self, body: bytes) -> None:
        """One frame."""
        self.send_raw(struct.pack(">i", len(body)) + body)

    def send_raw(self, data: bytes) -> None:
        if not self.closed:
            self.protocol.data_received(data)

    async def frames(self) -> list[bytes]:
        """The frames that came since, once the server has nothing left to do."""
        for _ in range(12):
            await asyncio.sleep(0)
        data, position, found = bytes(self.transport.written), 0, []
        while position < len(data):
            (size,) = struct.unpack_from(">i", data, position)
            found.append(data[position + 4 : position + 4 + size])
            position += 4 + size
        self.transport.written.clear()
        return found

    async def connect(
        self, timeout_ms: int = 6000, session: int = 0, password: bytes = bytes(16), seen: int = 0
    ) -> tuple[int, int, bytes]:
        """Timeout, session id and password of the answer."""
        self.send(struct.pack(">iqiq", 0, seen, timeout_ms, session) + struct.pack(">i", 16) + password + b"\0")
        (frame,) = await self.frames()
        _, timeout, id = struct.unpack_from(">iiq", frame)
        return timeout, id, frame[20:36]


class ServedInMemory:
    """Store and server on a loop of the test's, reached by `RawClient`."""

    def __init__(self, persistence: Persistence | None = None) -> None:
        self.clock = ManualClock()
        self.network = MemoryNetwork()
        self.store = EmbeddedStore(persistence or MemoryPersistence(), self.clock, SystemRandom())
        self.server = StoreServer(self.store, self.clock)

    async def __aenter__(self) -> ServedInMemory:
        self.store.start()
        await self.server.start(self.network, "memory", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.close()
        await self.store.close()

    def dial(self) -> RawClient:
        return RawClient(self.network)

    async def pass_time(self, milliseconds: int) -> None:
        """Wakes the server whenever its timer would."""
        end_ms = self.clock.now_ms + milliseconds
        while self.clock.now_ms < end_ms:
            next_ms = self.server.next_expiry_ms
            self.clock.now_ms = min(end_ms, max(self.clock.now_ms + 1, next_ms if next_ms is not None else end_ms))
            self.server.expire()
            for _ in range(5):
                await asyncio.sleep(0)


class Served:
    """Store and server on loopback, in a thread with a loop of its own, as in another process."""

    def __init__(self, persistence: Callable[[], Persistence] = MemoryPersistence) -> None:
        self._persistence = persistence()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._up = threading.Event()
        self.port = 0
        self.store: EmbeddedStore | None = None

    @property
    def hosts(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Served:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begins to serve, again on the same port."""
        self._up.clear()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._up.wait(DEADLINE_S)

    def stop(self) -> None:
        """Ends as a process that is stopped; sessions stay in the store."""
        if self._thread is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._leave.set)
            self._thread.join(DEADLINE_S)
            self._thread = None

    def call(self, action: Callable[[EmbeddedStore], object]) -> None:
        """Has something done on the server's loop, and waits for it."""

        async def act() -> None:
            assert self.store is not None
            result = action(self.store)
            if isinstance(result, Awaitable):
                await result

        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(act(), self._loop).result(DEADLINE_S)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._leave = asyncio.Event()
        clock = SystemClock()
        self.store = EmbeddedStore(self._persistence, clock, SystemRandom())
        self.store.start()
        server = StoreServer(self.store, clock)
        _, self.port = await server.start(SystemNetwork(), "127.0.0.1", self.port)
        self._up.set()
        await self._leave.wait()
        await server.close()
        await self.store.close()


class Proxy:
    """A way to a server that can be cut. On the test's own loop."""

    def __init__(self, hosts: str) -> None:
        host, _, port = hosts.partition(":")
        self._target = (host, int(port))
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.hosts = ""
        self.open = True
        """New connections reach the server."""
        self.answers = True
        """What the server says reaches the client."""

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.hosts = f"{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Breaks the connections there are."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.open:
            writer.transport.abort()
            return
        there_reader, there_writer = await asyncio.open_connection(*self._target)
        self._writers += [writer, there_writer]
        self._tasks += [
            asyncio.create_task(self._pump(reader, there_writer, lambda: True)),
            asyncio.create_task(self._pump(there_reader, writer, lambda: self.answers)),
        ]

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: Callable[[], bool]
    ) -> None:
        try:
            while data := await reader.read(1 << 16):
                if passes():
                    writer.write(data)
        except OSError:
            pass
        finally:
            writer.close()
