"""Writes whose connection breaks: what was carried out is found by reading, what was not is written then, once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import pytest

from tidelog.broker.cluster import commit as module
from tidelog.broker.cluster.commit import Commit, is_carried_out
from tidelog.metadata.operations import Check, Create, Delete, Operation, SetData
from tidelog.ports.real import SystemClock, SystemRandom
from tidelog.store.client import Watch
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.errors import BadVersion, ConnectionLoss, NodeExists, SessionExpired, StoreError
from tidelog.store.local import LocalStore
from tidelog.store.persistence import MemoryPersistence


class Breaking(LocalStore):
    """A session whose connection breaks while multis are under way."""

    happens: list[bool]
    """For each of the next multis: it is carried out, or not, and its answer is lost either way."""
    reads_lost = 0
    """How many of the next reads fail before the connection is back."""
    meanwhile: Callable[[], Awaitable[object]] | None = None
    """What somebody else does before the first read."""
    error: type[StoreError] = ConnectionLoss
    asked: list[Sequence[Operation]]

    def multi(self, operations: Sequence[Operation]) -> Awaitable[Any]:
        self.asked.append(operations)
        if not self.happens:
            return super().multi(operations)
        carried_out = super().multi(operations) if self.happens.pop(0) else None
        return asyncio.ensure_future(self._lose(carried_out))

    async def _lose(self, carried_out: Awaitable[Any] | None) -> None:
        if carried_out is not None:
            await carried_out
        raise self.error

    def get(self, path: str, watch: Watch | None = None) -> Awaitable[Any]:
        return asyncio.ensure_future(self._read(path))

    async def _read(self, path: str) -> Any:
        if self.reads_lost:
            self.reads_lost -= 1
            raise ConnectionLoss
        if self.meanwhile is not None:
            act, self.meanwhile = self.meanwhile, None
            await act()
        return await super().get(path)


def run(scenario: Callable[[Breaking], Coroutine[Any, Any, None]]) -> None:
    async def within() -> None:
        store = EmbeddedStore(MemoryPersistence(), SystemClock(), SystemRandom())
        store.start()
        session = await Breaking.connect(store)
        assert isinstance(session, Breaking)
        session.happens, session.asked = [], []
        await session.create("/fence", b"1")
        await session.create("/n-", b"")
        async with asyncio.timeout(180):
            await scenario(session)
        await store.close()

    asyncio.run(within())


@pytest.fixture(autouse=True)
def _no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_DELAY_MS", 1)


MULTIS: list[list[Operation]] = [
    [Check("/fence", 0), Create("/t", b"topic")],
    [Check("/fence", 0), Create("/t/0"), SetData("/fence", b"x", 0)],
    [Create("/c"), SetData("/c", b"set"), Delete("/n-")],
]


@pytest.mark.parametrize("carried_out", range(4))
def test_what_was_carried_out_is_not_asked_again(carried_out: int) -> None:
    """Whatever number of writes got through before the connection broke."""

    async def scenario(session: Breaking) -> None:
        multis = [MULTIS[0], MULTIS[2]] if carried_out < 3 else MULTIS
        session.happens = [index < carried_out for index in range(len(multis))]
        session.reads_lost = 2
        commit = Commit(session, multis)
        await commit.run()
        assert session.asked[len(multis) :] == multis[carried_out:]
        assert (await session.get("/t"))[0] == b"topic"
        assert (await session.get("/c"))[0] == b"set"
        assert await session.exists("/n-") is None

    run(scenario)


def test_somebody_elses_node_is_no_proof() -> None:
    """A write that was not carried out is refused by what somebody else put there meanwhile."""

    async def scenario(session: Breaking) -> None:
        session.happens = [False]
        session.meanwhile = lambda: LocalStore.create(session, "/t", b"another")
        commit = Commit(session, [[Create("/t", b"topic"), Create("/u")]])
        with pytest.raises(NodeExists):
            await commit.run()
        assert not commit.may_have_happened
        assert await session.exists("/u") is None

    run(scenario)


def test_a_version_that_somebody_else_raised_is_refused() -> None:
    """The same bytes at another version are another write."""

    async def scenario(session: Breaking) -> None:
        session.happens = [False]

        async def twice() -> None:
            for _ in range(2):
                await LocalStore.set(session, "/fence", b"2")

        session.meanwhile = twice
        with pytest.raises(BadVersion):
            await Commit(session, [[SetData("/fence", b"2", 0)]]).run()
        assert (await session.get("/fence"))[1].version == 2

    run(scenario)


def test_a_session_that_ends_leaves_it_open() -> None:
    """Then it may have happened, and who asked is told so; where all was refused, nothing has."""

    async def scenario(session: Breaking) -> None:
        session.error = SessionExpired
        session.happens = [True, False]
        expired = Commit(session, [[Create("/t")], [Create("/u")]])
        with pytest.raises(SessionExpired):
            await expired.run()
        assert expired.may_have_happened
        refused = Commit(session, [[Check("/fence", 9), Create("/v")]])
        with pytest.raises(BadVersion):
            await refused.run()
        assert not refused.may_have_happened

    run(scenario)


def test_notifications_prove_nothing() -> None:
    """The name of a node of a sequence is the store's: it is made again, for twice does no harm, and never does."""

    async def scenario(session: Breaking) -> None:
        notification = [Create("/change-", b"", sequential=True)]
        assert not await is_carried_out(session, notification)
        session.happens = [True]
        await Commit(session, [notification]).run()
        assert len(session.asked) == 2

    run(scenario)


@pytest.mark.parametrize("carried_out", [True, False])
def test_a_wish_that_a_tool_has_written_since_stays(carried_out: bool) -> None:
    """The answer to the removal of the first one was lost, and the tool looked before the controller did."""

    async def scenario(session: Breaking) -> None:
        first = await session.create("/wish", b"first")
        session.happens = [carried_out]

        async def ask_again() -> None:
            if carried_out:
                await LocalStore.create(session, "/wish", b"second")

        session.meanwhile = ask_again
        await Commit(session, [[Check("/fence", 0), Delete("/wish", czxid=first.stat.czxid)]]).run()
        if carried_out:
            assert (await session.get("/wish"))[0] == b"second"
        else:
            assert await session.exists("/wish") is None

    run(scenario)
