"""How a cleaned segment takes the place of those that it was made from.

    1  its files are written as .cleaned, and synced            a crash: they are removed
    2  renamed to .swap                                         a crash: as before while one is still .cleaned,
    3  the old ones renamed to .deleted                                  from then on the next start does 3 and 4
    4  .swap renamed away
    5  the folder is synced; the old files go after file.delete.delay.ms

Steps 2 to 4 happen in one turn of the thread that owns the log, which has looked first whether the old segments are
still there. Names reach the disk in the order in which they were changed. Readers that still have the old segments at
hand go on with their files.

Where the disk refuses step 2, nothing was replaced: the .log file is the last that is renamed then. Where it refuses a
later one, the log has the cleaned segment, whatever its files are called, and the rest is done before anything else
happens to the log's files.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from tidelog.storage.file_names import CLEANED, SWAP
from tidelog.storage.producer_recovery import discard_snapshot
from tidelog.storage.retention import remove_later
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
    folder, delay_ms = log.folder, log.config.file_delete_delay_ms
    folder.finish_steps()
    cleaned.rename(SWAP)
    cleaned.config = log.config
    log.segments = [*segments[:first], cleaned, *segments[first + len(old) :]]
    for segment in old:
        # Before the cleaned one takes the first one's name.
        folder.finish(functools.partial(remove_later, folder, segment, delay_ms))
        if segment is not old[0]:
            folder.finish(functools.partial(discard_snapshot, folder, segment.base_offset, delay_ms))
    folder.finish(functools.partial(cleaned.rename, ""))
    return True


def drop_cleaned(log: Log, cleaned: Segment) -> None:
    """Removes what was written for nothing, unless the whole folder is on its way out. OSError."""
    if log.folder.is_deleted or log.is_offline:
        cleaned.release_files()
        return
    cleaned.moved(log.directory)
    cleaned.unlink()
