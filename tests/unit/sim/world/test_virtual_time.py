"""Loop, processes and network: time stands still while there is work, order is kept where it is promised."""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from sim.world.loop import NothingToDoError, VirtualLoop
from sim.world.network import SimulatedNetwork
from sim.world.process import Process, SimulatedExecutor
from sim.world.randomness import SeededRandom
from sim.world.trace import Trace


def simulate(main: Callable[[VirtualLoop], Any], seed: int = 1) -> Any:
    """Runs `main(loop)` to its end."""
    loop = VirtualLoop(SeededRandom(seed))
    try:
        return loop.run_until_complete(main(loop))
    finally:
        loop.close()


def test_an_hour_takes_no_time() -> None:
    """Sleeping sets the clock forward."""

    async def main(loop: VirtualLoop) -> float:
        await asyncio.sleep(3600)
        return loop.time()

    start = time.monotonic()
    assert simulate(main) == pytest.approx(3600)
    assert time.monotonic() - start < 600


def test_waiting_for_nothing_is_an_error() -> None:
    """A wake-up that was lost does not hang: it raises."""

    async def main(loop: VirtualLoop) -> None:
        await loop.create_future()

    with pytest.raises(NothingToDoError):
        simulate(main)


def test_order_within_and_between_processes() -> None:
    """Each process's callbacks run in their order; between two processes every seed has its own."""

    def orders(seed: int) -> list[str]:
        ran: list[str] = []

        async def main(loop: VirtualLoop) -> None:
            for name in "ab":
                process = Process(name, loop)
                for number in range(5):
                    process.context.run(loop.call_soon, ran.append, f"{name}{number}")
            await asyncio.sleep(0.1)

        simulate(main, seed)
        return ran

    found = {tuple(orders(seed)) for seed in range(20)}
    assert len(found) > 5
    for order in found:
        for name in "ab":
            assert [entry for entry in order if entry[0] == name] == [f"{name}{number}" for number in range(5)]
    assert orders(3) == orders(3)


def test_a_killed_process_does_nothing_more() -> None:
    """Callbacks, timers and tasks that it had, and those that it still asks for, never run."""
    ran: list[str] = []

    async def main(loop: VirtualLoop) -> None:
        process = Process("doomed", loop)

        async def task() -> None:
            try:
                await asyncio.sleep(1)
                ran.append("task")
            finally:
                ran.append("unwound")

        process.spawn(task())
        process.context.run(loop.call_later, 1, ran.append, "timer")
        await asyncio.sleep(0.5)
        process.kill()
        process.context.run(loop.call_soon, ran.append, "soon")
        process.spawn(task())
        await asyncio.sleep(5)
        assert ran == []
        process.close()

    simulate(main)
    assert ran == ["unwound"], "only at the very end, and only what had begun"


def test_the_executor_answers_later() -> None:
    """Results and errors come back after a while, to the loop's thread."""

    async def main(loop: VirtualLoop) -> None:
        executor = SimulatedExecutor(loop, SeededRandom(1), (0.5, 0.5))
        assert await asyncio.wrap_future(executor.submit(lambda: 7)) == 7
        assert loop.time() == pytest.approx(0.5)
        with pytest.raises(ZeroDivisionError):
            await asyncio.wrap_future(executor.submit(lambda: 1 // 0))

    simulate(main)


class Echo(asyncio.BufferedProtocol):
    """Sends back what it gets, by a buffer of few bytes."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.buffer = bytearray(7)
        self.lost: list[Exception | None] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.transport.write(bytes(self.buffer[:nbytes]))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class Collector(asyncio.Protocol):
    """Keeps what it gets, and when it was told to pause."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.pauses = 0
        self.lost: list[Exception | None] = []

    def data_received(self, data: bytes) -> None:
        self.data += data

    def pause_writing(self) -> None:
        self.pauses += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


def with_network(main: Callable[[VirtualLoop, SimulatedNetwork], Any], seed: int = 1) -> Any:
    async def run(loop: VirtualLoop) -> Any:
        return await main(loop, SimulatedNetwork(loop, SeededRandom(seed, "network"), Trace(loop.time)))

    return simulate(run, seed)


def test_bytes_arrive_in_order_and_in_pieces() -> None:
    """An echo of many writes is the writes, whatever their pieces."""

    async def main(loop: VirtualLoop, network: SimulatedNetwork) -> None:
        await network.host("server").listen(Echo, "server", 1)
        transport, collector = await network.host("client").connect(Collector, "server", 1)
        assert isinstance(transport, asyncio.Transport)
        assert isinstance(collector, Collector)
        sent = b"".join(b"%d," % number for number in range(500))
        for start in range(0, len(sent), 100):
            transport.write(sent[start : start + 100])
        await asyncio.sleep(1)
        assert bytes(collector.data) == sent
        assert transport.get_extra_info("peername") == ("server", 1)

    for seed in range(5):
        with_network(main, seed)


def test_a_reader_that_stops_makes_the_writer_pause() -> None:
    """Back-pressure, and its end."""

    async def main(loop: VirtualLoop, network: SimulatedNetwork) -> None:
        servers: list[Echo] = []
        await network.host("server").listen(lambda: servers.append(Echo()) or servers[0], "server", 1)
        transport, collector = await network.host("client").connect(Collector, "server", 1)
        assert isinstance(transport, asyncio.Transport)
        assert isinstance(collector, Collector)
        servers[0].transport.pause_reading()
        transport.set_write_buffer_limits(high=1000)
        transport.write(bytes(5000))
        await asyncio.sleep(1)
        assert (collector.pauses, transport.get_write_buffer_size()) == (1, 5000)
        servers[0].transport.resume_reading()
        await asyncio.sleep(1)
        assert (len(collector.data), transport.get_write_buffer_size()) == (5000, 0)

    with_network(main)


def test_ends_of_connections() -> None:
    """Close delivers what was written and then the end; abort and reset are errors for the other side."""

    async def main(loop: VirtualLoop, network: SimulatedNetwork) -> None:
        servers: list[Echo] = []
        await network.host("server").listen(lambda: servers.append(Echo()) or servers[-1], "server", 1)

        async def connection() -> tuple[asyncio.Transport, Collector]:
            transport, collector = await network.host("client").connect(Collector, "server", 1)
            assert isinstance(transport, asyncio.Transport)
            assert isinstance(collector, Collector)
            return transport, collector

        _, collector = await connection()
        servers[-1].transport.write(b"bye")
        servers[-1].transport.close()
        await asyncio.sleep(1)
        assert (bytes(collector.data), collector.lost, servers[-1].lost) == (b"bye", [None], [None])

        transport, collector = await connection()
        transport.abort()
        await asyncio.sleep(1)
        assert collector.lost == [None]
        assert isinstance(servers[-1].lost[0], ConnectionResetError)

        _, collector = await connection()
        network.reset()
        await asyncio.sleep(1)
        assert len(collector.lost) == len(servers[-1].lost) == 1
        assert network.connections == []

    with_network(main)


def test_addresses_are_taken_refused_and_freed_by_a_kill() -> None:
    """Two listeners cannot share an address; nobody listens for the dead, and their peers are reset."""

    async def main(loop: VirtualLoop, network: SimulatedNetwork) -> None:
        process = Process("server", loop)
        await process.spawn(network.host("server").listen(Echo, "server", 1))
        process.on_kill(lambda: network.killed(process))
        with pytest.raises(OSError, match="in use"):
            await network.host("server").listen(Echo, "server", 1)
        _, collector = await network.host("client").connect(Collector, "server", 1)
        process.kill()
        await asyncio.sleep(1)
        assert isinstance(collector, Collector)
        assert isinstance(collector.lost[0], ConnectionResetError)
        with pytest.raises(ConnectionRefusedError):
            await network.host("client").connect(Collector, "server", 1)
        await network.host("server").listen(Echo, "server", 1)

    with_network(main)


def test_streams_are_independent() -> None:
    """A stream is the same whenever it is asked for, however much was drawn from others."""
    first, second = SeededRandom(5), SeededRandom(5)
    first.token(100)
    assert first.stream("disk").token(8) == second.stream("disk").token(8)
    assert first.stream("disk").token(8) != second.stream("network").token(8)
    assert SeededRandom(5).token(8) != SeededRandom(6).token(8)


def test_draws_are_those_of_pythons_own_random() -> None:
    """By a shorter way: a seed of before stays the run that it was."""
    ours, own = SeededRandom(5, "stream"), random.Random("5/stream")
    for bound in (1, 2, 3, 7, 64, 65, 1000, 2**40):
        assert ours.below(bound) == own.randrange(bound)
        assert ours.between(0.25, bound) == own.uniform(0.25, bound)
        assert ours.chance(0.3) == (own.random() < 0.3)
    with pytest.raises(ValueError, match="nothing is below 0"):
        ours.below(0)


def test_a_traces_digest_is_that_of_its_lines() -> None:
    """However many they are, and however often it is asked for."""
    trace = Trace(lambda: 1.5)
    lines = []
    for number in range(600):
        trace.record("event", number)
        lines.append(f"1.500000 event {number}\n")
        if number in (0, 300, 599):
            assert trace.digest() == hashlib.sha256("".join(lines).encode()).hexdigest()
