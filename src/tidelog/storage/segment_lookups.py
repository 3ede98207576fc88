"""Look-ups in one segment of a log, by offset, position and timestamp, and the sparse indexes that serve them.

An index that contradicts the log is written anew, and the question asked again. A question with `blocking=False` is
answered from the page cache, or raises `WouldBlock`.
"""

from __future__ import annotations

import logging
import threading
from array import array
from itertools import chain
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.records.batch import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    Codec,
    InvalidBatch,
    check_crc,
    find_timestamp,
    read_header,
)
from tidelog.records.batch_header import SIZE_PREFIX
from tidelog.storage.checked_ranges import NOTHING_ROTTEN, CheckUnderWay, Verified
from tidelog.storage.errors import CorruptIndex, WouldBlock
from tidelog.storage.file_names import INDEX, LOG, TIME_INDEX
from tidelog.storage.offset_index import (
    NO_TIMESTAMP,
    OFFSET_ENTRY_SIZE,
    RELATIVE_OFFSET_MAX,
    TIME_ENTRY_SIZE,
    IndexEntry,
    OffsetIndex,
    TimeEntry,
    TimeIndex,
)
from tidelog.storage.segment_files import SegmentFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.ports.disk import File
    from tidelog.storage.file_pool import FilePool
    from tidelog.storage.log_config import LogConfig

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")

_BATCH_START: Final = Struct(">qiibIhi")
"""Base offset, length, leader epoch, magic, CRC, attributes, last offset delta."""
NEAR_READS_MAX: Final = 2
"""Reads in which a batch is mostly found: it stands behind the one of the index entry, which may be large."""
_RECORDS_AT_ONCE_MAX: Final = 10_000
"""Records that are searched for a time beside the appends, uncompressed ones: less than a millisecond."""
LOOKUP_BYTES: Final = 4096
"""Bytes read at once while looking for a batch: at most an index interval and a header."""


class FoundBatch(NamedTuple):
    """A batch located in a segment."""

    position: int
    header: BatchHeader


class SegmentLookups(SegmentFiles):
    """What is in a .log file, found by its indexes; safe beside one appender."""

    __slots__ = (
        "_cuts",
        "_is_torn",
        "_is_unfinished",
        "_preallocated",
        "_rebuilding",
        "_timestamp_known",
        "_timestamps_forgotten",
        "bytes_since_index_entry",
        "check_under_way",
        "created_ms",
        "first_timestamp",
        "max_timestamp",
        "max_timestamp_offset",
        "rotten",
        "size",
        "verified",
    )

    def __init__(
        self, pool: FilePool, directory: str, base_offset: int, config: LogConfig, *, size: int, created_ms: int
    ) -> None:
        """A segment whose files exist; `Segment.create` makes new ones."""
        super().__init__(pool, directory, base_offset, config)
        self.size = size
        """Bytes of whole batches in the .log file."""
        self.created_ms = created_ms
        """Wall time at which it became a segment of this process: the start of `segment.ms` where no batch has a
        timestamp."""
        self.bytes_since_index_entry = 0
        self.first_timestamp: int | None = None
        """Of the first batch; None until it is asked for."""
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        """Last offset of the first batch that has `max_timestamp`."""
        self._timestamp_known = size == 0
        self._timestamps_forgotten = 0
        """Counts how often `max_timestamp` became unknown."""
        self._cuts = 0
        """Counts truncations, when they begin and when they are over."""
        self._preallocated = False
        self._is_unfinished = False
        """Whether batches came since the indexes were last finished."""
        self.rotten = NOTHING_ROTTEN
        """[position] -> where the next sound batch begins, of batches known to be rotten; replaced, never changed."""
        self.verified: tuple[Verified, ...] = ()
        """Ranges that were found sound lately, newest first; replaced, never changed."""
        self.check_under_way: CheckUnderWay | None = None
        """The last one that was begun, until it is over."""
        self._is_torn = False
        """Whether bytes may lie behind `size`, of a write that failed."""
        self._rebuilding: threading.RLock | None = None
        """Held by a thread that writes the indexes anew; None before the first one."""

    # Batches.

    def header_at(self, position: int, *, blocking: bool = True) -> BatchHeader | None:
        """The header of the batch at `position`; None at the end of the segment."""
        if self.size - position < HEADER_SIZE:
            return None
        with self.log_file as file:
            return read_header(_read(file, HEADER_SIZE, position, blocking=blocking))

    def headers(self, position: int, *, blocking: bool = True, chunk: int = LOOKUP_BYTES) -> Iterator[FoundBatch]:
        """The batches from `position` on, by their headers; ends before a torn one."""
        end = self.size
        buffer = b""
        start = position
        next_relative_offset = 0
        rotten = self.rotten
        while end - position >= HEADER_SIZE:
            if position in rotten:
                position = rotten[position]
                continue
            at = position - start
            if at + HEADER_SIZE > len(buffer):
                with self.log_file as file:
                    buffer = _read(file, min(chunk, end - position), position, blocking=blocking)
                start, at = position, 0
                if len(buffer) < HEADER_SIZE:
                    return
            header = read_header(buffer, at)
            if position + header.size > end:
                return
            first, last = header.base_offset - self.base_offset, header.last_offset - self.base_offset
            if not next_relative_offset <= first <= last <= RELATIVE_OFFSET_MAX:
                raise InvalidBatch(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"{self.path(LOG)} has offsets {header.base_offset} to {header.last_offset} at position {position}",
                )
            next_relative_offset = last + 1
            yield FoundBatch(position, header)
            position += header.size

    def index_entry(self, offset: int, *, blocking: bool = True) -> IndexEntry:
        """The last entry of the offset index at or before `offset`; (base offset, 0) if there is none."""
        return self._repaired(lambda: self.offset_index.lookup(offset, blocking=blocking), blocking=blocking)

    def index_entry_behind(self, position: int, *, blocking: bool = True) -> IndexEntry | None:
        """The first entry of the offset index at or behind `position`; None if there is none, or the log does not have
        what it says."""
        entry = self._repaired(
            lambda: self.offset_index.lookup_position(position, blocking=blocking), blocking=blocking
        )
        if entry is None:
            return None
        try:
            header = self.header_at(entry.position, blocking=blocking)
        except KafkaError:
            return None  # There is no batch, or it was cut away beside this thread.
        return entry if header is not None and header.last_offset == entry.offset else None

    def find(self, offset: int, *, blocking: bool = True) -> FoundBatch | None:
        """The batch that holds `offset`, or the first after it; None when the segment ends before."""
        return self._repaired(lambda: self._find(offset, blocking=blocking), blocking=blocking)

    def _find(self, offset: int, *, blocking: bool) -> FoundBatch | None:
        entry = self.offset_index.lookup(offset, blocking=blocking)
        size, rotten = self.size, self.rotten
        if not rotten:
            near = self._find_near(entry, offset, size, blocking=blocking)
            if near is not None:
                return near
        position = entry.position
        for found in self._headers_from(entry, blocking=blocking):
            if found.header.base_offset + found.header.last_offset_delta >= offset:
                if position in rotten and found.header.base_offset > offset:
                    break
                return found
            position = found.position + found.header.size
        else:
            if position >= size:
                return None
        raise InvalidBatch(
            ErrorCode.CORRUPT_MESSAGE, f"{self.path(LOG)} has no sound batch at position {position} of {size}"
        )

    def _find_near(self, entry: IndexEntry, offset: int, size: int, *, blocking: bool) -> FoundBatch | None:
        """As `_find`, among the first batches from the index entry on, where nearly all are found.

        None where it is not there, and where anything is wrong, so that `_find` judges what.
        """
        start, next_offset, end_offset = entry.position, self.base_offset, self.base_offset + RELATIVE_OFFSET_MAX
        with self.log_file as file:
            for _ in range(NEAR_READS_MAX):
                if size - start < HEADER_SIZE:
                    return None
                page, at = _read(file, min(LOOKUP_BYTES, size - start), start, blocking=blocking), 0
                while at + HEADER_SIZE <= len(page):
                    first, length, _, magic, _, _, last_delta = _BATCH_START.unpack_from(page, at)
                    last = first + last_delta
                    following = at + SIZE_PREFIX + length
                    if magic != MAGIC or following < at + HEADER_SIZE or start + following > size:
                        return None
                    if not next_offset <= first <= last <= end_offset:
                        return None
                    position = start + at
                    if position == entry.position > 0 and last != entry.offset:
                        return None
                    if last >= offset:
                        return FoundBatch(position, read_header(page, at))
                    at, next_offset = following, last + 1
                start += at
        return None

    def find_end(self, start: int, offset: int, max_bytes: int, *, blocking: bool = True) -> int:
        """The position behind the last batch below `offset`, of those from position `start` on.

        Where that cannot be told, for damage in between: a position behind `start` from where there is none. At least
        `max_bytes` behind it, if batches go so far.
        """
        size = self.size  # Before the search: what is appended beside it may be at `offset` or behind.
        try:
            found = self.find(offset, blocking=blocking)
            return min(size, self.size) if found is None else found.position
        except InvalidBatch:
            end = start
            try:
                for found in self.headers(start, blocking=blocking):
                    if found.header.last_offset >= offset or end - start >= max_bytes:
                        break
                    end = found.position + found.header.size
            except InvalidBatch:
                if end == start:
                    raise
            return end

    def _headers_from(self, entry: IndexEntry, *, blocking: bool) -> Iterator[FoundBatch]:
        """The batches from an entry of the offset index on; `CorruptIndex` unless the first of them ends with its
        offset."""
        batches = self.headers(entry.position, blocking=blocking)
        if entry.position == 0 or entry.position in self.rotten:
            return batches
        try:
            first = next(batches, None)
        except InvalidBatch as error:
            raise CorruptIndex(f"{self.path(INDEX)} points to {entry.position}: {error}") from error
        if first is None or first.header.last_offset != entry.offset:
            raise CorruptIndex(f"{self.path(INDEX)} has offset {entry.offset} at {entry.position}, the log does not")
        return chain((first,), batches)

    def _repaired(self, question: Callable[[], Answer], *, blocking: bool = True) -> Answer:
        """Asks again with indexes written anew, when they turn out to contradict the log; `WouldBlock` if that must not
        be now.

        A truncation beside this thread may have made them shorter between two steps of a lookup: first it begins again.
        """
        try:
            return question()
        except CorruptIndex as error:
            if not blocking:
                raise WouldBlock from error
        try:
            return question()
        except CorruptIndex as error:
            reason = error
        self.index_anew()  # Unless the log itself is damaged.
        logger.warning("index_rebuilt: path=%s reason=%s", self.log_file.path, reason)
        return question()

    def largest_timestamp(self, *, blocking: bool = True) -> int:
        """The largest timestamp of its records, or when the file was last written if they have none: what retention
        goes by."""
        self._load_max_timestamp(blocking=blocking)
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return self._pool.at_current_path(lambda: self.path(LOG), self._pool.disk.stat).modified_ms

    def max_timestamp_so_far(self, *, blocking: bool = True) -> TimeEntry:
        """The largest timestamp and the last offset of the first batch that has it; (-1, base offset) if there is
        none."""
        self._load_max_timestamp(blocking=blocking)
        return TimeEntry(self.max_timestamp, self.max_timestamp_offset)

    def _load_max_timestamp(self, *, blocking: bool) -> None:
        while not self._timestamp_known:
            self._repaired(lambda: self._read_max_timestamp(blocking=blocking), blocking=blocking)

    def _read_max_timestamp(self, *, blocking: bool) -> None:
        """Not taken over where the owner was faster, which then appends, or truncates meanwhile."""
        forgotten = self._timestamps_forgotten
        newest = self.time_index.last(blocking=blocking)
        timestamp, offset = newest
        # Batches behind the last time entry were not yet late enough for an entry, or came after it.
        # What a finished index says is the greatest; a header that contradicts it may have been misread.
        for found in self._headers_as_late_as(newest, offset, blocking=blocking):
            header: BatchHeader | None = found.header
            if self._is_unfinished or found.header.max_timestamp > timestamp:
                header = self._sound_header(found, blocking=blocking)
            if header is not None and header.max_timestamp > timestamp and header.records_count:
                timestamp, offset = header.max_timestamp, header.last_offset
        with self._pool.lock:
            if not self._timestamp_known and self._timestamps_forgotten == forgotten:
                self.max_timestamp, self.max_timestamp_offset = timestamp, offset
                self._timestamp_known = True

    def _headers_as_late_as(self, entry: TimeEntry, offset: int, *, blocking: bool) -> Iterator[FoundBatch]:
        """The batches from the one that holds `offset` on, or a little before; `offset` is not below that of `entry`.

        No checksum covers the time index, and retention goes by it. So `CorruptIndex` where the batch that `entry`
        names comes by, and is sound, and has another greatest timestamp; or where it does not come.
        """
        is_confirmed = entry.timestamp == NO_TIMESTAMP or offset > entry.offset
        for found in self._headers_from(self.offset_index.lookup(offset, blocking=blocking), blocking=blocking):
            header = found.header
            if not is_confirmed and header.last_offset >= entry.offset:
                is_told = header.base_offset <= entry.offset and header.max_timestamp == entry.timestamp
                if not is_told and not self.rotten and self._sound_header(found, blocking=blocking) is not None:
                    break
                is_confirmed = True
            yield found
        if not is_confirmed and not self.rotten:
            raise CorruptIndex(f"{self.path(TIME_INDEX)} has {tuple(entry)}, the log does not")

    def _sound_header(self, found: FoundBatch, *, blocking: bool) -> BatchHeader | None:
        """The header of a batch, read anew with all that its checksum covers; None where that does not hold."""
        data = self.batch_bytes(found, blocking=blocking)
        try:
            header = read_header(data)
            check_crc(data, 0, header)
        except InvalidBatch:
            return None
        return header

    def find_timestamp(
        self, timestamp: int, start_offset: int, *, blocking: bool = True
    ) -> tuple[int, int, int] | None:
        """Timestamp, offset and leader epoch of the first record at or after `start_offset` that is as late as
        `timestamp`."""
        return self._repaired(
            lambda: self._find_timestamp(timestamp, start_offset, blocking=blocking), blocking=blocking
        )

    def _find_timestamp(self, timestamp: int, start_offset: int, *, blocking: bool) -> tuple[int, int, int] | None:
        entry = self.time_index.lookup(timestamp, blocking=blocking)
        if entry.timestamp > timestamp:
            raise CorruptIndex(f"{self.path(TIME_INDEX)} is not sorted at {tuple(entry)}")
        offset = max(entry.offset, start_offset)
        for found in self._headers_as_late_as(entry, offset, blocking=blocking):
            header = found.header
            if header.max_timestamp < timestamp or header.last_offset < offset:
                continue
            record = self._record_as_late_as(found, timestamp, start_offset, blocking=blocking)
            if record is not None:
                return *record, header.partition_leader_epoch
        return None

    def _record_as_late_as(
        self, found: FoundBatch, timestamp: int, start_offset: int, *, blocking: bool
    ) -> tuple[int, int] | None:
        """Timestamp and offset of a batch's first record at or after `start_offset` that is as late as `timestamp`.

        What takes long is for another thread, even where it is in the page cache: a client's small batch may decompress
        to millions of records.
        """
        header = found.header
        if not blocking and (header.codec is not Codec.NONE or header.records_count > _RECORDS_AT_ONCE_MAX):
            raise WouldBlock
        return find_timestamp(self.batch_bytes(found, blocking=blocking), timestamp, start_offset)

    def find_max_timestamp(self, *, blocking: bool = True) -> tuple[int, int, int] | None:
        """Timestamp, offset and leader epoch of the first record that has the segment's largest timestamp."""
        timestamp, offset = self.max_timestamp_so_far(blocking=blocking)
        if timestamp < 0:
            return None
        found = self.find(offset, blocking=blocking)
        if found is None:
            return None
        record = self._record_as_late_as(found, timestamp, self.base_offset, blocking=blocking)
        return None if record is None else (*record, found.header.partition_leader_epoch)

    def batch_bytes(self, found: FoundBatch, *, blocking: bool = True) -> bytes:
        """A whole batch."""
        with self.log_file as file:
            return _read(file, found.header.size, found.position, blocking=blocking)

    def next_offset(self) -> int:
        """The offset after its last batch; the base offset of an empty segment."""
        if self.size == 0:
            return self.base_offset
        last = self.last_batch()
        return self.base_offset if last is None else last.header.next_offset

    def last_batch(self) -> FoundBatch | None:
        """Its last batch; None if it is empty."""
        return self._repaired(self._last_batch) if self.size else None

    def _last_batch(self) -> FoundBatch | None:
        entry = self.offset_index.lookup(self.base_offset + RELATIVE_OFFSET_MAX)
        last = None
        for found in self._headers_from(entry, blocking=True):
            last = found
        return last

    def first_batch_timestamp(self) -> int:
        """The largest timestamp of its first batch; -1 where there is none."""
        if self.first_timestamp is None and self.size > 0:
            try:
                header = self.header_at(0)
            except InvalidBatch:
                # Damage to old records is for their readers to meet; appends after them go on.
                header = None
            self.first_timestamp = header.max_timestamp if header is not None else NO_TIMESTAMP
        return NO_TIMESTAMP if self.first_timestamp is None else self.first_timestamp

    def index_sizes(self) -> tuple[int, int]:
        """Bytes that the entries of the offset and the time index take."""
        counts = self._repaired(lambda: (self.offset_index.count, self.time_index.count))
        return counts[0] * OFFSET_ENTRY_SIZE, counts[1] * TIME_ENTRY_SIZE

    # Indexes.

    def forget_files(self) -> None:
        """Of one whose indexes are not trimmed, how many entries they have is known by their handles alone."""
        if self._preallocated:
            self.release_files()
        else:
            super().forget_files()

    def index_anew(self) -> None:
        """As `rebuild_indexes`, in any thread."""
        with self._pool.lock:
            if self._rebuilding is None:
                self._rebuilding = threading.RLock()
        with self._rebuilding:
            self.rebuild_indexes()

    def rebuild_indexes(self) -> None:
        """Writes both indexes anew from the log. OSError: lookups go on with what was there, or is in memory.

        Once more where the log's owner has cut it meanwhile: else they would tell of batches that are gone.
        """
        cuts = -1
        while cuts != self._cuts:
            cuts = self._cuts
            self._write_indexes_anew()

    def _write_indexes_anew(self) -> None:
        offsets, positions = array(OffsetIndex.KEY_TYPE), array("I")
        timestamps, timestamp_offsets = array(TimeIndex.KEY_TYPE), array("I")
        base_offset, interval = self.base_offset, self.config.index_interval_bytes
        latest, latest_offset = NO_TIMESTAMP, base_offset
        forgotten = self._timestamps_forgotten
        last_entry = 0
        for position, header in self.headers(0):
            if header.max_timestamp > latest and header.records_count:
                latest, latest_offset = header.max_timestamp, header.last_offset
            if position - last_entry > interval:
                offsets.append(header.last_offset - base_offset)
                positions.append(position)
                if not timestamps or latest > timestamps[-1]:
                    timestamps.append(latest)
                    timestamp_offsets.append(latest_offset - base_offset)
                last_entry = position
        self._is_unfinished = True
        self.make_index_files()
        self.offset_index.replace(offsets, positions)
        self.time_index.replace(timestamps, timestamp_offsets)
        with self._pool.lock:
            # What is known may be of a batch that was appended meanwhile. What was forgotten was cut meanwhile.
            is_news = not self._timestamp_known or latest > self.max_timestamp
            if is_news and self._timestamps_forgotten == forgotten:
                self.max_timestamp, self.max_timestamp_offset = latest, latest_offset
                self._timestamp_known = True
        self._finish_indexes()

    def _finish_indexes(self) -> bool:
        """True if that changed a file. An empty segment that has no index files gets none."""
        if not self.size and not self.has_index_files:
            self._is_unfinished = False
            return False
        changed = self.make_index_files()
        self._load_max_timestamp(blocking=True)
        if self.max_timestamp > NO_TIMESTAMP:
            self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
        changed = self.offset_index.trim() or changed
        changed = self.time_index.trim() or changed
        self._preallocated = self._is_unfinished = False
        return changed

    def _forget_timestamp(self) -> None:
        with self._pool.lock:
            self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
            self._timestamp_known = self.size == 0
            self._timestamps_forgotten += 1


def _read(file: File, size: int, position: int, *, blocking: bool) -> bytes:
    data = file.pread(size, position) if blocking else file.probe(size, position)
    if data is None:
        raise WouldBlock
    if len(data) < size:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{file.path} ends at {position + len(data)}, {size} bytes at {position} expected",
        )
    return data
