"""What the tests of storage share: a clock that stands still, logs in a temporary folder, batches, and a disk that
fails."""

from __future__ import annotations

import errno
import os
import weakref
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tidelog.model.identifiers import TopicId, TopicPartition
from tidelog.ports.disk import Bytes, Disk, File, FileStat, Lock, Space
from tidelog.ports.real import SystemDisk
from tidelog.records.batch import Record, build_batch, read_records
from tidelog.records.control import ControlRecordType, EndTxnMarker, build_end_txn_batch
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_manager import LogManager
from tidelog.storage.log_manager_settings import LogManagerSettings

NOW_MS = 1_700_000_000_000
TP = TopicPartition("topicone", 0)
TOPIC_ID = TopicId(bytes(range(16)))


class StandingClock:
    """A clock that tests move by hand."""

    def __init__(self, now_ms: int = NOW_MS) -> None:
        self.now_ms = now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms - NOW_MS


class CountingRandom:
    """Tokens that differ, draws that are the greatest allowed."""

    def __init__(self) -> None:
        self._count = 0

    def below(self, bound: int) -> int:
        return bound - 1

    def token(self, size: int) -> bytes:
        self._count += 1
        return self._count.to_bytes(size, "big")


class FaultyFile:
    """A file of `FaultyDisk`."""

    def __init__(self, disk: FaultyDisk | FaultyMemoryDisk, inner: File) -> None:
        self._disk = disk
        self._inner = inner

    @property
    def path(self) -> str:
        return self._inner.path

    def size(self) -> int:
        return self._inner.size()

    def pread(self, size: int, offset: int) -> bytes:
        self._disk.happens("pread", self.path)
        return self._inner.pread(size, offset)

    def probe(self, size: int, offset: int) -> bytes | None:
        if self._disk.is_cold:
            return None
        return self._inner.probe(size, offset)

    def pwrite(self, data: Bytes, offset: int) -> None:
        try:
            self._disk.happens("pwrite", self.path)
        except OSError:
            self._inner.pwrite(bytes(data)[: len(data) // 2], offset)  # A failed write may have written a part.
            raise
        self._inner.pwrite(data, offset)

    def pwritev(self, buffers: Sequence[Bytes], offset: int) -> None:
        self.pwrite(b"".join(buffers), offset)

    def truncate(self, size: int) -> None:
        self._disk.happens("truncate", self.path)
        self._inner.truncate(size)

    def preallocate(self, size: int) -> None:
        self._disk.happens("preallocate", self.path)
        self._inner.preallocate(size)

    def version(self) -> int | None:
        return self._inner.version()

    def fsync(self) -> None:
        self._disk.happens("fsync", self.path)
        self._inner.fsync()

    def fileno(self) -> int | None:
        return None  # All that happens to it happens here.

    def close(self) -> None:
        self._disk.open_files.discard(self)
        self._inner.close()


class FaultyDisk(SystemDisk):
    """The real disk, counting what happens and failing when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.fault: Callable[[str, str], OSError | None] = lambda _operation, _path: None
        self.is_cold = False
        """Whether nothing is in the page cache."""
        self.operations: list[tuple[str, str]] = []
        self.open_files: set[FaultyFile] = set()

    def happens(self, operation: str, path: str) -> None:
        self.operations.append((operation, path))
        error = self.fault(operation, path)
        if error is not None:
            raise error

    def fail(self, operation: str, part_of_path: str, code: int = errno.EIO) -> None:
        """Lets every such operation on paths that contain `part_of_path` fail from now on."""

        def fault(happening: str, path: str) -> OSError | None:
            if happening == operation and part_of_path in path:
                return OSError(code, os.strerror(code), path)
            return None

        self.fault = fault

    def count(self, operation: str) -> int:
        return sum(1 for happening, _ in self.operations if happening == operation)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        self.happens("open", path)
        file = FaultyFile(self, super().open(path, create=create, read_only=read_only))
        self.open_files.add(file)
        return file

    def rename(self, source: str, target: str) -> None:
        self.happens("rename", source)
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self.happens("unlink", path)
        super().unlink(path)

    def make_directories(self, path: str) -> None:
        self.happens("make_directories", path)
        super().make_directories(path)

    def fsync_directory(self, path: str) -> None:
        self.happens("fsync_directory", path)
        super().fsync_directory(path)

    def sync_file_system(self, path: str) -> None:
        self.happens("sync_file_system", path)

    def list(self, path: str) -> Sequence[str]:
        self.happens("list", path)
        return super().list(path)

    def stat(self, path: str) -> FileStat:
        return super().stat(path)

    def lock(self, path: str) -> Lock:
        return super().lock(path)

    def space(self, path: str) -> Space:
        return super().space(path)


class MemoryFile:
    """A file of `MemoryDisk`."""

    def __init__(self, disk: MemoryDisk, path: str) -> None:
        self._disk = disk
        self._content = disk.files[path]
        self.path = path

    def size(self) -> int:
        return len(self._content)

    def pread(self, size: int, offset: int) -> bytes:
        return bytes(self._content[offset : offset + size])

    def probe(self, size: int, offset: int) -> bytes | None:
        return self.pread(size, offset)

    def pwrite(self, data: Bytes, offset: int) -> None:
        self.preallocate(max(len(self._content), offset))
        self._content[offset : offset + len(data)] = data

    def pwritev(self, buffers: Sequence[Bytes], offset: int) -> None:
        self.pwrite(b"".join(buffers), offset)

    def truncate(self, size: int) -> None:
        del self._content[size:]
        self.preallocate(size)

    def preallocate(self, size: int) -> None:
        self._content.extend(bytes(max(0, size - len(self._content))))

    def version(self) -> int | None:
        return zlib.crc32(self._content) if self._disk.tells_versions else None

    def fsync(self) -> None:
        pass

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        pass


class MemoryDisk:
    """A disk in a dict, for thousands of examples a minute."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self.directories = {""}
        self.tells_versions = False
        """Whether its files have a `version`; without one nothing that was checked is trusted."""
        self.boot: str | None = "first boot"
        """Of its machine."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        if path not in self.files:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self.files[path] = bytearray()
        return MemoryFile(self, path)

    def read(self, path: str) -> bytes:
        file = self.open(path)
        return file.pread(file.size(), 0)

    def exists(self, path: str) -> bool:
        return path in self.files or path in self.directories

    def stat(self, path: str) -> FileStat:
        if path in self.directories:
            return FileStat(0, NOW_MS, True)
        return FileStat(self.open(path).size(), NOW_MS, False)

    def list(self, path: str) -> Sequence[str]:
        prefix = f"{path}/"
        return sorted(
            name.removeprefix(prefix)
            for name in (*self.files, *self.directories)
            if name.startswith(prefix) and "/" not in name.removeprefix(prefix)
        )

    def make_directories(self, path: str) -> None:
        parts = path.split("/")
        self.directories.update("/".join(parts[: count + 1]) for count in range(len(parts)))

    def rename(self, source: str, target: str) -> None:
        if source in self.files:
            self.files[target] = self.files.pop(source)
            return
        if source not in self.directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        self.directories = {_moved(name, source, target) for name in self.directories}
        self.files = {_moved(name, source, target): content for name, content in self.files.items()}

    def unlink(self, path: str) -> None:
        self.open(path)
        del self.files[path]

    def remove_directory(self, path: str) -> None:
        self.directories.remove(path)

    def fsync_directory(self, path: str) -> None:
        pass

    def sync_file_system(self, path: str) -> None:
        pass

    def lock(self, path: str) -> Lock:
        return _NoLock()

    def space(self, path: str) -> Space:
        return Space(1 << 40, 1 << 40)

    def boot_id(self) -> str | None:
        return self.boot


class FaultyMemoryDisk(MemoryDisk):
    """As `FaultyDisk`, for many examples."""

    def __init__(self) -> None:
        super().__init__()
        self.fault: Callable[[str, str], OSError | None] = lambda _operation, _path: None
        self.is_cold = False
        self.operations: list[tuple[str, str]] = []
        self.open_files: set[FaultyFile] = set()

    def happens(self, operation: str, path: str) -> None:
        self.operations.append((operation, path))
        error = self.fault(operation, path)
        if error is not None:
            raise error

    def refuse_batches(self, count: int) -> None:
        """The next `count` writes of batches find no space."""
        left = count

        def fault(operation: str, path: str) -> OSError | None:
            nonlocal left
            if operation == "pwrite" and path.endswith(".log") and left:
                left -= 1
                return OSError(errno.ENOSPC, "full", path)
            return None

        self.fault = fault

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        self.happens("open", path)
        return FaultyFile(self, super().open(path, create=create, read_only=read_only))

    def rename(self, source: str, target: str) -> None:
        self.happens("rename", source)
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self.happens("unlink", path)
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        del self.files[path]

    def fsync_directory(self, path: str) -> None:
        self.happens("fsync_directory", path)


def _moved(name: str, source: str, target: str) -> str:
    return target + name[len(source) :] if name == source or name.startswith(f"{source}/") else name


class _NoLock:
    def release(self) -> None:
        pass


_MANAGERS: weakref.WeakSet[LogManager] = weakref.WeakSet()


def open_manager(
    *directories: Path | str,
    disk: Disk | None = None,
    clock: StandingClock | None = None,
    config: LogConfig | None = None,
    broker_id: int = 0,
    cluster_id: str | None = "cluster",
    settings: LogManagerSettings | None = None,
    on_directory_failure: Callable[[str], None] | None = None,
) -> LogManager:
    """A manager on real files, opened; `let_go` closes what a test has left open."""
    manager = LogManager(
        disk=SystemDisk() if disk is None else disk,
        clock=StandingClock() if clock is None else clock,
        log_dirs=[str(directory) for directory in directories],
        broker_id=broker_id,
        cluster_id=cluster_id,
        default_config=config,
        random=CountingRandom(),
        settings=settings,
        on_directory_failure=on_directory_failure,
    )
    _MANAGERS.add(manager)
    manager.open()
    return manager


def let_go() -> None:
    """Closes the files of all managers that were made here and are still there: a worker runs thousands of tests."""
    for manager in list(_MANAGERS):
        manager.abandon()
    _MANAGERS.clear()


def open_log(directory: Path | str, **options: Any) -> tuple[LogManager, Log]:
    """A manager and its log of `TP`, created if absent."""
    manager = open_manager(directory, **options)
    return manager, manager.create(TP, TOPIC_ID)


def batch(*values: bytes | None, timestamp: int = NOW_MS, key: bytes | None = b"k", **fields: Any) -> bytearray:
    """A batch as a producer sends it, of records with these values and ascending timestamps."""
    records = [Record(index, timestamp + index, key, value) for index, value in enumerate(values)]
    return bytearray(build_batch(records, **fields))


def marker(producer_id: int, *, commit: bool, producer_epoch: int = 0, coordinator_epoch: int = 0) -> bytearray:
    """The control batch that ends a transaction."""
    kind = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
    return bytearray(
        build_end_txn_batch(
            EndTxnMarker(kind, coordinator_epoch),
            timestamp=NOW_MS,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
    )


def fill(log: Log, batches: int, *, size: int = 100, leader_epoch: int = 0, timestamp: int = NOW_MS) -> None:
    """Appends batches of one record each, whose value begins with its offset."""
    for _ in range(batches):
        offset = log.log_end_offset
        value = f"{offset}".encode().ljust(size, b".")
        log.append(batch(value, timestamp=timestamp + offset), leader_epoch=leader_epoch, now_ms=timestamp + offset)


def read_all(
    log: Log, offset: int | None = None, *, up_to: int | None = None, max_bytes: int = 1 << 20
) -> list[Record]:
    """Every record from `offset` on, as a consumer would come by them."""
    position = log.log_start_offset if offset is None else offset
    end = log.log_end_offset if up_to is None else up_to
    found: list[Record] = []
    while position < end:
        result = log.read(position, max_bytes, up_to_offset=end)
        data = b"".join(part.read() for part in result.ranges)
        for part in result.ranges:
            part.release()
        if not data:
            break
        records = [record for record in records_of(data) if record.offset >= position]
        assert records, "a read brought a consumer no further"
        found += records
        position = records[-1].offset + 1
    return found


def records_of(data: bytes) -> list[Record]:
    """The records of the whole batches in `data`."""
    from tidelog.records.batch import iterate_headers

    return [record for position, _ in iterate_headers(data) for record in read_records(data, position)]


def names(directory: Path, suffixes: Iterable[str] = (".log",)) -> list[str]:
    """Files in a folder with these endings."""
    return sorted(path.name for path in directory.iterdir() if path.name.endswith(tuple(suffixes)))
