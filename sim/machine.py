"""A machine: a disk and a clock that outlive the process on it, which can be killed, paused, and start again.

`BrokerMachine` runs a broker, whose metadata store is on another machine; `LoneMachine` runs broker and store in one
process; `StoreMachine` runs the store alone.
"""

from __future__ import annotations

import asyncio
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sim.store.client import SimulatedStore
from sim.store.journal import JournalPersistence
from sim.store.service import PORT as STORE_PORT
from sim.store.service import StoreService
from sim.world.clock import LoopClock
from sim.world.disk import Fault, FaultPlan, Mount, Operation, ProcessDeath, SimulatedDisk
from sim.world.process import Process, SimulatedExecutor
from tidelog.broker.failure import BrokerFailed, start_unless
from tidelog.broker.runtime import Runtime
from tidelog.config.broker_config import BrokerConfig
from tidelog.records.batch import CRC_START, iterate_headers
from tidelog.records.errors import InvalidBatch
from tidelog.storage.file_names import FUTURE_FOLDER
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.errors import StoreError
from tidelog.store.local import LocalStore

if TYPE_CHECKING:
    from sim.store.history import StoreHistory
    from sim.world.loop import VirtualLoop
    from sim.world.network import SimulatedNetwork
    from sim.world.randomness import SeededRandom
    from sim.world.trace import Trace
    from tidelog.broker.node import Node
    from tidelog.model.identifiers import TopicPartition
    from tidelog.store.client import StoreClient

PORT: Final = 9092
STORE_HOST: Final = "store"
DATA: Final = "/data"
OTHER_DATA: Final = "/data2"
STORE: Final = "/store"
START_S_MAX: Final = 120.0
"""Simulated seconds that a process may take to be ready, or to fail."""
SESSION_TIMEOUT_MS: Final = 3_000

SETTINGS: Final[Mapping[str, object]] = {
    "log.index.size.max.bytes": 4096,
    "log.index.interval.bytes": 400,
    "log.segment.delete.delay.ms": 2000,
    "log.initial.task.delay.ms": 500,
    "log.retention.check.interval.ms": 3000,
    "log.cleaner.backoff.ms": 1000,
    "log.cleaner.dedupe.buffer.size": 4096,
    "log.flush.offset.checkpoint.interval.ms": 2000,
    "log.flush.start.offset.checkpoint.interval.ms": 2000,
    "replica.high.watermark.checkpoint.interval.ms": 1000,
    "replica.lag.time.max.ms": 3000,
    "replica.fetch.backoff.ms": 200,
    "replica.socket.timeout.ms": 3000,
    "controller.socket.timeout.ms": 3000,
    "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
    "isr.return.wait.ms": 12_000,
    "leader.imbalance.check.interval.seconds": 8,
    "auto.create.topics.enable": False,
    "group.min.session.timeout.ms": 1000,
    "group.consumer.session.timeout.ms": 3000,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.heartbeat.interval.ms": 300,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "offsets.retention.minutes": 120,  # More than clocks are ever apart.
    "offsets.retention.check.interval.ms": 2000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
}
"""Small segments' indexes and short intervals: in half a minute everything is to have happened."""


def store_hosts(servers: int) -> tuple[str, ...]:
    """Where the store is: a machine, or the servers of an ensemble."""
    return tuple(f"{STORE_HOST}{number}" for number in range(1, servers + 1)) or (STORE_HOST,)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all machines of a run share."""

    loop: VirtualLoop
    network: SimulatedNetwork
    trace: Trace
    history: StoreHistory
    """Of the metadata store."""


class Machine(ABC):
    """See the module."""

    def __init__(self, name: str, surroundings: Surroundings, random: SeededRandom, *, clock_rate: float = 1.0) -> None:
        self.name = name
        self._surroundings = surroundings
        self._loop = surroundings.loop
        self._network = surroundings.network
        self._trace = surroundings.trace
        self._random = random
        self.clock = LoopClock(self._loop.time, rate=clock_rate)
        self.disk = SimulatedDisk(random.stream("disk"), self.clock.wall_ms)
        self.disk.observer = self._observe
        self.disk.on_stall = self._stalled
        self.disk.cold_chance = 0.02
        self.processes: list[Process] = []
        self.is_ready = False
        """Whether the process has started whatever it has to start."""
        self.failure: str | None = None
        """Why the last process gave up by itself, if it did."""
        self.is_stopping = False
        """Whether a clean stop is under way."""
        self.lost_power_at = -math.inf
        """Seconds of the run, the last time."""
        self.before_power_cut: Callable[[], object] = lambda: None
        """Called while the disk has all that was written."""
        mount = self.disk.mount()
        mount.make_directories(STORE)
        mount.sync_file_system("/")
        self.disk.kill()

    @property
    def process(self) -> Process | None:
        """The one that runs now, or stands still."""
        return self.processes[-1] if self.processes and self.processes[-1].alive else None

    @property
    def generation(self) -> int:
        """Counts its processes."""
        return len(self.processes)

    def _observe(self, operation: Operation) -> None:
        self._trace.record("disk", self.name, operation.kind, operation.path, operation.size)

    async def start(self) -> bool:
        """Starts a process; false if it was killed, or gave up (`failure`), before it was ready."""
        process = Process(f"{self.name}.{self.generation}", self._loop)
        self.processes.append(process)
        self.failure = None
        self.is_ready = False
        self._trace.record("start", process.name)
        mount = self.disk.mount()
        process.on_kill(lambda: self._network.killed(process))
        process.on_kill(self.disk.kill)
        ready: asyncio.Future[None] = self._loop.create_future()
        process.on_kill(ready.cancel)
        process.spawn(self._main(mount, self._random.stream(f"process {self.generation}"), ready))
        try:
            await asyncio.wait_for(ready, START_S_MAX)
        except asyncio.CancelledError:
            if process.alive:
                raise
            return False
        self._trace.record("ready", process.name)
        self.is_ready = True
        return True

    async def _main(self, mount: Mount, random: SeededRandom, ready: asyncio.Future[None]) -> None:
        """The process, from its beginning to its own end."""
        process = self.process
        try:
            await self._run(mount, random, ready)
        except (BrokerFailed, StoreError, OSError) as error:
            self.failure = repr(error)
        except Exception as error:
            # Started again and again it might come right, and the fault would go unnoticed.
            self.failure = repr(error)
            if process is not None and process.alive:
                self._loop.errors.append(error)
        self._trace.record("gave_up", self.name, self.failure)
        if process is not None:
            # The process ends; its own context must not be the one that outlives it.
            self._loop.call_soon(process.kill, context=Context())

    @abstractmethod
    async def _run(self, mount: Mount, random: SeededRandom, ready: asyncio.Future[None]) -> None:
        """What runs in the process: sets `ready`, returns when it cannot go on, with `failure` set."""

    @abstractmethod
    async def _stop(self) -> None:
        """Stops cleanly what `_run` has started; runs within the process."""

    def kill(self) -> None:
        """kill -9: the page cache stays."""
        if self.process is not None:
            self._trace.record("kill", self.process.name)
            self.process.kill()

    def power_cut(self) -> None:
        """What was not synced is lost, as the seed decides; no other machine is told that this one is gone."""
        self.before_power_cut()
        process = self.process
        if process is not None:
            self._network.killed(process, power_cut=True)
        self.kill()
        self._trace.record("power_cut", self.name)
        self.lost_power_at = self._loop.time()
        self.disk.power_cut()

    def pause(self) -> None:
        """Stops everything on it until `resume`, as SIGSTOP does."""
        if self.process is not None:
            self._trace.record("pause", self.process.name)
            self.process.pause()

    def resume(self) -> None:
        if self.process is not None and not self.process.runs:
            self._trace.record("resume", self.process.name)
            self.process.resume()

    def die_at(self, operation: int, *, power_cut: bool, kind: str | None = None) -> None:
        """Lets the process die in a change of the disk to come: 1 is the next one, or the next of `kind`."""
        number = self.disk.operations + operation

        def plan(found: Operation) -> Fault | None:
            if found.number < number or not found.changes or kind not in (None, found.kind):
                return None
            self.disk.fault = None
            self.kill()
            if power_cut:
                # Once what the operation still does is done; and not as the process, which is dead.
                self._loop.call_soon(self.power_cut, context=Context())
            return Fault(ProcessDeath("killed"), self._random.below(2) * (1 << 20))

        self.disk.fault = plan

    def fail_at(self, operation: int, kind: str, error_number: int) -> FaultPlan:
        """Lets a change of the disk to come fail with an error, the first of `kind` after so many others; gives what is
        the disk's `fault` until then.
        """
        number = self.disk.operations + operation

        def plan(found: Operation) -> Fault | None:
            if found.number < number or found.kind != kind:
                return None
            self.disk.fault = None
            self._trace.record("disk_error", self.name, found.kind, found.path, error_number)
            return Fault(OSError(error_number, os.strerror(error_number), found.path))

        self.disk.fault = plan
        return plan

    def _stalled(self, seconds: float) -> None:
        """An operation that the loop waits for does not return: nothing of the process goes on."""
        process = self.process
        if process is not None and process.runs:
            self._trace.record("stalled", process.name, f"{seconds:.3f}")
            process.pause()
            self._loop.call_later(seconds, process.resume, context=Context())

    def flip_next_read(self) -> None:
        """Damages one bit, under some batch's checksum, of what is read next; what lies on the disk is sound.

        Not of what recovery reads: there it would be a loss, as no second replica is asked.
        """

        def plan(found: Operation) -> Fault | None:
            if not self.is_ready or found.kind != "read" or not found.path.endswith(".log"):
                return None
            return Fault(None, damage=damage)

        def damage(data: bytes) -> bytes:
            try:
                batches = list(iterate_headers(data))
            except InvalidBatch:
                return data  # It does not begin where a batch does.
            if not batches:
                return data
            self.disk.fault = None
            position, header = batches[self._random.below(len(batches))]
            byte = position + CRC_START + self._random.below(header.size - CRC_START)
            self._trace.record("flipped_read", self.name, byte)
            damaged = bytearray(data)
            damaged[byte] ^= 1 << self._random.below(8)
            return bytes(damaged)

        self.disk.fault = plan

    def within(self, action: Callable[[], object]) -> None:
        """Does something as the process would."""
        if self.process is not None:
            self.process.context.copy().run(action)

    async def stop(self) -> None:
        """A clean stop, within the process; returns when it is over, however it ended."""
        process = self.process
        if process is None:
            return
        self._trace.record("stop", process.name)
        ended: asyncio.Future[None] = self._loop.create_future()
        process.on_kill(lambda: None if ended.done() else ended.set_result(None))
        stopping = process.spawn(self._stop())
        stopping.add_done_callback(lambda _: None if ended.done() else ended.set_result(None))
        self.is_stopping = True
        try:
            await ended
        finally:
            self.is_stopping = False
        if stopping.done():
            try:
                stopping.result()
            except ProcessDeath:
                # It may die while it stops, in the middle of a change of the disk; nothing else is such an end.
                if process.alive:
                    raise
        process.kill()

    def close(self) -> None:
        """Unwinds dead processes, at the very end."""
        self.kill()
        for process in self.processes:
            process.close()


class StoreMachine(Machine):
    """The embedded store on its own journal, for brokers on other machines; or an ensemble, which dies as a whole."""

    def __init__(self, surroundings: Surroundings, random: SeededRandom, servers: int) -> None:
        """`servers` of the ensemble; 0: brokers are connected with the store itself."""
        super().__init__(STORE_HOST, surroundings, random)
        self.hosts = store_hosts(servers)
        """Where brokers connect."""
        self.service: StoreService | None = None
        """The server of the process that runs, once it is ready."""
        self._store: EmbeddedStore | None = None
        self._executor: SimulatedExecutor | None = None
        self.latency = (0.0001, 0.004)
        """Least and greatest seconds that a commit takes."""

    def set_latency(self, latency: tuple[float, float]) -> None:
        """Makes commits slower, or fast again."""
        self.latency = latency
        if self._executor is not None:
            self._executor.latency = latency

    async def _run(self, mount: Mount, random: SeededRandom, ready: asyncio.Future[None]) -> None:
        failed: asyncio.Future[str] = self._loop.create_future()
        executor = self._executor = SimulatedExecutor(self._loop, random.stream("executor"), self.latency)
        persistence = JournalPersistence(mount, STORE, executor)
        store = self._store = EmbeddedStore(
            persistence, self.clock, random.stream("store"), lambda failure: failed.set_result(str(failure))
        )
        store.start()
        history = self._surroundings.history
        history.restarted(store.tree)
        service = self.service = StoreService(store, self.clock, history, self._trace)
        if len(self.hosts) == 1:
            await self._network.host(self.name).listen(service.connection, self.name, STORE_PORT)
        else:
            for name in self.hosts:
                server = service.add_server(name, random.stream(name))
                accept = partial(service.connection, server)
                await self._network.host(name).listen(accept, name, STORE_PORT)
        ready.set_result(None)
        self.failure = await failed

    async def _stop(self) -> None:
        if self._store is not None:
            await self._store.close()


class BrokerMachine(Machine):
    """A broker; its session with the store goes over the network."""

    def __init__(
        self,
        broker_id: int,
        surroundings: Surroundings,
        random: SeededRandom,
        settings: Mapping[str, object],
        *,
        clock_rate: float = 1.0,
        disk_latency_s: tuple[float, float] = (0.0001, 0.008),
        store_servers: int = 0,
        log_dirs: tuple[str, ...] = (DATA,),
    ) -> None:
        super().__init__(f"broker{broker_id}", surroundings, random, clock_rate=clock_rate)
        self.log_dirs = log_dirs
        """On one device."""
        self.broker_id = broker_id
        self._disk_latency_s = disk_latency_s
        self._store_hosts = store_hosts(store_servers)
        self.address = (self.name, PORT)
        self.settings: dict[str, object] = {
            **SETTINGS,
            "log.dirs": ",".join(log_dirs),
            "broker.id": broker_id,
            "listeners": f"PLAINTEXT://{self.name}:{PORT}",
            **settings,
        }
        self.runtime: Runtime | None = None
        """Of the last process, once that has begun."""
        self._starting: asyncio.Future[None] | None = None
        """The start of that, and its end."""

    @property
    def node(self) -> Node | None:
        """The broker that runs, to be looked at; None before it has loaded its logs, and where none runs."""
        if self.process is None or self.runtime is None:
            return None
        try:
            return self.runtime.node
        except AssertionError:
            return None

    def folder_of(self, partition: TopicPartition) -> str:
        """Where a replica's log lies: as the broker has it, or as a start would find it; on its way, if need be."""
        name = f"{partition.topic}-{partition.partition}"
        if len(self.log_dirs) == 1:
            return f"{self.log_dirs[0]}/{name}"
        replica = None if self.node is None else self.node.replicas.get(partition)
        known = [] if replica is None else [replica.log.directory]
        known += [f"{directory}/{name}" for directory in self.log_dirs]
        for path in known:
            if self.disk.exists(path):
                return path
        for directory in self.log_dirs:
            for folder in self.disk.folders(directory):
                if folder.startswith(f"{name}.") and folder.endswith(FUTURE_FOLDER):
                    return f"{directory}/{folder}"
        return known[0]

    async def start(self) -> bool:
        self.runtime = self._starting = None
        return await super().start()

    async def _run(self, mount: Mount, random: SeededRandom, ready: asyncio.Future[None]) -> None:
        executor = SimulatedExecutor(self._loop, random.stream("executor"), self._disk_latency_s)
        failing, connect_store = self._store(mount, random, executor)
        runtime = self.runtime = Runtime(
            BrokerConfig.from_mapping(dict(self.settings)),
            connect_store,
            clock=self.clock,
            random=random.stream("broker"),
            disk=mount,
            network=self._network.host(self.name),
            executor=executor,
        )
        self._starting = asyncio.ensure_future(start_unless(_reason(failing), runtime.start()))
        await self._starting
        ready.set_result(None)
        broker_failed = asyncio.ensure_future(runtime.failed())
        await asyncio.wait([broker_failed, failing], return_when=asyncio.FIRST_COMPLETED)
        self.failure = broker_failed.result() if broker_failed.done() else failing.result()
        broker_failed.cancel()
        await self._stop()

    def _store(
        self, mount: Mount, random: SeededRandom, executor: SimulatedExecutor
    ) -> tuple[asyncio.Future[str], Callable[[], Any]]:
        """What tells of the store's end, and how a session with it is opened."""
        sessions = random.stream("sessions")

        async def connect_store() -> StoreClient:
            return await SimulatedStore.connect(
                self._network.host(self.name),
                self._store_hosts,
                SESSION_TIMEOUT_MS,
                sessions,
                self._surroundings.history,
            )

        return self._loop.create_future(), connect_store

    async def _stop(self) -> None:
        starting = self._starting
        if starting is not None and not starting.done():
            # As the launcher does when it is told to stop: the start stops what it has started.
            starting.cancel()
            await asyncio.wait([starting])
        elif self.runtime is not None:
            await self.runtime.stop()


async def _reason(failing: asyncio.Future[str]) -> str:
    return await asyncio.shield(failing)


class LoneMachine(BrokerMachine):
    """Broker and store in one process, as `tidelog start` runs a cluster of one."""

    _embedded: EmbeddedStore | None = None

    def _store(
        self, mount: Mount, random: SeededRandom, executor: SimulatedExecutor
    ) -> tuple[asyncio.Future[str], Callable[[], Any]]:
        failed: asyncio.Future[str] = self._loop.create_future()
        store = self._embedded = EmbeddedStore(
            JournalPersistence(mount, STORE, executor),
            self.clock,
            random.stream("store"),
            lambda failure: failed.set_result(str(failure)),
        )

        async def connect_store() -> StoreClient:
            if not store.started:
                store.start()
            return await LocalStore.connect(store)

        return failed, connect_store

    async def _stop(self) -> None:
        await super()._stop()
        if self._embedded is not None:
            await self._embedded.close()
