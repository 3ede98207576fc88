"""The files of one segment: their names, the handles to them, and how they come and go.

    <base offset>.log                        there from the start
    <base offset>.index .timeindex           of a new log made before its first batch is appended
    <base offset>.txnindex                   only where a transaction was aborted

Most partitions of a broker are idle, and a broker has thousands: a handle is made when a file is first used, and an
empty segment needs no indexes.

A segment is there when its .log file is, whatever else is: that is made last where a log goes on in a new segment,
renamed to `.deleted` first, and indexes without a .log file are removed when the folder is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.ports.disk import sync_file
from tidelog.storage.file_names import (
    DELETED,
    INDEX,
    LOG,
    SEGMENT_SUFFIXES,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    segment_file,
)
from tidelog.storage.offset_index import OffsetIndex, TimeIndex
from tidelog.storage.transaction_index import TransactionIndex

if TYPE_CHECKING:
    from tidelog.storage.file_pool import FilePool, PooledFile
    from tidelog.storage.log_config import LogConfig


_NO_MARKS: Final[dict[str, str]] = {}
"""Of nearly all segments, which share it; never changed."""


class SegmentFiles:
    """A .log file and those that belong to it; `SegmentLookups` and `Segment` know what is in them."""

    __slots__ = (
        "_log_file",
        "_marks",
        "_offset_index",
        "_pool",
        "_time_index",
        "_transaction_index",
        "base_offset",
        "config",
        "directory",
        "has_index_files",
        "mark",
    )

    def __init__(self, pool: FilePool, directory: str, base_offset: int, config: LogConfig) -> None:
        self._pool = pool
        self.directory = directory
        self.base_offset = base_offset
        self.config = config
        self.mark = ""
        """".deleted" once the files are on their way out; ".cleaned", ".swap" while compaction writes them."""
        self._marks = _NO_MARKS
        """[suffix] -> the mark that a file has when it is another than `mark`: a renaming came half-way"""
        self.has_index_files = True
        """False for an empty segment whose offset and time index are still to be made: they have no entry."""
        self._log_file: PooledFile | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._transaction_index: TransactionIndex | None = None

    def create_log_file(self) -> None:
        """Makes the .log file, empty. Nothing is synced. OSError, and then it may be there."""
        file = self._pool.disk.open(self.path(LOG), create=True)
        try:
            file.truncate(0)
            if self.config.preallocate:
                file.preallocate(self.config.segment_bytes)
        finally:
            file.close()

    def make_index_files(self) -> bool:
        """Makes the offset and the time index, empty, unless they are there; true if it did. Nothing is synced.

        OSError: there may be one of them, which counts as missing.
        """
        if self.has_index_files:
            return False
        for suffix in (INDEX, TIME_INDEX):
            file = self._pool.disk.open(self.path(suffix), create=True)
            try:
                file.truncate(0)
            finally:
                file.close()
        self.has_index_files = True
        return True

    def path(self, suffix: str) -> str:
        mark = self._marks.get(suffix, self.mark) if self._marks else self.mark
        return f"{self.directory}/{segment_file(self.base_offset, suffix)}{mark}"

    # Handles.

    @property
    def log_file(self) -> PooledFile:
        file = self._log_file
        if file is None:
            file = self._log_file = self._pool.file(self.path(LOG))
        return file

    @property
    def offset_index(self) -> OffsetIndex:
        index = self._offset_index
        if index is None:
            index = self._offset_index = OffsetIndex(
                self._pool.file(self.path(INDEX)),
                self.base_offset,
                size_max=self.config.segment_index_bytes,
                count=None if self.has_index_files else 0,
            )
        return index

    @property
    def time_index(self) -> TimeIndex:
        index = self._time_index
        if index is None:
            index = self._time_index = TimeIndex(
                self._pool.file(self.path(TIME_INDEX)),
                self.base_offset,
                size_max=self.config.segment_index_bytes,
                count=None if self.has_index_files else 0,
            )
        return index

    @property
    def transaction_index(self) -> TransactionIndex:
        index = self._transaction_index
        if index is None:
            with self._pool.lock:  # A reader's must be the appender's too: they remember whether there is a file.
                index = self._transaction_index
                if index is None:
                    index = TransactionIndex(self._pool.disk, self.path(TRANSACTION_INDEX), self._pool)
                    self._transaction_index = index
        return index

    # Durability.

    def write_indexes(self) -> None:
        """Writes the index entries that are only in memory; not beside an append."""
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.write()

    def fsync(self, *, indexes: bool) -> None:
        """Makes what is written durable, beside appends; OSError when that failed, and then what is on disk is unknown.

        The offset and the time index of the active segment need not be durable: recovery writes them anew from the log,
        and a reader finds them wrong later. A transaction that was aborted would go unnoticed.
        """
        with self.log_file as file:
            sync_file(file)
        self.transaction_index.fsync()
        if indexes and self.has_index_files:
            self.offset_index.fsync()
            self.time_index.fsync()

    # Coming and going.

    def release_files(self) -> None:
        """Closes descriptors; those on their way to a client close when sent."""
        if self._log_file is not None:
            self._log_file.close()
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.close()

    def forget_files(self) -> None:
        """Closes files and lets go of their handles, of a segment whose indexes are written and trimmed."""
        self.release_files()
        self._log_file = self._offset_index = self._time_index = self._transaction_index = None

    def rename(self, mark: str, *, log_only: bool = False) -> None:
        """Renames its files to end with `mark` (".deleted", "") instead of the mark they have; open descriptors stay
        valid.

        The .log file first, but last to `.swap`: the set counts from then on. `log_only` leaves the others to the next
        call. OSError: some are renamed, as `path` knows, and the next call goes on from there. A read in another thread
        finds a file by its old or its new name.
        """
        suffixes = SEGMENT_SUFFIXES[::-1] if mark == SWAP else SEGMENT_SUFFIXES
        with self._pool.renaming():
            before = self.mark, self._marks
            marks = {suffix: self._marks.get(suffix, self.mark) for suffix in suffixes}
            self.mark, self._marks = mark, {suffix: old for suffix, old in marks.items() if old != mark}
            waiting = list(self._marks)
            try:
                for suffix in waiting:
                    if log_only and suffix != LOG:
                        continue
                    target = f"{self.directory}/{segment_file(self.base_offset, suffix)}{mark}"
                    try:
                        self._pool.disk.rename(self.path(suffix), target)
                    except FileNotFoundError:
                        if suffix == LOG:
                            raise  # A transaction index exists only where something was aborted.
                    del self._marks[suffix]
            finally:
                if len(self._marks) == len(waiting):
                    self.mark, self._marks = before
                if not self._marks:
                    self._marks = _NO_MARKS
                self._follow_names()

    @property
    def is_removed(self) -> bool:
        """Whether the .log file has gone to `.deleted`: the segment is no part of a log any more."""
        return self.mark == DELETED and LOG not in self._marks

    def unlink(self) -> None:
        """Removes its files, those of a `.swap` set before the .cleaned .log file without which they would count."""
        self.release_files()
        for suffix in SEGMENT_SUFFIXES[::-1]:
            try:
                self._pool.disk.unlink(self.path(suffix))
            except FileNotFoundError:
                continue

    def moved(self, directory: str) -> None:
        """The folder was renamed."""
        self.directory = directory
        self._follow_names()

    def _follow_names(self) -> None:
        """Open descriptors stay valid; those opened from now on need the new path."""
        if self._log_file is not None:
            self._log_file.path = self.path(LOG)
        if self._offset_index is not None:
            self._offset_index.path = self.path(INDEX)
        if self._time_index is not None:
            self._time_index.path = self.path(TIME_INDEX)
        if self._transaction_index is not None:
            self._transaction_index.path = self.path(TRANSACTION_INDEX)
