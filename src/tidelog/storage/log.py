"""One partition's log: appended to at one end, read anywhere, cut at either end.

    log_start_offset <= flushed_offset, high_watermark <= log_end_offset
    |--------- segments, oldest first, the last one active -----------|

A `Log` is where a partition's state changes: it decides what is appended, when a segment is begun and what is cut, and
turns an OSError into the end of its log directory. How the parts do their work is theirs:

    append              checks what a producer or the leader sent     readable_log  what may be asked of a log
    producer_state      idempotent and transactional producers        retention     which segments may go
    producer_recovery   their snapshots, and the way back from them   flushing      what survives a power cut
    truncation          cutting at the end, in three steps            durable_log   when it is flushed, and closed
    disk_errors         which errors end the directory

All of this happens in one thread, which owns the log. What may be asked beside it, in another thread, is `ReadableLog`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import LeaderEpoch, Offset, TopicId
from tidelog.records.batch import iterate_headers, restore
from tidelog.records.epochs import EpochCache
from tidelog.storage.append import (
    POSITIONS_KEPT,
    AppendInfo,
    Prepared,
    assign_offsets,
    client_batches,
    end_of_transaction,
    follower_batches,
    writable,
)
from tidelog.storage.damage import remove_damage
from tidelog.storage.durable_log import DurableLog
from tidelog.storage.log_config import LONG_MAX, LogConfig
from tidelog.storage.log_reader import ReadResult
from tidelog.storage.offset_index import RELATIVE_OFFSET_MAX
from tidelog.storage.ordinary import append_followed, append_ordinary
from tidelog.storage.producer_recovery import take_snapshot_soon, write_pending
from tidelog.storage.producer_state import AppendOrigin, ProducerUpdate
from tidelog.storage.retention import discard, expired_count
from tidelog.storage.segment import Segment
from tidelog.storage.segment_order import floor_index
from tidelog.storage.tasks import SimpleTask

if TYPE_CHECKING:
    from tidelog.metadata.replica_marks import ReplicaDamage
    from tidelog.records.batch import BatchHeader
    from tidelog.storage.log_folder import LogFolder
    from tidelog.storage.producer_snapshots import PendingSnapshot
    from tidelog.storage.tasks import DiskTask
    from tidelog.storage.verification import VerificationGuard

__all__ = ["AppendInfo", "AppendOrigin", "Log", "ReadResult"]

logger = logging.getLogger(__name__)


class Log(DurableLog):
    """One partition's log. Create and load it through `LogManager`."""

    __slots__ = ("_jitter_ms", "append_rules", "damage")

    def __init__(
        self,
        folder: LogFolder,
        topic_id: TopicId | None,
        config: LogConfig,
        *,
        segments: list[Segment],
        log_start_offset: int = 0,
        epochs: EpochCache | None = None,
    ) -> None:
        super().__init__(folder, topic_id, config, segments=segments, log_start_offset=log_start_offset, epochs=epochs)
        self.damage: ReplicaDamage | None = None
        """What recovery found lost, as long as the replica is not whole again."""
        self._jitter_ms = self._draw_jitter()
        self.append_rules: object = None
        """What the compiled append has drawn from the settings; None before the first."""

    def loaded(self, log_end_offset: int, flushed_offset: int, epochs_file: bytes | None, *, clean: bool) -> None:
        """The loader has found where the log ends, up to where it is known to be durable, and an epoch checkpoint.

        `clean`: the last owner has made all of it durable when it stopped.
        """
        self.log_end_offset = Offset(log_end_offset)
        self.epochs.truncate_from_end(self.log_end_offset)
        self.epochs.truncate_from_start(self.log_start_offset)
        self.durability.loaded(flushed_offset, epochs_file, clean=clean)
        if flushed_offset < log_end_offset:
            self.durability.unflushed_since_ms = self.folder.environment.clock.monotonic_ms()
        if not self.is_clean:
            self.mark_changed()
        self._flush_if_due()  # What recovery kept is not served before it is flushed, either.

    def set_config(self, config: LogConfig) -> None:
        """Takes new settings; they hold from the next append, roll, flush or retention on."""
        self.config = config
        for segment in self.segments:
            segment.config = config
        if config.flush_messages != LONG_MAX:
            self._flush_if_due()
        if config.flush_ms != LONG_MAX and self.unflushed_since_ms is not None:
            self._unflushed_since(self.unflushed_since_ms)

    def settled(self) -> None:
        """The owner has taken note of the change: the next one is to be said again."""
        self._is_changed = False

    # Appending.

    def append(
        self,
        data: bytes | bytearray | memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Appends what a producer sent to the leader; `now_ms` is wall time.

        Transactional batches are refused unless `guard` still holds, of `producers.begin_verification`; None does
        not ask for that. `transaction_version` is that of the markers in `data`.

        Writable `data` is patched in place. Raises `KafkaError`, and then nothing was appended, and `data` is what it
        was, since a refused request may be judged again: MESSAGE_TOO_LARGE,
        RECORD_LIST_TOO_LARGE, CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, UNSUPPORTED_FOR_MESSAGE_FORMAT,
        OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, TRANSACTION_COORDINATOR_FENCED,
        KAFKA_STORAGE_ERROR.
        """
        self.folder.check_online()
        buffer = writable(data)
        if append_ordinary is not None and origin is AppendOrigin.CLIENT and guard is None:
            info = append_ordinary(self, buffer, 0, len(buffer), leader_epoch, now_ms)
            if info is not None:
                return info
        config = self.config
        batches, timestamps = client_batches(buffer, self.topic_partition, config, now_ms=now_ms, origin=origin)
        if origin is AppendOrigin.CLIENT and self.producers.entries:
            for _, header in batches:
                if header.producer_id >= 0:
                    duplicate = self._duplicate(header)
                    if duplicate is not None:
                        return duplicate
        try:
            prepared = assign_offsets(
                buffer,
                batches,
                timestamps,
                self.topic_partition,
                config,
                next_offset=self.log_end_offset,
                leader_epoch=leader_epoch,
                now_ms=now_ms,
            )
            log_append_time = now_ms if config.message_timestamp_type else -1
            return self._write(prepared, origin, now_ms, log_append_time, guard, transaction_version)
        except KafkaError:
            for position, header in batches:
                restore(buffer, position, header)
            raise

    def append_as_follower(
        self, data: bytes | bytearray | memoryview, *, leader_epoch: int | None = None, now_ms: int | None = None
    ) -> AppendInfo:
        """Appends what the leader of `leader_epoch` sent, as it is; a batch cut short at the end is left out.

        `now_ms` is wall time, the clock's if None. `KafkaError` CORRUPT_MESSAGE for what no leader can have written:
        a checksum that fails, offsets that go back, an epoch that goes back or is
        the leader's own future; KAFKA_STORAGE_ERROR. Nothing was appended then.
        """
        self.folder.check_online()
        if now_ms is None:
            now_ms = self.folder.environment.clock.wall_ms()
        if append_followed is not None and leader_epoch is not None:
            info = append_followed(self, data, leader_epoch, now_ms)
            if info is not None:
                return info
        self.catch_up_producers(now_ms)
        start, end = self.log_start_offset, self.log_end_offset
        next_offset: int = end
        if start == end:
            # The leader's log may begin inside a batch (DeleteRecords): the follower's has to, too.
            first = next(iterate_headers(data), None)
            if first is not None and first[1].base_offset < end <= first[1].last_offset:
                next_offset = first[1].base_offset
        prepared = follower_batches(
            data,
            self.topic_partition,
            next_offset=next_offset,
            latest_epoch=self.epochs.latest,
            leader_epoch=leader_epoch,
        )
        if prepared is None:
            return AppendInfo(-1, end - 1, -1, -1, start, False, 0, 0)
        if next_offset < end:
            self.truncate_fully(next_offset, log_start_offset=start, keeps_producers=True)
        try:
            return self._write(prepared, AppendOrigin.REPLICATION, now_ms, -1)
        except KafkaError:
            if next_offset < end and not self.is_offline:
                self.truncate_fully(start, keeps_producers=True)
            raise

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

    def _write(
        self,
        prepared: Prepared,
        origin: AppendOrigin,
        now_ms: int,
        log_append_time_ms: int,
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Producers' state is judged before the bytes are written, and changes after."""
        data, batches, max_timestamp = prepared
        first_offset = batches[0][1].base_offset
        last_offset = batches[-1][1].last_offset
        update = self._judge_producers(data, batches, origin, guard, transaction_version)
        size = len(data)
        segment = self.segments[-1]
        try:
            rolled = segment.should_roll(self.config, self._jitter_ms, size, max_timestamp, last_offset, now_ms)
            if rolled:
                # At the log's end, though the leader's compaction may have left a gap behind it: a gap between the
                # files would look like what a power cut leaves.
                is_far = last_offset - self.log_end_offset > RELATIVE_OFFSET_MAX
                segment = self._roll(first_offset if is_far else self.log_end_offset, now_ms)
            start = segment.size
            self._write_batches(segment, data, batches, update)
        except OSError as error:
            raise self.folder.fail(error, "appending to") from error
        latest: int = self.epochs.latest
        for _, header in batches:
            if header.partition_leader_epoch != latest:
                self._assign_epoch(header.partition_leader_epoch, header.base_offset)
                latest = header.partition_leader_epoch
        self.log_end_offset = Offset(last_offset + 1)
        if update is not None:
            self._commit_producers(update)
        self._remember_position(first_offset, start)
        durability = self.durability
        if durability.unflushed_since_ms is None:
            self._unflushed_since(self.folder.environment.clock.monotonic_ms())
        if not self._is_changed:
            self.mark_changed()
        if last_offset + 1 - durability.flushed_offset >= self.config.flush_messages:
            self.folder.owner.flush_wanted(self.topic_partition)
        return AppendInfo(
            first_offset,
            last_offset,
            max_timestamp,
            log_append_time_ms,
            self.log_start_offset,
            False,
            sum(header.records_count for _, header in batches),
            size,
            rolled,
        )

    def _judge_producers(
        self,
        data: bytes | bytearray | memoryview,
        batches: list[tuple[int, BatchHeader]],
        origin: AppendOrigin,
        guard: VerificationGuard | None,
        transaction_version: int,
    ) -> ProducerUpdate | None:
        """What the batches come to for their producers, none of it in force yet; None without any. KafkaError."""
        update: ProducerUpdate | None = None
        for position, header in batches:
            if header.producer_id >= 0:
                if update is None:
                    update = ProducerUpdate()
                if guard is not None and header.is_transactional and not header.is_control:
                    self.producers.check_verified(header, guard)
                marker = end_of_transaction(data, position, header) if header.is_control else None
                self.producers.prepare(update, header, origin, marker, transaction_version=transaction_version)
        if update is not None and origin is AppendOrigin.CLIENT and self.folder.environment.producer_limit.is_full:
            self._check_known(update)
        return update

    def _commit_producers(self, update: ProducerUpdate) -> None:
        limit = self.folder.environment.producer_limit
        seen_ms, known = limit.now_ms(), len(self.producers.entries)
        for entry in update.entries.values():
            entry.seen_ms = seen_ms
        self.producers.commit(update)
        if len(self.producers.entries) != known:
            limit.added(len(self.producers.entries) - known)

    def _remember_position(self, offset: int, position: int) -> None:
        positions = self._positions
        if positions is None:
            positions = self._positions = {}
        elif len(positions) >= POSITIONS_KEPT:
            del positions[next(iter(positions))]
        positions[offset] = position

    def _write_batches(
        self,
        segment: Segment,
        data: bytes | bytearray | memoryview,
        batches: list[tuple[int, BatchHeader]],
        update: ProducerUpdate | None,
    ) -> None:
        """Writes batches and the entries of the transactions that they abort, all or nothing. OSError: nothing."""
        aborted = [] if update is None or not update.completed else self.producers.aborted_by(update)
        if not aborted:
            segment.append(data, batches)
            return
        # First: without its entry, a marker would show readers of committed records what it has aborted.
        index = segment.transaction_index
        size: int | None = None
        try:
            for entry in aborted:
                before = index.append(entry)
                size = before if size is None else size
            segment.append(data, batches)
        except OSError:
            if size is not None:
                index.end_at(size)
            self.folder.finish(index.cut)
            raise

    def _check_known(self, update: ProducerUpdate) -> None:
        """`KafkaError` KAFKA_STORAGE_ERROR for producers that are new, where too many are known: they try again."""
        if not update.entries.keys() <= self.producers.entries.keys():
            limit = self.folder.environment.producer_limit
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"this broker remembers {limit.count} producers, and can take no new one (producer.ids.max)",
            )

    def assign_epoch(self, epoch: int) -> None:
        """Notes that a leader of `epoch` starts at the log's end; made durable with the next flush or checkpoint."""
        self.folder.check_online()
        self.catch_up_producers(self.folder.environment.clock.wall_ms())
        self._assign_epoch(epoch, self.log_end_offset)

    def _assign_epoch(self, epoch: int, start_offset: int) -> None:
        if epoch >= 0 and self.epochs.assign(LeaderEpoch(epoch), Offset(start_offset)):
            self.mark_changed()

    # Rolling.

    def roll(self, now_ms: int) -> None:
        """Begins a new segment at the log's end, unless the active one is empty."""
        self.folder.check_online()
        if self.active.size == 0:
            return
        try:
            self._roll(self.log_end_offset, now_ms)
        except OSError as error:
            raise self.folder.fail(error, "rolling") from error

    def _roll(self, first_offset: int, now_ms: int) -> Segment:
        self.catch_up_producers(now_ms)
        self.folder.finish_steps()
        self._sync_cut()
        old = self.active
        base_offset = max(first_offset, self.log_end_offset)
        if base_offset == old.base_offset:
            # The active segment is empty, yet its index is full: the setting leaves no room for a single entry.
            old.rebuild_indexes()
            return old
        # Neither finished indexes nor a snapshot do harm to a log that goes on in its old segment.
        old.become_inactive()
        take_snapshot_soon(self.folder, self.producers, base_offset)
        new = self.create_segment(base_offset, now_ms)
        self.durability.rolled(old)
        self.segments = [*self.segments, new]
        self._positions = None
        self._jitter_ms = self._draw_jitter()
        self.producers.map_end_offset = base_offset
        if self.producers.pending_snapshot is not None:
            self.folder.environment.snapshots[self.folder] = self.snapshot_task
        self.mark_changed()
        self.folder.owner.flush_wanted(self.topic_partition)
        return new

    def _draw_jitter(self) -> int:
        bound = min(self.config.segment_jitter_ms, self.config.segment_ms)
        random = self.folder.environment.random
        return random.below(bound) if random is not None and bound > 0 else 0

    def snapshot_task(self) -> DiskTask:
        """Writes down the producers as they were at the last roll, where those are many."""
        state, pending = self.producers, self.producers.pending_snapshot

        def run() -> None:
            if pending is not None:
                pending.encode()

        def finish(error: OSError | None) -> None:
            # Truncations replace or clear the state, and what they cut off must not come back in a snapshot.
            if pending is None or error is not None or self.producers is not state or self.is_offline:
                return
            if state.pending_snapshot is pending and self.holds_segment(pending.offset):
                state.pending_snapshot = None
                self._write_snapshot(pending)
                # A flush may have come before it: one more makes it durable.
                self.durability.rolled(self.segments[floor_index(self.segments, pending.offset - 1)])
                self.folder.owner.flush_wanted(self.topic_partition)

        return SimpleTask(f"producers of {self.topic_partition}", run, finish)

    def _write_snapshot(self, pending: PendingSnapshot) -> None:
        try:
            write_pending(self.folder, self.producers, pending)
        except OSError as error:
            # The segments are all there: without it recovery reads more of them.
            logger.warning(
                "snapshot_not_written: log=%s offset=%d error=%s", self.topic_partition, pending.offset, error
            )

    def holds_segment(self, base_offset: int) -> bool:
        """Whether a segment begins at `base_offset`."""
        return any(segment.base_offset == base_offset for segment in reversed(self.segments))

    # The two ends.

    def update_high_watermark(self, offset: int) -> None:
        """What all replicas in sync have: retention stays below it, transactions that ended below it are stable."""
        self.high_watermark = Offset(offset)
        self.producers.replicated_to(offset)

    def begin_at_high_watermark(self, offset: int) -> None:
        """The log was loaded, and `offset` is how far it was known to be committed. `KafkaError` KAFKA_STORAGE_ERROR.

        Transactions whose markers lie above are not stable yet, which a snapshot from behind them does not tell.
        """
        self.update_high_watermark(offset)
        if self.producers_snapshot_max < self.log_end_offset:
            self.producers.is_behind = True
            self.catch_up_producers(self.folder.environment.clock.wall_ms())

    def announce_start(self, offset: int) -> None:
        """The log is to begin at `offset` soon: checkpoints say so from now on, readers see it by `advance_start`.

        So no reader has seen a first offset that a crash takes back. What is announced is below the high watermark.
        """
        self._announced_start = max(self._announced_start, Offset(offset))
        self.mark_changed()

    @property
    def kept_start(self) -> Offset:
        """The first offset as checkpoints are to have it: as it is, or as announced."""
        return max(self.log_start_offset, min(self._announced_start, self.high_watermark))

    @property
    def kept_high_watermark(self) -> Offset:
        """The high watermark as checkpoints are to have it: not above where the log is about to be cut."""
        cut = self.durability.cut_offset
        return self.high_watermark if cut is None else min(self.high_watermark, cut)

    def advance_start(self, offset: int) -> bool:
        """Makes `offset` the first to be read (DeleteRecords, retention); true if that changed something.

        `KafkaError` OFFSET_OUT_OF_RANGE above the high watermark.
        """
        self.folder.check_online()
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
        self.mark_changed()

    def delete_old_segments(self, now_ms: int) -> int:
        """Retention: by start offset, and for `cleanup.policy=delete` by size and time; gives the segments removed.

        Never past the high watermark. Files take their `.deleted` name now and go after `file.delete.delay.ms`.
        """
        self.folder.check_online()
        try:
            count = expired_count(
                self.segments,
                self.config,
                log_start_offset=self.log_start_offset,
                log_end_offset=self.log_end_offset,
                high_watermark=self.high_watermark,
                now_ms=now_ms,
            )
            if count == 0:
                return 0
            if count == len(self.segments):
                self._roll(self.log_end_offset, now_ms)
            if not self.producers.is_empty:
                # When their batches are gone the snapshot alone tells of producers: the flush that a roll asks for
                # makes it durable first.
                count = sum(map(self.durability.is_closing_flushed, self.segments[:count]))
            self.folder.finish_steps()
            for segment in self.segments[:count]:
                # The oldest first, each for itself: the log is whole between any two.
                try:
                    discard(self.folder, segment, self.config.file_delete_delay_ms)
                finally:
                    if segment.is_removed:
                        self._begins_after(segment)
        except OSError as error:
            raise self.folder.fail(error, "deleting old segments of") from error
        return count

    def _begins_after(self, segment: Segment) -> None:
        """The first segment is gone."""
        self.segments = [each for each in self.segments if each is not segment]
        if self.segments[0].base_offset > self.log_start_offset:
            self._set_start(self.segments[0].base_offset)

    @property
    def is_gapless(self) -> bool:
        """Whether each segment ends where the next one begins: not where compaction was at work, or a hole is noted."""
        has_hole = self.damage is not None and self.damage.has_hole
        return not (self.config.compacted or self.cleaned_offset is not None or has_hole)

    def is_whole(self) -> None:
        """What was lost is there again, or nothing more is to be had. `KafkaError` KAFKA_STORAGE_ERROR."""
        if self.damage is not None:
            self.folder.check_online()
            try:
                remove_damage(self.folder.disk, self.folder.path)
            except OSError as error:
                raise self.folder.fail(error, "forgetting the damage of") from error
            self.damage = None
