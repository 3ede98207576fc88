"""A producer on asyncio: records gathered into batches a partition, sent to leaders, retried, their places reported.

Records are kept as columns (keys, values, timestamps) until a batch is full or has lingered, and are then encoded in
bulk by the kernel. One batch a partition is in flight at a time, so order holds over retries with no further care, and
an idempotent producer's sequences follow from it; different partitions' batches travel together, one request a leader.

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
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final

from tidelog.client.cluster import Cluster
from tidelog.client.errors import ClientError, ConnectionFailed, RequestTimedOut, TransactionFailed
from tidelog.client.exchange import ByVersion
from tidelog.client.offsets import CommittedOffset, GroupMember
from tidelog.client.operations import Call
from tidelog.client.partitioners import Partitioner, Partitions, partitioner_factory
from tidelog.client.producer.batches import (
    HEADER_OVERHEAD_MAX,
    RECORD_OVERHEAD_MAX,
    Batch,
    Delivery,
    Header,
    leaderless,
    refused,
)
from tidelog.client.producer.settings import ACKS_ALL, ProducerSettings
from tidelog.client.producer.transactions import PRODUCE_EXPLICIT_MAX, State, Transactions
from tidelog.client.producing import ProducedBatch, produce_request, produced
from tidelog.client.views import TopicView
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

SEQUENCES: Final = 2**31
UNKNOWN_TOPIC_ATTEMPTS_MAX: Final = 5
"""After so many attempts a topic that the brokers don't know is taken for deleted."""


@dataclasses.dataclass(slots=True)
class _Target:
    """How a topic's records find their partitions, with the topic as Metadata showed it when `partitions` was made."""

    partitioner: Partitioner
    view: TopicView
    partitions: Partitions


class Producer:
    """Sends records; one instance an event loop. `async with` flushes at the end, unless an error is on its way."""

    def __init__(self, cluster: Cluster, settings: ProducerSettings | None = None) -> None:
        self._cluster = cluster
        self._routing = cluster.routing
        chosen = settings or ProducerSettings()
        self._transactions: Transactions | None = None
        if chosen.transactional_id is not None:
            chosen = dataclasses.replace(chosen, idempotent=True)
            self._transactions = Transactions(cluster, chosen.transactional_id or "", chosen.transaction_timeout_ms)
        self._settings = dataclasses.replace(chosen, acks=ACKS_ALL) if chosen.idempotent else chosen
        self._open: dict[TopicPartition, Batch] = {}
        self._queues: dict[TopicPartition, deque[Batch]] = {}
        self._in_flight: set[TopicPartition] = set()
        self._make_partitioner = partitioner_factory(chosen.partitioner)
        self._targets: dict[str, _Target] = {}
        self._buffered = 0
        self._room = asyncio.Event()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._flushing = 0
        self._aborting = False
        self._failure: Exception | None = None
        self._sender: asyncio.Task[None] | None = None
        self._requests: set[asyncio.Task[None]] = set()
        self._producer_id = -1
        self._producer_epoch = -1
        self._sequences: dict[TopicPartition, int] = {}

    async def __aenter__(self) -> Producer:
        if self._transactions is not None:
            await self._transactions.init()
        elif self._settings.idempotent:
            await self._take_producer_id()
        self._sender = asyncio.create_task(self._send_loop())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._transactions is not None and self._transactions.state in (State.OPEN, State.BROKEN):
                # A transaction that nobody committed: it would only hold up its readers until it times out.
                with contextlib.suppress(KafkaError, ClientError):
                    await self.abort()
            elif error is None:
                await self.flush()
        finally:
            await self._stop()

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
        """Queues a record; waits only while `buffer_memory` is taken or the topic is not known yet.

        `partition` None: where the settings' partitioner says. `timestamp` is in ms since 1970, None: now. KafkaError
        when the topic or the partition does not exist, InvalidPartition where a user's own partitioner errs.
        """
        if self._transactions is not None:
            self._transactions.require(State.OPEN)
        view = self._routing.topics.get(topic)
        if view is None:
            view = await self._find_topic(topic)
        size = len(value or b"") + len(key or b"") + RECORD_OVERHEAD_MAX
        for name, content in headers:
            size += len(name.encode()) + len(content or b"") + HEADER_OVERHEAD_MAX
        while self._buffered and self._buffered + size > self._settings.buffer_memory:
            self._room.clear()
            await self._room.wait()
        if partition is None:
            partition = self._choose(view, key, value, size)
        elif partition not in view.partitions:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic '{topic}' has no partition {partition}: it has {len(view.partitions)}",
            )
        topic_partition = TopicPartition(topic, partition)
        batch = self._open.get(topic_partition)
        if batch is not None and batch.size + size > self._settings.batch_size:
            self._close_batch(topic_partition)
            batch = None
        if batch is None:
            batch = self._open_batch(topic_partition)
        self._buffered += size
        if timestamp is None:
            timestamp = time.time_ns() // 1_000_000
        delivery = batch.append(key, value, headers, timestamp, size)
        if batch.size >= self._settings.batch_size:
            self._close_batch(topic_partition)
        return delivery

    async def flush(self) -> None:
        """Waits until all that was sent is acknowledged or has failed; raises the first failure since the last one."""
        self._flushing += 1
        self._wake.set()
        try:
            await self._idle.wait()
        finally:
            self._flushing -= 1
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raises the first failure since the last flush, if any: for those who send much and await nothing."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    async def require(self, topic: str) -> None:
        """Finds a topic before its first record is there; KafkaError where it does not exist."""
        await self._find_topic(topic)

    # Transactions

    async def begin(self) -> None:
        """Opens a transaction: what is sent from now on is read together, once it is committed, or never."""
        self._transactional().begin()

    async def send_offsets(self, offsets: Mapping[TopicPartition, int | CommittedOffset], member: GroupMember) -> None:
        """Commits a consumer's offsets with the transaction: `member` is `Consumer.member`, or names a group alone.

        CommitRefused where the consumer has lost its partitions meanwhile: abort.
        """
        committed = {tp: CommittedOffset(each) if isinstance(each, int) else each for tp, each in offsets.items()}
        await self._transactional().send_offsets(committed, member)

    async def commit(self) -> None:
        """Delivers what was sent, and commits it. After an error `abort`, but not after Fenced, which is the end."""
        transactions = self._transactional()
        transactions.require(State.OPEN)
        try:
            await self.flush()
        except (KafkaError, ClientError) as error:
            if transactions.state is State.FATAL:
                raise
            raise TransactionFailed(f"the transaction can only be aborted: {error}") from error
        await self._end(committed=True)

    async def abort(self) -> None:
        """Drops what was not sent yet, and aborts: nobody who reads committed records sees any of the transaction."""
        transactions = self._transactional()
        transactions.require(State.OPEN, State.BROKEN)
        self._aborting = True
        try:
            self._drop_unsent()
            await self._idle.wait()
        finally:
            self._aborting = False
        self._failure = None
        await self._end(committed=False)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """`async with producer.transaction():` commits at the end, aborts where an error comes out."""
        await self.begin()
        try:
            yield
            await self.commit()
        except BaseException:
            if self._transactional().state in (State.OPEN, State.BROKEN):
                # What went wrong is what the caller is to hear; an abort that fails shows at the next begin.
                with contextlib.suppress(KafkaError, ClientError):
                    await self.abort()
            raise

    def _transactional(self) -> Transactions:
        if self._transactions is None:
            raise ValueError("transactions need a transactional_id in the settings")
        return self._transactions

    async def _end(self, *, committed: bool) -> None:
        if await self._transactional().end(committed=committed):
            self._sequences.clear()

    def _drop_unsent(self) -> None:
        """Fails what waits behind the batches that are on their way."""
        for topic_partition in list(self._open):
            self._close_batch(topic_partition)
        for topic_partition, queue in self._queues.items():
            kept = queue.popleft() if queue and topic_partition in self._in_flight else None
            dropped = list(queue)
            queue.clear()
            for batch in dropped:
                queue.append(batch)
                self._finish(batch, TransactionFailed("the transaction was aborted before this record was sent"))
            if kept is not None:
                queue.append(kept)
                self._idle.clear()

    # Gathering

    async def _find_topic(self, topic: str) -> TopicView:
        operation = self._routing.require_topics(
            (topic,), self._routing.deadline(), create=self._settings.create_topics
        )
        return (await self._cluster.run(operation))[topic]

    def _choose(self, view: TopicView, key: bytes | None, value: bytes | None, size: int) -> int:
        target = self._target(view)
        partitioner, partitions = target.partitioner, target.partitions
        chosen = partitioner.partition(key, value, partitions)
        if not self._has_room(TopicPartition(view.name, chosen), size) and partitioner.new_batch(chosen, partitions):
            chosen = partitioner.partition(key, value, partitions)
        partitioner.appended(key, size, partitions)
        return chosen

    def _target(self, view: TopicView) -> _Target:
        target = self._targets.get(view.name)
        if target is None or target.view is not view:
            available = [partition.partition for partition in view.partitions.values() if partition.leader >= 0]
            partitioner = (
                self._make_partitioner(self._settings.batch_size, _draw) if target is None else target.partitioner
            )
            target = _Target(partitioner, view, Partitions(view.name, len(view.partitions), available))
            self._targets[view.name] = target
        return target

    def _has_room(self, topic_partition: TopicPartition, size: int) -> bool:
        """Whether a batch is open that takes so many bytes more."""
        batch = self._open.get(topic_partition)
        return batch is not None and batch.size + size <= self._settings.batch_size

    def _open_batch(self, topic_partition: TopicPartition) -> Batch:
        now = time.monotonic()
        batch = Batch(topic_partition, now + self._settings.linger_ms / 1000, now + self._settings.delivery_timeout_s)
        self._open[topic_partition] = batch
        self._idle.clear()
        self._wake.set()
        return batch

    def _close_batch(self, topic_partition: TopicPartition) -> None:
        batch = self._open.pop(topic_partition)
        self._queues.setdefault(topic_partition, deque()).append(batch)
        self._wake.set()

    # Sending

    async def _send_loop(self) -> None:
        while True:
            self._wake.clear()
            now = time.monotonic()
            for topic_partition, batch in list(self._open.items()):
                if self._flushing or batch.ready_at <= now or self._buffered >= self._settings.buffer_memory // 2:
                    self._close_batch(topic_partition)
            ready = {tp: queue[0] for tp, queue in self._queues.items() if queue and tp not in self._in_flight}
            if ready:
                self._dispatch(ready)
            timeout = min((batch.ready_at for batch in self._open.values()), default=now + 3600) - now
            try:
                async with asyncio.timeout(max(0.0, timeout)):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _dispatch(self, ready: dict[TopicPartition, Batch]) -> None:
        groups: dict[Any, list[Batch]] = {}
        for topic_partition, batch in ready.items():
            leader = self._routing.leader(topic_partition)
            groups.setdefault(leader.address if leader else None, []).append(batch)
            self._in_flight.add(topic_partition)
        for address, batches in groups.items():
            task = asyncio.create_task(self._deliver(address, batches))
            self._requests.add(task)
            task.add_done_callback(self._requests.discard)

    async def _deliver(self, address: Any, batches: list[Batch]) -> None:
        """One request to one leader (None: not known), and what follows from its answer."""
        retry: list[tuple[Batch, Exception]] = []
        try:
            if address is None:
                retry = [(batch, leaderless(batch)) for batch in batches]
            else:
                retry = await self._request(address, batches)
            for batch, _ in retry:
                batch.attempts += 1
            if retry:
                await self._prepare_retry(retry)
        except Exception as error:
            for batch in batches:
                if not batch.done.done():
                    self._finish(batch, error)
        finally:
            self._in_flight.difference_update(batch.topic_partition for batch in batches)
            self._wake.set()

    async def _request(self, address: Any, batches: list[Batch]) -> list[tuple[Batch, Exception]]:
        """Sends batches and finishes those with a final answer; gives back those to try again, with why."""
        by_partition = {batch.topic_partition: batch for batch in batches}
        transactions = self._transactions
        if transactions is not None:
            await transactions.add(by_partition)
        encoded: dict[TopicPartition, bytes | bytearray] = {}
        for topic_partition, batch in by_partition.items():
            if self._settings.idempotent and batch.base_sequence < 0:
                batch.base_sequence = self._sequences.get(topic_partition, 0)
                self._sequences[topic_partition] = (batch.base_sequence + len(batch.values)) % SEQUENCES
            encoded[topic_partition] = batch.encode(self._settings, *self._producer)
        timeout_s = self._routing.call_timeout_s
        request = produce_request(
            self._routing,
            encoded,
            acks=self._settings.acks,
            timeout_ms=int(timeout_s * 1000),
            transactional_id=self._settings.transactional_id,
        )
        if transactions is not None and not transactions.implicit:
            request = _explicit(request)
        outcome = await self._cluster.call(Call(address, request, timeout_s))
        if isinstance(outcome, (ConnectionFailed, RequestTimedOut)):
            if self._settings.acks == 0:
                raise outcome
            return [(batch, outcome) for batch in batches]
        if isinstance(outcome, ClientError):
            raise outcome
        retry: list[tuple[Batch, Exception]] = []
        for topic_partition, code, text, result in produced(outcome, self._routing, encoded):
            batch = by_partition.pop(topic_partition)
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._finish(batch, result)
            elif code.retriable:
                retry.append((batch, KafkaError(code, text or str(topic_partition))))
            else:
                self._finish(batch, refused(batch, code, text, result.record_errors))
        retry.extend((batch, leaderless(batch)) for batch in by_partition.values())
        return retry

    @property
    def _producer(self) -> tuple[int, int]:
        """The producer id and epoch that batches carry."""
        if self._transactions is not None:
            return self._transactions.producer_id, self._transactions.producer_epoch
        return self._producer_id, self._producer_epoch

    async def _prepare_retry(self, retry: list[tuple[Batch, Exception]]) -> None:
        """Waits, asks for the leaders again, and gives up on batches whose time is over or whose topic is gone."""
        attempts = max(batch.attempts for batch, _ in retry)
        left = min(batch.deadline for batch, _ in retry) - time.monotonic()
        await asyncio.sleep(min(self._routing.retry.pause_s(attempts, self._routing.draw), max(0.0, left)))
        topics = {batch.topic_partition.topic for batch, _ in retry}
        errors: dict[str, ErrorCode] = {}
        if left > 0:
            # Where nobody answers, the next round finds that out by itself.
            with contextlib.suppress(ClientError):
                errors = await self._cluster.run(self._routing.refresh(topics, self._routing.deadline(left)))
        for batch, error in retry:
            code = errors.get(batch.topic_partition.topic)
            gone = code is not None and (not code.retriable or batch.attempts > UNKNOWN_TOPIC_ATTEMPTS_MAX)
            if gone or self._aborting or time.monotonic() >= batch.deadline:
                self._finish(batch, error)

    def _finish(self, batch: Batch, result: ProducedBatch | Exception) -> None:
        queue = self._queues[batch.topic_partition]
        assert queue[0] is batch
        queue.popleft()
        self._buffered -= batch.size
        self._room.set()
        if isinstance(result, Exception):
            self._failure = self._failure or result
            if self._transactions is not None:
                self._transactions.batch_failed(result)
            batch.done.set_exception(result)
            batch.done.exception()  # Marks it as seen: flush tells of it if nobody awaits the delivery.
        else:
            batch.done.set_result(result)
        if not self._open and not any(self._queues.values()):
            self._idle.set()

    async def _take_producer_id(self) -> None:
        request = messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        deadline = self._routing.deadline()
        attempt = 0
        while True:
            response = await self._cluster.run(self._routing.ask_any(request, deadline))
            code = ErrorCode(response.error_code)
            if code is ErrorCode.NONE:
                self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch
                return
            attempt += 1
            if not code.retriable or not await self._cluster.run(self._routing.pause(attempt, deadline)):
                raise KafkaError(code, "the cluster gave no producer id")

    async def _stop(self) -> None:
        tasks = [task for task in (self._sender, *self._requests) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._transactions is not None:
            self._transactions.close()
        for queue in (*self._queues.values(), list(self._open.values())):
            for batch in queue:
                if not batch.done.done():
                    batch.done.cancel()


def _explicit(request: Any) -> ByVersion:
    """A produce request for partitions that were added to their transaction before."""
    return ByVersion(ApiKey.PRODUCE, lambda version: request, at_most=PRODUCE_EXPLICIT_MAX)


def _draw() -> int:
    return random.getrandbits(31)
