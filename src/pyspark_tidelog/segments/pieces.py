"""The bytes of a range of offsets from segments: whole batches, a few megabytes at a time, and what they lack."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyspark_tidelog.segments.directories import PartitionFolder
from pyspark_tidelog.segments.partition import AbortedSpans, FolderChanged, PartitionFiles, Segment
from tidelog.model.errors import ErrorCode
from tidelog.ports.disk import Disk
from tidelog.records.batch_header import HEADER_SIZE, SIZE_PREFIX
from tidelog.records.errors import InvalidBatch
from tidelog.storage.errors import CorruptFile

READ_BYTES: Final = 4 << 20
"""Of a segment at once: what is decoded in one go stays in the processor's caches."""

_BATCH_START: Final = struct.Struct(">qiib")  # Base offset, length of what follows, leader epoch, magic.
_LAST_OFFSET_DELTA: Final = struct.Struct(">i")
_LAST_OFFSET_DELTA_POSITION: Final = 23
_MAGIC: Final = 2


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole batches that hold the records from `start`, where the first batch may begin earlier, to before `end`."""

    start: int
    end: int
    records: bytes | memoryview
    aborted: AbortedSpans | None
    """None where all records are wanted."""
    replica: int = 0
    """Which of the folders it is from."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Offsets that the files do not have, or do not have for sure."""

    start: int
    end: int
    reason: str


def read_parts(
    disk: Disk,
    folders: Sequence[PartitionFolder],
    start: int,
    end: int,
    *,
    committed: bool,
    replica: int = 0,
    reason: str = "",
) -> Iterator[Piece | Missing]:
    """All of `start` .. `end` - 1 in order, from the first of the replicas that has it, or as missing.

    `replica`: the first of `folders` that is to be read; `reason`: why those before it are not.
    """
    if replica >= len(folders):
        yield Missing(start, end, reason or "no folder of the partition is there")
        return
    for part in _parts_of(PartitionFiles(disk, folders[replica]), start, end, committed=committed):
        if isinstance(part, Missing):
            yield from read_parts(
                disk,
                folders,
                part.start,
                part.end,
                committed=committed,
                replica=replica + 1,
                reason=part.reason,
            )
        else:
            yield replace(part, replica=replica)


def _parts_of(files: PartitionFiles, start: int, end: int, *, committed: bool) -> Iterator[Piece | Missing]:
    folder = files.folder
    position, looked_again = start, -1
    try:
        known = files.stable_end(end) if committed else min(end, folder.high_watermark)
        while position < known:
            # Before the segment is opened: see the package's docstring.
            aborted = AbortedSpans(files.aborted()) if committed else None
            with files.opened(position) as segment:
                if segment is None:
                    later = next((base for base in files.base_offsets() if base > position), known)
                    yield Missing(position, min(later, known), f"{folder.path} begins later")
                    position = min(later, known)
                    continue
                flaw = ""
                try:
                    for piece in _pieces(segment, position, known, aborted):
                        yield piece
                        position = piece.end
                except InvalidBatch as error:
                    flaw = f"{segment.file.path} cannot be read at offset {position}: {error.message}"
            if position >= known:
                break
            if flaw and position != looked_again:
                looked_again = position  # The segment may have been replaced between two looks at the folder.
                continue
            if segment.next_base is None:
                yield Missing(position, end, flaw or f"{segment.file.path} ends before the high watermark")
                return
            behind = min(segment.next_base, known)
            if position < behind and (flaw or behind > folder.cleaned_offset):
                yield Missing(position, behind, flaw or f"{segment.file.path} ends before the next segment begins")
            position = max(position, behind)
    except (FolderChanged, CorruptFile, OSError) as error:
        yield Missing(position, end, str(error))
        return
    if position < end:
        reason = folder.limited or f"{folder.path} is known to be committed up to offset {position} only"
        yield Missing(position, end, reason)


def _pieces(segment: Segment, start: int, end: int, aborted: AbortedSpans | None) -> Iterator[Piece]:
    """Batches of one segment, up to its end; InvalidBatch where there is something else."""
    place, size, offset = segment.position, READ_BYTES, start
    lowest = segment.base_offset
    while offset < end:
        records = memoryview(segment.file.pread(size, place))
        used, next_offset = whole_batches(records, lowest, end, segment.next_base)
        if not used:
            if next_offset >= end:
                yield Piece(offset, end, b"", aborted)  # There is nothing more before the end.
                return
            needed = _first_size(records)
            if needed <= len(records):
                return
            if len(records) < size:
                raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, "the last batch is cut short")
            size = needed
            continue
        place, size, lowest = place + used, READ_BYTES, next_offset
        if next_offset > offset:
            next_offset = min(next_offset, end)
            yield Piece(offset, next_offset, records[:used], aborted)
            offset = next_offset


def whole_batches(records: memoryview, lowest: int, end: int, limit: int | None) -> tuple[int, int]:
    """Bytes of the whole batches at the front of `records` that begin before `end`, and the offset behind them.

    Offsets in headers are under no checksum: InvalidBatch where one is below `lowest`, or that of the batch before, or
    beyond `limit` (None: no limit); or where there is no batch.
    """
    unpack, delta_of, total = _BATCH_START.unpack_from, _LAST_OFFSET_DELTA.unpack_from, len(records)
    position = 0
    while lowest < end and total - position >= HEADER_SIZE:
        base_offset, length, _, magic = unpack(records, position)
        if magic != _MAGIC or length < HEADER_SIZE - SIZE_PREFIX:
            raise InvalidBatch(
                ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
                if magic in (0, 1) and length > 0
                else ErrorCode.CORRUPT_MESSAGE,
                f"there is no batch of format 2 (format {magic}, {length} bytes)",
            )
        after = position + SIZE_PREFIX + length
        if after > total:
            break
        if base_offset >= end:
            lowest = end
            break
        (delta,) = delta_of(records, position + _LAST_OFFSET_DELTA_POSITION)
        following = base_offset + delta + 1
        if base_offset < lowest or delta < 0 or (limit is not None and following > limit):
            raise InvalidBatch(
                ErrorCode.CORRUPT_MESSAGE,
                f"a batch of offsets {base_offset} to {following - 1} is out of its place",
            )
        lowest, position = following, after
    return position, lowest


def _first_size(records: memoryview) -> int:
    """Bytes of the batch that `records` begin with; 0 where there is none."""
    if len(records) < HEADER_SIZE:
        return len(records) + 1 if len(records) else 0
    length: int = _BATCH_START.unpack_from(records)[1]
    return length + SIZE_PREFIX
