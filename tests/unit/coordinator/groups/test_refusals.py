"""What the broker's log says of members that are refused."""

from __future__ import annotations

import logging

import pytest

from tidelog.coordinator.groups.classic.events import Heartbeat
from tidelog.coordinator.groups.consumer.events import ConsumerHeartbeat
from tidelog.coordinator.groups.coordinator import GroupCoordinator
from tidelog.coordinator.groups.offset_events import CommitOffsets, OffsetToCommit
from tidelog.coordinator.groups.refusals import LINES_MAX, WINDOW_MS
from tidelog.model.identifiers import Offset, TopicPartition


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "tidelog.coordinator.groups.refusals")
    return caplog


def join(coordinator: GroupCoordinator, member: str) -> int:
    """A member of the consumer group `g` joins; its epoch."""
    event = ConsumerHeartbeat(1, "g", member, 0, 1_000, rebalance_timeout_ms=1_000, topics=frozenset({"t"}), owned={})
    result = coordinator.handle(0, event)
    for write in result.writes:
        coordinator.replay(write)
    ((_, reply),) = result.replies
    epoch: int = reply.epoch
    return epoch


def test_a_fenced_member_is_named_with_both_epochs(lines: pytest.LogCaptureFixture) -> None:
    """And with the coordinator's reason; a heartbeat that is taken is not logged."""
    coordinator = GroupCoordinator()
    epoch = join(coordinator, "m")
    coordinator.handle(0, ConsumerHeartbeat(2, "g", "m", epoch, 1_000))
    assert not lines.messages
    coordinator.handle(0, ConsumerHeartbeat(3, "g", "m", epoch + 6, 1_000))
    (line,) = lines.messages
    assert line.startswith(
        f"member refused: group=g member=m request=ConsumerHeartbeat epoch={epoch + 6} group_epoch={epoch}"
        " error=FENCED_MEMBER_EPOCH reason=The consumer group member has a greater member epoch"
    )


def test_requests_of_unknown_members_of_classic_groups_are_named(lines: pytest.LogCaptureFixture) -> None:
    """Heartbeats and commits."""
    coordinator = GroupCoordinator()
    coordinator.handle(0, Heartbeat(1, "g", "m", 3))
    coordinator.handle(
        0,
        CommitOffsets(2, "g", [OffsetToCommit(TopicPartition("t", 0), Offset(7))], 1_000, generation=3, member_id="m"),
    )
    assert lines.messages == [
        "member refused: group=g member=m request=Heartbeat epoch=3 group_epoch=-1"
        " error=UNKNOWN_MEMBER_ID reason=none given",
        "member refused: group=g member=m request=CommitOffsets epoch=3 group_epoch=-1"
        " error=GROUP_ID_NOT_FOUND reason=none given",
    ]


def test_a_client_that_takes_no_notice_does_not_fill_the_log(lines: pytest.LogCaptureFixture) -> None:
    """What was left out is told with the first refusal of the next window."""
    coordinator = GroupCoordinator()
    for number in range(LINES_MAX + 5):
        coordinator.handle(number, Heartbeat(number, "g", "m", 3))
    assert len(lines.messages) == LINES_MAX
    coordinator.handle(WINDOW_MS, Heartbeat(99, "g", "m", 3))
    assert len(lines.messages) == LINES_MAX + 2
    assert lines.messages[LINES_MAX] == "more members refused: count=5"
