"""A classic group as the log, the offsets and the administrator see it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.coordinator.groups.classic.cluster import RANGE, Coordinator

from tidelog.coordinator.deadlines import Deadlines
from tidelog.coordinator.groups.classic.events import DescribedGroup, DescribeGroup
from tidelog.coordinator.groups.classic.group import ClassicGroup, ClassicGroupState
from tidelog.coordinator.groups.classic.members import Protocol
from tidelog.coordinator.groups.events import DeletedGroups, DeleteGroups
from tidelog.coordinator.groups.group import FROM_COMMIT
from tidelog.coordinator.groups.offset_events import CommitOffsets, CommitOutcome, OffsetToCommit
from tidelog.coordinator.records import CoordinatorRecord
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import Offset, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.codec import encode

P0 = TopicPartition("t", 0)


def subscription(*topics: str, version: int = 1) -> bytes:
    body = encode(messages.ConsumerProtocolSubscription(topics=list(topics)), version)
    return version.to_bytes(2, "big") + body


def consumers(*topics: str) -> tuple[Protocol, ...]:
    return (Protocol("range", subscription(*topics)),)


def commit(coordinator: Coordinator, member_id: str = "", generation: int = -1, **changes: Any) -> ErrorCode:
    event = CommitOffsets(
        10**6 + len(coordinator.replies),
        "g",
        [OffsetToCommit(P0, Offset(5))],
        coordinator.wall_ms,
        generation,
        member_id,
        **changes,
    )
    coordinator.handle(event)
    reply = coordinator.replies[event.request_id]
    assert isinstance(reply, CommitOutcome)
    return reply.errors[0][1]


def test_the_record_of_a_generation() -> None:
    """What Kafka 4.3 writes: version 3, everything that a coordinator needs to know members by."""
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    record = coordinator.last_record()
    assert record.key == messages.GroupMetadataKey(group="g")
    assert record.version == 3
    value = record.value
    assert isinstance(value, messages.GroupMetadataValue)
    assert (value.protocol_type, value.protocol, value.generation, value.leader) == ("consumer", "range", 1, leader)
    assert value.current_state_timestamp == coordinator.wall_ms
    assert [(m.member_id, m.assignment, m.subscription) for m in value.members] == [
        (leader, leader.encode(), RANGE[0].metadata),
        (follower, follower.encode(), RANGE[0].metadata),
    ]
    assert (value.members[0].session_timeout, value.members[0].rebalance_timeout) == (10_000, 60_000)
    assert (value.members[0].client_id, value.members[0].client_host) == ("c0", "/127.0.0.1")


def test_what_is_loaded_is_what_was_written() -> None:
    """A group that reads its record back would write the same."""
    coordinator = Coordinator()
    coordinator.stable(3)
    moved = coordinator.moved()
    assert moved.group() == coordinator.group()
    assert moved.group().as_record() == coordinator.group().recorded
    assert moved.machine == coordinator.machine


def test_old_records_have_no_rebalance_timeout() -> None:
    """The session timeout was both."""
    member = messages.GroupMetadataValue.MemberMetadata(member_id="m", session_timeout=7000)
    group = ClassicGroup.restored("g", Deadlines(), messages.GroupMetadataValue(generation=4, members=[member]))
    assert group.members["m"].rebalance_timeout_ms == 7000
    assert (group.state, group.generation, group.leader) == (ClassicGroupState.STABLE, 4, "m")


def test_who_may_commit() -> None:
    """Members in their generation; others only while there are none."""
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    assert commit(coordinator, leader, 1) is ErrorCode.NONE
    assert commit(coordinator, follower, 0) is ErrorCode.ILLEGAL_GENERATION
    assert commit(coordinator, "stranger", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(coordinator) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(coordinator, leader) is ErrorCode.ILLEGAL_GENERATION
    coordinator.leave(leader, follower)
    assert commit(coordinator, leader, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(coordinator) is ErrorCode.NONE


def test_commits_during_a_rebalance() -> None:
    """Members may still commit what they have read while others are waited for, and not between join and sync."""
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    coordinator.join(leader)
    assert commit(coordinator, follower, 1) is ErrorCode.NONE
    coordinator.join(follower)
    assert coordinator.state is ClassicGroupState.COMPLETING_REBALANCE
    assert commit(coordinator, follower, 1) is ErrorCode.ILLEGAL_GENERATION
    assert commit(coordinator, follower, 2) is ErrorCode.REBALANCE_IN_PROGRESS


def test_transactions_commit_by_their_producer() -> None:
    """Old ones do not say who they are; members of a rebalancing group may still end what they began."""
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    assert commit(coordinator, producer=(1, 0)) is ErrorCode.NONE
    assert commit(coordinator, "stranger", 1, producer=(1, 0)) is ErrorCode.UNKNOWN_MEMBER_ID
    coordinator.join(leader)
    coordinator.join(follower)
    assert commit(coordinator, leader, 2, producer=(1, 0)) is ErrorCode.NONE


def test_static_members_commit_by_their_instance_id() -> None:
    """An older owner is fenced."""
    coordinator = Coordinator()
    request = coordinator.join(instance="i")
    coordinator.gather()
    coordinator.sync_all([coordinator.joined(request)])
    old = coordinator.joined(request).member_id
    new = coordinator.joined(coordinator.join(instance="i")).member_id
    assert commit(coordinator, old, 1, group_instance_id="i") is ErrorCode.FENCED_INSTANCE_ID
    assert commit(coordinator, new, 1, group_instance_id="i") is ErrorCode.NONE


def test_a_member_that_commits_lives() -> None:
    """As with Kafka, a commit counts as a heartbeat."""
    coordinator = Coordinator()
    (member_id,) = coordinator.stable(1)
    for _ in range(3):
        coordinator.pass_time(9_000)
        assert commit(coordinator, member_id, 1) is ErrorCode.NONE
    assert coordinator.state is ClassicGroupState.STABLE


def test_which_topics_are_read() -> None:
    """Those of all members' subscriptions, of whatever version; they neither expire nor may be deleted."""
    coordinator = Coordinator()
    ids = [coordinator.new_id(), coordinator.new_id()]
    requests = [
        coordinator.join(ids[0], protocols=consumers("a", "b")),
        coordinator.join(ids[1], protocols=(Protocol("range", subscription("c", version=3)),)),
    ]
    coordinator.gather()
    coordinator.sync_all([coordinator.joined(request) for request in requests])
    group = coordinator.group()
    assert group.subscribed_topics == {"a", "b", "c"}
    assert [group.is_subscribed(topic) for topic in "abcd"] == [True, True, True, False]
    assert group.offsets_expire_from_ms == FROM_COMMIT
    assert coordinator.moved().group().subscribed_topics == {"a", "b", "c"}


@given(st.binary(max_size=40))
def test_hostile_subscriptions_leave_the_topics_unknown(data: bytes) -> None:
    """Then all count as read, so that no offset is lost by mistake; and nothing breaks."""
    coordinator = Coordinator()
    coordinator.stable(1, protocols=(Protocol("range", data),))
    group = coordinator.group()
    if group.subscribed_topics is None:
        assert group.is_subscribed("anything")
        assert group.offsets_expire_from_ms is None
    assert coordinator.moved().group() == group


MEMBERS = st.builds(
    messages.GroupMetadataValue.MemberMetadata,
    member_id=st.sampled_from(["", "a", "b", "c"]),
    group_instance_id=st.sampled_from([None, "", "i", "j"]),
    client_id=st.text(max_size=3),
    rebalance_timeout=st.sampled_from([-(2**31), -1, 0, 1000, 2**31 - 1]),
    session_timeout=st.sampled_from([-(2**31), -1, 0, 1000, 30_000]),
    subscription=st.binary(max_size=5),
    assignment=st.binary(max_size=5),
)
VALUES = st.builds(
    messages.GroupMetadataValue,
    protocol_type=st.sampled_from(["", "consumer", "connect"]),
    generation=st.sampled_from([-(2**31), -1, 0, 7, 2**31 - 2]),
    protocol=st.sampled_from([None, "", "range"]),
    leader=st.sampled_from([None, "", "a", "stranger"]),
    current_state_timestamp=st.sampled_from([-(2**63), -1, 0, 2**63 - 1]),
    members=st.lists(MEMBERS, max_size=5),
)


@given(VALUES)
def test_hostile_records_are_borne(value: messages.GroupMetadataValue) -> None:
    """Whatever the log says about a group, it can be asked, joined by whom it suits, and empties in the end."""
    coordinator = Coordinator(log=[CoordinatorRecord(messages.GroupMetadataKey(group="g"), value, 3).encode()])
    group = coordinator.group()
    describe(coordinator)
    group.is_subscribed("t")
    assert group.offsets_expire_from_ms is None or isinstance(group.offsets_expire_from_ms, int)
    for member_id in list(group.members):
        coordinator.heartbeat(member_id, group.generation)
        coordinator.join(member_id)
    coordinator.new_id(group="other")
    coordinator.join(known=False)
    coordinator.leave(("", "i"), "a")
    coordinator.pass_time(2**32)
    assert coordinator.state in (ClassicGroupState.EMPTY, ClassicGroupState.DEAD)
    assert coordinator.machine.next_due_ms is None


def test_groups_of_another_type_read_no_topics() -> None:
    """Connect's workers; but what they mean by their offsets nobody knows while they live."""
    coordinator = Coordinator()
    (member_id,) = coordinator.stable(1, protocol_type="connect")
    group = coordinator.group()
    assert not group.is_subscribed("t")
    assert group.check_delete_offsets() is ErrorCode.NON_EMPTY_GROUP
    assert group.offsets_expire_from_ms is None
    coordinator.leave(member_id)
    assert group.check_delete_offsets() is ErrorCode.NONE


def describe(coordinator: Coordinator, group: str = "g") -> DescribedGroup:
    coordinator.handle(DescribeGroup(10**7, group))
    reply = coordinator.replies.pop(10**7)
    assert isinstance(reply, DescribedGroup)
    return reply


def test_a_group_is_described() -> None:
    """Members, and for a stable group what they said and were assigned."""
    coordinator = Coordinator()
    leader, _ = coordinator.stable(2)
    found = describe(coordinator)
    assert (found.state, found.protocol_type, found.protocol) == ("Stable", "consumer", "range")
    first = found.members[0]
    assert (first.member_id, first.client_id, first.client_host) == (leader, "c0", "/127.0.0.1")
    assert (first.metadata, first.assignment) == (RANGE[0].metadata, leader.encode())
    coordinator.join(leader)
    found = describe(coordinator)
    assert (found.state, found.protocol, found.members[0].metadata) == ("PreparingRebalance", "", b"")
    assert describe(coordinator, "unknown").state == "Dead"


def test_a_group_with_offsets_alone_is_described_as_empty() -> None:
    """Whoever assigned partitions by himself."""
    coordinator = Coordinator()
    commit(coordinator)
    assert describe(coordinator) == DescribedGroup("Empty", "", "", ())


def test_only_an_empty_group_is_deleted() -> None:
    """Then its record goes too."""
    coordinator = Coordinator()
    ids = coordinator.stable(2)

    def delete() -> ErrorCode:
        coordinator.handle(DeleteGroups(10**8, ["g"]))
        reply = coordinator.replies.pop(10**8)
        assert isinstance(reply, DeletedGroups)
        return reply.errors[0][1]

    assert delete() is ErrorCode.NON_EMPTY_GROUP
    coordinator.leave(*ids)
    assert delete() is ErrorCode.NONE
    assert coordinator.last_record().value is None
    assert coordinator.state is ClassicGroupState.DEAD
    assert not coordinator.moved().machine.groups
