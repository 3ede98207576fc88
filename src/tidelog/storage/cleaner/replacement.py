"""How a cleaned segment takes the place of those that it was made from.

    1  its files are written as .cleaned, and synced            a crash: they are removed
    2  renamed to .swap                                         a crash: as before while one is still .cleaned,
    3  the old ones renamed to .deleted                                  from then on the next start does 3 and 4
    4  .swap renamed away
    5  the folder is synced; the old files go after file.delete.delay.ms

Steps 2 to 4 happen in one turn of the thread that owns the log, which has looked first whether the old segments are
still there. Names reach the disk in the order in which they were changed. Readers that still have the old segments at
hand go on with their files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.storage.file_names import CLEANED, SWAP
from tidelog.storage.retention import discard
from tidelog.storage.segment import Segment

if TYPE_CHECKING:
    from tidelog.storage.log import Log


def cleaned_segment(log: Log, base_offset: int, now_ms: int) -> Segment:
    """A segment beside the log's, which has no files yet."""
    segment = Segment(log.folder.environment.pool, log.directory, base_offset, log.config, size=0, created_ms=now_ms)
    segment.mark = CLEANED
    return segment


def create_cleaned(segment: Segment) -> None:
    """Makes its files, empty, in any thread; nothing is synced. OSError, and then some may be there."""
    segment.unlink()  # What an earlier cleaning may have left.
    segment.create_files()


def sync_cleaned(segment: Segment) -> None:
    """Makes the files durable, in any thread. OSError."""
    segment.fsync(indexes=True)
    segment.forget_files()


def replace(log: Log, old: list[Segment], cleaned: Segment) -> bool:
    """Puts `cleaned`, which is durable, in place of `old`; false where these are not the log's any more. OSError.

    The log's first offsets, ends and epochs stay as they are.
    """
    segments = log.segments
    try:
        first = segments.index(old[0])
    except ValueError:
        return False
    if segments[first : first + len(old)] != old or first + len(old) >= len(segments):
        return False
    cleaned.rename(SWAP)
    discard(log.folder, old, log.config.file_delete_delay_ms, snapshot_kept=cleaned.base_offset)
    cleaned.rename("")
    cleaned.config = log.config
    log.segments = [*segments[:first], cleaned, *segments[first + len(old) :]]
    return True


def drop_cleaned(log: Log, cleaned: Segment) -> None:
    """Removes what was written for nothing, unless the whole folder is on its way out. OSError."""
    if log.folder.is_deleted or log.is_offline:
        cleaned.release_files()
        return
    cleaned.moved(log.directory)
    cleaned.unlink()
