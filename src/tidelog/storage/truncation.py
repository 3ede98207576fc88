"""Cutting a log at its end, so that no crash leaves a hole in it.

A power cut may forget some of what a truncation does to files and keep the rest: a shorter segment and the one behind
it, say, which is a hole. So **a truncation has three steps**:

    announce   the recovery point goes down to the cut, in its checkpoint too: from there on recovery believes nothing
    cut        segments are removed, the one with the cut is made shorter; in any order, as far as a crash is concerned
    settle     the cut segment and the folder are synced; no flush ends before, and no segment is begun

A crash after the first step leaves a beginning of the old log, as recovery finds it from the cut on; a crash after the
last leaves the cut log and what was flushed behind it. Either way the leader's epochs tell what is to be cut again.

The producers' state goes back with the log: at once, or, where much is to be read for it, by the task that settles the
cut. The log catches up by itself where it needs the state earlier.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Final

from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import Offset
from tidelog.records.errors import InvalidBatch
from tidelog.storage.disk_errors import fails_alone
from tidelog.storage.file_names import DELETED, SEGMENT_SUFFIXES, segment_file
from tidelog.storage.flushing import Durability
from tidelog.storage.producer_recovery import (
    producers_at,
    remove_snapshots,
    snapshot_offsets,
    write_first_snapshot,
)
from tidelog.storage.readable_log import ReadableLog
from tidelog.storage.retention import discard
from tidelog.storage.rot import RottenBatch
from tidelog.storage.segment import Segment
from tidelog.storage.segment_order import floor_index

if TYPE_CHECKING:
    from tidelog.model.identifiers import TopicId
    from tidelog.records.epochs import EpochCache
    from tidelog.storage.log_config import LogConfig
    from tidelog.storage.log_folder import LogFolder
    from tidelog.storage.producer_state import ProducerState

logger = logging.getLogger(__name__)

REBUILT_AT_ONCE_MAX: Final = 4 << 20
"""Bytes behind a snapshot that a truncation reads at once to rebuild the producers' state: some milliseconds."""


class TruncatableLog(ReadableLog):
    """A log that can be cut at its end; `Log` is also appended to."""

    __slots__ = ("_announced_start", "_is_changed", "cleaned_offset", "durability")

    def __init__(
        self,
        folder: LogFolder,
        topic_id: TopicId | None,
        config: LogConfig,
        *,
        segments: list[Segment],
        log_start_offset: int,
        epochs: EpochCache | None,
    ) -> None:
        super().__init__(folder, topic_id, config, segments=segments, log_start_offset=log_start_offset, epochs=epochs)
        self.durability = Durability(folder, self.epochs, log_start_offset)
        self._announced_start = Offset(log_start_offset)
        """Where the log is to begin soon; never among records that came after those for which that was announced."""
        self.cleaned_offset: Offset | None = None
        """Compaction has been through everything below; None: never."""
        self._is_changed = False
        """Whether the owner knows that there is something to flush or to checkpoint."""

    def mark_changed(self) -> None:
        """Tells the owner, once, that there is something to flush or to checkpoint."""
        if not self._is_changed:
            self._is_changed = True
            self.folder.owner.changed(self.topic_partition)

    @property
    def truncation_is_pending(self) -> bool:
        """Whether a truncation was announced or has happened, and a task has still to make that durable."""
        return self.durability.truncation_is_pending

    @property
    def truncations(self) -> int:
        """Counts them: what was read before one may not be what the log holds after it."""
        return self.durability.truncations

    @property
    def times_emptied(self) -> int:
        """How often `truncate_fully` has removed everything."""
        return self.durability.times_emptied

    def truncation(self) -> Truncation:
        """What makes the last truncation durable."""
        return Truncation(self.durability, self.active)

    def _sync_cut(self) -> None:
        """Makes a cut durable before a segment comes behind the one that was cut: a power cut that kept the new one
        and undid the cut would leave batches that were cut off before newer ones. OSError if the disk refuses."""
        if self.durability.is_cut:
            self.truncation().run()
            self.durability.is_cut = False

    # What is asked for.

    def announce_truncation(self, offset: int) -> None:
        """The first step: once that is durable (`truncation_is_pending`) the log may be cut at `offset`.

        `truncate_to` without this is for what a crash may undo in part, as tests do.
        """
        self.folder.check_online()
        self.durability.truncation_announced(offset)
        self._forget_cleaned(offset)
        self.mark_changed()
        self.owner.truncated(self.topic_partition)

    def truncate_to(self, offset: int) -> bool:
        """Removes `offset` and what follows; true if records went. The recovery point and the high watermark follow."""
        self.folder.check_online()
        if offset < 0:
            raise ValueError(f"cannot truncate {self.topic_partition} to a negative offset: {offset}")
        if offset >= self.log_end_offset:
            self.begin_following()
            return False
        if self.segments[0].base_offset > offset:
            self.truncate_fully(offset)
            return True
        before = self.size
        try:
            self._cut(offset)
        except InvalidBatch as error:
            base_offset = self.segments[floor_index(self.segments, offset)].base_offset
            raise RottenBatch(self.found_rot(base_offset, offset, str(error)), offset) from error
        except OSError as error:
            raise self.folder.fail(error, "truncating") from error
        finally:
            self.folder.environment.counts.truncated_bytes += before - self.size
        return True

    def truncate_fully(
        self, offset: int, *, log_start_offset: int | None = None, keeps_producers: bool = False
    ) -> None:
        """Removes everything; the log goes on at `offset`, where the leader's log begins.

        With `keeps_producers`, of a log without records, it goes on knowing what it knows of producers.
        """
        self.folder.check_online()
        before = self.size
        start = offset if log_start_offset is None else log_start_offset
        try:
            self._begin_anew(offset, start, keeps_producers=keeps_producers)
        except OSError as error:
            raise self.folder.fail(error, "truncating") from error
        finally:
            self.folder.environment.counts.truncated_bytes += before - self.size

    def begin_following(self) -> None:
        """Forgets an epoch that began at the log's end: no record has it, and the next one may have an older epoch.

        `KafkaError` KAFKA_STORAGE_ERROR when the directory has failed.
        """
        self.folder.check_online()
        if self.epochs.truncate_from_end(self.log_end_offset):
            self.mark_changed()

    # The second step.

    def _cut(self, offset: int) -> None:
        """The second step: removes the batch that holds `offset`, which lies in the log, and what follows.

        From the end on, one change of a file after the other; the log is whole between any two of them. OSError if the
        disk refuses: what was removed before is removed.
        """
        now_ms = self.folder.environment.clock.wall_ms()
        self.folder.finish_steps()
        self._forget_snapshots(offset)
        before = self.log_end_offset
        try:
            while self.active.base_offset > offset:
                self._remove_last()
            segment = self.active
            found = segment.truncate_to(offset, now_ms)
            if found is not None:
                # A batch is whole or not there: what was asked for lay inside one.
                offset = min(offset, found.header.base_offset)
            self.log_start_offset = Offset(min(self.log_start_offset, offset))
            self._ends_at(offset)
            self.folder.finish(segment.transaction_index.cut)
        finally:
            if self.log_end_offset != before:
                self._cut_producers(now_ms)

    def _begin_anew(self, offset: int, log_start_offset: int, *, keeps_producers: bool) -> None:
        """The second step where nothing is kept: the log goes on at `offset`. OSError if the disk refuses.

        The segments go from the end on, and the first one when the new one is there; the log is whole between any two
        changes. Its first segment is made empty instead where the log begins anew at the same offset.
        """
        folder, now_ms = self.folder, self.folder.environment.clock.wall_ms()
        folder.finish_steps()
        entries = list(self.producers.entries.values()) if keeps_producers else []
        # There before the one of the former beginning goes.
        write_first_snapshot(folder, entries, offset)
        self._forget_snapshots(offset if entries else -1)
        before = self.log_end_offset
        try:
            while len(self.segments) > 1:
                self._remove_last()
            first = self.active
            if first.base_offset == offset:
                first.truncate_to(offset, now_ms)
                removed = None
            else:
                folder.finish_steps()  # The new segment may have a removed one's name.
                new = self.create_segment(offset, now_ms)
                removed, self.segments = first, [new]
        except BaseException:
            if self.log_end_offset != before:
                self._cut_producers(now_ms)
            raise
        self.log_start_offset = Offset(log_start_offset)
        self.epochs.clear()
        self._ends_at(offset)
        self.durability.flushed_offset = Offset(offset)
        self.durability.times_emptied += 1
        self.producers.load(entries, offset, now_ms, folder.environment.producer_expiration_ms)
        self.producers.snapshot_offset = offset
        if removed is None:
            folder.finish(first.transaction_index.cut)
        else:
            # It must not come back beside the new one.
            folder.finish(functools.partial(discard, folder, removed, self.config.file_delete_delay_ms))

    def _remove_last(self) -> None:
        """The log ends where its last segment began. OSError: nothing has changed, or the directory goes offline."""
        segment = self.active
        try:
            discard(self.folder, segment, self.config.file_delete_delay_ms)
        finally:
            if segment.is_removed:
                self.segments = self.segments[:-1]
                self.log_start_offset = Offset(min(self.log_start_offset, segment.base_offset))
                self._ends_at(segment.base_offset)

    def _forget_snapshots(self, end: int) -> None:
        """Removes what tells of producers behind `end`, before anything there is removed: then less is known, and
        nothing wrong. OSError."""
        try:
            remove_snapshots(self.folder, above=end)
        finally:
            if self.producers.snapshot_offset > end:
                # The newest one is gone. An older one may be left; the next is taken in any case, also at `end` itself.
                self.producers.snapshot_offset = -1

    def _ends_at(self, offset: int) -> None:
        self.log_end_offset = Offset(offset)
        self.high_watermark = Offset(max(min(self.high_watermark, offset), self.log_start_offset))
        self._announced_start = Offset(min(self._announced_start, offset))
        self.epochs.truncate_from_end(Offset(offset))
        self.forget_positions()
        self.durability.truncated_to(offset)
        self._forget_cleaned(offset)
        self.mark_changed()
        self.owner.truncated(self.topic_partition)

    def _forget_cleaned(self, offset: int) -> None:
        """What comes after `offset` was never cleaned."""
        if self.cleaned_offset is not None:
            self.cleaned_offset = Offset(min(self.cleaned_offset, offset))

    def forget_positions(self) -> None:
        """Batches went: what is appended from now on lies elsewhere."""
        self._positions = None

    def create_segment(self, base_offset: int, now_ms: int) -> Segment:
        """A new segment's files, all of them. OSError: none of them."""
        folder = self.folder
        try:
            pool, config = folder.environment.pool, self.config
            segment = Segment.create(pool, folder.path, base_offset, config, now_ms=now_ms, with_indexes=True)
        except OSError:
            for suffix in SEGMENT_SUFFIXES:
                folder.undo(segment_file(base_offset, suffix))
            raise
        self.durability.file_created()
        return segment

    # The producers, as of the end.

    def _cut_producers(self, now_ms: int) -> None:
        """Brings the producers' state back to the log's end, now or with the last step; where the disk refuses to tell,
        with the next append, which asks again."""
        end, producers = self.log_end_offset, self.producers
        if not producers.is_behind and producers.knows_nothing_from(end):
            producers.map_end_offset = end
            return
        producers.is_behind = True
        try:
            offsets = snapshot_offsets(self.folder)
        except OSError as error:
            if not fails_alone(error):
                raise
            logger.warning("producers_behind: log=%s error=%s", self.topic_partition, error)
            return
        producers.snapshot_offset = offsets[-1] if offsets else self.log_start_offset
        usable = [offset for offset in offsets if offset <= self.producers_snapshot_max]
        first = floor_index(self.segments, usable[-1]) if usable else 0
        if sum(segment.size for segment in self.segments[first:]) > REBUILT_AT_ONCE_MAX:
            return
        try:
            self.catch_up_producers(now_ms)
        except KafkaError as error:
            if self.is_offline:
                raise
            logger.warning("producers_behind: log=%s error=%s", self.topic_partition, error)

    def catch_up_producers(self, now_ms: int) -> None:
        """Rebuilds the producers' state if a truncation has left that to be done. `KafkaError` KAFKA_STORAGE_ERROR."""
        if self.producers.is_behind:
            try:
                self.producers_rebuilt(self.producers_at_end(now_ms))
            except OSError as error:
                raise self.folder.fail(error, "reading the producers of") from error

    @property
    def producers_snapshot_max(self) -> int:
        """From which snapshot at most the producers are to be rebuilt, so that unstable transactions are found."""
        has_unstable = self.producers.last_marker_offset >= self.high_watermark
        return self.high_watermark if has_unstable else self.log_end_offset

    def producers_at_end(self, now_ms: int) -> ProducerState:
        """The producers' state at the log's end, from a snapshot and the batches behind it; changes nothing."""
        return producers_at(
            self.folder,
            self.segments,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            now_ms=now_ms,
            snapshot_max=self.producers_snapshot_max,
        )

    def producers_rebuilt(self, producers: ProducerState) -> None:
        """Takes over what `producers_at_end` found."""
        self.producers = producers
        producers.replicated_to(self.high_watermark)


class Truncation:
    """The last step, as a part of a `DiskTask`, whose owner also writes the recovery point."""

    __slots__ = ("_durability", "_segment", "_truncations")

    def __init__(self, durability: Durability, segment: Segment) -> None:
        """`segment` is the one that the log ends with."""
        self._durability = durability
        self._segment = segment if durability.is_cut else None
        """None for a truncation that is announced only."""
        self._truncations = durability.truncations

    def run(self) -> None:
        """OSError if the disk refuses; a file that a later cut has removed is left to that cut."""
        if self._segment is None:
            return
        try:
            # With the indexes: a later flush leaves those of the active segment out, since what a crash may leave of
            # them is a beginning of what was written. Entries from before the cut would be none.
            self._segment.fsync(indexes=True)
        except FileNotFoundError as error:
            if not str(error.filename).endswith(DELETED):
                raise
            return
        folder = self._durability.folder
        folder.at_current_path(lambda path: folder.disk.fsync_directory(path))

    def finish(self) -> bool:
        """True unless the log was cut again meanwhile."""
        if self._truncations != self._durability.truncations:
            return False
        self._durability.truncation_settled()
        return True
