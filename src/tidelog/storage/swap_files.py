"""A compaction that a crash interrupted, finished or undone when its log is loaded: `.cleaned` and `.swap` files."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.model.errors import KafkaError
from tidelog.storage.file_names import CLEANED, DELETED, LOG, SEGMENT_SUFFIXES, SNAPSHOT, SWAP, parse_segment_file
from tidelog.storage.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.ports.disk import Disk
    from tidelog.storage.log_config import LogConfig
    from tidelog.storage.log_folder import LogEnvironment

logger = logging.getLogger(__name__)


def finish_swaps(disk: Disk, directory: str, environment: LogEnvironment, config: LogConfig) -> None:
    """Removes what was on its way out, and completes or undoes a compaction that a crash interrupted.

    `.cleaned` files were still being written: they go, and so do `.swap` files from the same place on, whose set is not
    complete. The `.swap` files that remain replace the segments whose offsets they cover. As in a replacement, what
    would be misunderstood without the names before it waits until those are durable.

    Of a segment whose removal had come no further than the .log file's new name, the indexes go before that file: alone
    they would tell the next start of a segment that is lost.
    """
    files = [(name, parsed) for name in disk.list(directory) if (parsed := parse_segment_file(name)) is not None]
    first_cleaned = min((offset for _, (offset, _, marks) in files if marks.endswith(CLEANED)), default=None)
    swaps = [(name, offset) for name, (offset, _, marks) in files if marks.endswith(SWAP)]
    incomplete = [name for name, offset in swaps if first_cleaned is not None and offset >= first_cleaned]
    _unlink(disk, directory, incomplete)
    swaps = [(name, offset) for name, offset in swaps if name not in incomplete]
    if not swaps:
        _unlink(disk, directory, _half_removed(files))
    for name, (_, _, marks) in files:
        if marks.endswith((DELETED, CLEANED)):
            disk.unlink(f"{directory}/{name}")
    if not swaps:
        return
    logs = [(name, offset) for name, offset in swaps if name.removesuffix(SWAP).endswith(LOG)]
    ranges = [_swap_range(environment, directory, name, offset, config) for name, offset in logs]
    if ranges:
        first, end = min(start for start, _ in ranges), max(end for _, end in ranges)
        replaced = [
            name
            for name, (offset, suffix, marks) in files
            if not marks and suffix != SNAPSHOT and first <= offset < end
        ]
        _unlink(disk, directory, replaced)
    for names in ([name for name, _ in logs], [name for name, offset in swaps if (name, offset) not in logs]):
        for name in names:
            disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")
        disk.fsync_directory(directory)


def _half_removed(files: Sequence[tuple[str, tuple[int, str, str]]]) -> list[str]:
    """The indexes of segments whose .log file has gone to `.deleted`, and nothing has taken its place."""
    logs = [(offset, marks) for _, (offset, suffix, marks) in files if suffix == LOG]
    removed = {offset for offset, marks in logs if marks == DELETED} - {offset for offset, marks in logs if not marks}
    return [
        name
        for name, (offset, suffix, marks) in files
        if offset in removed and not marks and suffix in SEGMENT_SUFFIXES
    ]


def _unlink(disk: Disk, directory: str, names: Sequence[str]) -> None:
    """Removes files, durably."""
    for name in names:
        disk.unlink(f"{directory}/{name}")
    if names:
        disk.fsync_directory(directory)


def _swap_range(
    environment: LogEnvironment, directory: str, name: str, offset: int, config: LogConfig
) -> tuple[int, int]:
    """The offsets that a compacted segment covers: from its base to after its last batch."""
    size = environment.disk.stat(f"{directory}/{name}").size
    segment = Segment(environment.pool, directory, offset, config, size=size, created_ms=0)
    segment.log_file.path = f"{directory}/{name}"
    end = offset
    try:
        for found in segment.headers(0):
            end = found.header.next_offset
    except KafkaError as error:
        logger.warning("swap_damaged: path=%s reason=%s", segment.log_file.path, error)
    finally:
        segment.log_file.close()
    return offset, max(end, offset + 1)
