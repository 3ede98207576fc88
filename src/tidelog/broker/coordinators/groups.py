"""The coordinators of this broker's partitions of `__consumer_offsets`: loading, appending, answering.

    OffsetCommit --> GroupCoordinator.handle --> records --> append --> replay --> committed --> reply
                                                               '--> failed: forget the state, load it anew

A partition is loaded when this broker leads it, once for each leader epoch, in slices that are read on an I/O thread;
until then its groups are answered COORDINATOR_LOAD_IN_PROGRESS. A state is ahead of what is committed while an append
is under way, so that answers wait for the last append before them: what was told can never be taken back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, cast

from tidelog.broker.deferred import Deferred
from tidelog.controller.events import CreatedTopic, CreateTopics, NewTopic
from tidelog.coordinator.events import Event, ExpireOffsets, ForgetPartitions, GroupListing, ListGroups, Reply
from tidelog.coordinator.groups import GroupCoordinator
from tidelog.coordinator.partitions import partition_for
from tidelog.coordinator.records import MalformedRecord, OffsetRecord, decode, encode
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.model.topics import CONSUMER_OFFSETS_TOPIC
from tidelog.records.batch import Codec, Record, build_batch, iterate_headers, read_records
from tidelog.records.errors import InvalidBatch

if TYPE_CHECKING:
    from tidelog.broker.node import Node
    from tidelog.broker.replicas.replica_manager import Replica
    from tidelog.metadata.image import PartitionImage
    from tidelog.storage.log import AppendInfo

logger: Final = logging.getLogger(__name__)

_DEFAULT_REPLICATION_FACTOR: Final = 3
MINUTE_MS: Final = 60_000
SLICE_RECORDS_MAX: Final = 1000
"""Records that are replayed before the loop gets its turn: about 5 ms."""

# What a client of the coordinator is told when its append failed, by the append's error: as Kafka translates them.
_COMMIT_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}


class _Shard:
    """One partition of the topic while this broker leads it."""

    __slots__ = ("coordinator", "is_loaded", "last_append", "replica", "term")

    def __init__(self, replica: Replica, coordinator: GroupCoordinator) -> None:
        self.replica = replica
        self.term = replica.leader_epoch
        """The leader epoch for which it was loaded; under another one it is void."""
        self.coordinator = coordinator
        self.is_loaded = False
        self.last_append: Deferred[AppendInfo] | None = None
        """The youngest append that is not committed yet; appends commit in order."""

    @property
    def is_current(self) -> bool:
        replica = self.replica
        return replica.leader is not None and replica.leader_epoch == self.term and not replica.removed


class Groups:
    """The group coordinator of this broker."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._shards: dict[int, _Shard] = {}
        self._creation: Deferred[None] | None = None

    def start(self) -> None:
        """Begins to look for expired offsets, every offsets.retention.check.interval.ms."""
        self._node.shell.after(self._node.config.offsets_retention_check_interval_ms, self._expire)

    # Where a group is coordinated.

    def partition_of(self, group: str) -> int:
        """The partition of `__consumer_offsets` that keeps the group."""
        topic = self._node.metadata.image.topics.get(CONSUMER_OFFSETS_TOPIC)
        count = len(topic.partitions) if topic is not None else self._node.config.offsets_topic_num_partitions
        return partition_for(group, count)

    def partition_image(self, group: str) -> PartitionImage | None:
        """Who leads that partition, as far as this broker was told; None while the topic does not exist."""
        return self._node.metadata.image.partition(TopicPartition(CONSUMER_OFFSETS_TOPIC, self.partition_of(group)))

    def ensure_topic(self) -> Deferred[None]:
        """Creates `__consumer_offsets` when it does not exist yet; fails with KafkaError COORDINATOR_NOT_AVAILABLE."""
        if CONSUMER_OFFSETS_TOPIC in self._node.metadata.image.topics:
            return Deferred.of(None)
        if self._creation is None:
            creation = self._creation = self._create_topic()
            # Which may be done by now.
            creation.on_complete(self._creation_done)
            return creation
        return self._creation

    def _creation_done(self, _: Deferred[None]) -> None:
        self._creation = None

    def _create_topic(self) -> Deferred[None]:
        config = self._node.config
        factor = config.offsets_topic_replication_factor
        if not config.is_set("offsets.topic.replication.factor"):
            # The first group must not fail for want of two more brokers that nobody planned to start.
            factor = max(1, min(_DEFAULT_REPLICATION_FACTOR, len(self._node.metadata.image.brokers)))
        topic = NewTopic(
            CONSUMER_OFFSETS_TOPIC,
            partitions=config.offsets_topic_num_partitions,
            replication_factor=factor,
            configs=[
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("segment.bytes", str(config.offsets_topic_segment_bytes)),
            ],
        )

        def check(created: Sequence[CreatedTopic]) -> None:
            error = created[0].error
            if error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                logger.warning("offsets topic not created: error=%s reason=%s", error.name, created[0].message)
                raise KafkaError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    f"{CONSUMER_OFFSETS_TOPIC} could not be created: {created[0].message or error.name}",
                )

        return self._node.controller.submit(CreateTopics([topic])).then(check)

    # Asking a coordinator.

    def ask(self, group: str, event: Event) -> Deferred[Reply]:
        """The reply of the group's coordinator to `event`, once what it rests on is committed.

        Fails with KafkaError NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, or what became of the append:
        COORDINATOR_NOT_AVAILABLE, INVALID_COMMIT_OFFSET_SIZE, ...
        """
        answer: Deferred[Reply] = Deferred()
        try:
            shard = self._shard(self.partition_of(group))
        except KafkaError as error:
            answer.fail(error)
            return answer
        shard.coordinator.metadata_size_max = self._node.config.offset_metadata_max_bytes
        self._handle(shard, event, answer)
        return answer

    def list_groups(self) -> list[str]:
        """Groups of all coordinators here; KafkaError COORDINATOR_LOAD_IN_PROGRESS while one is loading."""
        groups: list[str] = []
        for partition in self._led_partitions():
            shard = self._shard(partition)
            result = shard.coordinator.handle(self._node.clock.monotonic_ms(), ListGroups(0))
            groups.extend(cast(GroupListing, result.replies[0][1]).groups)
        return sorted(groups)

    def partitions_deleted(self, partitions: Sequence[TopicPartition]) -> None:
        """Topics were deleted: what groups committed for their partitions goes."""
        others = [partition for partition in partitions if partition.topic != CONSUMER_OFFSETS_TOPIC]
        for shard in list(self._shards.values()) if others else ():
            if shard.is_loaded and shard.is_current:
                self._handle(shard, ForgetPartitions(others), None)

    def leadership_changed(self, partition: int) -> None:
        """This broker began or ceased to lead a partition of the topic: loads it ahead of the first question."""
        replica = self._node.replicas.get(TopicPartition(CONSUMER_OFFSETS_TOPIC, partition))
        if replica is None or replica.leader is None:
            self._shards.pop(partition, None)
        else:
            self._current_shard(partition, replica)

    # A shard's life.

    def _led_partitions(self) -> list[int]:
        return [
            replica.topic_partition.partition
            for replica in self._node.replicas.of_topic(CONSUMER_OFFSETS_TOPIC)
            if replica.leader is not None
        ]

    def _shard(self, partition: int) -> _Shard:
        """The loaded state of a partition that this broker leads; raises KafkaError."""
        replica = self._node.replicas.get(TopicPartition(CONSUMER_OFFSETS_TOPIC, partition))
        if replica is None or replica.leader is None:
            self._shards.pop(partition, None)
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "This broker does not coordinate that group.")
        shard = self._current_shard(partition, replica)
        if not shard.is_loaded:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The coordinator is loading its groups: try again."
            )
        return shard

    def _current_shard(self, partition: int, replica: Replica) -> _Shard:
        shard = self._shards.get(partition)
        if shard is None or shard.replica is not replica or not shard.is_current:
            coordinator = GroupCoordinator(metadata_size_max=self._node.config.offset_metadata_max_bytes)
            shard = self._shards[partition] = _Shard(replica, coordinator)
            _Loading(self._node, shard, self._abandon).step()
        return shard

    def _abandon(self, shard: _Shard) -> None:
        """The state is not to be trusted any more: the next question loads it anew."""
        partition = shard.replica.topic_partition.partition
        if self._shards.get(partition) is shard:
            del self._shards[partition]

    def _handle(self, shard: _Shard, event: Event, answer: Deferred[Reply] | None) -> None:
        result = shard.coordinator.handle(self._node.clock.monotonic_ms(), event)
        reply = result.replies[0][1] if result.replies else None
        if result.writes:
            shard.last_append = self._append(shard, result.writes)
        pending = shard.last_append
        if pending is None or (pending.done and not result.writes):
            if answer is not None and reply is not None:
                answer.complete(reply)
            return

        def committed(outcome: Deferred[AppendInfo]) -> None:
            if shard.last_append is outcome:
                shard.last_append = None
            try:
                outcome.result()
            except KafkaError as error:
                if answer is not None:
                    answer.fail(KafkaError(_COMMIT_ERRORS.get(error.code, error.code), error.message or ""))
            else:
                if answer is not None and reply is not None:
                    answer.complete(reply)

        pending.on_complete(committed)

    def _append(self, shard: _Shard, records: Sequence[OffsetRecord]) -> Deferred[AppendInfo]:
        """Appends one batch and replays it; when it is not committed, the state is abandoned."""
        config = self._node.config
        now_ms = self._node.clock.wall_ms()
        encoded = (encode(record) for record in records)
        batch = build_batch(
            [Record(index, now_ms, key, value, ()) for index, (key, value) in enumerate(encoded)],
            codec=Codec(config.offsets_topic_compression_codec),
        )
        tp = shard.replica.topic_partition
        outcome = self._node.replicas.append_and_wait(tp, bytearray(batch), config.offsets_commit_timeout_ms)
        if not outcome.done or _succeeded(outcome):
            for record in records:
                shard.coordinator.replay(record)

        def check(settled: Deferred[AppendInfo]) -> None:
            if not _succeeded(settled):
                self._abandon(shard)

        outcome.on_complete(check)
        return outcome

    def _expire(self) -> None:
        config = self._node.config
        event = ExpireOffsets(self._node.clock.wall_ms(), config.offsets_retention_minutes * MINUTE_MS)
        for partition in self._led_partitions():
            replica = self._node.replicas.get(TopicPartition(CONSUMER_OFFSETS_TOPIC, partition))
            if replica is None:
                continue
            shard = self._current_shard(partition, replica)
            if shard.is_loaded:
                self._handle(shard, event, None)
        self._node.shell.after(config.offsets_retention_check_interval_ms, self._expire)


class _Loading:
    """Reads a partition from its start to its end and replays it, a buffer at a time.

    What is there when the broker becomes leader is the group's history, committed or not: a leader's log is the truth.
    """

    def __init__(self, node: Node, shard: _Shard, abandon: Callable[[_Shard], None]) -> None:
        self._node = node
        self._shard = shard
        self._abandon = abandon
        log = shard.replica.log
        self._position: int = log.log_start_offset
        self._end: int = log.log_end_offset
        self._read_from = -1
        self._started_ms = node.clock.monotonic_ms()

    def step(self) -> None:
        """Reads the next slice, or ends."""
        shard = self._shard
        if not shard.is_current:
            return
        if self._position >= self._end or self._position == self._read_from:
            # No step forward: a compacted log may end in a gap.
            shard.is_loaded = True
            logger.info(
                "groups loaded: partition=%s offsets=%d ms=%d",
                shard.replica.topic_partition,
                len(shard.coordinator),
                self._node.clock.monotonic_ms() - self._started_ms,
            )
            return
        log, position, end = shard.replica.log, self._position, self._end
        size = self._node.config.offsets_load_buffer_size
        self._read_from = position

        def read() -> bytes:
            found = log.read(position, size, up_to_offset=end)
            try:
                return b"".join(part.read() for part in found.ranges)
            finally:
                for part in found.ranges:
                    part.release()

        self._node.shell.in_pool(read).on_complete(self._replay)

    def _replay(self, done: Deferred[bytes]) -> None:
        try:
            data = done.result()
        except (OSError, KafkaError) as error:
            logger.error("groups not loaded: partition=%s error=%s", self._shard.replica.topic_partition, error)
            self._abandon(self._shard)
            return
        self._replay_slice(memoryview(data), 0)

    def _replay_slice(self, data: memoryview, position: int) -> None:
        """Replays up to SLICE_RECORDS_MAX records, then lets the loop turn."""
        replayed = 0
        for place, header in iterate_headers(data, position):
            if replayed >= SLICE_RECORDS_MAX:
                self._node.shell.soon(self._replay_slice, data, place)
                return
            if header.next_offset <= self._position:
                continue
            if not header.is_control:
                replayed += self._replay_batch(data, place)
            self._position = header.next_offset
        self._node.shell.soon(self.step)

    def _replay_batch(self, data: memoryview, position: int) -> int:
        where = self._shard.replica.topic_partition
        try:
            records: Iterable[Record] = read_records(data, position)
        except InvalidBatch as error:
            logger.error("group records skipped: partition=%s reason=%s", where, error)
            return 1
        count = 0
        for record in records:
            count += 1
            if record.offset < self._position:
                continue
            try:
                decoded = decode(record.key, record.value)
            except MalformedRecord as error:
                logger.error("group record skipped: partition=%s offset=%d reason=%s", where, record.offset, error)
                continue
            if decoded is not None:
                self._shard.coordinator.replay(decoded)
        return count


def _succeeded(outcome: Deferred[AppendInfo]) -> bool:
    try:
        outcome.result()
    except KafkaError:
        return False
    return True
