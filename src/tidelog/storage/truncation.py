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

from typing import TYPE_CHECKING, Final

from tidelog.model.identifiers import Offset
from tidelog.storage.producer_recovery import remove_snapshots, snapshot_offsets
from tidelog.storage.retention import discard
from tidelog.storage.segment import floor_index

if TYPE_CHECKING:
    from tidelog.storage.flushing import Durability
    from tidelog.storage.log import Log
    from tidelog.storage.segment import Segment

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

    OSError if the disk refuses.
    """
    now_ms = log.folder.environment.clock.wall_ms()
    kept = [segment for segment in log.segments if segment.base_offset <= offset]
    removed = log.segments[len(kept) :]
    log.segments = kept
    discard(log.folder, removed, log.config.file_delete_delay_ms)
    found = kept[-1].truncate_to(offset, now_ms)
    if found is not None:
        # A batch is whole or not there: what was asked for lay inside one.
        offset = min(offset, found.header.base_offset)
    log.log_start_offset = Offset(min(log.log_start_offset, offset))
    _ends_at(log, offset)
    _cut_producers(log, now_ms)


def begin_anew(log: Log, offset: int, log_start_offset: int) -> None:
    """The second step where nothing is kept: the log goes on at `offset`. OSError if the disk refuses."""
    for segment in log.segments:
        segment.release_files()
        segment.unlink()  # At once: the new segment may have an old one's name.
    log.segments = [log.create_segment(offset, log.folder.environment.clock.wall_ms())]
    remove_snapshots(log.folder)
    log.log_start_offset = Offset(log_start_offset)
    log.epochs.clear()
    _ends_at(log, offset)
    log.durability.flushed_offset = Offset(offset)
    log.producers.clear(offset)
    log.producers.snapshot_offset = offset


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
    """Brings the producers' state back to the log's end, now or with the last step."""
    end = log.log_end_offset
    remove_snapshots(log.folder, above=end)
    offsets = snapshot_offsets(log.folder)
    producers = log.producers
    producers.snapshot_offset = offsets[-1] if offsets else log.log_start_offset
    if not producers.is_behind and producers.knows_nothing_from(end):
        producers.map_end_offset = end
        return
    producers.is_behind = True
    usable = [offset for offset in offsets if offset <= log.producers_snapshot_max]
    first = floor_index(log.segments, usable[-1]) if usable else 0
    if sum(segment.size for segment in log.segments[first:]) <= REBUILT_AT_ONCE_MAX:
        log.catch_up_producers(now_ms)


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
        except FileNotFoundError:
            return
        self._durability.folder.disk.fsync_directory(self._durability.folder.path)

    def finish(self) -> bool:
        """True unless the log was cut again meanwhile."""
        if self._truncations != self._durability.truncations:
            return False
        self._durability.truncation_settled()
        return True
