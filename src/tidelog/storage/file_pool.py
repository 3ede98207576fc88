"""Descriptors of many files under a limit: opened when needed, closed when others need them more.

3,000 partitions have 9,000 files and more; a process often may open 1,024. A `PooledFile` is a name that can be opened
again; the pool keeps the most recently used ones open and closes one that had its second chance. A file in use (`with`,
or held by a FileRange on its way to a socket) stays open.

Closing forgets nothing: the kernel keeps unsynced pages and, since Linux 4.16, also reports a failed write-back
to whoever opens and syncs the file next.
"""

from __future__ import annotations

import errno
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

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
            self._recently_used = True
            return file

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def retain(self) -> None:
        """Keeps the file open until `release`; only inside a `with` block, or while another reference is out."""
        with self._pool.lock:
            self._references += 1

    def release(self) -> None:
        """Gives back what `retain` or entering the block took."""
        with self._pool.lock:
            self._references -= 1
            if self._references == 0 and self._close_when_free:
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
        self.disk = disk
        self.capacity = capacity
        self.lock = threading.RLock()
        """Guards every file's references and this pool; held for no longer than one open or close."""
        self._open: OrderedDict[PooledFile, None] = OrderedDict()

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
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                del self._open[pooled]
                raise
            self._evict(len(self._open))  # Others have taken the descriptors: live with those that remain.
        try:
            self._open[pooled] = None
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
