"""The client for ZooKeeper, against the embedded store's server; `make conformance` tries the contract on ZooKeeper."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest
from tests.unit.store.serving import DEADLINE_S, Proxy, Served, run
from tests.unit.store.zookeeper_contract import CHECKS, SHORT_TIMEOUT_MS, Contract, session
from tests.waiting import eventually

from tidelog.store.client import SessionState
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.errors import ConnectionLoss, InvalidAcl, SessionExpired
from tidelog.store.kazoo_handler import LoopHandler, Wire
from tidelog.store.security import StoreSecurity
from tidelog.store.tree import SessionRecord
from tidelog.store.zookeeper import ZooKeeperStore

LONG_TIMEOUT_MS = 300_000
"""Of a session that must not expire while a busy machine lets the test wait: the longest that the server agrees to."""


@pytest.fixture
def served() -> Iterator[Served]:
    with Served() as served:
        yield served


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_contract(check: Contract, served: Served) -> None:
    """The promises of `zookeeper_contract`, each with its own words."""
    run(lambda: _checked(check, served))


async def _checked(check: Contract, served: Served) -> None:
    await check(served.hosts)


def test_nobody_there() -> None:
    """A server that is not there is a ConnectionLoss that says what to look at, within the time given."""

    async def scenario() -> None:
        with pytest.raises(ConnectionLoss, match=r"no metadata store answers at 127\.0\.0\.1:1/kafka within 300 ms"):
            await ZooKeeperStore.connect("127.0.0.1:1/kafka", session_timeout_ms=4000, connection_timeout_ms=300)

    run(scenario)


def test_what_is_found_where_nobody_serves() -> None:
    """Each address is told apart: nobody, somebody deaf, a server without a quorum."""

    async def scenario() -> None:
        async def no_quorum(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if await reader.read(4) == b"srvr":
                writer.write(b"This ZooKeeper instance is not currently serving requests\n")
            writer.close()

        with socket.create_server(("127.0.0.1", 0)) as deaf:
            server = await asyncio.start_server(no_quorum, "127.0.0.1", 0)
            addresses = [("127.0.0.1", 1), deaf.getsockname(), server.sockets[0].getsockname()]
            hosts = ",".join(f"{host}:{port}" for host, port in addresses)
            with pytest.raises(ConnectionLoss) as failed:
                await ZooKeeperStore.connect(hosts, session_timeout_ms=4000, connection_timeout_ms=300)
            server.close()
        found = str(failed.value)
        assert "127.0.0.1:1: Connect" in found
        assert f"{addresses[1][0]}:{addresses[1][1]} does not answer" in found
        assert f"{addresses[2][0]}:{addresses[2][1]} runs but serves nobody, for its ensemble has no quorum" in found

    run(scenario)


def test_a_new_connection_begins_with_watches_and_a_sync(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then whatever was asked meanwhile: a server that is behind catches up before it answers."""
    first: list[str] = []
    send_first = ZooKeeperStore._send_first

    def noted(self: ZooKeeperStore, request: object) -> None:
        # Each is put before the one before it.
        first.insert(0, type(request).__name__)
        send_first(self, request)

    monkeypatch.setattr(ZooKeeperStore, "_send_first", noted)

    async def scenario() -> None:
        async with Proxy(served.hosts) as way, session(way.hosts) as store:
            states: list[SessionState] = []
            store.add_listener(states.append)
            await store.exists("/a", lambda event: None)
            assert first == []
            way.cut()
            await eventually(lambda: states == [SessionState.SUSPENDED, SessionState.CONNECTED])
            await store.exists("/a")
            assert first == ["SetWatches", "Sync"]

    run(scenario)


def test_owned_nodes_need_an_ensemble(served: Served) -> None:
    """The embedded store keeps no access lists, and says for whom they are."""

    async def scenario() -> None:
        with pytest.raises(InvalidAcl, match=r"zookeeper\.set\.acl"):
            await ZooKeeperStore.connect(
                f"{served.hosts}/owned",
                session_timeout_ms=4000,
                connection_timeout_ms=4000,
                security=StoreSecurity(digest="me:secret", owned=True),
            )

    run(scenario)


def test_a_server_that_starts_anew_keeps_sessions(served: Served) -> None:
    """A restarted server knows the session and its nodes; what is asked meanwhile is answered afterwards."""

    async def scenario() -> None:
        async with session(served.hosts) as store:
            states: list[SessionState] = []
            store.add_listener(states.append)
            await store.create("/e", b"1", ephemeral=True)
            await asyncio.to_thread(served.stop)
            await eventually(lambda: states)
            waiting = store.get("/e")
            await asyncio.to_thread(served.start)
            data, stat = await waiting
            assert (data, stat.ephemeral_owner) == (b"1", store.session_id)
            assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]

    run(scenario)


def test_a_session_is_known_by_its_key_without_a_connection_too(served: Served) -> None:
    """The broker that opened the session may ask for its key only when the server is away again."""

    async def scenario() -> None:
        async with session(served.hosts) as store:
            key = store.key
            states: list[SessionState] = []
            store.add_listener(states.append)
            await asyncio.to_thread(served.stop)
            await eventually(lambda: states)
            assert store.key == key

    run(scenario)


def test_nothing_builds_on_lost_requests(served: Served) -> None:
    """A call made before the loop heard of a break is not carried out behind it: what it builds on may be lost."""

    async def scenario() -> None:
        async with session(served.hosts, timeout_ms=LONG_TIMEOUT_MS) as store:
            await store.create("/a")
            # The loop stands still meanwhile: a controller that makes thousands of calls in one turn.
            served.stop()
            block_until(lambda: not store._client.connected)
            first = store.create("/first")
            served.start()
            block_until(lambda: store._client.connected)
            second = store.create("/second")
            for call in (first, second):
                with pytest.raises(ConnectionLoss):
                    await call
            await store.create("/third")
            assert (await store.children("/"))[0] == ["a", "third"]

    run(scenario)


def block_until(condition: Callable[[], bool]) -> None:
    """Waits for another thread, and keeps the loop from turning."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_session_ended_for_its_owner(served: Served) -> None:
    """`end_sessions_of` ends the session that owns a node, at once; the owner, if it lives, is told."""

    async def scenario() -> None:
        async with session(served.hosts) as store:
            states: list[SessionState] = []
            store.add_listener(states.append)
            await store.create("/e", b"1", ephemeral=True)
            await store.create("/p", b"1")
            path = f"{store._root}/e"
            await asyncio.to_thread(served.call, lambda embedded: embedded.end_sessions_of(f"{store._root}/p"))
            await asyncio.to_thread(served.call, lambda embedded: embedded.end_sessions_of(f"{store._root}/none"))
            assert (await store.get("/e"))[0] == b"1"
            await asyncio.to_thread(served.call, lambda embedded: embedded.end_sessions_of(path))
            await eventually(lambda: SessionState.EXPIRED in states)
            with pytest.raises(SessionExpired):
                await store.get("/p")
        async with session(served.hosts, store._root) as other:
            assert await other.exists("/e") is None
            assert await other.exists("/p") is not None

    run(scenario)


def test_no_session_follows_an_expired_one(served: Served) -> None:
    """Whoever lost its session is told, and nothing is opened in its place: with several servers to ask, too."""

    async def scenario() -> None:
        opened: list[int] = []

        def count(embedded: EmbeddedStore) -> None:
            open_session = embedded.open_session

            def counted(timeout_ms: int, *, local: bool) -> asyncio.Future[tuple[int, SessionRecord]]:
                opened.append(timeout_ms)
                return open_session(timeout_ms, local=local)

            embedded.open_session = counted  # type: ignore[method-assign]

        await asyncio.to_thread(served.call, count)
        async with session(f"{served.hosts},{served.hosts},{served.hosts}") as store:
            await store.create("/e", ephemeral=True)
            path = f"{store._root}/e"
            await asyncio.to_thread(served.call, lambda embedded: embedded.end_sessions_of(path))
            await eventually(lambda: store.state is SessionState.EXPIRED)
        assert len(opened) == 1

    run(scenario)


def test_an_older_store_ends_sessions() -> None:
    """A client that has seen more than the store knows loses its session: nothing it believes need be true."""

    async def scenario() -> None:
        with Served() as served:
            async with session(served.hosts) as store:
                await store.create("/a", b"1")
                port = served.port
                await asyncio.to_thread(served.stop)
                with Served() as older:
                    older.stop()
                    older.port = port
                    older.start()
                    with pytest.raises(SessionExpired):
                        await get_once_connected(store)

    async def get_once_connected(store: ZooKeeperStore) -> None:
        while True:
            try:
                await store.get("/a")
            except ConnectionLoss:
                # What was asked on the connection that broke is not known; it is asked again on the next one.
                await asyncio.sleep(0.01)
            else:
                return

    run(scenario)


def test_calls_never_wait(served: Served) -> None:
    """Thousands of calls without a connection return at once, and are answered when there is one."""

    async def scenario() -> None:
        async with session(served.hosts) as store:
            states: list[SessionState] = []
            store.add_listener(states.append)
            await store.create("/a", b"1")
            await asyncio.to_thread(served.stop)
            await eventually(lambda: states)
            # None of them waits: the server is away until all are made.
            calls = [store.get("/a") for _ in range(5000)]
            await asyncio.to_thread(served.start)
            assert [(await call)[0] for call in calls] == [b"1"] * 5000

    run(scenario)


def test_a_loop_that_hangs_loses_its_session(served: Served) -> None:
    """The session outlives pauses of the loop, but not one of a whole session timeout, though its thread goes on."""

    async def scenario() -> None:
        async with (
            session(served.hosts, timeout_ms=LONG_TIMEOUT_MS) as store,
            session(served.hosts, store._root) as other,
        ):
            states: list[SessionState] = []
            store.add_listener(states.append)
            await store.create("/e", ephemeral=True)
            gone = asyncio.Event()
            await other.exists("/e", lambda event: gone.set())
            assert store._beat is not None
            store._beat.cancel()
            # As if the loop had stood still for so long.
            store._handler.turned_at -= 0.7 * LONG_TIMEOUT_MS / 1000
            await store.get("/e")
            assert not states
            store._handler.turned_at = time.monotonic() - 1.01 * LONG_TIMEOUT_MS / 1000
            with pytest.raises((SessionExpired, ConnectionLoss)):
                await store.get("/e")
            # Ended, not expired: the server was told. By itself the session would outlive this test.
            await gone.wait()
            await eventually(lambda: SessionState.EXPIRED in states)
            assert states == [SessionState.SUSPENDED, SessionState.EXPIRED]

    run(scenario)


def test_a_loop_at_rest_gives_signs_of_life(served: Served) -> None:
    """Without calls, the connection's thread sees the loop turn, several times in a session timeout."""

    async def scenario() -> None:
        async with session(served.hosts, timeout_ms=SHORT_TIMEOUT_MS) as store:
            for _ in range(2):
                seen = store._handler.turned_at
                await eventually(lambda seen=seen: store._handler.turned_at > seen)  # type: ignore[misc]

    run(scenario)


def test_agreed_timeout(served: Served) -> None:
    """The server has bounds for session timeouts; the client says what was agreed."""

    async def scenario() -> None:
        for asked, agreed in [(10, 500), (6000, 6000), (3_600_000, 300_000)]:
            store = await ZooKeeperStore.connect(served.hosts, session_timeout_ms=asked, connection_timeout_ms=5000)
            assert store.session_timeout_ms == agreed
            await store.close()

    run(scenario)


def test_a_socket_that_another_thread_closes_is_told_by_the_read() -> None:
    """The thread that reads looks again between two waits; it has to reconnect, not to end."""

    async def scenario() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            wire = Wire(ours, LoopHandler(6000, 6000))
            ours.close()
            assert wire.wait_readable(None, 0.0) == [wire]
            with pytest.raises(OSError, match="Bad file descriptor"):
                wire.recv(1)

    run(scenario)


@pytest.mark.parametrize("first", [1, 4, 8, 11])
def test_an_agreed_timeout_that_comes_in_pieces(first: int) -> None:
    """What is between may cut the server's first frame anywhere; what was agreed is in its bytes 8 to 12."""

    async def scenario() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            handler = LoopHandler(6000, 6000)
            wire = Wire(ours, handler)
            frame = struct.pack(">iiiqi", 37, 0, 4000, 0x0100_0A2B_0000_0001, 16) + bytes(17)
            received = b""
            for piece in (frame[:first], frame[first:]):
                theirs.sendall(piece)
                received += wire.recv(len(piece))
            assert received == frame
            assert wire.greeted
            assert handler.session_timeout_ms == 4000

    run(scenario)
