"""What `ZooKeeperStore` promises, whatever serves it: the embedded store's server or a real ensemble.

Each check is given the address of a server, with a chroot of its own in it, so that they don't see each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise

import pytest
from tests.unit.store.serving import Proxy
from tests.waiting import eventually

from tidelog.metadata.operations import Check, Create, Delete, SetData
from tidelog.store.client import Created, EventType, SessionKey, SessionState, Stat, WatchEvent
from tidelog.store.errors import (
    BadArguments,
    BadVersion,
    ConnectionLoss,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    StoreClosed,
)
from tidelog.store.zookeeper import ZooKeeperStore, end_session

SESSION_TIMEOUT_MS = 10_000
"""The most that an ensemble with a tickTime of 500 agrees to."""
SHORT_TIMEOUT_MS = 1000
"""Of a session that is to expire. ZooKeeper agrees to it with a tickTime of 500."""

Contract = Callable[[str], Awaitable[None]]


@contextlib.asynccontextmanager
async def session(
    hosts: str, root: str | None = None, timeout_ms: int = SESSION_TIMEOUT_MS
) -> AsyncIterator[ZooKeeperStore]:
    """A session in a chroot of its own, or in the one given."""
    chroot = f"/check-{uuid.uuid4().hex}" if root is None else root
    store = await ZooKeeperStore.connect(hosts + chroot, session_timeout_ms=timeout_ms, connection_timeout_ms=120_000)
    try:
        yield store
    finally:
        await store.close()


async def nodes_live_and_die(hosts: str) -> None:
    """Create, get, set, exists, children, delete; null and empty data differ; stats count."""
    async with session(hosts) as store:
        created = await store.create("/a")
        assert created.path == "/a"
        assert await store.get("/a") == (None, created.stat)
        stat = await store.set("/a", b"")
        assert (stat.version, stat.czxid, stat.data_length) == (1, created.stat.czxid, 0)
        assert stat.mzxid > stat.czxid
        assert await store.get("/a") == (b"", stat)
        assert await store.exists("/b") is None
        await store.create("/a/y", b"1")
        await store.create("/a/x", b"2")
        names, stat = await store.children("/a")
        assert names == ["x", "y"]
        assert (stat.num_children, stat.cversion) == (2, 2)
        await store.delete("/a/x", 0)
        names, stat = await store.children("/a")
        assert (names, stat.cversion) == (["y"], 3)
        assert await store.children("/") == (["a"], (await store.exists("/")))


async def refusals_have_names(hosts: str) -> None:
    """Each refusal is the StoreError of its kind, with the path it is about."""
    async with session(hosts) as store:
        await store.create("/a")
        await store.create("/e", ephemeral=True)
        for call, expected in [
            (store.create("/a"), NodeExists),
            (store.create("/x/y"), NoNode),
            (store.create("/e/y"), NoChildrenForEphemerals),
            (store.get("/x"), NoNode),
            (store.children("/x"), NoNode),
            (store.set("/x", b""), NoNode),
            (store.set("/a", b"", 7), BadVersion),
            (store.delete("/a", 7), BadVersion),
        ]:
            with pytest.raises(expected) as refused:
                await call
            assert refused.value.path.startswith("/")
        await store.create("/a/b")
        with pytest.raises(NotEmpty):
            await store.delete("/a")


async def kinds_of_nodes(hosts: str) -> None:
    """Sequential nodes count; ephemeral ones belong to the session and go with it."""
    async with session(hosts) as store, session(hosts, store._root) as other:
        names = [(await store.create("/n-", b"", sequential=True)).path for _ in range(2)]
        assert [name[3:] for name in names] == ["0000000000", "0000000001"]
        made = await store.create("/e", b"", ephemeral=True)
        assert made.stat.ephemeral_owner == store.session_id
        events: list[WatchEvent] = []
        assert (await other.exists("/e", events.append)) == made.stat
        await store.close()
        await eventually(lambda: events)
        assert events == [WatchEvent(EventType.NODE_DELETED, "/e")]
        assert await other.exists("/e") is None


async def multis_are_whole(hosts: str) -> None:
    """All or nothing; results as those of the single calls; the error names the operation."""
    async with session(hosts) as store:
        results = await store.multi(
            [
                Create("/m"),
                Create("/m/s-", b"1", sequential=True),
                SetData("/m", b"2"),
                Check("/m", 1),
                Create("/m/e", b"", ephemeral=True),
                Delete("/m/e"),
            ]
        )
        assert isinstance(results[0], Created)
        assert isinstance(results[1], Created)
        assert (results[0].path, results[1].path) == ("/m", "/m/s-0000000000")
        assert isinstance(results[2], Stat)
        assert results[2].version == 1
        assert results[2].czxid == results[0].stat.czxid
        assert [results[3], results[5]] == [None, None]
        with pytest.raises(BadVersion) as failed:
            await store.multi([Create("/m/x"), SetData("/m", b"", 5), Delete("/m/none")])
        assert (failed.value.index, failed.value.path) == (1, "/m")
        assert await store.exists("/m/x") is None
        with pytest.raises(NodeExists) as failed_too:
            await store.multi([Check("/m", 1), Create("/m")])
        assert failed_too.value.index == 1
        assert await store.multi([]) == []


async def calls_keep_their_order(hosts: str) -> None:
    """Calls not awaited happen in the order in which they were made, results come in it too."""
    async with session(hosts) as store:
        await store.create("/n", b"0")
        done: list[int] = []
        calls = []
        for number in range(500):
            call = asyncio.ensure_future(store.set("/n", str(number).encode(), number))
            call.add_done_callback(lambda _, number=number: done.append(number))  # type: ignore[misc]
            calls.append(call)
        stats = await asyncio.gather(*calls)
        assert [stat.version for stat in stats] == list(range(1, 501))
        assert done == sorted(done)
        assert (await store.get("/n"))[0] == b"499"


async def watches_fire_once_and_first(hosts: str) -> None:
    """One shot; before a later read that shows the change; the same callback on a node twice is one watch."""
    async with session(hosts) as store, session(hosts, store._root) as other:
        await store.create("/w", b"0")
        heard: list[WatchEvent] = []
        await store.get("/w", heard.append)
        await store.exists("/w", heard.append)
        await store.children("/w", heard.append)
        await store.exists("/new", heard.append)
        with pytest.raises(NoNode):
            await store.get("/none", heard.append)
        for number in range(1, 21):
            heard.clear()
            await store.get("/w", heard.append)
            pending = other.set("/w", b"%d" % number)
            while (await store.get("/w"))[0] != b"%d" % number:
                assert not heard
            assert heard == [WatchEvent(EventType.NODE_DATA_CHANGED, "/w")]
            await pending
        heard.clear()
        await store.set("/w", b"own")
        assert heard == []
        await store.create("/w/child")
        await store.create("/w/second")
        await store.create("/new")
        await store.create("/none")
        assert heard == [
            WatchEvent(EventType.NODE_CHILDREN_CHANGED, "/w"),
            WatchEvent(EventType.NODE_CREATED, "/new"),
        ]


async def deletions_are_told_once(hosts: str) -> None:
    """Who watches a node's data and its children hears of its end, by each callback once; over a break as well."""
    async with Proxy(hosts) as way, session(way.hosts) as store, session(hosts, store._root) as other:
        states: list[SessionState] = []
        store.add_listener(states.append)
        for broken in (False, True):
            await store.create("/d")
            heard: list[WatchEvent] = []
            heard_too: list[WatchEvent] = []
            await store.get("/d", heard.append)
            await store.children("/d", heard.append)
            await store.children("/d", heard_too.append)
            if broken:
                way.open = False
                way.cut()
                await eventually(lambda: states)
            await other.delete("/d")
            way.open = True
            assert await store.exists("/d") is None
            assert heard == heard_too == [WatchEvent(EventType.NODE_DELETED, "/d")]


async def watches_outlive_connections(hosts: str) -> None:
    """What happened while there was no connection is told on the next one, before any read shows it."""
    async with Proxy(hosts) as way, session(way.hosts) as store, session(hosts, store._root) as other:
        for name in ("changed", "same", "gone", "parent", "quiet"):
            await store.create(f"/{name}")
        heard: list[WatchEvent] = []
        states: list[SessionState] = []
        store.add_listener(states.append)
        for name in ("changed", "same", "gone"):
            await store.get(f"/{name}", heard.append)
        for name in ("absent", "later"):
            assert await store.exists(f"/{name}", heard.append) is None
        for name in ("parent", "quiet"):
            await store.children(f"/{name}", heard.append)
        way.open = False
        way.cut()
        await eventually(lambda: states)
        await other.set("/changed", b"1")
        await other.delete("/gone")
        await other.create("/absent")
        await other.create("/parent/child")
        reads = [store.get("/changed"), store.children("/parent")]
        way.open = True
        data, _ = await reads[0]
        assert data == b"1"
        assert set(heard) == {
            WatchEvent(EventType.NODE_DATA_CHANGED, "/changed"),
            WatchEvent(EventType.NODE_DELETED, "/gone"),
            WatchEvent(EventType.NODE_CREATED, "/absent"),
            WatchEvent(EventType.NODE_CHILDREN_CHANGED, "/parent"),
        }
        assert len(heard) == 4
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        await reads[1]
        heard.clear()
        await other.set("/same", b"1")
        await other.create("/later")
        await other.create("/quiet/child")
        await eventually(lambda: len(heard) == 3)
        assert set(heard) == {
            WatchEvent(EventType.NODE_DATA_CHANGED, "/same"),
            WatchEvent(EventType.NODE_CREATED, "/later"),
            WatchEvent(EventType.NODE_CHILDREN_CHANGED, "/quiet"),
        }


async def lost_answers_are_not_guessed(hosts: str) -> None:
    """A write whose answer is lost fails with ConnectionLoss although it happened; the session lives on."""
    async with Proxy(hosts) as way, session(way.hosts) as store, session(hosts, store._root) as other:
        await store.create("/w", b"0")
        changed = asyncio.Event()
        states: list[SessionState] = []
        store.add_listener(states.append)
        await other.get("/w", lambda event: changed.set())
        way.answers = False
        pending = [store.set("/w", b"1"), store.create("/e", ephemeral=True)]
        await changed.wait()
        way.cut()
        way.answers = True
        for call in pending:
            with pytest.raises(ConnectionLoss):
                await call
        # A call made before the loop heard of the break would fail, too.
        await eventually(lambda: states == [SessionState.SUSPENDED, SessionState.CONNECTED])
        assert (await store.get("/w"))[0] == b"1"
        made = await store.exists("/e")
        assert made is not None
        assert made.ephemeral_owner == store.session_id


async def silent_servers_are_given_up(hosts: str) -> None:
    """A server that hangs is left in time to keep the session, also when it is asked something all the time."""
    async with Proxy(hosts) as way, session(way.hosts, timeout_ms=SHORT_TIMEOUT_MS * 4) as store:
        await store.create("/w", b"0")
        way.answers = False
        calls = []
        states: list[SessionState] = []
        store.add_listener(states.append)
        while not states:
            calls.append(store.exists("/w"))
            await asyncio.sleep(0.01)
        way.answers = True
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert any(isinstance(outcome, ConnectionLoss) for outcome in outcomes)
        assert all(isinstance(outcome, ConnectionLoss | Stat) for outcome in outcomes)
        assert await store.exists("/w") is not None
        # In time: the session is the same.
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]


async def sessions_end_by_their_key(hosts: str) -> None:
    """Who knows a session's key ends it and no other; what it had goes at once. To end it twice does no harm."""
    async with session(hosts) as store, session(hosts, store._root) as other:
        await store.create("/e", ephemeral=True)
        await other.create("/f", ephemeral=True)
        gone = asyncio.Event()
        await other.exists("/e", lambda event: gone.set())
        key = SessionKey.parse(str(store.key))
        for _ in range(2):
            await end_session(hosts + store._root, key, SESSION_TIMEOUT_MS)
        await gone.wait()
        assert (await other.exists("/e"), await other.exists("/f")) != (None, None)
        await eventually(lambda: store.state is SessionState.EXPIRED)
        assert other.state is SessionState.CONNECTED


async def syncs_come_back(hosts: str) -> None:
    """What is read after a sync is what was durable before it."""
    async with session(hosts) as store, session(hosts, store._root) as other:
        await store.create("/w", b"0")
        for number in range(20):
            await store.set("/w", b"%d" % number)
            _, (data, _) = await asyncio.gather(other.sync(), other.get("/w"))
            assert data == b"%d" % number


async def expired_sessions_stay_expired(hosts: str) -> None:
    """A session that could not be heard from for its timeout is over: its nodes gone, every call refused."""
    async with (
        Proxy(hosts) as way,
        session(way.hosts, timeout_ms=SHORT_TIMEOUT_MS) as store,
        session(hosts, store._root) as other,
    ):
        states: list[SessionState] = []
        store.add_listener(states.append)
        await store.create("/e", ephemeral=True)
        gone = asyncio.Event()
        await other.exists("/e", lambda event: gone.set())
        way.open = False
        way.cut()
        await eventually(lambda: states)
        waiting = store.get("/e")
        await gone.wait()
        way.open = True
        with pytest.raises(SessionExpired):
            await waiting
        await eventually(lambda: SessionState.EXPIRED in states)
        assert states == [SessionState.SUSPENDED, SessionState.EXPIRED]
        with pytest.raises(SessionExpired):
            await store.get("/e")
    assert states[-1] is SessionState.CLOSED
    with pytest.raises(StoreClosed):
        await store.get("/e")


async def transactions_are_numbered(hosts: str) -> None:
    """czxid grows with every creation: what broker epochs are made of."""
    async with session(hosts) as store:
        made = [await store.create("/n-", sequential=True) for _ in range(5)]
        assert all(first.stat.czxid < second.stat.czxid for first, second in pairwise(made))
        first, second = await store.multi([Create("/id"), SetData("/id", b"x")])
        assert isinstance(first, Created)
        assert isinstance(second, Stat)
        assert second.czxid == first.stat.czxid > made[-1].stat.czxid


async def large_nodes(hosts: str) -> None:
    """As large as ZooKeeper allows, many at once both ways: more than sockets take, and nothing mixed up."""
    async with session(hosts) as store:
        values = [bytes([number]) * 1_000_000 for number in range(20)]
        await asyncio.gather(*[store.create(f"/n{number}", value) for number, value in enumerate(values)])
        found = await asyncio.gather(*[store.get(f"/n{number}") for number in range(len(values))])
        assert [data for data, _ in found] == values
        # ZooKeeper would cut the connection over a larger one, and the session would see nothing but that.
        half = bytes(600_000)
        states: list[SessionState] = []
        store.add_listener(states.append)
        for refused in (
            store.create("/large", bytes(1 << 20)),
            store.set("/n0", bytes(1 << 20)),
            store.multi([Create("/small"), Create("/half", half), Create("/b", half)]),
        ):
            with pytest.raises(BadArguments, match=r"/large|/n0|/half"):
                await refused
        assert await store.exists("/small") is None
        assert not states


async def a_follower_over_bad_lines(hosts: str) -> None:
    """Over a connection that breaks again and again, who reads again at each event knows the last value in the end."""
    async with Proxy(hosts) as way, session(way.hosts) as store, session(hosts, store._root) as other:
        await other.create("/n", b"0")
        await other.create("/n/0")
        changes, known, names = asyncio.Event(), [0], [["0"]]
        states: list[SessionState] = []
        store.add_listener(states.append)

        async def follow() -> None:
            while True:
                changes.clear()
                try:
                    # The callback is the same each time: whatever was set before a break and after it is one watch.
                    known.append(int((await store.get("/n", told))[0] or b""))
                    names.append(list((await store.children("/n", told))[0]))
                except ConnectionLoss:
                    continue
                await changes.wait()

        def told(event: WatchEvent) -> None:
            changes.set()

        following = asyncio.create_task(follow())
        for number in range(1, 101):
            await other.set("/n", b"%d" % number)
            await other.multi([Delete(f"/n/{number - 1}"), Create(f"/n/{number}")])
            if number % 10 == 0:
                way.cut()
            if number % 25 == 0:
                await eventually(lambda: states and states[-1] is SessionState.CONNECTED)
        await eventually(lambda: known[-1] == 100 and names[-1] == ["100"])
        following.cancel()
        assert known == sorted(known)
        assert states.count(SessionState.SUSPENDED) >= 4


CHECKS: list[Contract] = [
    nodes_live_and_die,
    refusals_have_names,
    kinds_of_nodes,
    multis_are_whole,
    calls_keep_their_order,
    watches_fire_once_and_first,
    deletions_are_told_once,
    watches_outlive_connections,
    lost_answers_are_not_guessed,
    silent_servers_are_given_up,
    sessions_end_by_their_key,
    syncs_come_back,
    expired_sessions_stay_expired,
    transactions_are_numbered,
    large_nodes,
    a_follower_over_bad_lines,
]
