"""A machine with one broker: its disk outlives the process, which can be killed, lose its power, and start again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Final

from sim.clock import LoopClock
from sim.disk import Fault, Mount, Operation, ProcessDeath, SimulatedDisk
from sim.loop import VirtualLoop
from sim.network import SimulatedNetwork
from sim.process import Process, SimulatedExecutor
from sim.randomness import SeededRandom
from sim.store_journal import JournalPersistence
from sim.trace import Trace
from tidelog.broker.runtime import Runtime
from tidelog.config.broker_config import BrokerConfig
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.local import LocalStore

if TYPE_CHECKING:
    from tidelog.store.client import StoreClient

HOST: Final = "broker0"
PORT: Final = 9092
START_S_MAX: Final = 60.0
"""Simulated seconds that a broker may take to start."""

SETTINGS: Final = {
    "broker.id": 0,
    "listeners": f"PLAINTEXT://{HOST}:{PORT}",
    "log.dirs": "/data",
    "log.index.size.max.bytes": 4096,
    "log.index.interval.bytes": 400,
    "log.segment.delete.delay.ms": 2000,
    "log.retention.check.interval.ms": 3000,
    "log.flush.offset.checkpoint.interval.ms": 2000,
    "log.flush.start.offset.checkpoint.interval.ms": 2000,
    "replica.high.watermark.checkpoint.interval.ms": 1000,
    "auto.create.topics.enable": False,
}
"""Small segments' indexes and short intervals: in half a minute everything is to have happened."""


class Machine:
    """See the module."""

    def __init__(self, loop: VirtualLoop, network: SimulatedNetwork, random: SeededRandom, trace: Trace) -> None:
        self._loop = loop
        self._network = network
        self._random = random
        self._trace = trace
        self.clock = LoopClock(loop.time)
        self.disk = SimulatedDisk(random.stream("disk"), self.clock.wall_ms)
        self.disk.observer = self._observe
        self.disk.cold_chance = 0.02
        self.on_start: Callable[[], None] | None = None
        """Called when a broker is about to start."""
        self.processes: list[Process] = []
        self.runtime: Runtime | None = None
        self._store: EmbeddedStore | None = None
        mount = self.disk.mount()
        for directory in ("/data", "/store"):
            mount.make_directories(directory)
        mount.sync_file_system("/")
        self.disk.kill()

    @property
    def process(self) -> Process | None:
        """The one that runs now."""
        return self.processes[-1] if self.processes and self.processes[-1].alive else None

    def _observe(self, operation: Operation) -> None:
        self._trace.record("disk", operation.kind, operation.path, operation.size)

    async def start(self) -> bool:
        """Starts a broker; false if it was killed before it was ready."""
        generation = len(self.processes)
        process = Process(f"broker {generation}", self._loop)
        self.processes.append(process)
        self._trace.record("start", process.name)
        if self.on_start is not None:
            self.on_start()
        mount = self.disk.mount()
        process.on_kill(lambda: self._network.killed(process))
        process.on_kill(self.disk.kill)
        ready: asyncio.Future[Runtime] = self._loop.create_future()
        process.on_kill(ready.cancel)
        random = self._random.stream(f"broker {generation}")
        process.spawn(self._run(mount, random, ready))
        try:
            self.runtime = await asyncio.wait_for(ready, START_S_MAX)
        except asyncio.CancelledError:
            if process.alive:
                raise
            return False
        self._trace.record("ready", process.name)
        return True

    async def _run(self, mount: Mount, random: SeededRandom, ready: asyncio.Future[Runtime]) -> None:
        """The broker's main, within its process."""
        executor = SimulatedExecutor(self._loop, random.stream("executor"))
        persistence = JournalPersistence(mount, "/store", executor)
        store = EmbeddedStore(
            persistence, self.clock, random.stream("store"), lambda failure: failed.set_result(str(failure))
        )
        self._store = store
        failed: asyncio.Future[str] = self._loop.create_future()

        async def connect_store() -> StoreClient:
            if not store.started:
                store.start()
            return await LocalStore.connect(store)

        try:
            runtime = Runtime(
                BrokerConfig.from_mapping(SETTINGS),
                connect_store,
                clock=self.clock,
                random=random.stream("broker"),
                disk=mount,
                network=self._network.host(HOST),
                executor=executor,
            )
            await runtime.start()
        except Exception as error:
            if not ready.done():
                ready.set_exception(error)
            return
        if not ready.done():
            ready.set_result(runtime)
        broker_failed = asyncio.ensure_future(runtime.failed())
        await asyncio.wait([broker_failed, failed], return_when=asyncio.FIRST_COMPLETED)
        self._trace.record("failed", broker_failed.done(), failed.done())
        broker_failed.cancel()
        await runtime.stop()
        await store.close()
        # The process ends; its own context must not be the one that outlives it.
        self._loop.call_soon(self.kill, context=Context())

    def kill(self) -> None:
        """kill -9: the page cache stays."""
        if self.process is not None:
            self._trace.record("kill", self.process.name)
            self.process.kill()

    def power_cut(self) -> None:
        """What was not synced is lost, as the seed decides."""
        self.kill()
        self._trace.record("power_cut")
        self.disk.power_cut()

    def die_at(self, operation: int, *, power_cut: bool, kind: str | None = None) -> None:
        """Lets the process die in a change of the disk to come: 1 is the next one, or the next of `kind`."""
        number = self.disk.operations + operation

        def plan(found: Operation) -> Fault | None:
            if found.number < number or found.kind == "read" or kind not in (None, found.kind):
                return None
            self.disk.fault = None
            self.kill()
            if power_cut:
                # Once what the operation still does is done; and not as the process, which is dead.
                self._loop.call_soon(self.power_cut, context=Context())
            return Fault(ProcessDeath("killed"), self._random.below(2) * (1 << 20))

        self.disk.fault = plan

    def fail_at(self, operation: int, kind: str, error_number: int) -> None:
        """Lets a change of the disk to come fail with an error, the first of `kind` after so many others."""
        number = self.disk.operations + operation

        def plan(found: Operation) -> Fault | None:
            if found.number < number or found.kind != kind:
                return None
            self.disk.fault = None
            self._trace.record("disk_error", found.kind, found.path, error_number)
            return Fault(OSError(error_number, os.strerror(error_number), found.path))

        self.disk.fault = plan

    async def stop(self) -> None:
        """A clean stop, within the process."""
        process, runtime = self.process, self.runtime
        if process is not None and runtime is not None:
            self._trace.record("stop", process.name)
            await process.spawn(self._stop(runtime))
            process.kill()

    async def _stop(self, runtime: Runtime) -> None:
        await runtime.stop()
        if self._store is not None:
            await self._store.close()

    def close(self) -> None:
        """Unwinds dead processes, at the very end."""
        self.kill()
        for process in self.processes:
            process.close()
