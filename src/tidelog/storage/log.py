"""One partition's log: appended to at one end, read anywhere, cut at either end.

    log_start_offset <= flushed_offset, high_watermark <= log_end_offset
    |--------- segments, oldest first, the last one active -----------|

Appending happens in one thread, which owns the log. Reads and lookups may run beside it in another thread: they see the
segments as a list that is replaced, never changed. With `blocking=False` they raise `WouldBlock` when the bytes they
need are not in the page cache.

An OSError takes the log's whole directory offline, by way of the environment; from then on every call raises
KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

import errno
import logging
from bisect import bisect_right
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)
from tidelog.ports.disk import FileRange, replace_file
from tidelog.records.batch import BatchHeader
from tidelog.records.epochs import EpochCache
from tidelog.storage.append import (
    AppendInfo,
    Prepared,
    assign_offsets,
    client_batches,
    end_of_transaction,
    follower_batches,
    writable,
)
from tidelog.storage.errors import DirectoryOffline
from tidelog.storage.file_names import DELETED, LEADER_EPOCH_CHECKPOINT, SNAPSHOT, parse_segment_file, segment_file
from tidelog.storage.log_config import LONG_MAX, LogConfig
from tidelog.storage.producer_recovery import rebuild_producers
from tidelog.storage.producer_state import (
    AppendOrigin,
    ProducerState,
    ProducerUpdate,
    encode_snapshot,
)
from tidelog.storage.segment import Segment
from tidelog.storage.tasks import DiskTask, SimpleTask
from tidelog.storage.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.ports.clock import Clock
    from tidelog.ports.disk import Disk
    from tidelog.ports.random import Random
    from tidelog.storage.file_pool import FilePool

__all__ = ["AppendInfo", "AppendOrigin", "Log", "LogEnvironment", "ReadResult"]

logger = logging.getLogger(__name__)

_POSITIONS_KEPT: Final = 8
"""Places of recent batches remembered, so that readers at the end of the log need no index."""
_base_offset = attrgetter("base_offset")


class ReadResult(NamedTuple):
    """What a fetch gets."""

    ranges: list[FileRange]
    """To be released by whoever sends them; none when there is nothing to read."""
    size: int
    """Bytes in all."""
    first_batch_size: int = 0
    """Bytes of the first batch where more were asked for than it fits into; 0 where that was not looked up."""


EMPTY_READ: Final = ReadResult([], 0)


class LogOwner(Protocol):
    """What a log tells the directory that it lies in."""

    @property
    def path(self) -> str: ...

    @property
    def failure(self) -> str | None:
        """Why the directory is offline; None while it works."""
        ...

    def failed(self, error: OSError, what: str) -> None:
        """An operation failed: the directory goes offline."""
        ...

    def flush_wanted(self, log: Log) -> None:
        """The log rolled, or has `flush.messages` unflushed records."""
        ...

    def changed(self, log: Log) -> None:
        """The log has something to flush or to checkpoint; said once until it is clean again."""
        ...

    def delete_later(self, unlink: Callable[[], None], delay_ms: int) -> None:
        """Files have their `.deleted` name: `unlink` them after a while."""
        ...


@dataclass(frozen=True, slots=True)
class LogEnvironment:
    """What all logs of a broker share."""

    disk: Disk
    pool: FilePool
    clock: Clock
    random: Random | None
    """Draws the jitter of `segment.jitter.ms`; None for none."""
    producer_expiration_ms: int


class Log:
    """One partition's log. Create and load it through `LogManager`."""

    __slots__ = (
        "_epochs_writing",
        "_epochs_written",
        "_is_changed",
        "_jitter_ms",
        "_names",
        "_names_durable",
        "_positions",
        "_truncations",
        "_unflushed_since_ms",
        "config",
        "directory",
        "environment",
        "epochs",
        "flushed_offset",
        "high_watermark",
        "is_deleted",
        "log_end_offset",
        "log_start_offset",
        "owner",
        "producers",
        "segments",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId | None,
        directory: str,
        config: LogConfig,
        owner: LogOwner,
        environment: LogEnvironment,
        *,
        segments: list[Segment],
        log_start_offset: int = 0,
        log_end_offset: int = 0,
        flushed_offset: int = 0,
        epochs: EpochCache | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        """None for a log whose folder has no partition.metadata yet."""
        self.directory = directory
        """The partition's own folder."""
        self.config = config
        self.owner = owner
        self.environment = environment
        self.segments = segments
        """Oldest first, at least one; replaced, never changed."""
        self.log_start_offset = Offset(log_start_offset)
        self.log_end_offset = Offset(log_end_offset)
        self.flushed_offset = Offset(flushed_offset)
        """The recovery point: everything below survives a power cut."""
        self.high_watermark = Offset(log_start_offset)
        """As last told by `update_high_watermark`: what retention may reach."""
        self.epochs = EpochCache() if epochs is None else epochs
        self.producers = ProducerState(topic_partition)
        self.is_deleted = False
        self._epochs_writing = False
        self._epochs_written: bytes | None = None
        """Content of the checkpoint file as last written; None without one."""
        self._is_changed = False
        self._names = 0
        """Counts the segment files created; a flush makes durable their names, too."""
        self._names_durable = 0
        self._truncations = 0
        self._unflushed_since_ms: int | None = None
        self._positions: dict[int, int] | None = None
        """[offset] -> position in the active segment, of recent batches."""
        self._jitter_ms = self._draw_jitter()

    def __repr__(self) -> str:
        return f"Log({self.topic_partition}, {self.log_start_offset}..{self.log_end_offset}, {self.directory!r})"

    @property
    def active(self) -> Segment:
        """The segment that is appended to."""
        return self.segments[-1]

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    @property
    def is_offline(self) -> bool:
        """Whether its directory has failed."""
        return self.owner.failure is not None

    @property
    def last_stable_offset(self) -> Offset:
        """What committed reads stay below: the first open transaction, at most the high watermark."""
        unstable = self.producers.first_unstable_offset
        return self.high_watermark if unstable is None else Offset(min(unstable, self.high_watermark))

    def check_online(self) -> None:
        """`DirectoryOffline` (KAFKA_STORAGE_ERROR) when the log can serve no more."""
        failure = self.owner.failure
        if failure is not None:
            raise DirectoryOffline(self.owner.path, failure)
        if self.is_deleted:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.topic_partition} has been deleted")

    # Appending.

    def append(
        self,
        data: bytes | bytearray | memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> AppendInfo:
        """Appends what a producer sent to the leader; `now_ms` is wall time.

        Writable `data` is patched in place. Raises `KafkaError`, and then nothing was appended: MESSAGE_TOO_LARGE,
        RECORD_LIST_TOO_LARGE, CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, UNSUPPORTED_FOR_MESSAGE_FORMAT,
        OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, TRANSACTION_COORDINATOR_FENCED,
        KAFKA_STORAGE_ERROR.
        """
        self.check_online()
        buffer = writable(data)
        config = self.config
        batches = client_batches(buffer, self.topic_partition, config, now_ms=now_ms, origin=origin)
        if origin is AppendOrigin.CLIENT and self.producers.entries:
            for _, header in batches:
                if header.producer_id >= 0:
                    duplicate = self._duplicate(header)
                    if duplicate is not None:
                        return duplicate
        prepared = assign_offsets(
            buffer,
            batches,
            self.topic_partition,
            config,
            next_offset=self.log_end_offset,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
        )
        log_append_time = now_ms if config.message_timestamp_type else -1
        return self._write(prepared, origin, now_ms, log_append_time)

    def append_as_follower(self, data: bytes | bytearray | memoryview, *, now_ms: int | None = None) -> AppendInfo:
        """Appends what the leader sent, as it is; a batch cut short at the end is left out.

        `now_ms` is wall time, the clock's if None. `KafkaError` CORRUPT_MESSAGE or KAFKA_STORAGE_ERROR.
        """
        self.check_online()
        if now_ms is None:
            now_ms = self.environment.clock.wall_ms()
        prepared = follower_batches(data, self.topic_partition, next_offset=self.log_end_offset)
        if prepared is None:
            return AppendInfo(-1, self.log_end_offset - 1, -1, -1, self.log_start_offset, False, 0, 0)
        return self._write(prepared, AppendOrigin.REPLICATION, now_ms, -1)

    def _duplicate(self, header: BatchHeader) -> AppendInfo | None:
        entry = self.producers.entries.get(header.producer_id)
        found = entry.duplicate(header) if entry is not None else None
        if found is None:
            return None
        return AppendInfo(
            found.first_offset,
            found.last_offset,
            found.timestamp,
            found.timestamp,
            self.log_start_offset,
            True,
            found.offset_delta + 1,
            0,
        )

    def _write(self, prepared: Prepared, origin: AppendOrigin, now_ms: int, log_append_time_ms: int) -> AppendInfo:
        data, batches, max_timestamp = prepared
        first_offset = batches[0][1].base_offset
        last_offset = batches[-1][1].last_offset
        update: ProducerUpdate | None = None
        records_count = 0
        for position, header in batches:
            records_count += header.records_count
            if header.producer_id >= 0:
                if update is None:
                    update = ProducerUpdate()
                marker = end_of_transaction(data, position, header) if header.is_control else None
                self.producers.prepare(update, header, origin, marker)
        size = len(data)
        segment = self.segments[-1]
        try:
            rolled = segment.should_roll(self.config, self._jitter_ms, size, max_timestamp, last_offset, now_ms)
            if rolled:
                segment = self._roll(first_offset, now_ms)
            for _, header in batches:
                if header.partition_leader_epoch != self.epochs.latest:
                    self._assign_epoch(header.partition_leader_epoch, header.base_offset)
            start = segment.size
            try:
                segment.append(data, batches)
            except OSError:
                self._cut_torn(segment, start)
                raise
            self.log_end_offset = Offset(last_offset + 1)
            if update is not None:
                self._commit_producers(update, segment)
        except OSError as error:
            raise self.fail(error, f"appending to {self.topic_partition}") from error
        positions = self._positions
        if positions is None:
            positions = self._positions = {}
        elif len(positions) >= _POSITIONS_KEPT:
            del positions[next(iter(positions))]
        positions[first_offset] = start
        if self._unflushed_since_ms is None:
            self._unflushed_since_ms = now_ms
        if not self._is_changed:
            self._mark_changed()
        if last_offset + 1 - self.flushed_offset >= self.config.flush_messages:
            self.owner.flush_wanted(self)
        return AppendInfo(
            first_offset,
            last_offset,
            max_timestamp,
            log_append_time_ms,
            self.log_start_offset,
            False,
            records_count,
            size,
            rolled,
        )

    def _cut_torn(self, segment: Segment, size: int) -> None:
        """Takes back a write that failed half-way, best effort: recovery would cut it as well."""
        try:
            with segment.log_file as file:
                if file.size() > size and not self.config.preallocate:
                    file.truncate(size)
        except OSError as error:
            logger.warning("torn_write_left path=%s size=%d error=%s", segment.log_file.path, size, error)

    def _commit_producers(self, update: ProducerUpdate, segment: Segment) -> None:
        for transaction, stable_offset in self.producers.commit(update):
            if transaction.is_aborted:
                segment.transaction_index.append(
                    AbortedTransaction(
                        transaction.producer_id, transaction.first_offset, transaction.last_offset, stable_offset
                    )
                )

    def _assign_epoch(self, epoch: int, start_offset: int) -> None:
        if epoch >= 0 and self.epochs.assign(LeaderEpoch(epoch), Offset(start_offset)):
            self._mark_changed()

    def assign_epoch(self, epoch: int) -> None:
        """Notes that a leader of `epoch` starts at the log's end; made durable with the next flush or checkpoint."""
        self.check_online()
        self._assign_epoch(epoch, self.log_end_offset)

    # Rolling.

    def roll_if_due(self, now_ms: int) -> bool:
        """Begins a new segment when the active one has batches and is past `segment.ms` by the clock; true if it
        did."""
        self.check_online()
        segment = self.active
        try:
            if segment.size == 0 or segment.waited_ms(now_ms, now_ms) <= self.config.roll_ms - self._jitter_ms:
                return False
            self._roll(self.log_end_offset, now_ms)
        except OSError as error:
            raise self.fail(error, f"rolling {self.topic_partition}") from error
        return True

    def roll(self, now_ms: int) -> None:
        """Begins a new segment at the log's end, unless the active one is empty."""
        self.check_online()
        if self.active.size == 0:
            return
        try:
            self._roll(self.log_end_offset, now_ms)
        except OSError as error:
            raise self.fail(error, f"rolling {self.topic_partition}") from error

    def _roll(self, first_offset: int, now_ms: int) -> Segment:
        old = self.active
        base_offset = max(first_offset, self.log_end_offset)
        if base_offset == old.base_offset:
            # The active segment is empty, yet its index is full: the setting leaves no room for a single entry.
            old.rebuild_indexes()
            return old
        old.become_inactive()
        new = Segment.create(self.environment.pool, self.directory, base_offset, self.config, now_ms=now_ms)
        self._names += 1
        self.segments = [*self.segments, new]
        self._positions = None
        self._jitter_ms = self._draw_jitter()
        self.producers.map_end_offset = base_offset
        self.take_snapshot()
        self._mark_changed()
        self.owner.flush_wanted(self)
        return new

    def _draw_jitter(self) -> int:
        bound = min(self.config.segment_jitter_ms, self.config.segment_ms)
        random = self.environment.random
        return random.below(bound) if random is not None and bound > 0 else 0

    # Reading.

    def read(
        self, offset: int, max_bytes: int, *, up_to_offset: int, min_one_batch: bool = True, blocking: bool = True
    ) -> ReadResult:
        """The bytes of the batches from the one that holds `offset` (it may begin before) to below `up_to_offset`.

        At most `max_bytes`, which may cut the last batch short as Kafka's fetches do; but the first batch is
        whole (`min_one_batch`), or nothing is given. From one segment at a time. `KafkaError` OFFSET_OUT_OF_RANGE;
        `WouldBlock` with `blocking=False`.
        """
        self.check_online()
        if offset < self.log_start_offset or offset > self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Received request for offset {offset} for partition {self.topic_partition}, but we only have"
                f" log segments from offset {self.log_start_offset} to {self.log_end_offset}.",
            )
        if offset >= up_to_offset:
            return EMPTY_READ
        segments = self.segments
        try:
            index = self._floor_index(segments, offset)
            while index < len(segments):
                segment = segments[index]
                position = self._position(segment, offset, blocking=blocking)
                if position is not None:
                    break
                index += 1  # Compaction has left a gap at the end of that segment.
            else:
                return EMPTY_READ
            following = segments[index + 1] if index + 1 < len(segments) else None
            end = segment.size
            if up_to_offset < (self.log_end_offset if following is None else following.base_offset):
                found = self._position(segment, up_to_offset, blocking=blocking)
                end = segment.size if found is None else found
            return self._range(segment, position, end, max_bytes, min_one_batch=min_one_batch, blocking=blocking)
        except OSError as error:
            raise self.fail(error, f"reading {self.topic_partition}") from error

    def _range(
        self, segment: Segment, position: int, end: int, max_bytes: int, *, min_one_batch: bool, blocking: bool
    ) -> ReadResult:
        size = end - position
        if size <= 0:
            return EMPTY_READ
        first = 0
        if size > max_bytes:
            header = segment.header_at(position, blocking=blocking)
            first = size if header is None else min(header.size, size)
            if first > max_bytes and not min_one_batch:
                return ReadResult([], 0, first)
            size = max(max_bytes, first)
        pooled = segment.log_file
        with pooled as file:
            return ReadResult([FileRange(file, position, size, pooled)], size, first)

    def _floor_index(self, segments: list[Segment], offset: int) -> int:
        """Index of the segment in which `offset` lies, or would."""
        if offset >= segments[-1].base_offset:
            return len(segments) - 1
        return max(bisect_right(segments, offset, key=_base_offset) - 1, 0)

    def _position(self, segment: Segment, offset: int, *, blocking: bool) -> int | None:
        """Where the batch begins that holds `offset` or is the first after it; None past the end of the segment."""
        positions = self._positions
        if positions is not None and segment is self.segments[-1]:
            position = positions.get(offset)
            if position is not None:
                return position
        found = segment.find(offset, blocking=blocking)
        return None if found is None else found.position

    def offset_for_timestamp(
        self, timestamp: int, *, up_to_offset: int, blocking: bool = True
    ) -> tuple[int, Offset, LeaderEpoch] | None:
        """Timestamp, offset and leader epoch of the first record that is as late as `timestamp`; None if there is none.

        Also answers ListOffsets' special timestamps: latest, which is `up_to_offset`; earliest; the greatest timestamp.
        Records at `up_to_offset` and later are not found. Reads from disk: `WouldBlock` with `blocking=False`.
        """
        self.check_online()
        if timestamp == LATEST_TIMESTAMP:
            return -1, Offset(up_to_offset), self.epochs.latest
        if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            earliest = self.epochs.earliest_entry
            known = earliest is not None and earliest.start_offset <= self.log_start_offset
            return -1, self.log_start_offset, earliest.epoch if known and earliest is not None else LeaderEpoch(-1)
        if timestamp == MAX_TIMESTAMP:
            return self.max_timestamp_offset(up_to_offset=up_to_offset, blocking=blocking)
        try:
            for segment in self.segments:
                if segment.max_timestamp_so_far(blocking=blocking).timestamp >= timestamp:
                    found = segment.find_timestamp(timestamp, self.log_start_offset, blocking=blocking)
                    if found is not None:
                        return _below(found, up_to_offset)
        except OSError as error:
            raise self.fail(error, f"reading {self.topic_partition}") from error
        return None

    def max_timestamp_offset(
        self, *, up_to_offset: int, blocking: bool = True
    ) -> tuple[int, Offset, LeaderEpoch] | None:
        """The first record of the batch that has the greatest timestamp, as `offset_for_timestamp` gives it
        (KIP-734)."""
        self.check_online()
        try:
            latest: Segment | None = None
            greatest = -1
            for segment in self.segments:
                timestamp = segment.max_timestamp_so_far(blocking=blocking).timestamp
                if timestamp > greatest:
                    latest, greatest = segment, timestamp
            found = None if latest is None else latest.find_max_timestamp(blocking=blocking)
        except OSError as error:
            raise self.fail(error, f"reading {self.topic_partition}") from error
        return None if found is None else _below(found, up_to_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[LeaderEpoch, Offset]:
        """The largest known epoch not above `epoch`, and where it ends (OffsetForLeaderEpoch); (-1, -1) if unknown."""
        self.check_online()
        return self.epochs.end_offset_for(LeaderEpoch(epoch), self.log_end_offset)

    def aborted_transactions(
        self, start_offset: int, end_offset: int, *, ended_from: int | None = None
    ) -> list[AbortedTransaction]:
        """The aborted transactions with records in start_offset .. end_offset - 1: what a committed read leaves out.

        One whose marker lies before `start_offset` is not among them: a reader drops a producer's records until it
        meets the marker. `ended_from` sets another bound for the markers.
        """
        self.check_online()
        bound = start_offset if ended_from is None else ended_from
        segments = self.segments
        found: list[AbortedTransaction] = []
        try:
            for segment in segments[self._floor_index(segments, start_offset) :]:
                entries, complete = segment.transaction_index.collect(bound, end_offset)
                found += entries
                if complete:
                    break
        except OSError as error:
            raise self.fail(error, f"reading {self.topic_partition}") from error
        return found

    # The two ends.

    def update_high_watermark(self, offset: int) -> None:
        """What all replicas in sync have: retention stays below it, transactions that ended below it are stable."""
        self.high_watermark = Offset(offset)
        self.producers.replicated_to(offset)

    def advance_start(self, offset: int) -> bool:
        """Makes `offset` the first to be read (DeleteRecords, retention); true if that changed something.

        `KafkaError` OFFSET_OUT_OF_RANGE above the high watermark.
        """
        self.check_online()
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Cannot increment the log start offset to {offset} of partition {self.topic_partition} since"
                f" it is larger than the high watermark {self.high_watermark}",
            )
        if offset <= self.log_start_offset:
            return False
        self._set_start(offset)
        return True

    def _set_start(self, offset: int) -> None:
        self.log_start_offset = Offset(offset)
        self.epochs.truncate_from_start(Offset(offset))
        self.producers.replicated_to(offset)
        self._mark_changed()

    def truncate_to(self, offset: int) -> bool:
        """Removes `offset` and what follows; true if records went. The recovery point and the high watermark follow."""
        self.check_online()
        if offset < 0:
            raise ValueError(f"cannot truncate {self.topic_partition} to a negative offset: {offset}")
        if offset >= self.log_end_offset:
            if self.epochs.truncate_from_end(self.log_end_offset):
                self._mark_changed()
            return False
        if self.segments[0].base_offset > offset:
            self.truncate_fully(offset)
            return True
        now_ms = self.environment.clock.wall_ms()
        self.producers.map_end_offset = self.log_end_offset
        try:
            kept = [segment for segment in self.segments if segment.base_offset <= offset]
            removed = self.segments[len(kept) :]
            self.segments = kept
            self.discard(removed)
            kept[-1].truncate_to(offset, now_ms)
            self._ends_at(offset)
            self.log_start_offset = Offset(min(self.log_start_offset, offset))
            rebuild_producers(self, now_ms)
        except OSError as error:
            raise self.fail(error, f"truncating {self.topic_partition}") from error
        return True

    def truncate_fully(self, offset: int, *, log_start_offset: int | None = None) -> None:
        """Removes everything; the log goes on at `offset`, where the leader's log begins."""
        self.check_online()
        now_ms = self.environment.clock.wall_ms()
        try:
            removed = self.segments
            for segment in removed:
                segment.release_files()
                segment.unlink()  # At once: the new segment may have an old one's name.
            self.segments = [Segment.create(self.environment.pool, self.directory, offset, self.config, now_ms=now_ms)]
            self._names += 1
            for name in self._snapshot_names():
                self.environment.disk.unlink(f"{self.directory}/{name}")
            self.log_start_offset = Offset(offset if log_start_offset is None else log_start_offset)
            self.epochs.clear()
            self._ends_at(offset)
            self.flushed_offset = Offset(offset)
            self.producers.clear(offset)
            self.producers.snapshot_offset = offset
        except OSError as error:
            raise self.fail(error, f"truncating {self.topic_partition}") from error

    def _ends_at(self, offset: int) -> None:
        self.log_end_offset = Offset(offset)
        self.epochs.truncate_from_end(Offset(offset))
        self._positions = None
        self._truncations += 1
        self.flushed_offset = Offset(min(self.flushed_offset, offset))
        self.high_watermark = Offset(min(self.high_watermark, offset))
        self._mark_changed()

    # Retention.

    def delete_old_segments(self, now_ms: int) -> int:
        """Retention: by start offset, and for `cleanup.policy=delete` by size and time; gives the segments removed.

        Never past the high watermark. Files take their `.deleted` name now and go after `file.delete.delay.ms`.
        """
        self.check_online()
        try:
            count = self._delete_from_start(lambda segment, following: following <= self.log_start_offset)
            if self.config.deleted:
                count += self._delete_by_size()
                retention_ms = self.config.retention_ms
                if retention_ms >= 0:
                    count += self._delete_from_start(
                        lambda segment, _: now_ms - segment.largest_timestamp() > retention_ms
                    )
        except OSError as error:
            raise self.fail(error, f"deleting old segments of {self.topic_partition}") from error
        return count

    def _delete_by_size(self) -> int:
        if self.config.retention_bytes < 0:
            return 0
        excess = self.size - self.config.retention_bytes

        def is_excess(segment: Segment, _: int) -> bool:
            nonlocal excess
            if excess < segment.size:
                return False
            excess -= segment.size
            return True

        return self._delete_from_start(is_excess) if excess > 0 else 0

    def _delete_from_start(self, condition: Callable[[Segment, int], bool]) -> int:
        """Deletes the oldest segments for which `condition(segment, offset after it)` holds; gives how many."""
        segments = self.segments
        count = 0
        for index, segment in enumerate(segments):
            is_last = index + 1 == len(segments)
            following = self.log_end_offset if is_last else segments[index + 1].base_offset
            if self.high_watermark < following or (is_last and segment.size == 0) or not condition(segment, following):
                break
            count += 1
        if count == 0:
            return 0
        if count == len(segments):
            self._roll(self.log_end_offset, self.environment.clock.wall_ms())
        removed, self.segments = self.segments[:count], self.segments[count:]
        self.discard(removed)
        if self.segments[0].base_offset > self.log_start_offset:
            self._set_start(self.segments[0].base_offset)
        return count

    def discard(self, removed: list[Segment]) -> None:
        """Renames files of segments, and of their snapshots, to `.deleted`, and has them removed later."""
        for segment in removed:
            segment.rename(DELETED)
            self.owner.delete_later(segment.unlink, self.config.file_delete_delay_ms)
            self._discard_snapshot(segment.base_offset)

    def _discard_snapshot(self, offset: int) -> None:
        disk, path = self.environment.disk, self.snapshot_path(offset)
        if not disk.exists(path):
            return
        renamed = path + DELETED
        disk.rename(path, renamed)

        def unlink() -> None:
            if disk.exists(renamed):
                disk.unlink(renamed)

        self.owner.delete_later(unlink, self.config.file_delete_delay_ms)

    # Producer state on disk.

    def snapshot_path(self, offset: int) -> str:
        return f"{self.directory}/{segment_file(offset, SNAPSHOT)}"

    def take_snapshot(self) -> bool:
        """Writes the producers' state as of `producers.map_end_offset`, unless there is such a snapshot already.

        True if it did; nothing is synced.
        """
        producers = self.producers
        if producers.map_end_offset <= producers.snapshot_offset:
            return False
        file = self.environment.disk.open(self.snapshot_path(producers.map_end_offset), create=True)
        try:
            content = encode_snapshot(producers.entries.values())
            file.pwrite(content, 0)
            if file.size() != len(content):
                file.truncate(len(content))
        finally:
            file.close()
        producers.snapshot_offset = producers.map_end_offset
        return True

    def _snapshot_names(self) -> list[str]:
        names = self.environment.disk.list(self.directory)
        parsed = [(name, parse_segment_file(name)) for name in names]
        return [name for name, found in parsed if found is not None and found[1:] == (SNAPSHOT, "")]

    def snapshot_offsets(self) -> list[int]:
        """Offsets of the snapshot files, ascending."""
        return [int(name.partition(".")[0]) for name in self._snapshot_names()]

    # Durability.

    @property
    def flush_age_ms(self) -> int | None:
        """Wall time of the oldest append that is not flushed; None when all is."""
        return self._unflushed_since_ms

    @property
    def is_clean(self) -> bool:
        """Whether nothing waits to be flushed."""
        return self.flushed_offset >= self.log_end_offset and not self.epochs_dirty

    @property
    def epochs_dirty(self) -> bool:
        """Whether the epochs differ from their checkpoint file."""
        return self._epochs_text() != self._epochs_written

    def _mark_changed(self) -> None:
        if not self._is_changed:
            self._is_changed = True
            self.owner.changed(self)

    def settled(self) -> None:
        """The owner has taken note of the change: the next one is to be said again."""
        self._is_changed = False

    def flush_task(self, up_to_offset: int | None = None) -> DiskTask | None:
        """Makes everything below `up_to_offset` (None: the log's end) durable; then `flushed_offset` follows.

        None when that is so already. Several flushes of one log may be under way.
        """
        self.check_online()
        target = self.log_end_offset if up_to_offset is None else min(up_to_offset, self.log_end_offset)
        write_epochs = self.epochs_dirty and not self._epochs_writing
        if target <= self.flushed_offset and not write_epochs:
            return None
        segments = self.segments
        first = self._floor_index(segments, self.flushed_offset)
        dirty = [segment for segment in segments[first:] if segment.base_offset < target or segment is segments[-1]]
        try:
            for segment in dirty:
                segment.write_indexes()
        except OSError as error:
            raise self.fail(error, f"flushing {self.topic_partition}") from error
        active = segments[-1]
        epochs = self._epochs_text() if write_epochs else None
        snapshot = self.snapshot_path(active.base_offset) if len(dirty) > 1 else None
        self._epochs_writing = self._epochs_writing or write_epochs
        self._unflushed_since_ms = None
        truncations = self._truncations
        names = self._names
        sync_names = names != self._names_durable
        disk, directory = self.environment.disk, self.directory

        def run() -> None:
            if epochs is not None:
                replace_file(disk, f"{directory}/{LEADER_EPOCH_CHECKPOINT}", epochs)
            if snapshot is not None and disk.exists(snapshot):
                file = disk.open(snapshot)
                try:
                    file.fsync()
                finally:
                    file.close()
            for segment in dirty:
                if segment.base_offset < target:
                    segment.fsync(indexes=segment is not active)
            if sync_names:
                disk.fsync_directory(directory)

        def finish(error: OSError | None) -> None:
            if epochs is not None:
                self._epochs_writing = False
            if error is not None:
                if not self.is_deleted:
                    self.fail(error, f"flushing {self.topic_partition}")
                return
            if epochs is not None:
                self._epochs_written = epochs
            self._names_durable = max(names, self._names_durable)
            if truncations == self._truncations:
                self.flushed_offset = Offset(max(self.flushed_offset, target))
            if self.flushed_offset < self.log_end_offset:
                if self._unflushed_since_ms is None:
                    self._unflushed_since_ms = self.environment.clock.wall_ms()
                if self.log_end_offset - self.flushed_offset >= self.config.flush_messages:
                    self.owner.flush_wanted(self)

        return SimpleTask(f"flush {self.topic_partition} to {target}", run, finish)

    def _epochs_text(self) -> bytes | None:
        """Content of the checkpoint file; None for a log that needs none yet."""
        if self._epochs_written is None and self.epochs.latest_entry is None:
            return None
        return self.epochs.to_checkpoint_text().encode()

    def loaded(self, log_end_offset: int, flushed_offset: int, epochs_file: bytes | None) -> None:
        """The loader has found where the log ends, up to where it is known to be durable, and an epoch checkpoint."""
        self._epochs_written = epochs_file
        self._names += 1  # A process that was killed may have left files whose names are in memory only.
        self.log_end_offset = Offset(log_end_offset)
        self.flushed_offset = Offset(flushed_offset)
        if log_end_offset - flushed_offset >= self.config.flush_messages:
            self.owner.flush_wanted(self)  # What recovery kept is not served before it is flushed, either.

    def set_config(self, config: LogConfig) -> None:
        """Takes new settings; they hold from the next append, roll, flush or retention on."""
        self.config = config
        for segment in self.segments:
            segment.config = config
        if config.flush_messages != LONG_MAX and self.log_end_offset - self.flushed_offset >= config.flush_messages:
            self.owner.flush_wanted(self)

    def close(self) -> bool:
        """Finishes every file, as a clean stop must; true if any has changed and is to be synced (`sync_files`).

        OSError if the disk refuses.
        """
        self.producers.map_end_offset = self.log_end_offset
        changed = self.flushed_offset < self.log_end_offset
        changed = self.take_snapshot() or changed
        epochs = self._epochs_text()
        if epochs is not None and epochs != self._epochs_written:
            replace_file(self.environment.disk, f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}", epochs)
            self._epochs_written = epochs
        for segment in self.segments:
            changed = segment.close() or changed
        return changed

    def sync_files(self) -> None:
        """Makes what `close` left durable, file by file."""
        segments = self.segments
        for segment in segments[self._floor_index(segments, self.flushed_offset) :]:
            segment.fsync(indexes=True)
            segment.release_files()
        disk, snapshot = self.environment.disk, self.snapshot_path(self.log_end_offset)
        if disk.exists(snapshot):
            file = disk.open(snapshot)
            try:
                file.fsync()
            finally:
                file.close()
        disk.fsync_directory(self.directory)

    def release_files(self) -> None:
        """Closes descriptors, of a log whose directory has failed or that is being deleted."""
        for segment in self.segments:
            segment.release_files()

    def moved(self, directory: str) -> None:
        """Its folder was renamed."""
        self.directory = directory
        for segment in self.segments:
            segment.moved(directory)

    def fail(self, error: OSError, what: str) -> KafkaError:
        """Takes the directory offline, unless the error is not the disk's; gives what to raise."""
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            return KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{what}: {error.strerror}; raise the limit on open files (ulimit -n)"
            )
        self.owner.failed(error, what)
        return DirectoryOffline(self.owner.path, f"{what}: {error}")


def _below(found: tuple[int, int, int], up_to_offset: int) -> tuple[int, Offset, LeaderEpoch] | None:
    timestamp, offset, epoch = found
    return (timestamp, Offset(offset), LeaderEpoch(epoch)) if offset < up_to_offset else None
