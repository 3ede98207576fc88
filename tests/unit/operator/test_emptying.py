"""Replicas moved between the directories of one broker: which, and what is refused."""

from __future__ import annotations

import pytest

from tidelog.operator.emptying import moves_within
from tidelog.placement.plan.documents import DocumentError
from tidelog.placement.plan.state import BrokerState, ClusterState, DirectoryState, PartitionState, TopicState


def state_of(*directories: DirectoryState, missing: tuple[str, ...] = ()) -> ClusterState:
    paths = (directories[0].path,) if directories else (None,)
    return ClusterState.of(
        brokers=[BrokerState(0, directories=directories)],
        topics=[TopicState("t")],
        partitions=[PartitionState("t", number, (0,), 0, (0,), paths, (10 * number,)) for number in range(3)],
        missing=missing,
    )


def test_a_directory_is_emptied_into_those_with_the_fewest_bytes() -> None:
    """The largest first; a directory that is lost, or cordoned, gets nothing."""
    state = state_of(
        DirectoryState("/a"),
        DirectoryState("/b"),
        DirectoryState("/c"),
        DirectoryState("/d", cordoned=True),
        DirectoryState("/e", error="KAFKA_STORAGE_ERROR"),
    )
    plan = moves_within(state, 0, source="/a")
    assert {move.partition: move.directories_to for move in plan.moves} == {2: ("/b",), 1: ("/c",), 0: ("/c",)}


def test_a_broker_that_does_not_tell_its_directories_is_not_said_to_have_none() -> None:
    """It timed out, or refuses to tell them: that is the reason, and not the directory that was named."""
    state = state_of(missing=("log directories of broker 0: no answer within 30 s",))
    with pytest.raises(DocumentError, match="broker 0 did not tell its log directories: no answer within 30 s"):
        moves_within(state, 0, source="/a")
    with pytest.raises(DocumentError, match="broker 0 has no log directory /z: it has /a"):
        moves_within(state_of(DirectoryState("/a")), 0, source="/z")
