"""A network without sockets: connections that are slow, cut what is sent into pieces, break, and keep TCP's promises.

Bytes of a connection arrive in order, each after a delay that a seed draws, in pieces that have nothing to do with how
they were written. A reader that doesn't read fills the writer's buffer, which is told to pause. A killed process leaves
its peers with a reset.

Between each two hosts there is a `Link` for each direction. What is sent over a cut link is not lost but waits, as TCP
sends it again until it arrives: once the link is whole, it arrives late; if that takes too long, the sender's
connection fails, and the other end learns of it only when the link is whole.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import Counter, deque
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from sim.world.loop import VirtualLoop
from sim.world.ownership import PROCESS
from sim.world.randomness import SeededRandom

if TYPE_CHECKING:
    import ssl

    from sim.world.ownership import Owner
    from sim.world.trace import Trace
    from tidelog.ports.network import SecuredProtocol

HIGH_WATER: Final = 64 * 1024
"""Bytes under way at which a writer is told to pause, until it sets limits of its own."""
GIVE_UP_S: Final = (6.0, 15.0)
"""How long TCP goes on trying to send over a cut link, or to connect."""
LOOK_AGAIN_S: Final = 0.2
"""Between two tries to connect over a cut link."""
SILENCE_S: Final = (0.5, 8.0)
"""How long a peer hears nothing of a host that lost its power: until what it sends is answered by the rebooted one."""


class Link:
    """One direction between two hosts."""

    __slots__ = ("delay", "held_until", "is_cut", "stalled")

    def __init__(self) -> None:
        self.is_cut = False
        self.delay: tuple[float, float] | None = None
        """Least and greatest seconds for a piece, where it is not the network's."""
        self.held_until = 0.0
        self.stalled: list[tuple[SimulatedTransport, Callable[..., object], tuple[Any, ...]]] = []
        """What was sent while it was cut, in order."""


class SimulatedNetwork:
    """All hosts' connections; `host` gives one host's view of it."""

    def __init__(self, loop: VirtualLoop, random: SeededRandom, trace: Trace) -> None:
        self.loop = loop
        self.random = random
        self.trace = trace
        self.delay = (0.0001, 0.002)
        """Least and greatest time that a piece takes, in seconds."""
        self.losing: Counter[str] = Counter()
        """[host] -> how many of the next answers to it are lost, each with its connection."""
        self.connections: list[SimulatedTransport] = []
        """Both ends of each that is open, oldest first."""
        self._links: dict[tuple[str, str], Link] = {}
        self._listeners: dict[tuple[str, int], SimulatedListener] = {}
        self._next_port = 40_000
        self._next_connection = 0

    def host(self, name: str) -> Host:
        return Host(self, name)

    def link(self, source: str, target: str) -> Link:
        """The one way from host to host."""
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = Link()
        return link

    def arrival(self, link: Link, random: SeededRandom | None = None) -> float:
        """When something sent now arrives."""
        return max(self.loop.time(), link.held_until) + (random or self.random).between(*(link.delay or self.delay))

    # Faults.

    def cut(self, source: str, target: str) -> None:
        """Nothing more passes in that direction until `heal`."""
        self.link(source, target).is_cut = True

    def heal(self, source: str, target: str) -> None:
        """Makes a direction whole: what waited goes on its way."""
        link = self.link(source, target)
        link.is_cut = False
        stalled, link.stalled = link.stalled, []
        for transport, callback, arguments in stalled:
            transport.send_to_peer(callback, *arguments)

    def heal_all(self) -> None:
        """Every direction is whole and as fast as any."""
        for source, target in list(self._links):
            self.heal(source, target)
            self.link(source, target).delay = None

    def hold(self, seconds: float) -> None:
        """Nothing arrives anywhere for a while: a partition that heals before TCP gives up."""
        for link in self._links.values():
            link.held_until = self.loop.time() + seconds

    def reset(self, host: str | None = None) -> None:
        """Breaks every connection, or those of a host."""
        for transport in list(self.connections):
            if host is None or host in transport.hosts:
                transport.abort()

    def port(self) -> int:
        self._next_port += 1
        return self._next_port

    def bind(self, listener: SimulatedListener) -> None:
        if listener.address in self._listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        self._listeners[listener.address] = listener

    def unbind(self, listener: SimulatedListener) -> None:
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]

    def listener(self, host: str, port: int) -> SimulatedListener:
        found = self._listeners.get((host, port))
        if found is None or (found.process is not None and not found.process.alive):
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nothing listens on {host}:{port}")
        return found

    def pair(
        self, client: tuple[str, int], listener: SimulatedListener
    ) -> tuple[SimulatedTransport, SimulatedTransport]:
        self._next_connection += 1
        near = SimulatedTransport(self, f"{self._next_connection}>", copy_context(), client, listener.address)
        far = SimulatedTransport(self, f"{self._next_connection}<", listener.context.copy(), listener.address, client)
        near.peer, far.peer = far, near
        self.connections += [near, far]
        return near, far

    def killed(self, process: Owner, *, power_cut: bool = False) -> None:
        """The process's listeners are gone, and its connections are reset for their other ends.

        After a power cut the others hear of it only when they send, and the host is there again.
        """
        for listener in [found for found in self._listeners.values() if found.process is process]:
            self.unbind(listener)
        for transport in [found for found in self.connections if found.context.get(PROCESS) is process]:
            transport.vanish(self.random.between(*SILENCE_S) if power_cut else 0.0)


class SimulatedListener:
    """`tidelog.ports.network.Listener`."""

    def __init__(
        self, network: SimulatedNetwork, factory: Callable[[], asyncio.BaseProtocol], address: tuple[str, int]
    ) -> None:
        self._network = network
        self._address = address
        self.factory = factory
        self.context = copy_context()
        self.process = PROCESS.get()

    @property
    def address(self) -> tuple[str, int]:
        return self._address

    def close(self) -> None:
        self._network.unbind(self)


class Host:
    """`tidelog.ports.network.Network` of one machine."""

    def __init__(self, network: SimulatedNetwork, name: str) -> None:
        self._network = network
        self.name = name

    async def listen_tls(
        self, factory: Callable[[], SecuredProtocol], host: str, port: int, tls: ssl.SSLContext
    ) -> SimulatedListener:
        raise AssertionError("The simulated network has no TLS.")

    async def listen(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> SimulatedListener:
        listener = SimulatedListener(self._network, factory, (host or self.name, port or self._network.port()))
        self._network.bind(listener)
        return listener

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        assert tls is None, "the simulated network has no TLS"
        network = self._network
        there, back = network.link(self.name, host), network.link(host, self.name)
        deadline = network.loop.time() + network.random.between(*GIVE_UP_S)
        while there.is_cut or back.is_cut:
            if network.loop.time() >= deadline:
                raise TimeoutError(errno.ETIMEDOUT, f"{host}:{port} does not answer")
            await asyncio.sleep(LOOK_AGAIN_S)
        await asyncio.sleep(network.arrival(there) - network.loop.time())
        listener = network.listener(host, port)
        near, far = network.pair((self.name, network.port()), listener)
        server_side = listener.context.copy().run(listener.factory)
        far.begin(server_side)
        client_side = factory()
        near.begin(client_side)
        await asyncio.sleep(network.arrival(back) - network.loop.time())
        return near, client_side


class SimulatedTransport(asyncio.Transport):
    """One end of a connection."""

    peer: SimulatedTransport

    def __init__(
        self,
        network: SimulatedNetwork,
        name: str,
        context: Context,
        address: tuple[str, int],
        peer_address: tuple[str, int],
    ) -> None:
        super().__init__({"peername": peer_address, "sockname": address})
        self.network = network
        self.name = name
        self.hosts = (address[0], peer_address[0])
        self._link = network.link(*self.hosts)
        self.context = context
        self._random = network.random.stream(name)
        """Of this end alone: a broker that closes all its connections does so in no particular order."""
        self._loop = network.loop
        self._protocol: asyncio.BaseProtocol = asyncio.BaseProtocol()
        self._closing = False
        self._lost = False
        self._reading_paused = False
        self._inbox: deque[memoryview] = deque()
        self._end_of_input = False
        self._under_way = 0
        self._last_arrival = 0.0
        self._high = HIGH_WATER
        self._low = HIGH_WATER // 4
        self._writing_paused = False
        self._giving_up = False

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._loop.call_soon(protocol.connection_made, self, context=self.context)

    # Writing.

    def write(self, data: Any) -> None:
        view = memoryview(bytes(data))
        if self._closing or not view:
            return
        if self.network.losing[self.hosts[1]] > 0:
            self.network.losing[self.hosts[1]] -= 1
            self.network.trace.record("lost", self.name, len(view))
            self.abort()
            return
        self.network.trace.record("sent", self.name, len(view), crc32(view))
        self._under_way += len(view)
        pieces = 1 if self._random.chance(0.6) else 2 + self._random.below(2)
        size = max(len(view) // pieces + 1, 1)
        for start in range(0, len(view), size):
            self.send_to_peer(self.peer.arrived, view[start : start + size])
        if self._under_way > self._high and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()

    def send_to_peer(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Calls the other end after everything sent before, when that arrives."""
        if self._link.is_cut:
            self._link.stalled.append((self, callback, arguments))
            if not self._giving_up and not self._lost:
                self._giving_up = True
                self._loop.call_later(self._random.between(*GIVE_UP_S), self._give_up, context=self.context)
            return
        self._loop.call_at(self._next_arrival(), callback, *arguments, context=self.peer.context)

    def _next_arrival(self) -> float:
        """Later than that of everything sent before: timers of the same instant have no order."""
        self._last_arrival = max(self._last_arrival + 1e-9, self.network.arrival(self._link, self._random))
        return self._last_arrival

    def _give_up(self) -> None:
        """What was sent could not be delivered for too long."""
        self._giving_up = False
        link = self._link
        if self._lost or not any(transport is self for transport, _, _ in link.stalled):
            return
        link.stalled = [entry for entry in link.stalled if entry[0] is not self]
        self.send_to_peer(self.peer.was_reset)
        self._lose(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))

    def taken(self, size: int) -> None:
        """The other end has read that many bytes."""
        self._under_way -= size
        if self._writing_paused and self._under_way <= self._low and not self._lost:
            self._writing_paused = False
            self._protocol.resume_writing()

    def get_write_buffer_size(self) -> int:
        return self._under_way

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER if high is None else high
        self._low = self._high // 4 if low is None else low

    def can_write_eof(self) -> bool:
        return False

    # Reading.

    def arrived(self, piece: memoryview) -> None:
        if not self._lost:
            self._inbox.append(piece)
            self._pump()

    def _pump(self) -> None:
        while self._inbox and not self._reading_paused and not self._lost:
            piece = self._inbox.popleft()
            size = len(piece)
            try:
                if isinstance(self._protocol, asyncio.BufferedProtocol):
                    buffer = memoryview(self._protocol.get_buffer(size)).cast("B")
                    size = min(size, len(buffer))
                    buffer[:size] = piece[:size]
                    if size < len(piece):
                        self._inbox.appendleft(piece[size:])
                    self._protocol.buffer_updated(size)
                elif isinstance(self._protocol, asyncio.Protocol):
                    self._protocol.data_received(bytes(piece))
            except Exception as error:
                self._loop.call_exception_handler(
                    {"message": "a protocol failed", "exception": error, "transport": self}
                )
                self.abort()
                return
            if self._link.is_cut:
                self._link.stalled.append((self, self.peer.taken, (size,)))
            else:
                self._loop.call_soon(self.peer.taken, size, context=self.peer.context)
        if self._end_of_input and not self._inbox and not self._lost and not self._reading_paused:
            self._lose(None)

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        if self._reading_paused:
            self._reading_paused = False
            self._loop.call_soon(self._pump, context=self.context)

    def is_reading(self) -> bool:
        return not self._reading_paused and not self._lost

    # The end.

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self.send_to_peer(self.peer.ended)
            self._loop.call_at(max(self._last_arrival, self._loop.time()), self._lose, None, context=self.context)

    def abort(self) -> None:
        if not self._lost:
            self._closing = True
            self.send_to_peer(self.peer.was_reset)
            self._loop.call_soon(self._lose, None, context=self.context)

    def vanish(self, silence_s: float) -> None:
        """Its process is dead: it is told nothing, the other end of a reset, maybe after a while."""
        self._forget()
        self._last_arrival = max(self._last_arrival, self._loop.time() + silence_s)
        self.send_to_peer(self.peer.was_reset)

    def ended(self) -> None:
        """The other end has closed, after everything that it wrote."""
        self._end_of_input = True
        self._pump()

    def was_reset(self) -> None:
        self._lose(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def _lose(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._forget()
        if error is None:
            self.send_to_peer(self.peer.ended)
        self._protocol.connection_lost(error)

    def _forget(self) -> None:
        self._lost = self._closing = True
        self._inbox.clear()
        if self in self.network.connections:
            self.network.connections.remove(self)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol
