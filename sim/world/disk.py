"""A disk with a page cache that can be lost: what `fsync` is for, made visible.

    process --write--> page cache --fsync--> platter
    kill:       the process is gone, the page cache stays
    power cut:  of what was not synced, pages survive as a seed decides, each whole, in part or not at all; names too

The rules are those of POSIX, at their strictest:

- `fsync` of a file makes its content and size durable, and not its name.
- `fsync_directory` makes the names in one directory durable. Without it a power cut keeps some of the changes to that
  directory: a beginning of them, as with a journal, or any (`names_in_order`); a rename happens whole or not at all.
- After a failed `fsync` the pages count as clean although they never reached the platter, as on Linux: a second `fsync`
  succeeds, and the data is gone at the next power cut.

Every operation first gives way to others if it is an I/O thread's (`sim.world.threads`), and then passes
`SimulatedDisk.fault`, where a scenario may let it fail, cut it short, or end the process in the middle of it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from sim.world import threads
from sim.world.platter import PAGE, Directory, FileContent, Inode
from sim.world.randomness import SeededRandom
from tidelog.ports.disk import Bytes, File, FileStat, Lock, Space

_LOOKS: Final = frozenset({"read", "open", "list", "stat"})
"""Operations that change nothing."""


class ProcessDeath(BaseException):
    """The simulated process ends here. No `except Exception` holds it up, and whatever it still tries fails alike."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of a process upon the disk."""

    number: int
    """Counts the operations that change something, from 1; others bear the number of the change before them."""
    kind: str
    """create, write, truncate, fsync, rename, unlink, make_directory, remove_directory, fsync_directory, sync; or, of
    those that change nothing, read, open, list, stat.
    """
    path: str
    size: int = 0
    """Bytes, of writes and reads; the new size, of a truncation."""

    @property
    def changes(self) -> bool:
        """Whether the disk is another one afterwards."""
        return self.kind not in _LOOKS


@dataclass(frozen=True, slots=True)
class Fault:
    """How an operation goes wrong."""

    error: BaseException | None
    """Raised: an OSError, or `ProcessDeath`; None: nothing is."""
    done: int = 0
    """Bytes of a write that happen all the same (whole pages where the process dies); for anything else 1 for "it
    happened", 0 for not.
    """
    damage: Callable[[bytes], bytes] | None = None
    """Of a read that raises nothing: what it gives instead of what lies there."""


FaultPlan: TypeAlias = Callable[[Operation], Fault | None]
Observer: TypeAlias = Callable[[Operation], None]


class SimulatedDisk:
    """The device, which outlives processes. A process reaches it through its own `mount`."""

    def __init__(self, random: SeededRandom, now_ms: Callable[[], int], *, capacity: int | None = None) -> None:
        """`now_ms` stamps modifications; `capacity` in bytes, of files' contents together, None for no end."""
        self.random = random
        self.now_ms = now_ms
        self.capacity = capacity
        self.cold_chance = 0.0
        """Probability that `probe` finds its pages not in memory."""
        self.names_in_order = True
        """Whether changes of a directory survive a power cut in their order only, as with a journal."""
        self.fault: FaultPlan | None = None
        self.slowness: Callable[[str, str], float] | None = None
        """(kind, path) -> seconds that an operation takes longer than others; None: none does."""
        self.on_stall: Callable[[float], object] | None = None
        """Told how long the process stands still when such an operation is not an I/O thread's."""
        self.observer: Observer | None = None
        """Told of every change, before it happens."""
        self.operations = 0
        self.boot = 1
        """Counts the boots of its machine: a power cut ends one."""
        self.torn: set[str] = set()
        """Paths of files of which a power cut has kept a later part that was not synced, and not an earlier one."""
        self._root = Directory()
        self._locks: dict[str, Mount] = {}
        self._mount: Mount | None = None

    def mount(self) -> Mount:
        """The disk as the next process sees it; the one before must be dead."""
        if self._mount is not None and self._mount.alive:
            raise RuntimeError("a simulated disk serves one process at a time: kill the other one first")
        self._mount = Mount(self)
        return self._mount

    def kill(self) -> None:
        """The process is gone: its locks too, its page cache not."""
        if self._mount is not None:
            self._mount.alive = False
        self._locks.clear()

    def power_cut(self) -> None:
        """What was not synced is gone, but for what the seed lets survive: nothing at all, every other time."""
        self.kill()
        self.boot += 1
        nothing_survives = self.random.chance(0.5)
        files = ((path, self._file(path)) for path in self.paths())
        unsynced = {path: bytes(inode.content) for path, inode in files if inode.dirty or inode.size_dirty}
        self._root.power_cut(self.random, nothing_survives=nothing_survives, names_in_order=self.names_in_order)
        if not nothing_survives:
            self.torn |= {
                path
                for path, content in unsynced.items()
                if self.exists(path) and not content.startswith(self.read(path))
            }

    @property
    def used(self) -> int:
        """Bytes of all files' contents."""
        return sum(len(inode.content) for inode in self._root.files())

    def read(self, path: str) -> bytes:
        """A file's content as a process would see it."""
        return bytes(self._file(path).content)

    def durable(self, path: str) -> bytes | None:
        """What of a file is sure to survive a power cut; None if its name isn't."""
        directory, name = self._parent(path)
        node = directory.durable.get(name)
        return bytes(node.durable) if isinstance(node, Inode) else None

    def paths(self, directory: str = "/") -> list[str]:
        """Paths of all files below a directory, sorted."""
        found: list[str] = []
        node = self._find(directory)
        if isinstance(node, Directory):
            for name in sorted(node.entries):
                path = f"{directory.rstrip('/')}/{name}"
                found += self.paths(path) if isinstance(node.entries[name], Directory) else [path]
        return found

    def folders(self, directory: str) -> list[str]:
        """Names of the directories in a directory, sorted."""
        node = self._find(directory)
        entries = node.entries if isinstance(node, Directory) else {}
        return sorted(name for name in entries if isinstance(entries[name], Directory))

    def files(self, directory: str, suffix: str) -> dict[str, FileContent]:
        """The files in a directory whose names end so, as a process would see them; they are not to be changed."""
        node = self._find(directory)
        return node.contents(suffix) if isinstance(node, Directory) else {}

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory."""
        return self._find(path) is not None

    def flip_bit(self, path: str, bit: int) -> None:
        """Damages a file where it lies."""
        inode = self._file(path)
        for content in (inode.content, inode.durable):
            if bit // 8 < len(content):
                content[bit // 8] ^= 1 << bit % 8
        inode.rewritten += 1

    def rot(self, path: str, position: int, bits: int) -> None:
        """Damages a byte, on the platter too where it is synced, so that `files` still shows what was written."""
        inode = self._file(path)
        for content, rotten in ((inode.content, inode.rotten), (inode.durable, inode.rotten_durable)):
            if position < len(content):
                content[position] ^= bits
                rotten[position] = rotten.get(position, 0) ^ bits

    def rotten(self, directory: str) -> dict[str, list[int]]:
        """[name] -> the positions of bytes that a file in a directory shows as other than were written."""
        node = self._find(directory)
        entries = node.entries if isinstance(node, Directory) else {}
        return {
            name: sorted(inode.rotten)
            for name, inode in sorted(entries.items())
            if isinstance(inode, Inode) and inode.rotten
        }

    def write_back(self, path: str) -> None:
        """Brings a file's pages to the platter, as an operating system may do at any time; its name stays as it is."""
        self._file(path).sync()

    # What mounts use.

    def check(self, kind: str, path: str, size: int = 0) -> Fault | None:
        """Counts and announces an operation; how it shall fail, if it shall."""
        if kind in _LOOKS:
            return None if self.fault is None else self.fault(Operation(self.operations, kind, path, size))
        self.operations += 1
        operation = Operation(self.operations, kind, path, size)
        if self.observer is not None:
            self.observer(operation)
        return None if self.fault is None else self.fault(operation)

    def _find(self, path: str) -> Inode | Directory | None:
        node: Inode | Directory | None = self._root
        for part in _parts(path):
            if not isinstance(node, Directory):
                return None
            node = node.entries.get(part)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        parts = _parts(path)
        node = self._find("/".join(parts[:-1]))
        if not parts or not isinstance(node, Directory):
            raise _os_error(errno.ENOENT, path)
        return node, parts[-1]

    def _file(self, path: str) -> Inode:
        node = self._find(path)
        if node is None:
            raise _os_error(errno.ENOENT, path)
        if isinstance(node, Directory):
            raise _os_error(errno.EISDIR, path)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._find(path)
        if node is None:
            raise _os_error(errno.ENOENT, path)
        if not isinstance(node, Directory):
            raise _os_error(errno.ENOTDIR, path)
        return node

    def claim(self, path: str, mount: Mount) -> None:
        if path in self._locks:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), path)
        self._locks[path] = mount

    def unclaim(self, path: str) -> None:
        self._locks.pop(path, None)


class SimulatedFile:
    """`tidelog.ports.disk.File`."""

    __slots__ = ("_inode", "_is_open", "_mount", "_path", "_read_only")

    def __init__(self, mount: Mount, path: str, inode: Inode, read_only: bool) -> None:
        self._mount = mount
        self._path = path
        self._inode = inode
        self._read_only = read_only
        self._is_open = True

    @property
    def path(self) -> str:
        return self._path

    def _check(self, kind: str, size: int = 0) -> Fault | None:
        self._mount.turn(kind, self._path)
        fault = self._mount.disk.check(kind, self._path, size)
        if not self._is_open or (self._read_only and kind != "read"):
            raise _os_error(errno.EBADF, self._path)
        return fault

    def size(self) -> int:
        self._mount.check_alive()
        return len(self._inode.content)

    def pread(self, size: int, offset: int) -> bytes:
        fault = self._check("read", size)
        data = bytes(memoryview(self._inode.content)[offset : offset + size])
        if fault is None:
            return data
        if fault.error is not None:
            raise self._mount.failed(fault)
        return data if fault.damage is None else fault.damage(data)

    def probe(self, size: int, offset: int) -> bytes | None:
        disk = self._mount.disk
        if disk.cold_chance and disk.random.chance(disk.cold_chance):
            return None
        return self.pread(size, offset)

    def version(self) -> int | None:
        """Not told: whatever is read is checked."""
        return None

    def pwrite(self, data: Bytes, offset: int) -> None:
        data = memoryview(data).cast("B")
        fault = self._check("write", len(data))
        if fault is not None:
            done = fault.done
            if isinstance(fault.error, ProcessDeath):
                done = max((offset + done) // PAGE * PAGE - offset, 0)  # A kill comes between pages, never within one.
            self._write(data[:done], offset)
            raise self._mount.failed(fault)
        self._write(data, offset)

    def pwritev(self, buffers: Sequence[Bytes], offset: int) -> None:
        self.pwrite(b"".join(buffers), offset)

    def _write(self, data: memoryview, offset: int) -> None:
        inode, disk = self._inode, self._mount.disk
        end = offset + len(data)
        growth = end - len(inode.content)
        if growth > 0 and disk.capacity is not None and disk.used + growth > disk.capacity:
            room = max(disk.capacity - disk.used - max(offset - len(inode.content), 0), 0)
            if room:
                self._write(data[:room], offset)
            raise _os_error(errno.ENOSPC, self._path)
        if offset < len(inode.content):
            inode.rewritten += 1
        if growth > 0:
            self._resize(end)
        inode.content[offset:end] = data
        inode.heal(offset, end)
        inode.touch(offset, end)
        inode.modified_ms = disk.now_ms()

    def truncate(self, size: int) -> None:
        self._change_size("truncate", size)

    def preallocate(self, size: int) -> None:
        self._change_size("truncate", size)

    def _change_size(self, kind: str, size: int) -> None:
        fault = self._check(kind, size)
        if fault is None or fault.done:
            self._resize(size)
            self._inode.modified_ms = self._mount.disk.now_ms()
        if fault is not None:
            raise self._mount.failed(fault)

    def _resize(self, size: int) -> None:
        inode = self._inode
        old = len(inode.content)
        if size > old:
            inode.content += bytes(size - old)
        elif size < old:
            inode.rewritten += 1
        del inode.content[size:]
        inode.heal(size, max(old, size))
        inode.touch(min(old, size), max(old, size))
        inode.size_dirty = inode.size_dirty or size != old

    def fsync(self) -> None:
        fault = self._check("fsync")
        if fault is None or fault.done:
            self._inode.sync()
        if fault is not None:
            if isinstance(fault.error, OSError):
                self._inode.forget_dirt()
            raise self._mount.failed(fault)

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        self._is_open = False


class _SimulatedLock:
    def __init__(self, mount: Mount, path: str) -> None:
        self._mount = mount
        self._path = path

    def release(self) -> None:
        if self._mount.alive:
            self._mount.disk.unclaim(self._path)


class Mount:
    """`tidelog.ports.disk.Disk` for one process; dead once that is killed."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.alive = True

    def check_alive(self) -> None:
        """The dead do nothing."""
        if not self.alive:
            raise ProcessDeath("the process was killed")

    def turn(self, kind: str, path: str) -> None:
        """Comes before each operation: others go on first, if it is an I/O thread's. The dead do nothing."""
        self.check_alive()
        slowness = self.disk.slowness
        rest_s = 0.0 if slowness is None else slowness(kind, path)
        if not threads.turn(rest_s):
            if rest_s and self.disk.on_stall is not None:
                self.disk.on_stall(rest_s)
        elif not self.alive:
            raise ProcessDeath("the process was killed")

    def look(self, kind: str, path: str) -> None:
        """An operation that changes nothing."""
        self.turn(kind, path)
        fault = self.disk.check(kind, path)
        if fault is not None and fault.error is not None:
            raise self.failed(fault)

    def failed(self, fault: Fault) -> BaseException:
        """What to raise for a fault; a process that dies of it is dead from now on."""
        assert fault.error is not None
        if isinstance(fault.error, ProcessDeath):
            self.disk.kill()
        return fault.error

    def _names(self, kind: str, path: str, change: Callable[[], None]) -> None:
        """Carries out a change of names, if it shall not fail."""
        fault = self.disk.check(kind, path)
        if fault is None or fault.done:
            change()
        if fault is not None:
            raise self.failed(fault)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        disk = self.disk
        self.turn("open", path)
        if disk._find(path) is None and create:
            directory, name = disk._parent(path)
            inode = Inode(disk.now_ms())
            self._names("create", path, lambda: directory.change(None, name, inode))
        else:
            fault = disk.check("open", path)
            if fault is not None and fault.error is not None:
                raise self.failed(fault)
        return SimulatedFile(self, path, disk._file(path), read_only)

    def read(self, path: str) -> bytes:
        file = self.open(path, read_only=True)
        return file.pread(file.size(), 0)

    def exists(self, path: str) -> bool:
        self.check_alive()
        return self.disk._find(path) is not None

    def stat(self, path: str) -> FileStat:
        self.look("stat", path)
        node = self.disk._find(path)
        if isinstance(node, Directory):
            return FileStat(0, 0, is_directory=True)
        inode = self.disk._file(path)
        return FileStat(len(inode.content), inode.modified_ms, is_directory=False)

    def list(self, path: str) -> Sequence[str]:
        self.look("list", path)
        return sorted(self.disk._directory(path).entries)

    def make_directories(self, path: str) -> None:
        made = ""
        for part in _parts(path):
            self.turn("make_directory", path)
            directory = self.disk._directory(made or "/")
            made = f"{made}/{part}"
            node = directory.entries.get(part)
            if node is None:
                self._make_directory(directory, part, made)
            elif not isinstance(node, Directory):
                raise _os_error(errno.ENOTDIR, made)

    def _make_directory(self, directory: Directory, name: str, path: str) -> None:
        self._names("make_directory", path, lambda: directory.change(None, name, Directory()))

    def rename(self, source: str, target: str) -> None:
        self.turn("rename", target)
        directory, old = self.disk._parent(source)
        other, new = self.disk._parent(target)
        node = directory.entries.get(old)
        if node is None:
            raise _os_error(errno.ENOENT, source)
        if other is not directory:
            raise _os_error(errno.EXDEV, target)  # Nothing here needs it, and it would be two changes.
        replaced = directory.entries.get(new)
        if isinstance(replaced, Directory) and (replaced.entries or not isinstance(node, Directory)):
            raise _os_error(errno.ENOTEMPTY, target)
        self._names("rename", target, lambda: directory.change(old, new, node))

    def unlink(self, path: str) -> None:
        self.turn("unlink", path)
        directory, name = self.disk._parent(path)
        inode = self.disk._file(path)
        self._names("unlink", path, lambda: directory.change(name, None, inode))

    def remove_directory(self, path: str) -> None:
        self.turn("remove_directory", path)
        directory, name = self.disk._parent(path)
        node = self.disk._directory(path)
        if node.entries:
            raise _os_error(errno.ENOTEMPTY, path)
        self._names("remove_directory", path, lambda: directory.change(name, None, node))

    def fsync_directory(self, path: str) -> None:
        self.turn("fsync_directory", path)
        self._names("fsync_directory", path, self.disk._directory(path).sync)

    def sync_file_system(self, path: str) -> None:
        self.turn("sync", path)
        self.disk._directory(path)
        self._names("sync", path, self.disk._root.sync_below)

    def lock(self, path: str) -> Lock:
        self.open(path, create=True)
        self.disk.claim(path, self)
        return _SimulatedLock(self, path)

    def space(self, path: str) -> Space:
        self.check_alive()
        capacity = 1 << 40 if self.disk.capacity is None else self.disk.capacity
        return Space(capacity, max(capacity - self.disk.used, 0))

    def boot_id(self) -> str | None:
        return f"boot {self.disk.boot}"


@lru_cache(maxsize=4096)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part not in ("", "."))


def _os_error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
