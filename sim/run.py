"""One run: a broker, clients, and what a seed does to them, until every invariant is checked or one is broken."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass
from typing import Final

from sim.client import Client
from sim.clock import LoopClock
from sim.history import History
from sim.invariants import require
from sim.log_checks import check_log
from sim.loop import VirtualLoop
from sim.machine import HOST, PORT, Machine
from sim.network import SimulatedNetwork
from sim.randomness import SeededRandom
from sim.trace import Trace
from sim.workload import Consumer, Producer
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.storage.log_manager import LogManager

TOPIC: Final = "topicone"
PARTITIONS: Final = 2
SETTLE_S_MAX: Final = 60.0
"""Simulated seconds after the last fault in which everything pending must be acknowledged and read."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of a run that broke nothing."""

    seed: int
    seconds: float
    acknowledged: int
    """Records."""
    read: int
    """Records, each as often as it was read."""
    faults: int
    events: int
    digest: str
    """Of the trace: equal in every run of the seed."""


class RunFailedError(AssertionError):
    """A run broke an invariant or stood still. The message ends with the command that replays it."""


def run(seed: int, seconds: float) -> Outcome:
    """Simulates `seconds` of load and faults, and the healing afterwards."""
    loop = VirtualLoop(SeededRandom(seed, "loop"))
    trace = Trace(loop.time)
    simulation = Simulation(seed, seconds, loop, trace)
    asyncio.set_event_loop(None)
    try:
        loop.run_until_complete(simulation.main())
        if loop.errors:
            raise AssertionError("; ".join(loop.errors))
        return simulation.outcome()
    except Exception as error:
        last = "\n".join(list(trace.lines)[-30:])
        raise RunFailedError(
            f"{last}\n{type(error).__name__}: {error}\nreplay: python -m sim --seed {seed} --seconds {seconds:g}"
        ) from error
    finally:
        simulation.machine.close()
        loop.close()


class Simulation:
    """The parts of one run."""

    def __init__(self, seed: int, seconds: float, loop: VirtualLoop, trace: Trace) -> None:
        self.seed = seed
        self.seconds = seconds
        self._loop = loop
        self._trace = trace
        self._random = SeededRandom(seed, "run")
        self._network = SimulatedNetwork(loop, self._random.stream("network"), trace)
        self.machine = Machine(loop, self._network, self._random.stream("machine"), trace)
        self.history = History()
        self.machine.on_start = self.history.restarted
        self.faults = 0
        self.flushes = self._random.chance(0.5)
        """Whether records are flushed before they are acknowledged; only then may the power fail."""

    def outcome(self) -> Outcome:
        return Outcome(
            self.seed,
            self.seconds,
            self.history.acknowledged_count,
            self.history.read_count,
            self.faults,
            self._trace.count,
            self._trace.digest(),
        )

    def _client(self, name: str) -> Client:
        return Client(self._network.host(name), name, (HOST, PORT))

    async def main(self) -> None:
        require(17, await self.machine.start(), "the first start failed")
        await self._create_topic()
        producers, consumers = self._clients()
        producing = [asyncio.ensure_future(producer.run()) for producer in producers]
        consuming = [asyncio.ensure_future(consumer.run()) for consumer in consumers]
        trouble = asyncio.ensure_future(self._trouble())
        await self._until(trouble, [*producing, *consuming], self.seconds + SETTLE_S_MAX)
        for producer in producers:
            producer.stopping = True
        await self._settle(producing, "not every record was acknowledged")
        for consumer in consumers:
            consumer.stopping = True
        await self._settle(consuming, "the consumers did not reach the end")
        await self._final_reads()
        await self.machine.stop()
        self._check_logs()

    def _clients(self) -> tuple[list[Producer], list[Consumer]]:
        producers, consumers = [], []
        for number in range(3):
            partition = TopicPartition(TOPIC, number % PARTITIONS)
            name = f"producer{number}"
            random = self._random.stream(name)
            producers.append(Producer(name, partition, self._client(name), random, self.history, self._trace))
        for number in range(PARTITIONS):
            name = f"consumer{number}"
            partition = TopicPartition(TOPIC, number)
            random = self._random.stream(name)
            consumers.append(Consumer(name, partition, self._client(name), random, self.history, self._trace))
        return producers, consumers

    async def _until(self, awaited: asyncio.Task[None], others: list[asyncio.Task[None]], seconds: float) -> None:
        """Waits for one task; one of the others that fails ends the run."""
        deadline = self._loop.time() + seconds
        while not awaited.done():
            for task in others:
                if task.done():
                    task.result()
            require(17, self._loop.time() < deadline, "the run does not come to its end")
            await asyncio.sleep(0.05)
        awaited.result()

    async def _settle(self, tasks: list[asyncio.Task[None]], complaint: str) -> None:
        deadline = self._loop.time() + SETTLE_S_MAX
        for task in tasks:
            while not task.done():
                require(17, self._loop.time() < deadline, complaint)
                await asyncio.sleep(0.05)
            task.result()

    async def _create_topic(self) -> None:
        configs = {
            "segment.bytes": "4000",
            "retention.bytes": str(8000 + self._random.below(30_000)),
            "flush.messages": "1" if self.flushes else "1000000",
        }
        response = await self._client("admin").request(
            ApiKey.CREATE_TOPICS,
            messages.CreateTopicsRequest(
                topics=[
                    messages.CreateTopicsRequest.CreatableTopic(
                        name=TOPIC,
                        num_partitions=PARTITIONS,
                        replication_factor=1,
                        configs=[
                            messages.CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)
                            for name, value in configs.items()
                        ],
                    )
                ],
                timeout_ms=10_000,
            ),
        )
        (topic,) = response.topics
        require(17, topic.error_code == ErrorCode.NONE, f"the topic was not created: {topic.error_message}")

    async def _trouble(self) -> None:
        """Breaks things until the time is up; then all is whole again."""
        random = self._random.stream("trouble")
        end = self._loop.time() + self.seconds
        while self._loop.time() < end:
            await asyncio.sleep(random.between(0.2, 4.0))
            self.faults += 1
            power_cut = self.flushes and random.chance(0.7)
            match random.below(6):
                case 0:
                    self._network.reset()
                case 1:
                    self._network.hold(random.between(0.1, 3.0))
                case 2:
                    self.machine.power_cut() if power_cut else self.machine.kill()
                case 3:
                    await self._disk_error(random)
                case 4:
                    self.machine.die_at(1 + random.below(60), power_cut=power_cut)
                case _:
                    # Where acknowledging too early would show.
                    self.machine.die_at(1 + random.below(60), power_cut=power_cut, kind="fsync")
            await self._revive(random)
        self.machine.disk.fault = None
        await self._revive(random)

    async def _disk_error(self, random: SeededRandom) -> None:
        """A write or a sync fails: the only log directory goes offline, and the broker stops by itself.

        After a failed sync the page cache is no witness of what the disk holds: that machine is rebooted.
        """
        sync_fails = self.flushes and random.chance(0.5)
        if sync_fails:
            self.machine.fail_at(1 + random.below(30), "fsync", errno.EIO)
        else:
            self.machine.fail_at(1 + random.below(30), "write", errno.ENOSPC)
        await asyncio.sleep(2)
        if self.machine.disk.fault is not None:
            self.machine.disk.fault = None
        elif sync_fails:
            self.machine.power_cut()

    async def _revive(self, random: SeededRandom) -> None:
        """Starts the broker again, as often as it takes: it may be made to die while it starts, too."""
        while self.machine.process is None:
            await asyncio.sleep(random.between(0.01, 1.0))
            if random.chance(0.2):
                self.machine.die_at(1 + random.below(40), power_cut=self.flushes and random.chance(0.5))
            await self.machine.start()

    async def _final_reads(self) -> None:
        for number in range(PARTITIONS):
            partition = TopicPartition(TOPIC, number)
            client = self._client("auditor")
            reader = Consumer("auditor", partition, client, self._random.stream("auditor"), self.history, self._trace)
            await reader.fetch()
            reader.stopping = True
            await self._settle([asyncio.ensure_future(reader.run())], "the last reader did not reach the end")
            client.close()
            self.history.check_final(partition, reader.log_start, reader.values)

    def _check_logs(self) -> None:
        """Opens the logs once more, as a broker would, and compares them with a full scan."""
        manager = LogManager(
            disk=self.machine.disk.mount(),
            clock=LoopClock(self._loop.time),
            log_dirs=["/data"],
            broker_id=0,
            cluster_id=None,
        )
        manager.open()
        for log in manager.logs():
            log.update_high_watermark(log.log_end_offset)
            check_log(log)
        manager.abandon()
        self.machine.disk.kill()
