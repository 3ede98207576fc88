"""The product's own consumer while things break: members of groups of either protocol, or partitions by hand."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Final

from sim.invariants import require
from sim.workloads.own_client.topics import ALL
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import AutoOffsetReset, ConsumedBatch, Consumer, ConsumerSettings, RebalanceListener
from tidelog.client.errors import ClientError, CommitRefused, ConnectionFailed, RequestTimedOut
from tidelog.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sim.checks.client_history import ClientHistory, GroupWatch
    from sim.world.process import Process
    from sim.world.randomness import SeededRandom
    from sim.world.trace import Trace
    from tidelog.model.identifiers import TopicPartition

POLL_S: Final = (0.2, 3.0)
POLL_BY_HAND_S: Final = 30.0
"""Long enough that a poll which waits for nothing is seen to be silent."""
LIFE_S: Final = (4.0, 20.0)
PAUSE_S: Final = 0.3
WORK_CHANCE: Final = 0.2
"""How often a member takes its time with a batch."""


class _Listener(RebalanceListener):
    """Tells the group's watch what happens to a member's partitions."""

    def __init__(self, member: ClientMember) -> None:
        self._member = member

    async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._member.note("client_assigned", partitions)

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._member.note("client_revoked", partitions)
        if not self._member.is_leaving:
            self._member.watch.gave_up(self._member.name, partitions)

    async def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._member.note("client_lost", partitions)
        self._member.watch.lost(self._member.name, partitions)


class ClientMember:
    """One application in a process of its own, which comes, reads, and goes again.

    With `by_hand` it reads these partitions; otherwise what its group gives it.
    """

    def __init__(
        self,
        process: Process,
        bootstrap: str,
        settings: ConsumerSettings,
        watch: GroupWatch,
        history: ClientHistory,
        random: SeededRandom,
        trace: Trace,
        *,
        by_hand: Collection[TopicPartition] = (),
        reads_may_fail: bool = False,
    ) -> None:
        self.name = process.name
        self.watch = watch
        self._process = process
        self._bootstrap = bootstrap
        self._settings = dataclasses.replace(settings, auto_offset_reset=AutoOffsetReset.EARLIEST)
        self._history = history
        self._random = random
        self._trace = trace
        self._by_hand = by_hand
        self._reads_may_fail = reads_may_fail
        self._consumer: Consumer | None = None
        self.calm = False
        """Set it, and the member stays."""
        self.stopping = False
        self.is_leaving = False
        self._anew = False

    @property
    def assignment(self) -> Collection[TopicPartition]:
        return () if self._consumer is None else self._consumer.assignment

    @property
    def is_at_rest(self) -> bool:
        """Whether it neither comes nor goes: it has something, or is away."""
        return not self.is_leaving and (self._consumer is None or bool(self._consumer.assignment))

    def note(self, event: str, partitions: Collection[TopicPartition]) -> None:
        """A line of the trace."""
        self._trace.record(event, self.name, *partitions)

    def start(self) -> asyncio.Task[None]:
        """Begins its first life."""
        return self._process.spawn(self._run())

    def begin_anew(self) -> None:
        """Leaves, and joins again."""
        self._anew = True

    async def _run(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self._random.between(0.0, PAUSE_S))
            await self._live()

    async def _live(self) -> None:
        until = self._history.now() + self._random.between(*LIFE_S)
        self._anew = False
        async with Cluster(self._bootstrap, client_id=self.name) as cluster:
            consumer = self._consumer = Consumer(cluster, self.watch.group, self._settings)
            self.watch.caused(f"{self.name} joined")
            if self._by_hand:
                consumer.assign(self._by_hand)
            else:
                consumer.subscribe(ALL, _Listener(self))
            try:
                while not self.stopping and not self._anew and (self.calm or self._history.now() < until):
                    await self._poll(consumer)
            except (KafkaError, ClientError) as error:
                self._trace.record("client_fails", self.name, repr(error))
                damaged = isinstance(error, KafkaError) and error.code is ErrorCode.CORRUPT_MESSAGE
                require(20, damaged and self._reads_may_fail, f"{self.name}: poll raises {error!r}")
            finally:
                self.is_leaving = True
                self.watch.caused(f"{self.name} leaves")
                self._trace.record("client_leaves", self.name)
                await consumer.close()
                self._consumer = None
                self.is_leaving = False
                self.watch.caused(f"{self.name} left")

    async def _poll(self, consumer: Consumer) -> None:
        batch = await consumer.poll(POLL_BY_HAND_S if self._by_hand else self._random.between(*POLL_S))
        if batch is None:
            return
        self._take(batch)
        if self._random.chance(WORK_CHANCE):
            await asyncio.sleep(self._random.between(0.0, PAUSE_S))
        if not self._settings.auto_commit:
            try:
                await consumer.commit()
            except CommitRefused as error:
                self._trace.record("client_commit_refused", self.name, repr(error))
            except KafkaError as error:
                # The topic of this batch is gone; the others' offsets are committed all the same.
                self._trace.record("client_commit_fails", self.name, repr(error))
            except (ConnectionFailed, RequestTimedOut) as error:
                # No broker has answered for as long as an operation may take; the next commit covers this one.
                self._trace.record("client_commit_fails", self.name, repr(error))

    def _take(self, batch: ConsumedBatch) -> None:
        records = list(batch)
        if records:
            partition = batch.topic_partition
            self._trace.record("client_reads", self.name, partition, records[0].offset, records[-1].offset)
            for record in records:
                self._history.consumed(self.watch, self.name, partition, record.offset, record.value or b"")
