"""A producer on asyncio: records gathered into batches a partition, sent to leaders, retried, their places reported.

Records are kept as columns (keys, values, timestamps) until a batch is full or has lingered, and are then encoded in
bulk by the kernel. What a producer has for a partition, and the order in it, is `PartitionQueue`; how batches get to
brokers and what their answers mean is `Sender`.

    async with Cluster("localhost:9092") as cluster, Producer(cluster) as producer:
        delivery = await producer.send("orders", b"value", key=b"key")
        place = await delivery.place()

With a `transactional_id` in the settings everything is sent in transactions:

    async with producer.transaction():
        await producer.send("totals", b"value")
        await producer.send_offsets({TopicPartition("orders", 0): 17}, consumer.member)
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, TypeVar

from tidelog.client.cluster import Cluster
from tidelog.client.errors import ClientError, ProducerClosed, TransactionFailed
from tidelog.client.offsets import CommittedOffset, GroupMember, judged_offsets
from tidelog.client.partitioners import Partitioner, Partitions, partitioner_factory
from tidelog.client.partitioners.partitioner import OwnPartitioner
from tidelog.client.producer.batches import HEADER_OVERHEAD_MAX, RECORD_OVERHEAD_MAX, Delivery, Header
from tidelog.client.producer.partition_queue import PartitionQueue
from tidelog.client.producer.sender import ProducerStatistics, Sender, aborted
from tidelog.client.producer.settings import ACKS_ALL, ProducerSettings
from tidelog.client.producer.transactions import ProducerTransactionState, TransactionManager
from tidelog.client.views import TopicView, partition_error
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition

T = TypeVar("T")

TIMESTAMP_MAX: Final = 2**63 - 1
CANCELLED_ABORT_S_MAX: Final = 4.0
"""How long the abort for a caller that was cancelled may take; it may come twice, and Ctrl-C is to end within 10 s."""
LOADS_S: Final = 0.005
"""How often partitioners are told how long the queues are."""


@dataclasses.dataclass(slots=True)
class _Target:
    """How a topic's records find their partitions, with the topic as Metadata showed it when `partitions` was made."""

    partitioner: Partitioner
    view: TopicView
    partitions: Partitions
    queues: dict[int, PartitionQueue]
    is_single: bool = dataclasses.field(init=False)
    """Whether there is one partition, and no partitioner of the user's own to ask."""

    def __post_init__(self) -> None:
        self.is_single = self.partitions.count == 1 and not isinstance(self.partitioner, OwnPartitioner)


class Producer:
    """Sends records; one instance an event loop. `async with` flushes at the end, unless an error is on its way."""

    def __init__(self, cluster: Cluster, settings: ProducerSettings | None = None) -> None:
        self._cluster = cluster
        self._routing = cluster.routing
        chosen = settings or ProducerSettings()
        self._transactions: TransactionManager | None = None
        idempotent = chosen.acks == ACKS_ALL if chosen.idempotent is None else chosen.idempotent
        if chosen.transactional_id is not None:
            idempotent = True
            self._transactions = TransactionManager(cluster, chosen.transactional_id, chosen.transaction_timeout_ms)
        acks = ACKS_ALL if idempotent else chosen.acks
        batch_size = min(chosen.batch_size, chosen.max_request_size)
        self._settings = dataclasses.replace(chosen, idempotent=idempotent, acks=acks, batch_size=batch_size)
        self._sender = Sender(cluster, self._settings, self._transactions)
        self._sender.on_turn = self._tell_loads
        self._make_partitioner = partitioner_factory(chosen.partitioner)
        self._targets: dict[str, _Target] = {}
        self._loads_at = 0.0

    async def __aenter__(self) -> Producer:
        try:
            if self._transactions is not None:
                await self._transactions.init()
            await self._sender.start()
        except BaseException:
            # A start that fails, or is cancelled, has no __aexit__ that would close the connection.
            if self._transactions is not None:
                self._transactions.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._transactions is not None and self._transactions.state in (
                ProducerTransactionState.OPEN,
                ProducerTransactionState.BROKEN,
            ):
                # A transaction without a commit: it would only hold up its readers until it times out.
                await self._abort_for(error)
            elif error is None and not self._sender.closed:
                await self._drain()
        finally:
            try:
                await self._sender.close()
            finally:
                if self._transactions is not None:
                    self._transactions.close()

    @property
    def statistics(self) -> ProducerStatistics:
        """Counts so far; what it gives does not change any more."""
        return dataclasses.replace(self._sender.statistics)

    @property
    def _failure(self) -> Exception | None:
        return self._sender.failure

    @_failure.setter
    def _failure(self, failure: Exception | None) -> None:
        self._sender.failure = failure

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivery:
        """Queues a record; waits only while `buffer_memory` is taken or the topic, or its partition, is not known yet.

        `partition` None: where the settings' partitioner says. `timestamp` is in ms since 1970, None: now. TypeError or
        ValueError for what is no record, KafkaError when the topic or the partition does not exist, InvalidPartition
        where a user's own partitioner errs, ProducerClosed after the end. A record that is larger than
        `max_request_size` has failed, with MESSAGE_TOO_LARGE, as if a broker had refused it.
        """
        if timestamp is None and key is None and not headers and type(value) is bytes:
            # The plainest records are nearly all: `_checked` would say the same, later.
            timestamp, size = time.time_ns() // 1_000_000, len(value) + RECORD_OVERHEAD_MAX
        else:
            timestamp = time.time_ns() // 1_000_000 if timestamp is None else timestamp
            value, key, size = _checked(value, key, headers, timestamp)
        sender = self._sender
        self._check_open()
        view = self._routing.topics.get(topic)
        if view is None:
            view = await self._waited(self._find_topic(topic))
        if type(partition) is int and partition not in view.partitions and partition >= 0:
            view = await self._waited(self._look_again(view))
        if size > self._settings.max_request_size:
            return sender.refuse(topic, size)
        statistics = sender.statistics
        if statistics.bytes_waiting + size > self._settings.buffer_memory:
            await self._waited(self._wait_for_room(size))
            view = self._routing.topics.get(topic, view)
        target = self._targets.get(topic)
        if target is None or target.view is not view:
            target = self._target(view)
        if partition is None:
            partition = 0 if target.is_single else self._choose(target, key, value, size)
        elif type(partition) is not int:
            raise TypeError(f"a partition is an int, not {type(partition).__name__}")
        elif partition not in view.partitions:
            text = f"topic '{topic}' has no partition {partition}: it has {len(view.partitions)}"
            raise partition_error(TopicPartition(topic, partition), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        queue = target.queues.get(partition)
        if queue is None:
            queue = target.queues[partition] = sender.queue(TopicPartition(topic, partition))
        batch = queue.open
        if batch is not None and batch.size + size > self._settings.batch_size:
            sender.close_batch(queue)
            batch = None
        if batch is None:
            batch = sender.begin(queue)
        statistics.bytes_waiting += size
        statistics.records_sent += 1
        delivery = batch.append(key, value, headers, timestamp, size)
        if batch.size >= self._settings.batch_size:
            sender.close_batch(queue)
        return delivery

    async def _wait_for_room(self, size: int) -> None:
        statistics = self._sender.statistics
        # What lingers is to go: it can have no more records before there is room.
        with self._sender.without_linger():
            while statistics.bytes_waiting and statistics.bytes_waiting + size > self._settings.buffer_memory:
                self._sender.room.clear()
                await self._sender.room.wait()

    async def _waited(self, waiting: Coroutine[Any, Any, T]) -> T:
        """What `send` waits for; raises where the producer, or the transaction, has ended meanwhile."""
        begun = 0 if self._transactions is None else self._transactions.begun
        found = await waiting
        self._check_running()
        if self._transactions is not None:
            self._transactions.require_same(begun)
        return found

    def _check_open(self) -> None:
        self._check_running()
        if self._transactions is not None:
            self._transactions.require(ProducerTransactionState.OPEN)

    def _check_running(self) -> None:
        if self._sender.closed:
            raise ProducerClosed("the producer is closed")
        if not self._sender.started:
            raise RuntimeError("the producer was not started: `async with Producer(...) as producer`")

    async def flush(self) -> None:
        """Waits until all that was sent is acknowledged or has failed; raises the first failure since the last one.

        What is sent after the call is not waited for. After the end it only raises: what was not acknowledged by then
        has failed.
        """
        await self._sender.flush()
        self.raise_failure()

    async def _drain(self) -> None:
        """As `flush`, but waits for what other tasks send meanwhile, too: it belongs to what ends now."""
        await self._sender.drain()
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raises the first failure since the last flush, if any: for callers that send much and await nothing."""
        failure, self._sender.failure = self._sender.failure, None
        if failure is not None:
            raise failure

    async def require(self, topic: str) -> None:
        """Finds a topic before its first record is there; KafkaError where it does not exist."""
        await self._find_topic(topic)

    # TransactionManager

    async def begin(self) -> None:
        """Opens a transaction: what is sent from now on is read together, once it is committed, or never."""
        transactions = self._transactional()
        self._check_running()
        transactions.begin()

    async def send_offsets(self, offsets: Mapping[TopicPartition, int | CommittedOffset], member: GroupMember) -> None:
        """Commits a consumer's offsets with the transaction: `member` is `Consumer.member`, or names a group alone.

        CommitRefused where the consumer has lost its partitions meanwhile: abort.
        """
        committed = judged_offsets(offsets)
        transactions = self._transactional()
        self._check_running()
        await transactions.send_offsets(committed, member)

    async def commit(self) -> None:
        """Delivers what was sent, and commits it. After an error `abort`, but not after Fenced, which is the end."""
        transactions = self._transactional()
        transactions.require(ProducerTransactionState.OPEN)
        try:
            await self._drain()
        except (KafkaError, ClientError) as error:
            if transactions.state is ProducerTransactionState.FATAL:
                raise
            raise TransactionFailed(f"the transaction can only be aborted: {error}") from error
        await self._end(committed=True)

    async def abort(self) -> None:
        """Drops what was not sent yet, and aborts: readers of committed records see nothing of the transaction.

        TransactionFailed where a commit that was cancelled or not answered had been carried out: `begin` the next one.
        """
        transactions = self._transactional()
        transactions.require(ProducerTransactionState.OPEN, ProducerTransactionState.BROKEN)
        transactions.break_off(aborted())  # Nothing more is sent.
        await self._sender.drop()
        self._sender.failure = None
        await self._end(committed=False)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """`async with producer.transaction():` commits at the end, aborts where an error comes out."""
        await self.begin()
        try:
            yield
            await self.commit()
        except BaseException as error:
            if self._transactional().state in (ProducerTransactionState.OPEN, ProducerTransactionState.BROKEN):
                # What went wrong is what the caller is to hear; an abort that fails shows at the next begin.
                await self._abort_for(error)
            raise

    async def _abort_for(self, error: BaseException | None) -> None:
        """Aborts as well as can be for what came out of the caller's block.

        A caller that was cancelled wants to end: it does not wait for a coordinator that does not answer. The
        coordinator aborts by itself once the transaction times out.
        """
        is_cancelled = error is not None and not isinstance(error, Exception)
        with contextlib.suppress(KafkaError, ClientError, TimeoutError):
            async with asyncio.timeout(CANCELLED_ABORT_S_MAX if is_cancelled else None):
                await self.abort()

    def _transactional(self) -> TransactionManager:
        if self._transactions is None:
            raise ValueError("transactions need a transactional_id in the settings")
        return self._transactions

    async def _end(self, *, committed: bool) -> None:
        transactions = self._transactional()
        self._check_running()
        if await transactions.end(committed=committed):
            self._sender.restart()
        if transactions.was_committed:
            raise TransactionFailed("the transaction was committed: its commit was carried out, though not answered")

    # Partitions

    async def _find_topic(self, topic: str) -> TopicView:
        if not isinstance(topic, str):
            raise TypeError(f"a topic's name is a str, not {type(topic).__name__}")
        operation = self._routing.require_topics(
            (topic,), self._routing.deadline(), create=self._settings.create_topics
        )
        return (await self._cluster.run(operation))[topic]

    async def _look_again(self, view: TopicView) -> TopicView:
        """The topic as brokers have it now: partitions may have been added since it was looked at."""
        await self._cluster.run(self._routing.refresh((view.name,), self._routing.deadline()))
        return self._routing.topics.get(view.name, view)

    def _choose(self, target: _Target, key: bytes | None, value: bytes | None, size: int) -> int:
        partitioner, partitions = target.partitioner, target.partitions
        chosen = partitioner.partition(key, value, partitions)
        if not self._has_room(target.queues.get(chosen), size) and partitioner.new_batch(chosen, partitions):
            chosen = partitioner.partition(key, value, partitions)
        partitioner.appended(key, size, partitions)
        return chosen

    def _target(self, view: TopicView) -> _Target:
        target = self._targets.get(view.name)
        available = [partition.partition for partition in view.partitions.values() if partition.leader >= 0]
        partitions = Partitions(view.name, len(view.partitions), available)
        if target is None or partitions.count < target.partitions.count:
            # Of a topic that was made again with fewer partitions, the one that was stuck to may be none any more.
            partitioner = self._make_partitioner(self._settings.batch_size, _draw)
            target = _Target(partitioner, view, partitions, {} if target is None else target.queues)
        else:
            target = _Target(target.partitioner, view, partitions, target.queues)
        self._targets[view.name] = target
        return target

    def _has_room(self, queue: PartitionQueue | None, size: int) -> bool:
        """Whether a batch is open that takes so many bytes more."""
        batch = None if queue is None else queue.open
        return batch is not None and batch.size + size <= self._settings.batch_size

    def _tell_loads(self) -> None:
        """Tells partitioners how many batches wait for each partition that has a leader."""
        now = time.monotonic()
        if now < self._loads_at:
            return
        self._loads_at = now + LOADS_S
        queues = self._sender.queues
        for name, target in self._targets.items():
            if target.partitions.count > 1:
                waiting = [queues.get(TopicPartition(name, number)) for number in target.partitions.available]
                target.partitioner.update_load(
                    [0 if queue is None else queue.batches for queue in waiting], target.partitions
                )


def _checked(value: object, key: object, headers: object, timestamp: object) -> tuple[bytes | None, bytes | None, int]:
    """Value and key as bytes, and the bytes that the record takes at most; TypeError or ValueError otherwise."""
    if not isinstance(timestamp, int) or isinstance(timestamp, bool):
        raise TypeError(f"a timestamp is an int, milliseconds since 1970, not {type(timestamp).__name__}")
    if not 0 <= timestamp <= TIMESTAMP_MAX:
        raise ValueError(f"a timestamp is 0 to {TIMESTAMP_MAX} ms since 1970, not {timestamp}")
    checked_value, checked_key = _bytes("value", value), _bytes("key", key)
    size = len(checked_value or b"") + len(checked_key or b"") + RECORD_OVERHEAD_MAX
    if isinstance(headers, str) or not isinstance(headers, Sequence):
        # One that can be gone through once would be gone when the record is made of it.
        raise TypeError(f"headers are a list of (name, value), not {type(headers).__name__}")
    header: Any
    for header in headers:
        if not isinstance(header, (tuple, list)) or len(header) != 2:
            raise TypeError(f"a header is a (name, value), not {header!r:.40}")
        name, content = header
        if not isinstance(name, str):
            raise TypeError(f"a header's name is a str, not {type(name).__name__}")
        if content is not None and not isinstance(content, bytes):
            raise TypeError(f"a header's value is bytes or None, not {type(content).__name__}: encode it first")
        size += len(name.encode()) + len(content or b"") + HEADER_OVERHEAD_MAX
    return checked_value, checked_key, size


def _bytes(what: str, given: object) -> bytes | None:
    if given is None or isinstance(given, bytes):
        return given
    if isinstance(given, (bytearray, memoryview)):
        return bytes(given)  # The caller may change it before it is sent.
    raise TypeError(f"a {what} is bytes or None, not {type(given).__name__}: encode it first")


def _draw() -> int:
    return random.getrandbits(31)
