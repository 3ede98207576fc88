"""Descriptors of many files under a limit: opened when needed, closed when others need them more.

3,000 partitions have 9,000 files and more; a process often may open 1,024. A `PooledFile` is a name that can be opened
again; the pool keeps the most recently used ones open and closes one that had its second chance. A file in use (`with`,
or held by a FileRange on its way to a socket) stays open. When half of the pool is in use, what is read next is not
held any more (`UnheldFile`): clients that do not read their answers must not take all descriptors.

When the system has no descriptor left (EMFILE, ENFILE), all files that are not in use are closed, and what could not be
opened is tried once more: by `SparingDisk`, through which all files and folders of the logs are opened.

Closing forgets nothing: the kernel keeps unsynced pages and, since Linux 4.16, also reports a failed write-back
to whoever opens and syncs the file next.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from tidelog.storage.sparing_disk import SparingDisk

if TYPE_CHECKING:
    from types import TracebackType

    from tidelog.ports.disk import Disk, File

DEFAULT_CAPACITY: Final = 512
"""Open files; half of the usual soft limit of 1,024, the rest is for connections."""


class PooledFile:
    """A file that is open while used. `with pooled as file:` keeps it open inside the block, in any thread."""

    __slots__ = ("_close_when_free", "_file", "_pool", "_recently_used", "_references", "path")

    def __init__(self, pool: FilePool, path: str) -> None:
        self.path = path
        """Changes when the file is renamed; an open descriptor follows by itself."""
        self._pool = pool
        self._file: File | None = None
        self._references = 0
        self._recently_used = False
        self._close_when_free = False

    def __enter__(self) -> File:
        with self._pool.lock:
            file = self._file
            if file is None:
                file = self._file = self._pool.open(self)
            self._references += 1
            if self._references == 1:
                self._pool.held_count += 1
            self._recently_used = True
            return file

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    @property
    def is_crowded(self) -> bool:
        """Whether it should not be held for long, since too many others are and it is not yet."""
        return not self._references and self._pool.is_crowded

    def retain(self) -> None:
        """Keeps the file open until `release`; only inside a `with` block, or while another reference is out."""
        with self._pool.lock:
            self._references += 1

    def release(self) -> None:
        """Gives back what `retain` or entering the block took."""
        with self._pool.lock:
            self._references -= 1
            if self._references == 0:
                self._pool.held_count -= 1
                if self._close_when_free:
                    self._pool.close_file(self)

    def adopt(self, file: File) -> None:
        """Takes over a descriptor that was just opened (of a file just created)."""
        with self._pool.lock:
            self._pool.make_room(self)
            self._file = file

    def close(self) -> None:
        """Closes the descriptor, at once or when its last user is done; it opens again when needed."""
        with self._pool.lock:
            if self._references:
                self._close_when_free = True
            else:
                self._pool.close_file(self)


class FilePool:
    """At most `capacity` descriptors, but for those in use at the same time."""

    def __init__(self, disk: Disk, capacity: int = DEFAULT_CAPACITY) -> None:
        self.disk: Disk = SparingDisk(disk, self)
        self.capacity = capacity
        self.lock = threading.RLock()
        """Guards every file's references and this pool; held for no longer than one open or close."""
        self.held_count = 0
        """Files in use, which cannot be closed."""
        self._open: OrderedDict[PooledFile, None] = OrderedDict()

    @property
    def is_crowded(self) -> bool:
        """Whether so many files are in use that what is read next should not be held."""
        return self.held_count >= max(1, self.capacity // 2)

    @property
    def open_count(self) -> int:
        """Descriptors open now."""
        return len(self._open)

    def file(self, path: str) -> PooledFile:
        """A handle; nothing is opened yet."""
        return PooledFile(self, path)

    def open(self, pooled: PooledFile) -> File:
        """Opens a handle's file; called with the lock held."""
        self.make_room(pooled)
        try:
            return self.disk.open(pooled.path)
        except OSError:
            del self._open[pooled]
            raise

    def make_room(self, pooled: PooledFile) -> None:
        """Counts `pooled` as open, after closing others if need be; called with the lock held."""
        if len(self._open) >= self.capacity:
            self._evict(len(self._open) - self.capacity + 1)
        self._open[pooled] = None

    def close_file(self, pooled: PooledFile) -> None:
        """Closes a handle's descriptor; called with the lock held and nobody using it."""
        pooled._close_when_free = False
        file, pooled._file = pooled._file, None
        if file is not None:
            self._open.pop(pooled, None)
            file.close()

    def give_way(self) -> int:
        """Closes every file that is not in use, since the system has no descriptor left; gives how many."""
        with self.lock:
            before = len(self._open)
            self._evict(before)
            return before - len(self._open)

    def close(self) -> None:
        """Closes all; what is in use closes with its last release."""
        with self.lock:
            for pooled in list(self._open):
                pooled.close()

    def _evict(self, count: int) -> None:
        """Closes up to `count` files that were not used since the hand last passed them."""
        tries = 2 * len(self._open)
        while count > 0 and tries > 0 and self._open:
            tries -= 1
            pooled, _ = self._open.popitem(last=False)
            if pooled._references or pooled._recently_used or pooled._file is None:
                pooled._recently_used = False
                self._open[pooled] = None
            else:
                self.close_file(pooled)
                count -= 1


class UnheldFile:
    """A file that is open only during each call: `tidelog.ports.disk.Source` of a range that may wait long.

    It has no descriptor to send from. Where the file is gone when its turn comes, reading raises FileNotFoundError.
    """

    __slots__ = ("_pooled",)

    def __init__(self, pooled: PooledFile) -> None:
        self._pooled = pooled

    @property
    def path(self) -> str:
        return self._pooled.path

    def pread(self, size: int, offset: int) -> bytes:
        with self._pooled as file:
            return file.pread(size, offset)

    def probe(self, size: int, offset: int) -> bytes | None:
        with self._pooled as file:
            return file.probe(size, offset)

    def fileno(self) -> int | None:
        return None
