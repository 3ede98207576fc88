"""One segment of a log: the batches from its base offset on, in one file, with the indexes that find them.

A segment knows its file (`segment_files`), how long it is, and its sparse indexes. It does not know what lies before or
after it; rolling, retention and recovery of the whole are the log's affair.
"""

from __future__ import annotations

import logging
import threading
from array import array
from bisect import bisect_right
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import NO_LEADER_EPOCH
from tidelog.records.batch import HEADER_SIZE, BatchHeader, InvalidBatch, read_header, read_records
from tidelog.records.compaction import index_batches
from tidelog.storage.batch_scan import contradicts_next, valid_batches
from tidelog.storage.errors import CorruptIndex, WouldBlock
from tidelog.storage.file_names import INDEX, LOG
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
    from collections.abc import Callable, Collection, Iterator, Sequence

    from tidelog.ports.disk import File
    from tidelog.storage.file_pool import FilePool
    from tidelog.storage.log_config import LogConfig

    BeforeCut = Callable[[File, int, int, int, int], None]

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")

_PAGE: Final = 4096
"""Bytes read at once while looking for a batch: at most an index interval and a header."""
EPOCH_STEP_MAX: Final = 255
"""By how much a leader epoch rises from one batch to the next in recovery, unless its checkpoint knows the epoch: an
election raises it by one or two."""


class FoundBatch(NamedTuple):
    """A batch located in a segment."""

    position: int
    header: BatchHeader


class Segment(SegmentFiles):
    """A .log file and its indexes. Not thread safe, but for lookups beside one appender."""

    __slots__ = (
        "_is_torn",
        "_is_unfinished",
        "_preallocated",
        "_rebuilding",
        "_timestamp_known",
        "bytes_since_index_entry",
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
        """A segment whose files exist; `create` makes new ones."""
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
        self._preallocated = False
        self._is_unfinished = False
        """Whether batches came since the indexes were last finished."""
        self.rotten: dict[int, int] = {}
        """[position] -> where the next sound batch begins, of batches known to be rotten; replaced, never changed."""
        self.verified: tuple[Verified, ...] = ()
        """Ranges that were found sound lately, newest first; replaced, never changed."""
        self._is_torn = False
        """Whether bytes may lie behind `size`, of a write that failed."""
        self._rebuilding: threading.RLock | None = None
        """Held by a thread that writes the indexes anew; None before the first one."""

    @classmethod
    def create(cls, pool: FilePool, directory: str, base_offset: int, config: LogConfig, *, now_ms: int) -> Segment:
        """Creates the files of an empty segment; nothing is synced."""
        segment = cls(pool, directory, base_offset, config, size=0, created_ms=now_ms)
        segment.create_files()
        segment._preallocated = True
        return segment

    # Appending.

    def check_indexes(self) -> None:
        """Makes sure that both can be appended to; one that cannot be what it says is written anew."""
        if self.size:
            self._load_max_timestamp(blocking=True)
            self._repaired(lambda: (self.offset_index.tail(), self.time_index.tail()))

    def preallocate_indexes(self) -> None:
        """Makes the index files as long as they may become, as those of an active segment are."""
        if not self._preallocated:
            for index in (self.offset_index, self.time_index):
                index.tail()  # Counted before the zeros come.
                index.preallocate()
            self._preallocated = True

    def append(self, data: bytes | bytearray | memoryview, batches: list[tuple[int, BatchHeader]]) -> None:
        """Appends whole batches; `batches` are their positions in `data`, and headers with final offsets and
        timestamps.

        OSError if the disk refuses: nothing was appended. Bytes that could not be taken back lie behind `size`, where
        nobody reads them, and go before the next append.
        """
        position = self.size
        interval = self.config.index_interval_bytes
        # All that may fail comes before the bytes, or is the bytes.
        if not self._timestamp_known:
            self._load_max_timestamp(blocking=True)
        if self.bytes_since_index_entry + len(data) > interval:
            self._prepare_indexes()
        with self.log_file as file:
            if self._is_torn:
                file.truncate(position)
                self._is_torn = False
            try:
                file.pwrite(data, position)
            except OSError:
                self._take_back(file)
                raise
        for _, header in batches:
            last_offset = header.base_offset + header.last_offset_delta
            if header.max_timestamp > self.max_timestamp and header.records_count:
                self.max_timestamp = header.max_timestamp
                self.max_timestamp_offset = last_offset
            if self.bytes_since_index_entry > interval:
                self._add_index_entry(last_offset, position)
                self.bytes_since_index_entry = 0
            size = header.length + 12
            position += size
            self.bytes_since_index_entry += size
        self._is_unfinished = True
        if self.first_timestamp is None and self.size == 0:
            self.first_timestamp = batches[0][1].max_timestamp
        self.size = position

    def _load_index_ends(self) -> None:
        self.offset_index.prepare()
        self.time_index.prepare()

    def _take_back(self, file: File) -> None:
        """Removes what a failed write has left behind the end, now or before the next append."""
        self._is_torn = True
        if self.config.preallocate:
            return
        try:
            if file.size() > self.size:
                file.truncate(self.size)
            self._is_torn = False
        except OSError as error:
            logger.warning("torn_write_left: path=%s size=%d error=%s", file.path, self.size, error)

    def _prepare_indexes(self) -> None:
        """Makes room for entries, so that adding them touches memory alone."""
        self._repaired(self._load_index_ends)
        if not self._preallocated:
            self.preallocate_indexes()

    def append_indexed(self, data: bytes | bytearray) -> None:
        """As `append`, of batches that need no looking at one by one: what compaction writes. OSError."""
        with self.log_file as file:
            file.pwrite(data, self.size)
        entries, self.bytes_since_index_entry, self.max_timestamp, self.max_timestamp_offset = index_batches(
            data,
            self.size,
            self.config.index_interval_bytes,
            self.bytes_since_index_entry,
            self.max_timestamp,
            self.max_timestamp_offset,
        )
        for last_offset, position, timestamp, timestamp_offset in entries:
            if not self.offset_index.is_full:
                self.offset_index.append(last_offset, position)
            if not self.time_index.is_full:
                self.time_index.maybe_append(timestamp, timestamp_offset)
        self._is_unfinished = True
        self.size += len(data)

    def _add_index_entry(self, last_offset: int, position: int) -> None:
        """A full index takes no more: the next append rolls, until then lookups scan a little further."""
        if not self.offset_index.is_full:
            self.offset_index.note(last_offset, position)
        if not self.time_index.is_full:
            self.time_index.note(self.max_timestamp, self.max_timestamp_offset)

    def should_roll(
        self, config: LogConfig, jitter_ms: int, size: int, max_timestamp: int, last_offset: int, now_ms: int
    ) -> bool:
        """Whether `size` bytes of batches that end with `last_offset` belong into a new segment."""
        if self.size > config.segment_bytes - size or last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if self.size > 0 and self.waited_ms(max_timestamp, now_ms) > config.roll_ms - jitter_ms:
            return True
        offset_index, time_index = self._offset_index, self._time_index
        if offset_index is None or time_index is None:
            offset_index, time_index = self.offset_index, self.time_index
        return offset_index.is_full or time_index.is_full

    def waited_ms(self, max_timestamp: int, now_ms: int) -> int:
        """The age that `segment.ms` is compared with: by the records' own time if they have one, else since its
        creation."""
        first_timestamp = self.first_batch_timestamp()
        if first_timestamp >= 0:
            return max_timestamp - first_timestamp
        return now_ms - self.created_ms

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

    def become_inactive(self) -> None:
        """The last time entry is written, the indexes are trimmed: nothing will be appended any more."""
        self._finish_indexes()
        with self.log_file as file:
            if file.size() != self.size:
                file.truncate(self.size)
        self._is_torn = False
        self.offset_index.forget_tail()
        self.time_index.forget_tail()

    def _finish_indexes(self) -> bool:
        """True if that changed a file."""
        self._load_max_timestamp(blocking=True)
        if self.max_timestamp > NO_TIMESTAMP:
            self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
        changed = self.offset_index.trim()
        changed = self.time_index.trim() or changed
        self._preallocated = self._is_unfinished = self._is_new = False
        return changed

    # Finding.

    def header_at(self, position: int, *, blocking: bool = True) -> BatchHeader | None:
        """The header of the batch at `position`; None at the end of the segment."""
        if self.size - position < HEADER_SIZE:
            return None
        with self.log_file as file:
            return read_header(_read(file, HEADER_SIZE, position, blocking=blocking))

    def headers(self, position: int, *, blocking: bool = True, chunk: int = _PAGE) -> Iterator[FoundBatch]:
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
        """The first entry of the offset index at or behind `position`; None if there is none."""
        return self._repaired(lambda: self.offset_index.lookup_position(position, blocking=blocking), blocking=blocking)

    def find(self, offset: int, *, blocking: bool = True) -> FoundBatch | None:
        """The batch that holds `offset`, or the first after it; None when the segment ends before."""
        return self._repaired(lambda: self._find(offset, blocking=blocking), blocking=blocking)

    def _find(self, offset: int, *, blocking: bool) -> FoundBatch | None:
        entry = self.offset_index.lookup(offset, blocking=blocking)
        size, rotten = self.size, self.rotten
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
        with self._pool.lock:
            if self._rebuilding is None:
                self._rebuilding = threading.RLock()
        with self._rebuilding:
            self.rebuild_indexes()  # Unless the log itself is damaged.
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
        if not self._timestamp_known:
            self._repaired(lambda: self._read_max_timestamp(blocking=blocking), blocking=blocking)

    def _read_max_timestamp(self, *, blocking: bool) -> None:
        timestamp, offset = self.time_index.last(blocking=blocking)
        # Batches behind the last time entry were not yet late enough for an entry, or came after it.
        entry = self.offset_index.lookup(offset, blocking=blocking)
        for found in self._headers_from(entry, blocking=blocking):
            if found.header.max_timestamp > timestamp and found.header.records_count:
                timestamp, offset = found.header.max_timestamp, found.header.last_offset
        self.max_timestamp, self.max_timestamp_offset = timestamp, offset
        self._timestamp_known = True

    def find_timestamp(
        self, timestamp: int, start_offset: int, *, blocking: bool = True
    ) -> tuple[int, int, int] | None:
        """Timestamp, offset and leader epoch of the first record at or after `start_offset` that is as late as
        `timestamp`."""
        return self._repaired(
            lambda: self._find_timestamp(timestamp, start_offset, blocking=blocking), blocking=blocking
        )

    def _find_timestamp(self, timestamp: int, start_offset: int, *, blocking: bool) -> tuple[int, int, int] | None:
        offset = max(self.time_index.lookup(timestamp, blocking=blocking).offset, start_offset)
        entry = self.offset_index.lookup(offset, blocking=blocking)
        for found in self._headers_from(entry, blocking=blocking):
            header = found.header
            if header.max_timestamp < timestamp or header.last_offset < start_offset:
                continue
            for record in read_records(self.batch_bytes(found, blocking=blocking)):
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    return record.timestamp, record.offset, header.partition_leader_epoch
        return None

    def find_max_timestamp(self, *, blocking: bool = True) -> tuple[int, int, int] | None:
        """Timestamp, offset and leader epoch of the first record that has the segment's largest timestamp."""
        timestamp, offset = self.max_timestamp_so_far(blocking=blocking)
        if timestamp < 0:
            return None
        found = self.find(offset, blocking=blocking)
        if found is None:
            return None
        for record in read_records(self.batch_bytes(found, blocking=blocking)):
            if record.timestamp == timestamp:
                return timestamp, record.offset, found.header.partition_leader_epoch
        return None

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

    # Changing what is there.

    def truncate_to(self, offset: int, now_ms: int) -> FoundBatch | None:
        """Removes the batch that holds `offset` and what follows; gives the first batch removed, None if there is none.

        The segment may be appended to again, and its indexes go on as if what was removed had never been there.
        OSError: nothing was removed. Afterwards `transaction_index.cut` makes that file shorter, too.
        """
        # Of a segment that is emptied nothing has to be readable.
        is_emptied = offset <= self.base_offset
        found = None if is_emptied else self.find(offset)
        position = 0 if is_emptied else None if found is None else found.position
        self.rotten, self.verified = {}, ()
        # Entries that are missing from the offset and the time index do no harm, those of what is no more would.
        for index in (self.offset_index, self.time_index):
            index.truncate_to(offset)
        transactions = self.transaction_index.size_below(offset)
        last_position = self.offset_index.last().position
        self._preallocated = False
        self._is_unfinished = True
        if position is not None:
            with self.log_file as file:
                file.truncate(position)
            self.size = position
            self._is_torn = False
        self.transaction_index.end_at(transactions)
        if self.size == 0:
            self.created_ms = now_ms
            self.first_timestamp = None
        self.bytes_since_index_entry = self.size - last_position
        if self.size == 0 or not self._timestamp_known or self.max_timestamp_offset >= offset:
            self._forget_timestamp()
        return found

    def rebuild_indexes(self) -> None:
        """Writes both indexes anew from the log. OSError: lookups go on with what was there, or is in memory."""
        offsets, positions = array(OffsetIndex.KEY_TYPE), array("I")
        timestamps, timestamp_offsets = array(TimeIndex.KEY_TYPE), array("I")
        base_offset, interval = self.base_offset, self.config.index_interval_bytes
        latest, latest_offset = NO_TIMESTAMP, base_offset
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
        self.offset_index.replace(offsets, positions)
        self.time_index.replace(timestamps, timestamp_offsets)
        self.max_timestamp, self.max_timestamp_offset = latest, latest_offset
        self._timestamp_known = True
        self._finish_indexes()

    def recover(
        self,
        latest_epoch: int = NO_LEADER_EPOCH,
        before_cut: BeforeCut | None = None,
        *,
        known_epochs: Collection[int] | None = None,
        may_have_gaps: bool = True,
    ) -> Iterator[tuple[FoundBatch, memoryview]]:
        """Every valid batch with its bytes, checked, and indexed as it goes by; then cuts the file behind the last of
        them. A batch whose leader epoch is below `latest_epoch`, or below that of the one before it, is not valid.

        This is recovery: the indexes are reset first, and finished when the caller has taken the last batch. The
        transaction index is the caller's to replace. `before_cut` is told of the file, the position of the cut, the
        file's size, and the next offset and the latest epoch at the cut; what it raises leaves the file as it is.
        `known_epochs` are those of the checkpoint: another one, far above those before, that the batch behind does not
        have is damaged; None to believe every one. `may_have_gaps`: whether compaction can have left gaps between
        offsets; else a batch behind one has a wrong offset, which no checksum covers.
        """
        for index in (self.offset_index, self.time_index):
            index.reset()
        self._preallocated = False
        self.first_timestamp = None
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self._timestamp_known = True
        with self.log_file as file:
            size = file.size()
            valid, last_entry, next_offset = 0, 0, self.base_offset
            for position, header, data in valid_batches(file, size):
                if header.base_offset < next_offset or header.last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
                    break
                if header.partition_leader_epoch < latest_epoch:
                    break
                is_last = position + header.size >= size
                if header.base_offset > next_offset and is_last and not may_have_gaps:
                    break  # Further on a gap is believed: the log may have been compacted under other settings.
                epoch = header.partition_leader_epoch
                is_unknown = (
                    known_epochs is not None and epoch > latest_epoch + EPOCH_STEP_MAX and epoch not in known_epochs
                )
                if header.base_offset > next_offset or is_unknown:
                    believed = latest_epoch if is_unknown else epoch
                    if contradicts_next(file, size, position, header, believed):
                        break
                next_offset, latest_epoch = header.next_offset, header.partition_leader_epoch
                last_entry = self._index(position, header, last_entry)
                self.size = valid = position + header.size
                yield FoundBatch(position, header), data
            if before_cut is not None and valid != size:
                before_cut(file, valid, size, next_offset, latest_epoch)
            self.size = valid
            if valid != size:
                file.truncate(valid)
        self.bytes_since_index_entry = 0
        self._finish_indexes()

    def _index(self, position: int, header: BatchHeader, last_entry: int) -> int:
        """Indexes a batch as `append` would have; gives the position of the last entry."""
        if header.max_timestamp > self.max_timestamp and header.records_count:
            self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset
        if position - last_entry > self.config.index_interval_bytes:
            self.offset_index.append(header.last_offset, position)
            self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
            return position
        return last_entry

    def _forget_timestamp(self) -> None:
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self._timestamp_known = self.size == 0

    def close(self) -> bool:
        """Finishes the indexes, as Kafka does, and closes the files; true if that changed a file."""
        changed = (self._preallocated or self._is_unfinished) and self._finish_indexes()
        if self.config.preallocate or self._is_torn:
            with self.log_file as file:
                if file.size() != self.size:
                    file.truncate(self.size)
                    changed = True
            self._is_torn = False
        self.release_files()
        return changed


def floor_index(segments: Sequence[Segment], offset: int) -> int:
    """Index of the one of a log's segments, oldest first, in which `offset` lies, or would."""
    if offset >= segments[-1].base_offset:
        return len(segments) - 1
    return max(bisect_right(segments, offset, key=_base_offset) - 1, 0)


_base_offset = attrgetter("base_offset")


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


class Verified(NamedTuple):
    """A range of a segment in which every batch was sound."""

    start: int
    end: int
    """Positions in the file; a batch begins at `start`, and one ends at `end`."""
    next_offset: int | None
    """The offset behind the batch that ends at `end`."""
    version: int
    """`File.version` before it was read."""
    until_ms: int
    """Monotonic time up to which it is trusted."""
