"""A consumer's searches for positions, and what becomes of them when the caller seeks meanwhile. Nothing is asked of a
broker here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import cast

import pytest

from tidelog.client.cluster import Cluster
from tidelog.client.consumer import AutoOffsetReset, ConsumerSettings
from tidelog.client.consumer.commits import Commits
from tidelog.client.consumer.placement import Placement
from tidelog.client.errors import NoOffset
from tidelog.client.offsets import CommittedOffset
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import EARLIEST_TIMESTAMP, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)

Answers = dict[TopicPartition, CommittedOffset | KafkaError]


class HeldCommits:
    """The commits of a group, told when the test says so."""

    def __init__(self) -> None:
        self.lookups: list[asyncio.Future[Answers]] = []

    async def committed_each(self, partitions: Collection[TopicPartition]) -> Answers:
        """Waits for the test's answer."""
        self.lookups.append(asyncio.get_running_loop().create_future())
        return await self.lookups[-1]


class World:
    """A placement without a policy, and what it found."""

    def __init__(self) -> None:
        self.commits = HeldCommits()
        self.found: dict[TopicPartition, int] = {}
        self.placement = Placement(
            Cluster("localhost:1"),
            ConsumerSettings(auto_offset_reset=AutoOffsetReset.NONE),
            cast(Commits, self.commits),
            lambda tp, position, is_committed: self.found.update({tp: position.offset}),
            lambda: None,
        )

    async def answer(self, answers: Answers | KafkaError, lookup: int = -1) -> None:
        """Lets a lookup end, and what waits for it go on."""
        if isinstance(answers, KafkaError):
            self.commits.lookups[lookup].set_exception(answers)
        else:
            self.commits.lookups[lookup].set_result(answers)
        await settled()


async def settled() -> None:
    """Lets all that can go on go on."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
def run() -> Callable[[Callable[[World], Awaitable[None]]], None]:
    """Runs a test's coroutine, and closes the placement after it."""

    def run_test(test: Callable[[World], Awaitable[None]]) -> None:
        async def within() -> None:
            world = World()
            try:
                await test(world)
            finally:
                await world.placement.close()

        asyncio.run(within())

    return run_test


Run = Callable[[Callable[[World], Awaitable[None]]], None]


@pytest.mark.parametrize("sought", ["an end", "an offset"])
@pytest.mark.parametrize("when", ["before the answer", "after it"])
@pytest.mark.parametrize("refused", [False, True])
def test_a_lookup_begun_before_a_seek_fails_in_silence(run: Run, sought: str, when: str, refused: bool) -> None:
    """Its partition has somewhere to go on since: neither NoOffset nor the coordinator's refusal is the caller's."""
    answers: Answers | KafkaError = KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "no") if refused else {}

    def seek(world: World) -> None:
        if sought == "an end":
            world.placement.ask([T0], EARLIEST_TIMESTAMP)
        else:
            world.placement.forget([T0])

    async def test(world: World) -> None:
        world.placement.search([T0])
        await settled()
        if when == "before the answer":
            seek(world)
            await world.answer(answers)
        else:
            await world.answer(answers)
            seek(world)
        world.placement.search([])
        assert world.found == {}

    run(test)


def test_what_was_not_sought_is_told(run: Run) -> None:
    """One partition was sought elsewhere during the lookup, one was not: the error names the other one, once."""

    async def test(world: World) -> None:
        world.placement.search([T0, T1])
        await settled()
        world.placement.forget([T0])
        await world.answer({})
        with pytest.raises(NoOffset, match="nothing is committed for t-1, and"):
            world.placement.search([T1])
        world.placement.search([T1])
        await settled()
        await world.answer({T1: CommittedOffset(7)})
        assert world.found == {T1: 7}

    run(test)


def test_a_lookup_begun_before_a_seek_places_nothing(run: Run) -> None:
    """A commit that it finds is not where the caller wants to go on; the lookup after it counts."""

    async def test(world: World) -> None:
        world.placement.search([T0])
        await settled()
        world.placement.forget([T0])
        world.placement.search([T0])
        await settled()
        await world.answer({T0: CommittedOffset(3)}, lookup=0)
        assert world.found == {}
        await world.answer({T0: CommittedOffset(9)})
        assert world.found == {T0: 9}

    run(test)


def test_each_failure_is_told_once(run: Run) -> None:
    """Two searches that fail are two errors; one search of two partitions is one."""

    async def test(world: World) -> None:
        world.placement.search([T0])
        world.placement.search([T1])
        await settled()
        await world.answer({}, lookup=0)
        await world.answer({}, lookup=1)
        for name in ("t-0", "t-1"):
            with pytest.raises(NoOffset, match=f"for {name},"):
                world.placement.search([])
        world.placement.search([T0, T1])
        await settled()
        await world.answer({})
        with pytest.raises(NoOffset, match="for t-0, t-1,"):
            world.placement.search([])
        world.placement.search([])

    run(test)


def test_a_partition_that_is_refused_keeps_no_other_from_being_placed(run: Run) -> None:
    """What may not be read, or is of no topic that there can be, is told; the others of the lookup begin."""

    async def test(world: World) -> None:
        world.placement.search([T0, T1])
        await settled()
        await world.answer({T0: KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no"), T1: CommittedOffset(7)})
        assert world.found == {T1: 7}
        with pytest.raises(KafkaError, match="no"):
            world.placement.search([])
        world.placement.search([])

    run(test)
