"""The disk as logs use it: an open that finds no descriptor left is tried again once the pool has closed what it can.

Rolls, flushes of folders, checkpoints and snapshots open files for a moment. Descriptors are kept for them, but others
in the process, or on the machine (ENFILE), may have taken those; files of segments that are not being read give way.
"""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.ports.disk import Disk, File, FileStat, Lock, Space

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

SHORTAGES: Final = (errno.EMFILE, errno.ENFILE)
"""What the system says when this process, or the machine, has no descriptor left."""
TOLD_EVERY: Final = 1_000
"""Shortages from one line in the log to the next."""


class SparingDisk:
    """`tidelog.ports.disk.Disk` on another one."""

    def __init__(self, inner: Disk, give_way: Callable[[], int]) -> None:
        """`give_way` closes what can be closed, and gives how many descriptors that freed."""
        self._inner = inner
        self._give_way = give_way
        self._shortages = 0

    def _twice(self, operation: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """The outcome of an operation that needs a descriptor. OSError."""
        try:
            return operation(*arguments, **options)
        except OSError as error:
            if error.errno not in SHORTAGES:
                raise
            closed = self._give_way()
            if self._shortages % TOLD_EVERY == 0:
                logger.warning("descriptors_short: closed=%d error=%s", closed, error)
            self._shortages += 1
            if not closed:
                raise
        return operation(*arguments, **options)

    # What takes a descriptor.

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        return self._twice(self._inner.open, path, create=create, read_only=read_only)

    def read(self, path: str) -> bytes:
        return self._twice(self._inner.read, path)

    def list(self, path: str) -> Sequence[str]:
        return self._twice(self._inner.list, path)

    def fsync_directory(self, path: str) -> None:
        self._twice(self._inner.fsync_directory, path)

    def sync_file_system(self, path: str) -> None:
        self._twice(self._inner.sync_file_system, path)

    def lock(self, path: str) -> Lock:
        return self._twice(self._inner.lock, path)

    # What takes none.

    def exists(self, path: str) -> bool:
        return self._inner.exists(path)

    def stat(self, path: str) -> FileStat:
        return self._inner.stat(path)

    def make_directories(self, path: str) -> None:
        self._inner.make_directories(path)

    def rename(self, source: str, target: str) -> None:
        self._inner.rename(source, target)

    def unlink(self, path: str) -> None:
        self._inner.unlink(path)

    def remove_directory(self, path: str) -> None:
        self._inner.remove_directory(path)

    def space(self, path: str) -> Space:
        return self._inner.space(path)

    def boot_id(self) -> str | None:
        return self._inner.boot_id()
