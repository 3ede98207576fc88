"""The embedded store: durability before answers, order, sessions, failures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from tidelog.metadata.operations import Check, Create, SetData
from tidelog.store.client import EventType, SessionState, WatchEvent
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.errors import ConnectionLoss, NodeExists, NoNode, SessionExpired, StoreClosed
from tidelog.store.local import LocalStore
from tidelog.store.persistence import MemoryPersistence, PersistenceFailed
from tidelog.store.tree import Changes, Snapshot


class FakeClock:
    """Stands still."""

    def wall_ms(self) -> int:
        return 1_000

    def monotonic_ms(self) -> int:
        return 0


class Counting:
    """Random bytes that count up."""

    def __init__(self) -> None:
        self.next = 0

    def below(self, bound: int) -> int:
        return 0

    def token(self, size: int) -> bytes:
        self.next += 1
        return self.next.to_bytes(size, "big")


class SlowDisk(MemoryPersistence):
    """Commits when it is told to, or fails."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: list[Changes] = []
        self.gate = asyncio.Event()
        self.failure: Exception | None = None

    async def commit(self, changes: Changes) -> None:
        self.groups.append(changes)
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        await super().commit(changes)


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


async def turn() -> None:
    """Lets everything that is due happen."""
    for _ in range(5):
        await asyncio.sleep(0)


def start(persistence: MemoryPersistence) -> EmbeddedStore:
    store = EmbeddedStore(persistence, FakeClock(), Counting())
    store.start()
    return store


def test_nothing_is_seen_before_it_is_durable() -> None:
    """Writes, reads of them by anybody, and watch events wait for the disk; then they come in order."""

    async def scenario() -> None:
        disk = SlowDisk()
        disk.gate.set()
        store = start(disk)
        one, two = await LocalStore.connect(store), await LocalStore.connect(store)
        disk.gate.clear()
        seen: list[str] = []

        async def note(name: str, outcome: Awaitable[object]) -> None:
            await outcome
            seen.append(name)

        await two.exists("/a", lambda event: seen.append("watch"))
        tasks = [
            asyncio.ensure_future(note("write", one.create("/a"))),
            asyncio.ensure_future(note("read", two.exists("/a"))),
        ]
        await turn()
        assert seen == []
        disk.gate.set()
        await asyncio.gather(*tasks)
        assert seen == ["watch", "write", "read"]

    run(scenario)


def test_writes_that_come_during_a_commit_share_the_next() -> None:
    """Many multis, two commits; and their order is that of the calls."""

    async def scenario() -> None:
        disk = SlowDisk()
        disk.gate.set()
        store = start(disk)
        client = await LocalStore.connect(store)
        disk.gate.clear()
        disk.groups.clear()
        first = client.create("/a")
        await turn()
        others = [client.multi([Check("/a", index), SetData("/a", b"%d" % index)]) for index in range(50)]
        disk.gate.set()
        await first
        for outcome in others:
            await outcome
        assert len(disk.groups) == 2
        assert disk.committed.nodes["/a"].data == b"49"

    run(scenario)


def test_reads_of_durable_things_do_not_wait() -> None:
    """With nothing under way, a read is answered at once."""

    async def scenario() -> None:
        store = start(MemoryPersistence())
        client = await LocalStore.connect(store)
        outcome = client.exists("/")
        assert isinstance(outcome, asyncio.Future)
        assert outcome.done()

    run(scenario)


def test_a_failed_commit_ends_the_store() -> None:
    """Who waits gets ConnectionLoss, the owner is told once, and nothing is accepted any more."""

    async def scenario() -> None:
        disk = SlowDisk()
        disk.gate.set()
        told: list[PersistenceFailed] = []
        store = EmbeddedStore(disk, FakeClock(), Counting(), told.append)
        store.start()
        client = await LocalStore.connect(store)
        disk.failure = PersistenceFailed("no space left")
        write, read = client.create("/a"), client.exists("/a")
        for outcome in (write, read):
            with pytest.raises(ConnectionLoss, match="no space left"):
                await outcome
        with pytest.raises(ConnectionLoss):
            await client.create("/b")
        assert told == [disk.failure]
        await client.close()
        await store.close()
        assert "/a" not in disk.committed.nodes

    run(scenario)


def test_a_commit_that_breaks_unexpectedly_ends_the_store_too() -> None:
    """Nobody waits for ever: whatever goes wrong in a commit, the store fails as a whole and says so."""

    async def scenario() -> None:
        disk = SlowDisk()
        disk.gate.set()
        told: list[PersistenceFailed] = []
        store = EmbeddedStore(disk, FakeClock(), Counting(), told.append)
        store.start()
        client = await LocalStore.connect(store)
        disk.failure = OverflowError("Python int too large")
        async with asyncio.timeout(180):
            with pytest.raises(ConnectionLoss, match=r"OverflowError.*Python int too large"):
                await client.create("/a")
        assert len(told) == 1
        await client.close()
        await store.close()

    run(scenario)


def test_sessions_of_the_last_life_are_gone_after_a_restart() -> None:
    """A process that died took its local sessions with it: their ephemeral nodes are deleted at the start."""

    async def scenario() -> None:
        disk = MemoryPersistence()
        client = await LocalStore.connect(start(disk))
        await client.create("/ids")
        await client.create("/ids/0", ephemeral=True)
        # No close: the process was killed.
        again = await LocalStore.connect(start(disk))
        assert (await again.children("/ids"))[0] == []
        assert list(disk.committed.sessions) == [again.session_id]

    run(scenario)


def test_closing_a_session_deletes_its_ephemerals_and_silences_its_watches() -> None:
    """Others see the deletion; the one that left hears nothing more, and may not write."""

    async def scenario() -> None:
        store = start(MemoryPersistence())
        one, two = await LocalStore.connect(store), await LocalStore.connect(store)
        heard: list[tuple[str, WatchEvent]] = []
        states: list[SessionState] = []
        one.add_listener(states.append)
        await one.create("/e", ephemeral=True)
        await one.exists("/e", lambda event: heard.append(("one", event)))
        await two.exists("/e", lambda event: heard.append(("two", event)))
        await one.close()
        await one.close()
        await turn()
        assert heard == [("two", WatchEvent(EventType.NODE_DELETED, "/e"))]
        assert (one.state, states) == (SessionState.CLOSED, [SessionState.CLOSED])
        for outcome in (one.create("/x"), one.exists("/"), one.get("/"), one.children("/")):
            with pytest.raises(SessionExpired):
                await outcome

    run(scenario)


def test_errors_come_as_results() -> None:
    """Calling raises nothing; awaiting does."""

    async def scenario() -> None:
        client = await LocalStore.connect(start(MemoryPersistence()))
        missing, created, again = client.get("/a"), client.create("/a"), client.create("/a")
        await created
        with pytest.raises(NoNode):
            await missing
        with pytest.raises(NodeExists):
            await again
        with pytest.raises(NoNode) as refusal:
            await client.multi([Create("/b"), SetData("/c", b"")])
        assert refusal.value.index == 1
        assert await client.exists("/b") is None

    run(scenario)


def test_a_closed_store_says_so() -> None:
    """What was written before is durable; before `start` and after `close` nothing is accepted."""

    async def scenario() -> None:
        disk = MemoryPersistence()
        store = EmbeddedStore(disk, FakeClock(), Counting())
        with pytest.raises(StoreClosed):
            await store.open_session(1, local=True)
        store.start()
        client = await LocalStore.connect(store)
        write = client.create("/a")
        await store.close()
        await write
        with pytest.raises(StoreClosed):
            await client.create("/b")
        assert disk.committed == Snapshot(store.tree.zxid, store.tree.snapshot().nodes, {})

    run(scenario)


def test_a_watcher_that_raises_harms_nobody() -> None:
    """Its error goes to the loop's handler; the store goes on."""

    async def scenario() -> None:
        errors: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context["exception"]))
        client = await LocalStore.connect(start(MemoryPersistence()))
        failure = RuntimeError("in a watcher")

        def fail(event: WatchEvent) -> None:
            raise failure

        await client.exists("/a", fail)
        await client.create("/a")
        await client.set("/a", b"1")
        assert errors == [failure]

    run(scenario)
