"""The store while its disk is full: it says so once, is read, loses nothing, and goes on when there is room."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import struct
from pathlib import Path

import pytest
from tests.unit.store.serving import ServedInMemory, run
from tests.unit.store.test_embedded import Counting, FakeClock, start, turn
from tests.unit.store.test_server import ask, briefs, creation, path_and_watch, request
from tests.waiting import eventually

from tidelog.ports.real import SystemDisk
from tidelog.store import jute
from tidelog.store.client import EventType, WatchEvent
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.errors import ConnectionLoss, StoreError
from tidelog.store.jute import OpCode
from tidelog.store.local import LocalStore
from tidelog.store.persistence import MemoryPersistence, NoRoom, PersistenceFailed
from tidelog.store.sqlite import SqlitePersistence
from tidelog.store.tree import Changes, LostWatches, NodeRecord


class FullDisk(MemoryPersistence):
    """Refuses commits while it is full."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False
        self.commits = 0

    async def commit(self, changes: Changes) -> None:
        if self.full:
            raise NoRoom("store.db could not be written: database or disk is full")
        self.commits += 1
        await super().commit(changes)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries again in each turn of the loop."""
    monkeypatch.setattr("tidelog.store.embedded.RETRY_S", 0.0)


def test_writes_wait_and_the_rest_is_read(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is told that is not durable; what was asked meanwhile is one commit, and told in order."""

    async def scenario() -> None:
        disk = FullDisk()
        store = start(disk)
        one, two = await LocalStore.connect(store), await LocalStore.connect(store)
        await one.create("/old", b"1")
        disk.full = True
        seen: list[str] = []
        writes = [asyncio.ensure_future(one.create("/new")), asyncio.ensure_future(one.set("/new", b"2"))]
        for index, write in enumerate(writes):
            write.add_done_callback(lambda _, index=index: seen.append(f"write {index}"))
        await turn()
        assert (await two.get("/old"))[0] == b"1"
        touched = asyncio.ensure_future(two.get("/new"))
        touched.add_done_callback(lambda _: seen.append("read"))
        with pytest.raises(ConnectionLoss, match="disk is full"):
            await LocalStore.connect(store)
        for _ in range(20):
            await turn()
        assert seen == []
        disk.full, disk.commits = False, 0
        assert (await touched)[0] == b"2"
        await turn()
        assert seen == ["write 0", "write 1", "read"]
        assert disk.commits == 1
        await LocalStore.connect(store)
        await store.close()

    caplog.set_level(logging.INFO)
    run(scenario)
    levels = [(record.levelname, record.getMessage().partition(":")[0]) for record in caplog.records]
    assert levels == [("ERROR", "store_full"), ("WARNING", "store_has_room")]


def test_a_client_takes_its_answers_in_order() -> None:
    """A read behind a write of the same client waits with it; another client's does not, and pings are answered."""

    async def scenario() -> None:
        disk = FullDisk()
        async with ServedInMemory(disk) as served:
            writer, reader = served.dial(), served.dial()
            await writer.connect()
            await reader.connect()
            disk.full = True
            writer.send(request(1, OpCode.CREATE, creation("/a")))
            await turn()
            writer.send(request(2, OpCode.EXISTS, path_and_watch("/b", False)))
            writer.send(request(-2, OpCode.PING))
            assert await briefs(writer) == [(-2, 0)]
            reader.send(request(1, OpCode.EXISTS, path_and_watch("/b", False)))
            assert await briefs(reader) == [(1, -101)]
            disk.full = False
            answers: list[object] = []
            while len(answers) < 2:
                answers += await briefs(writer)
            assert answers == [(1, 0), (2, -101)]

    run(scenario)


def test_a_read_beside_waiting_writes_has_not_seen_them() -> None:
    """Its answer says so by its zxid: else a client that reconnects would never hear of those writes, or would be taken
    for one of a newer store."""

    async def scenario() -> None:
        disk = FullDisk()
        async with ServedInMemory(disk) as served:
            watcher, writer = served.dial(), served.dial()
            _, session, password = await watcher.connect()
            await writer.connect()
            await ask(watcher, OpCode.CREATE, creation("/watched"))
            await ask(watcher, OpCode.GET_DATA, path_and_watch("/watched", True))
            disk.full = True
            change = jute.string("/watched") + jute.buffer(b"2") + struct.pack(">i", -1)
            writer.send(request(1, OpCode.SET_DATA, change))
            await turn()
            seen = (await ask(watcher, OpCode.EXISTS, path_and_watch("/other", False))).zxid
            watcher.hang_up()
            disk.full = False
            await eventually(lambda: disk.committed.nodes["/watched"].version == 1)
            again = served.dial()
            assert (await again.connect(6000, session, password, seen))[1] == session
            lost = LostWatches(seen, ["/watched"], [], [])
            again.send(request(-8, OpCode.SET_WATCHES, jute.set_watches(lost)))
            told = WatchEvent(EventType.NODE_DATA_CHANGED, "/watched")
            assert await briefs(again) == [told, (-8, 0)]

    run(scenario)


def test_a_store_that_is_closed_meanwhile_does_not_wait() -> None:
    """What nobody was told is not there: as after a crash. The owner hears of no failure."""

    async def scenario() -> None:
        disk = FullDisk()
        told: list[PersistenceFailed] = []
        store = EmbeddedStore(disk, FakeClock(), Counting(), told.append)
        store.start()
        client = await LocalStore.connect(store)
        disk.full = True
        write = asyncio.ensure_future(client.create("/a"))
        await turn()
        await asyncio.wait_for(store.close(), 5)
        with pytest.raises(StoreError):
            await write
        assert told == []
        assert "/a" not in disk.committed.nodes

    run(scenario)


def test_a_start_on_a_full_disk_fails() -> None:
    """Before anything was committed, whoever starts the cluster is told instead."""

    async def scenario() -> None:
        disk = FullDisk()
        disk.full = True
        store = start(disk)
        with pytest.raises(ConnectionLoss, match="database or disk is full"):
            await LocalStore.connect(store)

    run(scenario)


NODE = NodeRecord(b"data", 1, 2, 3, 4, 5, 6, 7, 8, 9)


def pages(store: SqlitePersistence, count: int) -> None:
    """Lets the database grow to so many pages at most."""
    assert store._connection is not None
    store._connection.execute(f"PRAGMA max_page_count={count}")


def test_sqlite_without_room_may_be_asked_again(tmp_path: Path) -> None:
    """A commit that found none left nothing, and the same changes go in when there is some."""

    async def scenario() -> None:
        store = SqlitePersistence(str(tmp_path), SystemDisk())
        store.load()
        await store.commit(Changes(1, {"/": NODE}))
        pages(store, 1)
        large = Changes(2, {f"/{index}": NODE._replace(data=bytes(3000)) for index in range(20)})
        for _ in range(3):
            with pytest.raises(NoRoom, match="could not be written: database or disk is full"):
                await store.commit(large)
        check = sqlite3.connect(tmp_path / "store.db")
        assert check.execute("SELECT count(*) FROM nodes").fetchone() == (1,)
        check.close()
        pages(store, 1_000)
        await store.commit(large)
        await store.close()
        again = SqlitePersistence(str(tmp_path), SystemDisk())
        snapshot = again.load()
        assert snapshot.zxid == 2
        assert len(snapshot.nodes) == 21
        await again.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("code", "refusal"),
    [
        (sqlite3.SQLITE_FULL, NoRoom),
        (sqlite3.SQLITE_CANTOPEN, NoRoom),
        (sqlite3.SQLITE_NOMEM, NoRoom),
        (sqlite3.SQLITE_IOERR_SHMSIZE, NoRoom),
        (sqlite3.SQLITE_IOERR_FSYNC, PersistenceFailed),
        (sqlite3.SQLITE_IOERR_WRITE, PersistenceFailed),
        (sqlite3.SQLITE_CORRUPT, PersistenceFailed),
    ],
)
def test_what_may_pass_and_what_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, refusal: type[Exception]
) -> None:
    """After a failed fsync what is on the disk is unknown: that is never tried again."""

    def fail(connection: object, changes: object) -> None:
        error = sqlite3.OperationalError("refused")
        error.sqlite_errorcode = code
        raise error

    async def scenario() -> None:
        store = SqlitePersistence(str(tmp_path), SystemDisk())
        store.load()
        monkeypatch.setattr("tidelog.store.sqlite._write", fail)
        with pytest.raises(refusal):
            await store.commit(Changes(1, {"/": NODE}))
        await store.close()

    asyncio.run(scenario())


def test_sessions_outlive_a_full_disk() -> None:
    """A client that is heard of keeps its session, though nothing could be written for longer than its timeout."""

    async def scenario() -> None:
        disk = FullDisk()
        async with ServedInMemory(disk) as served:
            client = served.dial()
            await client.connect(1_000)
            disk.full = True
            client.send(request(1, OpCode.CREATE, creation("/a")))
            for _ in range(10):
                served.clock.now_ms += 500
                client.send(request(-2, OpCode.PING))
                assert await briefs(client) == [(-2, 0)]
                served.server.expire()
            disk.full = False
            await eventually(lambda: "/a" in disk.committed.nodes)
            assert await briefs(client) == [(1, 0)]

    run(scenario)


def test_a_client_that_reconnects_to_a_full_disk_keeps_its_session() -> None:
    """It goes on with the session at once: its attempt to connect would else last longer than the session may."""

    async def scenario() -> None:
        disk = FullDisk()
        async with ServedInMemory(disk) as served:
            client, writer = served.dial(), served.dial()
            _, session, password = await client.connect(1_000)
            await writer.connect()
            disk.full = True
            writer.send(request(1, OpCode.CREATE, creation("/a")))
            await turn()
            client.hang_up()
            again = served.dial()
            assert await again.connect(1_000, session, password) == (1_000, session, password)
            again.send(request(-2, OpCode.PING))
            assert await briefs(again) == [(-2, 0)]
            disk.full = False

    run(scenario)


def test_whoever_ends_the_session_of_the_dead_does_not_wait_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor could else not stop a cluster of which a broker was killed; the session ends when there is room."""
    monkeypatch.setattr("tidelog.store.embedded.END_S_MAX", 0.0, raising=False)

    async def scenario() -> None:
        disk = FullDisk()
        async with ServedInMemory(disk) as served:
            client = served.dial()
            await client.connect()
            await ask(client, OpCode.CREATE, creation("/broker", b"", 1))
            client.hang_up()
            disk.full = True
            ending = asyncio.ensure_future(served.store.end_sessions_of("/broker"))
            await eventually(ending.done)
            await ending
            assert "/broker" in disk.committed.nodes
            disk.full = False
            await eventually(lambda: "/broker" not in disk.committed.nodes)
            assert disk.committed.sessions == {}

    run(scenario)
