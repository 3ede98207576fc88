"""Which log is to be cleaned next, and from where to where.

Never cleaned is the active segment, what lies at or past the last stable offset, and segments with a record younger
than `min.compaction.lag.ms`. A log is due when the dirty part of what could be cleaned is more than
`min.cleanable.dirty.ratio`, or when a dirty segment is older than `max.compaction.lag.ms`.
The cleaner moreover leaves alone what is above the recovery point, as its checkpoint has it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from tidelog.model.values import value
from tidelog.storage.log_config import LONG_MAX
from tidelog.storage.segment_order import floor_index

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidelog.storage.log import Log
    from tidelog.storage.segment import Segment

logger = logging.getLogger(__name__)


class CleanableOffsets(NamedTuple):
    """first_dirty .. first_uncleanable - 1 may be cleaned; none where they are equal."""

    first_dirty: int
    first_uncleanable: int


@value
class LogToClean:
    """A log, and what of it a cleaning would have to do with."""

    log: Log
    first_dirty_offset: int
    boundary_offset: int
    """Base offset of the first segment that stays as it is."""
    clean_bytes: int
    cleanable_bytes: int
    """Of segments with dirty records below the boundary."""
    delay_ms: int
    """By how much the oldest dirty segment is past `max.compaction.lag.ms`."""
    lag_ms: int
    """`min.compaction.lag.ms`, by which the boundary was drawn."""

    @property
    def cleanable_ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        if self.cleanable_bytes == 0:
            return False
        return self.delay_ms > 0 or self.cleanable_ratio > self.log.config.min_cleanable_dirty_ratio


def segments_between(segments: Sequence[Segment], start: int, end: int) -> list[Segment]:
    """Those with offsets of start .. end - 1, from the one in which `start` lies on."""
    if start == end:
        return []
    return [segment for segment in segments[floor_index(segments, start) :] if segment.base_offset < end]


def cleanable_offsets(log: Log, last_cleaned: int | None, now_ms: int) -> CleanableOffsets:
    """What may be cleaned of a log that was cleaned up to `last_cleaned` (None: never), by the wall time `now_ms`.

    A checkpoint that cannot be true of the log counts as none.
    """
    start = log.log_start_offset
    first_dirty = start if last_cleaned is None else last_cleaned
    if first_dirty < start:
        if not log.config.deleted and last_cleaned is not None:
            logger.warning(
                "cleaner_offset_reset: log=%s offset=%d reason=below the log's start at %d",
                log.topic_partition,
                first_dirty,
                start,
            )
        first_dirty = start
    elif first_dirty > log.log_end_offset:
        logger.warning(
            "cleaner_offset_reset: log=%s offset=%d reason=past the log's end at %d",
            log.topic_partition,
            first_dirty,
            log.log_end_offset,
        )
        first_dirty = start
    active = log.active.base_offset
    first_uncleanable: int = min(log.last_stable_offset, active)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in segments_between(log.segments, first_dirty, max(active, first_dirty)):
            if segment.base_offset < active and segment.largest_timestamp() > now_ms - lag_ms:
                first_uncleanable = min(first_uncleanable, segment.base_offset)
                break
    return CleanableOffsets(first_dirty, max(first_dirty, first_uncleanable))


def log_to_clean(log: Log, offsets: CleanableOffsets, now_ms: int) -> LogToClean:
    """The same with the sizes: cleaned is by whole segments."""
    segments, active = log.segments, log.active.base_offset
    boundary = active
    if offsets.first_uncleanable < active:
        boundary = segments[floor_index(segments, offsets.first_uncleanable)].base_offset
    first_dirty = offsets.first_dirty
    dirty = segments_between(segments, min(first_dirty, boundary), boundary)
    return LogToClean(
        log,
        first_dirty,
        boundary,
        clean_bytes=sum(segment.size for segment in segments if segment.base_offset < first_dirty),
        cleanable_bytes=sum(segment.size for segment in dirty),
        delay_ms=_compaction_delay_ms(log, first_dirty, now_ms),
        lag_ms=log.config.min_compaction_lag_ms,
    )


def _compaction_delay_ms(log: Log, first_dirty: int, now_ms: int) -> int:
    lag_ms = log.config.max_compaction_lag_ms
    active = log.active.base_offset
    if lag_ms == LONG_MAX or first_dirty > active:
        return 0
    closed = segments_between(log.segments, first_dirty, active)
    timestamps = [timestamp for segment in closed if (timestamp := segment.first_batch_timestamp()) > 0]
    return max(now_ms - lag_ms - min(timestamps), 0) if timestamps else 0


def goes_by_time(log: Log) -> bool:
    """Whether `cleanable_offsets` and `log_to_clean` ask closed segments for their timestamps."""
    return log.config.min_compaction_lag_ms > 0 or log.config.max_compaction_lag_ms != LONG_MAX


def warm(log: Log, last_cleaned: int | None) -> None:
    """Reads the timestamps of closed segments for a log that `goes_by_time`, in any thread."""
    segments = log.segments
    for segment in segments[:-1]:
        if segment.mark or (last_cleaned is not None and segment.base_offset < last_cleaned):
            continue
        segment.largest_timestamp()
        segment.first_batch_timestamp()


def filthiest(candidates: Iterable[LogToClean]) -> LogToClean | None:
    """The log that is due and has the largest share of what is dirty; the first of equals."""
    return max((each for each in candidates if each.is_due), key=lambda each: each.cleanable_ratio, default=None)
