"""The store on disk: what was committed is there again, and what cannot be used is refused clearly."""

from __future__ import annotations

import asyncio
import errno
import sqlite3
from pathlib import Path

import pytest

from tidelog.ports.real import SystemDisk
from tidelog.store.errors import StoreCorrupt, StoreLocked
from tidelog.store.persistence import PersistenceFailed
from tidelog.store.sqlite import SqlitePersistence
from tidelog.store.tree import Changes, NodeRecord, SessionRecord, Snapshot

NODE = NodeRecord(b"data", 1, 2, 3, 4, 5, 6, 7, 8, 9)
NULL = NodeRecord(None, 1, 2, 3, 4, 5, 6, 7, 8, 0)
EMPTY = NULL._replace(data=b"")
SESSION = SessionRecord(6000, b"p" * 16, local=True)


def persistence(directory: Path) -> SqlitePersistence:
    return SqlitePersistence(str(directory / "store"), SystemDisk())


def test_what_was_committed_is_loaded_again(tmp_path: Path) -> None:
    """Nodes with null and empty data, sessions, the last transaction id; what was deleted is gone."""

    async def write() -> None:
        store = persistence(tmp_path)
        assert store.load() == Snapshot()
        await store.commit(Changes(7, {"/": NULL, "/a": NODE, "/gone": NODE, "/é": EMPTY}, {5: SESSION, 6: SESSION}))
        await store.commit(Changes(9, {"/gone": None, "/a": NODE._replace(version=1)}, {6: None}))
        await store.close()
        await store.close()

    async def read() -> Snapshot:
        store = persistence(tmp_path)
        snapshot = store.load()
        await store.close()
        return snapshot

    asyncio.run(write())
    nodes = {"/": NULL, "/a": NODE._replace(version=1), "/é": EMPTY}
    assert asyncio.run(read()) == Snapshot(9, nodes, {5: SESSION})


def test_the_name_of_a_new_store_is_durable(tmp_path: Path) -> None:
    """And those of the directories that were made above it: a power cut leaves what was committed."""

    class NotingDisk(SystemDisk):
        def fsync_directory(self, path: str) -> None:
            super().fsync_directory(path)
            synced.append(path)

    async def run() -> None:
        store = SqlitePersistence(str(tmp_path / "cluster" / "store"), NotingDisk())
        store.load()
        await store.close()

    synced: list[str] = []
    asyncio.run(run())
    assert set(synced) == {str(tmp_path), str(tmp_path / "cluster"), str(tmp_path / "cluster" / "store")}
    synced.clear()
    asyncio.run(run())
    assert synced == []


def test_a_second_process_is_kept_out(tmp_path: Path) -> None:
    """While one has the store, another is told which directory is in use; afterwards it may have it."""

    async def run() -> None:
        first, second = persistence(tmp_path), persistence(tmp_path)
        first.load()
        with pytest.raises(StoreLocked, match="store is the metadata store of another running process"):
            second.load()
        await first.close()
        second.load()
        await second.close()

    asyncio.run(run())


@pytest.mark.parametrize("content", [b"no database at all, but long enough" * 30, b"SQLite format 3\x00" * 80])
def test_garbage_is_a_clear_error(tmp_path: Path, content: bytes) -> None:
    """The message names the file and says what to do; the lock is not kept."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "store.db").write_bytes(content)
    for _ in range(2):
        with pytest.raises(StoreCorrupt, match=r"store\.db cannot be read as a metadata store .* Restore it"):
            persistence(tmp_path).load()


def test_a_file_that_cannot_be_opened_is_not_called_damaged(tmp_path: Path) -> None:
    """Nobody should move a store away, or restore an old one, for want of a permission: that is an OSError."""
    (tmp_path / "store" / "store.db").mkdir(parents=True)
    with pytest.raises(OSError, match=r"unable to open database file.*store\.db"):
        persistence(tmp_path).load()


@pytest.mark.parametrize(
    ("code", "number"),
    [
        (sqlite3.SQLITE_FULL, errno.ENOSPC),
        (sqlite3.SQLITE_READONLY, errno.EROFS),
        (sqlite3.SQLITE_IOERR_FSYNC, errno.EIO),
    ],
)
def test_a_full_or_failing_disk_is_not_called_a_damaged_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, number: int
) -> None:
    """What the disk refuses at the start keeps its meaning, names the file, and leaves the lock free."""

    def refuse(store: SqlitePersistence) -> None:
        error = sqlite3.OperationalError("the disk said no")
        error.sqlite_errorcode = code
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(SqlitePersistence, "_open", refuse)
        with pytest.raises(OSError, match="the disk said no") as refusal:
            persistence(tmp_path).load()
    assert refusal.value.errno == number
    assert refusal.value.filename == str(tmp_path / "store" / "store.db")
    store = persistence(tmp_path)
    assert store.load() == Snapshot()
    asyncio.run(store.close())


def test_damaged_pages_are_found_at_the_start(tmp_path: Path) -> None:
    """A store with a page overwritten is refused, not half read."""

    async def fill() -> None:
        store = persistence(tmp_path)
        store.load()
        await store.commit(Changes(1, {f"/n{index:06}": NODE for index in range(2000)}))
        await store.close()

    asyncio.run(fill())
    file = tmp_path / "store" / "store.db"
    damaged = bytearray(file.read_bytes())
    damaged[8192:12288] = b"\xff" * 4096
    file.write_bytes(damaged)
    with pytest.raises(StoreCorrupt):
        persistence(tmp_path).load()


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    """Its application id is not ours; nothing in it is touched."""
    (tmp_path / "store").mkdir()
    connection = sqlite3.connect(tmp_path / "store" / "store.db")
    connection.execute("CREATE TABLE mine (x)")
    connection.commit()
    connection.close()
    with pytest.raises(StoreCorrupt, match="no metadata store of this release"):
        persistence(tmp_path).load()


def test_a_commit_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    """A table that is gone stands for a disk that fails: the commit is refused whole."""

    async def run() -> None:
        store = persistence(tmp_path)
        store.load()
        other = sqlite3.connect(tmp_path / "store" / "store.db")
        other.execute("DROP TABLE sessions")
        other.commit()
        other.close()
        with pytest.raises(PersistenceFailed, match=r"store\.db could not be written"):
            await store.commit(Changes(3, {"/a": NODE}, {5: SESSION}))
        await store.close()
        check = sqlite3.connect(tmp_path / "store" / "store.db")
        assert check.execute("SELECT count(*) FROM nodes").fetchone() == (0,)
        check.close()

    asyncio.run(run())


def test_a_closed_store_commits_nothing(tmp_path: Path) -> None:
    """Committing without loading, or after closing, is an error and not a new file."""
    with pytest.raises(PersistenceFailed):
        asyncio.run(persistence(tmp_path).commit(Changes(1, {})))
