"""`.txnindex`: the aborted transactions of one segment, for readers that want committed records only.

34 bytes an entry, big-endian, in the order in which the transactions ended:

    int16 version = 0 | int64 producer id | int64 first offset | int64 last offset (the marker) | int64 last stable
    offset then

The file exists only where a transaction was aborted; that there is none is remembered, since every fetch of committed
records asks. Those that a fetch needs are found by bisection: a producer that aborts all day makes a long file.

An entry is written before the marker that it is about, so that no marker is in the log without it, and taken back
where the marker could not be written. Where the disk does not let go of entries that count no more they stay in the
file until `cut` succeeds, and no reader sees them.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from tidelog.ports.disk import replace_file, sync_file
from tidelog.storage.errors import CorruptFile, WouldBlock
from tidelog.storage.file_pool import close_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.ports.disk import Disk, File
    from tidelog.storage.file_pool import FilePool

ENTRY_SIZE: Final = 34
_ENTRY: Final = Struct(">hqqqq")
_VERSION: Final = 0
_PAGE_ENTRIES: Final = 4096 // ENTRY_SIZE

Outcome = TypeVar("Outcome")


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    """Where the transaction began in this partition."""
    last_offset: int
    """Of its ABORT marker."""
    last_stable_offset: int
    """The last stable offset of the partition once this transaction had ended."""


def decode_transactions(data: bytes) -> Iterator[AbortedTransaction]:
    """The entries of a file; `CorruptFile` where they cannot be such."""
    if len(data) % ENTRY_SIZE:
        raise CorruptFile(f"a transaction index of {len(data)} bytes, which is no multiple of {ENTRY_SIZE}")
    for version, *fields in _ENTRY.iter_unpack(data):
        if version != _VERSION:
            raise CorruptFile(
                f"Unexpected aborted transaction version {version} in transaction index, {_VERSION} expected"
            )
        yield AbortedTransaction(*fields)


def encode_transactions(entries: list[AbortedTransaction]) -> bytes:
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)


class TransactionIndex:
    """The entries of one segment's file. Read in any thread, beside one that writes."""

    __slots__ = ("_disk", "_end", "_looked_for", "_pool", "_writes", "path")

    def __init__(self, disk: Disk, path: str, pool: FilePool | None = None) -> None:
        """`pool` knows of renamings; None for a file that keeps its name."""
        self._disk = disk
        self._pool = pool
        self.path = path
        """Changes when the file is renamed."""
        self._writes = 0
        """Counts what was written here, each when it stands in the file."""
        self._looked_for = -1
        """How much had been written when a look for the file began that found none."""
        self._end: int | None = None
        """Bytes of the entries that count, where the file may be longer; None: all of it."""

    @property
    def is_absent(self) -> bool:
        """Whether a look for the file found none, and it was not written since."""
        return self._looked_for == self._writes

    def entries(self) -> list[AbortedTransaction]:
        """All, oldest first; none where there is no file. `CorruptFile`."""
        try:
            return list(decode_transactions(self._content()))
        except CorruptFile as error:
            raise CorruptFile(f"{self.path}: {error}") from error

    def _content(self) -> bytes:
        """What counts of the file; nothing where there is none."""
        writes = self._writes
        if self._looked_for == writes:
            return b""
        try:
            data = self._at_path(self._disk.read)
        except FileNotFoundError:
            # Where the other thread is making the file just now the count goes on, and this look counts no more.
            self._looked_for = writes
            return b""
        return data[: self._end]

    def append(self, entry: AbortedTransaction) -> int:
        """Appends an entry, in the order of their last offsets; gives the bytes of those before it, for `end_at`.

        OSError: it was not appended, and `cut` has something to do.
        """
        file = self._disk.open(self.path, create=True)
        try:
            end = self._end_of(file)
            self._end = end  # Of what is there if the write comes half-way.
            data = encode_transactions([entry])
            if file.size() > end:
                file.truncate(end)
            file.pwrite(data, end)
            self._end = None
        finally:
            file.close()
            self._writes += 1
        return end

    def end_at(self, size: int) -> None:
        """Only the first `size` bytes count from now on; in memory, until `cut` is called."""
        self._end = size

    def size_below(self, offset: int) -> int:
        """Bytes of the entries of transactions that ended below `offset`.

        Of a damaged file: up to the first entry that can be read and ended at `offset` or later. A truncation must not
        fail for it, and what is wrong before is for readers to be told of and for the scrub to mend.
        """
        readable = self._readable()
        for index, entry in enumerate(readable):
            if entry is not None and entry.last_offset >= offset:
                return index * ENTRY_SIZE
        return len(readable) * ENTRY_SIZE

    def _readable(self) -> list[AbortedTransaction | None]:
        """The entries, of a damaged file too; None for one that cannot be read."""
        data = self._content()
        rows = _ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY_SIZE])
        return [AbortedTransaction(*fields) if version == _VERSION else None for version, *fields in rows]

    def entries_from(self, offset: int) -> list[AbortedTransaction]:
        """Those of transactions that ended at `offset` or later, as far as they can be read: no `CorruptFile`."""
        return [entry for entry in self._readable() if entry is not None and entry.last_offset >= offset]

    def cut(self) -> None:
        """Makes the file as long as its entries that count."""
        if self._end is None:
            return
        try:
            file = self._disk.open(self.path)
        except FileNotFoundError:
            self._end = None
            return
        try:
            if file.size() > self._end:
                file.truncate(self._end)
            self._end = None
        finally:
            file.close()

    def _at_path(
        self, operation: Callable[[str], Outcome], discard: Callable[[Outcome], None] | None = None
    ) -> Outcome:
        """`operation` on the file's path. FileNotFoundError where no name that it had meanwhile is there."""
        if self._pool is None:
            return operation(self.path)
        return self._pool.at_current_path(lambda: self.path, operation, discard)

    def _end_of(self, file: File) -> int:
        size = file.size() if self._end is None else min(self._end, file.size())
        return size - size % ENTRY_SIZE

    def replace(self, entries: list[AbortedTransaction], *, writes_again: bool = False) -> None:
        """Makes these the file's entries, all at once: a crash leaves the old ones or these. A file that has them
        already is written only where it `writes_again`."""
        content = encode_transactions(entries)
        try:
            known: bytes | None = self._disk.read(self.path)
        except FileNotFoundError:
            known = None
        self._end = None
        if content != (known or b"") or (writes_again and known is not None):
            replace_file(self._disk, self.path, content)
            self._writes += 1

    def rewrite(self, entries: list[AbortedTransaction]) -> None:
        """As `replace`, of a file that is not in use yet."""
        file = self._disk.open(self.path, create=True)
        try:
            data = encode_transactions(entries)
            file.pwrite(data, 0)
            if file.size() != len(data):
                file.truncate(len(data))
        finally:
            file.close()
            self._writes += 1

    def fsync(self) -> None:
        writes = self._writes
        if self._looked_for == writes:
            return
        try:
            file = self._at_path(self._disk.open, close_file)
        except FileNotFoundError:
            self._looked_for = writes
            return
        try:
            sync_file(file)
        finally:
            file.close()

    def collect(
        self, start_offset: int, end_offset: int, *, blocking: bool = True
    ) -> tuple[list[AbortedTransaction], bool]:
        """Those that touch start_offset .. end_offset - 1, and whether later segments can hold no more of them.

        `CorruptFile`; `WouldBlock` with `blocking=False`.
        """
        found: list[AbortedTransaction] = []
        writes = self._writes
        if self._looked_for == writes:
            return found, False
        try:
            file = self._at_path(lambda path: self._disk.open(path, read_only=True), close_file)
        except FileNotFoundError:
            self._looked_for = writes
            return found, False
        try:
            for entry in self._ended_from(file, start_offset, blocking=blocking):
                if entry.first_offset < end_offset:
                    found.append(entry)
                if entry.last_stable_offset >= end_offset:
                    return found, True
        except CorruptFile as error:
            raise CorruptFile(f"{self.path}: {error}") from error
        finally:
            file.close()
        return found, False

    def _ended_from(self, file: File, offset: int, *, blocking: bool) -> Iterator[AbortedTransaction]:
        """The entries of transactions that ended at `offset` or later."""
        count = self._end_of(file) // ENTRY_SIZE
        low, high = 0, count  # Entries before `low` ended below `offset`, those from `high` on did not.
        while high - low > _PAGE_ENTRIES:
            middle = (low + high) // 2
            found = _read(file, middle, 1, blocking=blocking)  # None where a truncation beside this thread cut it away.
            if found and found[0].last_offset < offset:
                low = middle + 1
            else:
                high = middle
        for first in range(low, count, _PAGE_ENTRIES):
            for entry in _read(file, first, min(_PAGE_ENTRIES, count - first), blocking=blocking):
                if entry.last_offset >= offset:
                    yield entry


def _read(file: File, first: int, count: int, *, blocking: bool) -> list[AbortedTransaction]:
    size, position = count * ENTRY_SIZE, first * ENTRY_SIZE
    data = file.pread(size, position) if blocking else file.probe(size, position)
    if data is None:
        raise WouldBlock
    return list(decode_transactions(data))
