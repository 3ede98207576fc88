"""Cutting a log at its end, so that no crash leaves a hole in it.

A power cut may forget some of what a truncation does to files and keep the rest: a shorter segment and the one behind
it, say, which is a hole. So **a truncation has three steps**:

    announce   the recovery point goes down to the cut, in its checkpoint too: from there on recovery believes nothing
    cut        segments are removed, the one with the cut is made shorter; in any order, as far as a crash is concerned
    settle     the cut segment and the folder are synced; no flush ends before

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
from tidelog.storage.disk_errors import fails_alone
from tidelog.storage.file_names import DELETED
from tidelog.storage.producer_recovery import remove_snapshots, snapshot_offsets
from tidelog.storage.retention import discard
from tidelog.storage.segment import floor_index

if TYPE_CHECKING:
    from tidelog.storage.flushing import Durability
    from tidelog.storage.log import Log
    from tidelog.storage.segment import Segment

logger = logging.getLogger(__name__)

REBUILT_AT_ONCE_MAX: Final = 4 << 20
"""Bytes behind a snapshot that a truncation reads at once to rebuild the producers' state: some milliseconds."""


def announce(log: Log, offset: int) -> None:
    """The first step: once that is durable (`Log.truncation_is_pending`) the log may be cut at `offset`."""
    log.durability.truncation_announced(offset)
    _forget_cleaned(log, offset)
    log.mark_changed()
    log.owner.truncated(log.topic_partition)


def cut(log: Log, offset: int) -> None:
    """The second step: removes the batch that holds `offset`, which lies in the log, and what follows.

    From the end on, one change of a file after the other; the log is whole between any two of them. OSError if the disk
    refuses: what was removed before is removed.
    """
    now_ms = log.folder.environment.clock.wall_ms()
    log.folder.finish_steps()
    _forget_snapshots(log, offset)
    before = log.log_end_offset
    try:
        while log.active.base_offset > offset:
            _remove_last(log)
        segment = log.active
        found = segment.truncate_to(offset, now_ms)
        if found is not None:
            # A batch is whole or not there: what was asked for lay inside one.
            offset = min(offset, found.header.base_offset)
        log.log_start_offset = Offset(min(log.log_start_offset, offset))
        _ends_at(log, offset)
        log.folder.finish(segment.transaction_index.cut)
    finally:
        if log.log_end_offset != before:
            _cut_producers(log, now_ms)


def begin_anew(log: Log, offset: int, log_start_offset: int) -> None:
    """The second step where nothing is kept: the log goes on at `offset`. OSError if the disk refuses.

    The segments go from the end on, and the first one when the new one is there; the log is whole between any two
    changes. Its first segment is made empty instead where the log begins anew at the same offset.
    """
    folder, now_ms = log.folder, log.folder.environment.clock.wall_ms()
    folder.finish_steps()
    _forget_snapshots(log, -1)
    before = log.log_end_offset
    try:
        while len(log.segments) > 1:
            _remove_last(log)
        first = log.active
        if first.base_offset == offset:
            first.truncate_to(offset, now_ms)
            removed = None
        else:
            folder.finish_steps()  # The new segment may have a removed one's name.
            new = log.create_segment(offset, now_ms)
            removed, log.segments = first, [new]
    except BaseException:
        if log.log_end_offset != before:
            _cut_producers(log, now_ms)
        raise
    log.log_start_offset = Offset(log_start_offset)
    log.epochs.clear()
    _ends_at(log, offset)
    log.durability.flushed_offset = Offset(offset)
    log.producers.clear(offset)
    log.producers.snapshot_offset = offset
    if removed is None:
        folder.finish(first.transaction_index.cut)
    else:
        # It must not come back beside the new one.
        folder.finish(functools.partial(discard, folder, removed, log.config.file_delete_delay_ms))


def _remove_last(log: Log) -> None:
    """The log ends where its last segment began. OSError: nothing has changed, or the directory goes offline."""
    segment = log.active
    try:
        discard(log.folder, segment, log.config.file_delete_delay_ms)
    finally:
        if segment.is_removed:
            log.segments = log.segments[:-1]
            log.log_start_offset = Offset(min(log.log_start_offset, segment.base_offset))
            _ends_at(log, segment.base_offset)


def _forget_snapshots(log: Log, end: int) -> None:
    """Removes what tells of producers behind `end`, before anything there is removed: less is known then, not wrongly.
    OSError."""
    try:
        remove_snapshots(log.folder, above=end)
    finally:
        if log.producers.snapshot_offset > end:
            # The newest one is gone. An older one may be left; the next is taken in any case, also at `end` itself.
            log.producers.snapshot_offset = -1


def _ends_at(log: Log, offset: int) -> None:
    log.log_end_offset = Offset(offset)
    log.high_watermark = Offset(max(min(log.high_watermark, offset), log.log_start_offset))
    log.epochs.truncate_from_end(Offset(offset))
    log.forget_positions()
    log.durability.truncated_to(offset)
    _forget_cleaned(log, offset)
    log.mark_changed()
    log.owner.truncated(log.topic_partition)


def _forget_cleaned(log: Log, offset: int) -> None:
    """What comes after `offset` was never cleaned."""
    if log.cleaned_offset is not None:
        log.cleaned_offset = Offset(min(log.cleaned_offset, offset))


def _cut_producers(log: Log, now_ms: int) -> None:
    """Brings the producers' state back to the log's end, now or with the last step; where the disk refuses to tell,
    with the next append, which asks again."""
    end, producers = log.log_end_offset, log.producers
    if not producers.is_behind and producers.knows_nothing_from(end):
        producers.map_end_offset = end
        return
    producers.is_behind = True
    try:
        offsets = snapshot_offsets(log.folder)
    except OSError as error:
        if not fails_alone(error):
            raise
        logger.warning("producers_behind log=%s error=%s", log.topic_partition, error)
        return
    producers.snapshot_offset = offsets[-1] if offsets else log.log_start_offset
    usable = [offset for offset in offsets if offset <= log.producers_snapshot_max]
    first = floor_index(log.segments, usable[-1]) if usable else 0
    if sum(segment.size for segment in log.segments[first:]) > REBUILT_AT_ONCE_MAX:
        return
    try:
        log.catch_up_producers(now_ms)
    except KafkaError as error:
        if log.is_offline:
            raise
        logger.warning("producers_behind log=%s error=%s", log.topic_partition, error)


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
        """OSError if the disk refuses; a file that a later cut has removed is that one's affair."""
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
