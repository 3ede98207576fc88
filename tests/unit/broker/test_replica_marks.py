"""What brokers tell of their replicas in the metadata store, and what controllers answer there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.several import Brokers, brokers_of, run
from tests.waiting import eventually

from tidelog.broker.cluster.replica_marks import ReplicaMarks
from tidelog.controller.elections import remove_mark
from tidelog.controller.turn import ControllerTurn
from tidelog.metadata.operations import Operation, SetData
from tidelog.metadata.replica_marks import (
    MARKS,
    ReplicaDamage,
    encode_heeded,
    heeded_path,
    replica_mark_path,
)
from tidelog.metadata.znodes import PartitionState, encode_state, state_path
from tidelog.model.identifiers import BrokerId, ControllerEpoch, LeaderEpoch, Offset, TopicPartition
from tidelog.ports.real import SystemRandom
from tidelog.store.client import OperationResult
from tidelog.store.errors import BadVersion, NoAuth

T0 = TopicPartition("t", 0)
LACKS_ITS_TAIL = ReplicaDamage(Offset(5), LeaderEpoch(0), Offset(9))
LACKS_MORE = ReplicaDamage(Offset(3), LeaderEpoch(0), Offset(9))
HOLE = ReplicaDamage(Offset(9), LeaderEpoch(0), Offset(9), has_hole=True)


@asynccontextmanager
async def one_broker(tmp_path: Path) -> AsyncIterator[tuple[Brokers, ReplicaMarks]]:
    """With a topic, and the marks of a broker 1 that is not there: no controller minds what they say of it."""
    async with brokers_of(str(tmp_path), 1) as brokers:
        await brokers.create(0, "t", [[0]])
        yield brokers, ReplicaMarks(BrokerId(1), brokers.running[0].node.logs)


def marks(brokers: Brokers) -> list[str]:
    """Names of all nodes that are about the replica."""
    return [path.removeprefix(f"{MARKS}/") for path in brokers.store.tree.paths() if path.startswith(f"{MARKS}/1-t-0")]


def test_a_replica_is_barred_once_its_mark_was_read_and_it_is_outside_the_isr(tmp_path: Path) -> None:
    """Another mark that was read says nothing of this one, and an ISR with the replica in it may be told of later."""

    async def check() -> None:
        async with one_broker(tmp_path) as (brokers, told):
            session = brokers.sessions[0]

            async def is_barred() -> bool:
                await told.write(session)
                return told.is_barred(T0)

            async def isr(*ids: int) -> None:
                state = PartitionState(BrokerId(0), LeaderEpoch(0), tuple(map(BrokerId, ids)), ControllerEpoch(1))
                await session.multi([SetData(state_path(*T0), encode_state(state))])

            told.report(T0, HOLE)
            assert not await is_barred(), "not even written"
            await eventually(lambda: "1-t-0-heeded" in marks(brokers), "the controller's answer")
            assert await is_barred()
            czxid = brokers.store.tree.get(replica_mark_path(1, T0))[1].czxid
            await session.multi([SetData(heeded_path(1, T0), encode_heeded(czxid - 1))])
            assert not await is_barred(), "an answer to another mark"
            await session.multi([SetData(heeded_path(1, T0), encode_heeded(czxid))])
            await isr(0, 1)
            assert not await is_barred(), "in the ISR"
            await isr(0)
            assert await is_barred()
            told.report(T0, LACKS_ITS_TAIL)
            assert not told.is_barred(T0)
            assert not await is_barred(), "fetching mends it"
            assert marks(brokers) == ["1-t-0"]
            told.dropped(T0)
            await told.write(session)
            assert marks(brokers) == []

    run(check())


def test_nodes_that_nobody_knows_below_a_mark_go_with_it(tmp_path: Path) -> None:
    """The mark could not be removed with them, nor written again: the broker stopped, and did not start any more."""

    async def check() -> None:
        async with one_broker(tmp_path) as (brokers, told):
            session = brokers.sessions[0]
            mark = replica_mark_path(1, T0)

            async def strangers() -> None:
                await session.create(f"{mark}/x")
                await session.create(f"{mark}/x/y")

            told.report(T0, LACKS_ITS_TAIL)
            await told.write(session)
            await strangers()
            told.report(T0, LACKS_MORE)
            await told.write(session)
            assert marks(brokers) == ["1-t-0"]
            await strangers()
            told.dropped(T0)
            await told.write(session)
            assert marks(brokers) == []

    run(check())


def test_a_mark_that_the_broker_may_not_read_or_remove_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another principal has made it: the broker would stop, and not start again. It counts as a mark that says
    nothing."""

    async def check() -> None:
        async with one_broker(tmp_path) as (brokers, told):
            session = brokers.sessions[0]
            denied = {replica_mark_path(1, T0)}
            real_get, real_delete = session.get, session.delete

            def deny(path: str) -> asyncio.Future[Any]:
                failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                failed.set_exception(NoAuth(path))
                return failed

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(
                    session,
                    "get",
                    lambda path, watch=None: deny(path) if path in denied else real_get(path, watch),
                )
                patch.setattr(
                    session,
                    "delete",
                    lambda path, version=-1: deny(path) if path in denied else real_delete(path, version),
                )
                told.report(T0, LACKS_ITS_TAIL)
                for _ in range(2):
                    await told.write(session)
                assert marks(brokers) == ["1-t-0"]
                told.dropped(T0)
                for _ in range(2):
                    await told.write(session)
                assert marks(brokers) == ["1-t-0"]
                lines = [record.getMessage() for record in caplog.records if "replica mark:" in record.getMessage()]
                assert [line.partition("reason=")[2].partition(":")[0] for line in lines] == [
                    "not read",
                    "not removed, and its replica counts as damaged until it is",
                ]
                denied.clear()
                await told.write(session)
            assert marks(brokers) == []

    run(check())


def test_a_controller_reads_a_mark_that_was_written_again(tmp_path: Path) -> None:
    """Under the same name, in one transaction: the names of marks do not change by that."""

    async def check() -> None:
        async with one_broker(tmp_path) as (brokers, told):
            controller = brokers.running[0]._driver_of_start().elections.controller
            assert controller is not None
            for damage in (LACKS_ITS_TAIL, HOLE, LACKS_ITS_TAIL):
                told.report(T0, damage)
                await told.write(brokers.sessions[0])
                await eventually(
                    lambda damage=damage: controller.state.damaged_replicas(T0).get(BrokerId(1)) == damage, "it read"
                )

    run(check())


def test_a_hole_is_told_though_a_controller_removes_the_earlier_mark_meanwhile(tmp_path: Path) -> None:
    """The replica had come back into the ISR without that hole: taken for whole, it could be elected with it."""

    async def check() -> None:
        async with one_broker(tmp_path) as (brokers, told):
            session = brokers.sessions[0]
            told.report(T0, LACKS_ITS_TAIL)
            await told.write(session)
            carry_out, removals = session.multi, []

            def overtaken(operations: Sequence[Operation]) -> Awaitable[Sequence[OperationResult]]:
                if not removals:
                    removals.append(session.delete(replica_mark_path(1, T0)))
                return carry_out(operations)

            session.multi = overtaken  # type: ignore[method-assign]
            told.report(T0, HOLE)
            await told.write(session)
            await removals[0]
            assert "1-t-0" in marks(brokers)
            await told.write(session)
            assert told.damaged == {T0: HOLE}

    run(check())


def test_a_controller_removes_the_mark_that_it_has_read_alone(tmp_path: Path) -> None:
    """A replica comes into the ISR, and its broker finds a hole in it before the controller's write is there."""

    async def check() -> None:
        async with one_broker(tmp_path) as (brokers, told):
            session = brokers.sessions[0]
            controller = brokers.running[0]._driver_of_start().elections.controller
            assert controller is not None
            for before, now in ((LACKS_ITS_TAIL, HOLE), (LACKS_ITS_TAIL, LACKS_MORE)):
                told.report(T0, before)
                await told.write(session)
                await eventually(
                    lambda: controller.state.damaged_replicas(T0).get(BrokerId(1)) == LACKS_ITS_TAIL, "it read"
                )
                turn = ControllerTurn(controller.state, controller.settings, SystemRandom(), 0)
                remove_mark(turn, T0, BrokerId(1))
                [write] = turn.finish().writes
                told.report(T0, now)
                await told.write(session)
                with pytest.raises(BadVersion):
                    await session.multi([write.operation])
                await told.write(session)
                assert told.damaged == {T0: now}

    run(check())
