"""What a coordinator decides, and that a loaded state equals a live one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amount import examples

from tidelog.assignors.assignor import TopicLayout
from tidelog.coordinator.groups.coordinator import GroupCoordinator
from tidelog.coordinator.groups.events import CLASSIC, DeleteGroups, GroupListing, ListedGroup, ListGroups
from tidelog.coordinator.groups.offset_events import (
    CommitOffsets,
    CommitOutcome,
    DeletedOffsets,
    DeleteOffsets,
    ExpireOffsets,
    FetchedOffsets,
    FetchOffsets,
    ForgetPartitions,
    OffsetToCommit,
)
from tidelog.coordinator.groups.offsets import EXPIRY_OFFSETS_MAX
from tidelog.coordinator.groups.settings import GroupSettings
from tidelog.coordinator.groups.topics_view import TopicsView, TopicView
from tidelog.coordinator.records import CoordinatorRecord
from tidelog.coordinator.state_machine import Remaining
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import ZERO_TOPIC_ID, Offset, TopicId, TopicPartition
from tidelog.protocol import messages

SETTINGS = GroupSettings(offset_metadata_max_bytes=10)
P0, P1, P2 = TopicPartition("t", 0), TopicPartition("u", 1), TopicPartition("t", 2)


class Written(NamedTuple):
    """A record of the log."""

    key: bytes
    value: bytes | None
    producer: tuple[int, int] | None


class Marker(NamedTuple):
    """A transaction's end in the log, of which the coordinator hears now or after what is written next."""

    producer_id: int
    committed: bool


class Shell:
    """Appends and replays at once; keeps what was written."""

    def __init__(self) -> None:
        self.coordinator = GroupCoordinator(SETTINGS)
        self.log: list[Written | Marker] = []

    def __call__(self, event: object) -> Any:
        result = self.coordinator.handle(0, event)
        for record in result.writes:
            key, value = record.encode()
            self.log.append(Written(key, value, record.producer))
            self.coordinator.replay(record)
        return result.replies[0][1] if result.replies else None

    def end(self, producer_id: int, *, committed: bool) -> None:
        """A transaction's marker is in the log, and the coordinator hears of it at once."""
        self.log.append(Marker(producer_id, committed))
        self.coordinator.transaction_ended(producer_id, 0, committed=committed)

    def loaded(self) -> GroupCoordinator:
        """A second coordinator that read the log."""
        coordinator = GroupCoordinator(SETTINGS)
        for entry in self.log:
            if isinstance(entry, Written):
                coordinator.load(*entry)
            else:
                coordinator.transaction_ended(entry.producer_id, 0, committed=entry.committed)
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


@pytest.mark.parametrize(
    ("committed_for", "present", "is_none"),
    [(b"f", b"p", True), (b"p", b"p", False), (None, b"p", False), (b"f", None, False)],
)
def test_an_offset_of_a_former_topic_of_that_name_is_none(
    committed_for: bytes | None, present: bytes | None, is_none: bool
) -> None:
    """As Kafka: only where both ids are known to differ; the event of the deletion may have been missed."""
    shell = Shell()
    former = ZERO_TOPIC_ID if committed_for is None else TopicId(committed_for * 16)
    shell(commit(offsets=[OffsetToCommit(P0, Offset(7), topic_id=former)]))
    if present is not None:
        known = TopicView(P0.topic, TopicId(present * 16), TopicLayout(1))
        shell.coordinator.metadata = TopicsView([known])
    for wanted in ([P0], None):
        reply = shell(FetchOffsets(1, "g", wanted))
        assert isinstance(reply, FetchedOffsets)
        assert (not reply.offsets) == is_none


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


@pytest.mark.parametrize("retention_ms", [2**63 - 1, -(2**63)])
def test_a_retention_may_be_any_number(retention_ms: int) -> None:
    """One that ends after all time is for ever."""
    shell = Shell()
    shell(commit(wall_ms=1000, retention_ms=retention_ms))
    shell(ExpireOffsets(2000, 500))
    assert fetched(shell) == ({P0: 5} if retention_ms > 0 else {})
    assert shell.loaded() == shell.coordinator


def test_expiry_looks_at_some_groups_at_a_time() -> None:
    """A partition may hold millions of offsets, and clients have their turns between."""
    shell = Shell()
    half = EXPIRY_OFFSETS_MAX // 2
    for group in ("g0", "g1", "g2", "g3"):
        places = [OffsetToCommit(TopicPartition("t", index), Offset(1)) for index in range(half)]
        shell(CommitOffsets(1, group, places, 0))
    assert shell(ExpireOffsets(1000, 500)) == Remaining(["g2", "g3"])
    assert (len(shell.coordinator), fetched(shell, "g1"), len(fetched(shell, "g2"))) == (2 * half, {}, half)
    assert shell(ExpireOffsets(1000, 500, groups=["g2", "g3", "gone"])) == Remaining(["gone"])
    assert shell(ExpireOffsets(1000, 500, groups=["gone"])) == Remaining()
    assert len(shell.coordinator) == 0


def test_offsets_of_deleted_partitions_go() -> None:
    """Those of every group; others stay."""
    shell = Shell()
    shell(CommitOffsets(1, "g", [OffsetToCommit(P0, Offset(1)), OffsetToCommit(P1, Offset(2))], 0))
    shell(commit("h"))
    shell(ForgetPartitions([P0]))
    assert (fetched(shell), fetched(shell, "h")) == ({P1: 2}, {})


A, B = (7, 0), (8, 0)
"""Producers."""


def test_offsets_of_a_transaction_hold_from_its_marker() -> None:
    """Until then the former ones are fetched."""
    shell = Shell()
    shell(commit(offset=1))
    shell(commit(offset=2, producer=A))
    assert fetched(shell) == {P0: 1}
    shell.end(7, committed=True)
    assert fetched(shell) == {P0: 2}


def test_an_aborted_transactions_offsets_vanish() -> None:
    """With them a group that had no others."""
    shell = Shell()
    shell(commit(offset=2, producer=A))
    assert shell(ListGroups(1)).groups
    shell.end(7, committed=False)
    assert (fetched(shell), shell(ListGroups(1)).groups) == ({}, [])


def test_whoever_requires_stable_offsets_waits_for_the_marker() -> None:
    """Of the partition in question alone, whether it has an offset yet or not; nobody else does."""
    shell = Shell()
    shell(CommitOffsets(7, "g", [OffsetToCommit(P1, Offset(1))], 0))
    shell(commit(offset=2, producer=A))
    reply = shell(FetchOffsets(1, "g", [P0, P1], require_stable=True))
    assert (set(reply.unstable), set(reply.offsets)) == ({P0}, {P1})
    shell(commit(offset=1))
    assert set(shell(FetchOffsets(1, "g", None, require_stable=True)).unstable) == {P0}
    assert not shell(FetchOffsets(1, "g", [P0, P1])).unstable
    shell.end(7, committed=True)
    assert not shell(FetchOffsets(1, "g", [P0, P1], require_stable=True)).unstable


def test_of_two_commits_the_later_in_the_log_holds() -> None:
    """Whichever became valid first: a plain commit after a transaction's, and two transactions'."""
    shell = Shell()
    shell(commit(offset=1, producer=A))
    shell(commit(offset=2))
    shell.end(7, committed=True)
    assert fetched(shell) == {P0: 2}
    shell(commit(offset=3, producer=A))
    shell(commit(offset=4, producer=B))
    shell.end(8, committed=True)
    shell.end(7, committed=True)
    assert fetched(shell) == {P0: 4}
    shell(commit(offset=5, producer=A))
    shell(commit(offset=6, producer=B))
    shell.end(7, committed=True)
    assert fetched(shell) == {P0: 5}
    shell.end(8, committed=True)
    assert fetched(shell) == {P0: 6}


def test_a_transaction_of_a_stale_member_is_told_of_its_generation() -> None:
    """Older clients know no other error; without a group it is the same."""
    shell = Shell()
    shell.coordinator.groups["g"] = Members(error=ErrorCode.STALE_MEMBER_EPOCH)
    assert shell(commit(producer=A, generation=3)).errors == [(P0, ErrorCode.ILLEGAL_GENERATION)]
    assert shell(commit(generation=3)).errors == [(P0, ErrorCode.STALE_MEMBER_EPOCH)]
    assert shell(commit("nobody", producer=A, generation=3)).errors == [(P0, ErrorCode.ILLEGAL_GENERATION)]


class Members:
    """A group that has members."""

    kind = CLASSIC
    state = "Stable"
    protocol_type = "consumer"

    def __init__(
        self,
        *,
        error: ErrorCode = ErrorCode.NONE,
        topics: tuple[str, ...] = (),
        expire_from_ms: int | None = None,
        is_empty: bool = False,
    ) -> None:
        self.error = error
        self.topics = topics
        self.offsets_expire_from_ms = expire_from_ms
        self.is_empty = is_empty
        self.heard_of = 0

    def check_commit(self, event: CommitOffsets) -> ErrorCode:
        return self.error

    def check_offset(self, event: CommitOffsets, wanted: OffsetToCommit) -> ErrorCode:
        return ErrorCode.NONE

    def committed(self, now_ms: int, event: CommitOffsets) -> None:
        self.heard_of += 1

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        return self.error

    def check_delete_offsets(self) -> ErrorCode:
        return self.error

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.topics

    def tombstones(self) -> list[CoordinatorRecord]:
        return [CoordinatorRecord(messages.GroupMetadataKey(group="g"), None)]


def test_the_group_decides_who_commits_and_fetches() -> None:
    """And hears of those who may."""
    shell = Shell()
    group = shell.coordinator.groups["g"] = Members(error=ErrorCode.FENCED_INSTANCE_ID)
    assert shell(commit()).errors == [(P0, ErrorCode.FENCED_INSTANCE_ID)]
    assert shell(FetchOffsets(1, "g")).error is ErrorCode.FENCED_INSTANCE_ID
    assert group.heard_of == 0
    group.error = ErrorCode.NONE
    assert shell(commit()).errors == [(P0, ErrorCode.NONE)]
    assert (group.heard_of, fetched(shell)) == (1, {P0: 5})


def test_offsets_are_deleted_one_by_one() -> None:
    """Those that are not there too; pending ones with them; not those of topics that members read."""
    shell = Shell()
    assert shell(DeleteOffsets(1, "g", [P0])) == DeletedOffsets(ErrorCode.GROUP_ID_NOT_FOUND)
    shell(commit())
    shell(CommitOffsets(7, "g", [OffsetToCommit(P1, Offset(1))], 0, producer=A))
    assert shell(DeleteOffsets(1, "g", [P0, P1, P2])).errors == [(each, ErrorCode.NONE) for each in (P0, P1, P2)]
    shell.end(7, committed=True)
    assert fetched(shell) == {}
    shell(commit())
    group = shell.coordinator.groups["g"] = Members(topics=("t",))
    assert shell(DeleteOffsets(1, "g", [P0])).errors == [(P0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)]
    group.error = ErrorCode.NON_EMPTY_GROUP
    assert shell(DeleteOffsets(1, "g", [P0])) == DeletedOffsets(ErrorCode.NON_EMPTY_GROUP)


def test_groups_are_deleted_with_all_they_have() -> None:
    """Committed, pending, and what is known of their members; each is answered, once."""
    shell = Shell()
    shell(commit("g"))
    shell(CommitOffsets(7, "g", [OffsetToCommit(P1, Offset(1))], 0, producer=A))
    shell(commit("busy"))
    shell.coordinator.groups["g"] = Members(is_empty=True)
    shell.coordinator.groups["busy"] = Members()
    assert shell(DeleteGroups(1, ["g", "busy", "nobody", "g"])).errors == [
        ("g", ErrorCode.NONE),
        ("busy", ErrorCode.NON_EMPTY_GROUP),
        ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    shell.end(7, committed=True)
    assert (fetched(shell), fetched(shell, "busy")) == ({}, {P0: 5})
    (tombstone,) = [entry for entry in shell.log if isinstance(entry, Written) and entry.key[:2] == b"\x00\x02"]
    assert tombstone.value is None


@pytest.mark.parametrize(
    ("group", "left"),
    [
        # As long as there are members that may read anything, nothing expires.
        (Members(expire_from_ms=None), {P0: 5, P1: 5}),
        # Retention counts from when the last member went, however old the commits are.
        (Members(expire_from_ms=5_000, is_empty=True), {P0: 5, P1: 5}),
        (Members(expire_from_ms=3_000, is_empty=True), {}),
        # Members read t: what they do not read goes by the time of its commit.
        (Members(expire_from_ms=-1, topics=("t",)), {P0: 5, P1: 5}),
        (Members(expire_from_ms=-1, topics=("u",)), {P1: 5}),
    ],
)
def test_offsets_of_groups_expire_by_their_state(group: Members, left: dict[TopicPartition, int]) -> None:
    """KIP-211."""
    shell = Shell()
    shell(CommitOffsets(1, "g", [OffsetToCommit(P0, Offset(5))], 4_000))
    shell(CommitOffsets(1, "g", [OffsetToCommit(P1, Offset(5))], 5_500))
    shell.coordinator.groups["g"] = group
    shell(ExpireOffsets(6_000, 2_000))
    assert fetched(shell) == left


def test_an_empty_group_goes_with_its_last_offset() -> None:
    """But not while a transaction may give it another, nor while it has members."""
    shell = Shell()
    group = shell.coordinator.groups["g"] = Members(is_empty=True, expire_from_ms=0)
    shell(commit(producer=A))
    shell(ExpireOffsets(10_000, 1))
    assert len(shell.log) == 1
    shell.end(7, committed=False)
    shell(ExpireOffsets(10_000, 1))
    assert shell.log[-1] == Written(b"\x00\x02\x00\x01g", None, None)
    count = len(shell.log)
    group.is_empty = False
    shell(ExpireOffsets(10_000, 1))
    assert len(shell.log) == count


def test_an_offset_that_a_transaction_may_renew_does_not_expire() -> None:
    """Its marker may come any time."""
    shell = Shell()
    shell(commit())
    shell(commit(offset=6, producer=A))
    shell(ExpireOffsets(10_000, 1))
    assert fetched(shell) == {P0: 5}


PRODUCERS = st.sampled_from([None, None, A, B])
EVENTS = st.one_of(
    st.builds(
        commit,
        st.sampled_from(["g", "h", ""]),
        st.integers(0, 100),
        st.integers(0, 5000),
        retention_ms=st.sampled_from([-1, 0, 300]),
        generation=st.sampled_from([-1, -1, 4]),
        producer=PRODUCERS,
    ),
    st.builds(ExpireOffsets, st.integers(0, 6000), st.integers(1, 3000)),
    st.builds(ForgetPartitions, st.lists(st.sampled_from([P0, P1]), max_size=2)),
    st.builds(FetchOffsets, st.just(1), st.sampled_from(["g", "h", ""])),
    st.builds(DeleteOffsets, st.just(1), st.sampled_from(["g", "h"]), st.lists(st.sampled_from([P0, P1]), max_size=2)),
    st.builds(DeleteGroups, st.just(1), st.lists(st.sampled_from(["g", "h"]), max_size=2)),
    st.builds(Marker, st.sampled_from([A[0], B[0]]), st.booleans()),
)


@settings(max_examples=examples(300))
@given(st.lists(EVENTS, max_size=40), st.data())
def test_a_loaded_state_equals_the_live_one(events: list[object], data: st.DataObject) -> None:
    """Whatever was asked: reading the log gives the state of who wrote it. A marker stands in the log before the
    coordinator hears of it: meanwhile others may write, but not the producer, whose transaction is ending.
    """
    shell = Shell()
    unheard: dict[int, bool] = {}
    for event in events:
        if isinstance(event, Marker):
            if event.producer_id not in unheard:
                shell.log.append(event)
                unheard[event.producer_id] = event.committed
        elif not isinstance(event, CommitOffsets) or event.producer is None or event.producer[0] not in unheard:
            shell(event)
        if unheard and data.draw(st.booleans()):
            producer_id = next(iter(unheard))
            shell.coordinator.transaction_ended(producer_id, 0, committed=unheard.pop(producer_id))
    for producer_id, committed in unheard.items():
        shell.coordinator.transaction_ended(producer_id, 0, committed=committed)
    loaded = shell.loaded()
    for group in ("g", "h", ""):
        assert loaded.handle(0, FetchOffsets(1, group)) == shell.coordinator.handle(0, FetchOffsets(1, group))
    assert loaded == shell.coordinator
