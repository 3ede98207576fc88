"""A removal of the oldest segments that a power cut has torn, finished when the log is loaded.

    0.log  5.log.deleted  10.log  ...      0 and 5 were to go; of two new names the disk kept the second alone

The log would have a gap: a reader would stop there, and a start would take it for damage and cut what follows. The
segments before the gap were on their way out as well, since the oldest are renamed first.
"""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import TYPE_CHECKING

from tidelog.storage.batch_scan import valid_batches
from tidelog.storage.file_names import DELETED, LOG, SEGMENT_SUFFIXES, parse_segment_file, segment_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.ports.disk import Disk

logger = logging.getLogger(__name__)


def finish_torn_retention(disk: Disk, directory: str, recovery_point: int) -> None:
    """Removes the segments before a gap that removed ones fill to the offset; not for logs with gaps of compaction.

    A truncation removes segments too, from the log's end, and a follower may fetch the same again, and roll where they
    were. Those begin above the recovery point, which goes down to the cut before it, and up when all names are durable
    again: a gap is only retention's where its first segment began below that. OSError.
    """
    marks: dict[str, list[int]] = {"": [], DELETED: []}
    for name in disk.list(directory):
        parsed = parse_segment_file(name)
        if parsed is not None and parsed[1] == LOG and parsed[2] in marks:
            marks[parsed[2]].append(parsed[0])
    live, removed = sorted(marks[""]), sorted(marks[DELETED])
    for before, behind in reversed(list(pairwise(live))):
        between = [base for base in removed if before < base < behind]
        if between and between[0] < recovery_point and _fill(disk, directory, before, between, behind):
            oldest = [base for base in live if base <= before]
            logger.info("retention_finished: directory=%s segments=%d log_start=%d", directory, len(oldest), behind)
            for base in oldest:
                _remove(disk, directory, base)
            disk.fsync_directory(directory)
            return


def _fill(disk: Disk, directory: str, before: int, between: Sequence[int], behind: int) -> bool:
    """Whether each of these segments ends where the next one begins."""
    ends = [_end(disk, f"{directory}/{segment_file(before, LOG)}")]
    ends += [_end(disk, f"{directory}/{segment_file(base, LOG)}{DELETED}") for base in between]
    return ends == [*between, behind]


def _end(disk: Disk, path: str) -> int | None:
    """Where the batches of a .log file end; None unless they are valid to its last byte."""
    size = disk.stat(path).size
    file = disk.open(path, read_only=True)
    try:
        end, offset = 0, None
        for position, header, _ in valid_batches(file, size):
            end, offset = position + header.size, header.next_offset
        return offset if end == size else None
    finally:
        file.close()


def _remove(disk: Disk, directory: str, base_offset: int) -> None:
    """Removes a segment's files, the .log file last: indexes alone would tell of a segment that is lost."""
    for suffix in SEGMENT_SUFFIXES[::-1]:
        path = f"{directory}/{segment_file(base_offset, suffix)}"
        if disk.exists(path):
            disk.unlink(path)
