"""The embedded store's tree on the simulated disk: a journal, one record a commit, each synced.

    length uint32 | CRC-32 uint32 | pickled Changes

SQLite keeps its files itself and cannot be given a simulated disk. The journal makes SQLite's promise (a commit is
durable when it returns, whole or not at all) on a disk that loses what was not synced.
"""

from __future__ import annotations

import asyncio
import pickle
from concurrent.futures import Executor
from struct import Struct
from typing import Final
from zlib import crc32

from tidelog.ports.disk import Disk
from tidelog.store.persistence import PersistenceFailed
from tidelog.store.tree import Changes, Snapshot

_HEADER: Final = Struct(">II")


class JournalPersistence:
    """Keeps the changes of the tree (`tidelog.store.persistence.Persistence`) in the journal."""

    def __init__(self, disk: Disk, directory: str, executor: Executor) -> None:
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/journal"
        self._executor = executor
        self._end = 0
        self._broken = False

    def load(self) -> Snapshot:
        snapshot = Snapshot()
        new = not self._disk.exists(self._path)
        file = self._disk.open(self._path, create=True)
        try:
            data = file.pread(file.size(), 0)
            while len(data) - self._end >= _HEADER.size:
                length, checksum = _HEADER.unpack_from(data, self._end)
                start = self._end + _HEADER.size
                record = data[start : start + length]
                if len(record) < length or crc32(record) != checksum or not length:
                    break
                snapshot.apply(pickle.loads(record))
                self._end = start + length
            file.truncate(self._end)
            file.fsync()
        finally:
            file.close()
        if new:
            self._disk.fsync_directory(self._directory)
        return snapshot

    async def commit(self, changes: Changes) -> None:
        if self._broken:
            raise PersistenceFailed("an earlier commit failed")
        record = pickle.dumps(Changes(changes.zxid, dict(changes.nodes), dict(changes.sessions)), protocol=5)
        try:
            await asyncio.wrap_future(
                self._executor.submit(self._write, _HEADER.pack(len(record), crc32(record)) + record)
            )
        except OSError as error:
            self._broken = True
            raise PersistenceFailed(str(error)) from error

    def _write(self, data: bytes) -> None:
        file = self._disk.open(self._path)
        try:
            file.pwrite(data, self._end)
            file.fsync()
        finally:
            file.close()
        self._end += len(data)

    async def close(self) -> None:
        """Does nothing: every commit has closed the file."""
