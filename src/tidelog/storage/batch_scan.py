"""Batches as recovery meets them in a file: which of them are whole, and which of those are believed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.records.batch import HEADER_SIZE, BatchHeader, InvalidBatch, check_crc, read_header

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.ports.disk import File

_SCAN_CHUNK: Final = 1 << 20
"""Bytes read at once while going through a whole segment."""


def contradicts_next(
    file: File, size: int, position: int, header: BatchHeader, latest_epoch: int, behind: BatchHeader | None = None
) -> bool:
    """Whether a batch that leaves a gap before it, or has a new leader epoch, goes past the valid batch behind it.

    Its offset or its epoch, which no checksum covers, is damaged then: compaction leaves gaps, and offsets that only
    rise; epochs only rise too. `latest_epoch` is what the batch behind must at least have: an older one was removed by
    a truncation, and a power cut has brought it back. `behind` is the first valid batch of the next file.
    """
    position += header.size
    if position == size:
        return behind is not None and _contradicts(header, behind, latest_epoch)
    if size - position < HEADER_SIZE:
        return False
    try:
        following = read_header(file.pread(HEADER_SIZE, position), 0)
        if position + following.size > size or not _contradicts(header, following, latest_epoch):
            return False
        check_crc(file.pread(following.size, position), 0, following)
    except InvalidBatch:
        return False
    return True


def _contradicts(header: BatchHeader, following: BatchHeader, latest_epoch: int) -> bool:
    goes_back = following.base_offset < header.next_offset
    is_older = following.partition_leader_epoch < header.partition_leader_epoch
    return following.partition_leader_epoch >= latest_epoch and (goes_back or is_older)


def valid_batches(file: File, size: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Batches whose bytes are all there and whose checksum holds, from the start to the first that fails."""
    position = 0
    buffer = memoryview(b"")
    start = 0
    while size - position >= HEADER_SIZE:
        at = position - start
        if at + HEADER_SIZE > len(buffer):
            buffer, start, at = memoryview(file.pread(min(_SCAN_CHUNK, size - position), position)), position, 0
        try:
            header = read_header(buffer, at)
            if position + header.size > size:
                return
            if at + header.size > len(buffer):
                length = min(max(header.size, _SCAN_CHUNK), size - position)
                buffer, start, at = memoryview(file.pread(length, position)), position, 0
            check_crc(buffer, at, header)
        except InvalidBatch:
            return
        yield position, header, buffer[at : at + header.size]
        position += header.size
