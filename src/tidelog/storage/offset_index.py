"""The sparse index of one segment: which batch lies where (`.index`), and since when (`.timeindex`).

    .index       8 bytes an entry:  int32 offset - base offset | int32 position of the batch that ends with that offset
    .timeindex  12 bytes an entry:  int64 largest timestamp so far | int32 offset - base offset of the batch that has it

Both are big-endian, appended only, and sorted. An empty segment may be without them. The active segment's files are as
long as `segment.index.bytes` allows (zeros behind the last entry) and trimmed when the segment rolls or closes: the
count of entries is then the size of the file.

Only the newest entries are kept in memory: as many as a lookup near the end of the log needs, and those not yet
written, since one write of 64 entries costs as much as a write of one. An entry not yet written is no loss in a crash:
what is above the recovery point is indexed again from the log, and a flush of the log writes the entries first.
Older entries are found by a binary search on the file, through the page cache. The page where the search ended is kept
for as long as the file stays open: a reader that goes from offset to offset finds its next entries there.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.ports.disk import sync_file
from tidelog.storage.errors import CorruptIndex, WouldBlock

if TYPE_CHECKING:
    from tidelog.ports.disk import File
    from tidelog.storage.file_pool import PooledFile

WRITE_ENTRIES: Final = 64
"""Entries gathered before they are written."""
TAIL_ENTRIES: Final = 128
"""Newest entries kept in memory."""
_PAGE_ENTRIES: Final = 512

OFFSET_ENTRY_SIZE: Final = 8
TIME_ENTRY_SIZE: Final = 12
NO_TIMESTAMP: Final = -1
RELATIVE_OFFSET_MAX: Final = 2**31 - 1


class IndexEntry(NamedTuple):
    offset: int
    """The last offset of the batch at `position`; the segment's base offset where the index has no lower entry."""
    position: int


class TimeEntry(NamedTuple):
    timestamp: int
    """The largest timestamp in the segment up to `offset`; -1 where there is none."""
    offset: int
    """The last offset of the batch that has it."""


class _Tail:
    """Entries in memory: a window on the end of the file, and what is to be written to it.

    `keys` are what the index is sorted by, `values` what stands beside them; they hold the entries from `first` on, of
    which those from `written` on are not in the file yet.
    """

    __slots__ = ("first", "keys", "values", "written")

    def __init__(self, count: int, key_type: str) -> None:
        self.first = count
        self.written = count
        self.keys: array[int] = array(key_type)
        self.values: array[int] = array("I")

    @property
    def count(self) -> int:
        return self.first + len(self.keys)


class _Page(NamedTuple):
    """Entries of the file, kept with it while it is open."""

    tail: _Tail
    """The index's when they were read: another one may mean that the file was cut, and written again."""
    first: int
    """Which entry of the file the first of them is."""
    keys: array[int]
    values: array[int]

    def has_floor(self, tail: _Tail, key: int) -> bool:
        """Whether the last entry of the file whose key is at most `key` is known to be among them."""
        keys = self.keys
        return self.tail is tail and keys[0] <= key and (key < keys[-1] or self.first + len(keys) == tail.first)


class _SparseIndex(ABC):
    """What the two kinds share: counting, the tail, truncating, trimming."""

    __slots__ = ("_file", "_tail", "base_offset", "entries_max")

    ENTRY_SIZE: int
    BEGINS_WITH_ZEROS = False
    """Whether a first entry of zeros means something: a record of 1970 at the base offset."""
    KEY_TYPE: str

    def __init__(self, file: PooledFile, base_offset: int, *, size_max: int, count: int | None = None) -> None:
        """`count` is None for a file whose entries are to be counted when first needed."""
        self._file = file
        self.base_offset = base_offset
        self.entries_max = size_max // self.ENTRY_SIZE
        self._tail = None if count is None else _Tail(count, self.KEY_TYPE)

    @property
    def path(self) -> str:
        return self._file.path

    @path.setter
    def path(self, path: str) -> None:
        self._file.path = path

    def tail(self) -> _Tail:
        """The newest entries; counts those in the file the first time, all of them valid since it was trimmed."""
        tail = self._tail
        if tail is None:
            entry = self.ENTRY_SIZE
            with self._file as file:
                size = file.size()
                last = file.pread(entry, size - entry) if size >= entry else b"-"
            is_first = size == entry
            if size % entry or not (any(last) or (is_first and self.BEGINS_WITH_ZEROS)):
                raise CorruptIndex(f"{self.path} has {size} bytes, the last of them zeros: it was never finished")
            tail = self._tail = _Tail(size // entry, self.KEY_TYPE)
        return tail

    @property
    def count(self) -> int:
        return self.tail().count

    def write(self) -> None:
        """Writes the entries that are only in memory."""
        tail = self._tail
        if tail is None or tail.written == tail.count:
            return
        start = tail.written - tail.first
        with self._file as file:
            file.pwrite(self._encode(tail.keys[start:], tail.values[start:]), tail.written * self.ENTRY_SIZE)
        tail.written = tail.count
        excess = len(tail.keys) - TAIL_ENTRIES
        if excess > 0:
            # New arrays, so that a lookup in another thread goes on with what it has.
            shorter = _Tail(tail.first + excess, self.KEY_TYPE)
            shorter.written = tail.written
            shorter.keys, shorter.values = tail.keys[excess:], tail.values[excess:]
            self._tail = shorter

    def preallocate(self) -> None:
        """Makes the file as long as its entries may become."""
        with self._file as file:
            file.preallocate(self.entries_max * self.ENTRY_SIZE)

    def trim(self) -> bool:
        """Writes what is in memory and cuts the file to its entries; true if that changed the file."""
        before = None if self._tail is None else self._tail.written
        self.write()
        size = self.count * self.ENTRY_SIZE
        with self._file as file:
            if file.size() == size:
                return before is not None and before != self.count
            file.truncate(size)
        return True

    def reset(self) -> None:
        """Forgets every entry, to index the log again."""
        with self._file as file:
            file.truncate(0)
        self._tail = _Tail(0, self.KEY_TYPE)

    def replace(self, keys: array[int], values: array[int]) -> None:
        """Makes these the entries; in memory at once, in the file too unless OSError: `trim` is to be called again."""
        tail = _Tail(0, self.KEY_TYPE)
        tail.keys, tail.values = keys, values
        self._tail = tail
        self.trim()

    def fsync(self) -> None:
        with self._file as file:
            sync_file(file)

    def close(self) -> None:
        self._file.close()

    def forget_tail(self) -> None:
        """Frees the memory of an index that is written and trimmed."""
        self._tail = None

    def _append(self, key: int, value: int) -> None:
        tail = self.tail()
        tail.values.append(value)
        tail.keys.append(key)  # Last: a lookup in another thread goes by the keys.

    def _append_and_write(self, key: int, value: int) -> None:
        self._append(key, value)
        if self.pending >= WRITE_ENTRIES:
            self.write()

    @property
    def pending(self) -> int:
        """Entries that are only in memory."""
        tail = self.tail()
        return tail.count - tail.written

    def prepare(self) -> None:
        """Before a log is appended to: entries noted after it touch memory alone, until the next call."""
        tail = self.tail()
        if not tail.keys and tail.first:
            last = _Tail(tail.first - 1, self.KEY_TYPE)
            last.keys, last.values = self._read(tail.first - 1, 1, blocking=True)
            last.written = tail.first
            self._tail = last
        if self.pending >= WRITE_ENTRIES:
            self.write()

    def _keep(self, count: int) -> None:
        """Truncates to the first `count` entries."""
        tail = self.tail()
        if count >= tail.count:
            return
        self.write()
        # Before the file: a lookup in another thread that finds an entry missing there begins again with fewer.
        self._tail = _Tail(count, self.KEY_TYPE)
        try:
            with self._file as file:
                file.truncate(count * self.ENTRY_SIZE)
        except OSError:
            self._tail = tail
            raise

    def _floor_slot(self, key: int, *, blocking: bool) -> int:
        """The last entry whose key is at most `key`; -1 if there is none."""
        tail = self.tail()
        keys = tail.keys
        if keys and key >= keys[0]:
            return tail.first + bisect_right(keys, key) - 1
        page: _Page | None = self._file.kept
        if page is None or not page.has_floor(tail, key):
            page = self._read_page(tail, key, blocking=blocking)
            if page is None:
                return -1
        return page.first + bisect_right(page.keys, key) - 1

    def _read_page(self, tail: _Tail, key: int, *, blocking: bool) -> _Page | None:
        """The entries among which a binary search ends that looks for the last one whose key is at most `key`: the
        first of the index where there is none. None for an index without entries in its file."""
        low, high = 0, tail.first  # Entries before `low` are at most `key`, those from `high` on are above.
        while high - low > _PAGE_ENTRIES:
            middle = (low + high) // 2
            if self._read(middle, 1, blocking=blocking)[0][0] <= key:
                low = middle
            else:
                high = middle
        if low == high:
            return None
        page = _Page(tail, low, *self._read(low, high - low, blocking=blocking))
        self._file.keep(page)
        return page

    def _entry(self, slot: int, *, blocking: bool) -> tuple[int, int]:
        tail = self.tail()
        if slot >= tail.count:
            raise CorruptIndex(f"{self.path} was cut before entry {slot}")
        if slot >= tail.first:
            return tail.keys[slot - tail.first], tail.values[slot - tail.first]
        page: _Page | None = self._file.kept
        if page is not None and page.tail is tail and 0 <= slot - page.first < len(page.keys):
            return page.keys[slot - page.first], page.values[slot - page.first]
        keys, values = self._read(slot, 1, blocking=blocking)
        return keys[0], values[0]

    def _read(self, slot: int, count: int, *, blocking: bool) -> tuple[array[int], array[int]]:
        with self._file as file:
            data = _read_range(file, count * self.ENTRY_SIZE, slot * self.ENTRY_SIZE, blocking=blocking)
        if len(data) != count * self.ENTRY_SIZE:
            raise CorruptIndex(f"{self.path} ends inside entry {slot + len(data) // self.ENTRY_SIZE}")
        return self._decode(data)

    def _all(self) -> tuple[array[int], array[int]]:
        """Every entry, in order."""
        tail = self.tail()
        keys: array[int] = array(self.KEY_TYPE)
        values: array[int] = array("I")
        for slot in range(0, tail.first, _PAGE_ENTRIES):
            page_keys, page_values = self._read(slot, min(_PAGE_ENTRIES, tail.first - slot), blocking=True)
            keys += page_keys
            values += page_values
        keys += tail.keys
        values += tail.values
        return keys, values

    @abstractmethod
    def _encode(self, keys: array[int], values: array[int]) -> bytes:
        """Entries as they stand in the file."""

    @abstractmethod
    def _decode(self, data: bytes) -> tuple[array[int], array[int]]:
        """Whole entries of the file, as keys and values."""


class OffsetIndex(_SparseIndex):
    """`.index`: from an offset to a position at or before its batch."""

    __slots__ = ()

    ENTRY_SIZE = OFFSET_ENTRY_SIZE
    KEY_TYPE = "I"

    @property
    def is_full(self) -> bool:
        return self.count >= self.entries_max

    def append(self, offset: int, position: int) -> None:
        """Notes that the batch that ends with `offset` begins at `position`; both must grow."""
        self._append_and_write(offset - self.base_offset, position)

    def note(self, offset: int, position: int) -> None:
        """As `append`, in memory only; after `prepare`."""
        self._append(offset - self.base_offset, position)

    def lookup(self, offset: int, *, blocking: bool = True) -> IndexEntry:
        """The last entry at or before `offset`; (base offset, 0) if there is none."""
        relative = min(offset - self.base_offset, RELATIVE_OFFSET_MAX)
        slot = self._floor_slot(relative, blocking=blocking) if relative >= 0 else -1
        if slot < 0:
            return IndexEntry(self.base_offset, 0)
        key, position = self._entry(slot, blocking=blocking)
        return IndexEntry(self.base_offset + key, position)

    def lookup_earlier(self, offset: int, entries: int) -> IndexEntry:
        """The entry that is so many `entries` before that of `lookup`; (base offset, 0) if there is none."""
        relative = min(offset - self.base_offset, RELATIVE_OFFSET_MAX)
        slot = (self._floor_slot(relative, blocking=True) if relative >= 0 else -1) - entries
        if slot < 0:
            return IndexEntry(self.base_offset, 0)
        key, position = self._entry(slot, blocking=True)
        return IndexEntry(self.base_offset + key, position)

    def lookup_position(self, position: int, *, blocking: bool = True) -> IndexEntry | None:
        """The first entry at or behind `position`; None if there is none."""
        low, high = 0, self.count  # Entries before `low` are before `position`, those from `high` on are not.
        while low < high:
            middle = (low + high) // 2
            if self._entry(middle, blocking=blocking)[1] < position:
                low = middle + 1
            else:
                high = middle
        if low == self.count:
            return None
        key, found = self._entry(low, blocking=blocking)
        return IndexEntry(self.base_offset + key, found)

    def last(self) -> IndexEntry:
        """The newest entry; (base offset, 0) if there is none."""
        return self.lookup(self.base_offset + RELATIVE_OFFSET_MAX)

    def truncate_to(self, offset: int) -> None:
        """Removes the entries of `offset` and later ones."""
        slot = self._floor_slot(offset - self.base_offset - 1, blocking=True) if offset > self.base_offset else -1
        self._keep(slot + 1)

    def entries(self) -> list[IndexEntry]:
        """All of them: for tools and tests."""
        keys, values = self._all()
        return [IndexEntry(self.base_offset + key, value) for key, value in zip(keys, values, strict=True)]

    def _encode(self, keys: array[int], values: array[int]) -> bytes:
        return encode_offset_entries(keys, values)

    def _decode(self, data: bytes) -> tuple[array[int], array[int]]:
        return decode_offset_entries(data)


class TimeIndex(_SparseIndex):
    """`.timeindex`: from a timestamp to an offset before which no record is as late."""

    __slots__ = ()

    ENTRY_SIZE = TIME_ENTRY_SIZE
    KEY_TYPE = "q"
    BEGINS_WITH_ZEROS = True

    @property
    def is_full(self) -> bool:
        return self.count >= self.entries_max - 1  # One entry stays free for the roll or the close.

    def last(self, *, blocking: bool = True) -> TimeEntry:
        """The newest entry; (-1, base offset) if there is none."""
        count = self.count
        if count == 0:
            return TimeEntry(NO_TIMESTAMP, self.base_offset)
        key, value = self._entry(count - 1, blocking=blocking)
        return TimeEntry(key, self.base_offset + value)

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Notes a new largest timestamp; one that is not larger changes nothing."""
        if timestamp > self.last().timestamp:
            self._append_and_write(timestamp, offset - self.base_offset)

    def note(self, timestamp: int, offset: int) -> None:
        """As `maybe_append`, in memory only; after `prepare`."""
        if timestamp > self.last().timestamp:
            self._append(timestamp, offset - self.base_offset)

    def lookup(self, timestamp: int, *, blocking: bool = True) -> TimeEntry:
        """The last entry at or before `timestamp`; (-1, base offset) if there is none."""
        slot = self._floor_slot(timestamp, blocking=blocking)
        if slot < 0:
            return TimeEntry(NO_TIMESTAMP, self.base_offset)
        key, value = self._entry(slot, blocking=blocking)
        return TimeEntry(key, self.base_offset + value)

    def truncate_to(self, offset: int) -> None:
        """Removes the entries of `offset` and later ones."""
        relative = offset - self.base_offset
        low, high = 0, self.count  # Entries before `low` are below `offset`, those from `high` on are not.
        while low < high:
            middle = (low + high) // 2
            if self._entry(middle, blocking=True)[1] < relative:
                low = middle + 1
            else:
                high = middle
        self._keep(low)

    def entries(self) -> list[TimeEntry]:
        """All of them: for tools and tests."""
        keys, values = self._all()
        return [TimeEntry(key, self.base_offset + value) for key, value in zip(keys, values, strict=True)]

    def _encode(self, keys: array[int], values: array[int]) -> bytes:
        return encode_time_entries(keys, values)

    def _decode(self, data: bytes) -> tuple[array[int], array[int]]:
        return decode_time_entries(data)


def encode_offset_entries(offsets: array[int], positions: array[int]) -> bytes:
    """Relative offsets and positions as they stand in the file."""
    pairs = array("I", bytes(8 * len(offsets)))
    pairs[::2] = offsets
    pairs[1::2] = positions
    return _big_endian(pairs).tobytes()


def decode_offset_entries(data: bytes) -> tuple[array[int], array[int]]:
    """The inverse; `data` is whole entries."""
    pairs = array("I", data)
    _big_endian(pairs)
    return pairs[::2], pairs[1::2]


def encode_time_entries(timestamps: array[int], offsets: array[int]) -> bytes:
    """Timestamps and relative offsets as they stand in the file."""
    words = array("I", bytes(12 * len(offsets)))
    halves = array("I", _big_endian(array("q", timestamps)).tobytes())
    words[::3] = halves[::2]
    words[1::3] = halves[1::2]
    words[2::3] = _big_endian(array("I", offsets))
    return words.tobytes()


def decode_time_entries(data: bytes) -> tuple[array[int], array[int]]:
    """The inverse; `data` is whole entries."""
    words = array("I", data)
    halves = array("I", bytes(8 * (len(data) // TIME_ENTRY_SIZE)))
    halves[::2] = words[::3]
    halves[1::2] = words[1::3]
    timestamps = array("q", halves.tobytes())
    return _big_endian(timestamps), _big_endian(words[2::3])


def _big_endian(values: array[int]) -> array[int]:
    """Turns native numbers into big-endian ones, or back, in place."""
    if sys.byteorder == "little":
        values.byteswap()
    return values


def _read_range(file: File, size: int, offset: int, *, blocking: bool) -> bytes:
    if blocking:
        return file.pread(size, offset)
    data = file.probe(size, offset)
    if data is None:
        raise WouldBlock
    return data
