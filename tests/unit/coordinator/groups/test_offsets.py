"""What a coordinator decides, and that a loaded state equals a live one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinator.groups.coordinator import GroupCoordinator
from tidelog.coordinator.groups.events import CLASSIC, GroupListing, ListedGroup, ListGroups
from tidelog.coordinator.groups.offset_events import (
    CommitOffsets,
    CommitOutcome,
    ExpireOffsets,
    FetchedOffsets,
    FetchOffsets,
    ForgetPartitions,
    OffsetToCommit,
)
from tidelog.coordinator.groups.settings import GroupSettings
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import Offset, TopicPartition

SETTINGS = GroupSettings(offset_metadata_max_bytes=10)
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Shell:
    """Appends and replays at once; keeps what was written."""

    def __init__(self) -> None:
        self.coordinator = GroupCoordinator(SETTINGS)
        self.log: list[tuple[bytes, bytes | None]] = []

    def __call__(self, event: object) -> object:
        result = self.coordinator.handle(0, event)
        for record in result.writes:
            self.log.append(record.encode())
            self.coordinator.replay(record)
        return result.replies[0][1] if result.replies else None

    def loaded(self) -> GroupCoordinator:
        """A second coordinator that read the log."""
        coordinator = GroupCoordinator(SETTINGS)
        for key, value in self.log:
            coordinator.load(key, value, None)
        coordinator.loaded(0, 0)
        return coordinator


def commit(group: str = "g", offset: int = 5, wall_ms: int = 1000, **changes: object) -> CommitOffsets:
    event = CommitOffsets(7, group, [OffsetToCommit(P0, Offset(offset), metadata="note")], wall_ms)
    return replace(event, **changes)  # type: ignore[arg-type]


def fetched(shell: Shell, group: str = "g") -> dict[TopicPartition, int]:
    reply = shell(FetchOffsets(1, group))
    assert isinstance(reply, FetchedOffsets)
    return {partition: committed.offset for partition, committed in reply.offsets.items()}


def test_a_commit_is_fetched() -> None:
    """With its metadata; a later one replaces it."""
    shell = Shell()
    assert shell(commit()) == CommitOutcome([(P0, ErrorCode.NONE)])
    shell(commit(offset=6))
    reply = shell(FetchOffsets(1, "g", [P0, P1]))
    assert isinstance(reply, FetchedOffsets)
    assert list(reply.offsets) == [P0]
    assert (reply.offsets[P0].offset, reply.offsets[P0].metadata) == (6, "note")


def test_deciding_changes_nothing() -> None:
    """Only what was appended holds: the state before and after `handle` is the same."""
    coordinator = GroupCoordinator(SETTINGS)
    assert coordinator.handle(0, commit()).writes
    assert coordinator == GroupCoordinator(SETTINGS)


def test_an_unknown_group_has_no_offsets() -> None:
    """And no error."""
    assert fetched(Shell(), "nobody") == {}


def test_metadata_too_large_refuses_its_partition_alone() -> None:
    """The others of the request are committed."""
    shell = Shell()
    event = CommitOffsets(
        7, "g", [OffsetToCommit(P0, Offset(1), metadata="x" * 11), OffsetToCommit(P1, Offset(2), metadata=None)], 0
    )
    assert shell(event) == CommitOutcome([(P0, ErrorCode.OFFSET_METADATA_TOO_LARGE), (P1, ErrorCode.NONE)])
    assert fetched(shell) == {P1: 2}


@pytest.mark.parametrize(
    ("known_group", "changes", "error"),
    [
        (False, {"generation": 1, "member_id": "m"}, ErrorCode.GROUP_ID_NOT_FOUND),
        (False, {"generation": 1, "member_id": "m", "api_version": 8}, ErrorCode.ILLEGAL_GENERATION),
        (True, {"generation": 1, "member_id": "m"}, ErrorCode.UNKNOWN_MEMBER_ID),
        (True, {"member_id": "m"}, ErrorCode.NONE),
    ],
)
def test_members_cannot_be(known_group: bool, changes: dict[str, object], error: ErrorCode) -> None:
    """A generation belongs to a membership, of which there is none; without one a member id does not matter."""
    shell = Shell()
    if known_group:
        shell(commit(offset=1))
    assert shell(commit(offset=2, **changes)) == CommitOutcome([(P0, error)])


@pytest.mark.parametrize(("wall_ms", "left"), [(1999, {P0: 5}), (2000, {})])
def test_offsets_expire_by_the_brokers_retention(wall_ms: int, left: dict[TopicPartition, int]) -> None:
    """Counted from the commit; at the end the group is gone as well."""
    shell = Shell()
    shell(commit(wall_ms=1000))
    shell(ExpireOffsets(wall_ms, 1000))
    assert fetched(shell) == left
    assert shell(ListGroups(1)) == GroupListing([ListedGroup("g", "", "Empty", CLASSIC)] if left else [])


def test_offsets_expire_by_the_clients_own_retention() -> None:
    """Which goes before the broker's, shorter or longer."""
    shell = Shell()
    shell(commit("short", wall_ms=0, retention_ms=10))
    shell(commit("long", wall_ms=0, retention_ms=10_000))
    shell(ExpireOffsets(1000, 500))
    assert (fetched(shell, "short"), fetched(shell, "long")) == ({}, {P0: 5})


def test_offsets_of_deleted_partitions_go() -> None:
    """Those of every group; others stay."""
    shell = Shell()
    shell(CommitOffsets(1, "g", [OffsetToCommit(P0, Offset(1)), OffsetToCommit(P1, Offset(2))], 0))
    shell(commit("h"))
    shell(ForgetPartitions([P0]))
    assert (fetched(shell), fetched(shell, "h")) == ({P1: 2}, {})


EVENTS = st.one_of(
    st.builds(
        commit,
        st.sampled_from(["g", "h", ""]),
        st.integers(0, 100),
        st.integers(0, 5000),
        retention_ms=st.sampled_from([-1, 0, 300]),
        generation=st.sampled_from([-1, -1, 4]),
    ),
    st.builds(ExpireOffsets, st.integers(0, 6000), st.integers(1, 3000)),
    st.builds(ForgetPartitions, st.lists(st.sampled_from([P0, P1]), max_size=2)),
    st.builds(FetchOffsets, st.just(1), st.sampled_from(["g", "h", ""])),
)


@given(st.lists(EVENTS, max_size=30))
def test_a_loaded_state_equals_the_live_one(events: list[object]) -> None:
    """Whatever was asked: reading the log gives the state of who wrote it."""
    shell = Shell()
    for event in events:
        shell(event)
    assert shell.loaded() == shell.coordinator
