"""Files as the storage engine sees them, and the slices of files that responses are made of.

Storage reaches files only through `Disk`: positional reads and writes, explicit fsyncs, no memory maps. So a simulator
can stand in for the operating system with pages that are volatile until synced, and every write and fsync is a
place where a test can crash.

All calls block and raise `OSError` as the operating system would (ENOSPC, EIO, ...). A caller on an event loop
uses `File.probe` for reads, and hands cold reads and every fsync to its pool of I/O threads.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

Bytes: TypeAlias = bytes | bytearray | memoryview
"""Anything that can be written without a copy."""


class File(Protocol):
    """An open regular file. Safe to `pread` and `fsync` from a second thread while another one appends."""

    @property
    def path(self) -> str: ...

    def size(self) -> int:
        """Bytes, as the operating system knows it now."""
        ...

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset`; fewer only at the end of the file."""
        ...

    def probe(self, size: int, offset: int) -> bytes | None:
        """As `pread`, but only what is in the page cache: None when the read would wait for the device."""
        ...

    def pwrite(self, data: Bytes, offset: int) -> None:
        """Writes all of `data` at `offset`, extending the file if need be; after an error any prefix may be there."""
        ...

    def pwritev(self, buffers: Sequence[Bytes], offset: int) -> None:
        """As `pwrite` of the buffers one after the other."""
        ...

    def truncate(self, size: int) -> None: ...

    def preallocate(self, size: int) -> None:
        """Makes the file `size` bytes long; the new bytes read as zeros and need no further space."""
        ...

    def version(self) -> int | None:
        """A number that another write to the file changes, by whichever process; None where that cannot be told, as
        just after a write."""
        ...

    def fsync(self) -> None:
        """Returns when content and size are durable. After an OSError the content is unknown: never retry."""
        ...

    def fileno(self) -> int | None:
        """The kernel's descriptor, by which sendfile reads and compiled appends write; None where all has to come by
        this object (a simulated disk)."""
        ...

    def close(self) -> None:
        """Idempotent."""
        ...


class FileStat(NamedTuple):
    size: int
    """Bytes."""
    modified_ms: int
    """Last modification, milliseconds since 1970."""
    is_directory: bool


class Space(NamedTuple):
    """Of the file system that holds a path, in bytes."""

    total: int
    usable: int


class Lock(Protocol):
    """An exclusive lock on a file, held until released or the process ends."""

    def release(self) -> None: ...


class Disk(Protocol):
    """A tree of files. Paths are absolute or relative strings as the operating system takes them."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Opens a file for positional reads and writes; FileNotFoundError if it is absent and `create` is false."""
        ...

    def read(self, path: str) -> bytes:
        """The whole of a small file."""
        ...

    def exists(self, path: str) -> bool: ...

    def stat(self, path: str) -> FileStat: ...

    def list(self, path: str) -> Sequence[str]:
        """Names in a directory, sorted."""
        ...

    def make_directories(self, path: str) -> None:
        """Creates a directory and its parents where absent."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces a file at `target`. Durable only after `fsync_directory`."""
        ...

    def unlink(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None:
        """Removes an empty directory."""
        ...

    def fsync_directory(self, path: str) -> None:
        """Makes creations, renames and removals in a directory durable."""
        ...

    def sync_file_system(self, path: str) -> None:
        """Makes everything on the file system of `path` durable at once (syncfs): one call for many small files."""
        ...

    def lock(self, path: str) -> Lock:
        """Takes an exclusive lock on a file, creating it; BlockingIOError when another process holds it."""
        ...

    def space(self, path: str) -> Space: ...

    def boot_id(self) -> str | None:
        """Which boot of the machine this is: what was written during it is there, synced or not, in the page cache or
        on the device. None where the machine does not say."""
        ...


class Source(Protocol):
    """The part of `File` that a range is sent from."""

    @property
    def path(self) -> str: ...

    def pread(self, size: int, offset: int) -> bytes: ...

    def probe(self, size: int, offset: int) -> bytes | None: ...

    def fileno(self) -> int | None: ...


class FileRange:
    """`size` bytes of a file from `position`: the part of a response that need not pass through Python.

    It holds a reference to its file, so that retention can delete a segment while the last bytes of it are on their
    way out; `release` gives the reference back, once. The transport chooses sendfile, pread or the simulated disk.
    """

    __slots__ = ("_owner", "file", "position", "size")

    def __init__(self, file: Source, position: int, size: int, owner: "Retained | None" = None) -> None:
        self.file = file
        self.position = position
        self.size = size
        self._owner = owner
        if owner is not None:
            owner.retain()

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        """The bytes, by a blocking read."""
        return self.file.pread(self.size, self.position)

    def release(self) -> None:
        """Idempotent."""
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.release()


class Retained(Protocol):
    """What is kept open while references to it are out."""

    def retain(self) -> None: ...

    def release(self) -> None: ...


Chunk: TypeAlias = Bytes | FileRange
"""A piece of an encoded response; `len()` gives its bytes."""


def chunks_size(chunks: Sequence[Chunk]) -> int:
    """Bytes in all of `chunks`."""
    return sum(map(len, chunks))


class SyncFailed(OSError):
    """An fsync failed: what the device holds is unknown, and the kernel may have dropped what it could not write.

    A second fsync would succeed without the pages, so it is never retried.
    """


def sync_file(file: File) -> None:
    """Makes an open file durable; `SyncFailed`."""
    try:
        file.fsync()
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror or str(error), file.path) from error


def make_durable_directories(disk: Disk, path: str) -> None:
    """As `Disk.make_directories`; the names of those that were absent are durable, too. OSError."""
    absent = []
    above = path.rstrip("/")
    while above and not disk.exists(above):
        absent.append(above)
        above = above.rpartition("/")[0]
    disk.make_directories(path)
    for made in absent:
        parent, slash, _ = made.rpartition("/")
        disk.fsync_directory(parent or slash or ".")


def replace_file(disk: Disk, path: str, content: bytes) -> None:
    """Replaces a file so that a crash leaves the old content or the new, never a mixture.

    Temporary file, fsync, rename, fsync of the directory. After an OSError either content may be there, and it may be
    tried again unless it is `SyncFailed`.
    """
    temporary = f"{path}.tmp"
    file = disk.open(temporary, create=True)
    try:
        file.truncate(0)
        file.pwrite(content, 0)
        sync_file(file)
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.fsync_directory(path.rpartition("/")[0] or ".")
