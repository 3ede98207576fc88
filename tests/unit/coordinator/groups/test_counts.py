"""Rebalances by the kind of group, and offsets that were committed, deleted and expired, are counted."""

from __future__ import annotations

from tests.unit.coordinator.groups.classic.cluster import Coordinator
from tests.unit.coordinator.groups.consumer.world import Consumer, World

from tidelog.coordinator.groups.coordinator import GroupCoordinator
from tidelog.coordinator.groups.counts import GroupCounts
from tidelog.coordinator.groups.events import CLASSIC, CONSUMER, SHARE
from tidelog.coordinator.groups.offset_events import (
    CommitOffsets,
    DeleteOffsets,
    ExpireOffsets,
    OffsetToCommit,
)
from tidelog.coordinator.groups.share.events import ShareHeartbeat
from tidelog.model.identifiers import LeaderEpoch, Offset, TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_classic_group_rebalances_once_for_each_generation() -> None:
    """Heartbeats and syncs of other members count nothing; the coordinator's successor counts anew."""
    coordinator = Coordinator()
    counts = GroupCounts()
    coordinator.machine = GroupCoordinator(coordinator.settings, counts)
    first, second = coordinator.stable(2)
    assert counts.rebalances == {CLASSIC: 1}
    coordinator.heartbeat(first, 1)
    assert counts.rebalances == {CLASSIC: 1}
    coordinator.leave(second)
    request = coordinator.join(first, client="c0")
    coordinator.sync_all([coordinator.joined(request)])
    assert counts.rebalances == {CLASSIC: 2}


def test_a_consumer_group_rebalances_once_for_each_epoch() -> None:
    """Members that come and go raise it; their heartbeats do not."""
    world = World()
    counts = GroupCounts()
    world.machine = GroupCoordinator(world.settings, counts)
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.heartbeat()
    assert counts.rebalances == {CONSUMER: 1}
    assert world.group.epoch == 1
    first.heartbeat()
    second.heartbeat()
    second.leave()
    assert counts.rebalances[CONSUMER] == world.group.epoch == 3
    assert counts.rebalances[SHARE] == counts.rebalances[CLASSIC] == 0


def test_a_share_group_rebalances_once_for_each_epoch() -> None:
    """As a consumer group does."""
    world = World()
    counts = GroupCounts()
    world.machine = GroupCoordinator(world.settings, counts)
    world.ask(lambda request_id: ShareHeartbeat(request_id, "s", "m", 0, world.wall_ms, topics=frozenset({"a"})))
    assert counts.rebalances == {SHARE: 1}


def test_offsets_are_counted_one_by_one() -> None:
    """Those of refused commits are not."""
    counts = GroupCounts()
    coordinator = GroupCoordinator(counts=counts)

    def handle(event: object) -> None:
        for record in coordinator.handle(0, event).writes:
            coordinator.replay(record)

    offsets = [OffsetToCommit(place, Offset(5), LeaderEpoch(0), "") for place in (P0, P1)]
    handle(CommitOffsets(1, "g", offsets, 0))
    handle(CommitOffsets(2, "g", offsets, 0, generation=3, member_id="unknown"))
    assert counts.commits == 2
    handle(DeleteOffsets(3, "g", [P1]))
    assert (counts.commits, counts.deletions, counts.expirations) == (2, 1, 0)
    handle(ExpireOffsets(wall_ms=1_000, retention_ms=10))
    assert (counts.commits, counts.deletions, counts.expirations) == (2, 1, 1)
