"""The simulated store: what ZooKeeper promises of an ensemble, and no more than that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from sim.machine import StoreMachine, Surroundings
from sim.store.client import SimulatedStore
from sim.store.history import StoreHistory
from sim.store.service import StoreService
from sim.world.loop import VirtualLoop
from sim.world.network import SimulatedNetwork
from sim.world.randomness import SeededRandom
from sim.world.trace import Trace

from tidelog.store.client import EventType, SessionState, WatchEvent
from tidelog.store.errors import ConnectionLoss, SessionExpired

TIMEOUT_MS = 3_000


class World:
    """A store machine, and clients on hosts of their own."""

    def __init__(self, loop: VirtualLoop, servers: int) -> None:
        random = SeededRandom(5)
        self.trace = Trace(loop.time)
        self.network = SimulatedNetwork(loop, random.stream("network"), self.trace)
        self.history = StoreHistory()
        self.machine = StoreMachine(
            Surroundings(loop, self.network, self.trace, self.history), random.stream("store"), servers
        )
        self._random = random
        self._clients: list[SimulatedStore] = []

    async def session(self, *servers: int) -> SimulatedStore:
        """A session, with one of those servers, or any."""
        name = f"client{len(self._clients)}"
        hosts = [self.machine.hosts[number] for number in servers] or self.machine.hosts
        # Two of the same are as good as one, and make it an ensemble's client.
        hosts = tuple(hosts) * 2 if len(self.machine.hosts) > 1 else tuple(hosts)
        network = self.network.host(name)
        client = await SimulatedStore.connect(network, hosts, TIMEOUT_MS, self._random.stream(name), self.history)
        self._clients.append(client)
        return client

    @property
    def service(self) -> StoreService:
        assert self.machine.service is not None
        return self.machine.service

    def within(self, action: Callable[[], object]) -> None:
        self.machine.within(action)

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        self.machine.close()


def simulated(servers: int) -> Callable[[Callable[[World], Awaitable[None]]], Callable[[], None]]:
    """Makes a test of a coroutine, which is given a store of that many servers."""

    def make(body: Callable[[World], Awaitable[None]]) -> Callable[[], None]:
        async def run(loop: VirtualLoop) -> None:
            world = World(loop, servers)
            assert await world.machine.start()
            await body(world)
            await world.close()

        def test() -> None:
            loop = VirtualLoop(SeededRandom(1))
            try:
                loop.run_until_complete(run(loop))
                assert loop.errors == []
            finally:
                loop.close()

        test.__doc__ = body.__doc__
        return test

    return make


async def until(holds: Callable[[], bool]) -> None:
    """Waits for something that is to come about within a simulated minute."""
    deadline = asyncio.get_running_loop().time() + 60
    while not holds():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.1)


async def value(store: SimulatedStore, path: str) -> bytes | None:
    return (await store.get(path))[0]


@simulated(3)
async def test_a_server_behind_shows_the_past(world: World) -> None:
    """Until it has caught up, or somebody asks it to by sync; who wrote through another server sees what he wrote."""
    writer, reader = await world.session(0), await world.session(1)
    await writer.create("/a", b"one")
    await reader.sync()
    assert await value(reader, "/a") == b"one"
    behind = world.service.servers[1]
    world.within(behind.hold)
    await writer.set("/a", b"two")
    assert await value(writer, "/a") == b"two"
    await asyncio.sleep(1)
    assert await value(reader, "/a") == b"one"
    synced = asyncio.ensure_future(reader.sync())
    await asyncio.sleep(1)
    assert not synced.done()
    world.within(behind.release)
    await synced
    assert await value(reader, "/a") == b"two"


@simulated(3)
async def test_a_write_is_answered_when_its_own_server_has_it(world: World) -> None:
    """So that nobody reads the past of what he wrote."""
    store = await world.session(1)
    await store.create("/a", b"one")
    behind = world.service.servers[1]
    world.within(behind.hold)
    writing = asyncio.ensure_future(store.set("/a", b"two"))
    reading = asyncio.ensure_future(store.get("/a"))
    await asyncio.sleep(1)
    assert not writing.done()
    assert not reading.done()
    world.within(behind.release)
    assert (await writing).version == 1
    assert (await reading)[0] == b"two"


@simulated(3)
async def test_a_session_never_goes_back(world: World) -> None:
    """A server that has not seen what it was told does not let it in."""
    store = await world.session(0, 1)
    servers = world.service.servers
    world.within(servers[1].hold)
    await until(lambda: store.state is SessionState.CONNECTED)
    world.within(servers[1].close)
    await asyncio.sleep(2)
    world.within(servers[1].reopen)
    await store.create("/a", b"one")
    world.within(servers[0].close)
    await asyncio.sleep(0.5)
    assert store.state is SessionState.SUSPENDED
    world.within(servers[1].release)
    assert await value(store, "/a") == b"one"


@simulated(3)
async def test_watches_tell_what_was_missed_on_the_way_to_another_server(world: World) -> None:
    """Of a node's data, its children, and of one that is not there yet; each once."""
    watcher, writer = await world.session(0, 1), await world.session(2)
    told: list[WatchEvent] = []
    await writer.create("/a", b"one")
    await watcher.sync()
    await watcher.get("/a", told.append)
    await watcher.children("/", told.append)
    await watcher.exists("/b", told.append)
    for server in world.service.servers[:2]:
        world.within(server.close)
    await asyncio.sleep(0.5)
    await writer.set("/a", b"two")
    await writer.create("/b")
    for server in world.service.servers[:2]:
        world.within(server.reopen)
    await watcher.sync()
    await asyncio.sleep(0.1)
    assert sorted(told) == [
        (EventType.NODE_CREATED, "/b"),
        (EventType.NODE_DATA_CHANGED, "/a"),
        (EventType.NODE_CHILDREN_CHANGED, "/"),
    ]


@simulated(3)
async def test_without_a_quorum_everybody_waits(world: World) -> None:
    """Requests under way fail, later ones wait, sessions live however long that takes."""
    store = await world.session()
    await store.create("/a", b"one", ephemeral=True)
    world.within(world.service.lose_quorum)
    lost = store.get("/a")
    with pytest.raises(ConnectionLoss):
        await lost
    waiting = asyncio.ensure_future(store.get("/a"))
    await asyncio.sleep(5 * TIMEOUT_MS / 1000)
    assert not waiting.done()
    world.within(world.service.regain_quorum)
    assert (await waiting)[0] == b"one"
    assert store.state is SessionState.CONNECTED


@simulated(3)
async def test_a_session_that_is_not_heard_of_ends(world: World) -> None:
    """With its ephemeral nodes."""
    lost, other = await world.session(0), await world.session(1)
    await lost.create("/a", ephemeral=True)
    for host in world.machine.hosts:
        world.network.cut("client0", host)
    await asyncio.sleep(3 * TIMEOUT_MS / 1000)
    await other.sync()
    assert await other.exists("/a") is None
    for host in world.machine.hosts:
        world.network.heal("client0", host)
    await until(lambda: lost.state is SessionState.EXPIRED)
    with pytest.raises(SessionExpired):
        await lost.get("/a")


def broken_write(servers: int, *, carried_out: bool) -> None:
    """A write whose connection breaks, and what is there afterwards."""

    @simulated(servers)
    async def body(world: World) -> None:
        store = await world.session()
        await store.create("/a", b"one")
        world.within(lambda: world.service.break_write(0, carried_out=carried_out))
        with pytest.raises(ConnectionLoss):
            await store.set("/a", b"two")
        assert await value(store, "/a") == (b"two" if carried_out else b"one")

    body()


@pytest.mark.parametrize("servers", [0, 3])
@pytest.mark.parametrize("carried_out", [False, True])
def test_a_connection_that_breaks_in_the_middle_of_a_write(servers: int, carried_out: bool) -> None:
    """Reading back tells whether it was carried out, with whichever server."""
    broken_write(servers, carried_out=carried_out)


@simulated(0)
async def test_a_single_server_tells_what_was_missed_too(world: World) -> None:
    """Started anew it knows of no watches; the clients do."""
    store: SimulatedStore = await world.session()
    told: list[WatchEvent] = []
    await store.create("/a", b"one")
    await store.get("/a", told.append)
    world.machine.kill()
    await asyncio.sleep(0.2)
    assert await world.machine.start()
    other = await world.session()
    await other.set("/a", b"two")
    await until(lambda: bool(told))
    assert told == [(EventType.NODE_DATA_CHANGED, "/a")]
