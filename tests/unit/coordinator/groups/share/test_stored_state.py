"""Which partitions of a share group have state with the share coordinator: asked for once, told of, forgotten."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.coordinator.groups.consumer.world import WALL_MS, World, topic_id, view

from tidelog.coordinator.groups.consumer.member import Partitions
from tidelog.coordinator.groups.offset_events import ExpireOffsets
from tidelog.coordinator.groups.share.events import (
    ForgetTopics,
    PrepareDeletion,
    PreparedOffsets,
    PrepareOffsets,
    ShareGroupPartitions,
    ShareHeartbeat,
    ShareHeartbeatReply,
    StateDeleted,
    StateInitialized,
    StoredPartitions,
)
from tidelog.coordinator.groups.share.group import ShareGroup
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicId

RETRY_MS = 30_000
"""group.share.initialize.retry.interval.ms."""
A, B = topic_id("a"), topic_id("b")


class Shares:
    """A group of share consumers."""

    def __init__(self) -> None:
        self.world = World(topics=view(a=2, b=1))
        self.epochs: dict[str, int] = {}

    def heartbeat(
        self, member: str = "m", group: str = "s", topics: frozenset[str] | None = None
    ) -> ShareHeartbeatReply:
        epoch = self.epochs.get(member, 0)
        told = topics or frozenset({"a"}) if epoch == 0 or topics else None
        reply: ShareHeartbeatReply = self.world.ask(
            lambda request_id: ShareHeartbeat(request_id, group, member, epoch, WALL_MS, topics=told)
        )
        assert reply.error is ErrorCode.NONE
        self.epochs[member] = reply.epoch
        return reply

    def made(self, partitions: Partitions, state_epoch: int, group: str = "s") -> None:
        self.world.ask(lambda request_id: StateInitialized(request_id, group, partitions, state_epoch))

    @property
    def group(self) -> ShareGroup:
        found = self.world.machine.groups["s"]
        assert isinstance(found, ShareGroup)
        return found


@pytest.fixture
def shares() -> Iterator[Shares]:
    """Afterwards the log makes the same group."""
    shares = Shares()
    yield shares
    before = dict(shares.world.machine.groups)
    shares.world.move(clean=True)
    assert shares.world.machine.groups == before


def both(topic: TopicId = A) -> Partitions:
    return {topic: frozenset({0, 1})}


def test_the_first_heartbeat_of_a_group_asks_for_state_and_the_next_ones_wait(shares: Shares) -> None:
    """What is asked twice arrives twice, the second time perhaps when members have acknowledged records."""
    first = shares.heartbeat()
    assert first.to_initialize == both()
    assert not shares.heartbeat().to_initialize
    assert not shares.heartbeat("n").to_initialize
    shares.world.now_ms += RETRY_MS
    assert shares.heartbeat().to_initialize == both(), "the share coordinator has not answered"
    assert not shares.heartbeat().to_initialize


def test_a_partition_is_given_out_once_its_state_is_made(shares: Shares) -> None:
    first = shares.heartbeat()
    assert first.assignment == {}
    shares.made({A: frozenset({0})}, first.state_epoch)
    assert shares.heartbeat().assignment == {A: frozenset({0})}
    shares.made({A: frozenset({1})}, first.state_epoch)
    assert shares.heartbeat().assignment == both()


def test_state_that_is_about_to_be_made_anew_is_not_given_out(shares: Shares) -> None:
    """The former request was answered late, the later one is still on its way: it would void what members say."""
    first = shares.heartbeat()
    shares.world.now_ms += RETRY_MS
    again = shares.heartbeat("n")
    assert again.state_epoch > first.state_epoch
    assert again.to_initialize == both()
    shares.made(both(), first.state_epoch)
    assert shares.heartbeat().assignment is None
    shares.made(both(), again.state_epoch)
    assert shares.heartbeat().assignment


def test_partitions_that_a_topic_gets_later_are_asked_for_by_themselves(shares: Shares) -> None:
    first = shares.heartbeat()
    shares.world.topics = view(2, a=3, b=1)
    more = shares.heartbeat()
    assert more.to_initialize == {A: frozenset({2})}
    shares.made(both(), first.state_epoch)
    assert shares.heartbeat().assignment == both()


def test_a_coordinator_that_begins_asks_anew_for_what_was_not_told(shares: Shares) -> None:
    first = shares.heartbeat()
    shares.world.move()
    again = shares.heartbeat()
    assert again.to_initialize == both()
    assert again.state_epoch == first.state_epoch


def test_offsets_that_a_tool_sets_hold_against_state_that_a_member_wanted(shares: Shares) -> None:
    first = shares.heartbeat()
    shares.world.ask(lambda request_id: ShareHeartbeat(request_id, "s", "m", -1, WALL_MS))
    prepared: PreparedOffsets = shares.world.ask(lambda request_id: PrepareOffsets(request_id, "s", both()))
    assert prepared.state_epoch > first.state_epoch
    shares.made(both(), first.state_epoch)
    assert shares.group.stored.initialized == {}
    shares.made(both(), prepared.state_epoch)
    assert shares.group.stored.initialized == both()


def test_what_is_left_of_a_deleted_topic_is_forgotten(shares: Shares) -> None:
    reply = shares.heartbeat(topics=frozenset({"a", "b"}))
    shares.made({A: frozenset({0}), B: frozenset({0})}, reply.state_epoch)
    shares.world.topics = view(2, b=1)
    shares.world.machine.metadata = shares.world.topics
    shares.world._handle(ForgetTopics(frozenset({A})))
    stored = shares.world.ask(lambda request_id: ShareGroupPartitions(request_id, "s"))
    assert (stored.partitions, stored.names) == ({B: frozenset({0})}, {B: "b"})
    assert not shares.heartbeat().to_initialize
    shares.made(both(), reply.state_epoch)
    assert A not in shares.group.stored.initialized, "an answer that comes late"
    writes = len(shares.world.log)
    shares.world._handle(ForgetTopics(frozenset({A})))
    assert len(shares.world.log) == writes


def test_state_whose_deletion_has_failed_is_deleted_with_the_next_attempt(shares: Shares) -> None:
    reply = shares.heartbeat()
    shares.made(both(), reply.state_epoch)
    shares.epochs["m"] = -1
    shares.heartbeat()

    def prepare() -> StoredPartitions:
        reply: StoredPartitions = shares.world.ask(lambda request_id: PrepareDeletion(request_id, "s", [A]))
        return reply

    assert prepare().partitions == both()
    writes = len(shares.world.log)
    assert prepare().partitions == both()
    assert len(shares.world.log) == writes
    stored = shares.world.ask(lambda request_id: ShareGroupPartitions(request_id, "s"))
    assert (stored.partitions, stored.deleting) == ({}, both())
    shares.world.ask(lambda request_id: StateDeleted(request_id, "s", [A]))
    assert prepare().partitions == {}


def test_what_could_not_be_made_is_asked_for_by_the_next_heartbeat(shares: Shares) -> None:
    first = shares.heartbeat()
    told = StateInitialized(7, "s", {A: frozenset({0})}, first.state_epoch, {A: frozenset({1})})
    shares.world.ask(lambda _: told)
    assert shares.group.stored.initialized == {A: frozenset({0})}
    assert shares.heartbeat().to_initialize == {A: frozenset({1})}


def test_a_coordinator_that_begins_has_state_confirmed_once(shares: Shares) -> None:
    """It may be gone, though the log says that it was made. What could not be asked is asked for again."""
    first = shares.heartbeat()
    shares.made(both(), first.state_epoch)
    assert not shares.heartbeat().to_confirm, "it was made for this very coordinator"
    shares.world.move()
    assert shares.heartbeat().to_confirm == both()
    assert not shares.heartbeat("n").to_confirm
    told = StateInitialized(7, "s", {}, 0, {A: frozenset({1})})
    shares.world.ask(lambda _: told)
    assert shares.heartbeat().to_confirm == {A: frozenset({1})}
    assert shares.group.stored.initialized == both()


def test_what_a_former_coordinator_had_made_is_confirmed(shares: Shares) -> None:
    """It may have had it deleted after that, without being able to say so."""
    first = shares.heartbeat()
    shares.world.move()
    shares.made(both(), first.state_epoch)
    assert shares.heartbeat().to_confirm == both()


def test_a_group_without_members_is_kept(shares: Shares) -> None:
    """Kafka's share groups never expire: their stored state would be taken for that of an older group."""
    reply = shares.heartbeat()
    shares.made(reply.to_initialize, reply.state_epoch)
    shares.epochs["m"] = -1
    shares.heartbeat()
    assert shares.group.is_empty
    shares.world.ask(lambda request_id: ExpireOffsets(WALL_MS + 60_000, 1, request_id))
    assert shares.group.is_empty
