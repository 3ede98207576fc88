"""Which of a log's oldest segments may go, and how their files leave.

A segment goes when all of it lies below the log's start (DeleteRecords moved that), and under `cleanup.policy=delete`
when the log is too large without it or its newest record too old. Never what the high watermark has not passed:
a record that is not replicated is not old, however old it is.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from tidelog.storage.file_names import DELETED
from tidelog.storage.producer_recovery import discard_snapshot

if TYPE_CHECKING:
    from tidelog.storage.log_config import LogConfig
    from tidelog.storage.log_folder import LogFolder
    from tidelog.storage.segment import Segment


def expired_count(
    segments: list[Segment],
    config: LogConfig,
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    now_ms: int,
) -> int:
    """How many of the oldest segments may go; all of them where even the active one's records are too old.

    An empty active segment stays. OSError from reading the time index of a segment whose newest record is not known.
    """
    ends = [*(segment.base_offset for segment in segments[1:]), log_end_offset]
    most = sum(end <= high_watermark for end in ends)
    if most == len(segments) and segments[-1].size == 0:
        most -= 1
    count = 0
    while count < most and ends[count] <= log_start_offset:
        count += 1
    if not config.deleted:
        return count
    if config.retention_bytes >= 0:
        excess = sum(segment.size for segment in segments[count:]) - config.retention_bytes
        while count < most and excess > 0 and excess >= segments[count].size:
            excess -= segments[count].size
            count += 1
    if config.retention_ms >= 0:
        while count < most and now_ms - segments[count].largest_timestamp() > config.retention_ms:
            count += 1
    return count


def discard(folder: LogFolder, segment: Segment, delay_ms: int) -> None:
    """Renames a segment's files, and its snapshot, to `.deleted`, and has them removed after `delay_ms`.

    It has happened once the .log file is renamed. OSError: it has not, or the directory goes offline.
    """
    rest = functools.partial(remove_later, folder, segment, delay_ms)
    try:
        rest()
    except OSError:
        if not segment.is_removed:
            raise
        folder.finish(rest)
    folder.finish(functools.partial(discard_snapshot, folder, segment.base_offset, delay_ms))


def remove_later(folder: LogFolder, segment: Segment, delay_ms: int) -> None:
    """The same without the snapshot; may be tried again after an OSError."""
    segment.rename(DELETED)
    folder.owner.delete_later(segment.unlink, delay_ms)
