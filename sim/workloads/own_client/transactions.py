"""The product's own transactional producer while things break, and its own consumer of committed records.

    life 1:  begin, send, commit or abort, begin, ...  killed in the middle, or closed
    life 2:  the same transactional id in another process: it fences the first, and aborts what that left open

What a transaction wrote is read as a whole where its commit was answered, as a whole or not at all where the answer
never came, and never where it was aborted, or left open (`checks/transaction_history.py`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sim.checks.transaction_history import Fate
from sim.invariants import require
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import AutoOffsetReset, Consumer, ConsumerSettings
from tidelog.client.errors import ClientError
from tidelog.client.fetching import READ_COMMITTED, FetchSettings
from tidelog.client.producer import Producer, ProducerSettings
from tidelog.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sim.checks.transaction_history import Transaction, TransactionHistory
    from sim.world.process import Process
    from sim.world.randomness import SeededRandom
    from sim.world.trace import Trace
    from tidelog.model.identifiers import TopicPartition

LIFE_S: Final = (1.0, 8.0)
KILL_CHANCE: Final = 0.6
"""Of a life that ends without a word; the others are closed."""
ABORT_CHANCE: Final = 0.25
RECORDS_MAX: Final = 5
PAUSE_S: Final = 0.3
CALM_PAUSE_S: Final = 1.0
SILENT_S_MAX: Final = 10.0
"""How long a whole transaction may take when all is well."""
TIMEOUT_MS: Final = 10_000
POLL_S: Final = 1.0


class ClientTransactions:
    """One application with a transactional id, a process after the other."""

    def __init__(
        self,
        name: str,
        make_process: Callable[[str], Process],
        bootstrap: str,
        partitions: Sequence[TopicPartition],
        history: TransactionHistory,
        random: SeededRandom,
        trace: Trace,
        now: Callable[[], float],
    ) -> None:
        """`make_process(name)`: where a life is to be lived."""
        self.name = name
        self._make_process = make_process
        self._bootstrap = bootstrap
        self._partitions = partitions
        self._history = history
        self._random = random
        self._trace = trace
        self._now = now
        self._settings = ProducerSettings(
            transactional_id=name,
            transaction_timeout_ms=TIMEOUT_MS,
            linger_ms=(0.0, 5.0, 50.0)[random.below(3)],
            metadata_max_age_s=3.0,
        )
        self._lives = 0
        self._count = 0
        self.committed = 0
        self.calm = False
        """Set it, and the life that is under way is the last one."""
        self.stopping = False

    async def run(self) -> None:
        """One life after the other, each in a process of its own."""
        while not self.stopping:
            self._lives += 1
            process = self._make_process(f"{self.name}.{self._lives}")
            life = process.spawn(self._live(self._lives))
            end = self._now() + self._random.between(*LIFE_S)
            is_killed = self._random.chance(KILL_CHANCE)
            while not life.done() and (self.calm or self._now() < end or not is_killed):
                left_s = end - self._now() if is_killed and not self.calm else None
                await asyncio.wait([life], timeout=left_s)
            if life.done():
                life.result()
            self._trace.record("client_life_ends", self.name, self._lives, life.done())
            process.kill()

    async def speak(self) -> None:
        """All is well: transactions are committed, and none takes long."""
        before, deadline = self.committed, self._now() + SILENT_S_MAX
        while self.committed <= before:
            require(20, self._now() < deadline, f"{self.name} has committed nothing for {SILENT_S_MAX:g} s")
            await asyncio.sleep(0.1)

    async def _live(self, life: int) -> None:
        """Until its time is over, or nothing more can be done by this producer."""
        end = self._now() + self._random.between(*LIFE_S)
        try:
            async with (
                Cluster(self._bootstrap, client_id=f"{self.name}.{life}") as cluster,
                Producer(cluster, self._settings) as producer,
            ):
                self._history.initialized(self.name, life)
                while not self.stopping and (self.calm or self._now() < end):
                    await self._transact(producer)
                    await asyncio.sleep(self._random.between(0.0, CALM_PAUSE_S if self.calm else PAUSE_S))
        except (KafkaError, ClientError) as error:
            # Its transaction took too long, or a coordinator could not be asked in time: the next life goes on.
            self._trace.record("client_transactions_end", self.name, life, repr(error))
            await asyncio.sleep(PAUSE_S)

    async def _transact(self, producer: Producer) -> None:
        """One transaction; raises what ends the producer's life."""
        self._count += 1
        transaction = self._history.begin(self.name, self._count)
        commits = not self._random.chance(ABORT_CHANCE)
        await producer.begin()
        try:
            await self._write(producer, transaction)
            if commits:
                transaction.fate = Fate.COMMITTING
                await producer.commit()
        except (KafkaError, ClientError) as error:
            self._trace.record("client_transaction_fails", transaction.name, repr(error))
            await producer.abort()
            # Where a commit was asked for, an answer may have been lost: then it stays open what became of it.
            if transaction.fate is Fate.OPEN:
                self._history.ended(transaction, Fate.ABORTED)
            return
        if commits:
            self.committed += 1
            self._history.ended(transaction, Fate.COMMITTED)
        else:
            await producer.abort()
            self._history.ended(transaction, Fate.ABORTED)
        self._trace.record("client_transaction", transaction.name, transaction.fate.name)

    async def _write(self, producer: Producer, transaction: Transaction) -> None:
        for number in range(1 + self._random.below(RECORDS_MAX)):
            partition = self._partitions[self._random.below(len(self._partitions))]
            value = f"{transaction.name}:{number}".encode()
            await producer.send(partition.topic, value, partition=partition.partition)
            transaction.values.setdefault(partition, []).append(value)
            if self._random.chance(0.3):
                await asyncio.sleep(self._random.between(0.0, 0.1))


class ClientCommittedReader:
    """Reads committed records of some partitions, by the product's own consumer."""

    def __init__(
        self,
        process: Process,
        bootstrap: str,
        partitions: Sequence[TopicPartition],
        history: TransactionHistory,
        trace: Trace,
        *,
        reads_may_fail: bool,
    ) -> None:
        self._process = process
        self._bootstrap = bootstrap
        self._partitions = partitions
        self._history = history
        self._trace = trace
        self._reads_may_fail = reads_may_fail
        self._positions = dict.fromkeys(partitions, 0)
        self.values: dict[TopicPartition, list[bytes]] = {partition: [] for partition in partitions}
        """What it has read, in its order."""
        self.stopping = False
        """Set it, and it ends when it has read all that there is by then."""

    def start(self) -> asyncio.Task[None]:
        """Begins to read."""
        return self._process.spawn(self._run())

    async def _run(self) -> None:
        settings = ConsumerSettings(
            auto_offset_reset=AutoOffsetReset.NONE,
            metadata_max_age_s=3.0,
            fetch=FetchSettings(isolation=READ_COMMITTED),
        )
        while True:
            async with Cluster(self._bootstrap, client_id=self._process.name) as cluster, Consumer(cluster) as other:
                consumer = Consumer(cluster, settings=settings)
                consumer.assign(self._positions)
                try:
                    if await self._read(consumer, other):
                        return
                except KafkaError as error:
                    damaged = error.code is ErrorCode.CORRUPT_MESSAGE and self._reads_may_fail
                    require(20, damaged, f"{self._process.name}: poll raises {error!r}")
                finally:
                    await consumer.close()

    async def _read(self, consumer: Consumer, other: Consumer) -> bool:
        """Until it is told to stop, and nothing is left up to where `other` sees the end: all transactions end."""
        goals: dict[TopicPartition, int] | None = None
        while True:
            if self.stopping and goals is None:
                goals = await other.end_offsets(self._partitions)
            if goals is not None and all(self._positions[each] >= goal for each, goal in goals.items()):
                return True
            batch = await consumer.poll(POLL_S)
            if batch is None:
                continue
            for record in batch:
                self._history.read(batch.topic_partition, record.offset, record.value or b"")
                self.values[batch.topic_partition].append(record.value or b"")
            self._trace.record("client_reads_committed", batch.topic_partition, batch.offset, batch.next_offset)
            self._positions[batch.topic_partition] = batch.next_offset
