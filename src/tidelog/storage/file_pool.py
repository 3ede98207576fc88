"""Descriptors of many files under a limit: opened when needed, closed when others need them more.

3,000 partitions have 9,000 files and more; a process often may open 1,024. A `PooledFile` is a name that can be opened
again; the pool keeps the most recently used ones open and closes one that had its second chance. A file in use (`with`,
or held by a FileRange on its way to a socket) stays open. When half of the pool is in use, what is read next is not
held any more (`UnheldFile`): clients that do not read their answers must not take all descriptors.

When the system has no descriptor left (EMFILE, ENFILE), all files that are not in use are closed, and what could not be
opened is tried once more: by `SparingDisk`, through which all files and folders of the logs are opened.

Closing forgets nothing: the kernel keeps unsynced pages and, since Linux 4.16, also reports a failed write-back
to the next caller that opens and syncs the file.

**Two locks.** `lock` guards the bookkeeping, and no system call happens while it is held: a disk that hangs must not
keep the files of other directories closed. `names` is held by the thread that renames files and folders, from before
the rename until the paths in memory say so (`renaming`). A thread that opens a file takes it only when there was no
such file: either something was renamed meanwhile, and it looks again, or the file really is not there
(`at_current_path`). A path that has come to name the file of another log, made anew under that name, is found out, too.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidelog.storage.sparing_disk import SparingDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from tidelog.ports.disk import Disk, File

DEFAULT_CAPACITY: Final = 512
"""Open files; half of the usual soft limit of 1,024, the rest is for connections."""

Outcome = TypeVar("Outcome")


class PooledFile:
    """A file that is open while used. `with pooled as file:` keeps it open inside the block, in any thread."""

    __slots__ = ("_close_when_free", "_file", "_pool", "_recently_used", "_references", "kept", "path")

    def __init__(self, pool: FilePool, path: str) -> None:
        self.path = path
        """Changes when the file is renamed; an open descriptor follows by itself."""
        self._pool = pool
        self._file: File | None = None
        self._references = 0
        self._recently_used = False
        self._close_when_free = False
        self.kept: Any = None
        """What its user has kept of its contents; None once the file is closed."""

    def __enter__(self) -> File:
        pool = self._pool
        with pool.lock:
            file = self._file
            if file is not None:
                self._take()
                return file
            unused = pool.make_room(self)
        close_all(unused)
        try:
            opened = pool.open(self)
        except BaseException:
            with pool.lock:
                if self._file is None:
                    pool.forget(self)
            raise
        with pool.lock:
            file = self._file
            if file is None:
                file = self._file = opened
                pool.opened(self)
            self._take()
        if file is not opened:
            opened.close()  # Another thread was quicker.
        return file

    def _take(self) -> None:
        self._references += 1
        if self._references == 1:
            self._pool.held_count += 1
        self._recently_used = True

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
            unused = None
            if self._references == 0:
                self._pool.held_count -= 1
                if self._close_when_free:
                    unused = self._pool.take_file(self)
        if unused is not None:
            unused.close()

    def keep(self, contents: object) -> None:
        """Keeps something of the file's contents, for as long as the file stays open."""
        with self._pool.lock:
            if self._file is not None:
                self.kept = contents

    def close(self) -> None:
        """Closes the descriptor, at once or when its last user is done; it opens again when needed."""
        with self._pool.lock:
            if self._references:
                self._close_when_free = True
                unused = None
            else:
                unused = self._pool.take_file(self)
        if unused is not None:
            unused.close()


class FilePool:
    """At most `capacity` descriptors, but for those in use at the same time."""

    def __init__(self, disk: Disk, capacity: int = DEFAULT_CAPACITY) -> None:
        self.disk: Disk = SparingDisk(disk, self.give_way)
        self.capacity = capacity
        self.lock = threading.RLock()
        """Guards every file's references and this pool; nothing that may block happens while it is held."""
        self.names = threading.RLock()
        """Held while files or folders are renamed, until their paths in memory are the new ones."""
        self._renamings = 0
        """Counts them, also those that were taken back: a path may have changed and be the old one again."""
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

    @contextmanager
    def renaming(self) -> Iterator[None]:
        """Files or folders are renamed inside, and their paths in memory are the new ones at its end."""
        with self.names:
            try:
                yield
            finally:
                self._renamings += 1

    def at_current_path(
        self,
        path_of: Callable[[], str],
        operation: Callable[[str], Outcome],
        discard: Callable[[Outcome], None] | None = None,
    ) -> Outcome:
        """`operation` on the path that `path_of` gives, again where that was renamed meanwhile; in any thread.

        `discard` gets what an operation has given that is repeated: the path may have named another log's file by then.
        FileNotFoundError when there is no file by the name that it has now.
        """
        while True:
            renamings, path = self._renamings, path_of()
            try:
                outcome = operation(path)
            except FileNotFoundError:
                with self.names:  # A rename under way ends first.
                    if self._renamings == renamings and path_of() == path:
                        raise
                continue
            if path_of() == path:
                return outcome
            if discard is not None:
                discard(outcome)

    def open(self, pooled: PooledFile) -> File:
        """Opens a handle's file."""

        def path_of() -> str:
            return pooled.path

        return self.at_current_path(path_of, self.disk.open, close_file)

    def make_room(self, pooled: PooledFile) -> list[File]:
        """Counts `pooled` as open; gives what is to be closed for it. Called with the lock held."""
        unused = self._evict(len(self._open) - self.capacity + 1) if len(self._open) >= self.capacity else []
        self._open[pooled] = None
        return unused

    def opened(self, pooled: PooledFile) -> None:
        """Counts a file that is open now, also where another thread could not open it; called with the lock held."""
        self._open[pooled] = None

    def forget(self, pooled: PooledFile) -> None:
        """A file that was counted could not be opened; called with the lock held."""
        self._open.pop(pooled, None)

    def take_file(self, pooled: PooledFile) -> File | None:
        """Takes the file out of a handle, to be closed; called with the lock held and the handle unused."""
        pooled._close_when_free = False
        file, pooled._file, pooled.kept = pooled._file, None, None
        if file is not None:
            self._open.pop(pooled, None)
        return file

    def give_way(self) -> int:
        """Closes every file that is not in use, since the system has no descriptor left; gives how many."""
        with self.lock:
            unused = self._evict(len(self._open))
        close_all(unused)
        return len(unused)

    def close(self) -> None:
        """Closes all; what is in use closes with its last release."""
        with self.lock:
            handles = list(self._open)
        for pooled in handles:
            pooled.close()

    def _evict(self, count: int) -> list[File]:
        """Takes up to `count` files that were not used since the hand last passed them."""
        unused: list[File] = []
        tries = 2 * len(self._open)
        while count > 0 and tries > 0 and self._open:
            tries -= 1
            pooled, _ = self._open.popitem(last=False)
            if pooled._references or pooled._recently_used or pooled._file is None:
                pooled._recently_used = False
                self._open[pooled] = None
            else:
                pooled._close_when_free = False
                unused.append(pooled._file)
                pooled._file = pooled.kept = None
                count -= 1
        return unused


def close_file(file: File) -> None:
    file.close()


def close_all(files: list[File]) -> None:
    """Closes files that were taken out of their handles."""
    for file in files:
        file.close()


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
