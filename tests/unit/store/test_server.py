"""The store's server, frame by frame: ZooKeeper's protocol as transcripts, sessions under a clock, hostile bytes."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest
from tests.unit.store.serving import RawClient, ServedInMemory, run
from tests.waiting import eventually

from tidelog.metadata.operations import Check, Create, Delete, SetData
from tidelog.ports.real import SystemClock, SystemNetwork, SystemRandom
from tidelog.store import connection as connection_module
from tidelog.store import jute
from tidelog.store.client import Created, EventType, Stat, WatchEvent
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.errors import NoWatcher
from tidelog.store.jute import OpCode, Reader
from tidelog.store.local import LocalStore
from tidelog.store.persistence import MemoryPersistence, PersistenceFailed
from tidelog.store.server import StoreServer
from tidelog.store.tree import Changes, LostWatches


class Answer:
    """A frame taken apart: an answer, or an event."""

    def __init__(self, frame: bytes) -> None:
        reader = Reader(frame)
        self.xid, self.zxid, self.error = reader.int32(), reader.int64(), reader.int32()
        self.reader = reader
        self.event: WatchEvent | None = None
        if self.xid == -1:
            type = EventType(reader.int32())
            assert reader.int32() == 3
            self.event = WatchEvent(type, reader.path())

    @property
    def brief(self) -> object:
        """An event itself; of an answer, xid and error."""
        return self.event or (self.xid, self.error)


def request(xid: int, opcode: int, body: bytes = b"") -> bytes:
    return struct.pack(">ii", xid, opcode) + body


def path_and_watch(path: str, watch: bool) -> bytes:
    return jute.string(path) + bytes([watch])


def creation(path: str, data: bytes | None = b"", flags: int = 0) -> bytes:
    return jute.string(path) + jute.buffer(data) + jute.acl() + struct.pack(">i", flags)


def versioned(path: str, version: int) -> bytes:
    return jute.string(path) + struct.pack(">i", version)


async def ask(client: RawClient, opcode: int, body: bytes = b"", xid: int = 1) -> Answer:
    """One request; its answer, which is all that comes."""
    client.send(request(xid, opcode, body))
    (frame,) = await client.frames()
    return Answer(frame)


async def briefs(client: RawClient) -> list[object]:
    return [Answer(frame).brief for frame in await client.frames()]


def test_a_transcript() -> None:
    """Every request a client makes in a life, and what is answered."""

    async def scenario() -> None:
        async with ServedInMemory() as served:
            client = served.dial()
            timeout, session, _ = await client.connect(6000)
            assert timeout == 6000
            assert (await ask(client, OpCode.CREATE, creation("/a", b"1"))).reader.path() == "/a"
            created = await ask(client, OpCode.CREATE2, creation("/a/n-", None, 3))
            assert created.reader.path() == "/a/n-0000000000"
            stat = created.reader.stat()
            assert (stat.czxid, stat.ephemeral_owner) == (created.zxid, session)
            found = (await ask(client, OpCode.GET_DATA, path_and_watch("/a", False))).reader
            assert (found.buffer(), found.stat().num_children) == (b"1", 1)
            assert (await ask(client, OpCode.EXISTS, path_and_watch("/a", False))).reader.stat().data_length == 1
            assert (await ask(client, OpCode.EXISTS, path_and_watch("/b", False))).error == -101
            names = (await ask(client, OpCode.GET_CHILDREN, path_and_watch("/a", False))).reader
            assert (names.vector(names.path, 4), names.remaining) == (["n-0000000000"], 0)
            names = (await ask(client, OpCode.GET_CHILDREN2, path_and_watch("/a", False))).reader
            assert (names.vector(names.path, 4), names.stat().cversion) == (["n-0000000000"], 1)
            changed = await ask(client, OpCode.SET_DATA, jute.string("/a") + jute.buffer(None) + b"\0\0\0\0")
            assert changed.reader.stat().version == 1
            assert (
                await ask(client, OpCode.SET_DATA, jute.string("/a") + jute.buffer(b"") + b"\0\0\0\0")
            ).error == -103
            assert (await ask(client, OpCode.DELETE, versioned("/a", -1))).error == -111
            assert (await ask(client, OpCode.DELETE, versioned("/a/n-0000000000", 0))).error == 0
            assert (await ask(client, OpCode.SYNC, jute.string("/a"))).reader.path() == "/a"
            acl = (await ask(client, OpCode.GET_ACL, jute.string("/a"))).reader
            assert jute.read_acl(acl) == [(31, "world", "anyone")]
            assert acl.stat().version == 1
            assert (await ask(client, OpCode.SET_ACL, jute.string("/a") + jute.acl() + b"\0\0\0\0")).error == 0
            assert (await ask(client, OpCode.SET_ACL, jute.string("/a") + b"\0\0\0\0" * 2)).error == -114
            digest = b"\0\0\0\0" + jute.string("digest") + jute.buffer(b"me:secret")
            assert (await ask(client, OpCode.AUTH, digest, -4)).brief == (-4, 0)
            assert (await ask(client, OpCode.PING, b"", -2)).brief == (-2, 0)
            assert (await ask(client, OpCode.GET_ALL_CHILDREN_NUMBER, jute.string("/"))).reader.int32() == 1
            owned = (await ask(client, OpCode.GET_EPHEMERALS, jute.string("/"))).reader
            assert owned.vector(owned.path, 4) == []
            assert (await ask(client, OpCode.WHO_AM_I)).reader.int32() == 1
            for opcode in (OpCode.ADD_WATCH, OpCode.MULTI_READ, 16, 99):
                assert (await ask(client, opcode, b"\0\0\0\0")).error == -6
            assert (await ask(client, OpCode.CLOSE)).brief == (1, 0)
            assert client.closed
            assert session not in served.store.tree.sessions

    run(scenario)


def test_pipelined_requests() -> None:
    """Answers come in the order of the requests, events before the answer that shows the change."""

    async def scenario() -> None:
        async with ServedInMemory() as served:
            client = served.dial()
            await client.connect()
            frames = [
                request(1, OpCode.CREATE, creation("/a", b"1")),
                request(2, OpCode.GET_DATA, path_and_watch("/a", True)),
                request(3, OpCode.GET_CHILDREN, path_and_watch("/a", True)),
                request(4, OpCode.EXISTS, path_and_watch("/a/b", True)),
                request(5, OpCode.DELETE, versioned("/none", -1)),
                request(6, OpCode.CREATE, creation("/a/b")),
                request(7, OpCode.SET_DATA, jute.string("/a") + jute.buffer(b"2") + struct.pack(">i", -1)),
                request(8, OpCode.GET_DATA, path_and_watch("/a", False)),
            ]
            client.send_raw(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
            assert await briefs(client) == [
                (1, 0),
                (2, 0),
                (3, 0),
                (4, -101),
                (5, -101),
                WatchEvent(EventType.NODE_CREATED, "/a/b"),
                WatchEvent(EventType.NODE_CHILDREN_CHANGED, "/a"),
                (6, 0),
                WatchEvent(EventType.NODE_DATA_CHANGED, "/a"),
                (7, 0),
                (8, 0),
            ]

    run(scenario)


def test_one_byte_at_a_time() -> None:
    """Frames are found however the bytes arrive."""

    async def scenario() -> None:
        async with ServedInMemory() as served:
            client = served.dial()
            await client.connect()
            frame = request(1, OpCode.CREATE, creation("/a", b"1"))
            for byte in struct.pack(">i", len(frame)) + frame:
                client.send_raw(bytes([byte]))
            assert await briefs(client) == [(1, 0)]

    run(scenario)


class Gate(MemoryPersistence):
    """A disk that takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.open = asyncio.Event()
        self.broken = False

    async def commit(self, changes: Changes) -> None:
        await self.open.wait()
        if self.broken:
            raise PersistenceFailed("broken")
        await super().commit(changes)


def test_answers_wait_for_the_disk() -> None:
    """Nothing is told before it is durable, reads of it neither; pings don't wait. A broken disk breaks connections."""

    async def scenario() -> None:
        disk = Gate()
        disk.open.set()
        async with ServedInMemory(disk) as served:
            client = served.dial()
            await client.connect()
            disk.open.clear()
            client.send(request(1, OpCode.CREATE, creation("/a", b"1")))
            client.send(request(2, OpCode.EXISTS, path_and_watch("/a", False)))
            client.send(request(-2, OpCode.PING))
            assert await briefs(client) == [(-2, 0)]
            disk.open.set()
            assert await briefs(client) == [(1, 0), (2, 0)]
            disk.open.clear()
            client.send(request(3, OpCode.CREATE, creation("/b", b"1")))
            disk.broken = True
            disk.open.set()
            assert await briefs(client) == []
            assert client.closed

    run(scenario)


def test_multi() -> None:
    """Results by operation; a failure gives each operation its code, and leaves nothing."""

    async def scenario() -> None:
        async with ServedInMemory() as served:
            client = served.dial()
            await client.connect()
            done = await ask(client, OpCode.MULTI, jute.multi([Create("/a"), SetData("/a", b"1"), Check("/a", 1)]))
            first, second, third = jute.read_multi_results(done.reader)
            assert isinstance(first, Created)
            assert isinstance(second, Stat)
            assert (first.path, second.version, third) == ("/a", 1, None)
            failed = await ask(
                client, OpCode.MULTI, jute.multi([Create("/b"), Check("/a", 7), Delete("/a"), Delete("/x")])
            )
            assert failed.error == 0
            assert jute.read_multi_results(failed.reader) == [0, -103, -2, -2]
            assert served.store.tree.exists("/b") is None
            header = struct.Struct(">ibi")
            refused = header.pack(1, 0, -1) + creation("/c", b"", 9)
            body = jute.multi([Create("/b")])[: -header.size] + refused + header.pack(-1, 1, -1)
            assert jute.read_multi_results((await ask(client, OpCode.MULTI, body)).reader) == [0, -8]

    run(scenario)


def test_the_zxid_of_an_answer_is_of_what_it_shows() -> None:
    """A read answered together with later writes has the zxid of its own time: else a reconnect would miss events."""

    async def scenario() -> None:
        disk = Gate()
        disk.open.set()
        async with ServedInMemory(disk) as served:
            client, other = served.dial(), served.dial()
            await client.connect()
            await other.connect()
            disk.open.clear()
            client.send(request(1, OpCode.CREATE, creation("/a", b"1")))
            client.send(request(2, OpCode.GET_DATA, path_and_watch("/a", False)))
            other.send(request(1, OpCode.SET_DATA, jute.string("/a") + jute.buffer(b"2") + struct.pack(">i", -1)))
            disk.open.set()
            first, second = map(Answer, await client.frames())
            (later,) = map(Answer, await other.frames())
            assert first.zxid == second.zxid == later.zxid - 1

    run(scenario)


def test_sessions_survive_connections() -> None:
    """Id and password give a session back on another connection; anything else is told that it is over."""

    async def scenario() -> None:
        async with ServedInMemory() as served:
            client = served.dial()
            _, session, password = await client.connect(6000)
            await ask(client, OpCode.CREATE, creation("/e", b"", 1))
            client.hang_up()
            await served.pass_time(5000)
            again = served.dial()
            assert await again.connect(9000, session, password) == (6000, session, password)
            await served.pass_time(1500)
            assert (await ask(again, OpCode.EXISTS, path_and_watch("/e", False))).error == 0
            for id, secret in [(session, b"x" * 16), (session + 1, password)]:
                stranger = served.dial()
                assert await stranger.connect(6000, id, secret) == (0, 0, bytes(16))
                assert stranger.closed
            assert not again.closed

    run(scenario)


def test_a_client_that_moves() -> None:
    """Taking a session on a new connection closes the old one, which hears nothing more."""

    async def scenario() -> None:
        async with ServedInMemory() as served:
            old = served.dial()
            _, session, password = await old.connect()
            await ask(old, OpCode.EXISTS, path_and_watch("/a", True))
            new = served.dial()
            await new.connect(6000, session, password)
            assert old.closed
            await ask(new, OpCode.CREATE, creation("/a"))
            assert await old.frames() == []

    run(scenario)


def test_watches_go_with_their_connection() -> None:
    """Whoever left is not kept in mind."""

    async def scenario() -> None:
        async with ServedInMemory() as served:
            client = served.dial()
            _, session, _ = await client.connect()
            await ask(client, OpCode.EXISTS, path_and_watch("/a", True))
            connection = client.protocol
            assert isinstance(connection, connection_module.StoreConnection)
            watch = connection._tell
            await served.store.remove_watches(session, watch, "/a", data=True, child=False, keep=True)
            client.hang_up()
            await asyncio.sleep(0)
            with pytest.raises(NoWatcher):
                await served.store.remove_watches(session, watch, "/a", data=True, child=False, keep=True)

    run(scenario)


def test_sessions_of_this_process_are_nobody_elses() -> None:
    """A local session can't be taken over the network, and never times out."""

    async def scenario() -> None:
        async with ServedInMemory() as served:
            local = await LocalStore.connect(served.store)
            record = served.store.tree.sessions[local.session_id]
            thief = served.dial()
            assert (await thief.connect(6000, local.session_id, record.password))[0] == 0
            await served.pass_time(10_000_000)
            assert local.session_id in served.store.tree.sessions

    run(scenario)


def test_silence_ends_a_session() -> None:
    """A ping keeps it; without one, its nodes go with its timeout, others are told, and its connection closes."""

    async def scenario() -> None:
        async with ServedInMemory() as served:
            client, other = served.dial(), served.dial()
            await client.connect(3000)
            await other.connect(60_000)
            await ask(client, OpCode.CREATE, creation("/e", b"", 1))
            await ask(other, OpCode.EXISTS, path_and_watch("/e", True))
            await served.pass_time(2900)
            await ask(client, OpCode.PING, b"", -2)
            await served.pass_time(2900)
            assert await briefs(other) == []
            await served.pass_time(100)
            assert await briefs(other) == [WatchEvent(EventType.NODE_DELETED, "/e")]
            assert client.closed
            assert not other.closed

    run(scenario)


def test_the_last_words_of_the_dead() -> None:
    """A node whose owner died right behind the request that makes it does not outlive `end_sessions_of`."""

    async def scenario() -> None:
        async with ServedInMemory() as served:
            client = served.dial()
            _, session, _ = await client.connect()
            # As the loop finds them in a socket: the request, then the end.
            loop = asyncio.get_running_loop()
            loop.call_soon(client.send, request(1, OpCode.CREATE, creation("/broker", b"", 1)))
            loop.call_soon(client.hang_up)
            await served.store.end_sessions_of("/broker")
            assert served.store.tree.exists("/broker") is None
            assert session not in served.store.tree.sessions

    run(scenario)


def test_sessions_survive_the_server() -> None:
    """A store started anew gives each session its timeout again, then ends those that did not come back."""

    async def scenario() -> None:
        disk = MemoryPersistence()
        async with ServedInMemory(disk) as served:
            client = served.dial()
            _, session, password = await client.connect(3000)
            await ask(client, OpCode.CREATE, creation("/e", b"", 1))
            stranger = served.dial()
            _, lost, _ = await stranger.connect(3000)
        assert client.closed
        async with ServedInMemory(disk) as served:
            await served.pass_time(2000)
            again = served.dial()
            assert (await again.connect(3000, session, password))[1] == session
            assert (await ask(again, OpCode.EXISTS, path_and_watch("/e", False))).error == 0
            await served.pass_time(1000)
            assert set(served.store.tree.sessions) == {session}
            assert lost not in served.store.tree.sessions

    run(scenario)


def test_watches_set_again() -> None:
    """SetWatches tells what was missed, by comparing zxids, and arms the rest."""

    async def scenario() -> None:
        async with ServedInMemory() as served:
            client, other = served.dial(), served.dial()
            _, session, password = await client.connect()
            await other.connect()
            for path in ("/changed", "/same", "/gone", "/parent"):
                await ask(client, OpCode.CREATE, creation(path))
            seen = (await ask(client, OpCode.SYNC, jute.string("/"))).zxid
            client.hang_up()
            await ask(other, OpCode.SET_DATA, jute.string("/changed") + jute.buffer(b"2") + struct.pack(">i", -1))
            await ask(other, OpCode.DELETE, versioned("/gone", -1))
            await ask(other, OpCode.CREATE, creation("/parent/a"))
            await ask(other, OpCode.CREATE, creation("/born"))
            again = served.dial()
            await again.connect(6000, session, password, seen)
            lost = LostWatches(
                seen, ["/changed", "/same", "/gone"], ["/born", "/unborn"], ["/parent", "/same", "/gone"]
            )
            again.send(request(-8, OpCode.SET_WATCHES, jute.set_watches(lost)))
            assert await briefs(again) == [
                WatchEvent(EventType.NODE_DATA_CHANGED, "/changed"),
                WatchEvent(EventType.NODE_DELETED, "/gone"),
                WatchEvent(EventType.NODE_CREATED, "/born"),
                WatchEvent(EventType.NODE_CHILDREN_CHANGED, "/parent"),
                WatchEvent(EventType.NODE_DELETED, "/gone"),
                (-8, 0),
            ]
            await ask(other, OpCode.CREATE, creation("/unborn"))
            await ask(other, OpCode.CREATE, creation("/same/a"))
            await ask(other, OpCode.CREATE, creation("/parent/b"))
            await ask(other, OpCode.DELETE, versioned("/same/a", -1))
            assert await briefs(again) == [
                WatchEvent(EventType.NODE_CREATED, "/unborn"),
                WatchEvent(EventType.NODE_CHILDREN_CHANGED, "/same"),
            ]

    run(scenario)


def test_watches_taken_back() -> None:
    """CheckWatches asks, RemoveWatches takes them away; where there is none, that is said."""

    async def scenario() -> None:
        async with ServedInMemory() as served:
            client = served.dial()
            await client.connect()
            await ask(client, OpCode.CREATE, creation("/a"))
            await ask(client, OpCode.GET_DATA, path_and_watch("/a", True))
            assert (await ask(client, OpCode.CHECK_WATCHES, versioned("/a", 2))).error == 0
            assert (await ask(client, OpCode.CHECK_WATCHES, versioned("/a", 1))).error == -121
            assert (await ask(client, OpCode.REMOVE_WATCHES, versioned("/a", 3))).error == 0
            assert (await ask(client, OpCode.REMOVE_WATCHES, versioned("/a", 3))).error == -121
            client.send(request(5, OpCode.DELETE, versioned("/a", -1)))
            assert await briefs(client) == [(5, 0)]

    run(scenario)


def test_an_older_store() -> None:
    """A client that has seen more than there is has to begin anew."""

    async def scenario() -> None:
        async with ServedInMemory() as served:
            client = served.dial()
            assert await client.connect(seen=1_000_000) == (0, 0, bytes(16))
            assert client.closed

    run(scenario)


def test_four_letter_words() -> None:
    """What operators ask with nc, without a session."""

    async def scenario() -> None:
        async with ServedInMemory() as served:
            client = served.dial()
            await client.connect()
            for word, expected in [
                (b"ruok", "imok"),
                (b"isro", "rw"),
                (b"srvr", "Connections: 2\nSessions: 1\n"),
                (b"stat", "127.0.0.1:40000[1](queued=0,recved=0,sent=1)"),
                (b"envi", "zookeeper.version=3.8.0"),
                (b"dump", "not in the whitelist"),
            ]:
                asker = served.dial()
                asker.send_raw(word)
                assert expected in asker.transport.written.decode()
                assert asker.closed
                await asyncio.sleep(0)

    run(scenario)


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 0x7FFFFFFF),
        struct.pack(">i", connection_module.CONNECT_SIZE_MAX + 1) + bytes(connection_module.CONNECT_SIZE_MAX + 1),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">i", 0),
        struct.pack(">iiqiqi", 28, 0, 0, 0, 0, 0x7FFFFFFF),
    ],
    ids=lambda data: data[:8].hex(),
)
def test_hostile_first_frames(data: bytes) -> None:
    """Lengths that can't be, and connects that are none: the connection closes, with nothing kept."""

    async def scenario() -> None:
        async with ServedInMemory() as served:
            client = served.dial()
            client.send_raw(data)
            assert await client.frames() == []
            assert client.closed
            assert not served.store.tree.sessions

    run(scenario)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0\0\0\1",
        request(1, OpCode.GET_DATA, b"\x7f\xff\xff\xff"),
        request(1, OpCode.GET_DATA, jute.string("/a")),
        request(1, OpCode.CREATE, jute.string("/a") + jute.buffer(b"") + b"\x7f\xff\xff\xff"),
        request(1, OpCode.MULTI, b"\0\0\0\1\0\0\0\0\0\xff"),
        request(1, OpCode.SET_WATCHES, bytes(8) + b"\x7f\xff\xff\xff"),
        request(1, OpCode.GET_DATA, b"\xff\xff\xff\xff\0"),
        bytes(connection_module.FRAME_SIZE_MAX + 1),
    ],
    ids=lambda body: body[:24].hex(),
)
def test_hostile_requests(body: bytes) -> None:
    """A request that can't be read closes the connection; the session and everybody else go on."""

    async def scenario() -> None:
        async with ServedInMemory() as served:
            client, other = served.dial(), served.dial()
            _, session, password = await client.connect()
            await other.connect()
            client.send(body)
            await client.frames()
            assert client.closed
            assert (await ask(other, OpCode.PING, b"", -2)).brief == (-2, 0)
            assert (await served.dial().connect(6000, session, password))[1] == session

    run(scenario)


def test_bad_paths_are_answered() -> None:
    """A path that names nothing is the asker's mistake, not a broken connection."""

    async def scenario() -> None:
        async with ServedInMemory() as served:
            client = served.dial()
            await client.connect()
            for path in ("", "a", "//", "/a/", "/a/../b", "/\0"):
                assert (await ask(client, OpCode.CREATE, creation(path))).error == -8, path
            assert (await ask(client, OpCode.CREATE, creation("/big", bytes(1 << 20)))).error == -8

    run(scenario)


def test_an_unread_connection_is_not_read() -> None:
    """A client that takes no answers sends no more requests; one that never takes its events is cut off."""

    async def scenario() -> None:
        async with ServedInMemory() as served:
            client, other = served.dial(), served.dial()
            await client.connect()
            await other.connect()
            await ask(client, OpCode.CREATE, creation("/a", bytes(500_000)))
            client.transport.stalled = True
            for xid in range(1, 8):
                client.send(request(xid, OpCode.GET_DATA, path_and_watch("/a", False)))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            assert not client.transport.reading
            taken = len(client.transport.written)
            assert taken < 3_000_000
            client.transport.stalled = False
            client.transport.written.clear()
            client.protocol.resume_writing()
            assert len(await client.frames()) >= 3
            assert client.transport.reading
            await ask(client, OpCode.EXISTS, path_and_watch("/b", True))
            client.transport.stalled = True
            client.transport.written += bytes(connection_module.UNREAD_MAX)
            await ask(other, OpCode.CREATE, creation("/b"))
            await asyncio.sleep(0)
            assert client.closed

    run(scenario)


def test_as_many_requests_as_agreed() -> None:
    """With too many requests under way no more are read, until half of them are answered; none is lost."""

    async def scenario() -> None:
        disk = Gate()
        disk.open.set()
        async with ServedInMemory(disk) as served:
            client = served.dial()
            await client.connect()
            disk.open.clear()
            frames = [request(1, OpCode.CREATE, creation("/a"))]
            frames += [request(xid, OpCode.GET_DATA, path_and_watch("/a", False)) for xid in range(2, 2501)]
            client.send_raw(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
            assert not client.transport.reading
            disk.open.set()
            answers: list[object] = []
            while len(answers) < 2500:
                answers += await briefs(client)
            assert answers == [(xid, 0) for xid in range(1, 2501)]
            assert client.transport.reading

    run(scenario)


def test_connections_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more than can be is closed at once; one that leaves makes room."""
    monkeypatch.setattr("tidelog.store.server.CONNECTIONS_MAX", 2)

    async def scenario() -> None:
        async with ServedInMemory() as served:
            first, second, third = served.dial(), served.dial(), served.dial()
            assert [first.closed, second.closed, third.closed] == [False, False, True]
            first.hang_up()
            await asyncio.sleep(0)
            assert not served.dial().closed

    run(scenario)


def test_a_connection_that_wants_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a session it is closed after a while; with one it may be silent as long as the session lives."""

    async def scenario() -> None:
        async with ServedInMemory() as served:
            client = served.dial()
            await client.connect()
            monkeypatch.setattr("tidelog.store.server.CONNECT_WAIT_MS", 1)
            mute = served.dial()
            await eventually(lambda: mute.closed)
            assert not client.closed

    run(scenario)


def test_nothing_is_read_before_there_is_a_session() -> None:
    """Requests sent without waiting are answered in turn, once the session is durable; until then no more is read."""

    async def scenario() -> None:
        disk = Gate()
        async with ServedInMemory(disk) as served:
            client = served.dial()
            connect = struct.pack(">iqiqi", 0, 0, 3000, 0, -1)
            client.send_raw(struct.pack(">i", len(connect)) + connect)
            client.send(request(1, OpCode.EXISTS, path_and_watch("/", False)))
            assert await client.frames() == []
            assert not client.transport.reading
            disk.open.set()
            session, answer = await client.frames()
            assert len(session) == 36
            assert Answer(answer).brief == (1, 0)
            assert client.transport.reading

    run(scenario)


def test_a_client_that_leaves_before_it_is_told() -> None:
    """Its session goes when its time is over, as any other."""

    async def scenario() -> None:
        disk = Gate()
        async with ServedInMemory(disk) as served:
            client = served.dial()
            client.send(struct.pack(">iqiqi", 0, 0, 3000, 0, -1))
            client.hang_up()
            await asyncio.sleep(0)
            disk.open.set()
            await client.frames()
            assert len(served.store.tree.sessions) == 1
            await served.pass_time(3000)
            await client.frames()
            assert not served.store.tree.sessions

    run(scenario)


def test_a_client_that_hangs_keeps_no_connection_when_its_session_is_over() -> None:
    """What it has not read is of no use any more, and would hold the connection's place for as long as it hangs."""

    async def scenario() -> None:
        store = EmbeddedStore(MemoryPersistence(), SystemClock(), SystemRandom())
        store.start()
        server = StoreServer(store, SystemClock())
        host, port = await server.start(SystemNetwork(), "127.0.0.1", 0)
        owner = await LocalStore.connect(store)
        await owner.create("/large", bytes(1 << 19))
        with socket.create_connection((host, port)) as hanging:
            connect = struct.pack(">iqiqi", 0, 0, 60_000, 0, 16) + bytes(17)
            asked = request(1, OpCode.GET_DATA, path_and_watch("/large", False))
            for frame in (connect, *[asked] * 60):
                hanging.sendall(struct.pack(">i", len(frame)) + frame)
            await eventually(lambda: [True for each in server._connections if not each._writable])
            (session,) = [id for id, record in store.tree.sessions.items() if not record.local]
            await store.close_session(session)
            await eventually(lambda: not server._connections)
        await server.close()
        await store.close()

    run(scenario)
