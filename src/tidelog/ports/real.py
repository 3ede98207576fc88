"""The operating system behind the ports. Only the top rows (broker, launcher, pipeline, cli, testing) import this."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidelog.ports.disk import Bytes, File, FileStat, Lock, Space
from tidelog.ports.system_calls import syncfs

if TYPE_CHECKING:
    import ssl

    from tidelog.ports.network import Listener, SecuredProtocol


_TIMESTAMP_GRAIN_NS: Final = 50_000_000
"""Longer than a tick of the kernel's clock (4 ms, mostly): two writes within one tick leave the same time."""

_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
"""Linux draws it anew at each boot; containers on one machine see the same."""


class SystemClock:
    """`tidelog.ports.clock.Clock` of the operating system."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class SystemRandom:
    """`tidelog.ports.random.Random` from the kernel's source."""

    def below(self, bound: int) -> int:
        bits = (bound - 1).bit_length()
        size = (bits + 7) // 8
        while True:  # Twice on average, at most.
            drawn = int.from_bytes(os.urandom(size), "big") >> 8 * size - bits
            if drawn < bound:
                return drawn

    def token(self, size: int) -> bytes:
        return os.urandom(size)


class SystemFile:
    """`tidelog.ports.disk.File` on a descriptor."""

    __slots__ = ("_fd", "_path")

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._fd = descriptor

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def pread(self, size: int, offset: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]
        remaining = size - len(data)
        while remaining:  # A read of more than 2 GiB, or one cut by a signal, comes in pieces.
            data = os.pread(self._fd, remaining, offset + size - remaining)
            if not data:
                break
            parts.append(data)
            remaining -= len(data)
        return b"".join(parts)

    def probe(self, size: int, offset: int) -> bytes | None:
        buffer = bytearray(size)
        try:
            count = os.preadv(self._fd, [buffer], offset, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                return self.pread(size, offset)  # tmpfs and overlays know no RWF_NOWAIT and have no device to wait for.
            raise
        if count == size:
            return bytes(buffer)
        if offset + count >= self.size():
            return bytes(buffer[:count])
        return None

    def pwrite(self, data: Bytes, offset: int) -> None:
        written = os.pwrite(self._fd, data, offset)
        if written != len(data):
            view = memoryview(data).cast("B")
            while written < len(view):
                written += os.pwrite(self._fd, view[written:], offset + written)

    def pwritev(self, buffers: Sequence[Bytes], offset: int) -> None:
        total = sum(map(len, buffers))
        written = os.pwritev(self._fd, buffers, offset) if len(buffers) <= 1024 else 0
        if written != total:
            self.pwrite(b"".join(buffers)[written:], offset + written)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def preallocate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def version(self) -> int | None:
        # The status change time: no process can set it back, as it can the time of the last modification.
        changed_ns = os.fstat(self._fd).st_ctime_ns
        return changed_ns if time.time_ns() - changed_ns > _TIMESTAMP_GRAIN_NS else None

    def fsync(self) -> None:
        os.fdatasync(self._fd)

    def fileno(self) -> int | None:
        return self._fd

    def close(self) -> None:
        descriptor, self._fd = self._fd, -1
        if descriptor >= 0:
            os.close(descriptor)


class _SystemLock:
    def __init__(self, descriptor: int) -> None:
        self._fd = descriptor

    def release(self) -> None:
        descriptor, self._fd = self._fd, -1
        if descriptor >= 0:
            os.close(descriptor)


class SystemDisk:
    """`tidelog.ports.disk.Disk` on the operating system's files."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        flags = os.O_RDONLY if read_only else os.O_RDWR
        if create:
            flags |= os.O_CREAT
        return SystemFile(path, os.open(path, flags | os.O_CLOEXEC, 0o644))

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def stat(self, path: str) -> FileStat:
        found = os.stat(path)
        return FileStat(found.st_size, found.st_mtime_ns // 1_000_000, (found.st_mode & 0o170000) == 0o040000)

    def list(self, path: str) -> Sequence[str]:
        return sorted(os.listdir(path))

    def make_directories(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def fsync_directory(self, path: str) -> None:
        with self._directory(path) as descriptor:
            os.fsync(descriptor)

    def sync_file_system(self, path: str) -> None:
        with self._directory(path) as descriptor:
            code = syncfs(descriptor)
            if code != 0:
                raise OSError(code, os.strerror(code), path)

    def lock(self, path: str) -> Lock:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(descriptor)
            raise
        return _SystemLock(descriptor)

    def space(self, path: str) -> Space:
        found = os.statvfs(path)
        return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def boot_id(self) -> str | None:
        try:
            return self.read(_BOOT_ID).decode("ascii").strip() or None
        except (OSError, UnicodeDecodeError):
            return None  # Not Linux, or /proc is not there.

    @contextlib.contextmanager
    def _directory(self, path: str) -> Iterator[int]:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


class _SystemListener:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    def close(self) -> None:
        self._server.close()


class SystemNetwork:
    """`tidelog.ports.network.Network` on the running event loop's sockets."""

    async def listen(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> Listener:
        loop = asyncio.get_running_loop()
        return _SystemListener(
            await loop.create_server(factory, [_encoded(host)] if host else None, port, backlog=1024)
        )

    async def listen_tls(
        self, factory: Callable[[], SecuredProtocol], host: str, port: int, tls: ssl.SSLContext
    ) -> Listener:
        # With OpenSSL, which a broker without TLS does not load.
        from tidelog.ports.tls_listener import open_tls_listener

        return await open_tls_listener(factory, host, port, tls)

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        named = host if tls is not None else None
        loop = asyncio.get_running_loop()
        return await loop.create_connection(factory, _encoded(host), port, ssl=tls, server_hostname=named)


def _encoded(host: str) -> Any:
    """A name for the event loop; an ASCII one as bytes. For text the loop loads tables of Unicode: 0.2 MiB."""
    return host.encode() if host.isascii() else host
