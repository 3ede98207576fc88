"""Who may commit and fetch offsets of a consumer group."""

from __future__ import annotations

from typing import Any

from tests.unit.coordinator.groups.consumer.world import GROUP, Consumer, World, topic_id

from tidelog.coordinator.groups.offset_events import CommitOffsets, FetchOffsets, OffsetToCommit
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import Offset, TopicPartition


def commit(world: World, member_id: str, epoch: int, *partitions: int, **fields: Any) -> list[ErrorCode]:
    offsets = [
        OffsetToCommit(TopicPartition("a", partition), Offset(7), topic_id=topic_id("a")) for partition in partitions
    ]
    reply = world.ask(
        lambda request_id: CommitOffsets(
            request_id, GROUP, offsets, world.wall_ms, generation=epoch, member_id=member_id, **fields
        )
    )
    return [error for _, error in reply.errors]


def test_members_commit_with_their_epoch() -> None:
    """A stranger is unknown, an epoch that is ahead is stale, and old versions of the request have no epochs."""
    world = World()
    consumer = Consumer(world, "1")
    consumer.step()
    assert commit(world, "1", 1, 0) == [ErrorCode.NONE]
    assert commit(world, "x", 1, 0) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit(world, "1", 2, 0) == [ErrorCode.STALE_MEMBER_EPOCH]
    assert commit(world, "1", -1, 0) == [ErrorCode.STALE_MEMBER_EPOCH]
    assert commit(world, "", -1, 0) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit(world, "1", 1, 0, api_version=8) == [ErrorCode.UNSUPPORTED_VERSION]
    assert commit(world, "1", 1, 0, api_version=2, producer=(1, 0)) == [ErrorCode.NONE]
    assert commit(world, "1", 2, 0, producer=(1, 0)) == [ErrorCode.ILLEGAL_GENERATION]


def test_a_transaction_that_names_no_member() -> None:
    """TxnOffsetCommit need not say which member commits, as before KIP-447; what it does say is checked."""
    world = World()
    Consumer(world, "1").step()
    assert commit(world, "", -1, 0, producer=(1, 0)) == [ErrorCode.NONE]
    assert commit(world, "", 1, 0, producer=(1, 0)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit(world, "x", -1, 0, producer=(1, 0)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit(world, "", -1, 0, producer=(1, 0), group_instance_id="i") == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_what_a_member_has_held_since_the_epoch_it_knows() -> None:
    """It may have been given a newer epoch that it has not heard of (KIP-1251)."""
    world = World()
    first, second = Consumer(world, "1"), Consumer(world, "2")
    first.step()
    second.heartbeat()
    first.step()
    second.step()
    second.leave()
    first.heartbeat()
    assert (first.epoch, len(world.group.members["1"].assigned[topic_id("a")])) == (3, 6)
    mine = sorted(first.owned[topic_id("a")])
    gained = sorted(set(range(6)) - set(mine))
    assert commit(world, "1", 2, mine[0], gained[0]) == [ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH]
    assert commit(world, "1", 1, mine[0]) == [ErrorCode.NONE]


def test_an_empty_group_is_anybodys() -> None:
    """As a group that assigns partitions by itself."""
    world = World()
    consumer = Consumer(world, "1")
    consumer.step()
    consumer.leave()
    assert commit(world, "", -1, 0) == [ErrorCode.NONE]
    assert commit(world, "1", 1, 0) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_fetching() -> None:
    """Members with their epoch, and whoever names no member."""
    world = World()
    consumer = Consumer(world, "1")
    consumer.step()

    def error(member_id: str | None, epoch: int) -> ErrorCode:
        reply = world.ask(lambda request_id: FetchOffsets(request_id, GROUP, member_id=member_id, member_epoch=epoch))
        found: ErrorCode = reply.error
        return found

    assert error(None, -1) is ErrorCode.NONE
    assert error("1", 1) is ErrorCode.NONE
    assert error("1", 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert error("x", 1) is ErrorCode.UNKNOWN_MEMBER_ID
