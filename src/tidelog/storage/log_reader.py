"""Finding things in a log: bytes for a fetch, offsets for timestamps, aborted transactions.

These are questions to a list of segments, oldest first, which does not change while they are answered: a log replaces
its list when it rolls or deletes. So they may run in a thread beside the one that appends: then the last
segment grows under them. With `blocking=False` the thread that appends asks them, and they raise `WouldBlock` when what
they need is not in the page cache; an OSError is for the log to judge.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import LeaderEpoch, Offset
from tidelog.ports.disk import FileRange
from tidelog.records.errors import InvalidBatch
from tidelog.storage.errors import CorruptFile, CorruptTransactionIndex
from tidelog.storage.file_pool import UnheldFile
from tidelog.storage.segment import Segment
from tidelog.storage.segment_order import floor_index, index_behind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.storage.transaction_index import AbortedTransaction


class ReadResult(NamedTuple):
    """What a fetch gets."""

    ranges: list[FileRange]
    """To be released by the connection that sends them; none when there is nothing to read."""
    size: int
    """Bytes in all."""
    first_batch_size: int = 0
    """Bytes of the first batch where more were asked for than it fits into; 0 where that was not looked up."""
    segment: Segment | None = None
    """What was read from; None when there is nothing."""


class RangeCheck(Protocol):
    """What a range has to pass before it is handed out."""

    def __call__(self, segment: Segment, position: int, end: int, *, is_recent: bool, end_offset: int | None) -> int:
        """Up to where it may be handed out, where a batch ends or `end`; `RottenBatch` if that is nowhere.

        `is_recent` says that the batch at `position` begins with the offset that is read; `end_offset` is where the
        next segment begins, None for the last segment.
        """
        ...


class FoundRecord(NamedTuple):
    """A record found by its timestamp."""

    timestamp: int
    offset: Offset
    leader_epoch: LeaderEpoch


EMPTY_READ: Final = ReadResult([], 0)


def read_batches(
    segments: list[Segment],
    recent: Mapping[int, int],
    offset: int,
    max_bytes: int,
    *,
    up_to_offset: int,
    log_end_offset: int,
    min_one_batch: bool,
    blocking: bool,
    check: RangeCheck | None = None,
    is_gapless: bool = False,
) -> ReadResult:
    """The bytes from the batch that holds `offset`, or is the first after it, to below `up_to_offset`; of one segment.

    `recent` gives the positions of newly appended batches of the last segment by their first offset, so that readers
    at the end of the log need no index. `InvalidBatch` where a segment of a log that `is_gapless` ends below the next.
    """
    last = len(segments) - 1
    for index in range(floor_index(segments, offset), last + 1):
        segment = segments[index]
        position = recent.get(offset) if index == last else None
        first_size: int | None = None
        if position is None:
            found = segment.find(offset, blocking=blocking)
            if found is None:
                if is_gapless and index < last and offset < segments[index + 1].base_offset:
                    raise InvalidBatch(
                        ErrorCode.CORRUPT_MESSAGE,
                        f"is missing: its segment ends below {segments[index + 1].base_offset}",
                    )
                continue  # Compaction has left a gap at the end of that segment.
            position, first_size = found.position, found.header.size
        end = segment.size
        end_offset = None if index == last else segments[index + 1].base_offset
        # On an I/O thread `end` may already hold batches that were appended after `log_end_offset` was taken.
        may_have_grown = blocking and index == last
        if may_have_grown or up_to_offset < (log_end_offset if end_offset is None else end_offset):
            known = recent.get(up_to_offset) if index == last else None
            if known is None:
                known = segment.find_end(position, up_to_offset, max_bytes, blocking=blocking)
            end = known
        size, first = _size(
            segment, position, end, first_size, max_bytes, min_one_batch=min_one_batch, blocking=blocking
        )
        if check is not None and (size or not first):
            # Where there is nothing before `end`, though more is committed, a batch may say too large an offset.
            is_recent = first_size is None
            sound = check(segment, position, position + max(size, 1), is_recent=is_recent, end_offset=end_offset)
            size = min(size, sound - position)
        if size <= 0:
            return ReadResult([], 0, first)
        return ReadResult([_range(segment, position, size)], size, first, segment)
    return EMPTY_READ


def _range(segment: Segment, position: int, size: int) -> FileRange:
    pooled = segment.log_file
    if pooled.is_crowded:
        return FileRange(UnheldFile(pooled), position, size)
    with pooled as file:
        return FileRange(file, position, size, pooled)


def _size(
    segment: Segment,
    position: int,
    end: int,
    first_size: int | None,
    max_bytes: int,
    *,
    min_one_batch: bool,
    blocking: bool,
) -> tuple[int, int]:
    """Bytes to read, and those of the first batch where they were looked up.

    `first_size` is that of the batch at `position`; None where it is not known yet.
    """
    size = end - position
    if size <= 0:
        return 0, 0
    first = 0
    if size > max_bytes:
        if first_size is None:
            header = segment.header_at(position, blocking=blocking)
            first_size = size if header is None else header.size
        first = min(first_size, size)
        if first > max_bytes and not min_one_batch:
            return 0, first
        size = max(max_bytes, first)
    return size, first


class GreatestTimestamps:
    """The greatest timestamp up to the end of each closed segment of a log: of thousands of segments, those that end
    before a time are passed over by halving."""

    __slots__ = ("_up_to", "segments")

    def __init__(self, segments: list[Segment], *, blocking: bool) -> None:
        """`segments` are the log's, whose last one grows."""
        self.segments = segments
        closed = (segment.max_timestamp_so_far(blocking=blocking).timestamp for segment in segments[:-1])
        self._up_to = list(accumulate(closed, max))

    def index_of_first_as_late_as(self, timestamp: int) -> int:
        """Index of the first segment that may have a record as late as `timestamp`."""
        return bisect_left(self._up_to, timestamp)


def first_as_late_as(
    segments: list[Segment], timestamp: int, *, from_offset: int, blocking: bool, first: int = 0
) -> FoundRecord | None:
    """The first record at or after `from_offset` whose timestamp is at least `timestamp`; those segments before the
    one with the index `first` have none."""
    for segment in islice(segments, first, None):
        if segment.max_timestamp_so_far(blocking=blocking).timestamp >= timestamp:
            found = segment.find_timestamp(timestamp, from_offset, blocking=blocking)
            if found is not None:
                return _found(found)
    return None


def latest_record(segments: list[Segment], *, blocking: bool) -> FoundRecord | None:
    """The first of the records that have the greatest timestamp (KIP-734)."""
    latest: Segment | None = None
    greatest = -1
    for segment in segments:
        timestamp = segment.max_timestamp_so_far(blocking=blocking).timestamp
        if timestamp > greatest:
            latest, greatest = segment, timestamp
    found = None if latest is None else latest.find_max_timestamp(blocking=blocking)
    return None if found is None else _found(found)


def _found(found: tuple[int, int, int]) -> FoundRecord:
    timestamp, offset, epoch = found
    return FoundRecord(timestamp, Offset(offset), LeaderEpoch(epoch))


def end_of_read(segments: list[Segment], result: ReadResult, up_to_offset: int, *, blocking: bool) -> int:
    """An offset behind the records that a read of committed ones gave, not far behind: what is told of those beyond it
    is of no use to the reader, and could be much."""
    segment = result.segment
    if segment is None:
        return up_to_offset
    last = result.ranges[-1]
    if last.position + last.size < segment.size:
        behind = segment.index_entry_behind(last.position + last.size, blocking=blocking)
        if behind is not None:
            return min(behind.offset, up_to_offset)
    following = index_behind(segments, segment.base_offset)
    return min(segments[following].base_offset, up_to_offset) if following < len(segments) else up_to_offset


def aborted_transactions(
    segments: list[Segment], start_offset: int, end_offset: int, *, ended_from: int, blocking: bool = True
) -> list[AbortedTransaction]:
    """The aborted transactions with records in start_offset .. end_offset - 1, whose marker is not before
    `ended_from`. `CorruptTransactionIndex`."""
    found: list[AbortedTransaction] = []
    for segment in segments[floor_index(segments, start_offset) :]:
        try:
            entries, complete = segment.transaction_index.collect(ended_from, end_offset, blocking=blocking)
        except CorruptFile as damage:
            raise CorruptTransactionIndex(segment.base_offset, str(damage)) from damage
        found += entries
        if complete:
            break
    return found
