"""What a share group is not, and what its coordinator does not take."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.coordinator.groups.consumer.world import GROUP, WALL_MS, ClassicConsumer, Consumer, World

from tidelog.coordinator.groups.offset_events import (
    CommitOffsets,
    CommitOutcome,
    FetchedOffsets,
    FetchOffsets,
    OffsetToCommit,
)
from tidelog.coordinator.groups.share.events import (
    DescribedShareGroup,
    DescribeShareGroup,
    PrepareOffsets,
    ShareGroupPartitions,
    ShareHeartbeat,
    ShareHeartbeatReply,
)
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import Offset, TopicPartition


def beat(world: World, member: str = "m", epoch: int = 0, topics: frozenset[str] | None = None, **more: Any) -> Any:
    told = frozenset({"a"}) if topics is None and epoch == 0 else topics
    reply: ShareHeartbeatReply = world.ask(
        lambda request_id: ShareHeartbeat(
            **{"request_id": request_id, "group": GROUP, "member_id": member, "epoch": epoch, "wall_ms": WALL_MS}
            | {"topics": told}
            | more
        )
    )
    return reply


@pytest.mark.parametrize("kind", [Consumer, ClassicConsumer])
def test_a_group_of_another_kind_is_no_share_group(kind: Any) -> None:
    world = World()
    other = kind(world, "c") if kind is Consumer else kind(world)
    for _ in range(3):
        other.step()
        world.pass_time(3000)
    assert beat(world).error is ErrorCode.GROUP_ID_NOT_FOUND
    described: DescribedShareGroup = world.ask(lambda request_id: DescribeShareGroup(request_id, GROUP))
    assert (described.error, described.state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    stored = world.ask(lambda request_id: ShareGroupPartitions(request_id, GROUP))
    assert stored.error is ErrorCode.GROUP_ID_NOT_FOUND
    prepared = world.ask(lambda request_id: PrepareOffsets(request_id, GROUP, {}))
    assert prepared.error is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_share_group_is_no_group_of_another_kind() -> None:
    world = World()
    assert beat(world).error is ErrorCode.NONE
    assert Consumer(world, "c").heartbeat() is ErrorCode.GROUP_ID_NOT_FOUND
    classic = ClassicConsumer(world)
    classic.join()
    assert (classic.waits, classic.joined) == (None, None), "it is refused at once"
    assert world.member_ids == {"m"}


@pytest.mark.parametrize("asked", [None, [TopicPartition("a", 0)]])
def test_a_share_group_has_committed_nothing(asked: list[TopicPartition] | None) -> None:
    """As in Kafka: tools that read what all groups have committed are not told of an error, and commit nothing."""
    world = World()
    assert beat(world).error is ErrorCode.NONE
    fetched: FetchedOffsets = world.ask(lambda request_id: FetchOffsets(request_id, GROUP, asked))
    assert fetched == FetchedOffsets()
    offsets = [OffsetToCommit(TopicPartition("a", 0), Offset(1))]
    committed: CommitOutcome = world.ask(lambda request_id: CommitOffsets(request_id, GROUP, offsets, 0))
    assert [error for _, error in committed.errors] == [ErrorCode.GROUP_ID_NOT_FOUND]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"group": " "}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 0, "member_id": "m" * 37}, ErrorCode.INVALID_REQUEST),
        ({"epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 0, "topics": frozenset()}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 7}, ErrorCode.FENCED_MEMBER_EPOCH),
        ({"epoch": 1}, ErrorCode.FENCED_MEMBER_EPOCH),
        ({"epoch": -1, "member_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"epoch": 2, "member_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"epoch": 2, "group": "none"}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
    ids=str,
)
def test_wrong_heartbeats_are_refused_and_change_nothing(wrong: dict[str, Any], error: ErrorCode) -> None:
    world = World()
    assert beat(world).epoch == 2
    before = len(world.log)
    assert beat(world, **{"epoch": 2, **wrong}).error is error
    assert len(world.log) == before
