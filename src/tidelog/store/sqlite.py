"""The embedded store's tree in a SQLite database: one row a node, one row a session.

SQLite because it is everywhere Python is, survives power cuts (write-ahead log, synchronous=FULL: a commit is on disk
when it returns), and can be looked into with its own shell. One thread of its own does all the blocking, so the event
loop never waits for the disk, and writes that arrive during one fsync are committed together by the next. A lock file
keeps a second process out.

    store.db    nodes(path, data, czxid, ...), sessions(id, ...), meta(zxid)
    .lock       held while the store is open
"""

from __future__ import annotations

import asyncio
import errno
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from tidelog.ports.disk import Disk, Lock, make_durable_directories
from tidelog.store.errors import StoreCorrupt, StoreLocked
from tidelog.store.persistence import NoRoom, PersistenceFailed
from tidelog.store.tree import Changes, NodeRecord, SessionRecord, Snapshot

if TYPE_CHECKING:
    import sqlite3
else:
    try:
        # What the module sqlite3 adds are converters of dates, which take half a megabyte with `datetime`.
        import _sqlite3 as sqlite3
    except ImportError:
        import sqlite3

FILE_NAME: Final = "store.db"
LOCK_NAME: Final = ".lock"
APPLICATION_ID: Final = 0x7469646C
"""Marks the file as tidelog's ("tidl")."""
FORMAT: Final = 1
"""Of the tables; a store of another format is refused."""
PAGE_CACHE_KIB: Final = 256
"""The tree is in memory already; SQLite needs pages only while it writes."""

_REFUSALS: Final = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_PERM: errno.EACCES,
    sqlite3.SQLITE_IOERR: errno.EIO,
}
"""SQLite's codes for errors of the disk, each with the errno that stands for it; not those for a damaged file."""
_MAY_PASS: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM})
"""SQLite refused the commit and wrote nothing; the cause (no room, descriptor or memory) may pass. A failed write or
fsync (SQLITE_IOERR) is not among them: after it, what the disk holds is not known."""
_MAY_PASS_EXTENDED: Final = frozenset({sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_NOMEM})
"""The same, by extended codes, since the primary one is SQLITE_IOERR: the write-ahead log's index did not grow."""
_PRIMARY: Final = 0xFF
"""Mask of the primary code in one of SQLite's extended codes."""

_SCHEMA: Final = """
CREATE TABLE nodes (
    path TEXT PRIMARY KEY, data BLOB, czxid INTEGER NOT NULL, mzxid INTEGER NOT NULL, pzxid INTEGER NOT NULL,
    ctime INTEGER NOT NULL, mtime INTEGER NOT NULL, version INTEGER NOT NULL, aversion INTEGER NOT NULL,
    children_created INTEGER NOT NULL, ephemeral_owner INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY, timeout_ms INTEGER NOT NULL, password BLOB NOT NULL, local INTEGER NOT NULL
);
CREATE TABLE meta (zxid INTEGER NOT NULL);
INSERT INTO meta VALUES (0);
"""


class SqlitePersistence:
    """A store in one directory, which is created where it is missing."""

    def __init__(self, directory: str, disk: Disk) -> None:
        self._directory = directory
        self._disk = disk
        self._path = f"{directory}/{FILE_NAME}"
        self._lock: Lock | None = None
        self._connection: sqlite3.Connection | None = None
        self._thread: ThreadPoolExecutor | None = None

    def load(self) -> Snapshot:
        """Opens, locks and reads the whole store. OSError when the disk does not let it be made, opened or written."""
        make_durable_directories(self._disk, self._directory)
        self._lock = self._take_lock()
        try:
            self._connection = self._open()
            return self._read(self._connection)
        except sqlite3.Error as error:
            self._release()
            number = _REFUSALS.get(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & _PRIMARY)
            if number is not None:
                raise OSError(number, str(error), self._path) from error
            raise StoreCorrupt(
                f"{self._path} cannot be read as a metadata store ({error}). Restore it, with its -wal file, from a "
                "backup; or move it away to begin with an empty cluster (the partitions' logs are kept elsewhere)."
            ) from error
        except BaseException:
            self._release()
            raise

    async def commit(self, changes: Changes) -> None:
        if self._connection is None:
            raise PersistenceFailed(f"{self._path} is not open")
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tidelog-store")
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, _write, self._connection, changes)
        except sqlite3.Error as error:
            said = f"{self._path} could not be written: {error}"
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
            if code in _MAY_PASS_EXTENDED or code & _PRIMARY in _MAY_PASS:
                raise NoRoom(said) from error
            raise PersistenceFailed(said) from error

    async def close(self) -> None:
        if self._thread is not None and self._connection is not None:
            # Closing checkpoints the write-ahead log: the disk again.
            await asyncio.get_running_loop().run_in_executor(self._thread, self._connection.close)
            self._connection = None
        self._release()

    def _take_lock(self) -> Lock:
        try:
            return self._disk.lock(f"{self._directory}/{LOCK_NAME}")
        except BlockingIOError as error:
            raise StoreLocked(
                f"{self._directory} is the metadata store of another running process. Stop that one, or give this one "
                "a directory of its own."
            ) from error

    def _open(self) -> sqlite3.Connection:
        # The store's own thread writes; the lock and the order load, commits, close keep it to one thread at a time.
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"PRAGMA cache_size=-{PAGE_CACHE_KIB}")
        return connection

    def _read(self, connection: sqlite3.Connection) -> Snapshot:
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={FORMAT}")
            connection.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
            self._disk.fsync_directory(self._directory)
        identity = connection.execute("PRAGMA application_id").fetchone()[0]
        format = connection.execute("PRAGMA user_version").fetchone()[0]
        if identity != APPLICATION_ID or format != FORMAT:
            raise StoreCorrupt(
                f"{self._path} is no metadata store of this release (application id {identity:#x}, format {format}; "
                f"{APPLICATION_ID:#x} and {FORMAT} expected). Use the release that wrote it, or another directory."
            )
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise sqlite3.DatabaseError(found)
        snapshot = Snapshot(zxid=connection.execute("SELECT zxid FROM meta").fetchone()[0])
        for path, *fields in connection.execute("SELECT * FROM nodes"):
            snapshot.nodes[path] = NodeRecord(*fields)
        for id, timeout_ms, password, local in connection.execute("SELECT * FROM sessions"):
            snapshot.sessions[id] = SessionRecord(timeout_ms, password, bool(local))
        return snapshot

    def _release(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _write(connection: sqlite3.Connection, changes: Changes) -> None:
    """One transaction, durable on return; runs on the store's thread."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.executemany(
            "INSERT OR REPLACE INTO nodes VALUES (?,?,?,?,?,?,?,?,?,?,?)",
            [(path, *node) for path, node in changes.nodes.items() if node is not None],
        )
        connection.executemany(
            "DELETE FROM nodes WHERE path = ?", [(path,) for path, node in changes.nodes.items() if node is None]
        )
        connection.executemany(
            "INSERT OR REPLACE INTO sessions VALUES (?,?,?,?)",
            [(id, *session) for id, session in changes.sessions.items() if session is not None],
        )
        connection.executemany(
            "DELETE FROM sessions WHERE id = ?", [(id,) for id, session in changes.sessions.items() if session is None]
        )
        connection.execute("UPDATE meta SET zxid = ?", (changes.zxid,))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
