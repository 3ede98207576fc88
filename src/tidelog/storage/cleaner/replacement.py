"""How a cleaned segment takes the place of those that it was made from.

    1  its files are written as .cleaned, and synced            a crash: they are removed
    2  renamed to .swap                                         a crash: as before while one is still .cleaned,
    3  the old ones renamed to .deleted                                  from then on the next start does 3 to 5
    4  the .log file loses its .swap
    5  so do the others; the old files go after file.delete.delay.ms

Renames are done by the thread that owns the log, which looks before step 2 whether the old segments are still there;
from then on the log has the cleaned one. After each of the steps 2 to 5 an I/O thread syncs the folder: a power cut may
lose the renames since the last sync in any order. Where something else is to happen to the log's files between two
steps, the owner does the rest first, syncs included. Readers that still have the old segments at hand go on with their
files.

Where the disk refuses step 2, nothing was replaced: the .log file is the last that is renamed then. Where it refuses a
later one, the log has the cleaned segment, whatever its files are called, and the rest is done before anything else
happens to the log's files.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage.file_names import CLEANED, SWAP
from tidelog.storage.producer_recovery import discard_snapshot
from tidelog.storage.retention import remove_later
from tidelog.storage.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from tidelog.storage.log import Log
    from tidelog.storage.log_folder import LogFolder

    Step: TypeAlias = Callable[[], None]


class FolderSync:
    """Makes the renames so far durable, once: an I/O thread does, or whoever is to take the next step before."""

    def __init__(self, folder: LogFolder) -> None:
        self._folder = folder
        self._is_done = False

    def __call__(self) -> None:
        if not self._is_done:
            self._folder.at_current_path(self._folder.disk.fsync_directory)
            self._is_done = True


class Remaining(NamedTuple):
    """A step of a replacement that is left."""

    sync: FolderSync
    """To be done before, in any thread."""
    step: Step
    """For `LogFolder.finish_up_to`, by the thread that owns the log."""


def cleaned_segment(log: Log, base_offset: int, now_ms: int) -> Segment:
    """A segment beside the log's, which has no files yet."""
    segment = Segment(log.folder.environment.pool, log.directory, base_offset, log.config, size=0, created_ms=now_ms)
    segment.mark = CLEANED
    return segment


def create_cleaned(segment: Segment) -> None:
    """Makes its files, empty, in any thread; nothing is synced. OSError, and then some may be there."""
    segment.unlink()  # What an earlier cleaning may have left.
    segment.has_index_files = False
    segment.preallocate_indexes()
    segment.create_log_file()


def sync_cleaned(segment: Segment) -> None:
    """Makes the files durable, in any thread. OSError."""
    segment.fsync(indexes=True)
    segment.forget_files()


def replace(log: Log, replaced: list[Segment], cleaned: Segment) -> list[Remaining] | None:
    """Puts `cleaned`, which is durable, in place of `old`; None where these are not the log's any more. OSError.

    Gives the steps that are left, in their order. The log's first offsets, ends and epochs stay as they are.
    """
    segments = log.segments
    try:
        first = segments.index(replaced[0])
    except ValueError:
        return None
    if segments[first : first + len(replaced)] != replaced or first + len(replaced) >= len(segments):
        return None
    folder, delay_ms = log.folder, log.config.file_delete_delay_ms
    folder.finish_steps()
    cleaned.rename(SWAP)
    cleaned.config = log.config
    log.segments = [*segments[:first], cleaned, *segments[first + len(replaced) :]]
    removals: list[Step] = []
    for segment in replaced:
        removals.append(functools.partial(remove_later, folder, segment, delay_ms))
        if segment is not replaced[0]:
            removals.append(functools.partial(discard_snapshot, folder, segment.base_offset, delay_ms))
    names: list[Step] = [functools.partial(cleaned.rename, "", log_only=True), functools.partial(cleaned.rename, "")]
    left = [Remaining(FolderSync(folder), step) for step in (removals[-1], *names)]
    before_names = [step for each in left[1:] for step in (each.sync, each.step)]
    folder.unfinished = [*folder.unfinished, left[0].sync, *removals, *before_names]
    return left


def drop_cleaned(log: Log, cleaned: Segment) -> None:
    """Removes what was written for nothing, unless the whole folder is on its way out. OSError."""
    if log.folder.is_deleted or log.is_offline:
        cleaned.release_files()
        return
    cleaned.moved(log.directory)
    cleaned.unlink()
