"""`.txnindex`: the aborted transactions of one segment, for readers that want committed records only.

34 bytes an entry, big-endian, in the order in which the transactions ended:

    int16 version = 0 | int64 producer id | int64 first offset | int64 last offset (the marker) | int64 last stable
    offset then

The file exists only where a transaction was aborted; that there is none is remembered, since every fetch of committed
records asks. Those that a fetch needs are found by bisection: a producer that aborts all day makes a long file.
"""

from __future__ import annotations

from contextlib import nullcontext
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.storage.errors import CorruptFile, WouldBlock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from tidelog.ports.disk import Disk, File

ENTRY_SIZE: Final = 34
_ENTRY: Final = Struct(">hqqqq")
_VERSION: Final = 0
_PAGE_ENTRIES: Final = 4096 // ENTRY_SIZE


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

    __slots__ = ("_disk", "_looked_for", "_renaming", "_writes", "path")

    def __init__(self, disk: Disk, path: str, renaming: AbstractContextManager[object] | None = None) -> None:
        """`renaming` is a lock that is held while the file is renamed."""
        self._disk = disk
        self._renaming = nullcontext() if renaming is None else renaming
        self.path = path
        """Changes when the file is renamed."""
        self._writes = 0
        """Counts what was written here, each when it stands in the file."""
        self._looked_for = -1
        """How much had been written when a look for the file began that found none."""

    def entries(self) -> list[AbortedTransaction]:
        """All, oldest first; none where there is no file."""
        writes, path = self._writes, self.path
        if self._looked_for == writes:
            return []
        try:
            data = self._disk.read(path)
        except FileNotFoundError:
            with self._renaming:
                if self.path != path:
                    return self.entries()
            # Where the other thread is making the file just now the count goes on, and this look counts no more.
            self._looked_for = writes
            return []
        try:
            return list(decode_transactions(data))
        except CorruptFile as error:
            raise CorruptFile(f"{self.path}: {error}") from error

    def append(self, entry: AbortedTransaction) -> None:
        """Entries are appended in the order of their last offsets."""
        file = self._disk.open(self.path, create=True)
        try:
            size = file.size()
            file.pwrite(encode_transactions([entry]), size - size % ENTRY_SIZE)
        finally:
            file.close()
            self._writes += 1

    def truncate_to(self, offset: int) -> None:
        """Removes transactions that ended at `offset` or later."""
        entries = self.entries()
        kept = [entry for entry in entries if entry.last_offset < offset]
        if len(kept) != len(entries):
            self.rewrite(kept)

    def reset(self) -> None:
        """Forgets all, to index the log again."""
        if self._disk.exists(self.path):
            self.rewrite([])

    def rewrite(self, entries: list[AbortedTransaction]) -> None:
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
        if self._disk.exists(self.path):
            file = self._disk.open(self.path)
            try:
                file.fsync()
            finally:
                file.close()

    def collect(
        self, start_offset: int, end_offset: int, *, blocking: bool = True
    ) -> tuple[list[AbortedTransaction], bool]:
        """Those that touch start_offset .. end_offset - 1, and whether later segments can hold no more of them.

        `CorruptFile`; `WouldBlock` with `blocking=False`.
        """
        found: list[AbortedTransaction] = []
        writes, path = self._writes, self.path
        if self._looked_for == writes:
            return found, False
        try:
            file = self._disk.open(path, read_only=True)
        except FileNotFoundError:
            with self._renaming:
                if self.path != path:
                    return self.collect(start_offset, end_offset, blocking=blocking)
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
        count = file.size() // ENTRY_SIZE
        low, high = 0, count  # Entries before `low` ended below `offset`, those from `high` on did not.
        while high - low > _PAGE_ENTRIES:
            middle = (low + high) // 2
            if _read(file, middle, 1, blocking=blocking)[0].last_offset < offset:
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
