"""One replica's folder: its segments, where a record lies in them, which transactions were aborted, what is decided.

Nothing is remembered from one question to the next: a broker may roll, compact and remove segments meanwhile.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from pyspark_tidelog.segments.directories import PartitionFolder, topic_id_of
from tidelog.model.errors import ErrorCode
from tidelog.ports.disk import Bytes, Disk, File
from tidelog.records.batch import HEADER_SIZE, BatchHeader, check_crc, read_header
from tidelog.records.columns import Column, decode_columns
from tidelog.records.errors import InvalidBatch
from tidelog.storage.errors import CorruptFile
from tidelog.storage.file_names import (
    CLEANED,
    INDEX,
    LOG,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    parse_segment_file,
    segment_file,
)
from tidelog.storage.offset_index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE, decode_offset_entries, decode_time_entries
from tidelog.storage.producer_snapshots import decode_snapshot
from tidelog.storage.transaction_index import AbortedTransaction, decode_transactions

logger: Final = logging.getLogger(__name__)

_LOOKS_MAX: Final = 8
"""Times that a look at the folder is repeated whose files were renamed meanwhile."""
_HOP_BYTES: Final = 64 << 10
"""Read at once where only headers are wanted: batches behind are hopped over."""


class FolderChanged(Exception):
    """Files are renamed faster than they can be opened, or the folder is another topic's now."""


class AbortedSpans:
    """Which batches a reader of committed records skips: those of a producer between the first record of an aborted
    transaction and its marker. `records.columns.BatchFilter`."""

    __slots__ = ("_spans",)

    def __init__(self, aborted: list[AbortedTransaction]) -> None:
        self._spans: dict[int, list[tuple[int, int]]] = {}
        for entry in sorted(set(aborted), key=lambda each: each.first_offset):
            self._spans.setdefault(entry.producer_id, []).append((entry.first_offset, entry.last_offset))

    def skips(self, buffer: Bytes, position: int, header: BatchHeader) -> bool:
        if not header.is_transactional or header.is_control:
            return False
        spans = self._spans.get(header.producer_id)
        if spans is None:
            return False
        last = bisect_right(spans, header.base_offset, key=lambda span: span[0]) - 1
        return last >= 0 and header.base_offset <= spans[last][1]


class Segment(NamedTuple):
    """A segment that is open for reading."""

    file: File
    base_offset: int
    next_base: int | None
    """Where the next segment begins; None for the last one."""
    position: int
    """Where in the file to begin: at or before the batch that was looked for."""


class PartitionFiles:
    """The files of one replica."""

    def __init__(self, disk: Disk, folder: PartitionFolder) -> None:
        self._disk = disk
        self.folder = folder

    def base_offsets(self) -> list[int]:
        """Where the segments begin, ascending; FolderChanged where the folder is gone."""
        return sorted({base for base, _ in self._files(LOG)})

    @contextmanager
    def opened(self, offset: int) -> Iterator[Segment | None]:
        """The segment in which `offset` lies or would lie; None where the first one begins later."""
        for _ in range(_LOOKS_MAX):
            names = self._files(LOG)
            bases = sorted({base for base, _ in names})
            slot = bisect_right(bases, offset) - 1
            if slot < 0:
                yield None
                return
            base = bases[slot]
            # While a cleaned segment takes an old one's place both may be there.
            name = min(name for other, name in names if other == base)
            try:
                file = self._disk.open(f"{self.folder.path}/{name}", read_only=True)
            except FileNotFoundError:
                continue
            try:
                if topic_id_of(self._disk, self.folder.path) != self.folder.topic_id:
                    raise FolderChanged(f"{self.folder.path} is another topic's now")
                following = bases[slot + 1] if slot + 1 < len(bases) else None
                position = 0 if offset == base else self._position(file, base, offset)
                yield Segment(file, base, following, position)
            finally:
                file.close()
            return
        raise FolderChanged(f"the segments of {self.folder.path} are replaced again and again")

    def aborted(self) -> list[AbortedTransaction]:
        """Every transaction that is known as aborted below the high watermark, of whichever state of the files."""
        for _ in range(_LOOKS_MAX):
            entries: list[AbortedTransaction] = []
            try:
                for _, name in self._files(TRANSACTION_INDEX, removed=True):
                    data = self._disk.read(f"{self.folder.path}/{name}")
                    entries += decode_transactions(data)
            except FileNotFoundError:
                continue
            except CorruptFile as error:
                raise CorruptFile(f"{self.folder.path}/{name}: {error}") from error
            return [entry for entry in entries if entry.last_offset < self.folder.high_watermark]
        raise FolderChanged(f"the transaction indexes of {self.folder.path} are replaced again and again")

    def stable_end(self, end: int) -> int:
        """Up to where, at most `end`, every transaction is decided by a marker below the high watermark."""
        high_watermark = self.folder.high_watermark
        end = min(end, high_watermark)
        offset, first_offsets = self._snapshot()
        if min([offset, *first_offsets.values()]) >= end:
            return end
        reached = offset
        try:
            for _, _, header in self.headers(offset, high_watermark):
                if header.is_control:
                    first_offsets.pop(header.producer_id, None)
                elif header.is_transactional:
                    first_offsets.setdefault(header.producer_id, header.base_offset)
                reached = header.next_offset
        except InvalidBatch:
            end = min(end, reached)
        return min([end, *first_offsets.values()])

    def end(self) -> int:
        """Behind the last batch below the high watermark that is there."""
        # Nearly always that reaches the high watermark, and the index leads to it.
        if self._has(self.folder.high_watermark - 1):
            return self.folder.high_watermark
        bases = self.base_offsets()
        last = bases[-1] if bases else 0
        try:
            for _, _, header in self.headers(last, self.folder.high_watermark):
                last = header.next_offset
        except InvalidBatch as error:
            logger.warning("segment_damaged: folder=%s offset=%d reason=%s", self.folder.path, last, error.message)
        return min(last, self.folder.high_watermark)

    def _has(self, offset: int) -> bool:
        """Whether a batch holds `offset`; False where that cannot be read."""
        try:
            return next((header.base_offset <= offset for _, _, header in self.headers(offset, offset + 1)), False)
        except InvalidBatch:
            return False

    def start(self) -> int:
        """The first offset that counts as there."""
        bases = self.base_offsets()
        return max(self.folder.log_start, bases[0] if bases else self.folder.high_watermark)

    def first_as_late_as(self, timestamp: int, start: int, end: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record from `start` to before `end` that is as late; None: there is none.

        A marker that is as late counts as a record. InvalidBatch where a batch is damaged.
        """
        for file, position, header in self.headers(self._worth_looking(timestamp, start), end):
            if header.max_timestamp < timestamp or header.next_offset <= start:
                continue
            if header.is_control:
                return header.base_offset, header.max_timestamp
            found = _first_in(file.pread(header.size, position), timestamp, start, end)
            if found is not None:
                return found
        return None

    def headers(self, start: int, end: int) -> Iterator[tuple[File, int, BatchHeader]]:
        """The headers of the batches from the one that holds `start` to before `end`, with file and position of each.

        InvalidBatch where something else lies between, or batches are missing between two segments.
        """
        offset = start
        while offset < end:
            with self.opened(offset) as segment:
                if segment is None:
                    return
                for position, header in _hop(segment.file, segment.position):
                    if header.base_offset >= end:
                        return
                    if header.next_offset > offset:
                        yield segment.file, position, header
                        offset = header.next_offset
                        if offset >= end:
                            return
                if segment.next_base is None:
                    return
                if offset < segment.next_base and segment.next_base > self.folder.cleaned_offset:
                    raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"{segment.file.path} ends at offset {offset}")
                offset = max(offset, segment.next_base)

    def _worth_looking(self, timestamp: int, start: int) -> int:
        """Where to begin: behind the segments whose time indexes say that all in them is older."""
        bases = self.base_offsets()
        slot = max(0, bisect_right(bases, start) - 1)
        while slot + 1 < len(bases) and self._is_older(bases[slot], timestamp):
            slot += 1
        return max(start, bases[slot]) if bases else start

    def _is_older(self, base: int, timestamp: int) -> bool:
        """Whether the time index of a closed segment ends before `timestamp`; False where it does not tell."""
        try:
            data = self._disk.read(f"{self.folder.path}/{segment_file(base, TIME_INDEX)}")
        except FileNotFoundError:
            return False
        last = data[-TIME_ENTRY_SIZE:]
        if len(data) % TIME_ENTRY_SIZE or not any(last):
            return False
        return decode_time_entries(last)[0][0] < timestamp

    def _position(self, file: File, base: int, offset: int) -> int:
        """Where the index says that a batch at or before `offset` begins, if one does."""
        try:
            data = self._disk.read(f"{self.folder.path}/{segment_file(base, INDEX)}")
        except FileNotFoundError:
            return 0
        offsets, positions = decode_offset_entries(data[: len(data) - len(data) % OFFSET_ENTRY_SIZE])
        count = len(positions)
        if count and positions[count - 1] == 0:  # Room for further entries of the segment that is appended to.
            count = bisect_left(positions, True, key=lambda position: position == 0)
        slot = bisect_right(offsets, offset - base, 0, count) - 1
        if slot < 0:
            return 0
        position: int = positions[slot]
        # The index may be of another state of the file, or damaged.
        header = _header_at(file, position)
        if header is None or header.base_offset > offset:
            return 0
        try:
            check_crc(file.pread(header.size, position), 0, header)
        except InvalidBatch:
            return 0
        return position

    def _snapshot(self) -> tuple[int, dict[int, int]]:
        """An offset, as late as can be, at which the open transactions are known: [producer id] -> first offset."""
        bases = self.base_offsets()
        # What was cleaned was decided before; its markers may be gone.
        first = max(bases[0] if bases else 0, self.folder.cleaned_offset)
        for offset, name in sorted(self._files(SNAPSHOT), reverse=True):
            if first <= offset <= self.folder.high_watermark:
                try:
                    entries = decode_snapshot(self._disk.read(f"{self.folder.path}/{name}"))
                except (FileNotFoundError, CorruptFile):
                    continue
                opened = {each.producer_id: each.transaction_first_offset for each in entries}
                return offset, {producer: start for producer, start in opened.items() if start >= 0}
        return first, {}

    def _files(self, suffix: str, *, removed: bool = False) -> list[tuple[int, str]]:
        """Base offset and name of the files of a kind that count; `removed`: also of those on their way out."""
        try:
            names = self._disk.list(self.folder.path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise FolderChanged(f"{self.folder.path} is gone") from error
        found = []
        for name in names:
            parsed = parse_segment_file(name)
            if parsed is None or parsed[1] != suffix or CLEANED in parsed[2]:
                continue
            if parsed[2] in ("", SWAP) or removed:
                found.append((int(parsed[0]), name))
        return found


def _header_at(file: File, position: int) -> BatchHeader | None:
    data = file.pread(HEADER_SIZE, position)
    if len(data) < HEADER_SIZE:
        return None
    try:
        return read_header(data, 0)
    except InvalidBatch:
        return None


def _hop(file: File, position: int) -> Iterator[tuple[int, BatchHeader]]:
    """Where each batch of a file begins, from `position` on, and its header; InvalidBatch."""
    size = file.size()
    buffer, start = b"", position
    while size - position >= HEADER_SIZE:
        if position - start + HEADER_SIZE > len(buffer):
            buffer, start = file.pread(_HOP_BYTES, position), position
        header = read_header(buffer, position - start)
        if position + header.size > size:
            raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, "the last batch is cut short")
        yield position, header
        position += header.size


def _first_in(batch: bytes, timestamp: int, start: int, end: int) -> tuple[int, int] | None:
    """Of one batch the first record from `start` to before `end` that is as late as `timestamp`."""
    found = decode_columns(batch, start_offset=start, end_offset=end, columns=Column.OFFSET | Column.TIMESTAMP)
    if not found.rows:
        return None
    assert found.offset is not None
    assert found.timestamp is not None
    offsets, timestamps = memoryview(found.offset).cast("q"), memoryview(found.timestamp).cast("q")
    return next(((offset, late) for offset, late in zip(offsets, timestamps, strict=True) if late >= timestamp), None)
