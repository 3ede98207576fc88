"""What coordinators write: gathered in batches, replayed, appended, and answered for when it is committed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from tidelog.broker.coordinators.shard import BATCH_OVERHEAD, Batch, Shard
from tidelog.broker.deferred import Deferred
from tidelog.coordinator.records import PreparedRecords
from tidelog.coordinator.state_machine import StateMachine
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol.errors import InvalidMessage
from tidelog.records.batch import Record, build_batch, wrap_records

if TYPE_CHECKING:
    from tidelog.broker.coordinators.internal_topic import InternalTopic
    from tidelog.broker.environment import BrokerEnvironment
    from tidelog.broker.replicas.replica_manager import ReplicaManager
    from tidelog.coordinator.result import Result
    from tidelog.storage.log import AppendInfo
    from tidelog.storage.verification import VerificationGuard

logger: Final = logging.getLogger(__name__)

M = TypeVar("M", bound=StateMachine)

_RECORD_OVERHEAD_MAX: Final = 31
"""Bytes of a record beside its key and value, at most."""

_APPEND_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""What a client of the coordinator is told when an append failed, by the append's error: as Kafka translates them."""


class Appends(Generic[M]):
    """The way of results into the partitions of one internal topic."""

    def __init__(
        self,
        environment: BrokerEnvironment,
        replicas: ReplicaManager,
        topic: InternalTopic,
        abandon: Callable[[Shard[M]], object],
    ) -> None:
        """`abandon(shard)` is called where the state has run ahead of a log that did not follow."""
        self._clock = environment.clock
        self._shell = environment.shell
        self._replicas = replicas
        self._topic = topic
        self._abandon = abandon
        self.on_committed: Callable[[Shard[M], Any], object] | None = None
        """Called with the result of each event once all that it rests on is committed, after its replies."""

    def write(
        self, shard: Shard[M], result: Result[Any, Any], event: Any, guard: VerificationGuard | None
    ) -> Batch | None:
        """Puts the writes into this turn's batch and replays them; None when they don't fit any, which is seen to."""
        first = result.writes[0]
        if type(first) is PreparedRecords:
            return self._write_prepared(shard, result, event, first)
        try:
            records = [write.encode() for write in result.writes]
        except InvalidMessage as error:
            logger.warning("not written: partition=%s reason=%s", shard.replica.topic_partition, error)
            self._refuse(shard, result, event, ErrorCode.UNKNOWN_SERVER_ERROR)
            return None
        size = sum(len(key) + len(value or b"") + _RECORD_OVERHEAD_MAX for key, value in records)
        limit = shard.replica.log.config.max_message_bytes
        if size + BATCH_OVERHEAD > limit:
            if type(event) in shard.machine.DIVISIBLE:
                return self._write_divided(shard, result, records, limit)
            self._refuse(shard, result, event, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
            return None
        producer = first.producer
        batch = shard.batch
        if batch is not None and (producer is not None or batch.size + size > limit):
            self._flush(shard, batch)
            batch = shard.batch
        if shard.closed:
            # What was written before in this turn has failed.
            return None
        if producer is not None:
            return self._write_in_transaction(shard, result, event, records, guard)
        if batch is None:
            batch = shard.batch = Batch()
            self._shell.soon(self._flush, shard, batch)
        batch.records.extend(records)
        batch.size += size
        for write in result.writes:
            shard.machine.replay(write)
        return batch

    def _write_prepared(
        self, shard: Shard[M], result: Result[Any, Any], event: Any, prepared: PreparedRecords
    ) -> Batch | None:
        """Appends what was encoded before, at once: ten thousand records are not gone through again."""
        if BATCH_OVERHEAD + prepared.size > shard.replica.log.config.max_message_bytes:
            self._refuse(shard, result, event, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
            return None
        if shard.batch is not None:
            self._flush(shard, shard.batch)
            if shard.closed:
                return None
        batch = Batch()
        shard.machine.replay(prepared)
        shard.appends.append(batch)
        now_ms = self._clock.wall_ms()
        data = wrap_records(prepared.body, prepared.count, timestamp=now_ms, codec=self._topic.codec)
        batch.outcome = self._append_data(shard, data, None)
        return batch

    def _write_divided(
        self, shard: Shard[M], result: Result[Any, Any], records: list[tuple[bytes, bytes | None]], limit: int
    ) -> Batch | None:
        """As many batches as it takes, appended at once; the answers rest on the last, which is committed last."""
        batch = shard.batch
        for write, (key, value) in zip(result.writes, records, strict=True):
            size = len(key) + len(value or b"") + _RECORD_OVERHEAD_MAX
            if batch is None or batch.size + size > limit:
                if batch is not None:
                    self._flush(shard, batch)
                    if shard.closed:
                        return None
                batch = shard.batch = Batch()
                self._shell.soon(self._flush, shard, batch)
            batch.records.append((key, value))
            batch.size += size
            shard.machine.replay(write)
        return batch

    def _write_in_transaction(
        self,
        shard: Shard[M],
        result: Result[Any, Any],
        event: Any,
        records: list[tuple[bytes, bytes | None]],
        guard: VerificationGuard | None,
    ) -> Batch | None:
        """Appends the writes as a batch of their own, at once: a marker could come before the end of the turn, and the
        log refuses what it is too late for. So they are replayed only when they are in the log.
        """
        batch = Batch()
        outcome = self._append(shard, records, result.writes[0].producer, guard)
        if outcome.done:
            try:
                outcome.result()
            except KafkaError as error:
                self._refuse(shard, result, event, error.code)
                return None
        for write in result.writes:
            shard.machine.replay(write)
        shard.appends.append(batch)
        batch.outcome = outcome
        return batch

    def _refuse(self, shard: Shard[M], result: Result[Any, Any], event: Any, error: ErrorCode) -> None:
        """What `event` wants to write cannot be."""
        answers = [shard.requests.pop(request_id, None) for request_id, _ in result.replies]
        if not shard.machine.too_large(event):
            self._abandon(shard)
        for answer in answers:
            if answer is not None:
                answer.fail(KafkaError(_APPEND_ERRORS.get(error, error)))

    def _flush(self, shard: Shard[M], batch: Batch) -> None:
        if shard.batch is not batch:
            return
        shard.batch = None
        shard.appends.append(batch)
        records, batch.records = batch.records, []
        outcome = self._append(shard, records, None, None)
        outcome.on_complete(lambda settled: self._settled(shard, batch, settled))

    def _append(
        self,
        shard: Shard[M],
        records: list[tuple[bytes, bytes | None]],
        producer: tuple[int, int] | None,
        guard: VerificationGuard | None,
    ) -> Deferred[AppendInfo]:
        now_ms = self._clock.wall_ms()
        producer_id, producer_epoch = producer or (-1, -1)
        data = build_batch(
            [Record(index, now_ms, key, value) for index, (key, value) in enumerate(records)],
            codec=self._topic.codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=producer is not None,
        )
        return self._append_data(shard, data, guard)

    def _append_data(self, shard: Shard[M], data: bytes, guard: VerificationGuard | None) -> Deferred[AppendInfo]:
        place, timeout_ms = shard.replica.topic_partition, self._topic.commit_timeout_ms
        return self._replicas.append_and_wait(place, bytearray(data), timeout_ms, guard=guard)

    def listen(self, shard: Shard[M], batch: Batch) -> None:
        """The answers that rest on `batch` are in it: now it may be settled."""
        if batch.outcome is not None:
            outcome, batch.outcome = batch.outcome, None
            outcome.on_complete(lambda settled: self._settled(shard, batch, settled))

    def _settled(self, shard: Shard[M], batch: Batch, outcome: Deferred[AppendInfo]) -> None:
        if shard.closed:
            return
        try:
            outcome.result()
        except KafkaError as error:
            logger.warning(
                "append failed, loading anew: partition=%s error=%s", shard.replica.topic_partition, error.code.name
            )
            # A client that is told may ask again at once, and must not find this state.
            replies, batch.replies = batch.replies, []
            self._abandon(shard)
            for answer, _ in replies:
                if not answer.done:
                    answer.fail(KafkaError(_APPEND_ERRORS.get(error.code, error.code), error.message or ""))
            return
        # Appends of a partition are committed in the order of its log, unless an answer to a client waits for one.
        shard.appends.remove(batch)
        for answer, reply in batch.replies:
            if not answer.done:
                answer.complete(reply)
        if self.on_committed is not None:
            for result in batch.results:
                self.on_committed(shard, result)
