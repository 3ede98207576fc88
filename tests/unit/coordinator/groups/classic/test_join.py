"""JoinGroup: who becomes a member, under which id, and what the answer waits for."""

from __future__ import annotations

import pytest
from tests.unit.coordinator.groups.classic.cluster import RANGE, REBALANCE_MS, SESSION_MS, Coordinator

from tidelog.coordinator.groups.classic.group import ClassicGroupState
from tidelog.coordinator.groups.classic.join import NEW_MEMBER_TIMEOUT_MS, PENDING_MS_MAX
from tidelog.coordinator.groups.classic.members import Protocol
from tidelog.coordinator.groups.settings import GroupSettings
from tidelog.model.errors import ErrorCode

OTHER = (Protocol("range", b"\x00\x00changed"),)


def test_a_new_member_is_told_its_id_first() -> None:
    """MEMBER_ID_REQUIRED with an id made of the client's; with that it becomes a member."""
    coordinator = Coordinator()
    reply = coordinator.reply(coordinator.join(client="c"))
    assert (reply.error, reply.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "c-1")
    assert coordinator.state is ClassicGroupState.EMPTY
    request = coordinator.join("c-1")
    assert coordinator.state is ClassicGroupState.PREPARING_REBALANCE
    coordinator.gather()
    joined = coordinator.joined(request)
    assert (joined.generation, joined.leader, joined.member_id, joined.protocol) == (1, "c-1", "c-1", "range")
    assert [tuple(member) for member in joined.members] == [("c-1", None, RANGE[0].metadata)]
    assert coordinator.state is ClassicGroupState.COMPLETING_REBALANCE


def test_an_old_client_becomes_a_member_at_once() -> None:
    """Before version 4 there was no second round."""
    coordinator = Coordinator()
    request = coordinator.join(known=False)
    coordinator.gather()
    assert coordinator.joined(request).member_id == "client-1"


def test_an_id_that_was_given_out_expires() -> None:
    """After its session timeout, and a group that is nothing else is forgotten."""
    coordinator = Coordinator()
    member_id = coordinator.new_id()
    coordinator.pass_time(SESSION_MS - 1)
    assert coordinator.state is ClassicGroupState.EMPTY
    coordinator.pass_time(1)
    assert coordinator.state is ClassicGroupState.DEAD
    assert not coordinator.log
    assert coordinator.join_error(coordinator.join(member_id)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_ids_are_kept_for_a_minute_at_most() -> None:
    """However long a session the client asks for."""
    coordinator = Coordinator()
    for number in range(100):
        coordinator.new_id(group=f"g{number}", session_ms=1_800_000)
    assert len(coordinator.machine.groups) == 100
    coordinator.pass_time(PENDING_MS_MAX)
    assert not coordinator.machine.groups
    assert coordinator.machine.next_due_ms is None


def test_an_id_that_expires_holds_no_rebalance_up() -> None:
    """The others need not wait for it any longer."""
    coordinator = Coordinator()
    first, second = coordinator.stable(2)
    coordinator.new_id()
    requests = [coordinator.join(first), coordinator.join(second)]
    assert coordinator.join_error(requests[0]) is None
    coordinator.pass_time(SESSION_MS)
    assert [coordinator.joined(request).generation for request in requests] == [2, 2]


@pytest.mark.parametrize("group", ["g", "unknown"])
def test_an_unknown_member_is_refused(group: str) -> None:
    """In a group that is there, and in one that is not."""
    coordinator = Coordinator()
    coordinator.stable(1)
    reply = coordinator.reply(coordinator.join("nobody", group=group))
    assert (reply.error, reply.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "nobody")
    assert "unknown" not in coordinator.machine.groups


def test_members_of_an_emptied_group_begin_anew() -> None:
    """A known group without members knows no ids."""
    coordinator = Coordinator()
    (member_id,) = coordinator.stable(1)
    coordinator.leave(member_id)
    assert coordinator.state is ClassicGroupState.EMPTY
    assert coordinator.join_error(coordinator.join(member_id)) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("", RANGE), ("consumer", ()), ("connect", RANGE), ("consumer", (Protocol("sticky", b""),))],
)
def test_members_agree_on_a_protocol(protocol_type: str, protocols: tuple[Protocol, ...]) -> None:
    """Another type, or nothing that all support, is INCONSISTENT_GROUP_PROTOCOL."""
    coordinator = Coordinator()
    coordinator.stable(2)
    request = coordinator.join(protocol_type=protocol_type, protocols=protocols)
    assert coordinator.join_error(request) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert coordinator.state is ClassicGroupState.STABLE


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", RANGE), ("consumer", ())])
def test_a_first_member_names_type_and_protocol(protocol_type: str, protocols: tuple[Protocol, ...]) -> None:
    """And a refused one leaves no group behind."""
    coordinator = Coordinator()
    request = coordinator.join(protocol_type=protocol_type, protocols=protocols)
    assert coordinator.join_error(request) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert coordinator.state is ClassicGroupState.DEAD


def test_a_group_may_change_its_type_when_it_is_empty() -> None:
    """The first member says what it is."""
    coordinator = Coordinator()
    coordinator.leave(*coordinator.stable(1))
    coordinator.stable(1, protocol_type="connect", protocols=(Protocol("default", b""),))
    assert coordinator.group().protocol_type == "connect"


def test_the_protocol_is_voted_for() -> None:
    """Of those that all support, the one that most like best."""
    coordinator = Coordinator()
    likes = ["range sticky", "sticky range", "sticky range", "robin sticky range"]
    ids = [coordinator.new_id() for _ in likes]
    requests = [
        coordinator.join(member_id, protocols=tuple(Protocol(name, b"") for name in like.split()))
        for member_id, like in zip(ids, likes, strict=True)
    ]
    coordinator.gather()
    assert {coordinator.joined(request).protocol for request in requests} == {"sticky"}


def test_a_protocol_named_twice_counts_once() -> None:
    """Hostile, but no harm: the group goes on."""
    coordinator = Coordinator()
    twice = (Protocol("range", b"1"), Protocol("range", b"2"))
    first, second = coordinator.new_id(), coordinator.new_id()
    requests = [coordinator.join(first, protocols=twice), coordinator.join(second)]
    coordinator.gather()
    assert coordinator.joined(requests[0]).protocol == "range"
    coordinator.leave(first)
    coordinator.join(second)
    assert coordinator.joined(coordinator._requests).generation == 2


def test_metadata_that_no_record_can_hold_is_refused() -> None:
    """At once, and nobody else notices."""
    coordinator = Coordinator(GroupSettings(group_record_max_bytes=1000))
    coordinator.stable(1)
    large = tuple(Protocol(name, bytes(501)) for name in ("range", "sticky"))
    assert coordinator.join_error(coordinator.join(protocols=large)) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert coordinator.state is ClassicGroupState.STABLE
    assert coordinator.reply(coordinator.join(protocols=large[:1])).error is ErrorCode.MEMBER_ID_REQUIRED


def test_the_leader_forces_a_rebalance() -> None:
    """It has seen what the others need not know of; its join waits for them."""
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    request = coordinator.join(leader)
    assert coordinator.state is ClassicGroupState.PREPARING_REBALANCE
    assert coordinator.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    coordinator.join(follower)
    assert coordinator.joined(request).generation == 2


def test_a_follower_that_joins_again_is_told_what_holds() -> None:
    """Nothing has changed: SyncGroup gives it its assignment again."""
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    joined = coordinator.joined(coordinator.join(follower))
    assert (joined.generation, joined.leader, joined.members) == (1, leader, ())
    assert coordinator.state is ClassicGroupState.STABLE
    assert coordinator.synced(coordinator.sync(follower, 1)).assignment == follower.encode()


@pytest.mark.parametrize("who", [0, 1])
def test_changed_metadata_rebalances(who: int) -> None:
    """Whoever changes its subscription."""
    coordinator = Coordinator()
    ids = coordinator.stable(2)
    request = coordinator.join(ids[who], protocols=OTHER)
    assert coordinator.state is ClassicGroupState.PREPARING_REBALANCE
    other = coordinator.join(ids[1 - who])
    leader = coordinator.joined(other if who else request)
    assert {member.member_id: member.metadata for member in leader.members}[ids[who]] == OTHER[0].metadata


def test_a_join_may_be_asked_again_before_the_sync() -> None:
    """The answer was lost: it is the same, with all members for the leader."""
    coordinator = Coordinator()
    ids = [coordinator.new_id(), coordinator.new_id()]
    requests = [coordinator.join(member_id) for member_id in ids]
    coordinator.gather()
    for member_id, request in zip(ids, requests, strict=True):
        assert coordinator.joined(coordinator.join(member_id)) == coordinator.joined(request)
    assert coordinator.state is ClassicGroupState.COMPLETING_REBALANCE


def test_changed_metadata_before_the_sync_begins_again() -> None:
    """Those that wait for the leader are told to join again."""
    coordinator = Coordinator()
    ids = [coordinator.new_id(), coordinator.new_id()]
    for member_id in ids:
        coordinator.join(member_id)
    coordinator.gather()
    waiting = coordinator.sync(ids[1], 1)
    assert coordinator.reply(waiting) is None
    coordinator.join(ids[0], protocols=OTHER)
    assert coordinator.reply(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.state is ClassicGroupState.PREPARING_REBALANCE


def test_only_the_latest_join_of_a_member_waits() -> None:
    """Its client gave the former up; that one is not left unanswered."""
    coordinator = Coordinator()
    ids = coordinator.stable(2)
    former, latest = coordinator.join(ids[0]), coordinator.join(ids[0])
    assert coordinator.join_error(former) is ErrorCode.REBALANCE_IN_PROGRESS
    coordinator.join(ids[1])
    assert coordinator.joined(latest).generation == 2


def test_a_full_group_takes_nobody() -> None:
    """group.max.size: members stay, new ones are refused."""
    coordinator = Coordinator(GroupSettings(group_max_size=2))
    ids = coordinator.stable(2)
    assert coordinator.join_error(coordinator.join()) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert coordinator.state is ClassicGroupState.STABLE
    requests = [coordinator.join(member_id) for member_id in ids]
    assert [coordinator.joined(request).generation for request in requests] == [2, 2]


def test_the_last_to_join_are_too_many() -> None:
    """Ids may be given out beyond the limit; then the first that join are in."""
    coordinator = Coordinator(GroupSettings(group_max_size=2, group_initial_rebalance_delay_ms=100))
    ids = [coordinator.new_id() for _ in range(3)]
    requests = [coordinator.join(member_id) for member_id in ids]
    assert coordinator.join_error(requests[2]) is ErrorCode.GROUP_MAX_SIZE_REACHED
    coordinator.pass_time(200)
    assert [coordinator.joined(request).generation for request in requests[:2]] == [1, 1]
    assert list(coordinator.group().members) == ids[:2]


def test_a_group_that_is_too_large_now_shrinks() -> None:
    """After a move with a lower limit all join again, and the last is out."""
    before = Coordinator()
    ids = before.stable(3)
    coordinator = before.moved(GroupSettings(group_max_size=2))
    assert coordinator.state is ClassicGroupState.PREPARING_REBALANCE
    requests = [coordinator.join(member_id) for member_id in ids]
    assert coordinator.join_error(requests[2]) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [coordinator.joined(request).generation for request in requests[:2]] == [2, 2]


def test_a_new_member_that_waits_expires_all_the_same() -> None:
    """It cannot send heartbeats: if its client gave up, it is nobody's."""
    coordinator = Coordinator()
    (leader,) = coordinator.stable(1, rebalance_ms=2 * NEW_MEMBER_TIMEOUT_MS, session_ms=2 * NEW_MEMBER_TIMEOUT_MS)
    request = coordinator.join(known=False)
    coordinator.pass_time(NEW_MEMBER_TIMEOUT_MS - 1)
    assert coordinator.reply(request) is None
    coordinator.heartbeat(leader, 1)
    coordinator.pass_time(1)
    reply = coordinator.reply(request)
    assert (reply.error, reply.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert list(coordinator.group().members) == [leader]


def test_a_known_member_that_waits_does_not_expire() -> None:
    """Its request says that it lives."""
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    request = coordinator.join(leader)
    for _ in range(5):
        coordinator.pass_time(SESSION_MS // 2)
        coordinator.heartbeat(follower, 1)
    assert coordinator.reply(request) is None
    assert leader in coordinator.group().members


def test_a_session_counts_from_the_answer_of_the_join() -> None:
    """Not from the last heartbeat before it."""
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    coordinator.join(leader)
    coordinator.pass_time(SESSION_MS - 1)
    coordinator.heartbeat(follower, 1)
    coordinator.pass_time(SESSION_MS - 1)
    coordinator.join(follower)
    coordinator.pass_time(SESSION_MS - 1)
    assert len(coordinator.group().members) == 2
    assert coordinator.heartbeat(leader, 2) is ErrorCode.NONE


def test_whoever_does_not_join_in_time_is_out() -> None:
    """The slowest member's rebalance timeout decides; the leader is one of those who joined."""
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2, session_ms=10 * REBALANCE_MS)
    request = coordinator.join(follower, protocols=OTHER)
    coordinator.pass_time(REBALANCE_MS - 1)
    assert coordinator.reply(request) is None
    coordinator.pass_time(1)
    joined = coordinator.joined(request)
    assert (joined.leader, [member.member_id for member in joined.members]) == (follower, [follower])
    assert coordinator.heartbeat(leader, 1) is ErrorCode.UNKNOWN_MEMBER_ID
