"""Members of groups hold their coordinator to what it answered, and nobody else."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from sim.checks.group_history import GroupHistory
from sim.invariants import InvariantBrokenError
from sim.workloads.consumer_members import ConsumerMember
from sim.workloads.members import SESSION_S
from sim.world.randomness import SeededRandom
from sim.world.trace import Trace

from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicId, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

TOPIC_ID = TopicId(bytes(range(16)))
P0 = TopicPartition("t", 0)


class Brokers:
    """A router to brokers that answer as the test says: `coordinator` is found, and gives the partition to all."""

    def __init__(self) -> None:
        self.coordinator = 1
        self.error = ErrorCode.NONE
        self.epoch = 3
        self.partitions = [0]
        self.committed_with: list[int] = []
        """Epochs of commits."""
        self.commit_error = ErrorCode.NONE
        self.oldest_epoch = 3
        """Heartbeats of members with older ones are refused."""

    async def ask_any(self, _key: ApiKey, _message: Any) -> Any:
        found = messages.FindCoordinatorResponse.Coordinator(node_id=self.coordinator)
        return messages.FindCoordinatorResponse(coordinators=[found])

    async def ask(self, _broker: int, key: ApiKey, message: Any, _timeout_s: float, _version: int | None) -> Any:
        if key is ApiKey.OFFSET_FETCH:
            fetched = messages.OffsetFetchResponse
            nothing = fetched.OffsetFetchResponsePartitions(partition_index=0, committed_offset=-1)
            topic = fetched.OffsetFetchResponseTopics(name="t", partitions=[nothing])
            return fetched(groups=[fetched.OffsetFetchResponseGroup(topics=[topic])])
        if key is ApiKey.OFFSET_COMMIT:
            self.committed_with.append(message.generation_id_or_member_epoch)
            committed = messages.OffsetCommitResponse
            outcome = committed.OffsetCommitResponsePartition(partition_index=0, error_code=int(self.commit_error))
            return committed(topics=[committed.OffsetCommitResponseTopic(name="t", partitions=[outcome])])
        kind = messages.ConsumerGroupHeartbeatResponse
        if 0 < message.member_epoch < self.oldest_epoch:
            return kind(error_code=int(ErrorCode.FENCED_MEMBER_EPOCH))
        own = kind.TopicPartitions(topic_id=TOPIC_ID, partitions=self.partitions)
        return kind(
            error_code=int(self.error), member_epoch=self.epoch, assignment=kind.Assignment(topic_partitions=[own])
        )


class Group:
    """Members of one group, and who coordinates it."""

    def __init__(self) -> None:
        self.brokers = Brokers()
        self.now_s = 0.0
        self.leader = 1
        self.history = GroupHistory("g", lambda: self.now_s, lambda: self.leader)
        self.trace = Trace(lambda: self.now_s)

    def member(self, name: str) -> ConsumerMember:
        arguments: Any = (name, [P0], self.history, self.brokers, SeededRandom(1, name), self.trace)
        belated = SeededRandom(1, "belated")
        return ConsumerMember(*arguments, topic_ids={"t": TOPIC_ID}, belated=belated)


@pytest.mark.parametrize("deposed", [False, True])
def test_a_session_runs_from_the_last_answer_of_the_coordinator(*, deposed: bool) -> None:
    """A broker that goes on answering when another one leads the group's partition keeps no member in the group."""
    group = Group()
    one, other = group.member("one"), group.member("other")

    async def scenario() -> None:
        await one._join()
        group.leader = 2 if deposed else 1
        group.now_s = SESSION_S
        await one._heartbeat()
        group.brokers.coordinator = group.leader
        await other._join()

    expected = contextlib.nullcontext() if deposed else pytest.raises(InvariantBrokenError, match="has not released")
    with expected:
        asyncio.run(scenario())


def test_a_deposed_coordinator_gives_nothing() -> None:
    """What it assigns is no claim on the partition: the coordinator may have given it to another member."""
    group = Group()
    one, other = group.member("one"), group.member("other")

    async def scenario() -> None:
        await one._join()
        group.leader = 2
        await other._join()

    asyncio.run(scenario())
    assert group.history.holdings[P0].member == "one-1"


def test_the_member_of_a_group_that_has_expired_joins_under_a_new_name() -> None:
    """GROUP_ID_NOT_FOUND ends a membership as UNKNOWN_MEMBER_ID does."""
    group = Group()
    member = group.member("one")

    async def scenario() -> None:
        await member._join()
        group.brokers.error = ErrorCode.GROUP_ID_NOT_FOUND
        with contextlib.suppress(ConnectionError):
            await member._heartbeat()
        assert not member.positions
        group.brokers.error = ErrorCode.NONE
        await member._join()

    asyncio.run(scenario())
    assert group.history.holdings[P0].member == "one-2"


@pytest.mark.parametrize("silent_s", [0.5, SESSION_S])
def test_a_member_that_was_heard_in_time_is_not_put_out(silent_s: float) -> None:
    """Within a session from its last heartbeat the coordinator cannot have forgotten it; later it can."""
    group = Group()
    member = group.member("one")

    async def scenario() -> None:
        await member._join()
        group.now_s = silent_s
        group.brokers.error = ErrorCode.UNKNOWN_MEMBER_ID
        with contextlib.suppress(ConnectionError):
            await member._heartbeat()

    is_early = silent_s < SESSION_S
    expected = pytest.raises(InvariantBrokenError, match="is put out") if is_early else contextlib.nullcontext()
    with expected:
        asyncio.run(scenario())


@pytest.mark.parametrize("error", [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.NONE])
def test_a_commit_of_before_the_partition_was_given_is_refused(
    monkeypatch: pytest.MonkeyPatch, error: ErrorCode
) -> None:
    """A member that gets a partition may commit as if with an epoch in which it did not have it."""
    monkeypatch.setattr("sim.workloads.consumer_members.BELATED_CHANCE", 1.0)
    group = Group()
    group.brokers.partitions = []
    group.brokers.commit_error = error
    member = group.member("one")

    async def scenario() -> None:
        await member._join()
        group.brokers.epoch, group.brokers.partitions = 4, [0]
        await member._heartbeat()

    taken = error is ErrorCode.NONE
    expected = pytest.raises(InvariantBrokenError, match="of before") if taken else contextlib.nullcontext()
    with expected:
        asyncio.run(scenario())
    assert group.brokers.committed_with == [2]


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_heartbeat_with_an_epoch_of_before_is_refused(monkeypatch: pytest.MonkeyPatch, *, is_refused: bool) -> None:
    """A member that gets a partition may be heard as if with an epoch that it had long ago."""
    monkeypatch.setattr("sim.workloads.consumer_members.BELATED_CHANCE", 1.0)
    group = Group()
    group.brokers.partitions = []
    group.brokers.commit_error = ErrorCode.STALE_MEMBER_EPOCH
    group.brokers.oldest_epoch = 3 if is_refused else 0
    member = group.member("one")

    async def scenario() -> None:
        await member._join()
        group.brokers.epoch, group.brokers.partitions = 4, [0]
        await member._heartbeat()

    expected = contextlib.nullcontext() if is_refused else pytest.raises(InvariantBrokenError, match="is heard with")
    with expected:
        asyncio.run(scenario())
