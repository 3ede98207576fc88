"""One partition of an idempotent producer against a leader that judges sequences as Kafka's do, whatever goes wrong.

Requests are lost, answers are lost, requests of broken connections arrive late, leaders refuse for a while, records are
too large, batches expire, metadata shows a former topic. What is acknowledged is in the log exactly once, and the log
is in the order of sending.

A request of a broken connection arrives late, but before the leader sees one of the next connection, or never. Beyond
that Kafka's protocol promises nothing to producers without transactions: an epoch that ended fences nothing until the
first batch of the next one is in the log.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.client.producer.batches import Batch, Identity
from tidelog.client.producer.partition_queue import PartitionQueue
from tidelog.model.identifiers import TopicPartition

TOO_LARGE = 5
"""Records in a batch above which the leader finds it too large."""


@dataclass
class Leader:
    """The log and what its leader knows of the producer; nothing at first."""

    log: list[int] = field(default_factory=list)
    epoch: int | None = None
    next_sequence: int = 0
    latest: list[tuple[int, int]] = field(default_factory=list)
    """(sequence, records) of the last five batches of the epoch: what it knows again."""

    def judge(self, records: list[int], epoch: int, sequence: int) -> str:
        if len(records) > TOO_LARGE or (len(records) == 1 and records[0] % 17 == 16):
            return "too large"
        if self.epoch is not None:
            if epoch < self.epoch:
                return "out of sequence"
            expected = self.next_sequence if epoch == self.epoch else 0
            if sequence != expected:
                is_known = epoch == self.epoch and (sequence, len(records)) in self.latest
                return "acknowledged" if is_known else "out of sequence"
        if epoch != self.epoch:
            self.latest.clear()
        self.latest = [*self.latest, (sequence, len(records))][-5:]
        self.epoch, self.next_sequence = epoch, sequence + len(records)
        self.log.extend(records)
        return "acknowledged"


@dataclass
class Request:
    """A batch on its way, as it was when it was sent."""

    batch: Batch
    records: list[int]
    epoch: int
    sequence: int


class World:
    """The producer's partition, the connection in use, and requests of broken ones that may still arrive."""

    def __init__(self) -> None:
        self.leader = Leader()
        self.queue = PartitionQueue(TopicPartition("t", 0), is_idempotent=True, in_flight_max=5)
        self.identity = Identity(7, 0)
        self.sent = 0
        self.network: list[Request] = []
        self.late: list[Request] = []
        self.acknowledged: list[int] = []
        self.failed: list[int] = []

    def renew(self, former: Identity) -> Identity:
        if former == self.identity:
            self.identity = Identity(7, former.epoch + 1)
        return self.identity

    def append(self, count: int) -> None:
        batch = self.queue.begin(0.0, 0.0)
        for _ in range(count):
            batch.append(None, b"%d" % self.sent, (), 0, 1)
            self.sent += 1
        self.queue.close()

    def take(self) -> None:
        if self.queue.is_ready(1.0):
            batch = self.queue.take(self.renew)
            self.network.append(Request(batch, values(batch), batch.identity.epoch, batch.base_sequence))

    def deliver(self, *, refuses: bool = False, resigns: bool = False, loses_answer: bool = False) -> None:
        """The leader takes the oldest request of the connection in use.

        One that `resigns` has appended the batch, and answers NOT_LEADER_OR_FOLLOWER before it is acknowledged.
        """
        if not self.network:
            return
        self.late.clear()
        request = self.network.pop(0)
        verdict = "refused" if refuses else self.leader.judge(request.records, request.epoch, request.sequence)
        if resigns and verdict == "acknowledged":
            verdict = "resigned"
        if loses_answer:
            self.queue.requeue(request.batch, 0.0, is_uncertain=True)
            self.break_connection()
        else:
            self.answered(request.batch, verdict)

    def answered(self, batch: Batch, verdict: str) -> None:
        if verdict == "acknowledged":
            self.queue.acknowledged(batch)
            self.acknowledged += values(batch)
        elif verdict == "too large" and batch.count > 1:
            self.queue.split(batch)
        elif verdict in ("refused", "resigned"):
            self.queue.requeue(batch, 0.0, is_uncertain=verdict == "resigned")
        elif verdict != "out of sequence" or not self.queue.out_of_sequence(batch, 0.0):
            self.give_up(batch)

    def break_connection(self) -> None:
        """Nothing of what is on its way is answered; some of it may arrive later, in order."""
        for request in self.network:
            self.queue.requeue(request.batch, 0.0, is_uncertain=True)
        self.late += self.network
        self.network = []

    def deliver_late(self) -> None:
        if self.late:
            request = self.late.pop(0)
            self.leader.judge(request.records, request.epoch, request.sequence)

    def expire(self) -> None:
        """The time of the oldest batch that waits is over."""
        if self.queue.waiting:
            self.give_up(self.queue.waiting[0])

    def mistake(self) -> None:
        """A broker that lags shows a former topic of the name: nothing of it is there, and all is as ever."""
        self.queue.topic_replaced(begins_epoch=True)

    def give_up(self, batch: Batch) -> None:
        self.queue.failed(batch)
        self.failed += values(batch)

    def finish(self) -> None:
        """From now on everything arrives."""
        for _ in range(1_000):
            if self.queue.is_empty:
                return
            self.take()
            self.deliver()
        raise AssertionError(f"still there: {self.queue.waiting} {self.queue.in_flight}")


def values(batch: Batch) -> list[int]:
    return [int(value or b"") for value in batch.values]


STEPS = {
    World.take: 30,
    World.deliver: 20,
    World.deliver_late: 5,
    World.break_connection: 3,
    World.expire: 2,
    World.mistake: 1,
}
"""How often each happens, beside what takes an argument."""


def walk(world: World, random: Random) -> None:
    steps = [*STEPS, "append", "refuse", "resign", "lose answer"]
    weights = [*STEPS.values(), 25, 5, 5, 3]
    for step in random.choices(steps, weights, k=150):
        if step == "append":
            world.append(random.randint(1, 8))
        elif step == "refuse":
            world.deliver(refuses=True)
        elif step == "resign":
            world.deliver(resigns=True)
        elif step == "lose answer":
            world.deliver(loses_answer=True)
        else:
            assert not isinstance(step, str)
            step(world)


@settings(max_examples=300)
@given(st.integers(0, 2**32))
def test_acknowledged_records_are_there_once_and_in_order(seed: int) -> None:
    async def run() -> None:
        world = World()
        walk(world, Random(seed))
        world.finish()
        log = world.leader.log
        assert log == sorted(set(log)), "doubled or out of order"
        assert set(world.acknowledged) <= set(log), "lost"
        assert sorted(world.acknowledged + world.failed) == list(range(world.sent)), "neither, or both"

    asyncio.run(run())


def test_a_batch_is_not_left_further_behind_than_a_leader_remembers() -> None:
    """It is in the log and refused twice, while those behind it are acknowledged: the leader still knows it again."""

    async def run() -> None:
        world = World()
        for count in (1, 5, 5):
            for _ in range(count):
                world.append(1)
            for _ in range(5):
                world.take()
            world.deliver(resigns=count == 5)
            for _ in range(4):
                world.deliver()
        world.finish()
        assert world.leader.log == list(range(11))
        assert (sorted(world.acknowledged), world.failed) == (list(range(11)), [])

    asyncio.run(run())


def test_a_batch_that_is_split_stays_behind_the_one_before_it() -> None:
    """That goes into another epoch: so do the parts, or what is sent behind them would be in the log before them."""

    async def run() -> None:
        world = World()
        world.append(1)
        world.take()
        world.deliver()
        for count in (1, 1, TOO_LARGE + 1, 1):
            world.append(count)
        for _ in range(3):
            world.take()
        world.deliver(refuses=True)
        world.expire()  # What comes next has a gap before it now,
        world.deliver()  # so that its leader wants it in another epoch.
        world.deliver()
        world.take()
        world.deliver()
        for _ in range(3):
            world.take()
        world.finish()
        assert world.leader.log == [0, *range(2, 10)]
        assert (world.acknowledged, world.failed) == (world.leader.log, [1])

    asyncio.run(run())
