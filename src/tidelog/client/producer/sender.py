"""Sends a producer's batches: which go together, what an answer means for each, when one is given up.

Each turn gathers what is ready, one batch of a partition and all of a leader's partitions in one request, with up to
`in_flight_max` requests on their way to each broker. Partitions fail and recover one by one: one without a leader
waits, the others go on. The order within a partition is `PartitionQueue`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

from tidelog.client.addresses import Address
from tidelog.client.cluster import Cluster
from tidelog.client.errors import (
    ClientError,
    ConnectionFailed,
    ProducerClosed,
    RequestTimedOut,
    TransactionFailed,
    refusal,
)
from tidelog.client.exchange import ByVersion
from tidelog.client.operations import Call, Purpose
from tidelog.client.producer.batches import NO_IDENTITY, Batch, Delivery, Identity, failed, leaderless, refused
from tidelog.client.producer.partition_queue import PartitionQueue
from tidelog.client.producer.settings import ProducerSettings
from tidelog.client.producer.topics_in_use import TopicsInUse
from tidelog.client.producer.transactions import TransactionManager
from tidelog.client.producing import Produced, ProducedBatch, names_by_id, produce_request, produced
from tidelog.client.transaction_versions import PRODUCE_EXPLICIT_MAX
from tidelog.client.views import partition_error, topic_error
from tidelog.model.errors import ErrorCode, KafkaError, error_code
from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicId, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

UNKNOWN_TOPIC_REFRESHES_MAX: Final = 5
"""After so many times that brokers said so in a row, a topic that they don't know is taken for deleted."""
DEPOSED_S_MAX: Final = 5.0
"""How long a leader is not believed that finds a batch out of sequence which may be in the log. It may have been
deposed without knowing, and lack what was acknowledged since; the present leader takes the batch, or knows it."""
REQUEST_BYTES_MAX: Final = 16 << 20
"""Bytes of batches in one request, where max_request_size is not less, but always one batch."""
BATCH_OVERHEAD_MAX: Final = 512
"""Bytes that a request takes for a batch beside its records: its header, and the names of topic and partition."""
EPOCH_MAX: Final = 2**15 - 1
IDLE_S_MAX: Final = 3600.0

_OUT_OF_SEQUENCE: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
"""What leaders say of a batch whose identity or sequence is not what they expect; nothing was appended then."""
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
"""A batch above max.message.bytes, or segment.bytes: its records may go one by one."""
_MAYBE_APPENDED: Final = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Retriable errors after which the batch may be in the log all the same. A leader that is deposed answers
NOT_LEADER_OR_FOLLOWER for what it has appended and not acknowledged."""


@dataclasses.dataclass(slots=True)
class ProducerStatistics:
    """What a producer has done so far; counts since it began, except the last two."""

    records_sent: int = 0
    records_acknowledged: int = 0
    records_failed: int = 0
    requests: int = 0
    batches_acknowledged: int = 0
    bytes_acknowledged: int = 0
    """Of batches as they were sent, compressed."""
    retries: int = 0
    """Batches that were sent again."""
    splits: int = 0
    epochs_begun: int = 0
    """Producer epochs begun after a failure."""
    bytes_waiting: int = 0
    requests_in_flight: int = 0


class Sender:
    """The partitions of one producer, and the loop that sends for them. `start` and `close` it."""

    def __init__(self, cluster: Cluster, settings: ProducerSettings, transactions: TransactionManager | None) -> None:
        self._cluster = cluster
        self._routing = cluster.routing
        self._settings = settings
        self._transactions = transactions
        self.statistics = ProducerStatistics()
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self._active: dict[TopicPartition, PartitionQueue] = {}
        """Those that are not empty."""
        self._identity = NO_IDENTITY
        self._renewing: asyncio.Task[None] | None = None
        self._in_flight: Counter[Address] = Counter()
        self._topics = TopicsInUse(cluster, settings.metadata_max_age_s, self._refreshed)
        self._unknown: Counter[str] = Counter()
        self._wake = asyncio.Event()
        self.room = asyncio.Event()
        """Set when bytes were freed."""
        self._idle = asyncio.Event()
        self._idle.set()
        self._hurried = 0
        """How many wait for what lingers."""
        self._aborting = False
        self.failure: Exception | None = None
        """The first since it was last taken."""
        self.started = False
        self.closed = False
        self._task: asyncio.Task[None] | None = None
        self._requests: set[asyncio.Task[None]] = set()
        self.on_turn: Callable[[], object] = lambda: None
        """Called after each turn: queues have become shorter."""

    async def start(self) -> None:
        """Takes a producer id where one is needed; KafkaError or ClientError where none is to be had."""
        if self._transactions is None and self._settings.idempotent:
            await self._take_identity()
        self.started = True
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """The loop ends by `close` only; after an error of its own no record may wait for ever."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.closed = True
            self._fail_all(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    async def close(self) -> None:
        """Ends; what is not acknowledged fails with ProducerClosed."""
        self.closed = True
        tasks = [task for task in (self._task, self._renewing, *self._requests) if task is not None]
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._topics.close()
        finally:  # Also for a caller that is cancelled here: other tasks wait for their records, and for room.
            self._fail_all(ProducerClosed("the producer was closed before this record was acknowledged"))

    def _fail_all(self, error: Exception) -> None:
        for queue in list(self._active.values()):
            queue.close()
            for batch in [*queue.in_flight, *queue.waiting]:
                self._give_up(queue, batch, error)
        self.room.set()

    # Gathering

    def queue(self, topic_partition: TopicPartition) -> PartitionQueue:
        """The partition's queue, made when first asked for."""
        queue = self.queues.get(topic_partition)
        if queue is None:
            is_idempotent = bool(self._settings.idempotent)
            in_flight_max = self._settings.in_flight_max if is_idempotent else 1
            queue = self.queues[topic_partition] = PartitionQueue(
                topic_partition, is_idempotent=is_idempotent, in_flight_max=in_flight_max
            )
            self._topics.used(topic_partition.topic)
        return queue

    def begin(self, queue: PartitionQueue) -> Batch:
        """Opens a batch."""
        now = time.monotonic()
        batch = queue.begin(now + self._settings.linger_ms / 1000, now + self._settings.delivery_timeout_s)
        self._active[queue.topic_partition] = queue
        self._idle.clear()
        self._wake.set()
        return batch

    def close_batch(self, queue: PartitionQueue) -> None:
        """Sends the open batch as soon as it may be."""
        queue.close()
        self._wake.set()

    def refuse(self, topic: str, size: int) -> Delivery:
        """Fails a record that is too large for a request, at once: others are not touched by it."""
        settings = self._settings
        text = f"a record of {size} bytes for topic '{topic}' is above the producer's max_request_size"
        error = KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{text}, {settings.max_request_size}").about(topic=topic)
        self.statistics.records_sent += 1
        self._note_failure(error, 1)
        if self._transactions is not None:
            self._transactions.break_off(error)
        return failed(topic, error)

    async def flush(self) -> None:
        """Waits until every record sent so far is acknowledged or has failed, whatever else is sent meanwhile."""
        waiting = {batch.done for queue in self._active.values() for batch in queue.all_batches}
        with self.without_linger():
            while waiting:
                done, _ = await asyncio.wait(waiting)
                ended = [each.result() for each in done if each.exception() is None]
                # A batch that was split has ended when its parts have.
                waiting = {part.done for parts in ended if isinstance(parts, tuple) for part in parts}

    async def drain(self) -> None:
        """Waits until there is no record that is not acknowledged and has not failed."""
        with self.without_linger():
            # A `send` that waited for room wakes in the same turn as this drain, and may queue another record first.
            while not self._idle.is_set():
                await self._idle.wait()

    @contextlib.contextmanager
    def without_linger(self) -> Iterator[None]:
        """Meanwhile nothing lingers."""
        self._hurried += 1
        self._wake.set()
        try:
            yield
        finally:
            self._hurried -= 1

    async def drop(self) -> None:
        """Fails what is not on its way, and waits for what is, which is not tried again."""
        self._aborting = True
        try:
            for queue in list(self._active.values()):
                queue.close()
                for batch in list(queue.waiting):
                    self._give_up(queue, batch, aborted())
            await self._idle.wait()
        finally:
            self._aborting = False

    def restart(self) -> None:
        """A transaction's end has changed the producer's epoch: sequences begin at 0 again."""
        for queue in self.queues.values():
            queue.restart()

    # The loop

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            now = time.monotonic()
            is_pressed = self.statistics.bytes_waiting >= self._settings.buffer_memory // 2
            for queue in list(self._active.values()):
                if queue.open is not None and (self._hurried or is_pressed or queue.open.ready_at <= now):
                    queue.close()
                for batch in queue.expired(now):
                    self._give_up(queue, batch, self._reason_of(queue))
            self._dispatch(now)
            self.on_turn()
            next_at = min(self._topics.refresh_old(), self._next_at(now))
            try:
                async with asyncio.timeout_at(asyncio.get_running_loop().time() + max(0.0, next_at - now)):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _next_at(self, now: float) -> float:
        """When something is due without being woken."""
        due = [now + IDLE_S_MAX]
        for queue in self._active.values():
            if queue.open is not None:
                due.append(queue.open.ready_at)
            if queue.waiting:
                due.append(min(batch.deadline for batch in queue.waiting))
                if queue.resume_at > now:
                    due.append(queue.resume_at)
        return min(due)

    def _dispatch(self, now: float) -> None:
        while groups := self._gather(now):
            for address, queues in groups.items():
                batches = [queue.take(self._renew) for queue in queues]
                self.statistics.requests += 1
                self.statistics.requests_in_flight += 1
                self._in_flight[address] += 1
                task = asyncio.create_task(self._deliver(address, batches))
                self._requests.add(task)
                task.add_done_callback(self._requests.discard)

    def _gather(self, now: float) -> dict[Address, list[PartitionQueue]]:
        """What is ready, by leader: one request for each that has room for another."""
        groups: dict[Address, list[PartitionQueue]] = {}
        sizes: Counter[Address] = Counter()
        bytes_max = min(REQUEST_BYTES_MAX, self._settings.max_request_size)
        for topic_partition, queue in self._active.items():
            if not queue.is_ready(now) or not self._may_take(queue):
                continue
            leader = self._routing.leader(topic_partition)
            if leader is None:
                queue.needs_leader = True
                self._topics.want(topic_partition.topic)
                continue
            if self._notice_replaced_topic(queue) and not (queue.is_ready(now) and self._may_take(queue)):
                continue
            address, size = leader.address, queue.waiting[0].size + BATCH_OVERHEAD_MAX
            if self._in_flight[address] >= self._settings.in_flight_max:
                continue
            if address in groups and sizes[address] + size > bytes_max:
                continue
            groups.setdefault(address, []).append(queue)
            sizes[address] += size
        return groups

    def _notice_replaced_topic(self, queue: PartitionQueue) -> bool:
        """Whether the topic was deleted and made again since batches were sent to the partition last."""
        topic_id = self._routing.topic_id(queue.topic_partition.topic)
        if topic_id in (queue.topic_id, ZERO_TOPIC_ID):
            return False
        former, queue.topic_id = queue.topic_id, topic_id
        if former == ZERO_TOPIC_ID:
            return False
        queue.topic_replaced(begins_epoch=self._transactions is None)
        return True

    def _may_take(self, queue: PartitionQueue) -> bool:
        if self._transactions is not None:
            # Until the first batch of a partition has an answer, the transaction may not know of the partition.
            return not queue.in_flight or self._transactions.includes(queue.topic_partition)
        if queue.needs_identity and queue.has_gap and self._identity.epoch >= EPOCH_MAX:
            if self._renewing is None or self._renewing.done():
                self._renewing = asyncio.create_task(self._take_new_identity())
            return False
        return True

    def _renew(self, former: Identity) -> Identity:
        if self._transactions is not None:
            return Identity(self._transactions.producer_id, self._transactions.producer_epoch)
        if former == self._identity:
            # As Kafka's client: an idempotent producer raises its epoch by itself (KIP-360).
            self._identity = Identity(former.producer_id, former.epoch + 1)
            self.statistics.epochs_begun += 1
        return self._identity

    async def _take_identity(self) -> None:
        request = messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        deadline = self._routing.deadline()
        attempt = 0
        while True:
            response = await self._cluster.run(self._routing.ask_any(request, deadline))
            code = error_code(response.error_code)
            if code is ErrorCode.NONE:
                self._identity = Identity(response.producer_id, response.producer_epoch)
                return
            attempt += 1
            if not code.retriable or not await self._cluster.run(self._routing.pause(attempt, deadline)):
                raise refusal(code, "the cluster gave no producer id")

    async def _take_new_identity(self) -> None:
        """The epochs of the producer id are used up; batches that wait for this fail at their own deadline."""
        with contextlib.suppress(KafkaError, ClientError):
            await self._take_identity()
        self._wake.set()

    # One request

    async def _deliver(self, address: Address, batches: list[Batch]) -> None:
        """One request to one leader, and what follows from its answer."""
        try:
            await self._request(address, batches)
        except Exception as error:
            for batch in batches:
                queue = self.queues[batch.topic_partition]
                if batch in queue.in_flight:
                    self._give_up(queue, batch, error)
        finally:
            self._in_flight[address] -= 1
            self.statistics.requests_in_flight -= 1
            self._wake.set()

    async def _request(self, address: Address, batches: list[Batch]) -> None:
        settings, transactions = self._settings, self._transactions
        if transactions is not None:
            await transactions.add(batch.topic_partition for batch in batches)
        encoded = {batch.topic_partition: batch.encode(settings) for batch in batches}
        left = max(batch.deadline for batch in batches) - time.monotonic()
        timeout_s = max(0.0, min(self._routing.call_timeout_s, left))
        request = produce_request(
            self._routing,
            encoded,
            acks=settings.acks,
            timeout_ms=int(timeout_s * 1000),
            transactional_id=settings.transactional_id,
        )
        is_explicit = transactions is not None and not transactions.implicit
        message = _explicit(request) if is_explicit else request
        if settings.acks == 0 and not self._cluster.is_connected(address, Purpose.PRODUCE):
            # Without answers brokers refuse by closing the connection: the partitions may be led elsewhere by now.
            self._want_leaders(batches)
        outcome = await self._cluster.call(Call(address, message, timeout_s, Purpose.PRODUCE))
        by_partition = {batch.topic_partition: batch for batch in batches}
        if isinstance(outcome, (ConnectionFailed, RequestTimedOut)):
            if settings.acks == 0:
                for batch in batches:
                    self.queues[batch.topic_partition].needs_leader = True
                self._want_leaders(batches)
                raise outcome
            for batch in batches:
                self._retry(batch, outcome, is_uncertain=True)
            return
        if isinstance(outcome, ClientError):
            raise outcome
        topic_ids = {topic.name: topic.topic_id for topic in request.topic_data}
        for answer in produced(outcome, names_by_id(request), encoded):
            batch = by_partition.pop(answer.topic_partition)
            self._answered(batch, answer, topic_ids[batch.topic_partition.topic])
        for batch in by_partition.values():
            self._retry(batch, leaderless(batch.topic_partition), is_uncertain=False)

    def _want_leaders(self, batches: list[Batch]) -> None:
        for batch in batches:
            self._topics.want(batch.topic_partition.topic)

    def _answered(self, batch: Batch, answer: Produced, topic_id: TopicId) -> None:
        queue, code = self.queues[batch.topic_partition], answer.code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._acknowledged(queue, batch, answer.result)
        elif code in _TOO_LARGE and batch.count > 1:
            self.statistics.splits += 1
            batch.done.set_result(queue.split(batch))
        elif code in _OUT_OF_SEQUENCE and queue.is_idempotent and self._again_in_sequence(queue, batch):
            self.statistics.retries += 1
        elif code.retriable or self._may_be_deposed(batch, code):
            error = partition_error(batch.topic_partition, code, answer.text)
            is_named = self._routing.take_leader(batch.topic_partition, topic_id, answer.leader)
            self._retry(batch, error, is_uncertain=code in _MAYBE_APPENDED, leader_is_known=is_named)
        else:
            self._give_up(queue, batch, refused(batch, answer))

    def _again_in_sequence(self, queue: PartitionQueue, batch: Batch) -> bool:
        if self._aborting:
            return False
        if self._transactions is not None and queue.is_first(batch):
            return False
        return queue.out_of_sequence(batch, 0.0)

    def _may_be_deposed(self, batch: Batch, code: ErrorCode) -> bool:
        """Whether an answer may come from a leader that is none any more: the batch is sent again, as it is."""
        if code not in _OUT_OF_SEQUENCE or not batch.is_uncertain or self._transactions is not None:
            return False
        now = time.monotonic()
        if batch.out_of_sequence_since is None:
            batch.out_of_sequence_since = now
        return now - batch.out_of_sequence_since < DEPOSED_S_MAX

    def _acknowledged(self, queue: PartitionQueue, batch: Batch, result: ProducedBatch) -> None:
        queue.acknowledged(batch)
        self._topics.well(batch.topic_partition.topic)
        self.statistics.records_acknowledged += batch.count
        self.statistics.batches_acknowledged += 1
        self.statistics.bytes_acknowledged += len(batch.data or b"")
        if not batch.done.done():
            batch.done.set_result(result)
        self._left(queue, batch)

    def _retry(self, batch: Batch, error: Exception, *, is_uncertain: bool, leader_is_known: bool = False) -> None:
        """Sends the batch again after a pause, when the leader has been asked for; unless its time is over.

        `leader_is_known`: the broker that refused the batch has named another leader, which is tried at once.
        """
        queue = self.queues[batch.topic_partition]
        now = time.monotonic()
        if self._aborting or now >= batch.deadline:
            self._give_up(queue, batch, error)
            return
        self.statistics.retries += 1
        queue.last_error = error
        if leader_is_known:
            queue.requeue(batch, now, is_uncertain=is_uncertain)
            return
        pause_s = self._routing.retry.pause_s(queue.attempts + 1, self._routing.draw)
        queue.requeue(batch, min(now + pause_s, batch.deadline), is_uncertain=is_uncertain)
        queue.needs_leader = True
        self._topics.want(batch.topic_partition.topic)

    def _give_up(self, queue: PartitionQueue, batch: Batch, error: Exception) -> None:
        queue.failed(batch)
        self._note_failure(error, batch.count)
        if self._transactions is not None:
            self._transactions.batch_failed(error)
        if not batch.done.done():
            batch.done.set_exception(error)
            batch.done.exception()  # Marks it as seen: flush tells of it if no delivery is awaited.
        self._left(queue, batch)

    def _note_failure(self, error: Exception, records: int) -> None:
        self.failure = self.failure or error
        self.statistics.records_failed += records

    def _left(self, queue: PartitionQueue, batch: Batch) -> None:
        """A batch is acknowledged or has failed."""
        self.statistics.bytes_waiting -= batch.size
        self.room.set()
        if queue.is_empty:
            self._active.pop(queue.topic_partition, None)
            if not self._active:
                self._idle.set()

    def _reason_of(self, queue: PartitionQueue) -> Exception:
        """Why batches of the partition wait for so long."""
        return queue.last_error or leaderless(queue.topic_partition)

    def _refreshed(self, topics: set[str], errors: dict[str, ErrorCode]) -> None:
        """Metadata was asked for: partitions of these topics try again; topics that are gone fail."""
        for topic in topics:
            code = errors.get(topic, ErrorCode.NONE)
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._unknown[topic] += 1
            else:
                del self._unknown[topic]
        for queue in self.queues.values():
            topic = queue.topic_partition.topic
            if topic not in topics:
                continue
            queue.needs_leader = False
            code = errors.get(topic, ErrorCode.NONE)
            gone = self._unknown[topic] > UNKNOWN_TOPIC_REFRESHES_MAX
            if gone or (code is not ErrorCode.NONE and not code.retriable):
                queue.close()
                is_deleted = code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                text = f"topic '{topic}' does not exist any more" if is_deleted else topic_error(topic, code).message
                for batch in list(queue.waiting):
                    self._give_up(queue, batch, partition_error(batch.topic_partition, code, text))
        self._wake.set()


def aborted() -> TransactionFailed:
    """Why records of a transaction that is aborted are not sent."""
    return TransactionFailed("the transaction was aborted before this record was sent")


def _explicit(request: Any) -> ByVersion:
    """A produce request for partitions that were added to their transaction before."""
    return ByVersion(ApiKey.PRODUCE, lambda version: request, at_most=PRODUCE_EXPLICIT_MAX)
