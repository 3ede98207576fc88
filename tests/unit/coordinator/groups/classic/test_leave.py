"""LeaveGroup: members that go, and static ones that an administrator removes."""

from __future__ import annotations

from tests.unit.coordinator.groups.classic.cluster import SESSION_MS, Coordinator

from tidelog.coordinator.groups.classic.group import ClassicGroupState
from tidelog.model.errors import ErrorCode


def test_who_leaves_is_out_at_once() -> None:
    """The others rebalance; its session does not end again later."""
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    assert coordinator.leave(leader) == [ErrorCode.NONE]
    assert coordinator.state is ClassicGroupState.PREPARING_REBALANCE
    assert coordinator.heartbeat(leader, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    joined = coordinator.joined(coordinator.join(follower))
    assert (joined.generation, joined.leader) == (2, follower)
    coordinator.sync_all([joined])
    coordinator.pass_time(SESSION_MS - 1)
    assert coordinator.state is ClassicGroupState.STABLE


def test_the_last_one_leaves_an_empty_generation() -> None:
    """It is written, with the time from which the retention of the offsets counts."""
    coordinator = Coordinator()
    ids = coordinator.stable(2)
    coordinator.pass_time(500)
    assert coordinator.leave(*ids) == [ErrorCode.NONE, ErrorCode.NONE]
    assert coordinator.state is ClassicGroupState.EMPTY
    value = coordinator.last_record().value
    assert (value.generation, value.members, value.protocol, value.leader) == (2, [], None, None)  # type: ignore[union-attr]
    assert value.protocol_type == "consumer"  # type: ignore[union-attr]
    assert coordinator.group().offsets_expire_from_ms == coordinator.wall_ms
    assert coordinator.moved().state is ClassicGroupState.EMPTY


def test_generations_go_on_in_a_group_that_was_empty() -> None:
    """A member of long ago must not be taken for one of now."""
    coordinator = Coordinator()
    coordinator.leave(*coordinator.stable(2))
    coordinator = coordinator.moved()
    coordinator.join(coordinator.new_id())
    coordinator.gather()
    assert coordinator.group().generation == 3


def test_each_leaves_by_itself() -> None:
    """Errors are told one by one, and the others leave all the same."""
    coordinator = Coordinator()
    joined = [coordinator.join(instance=instance) for instance in "ab"] + [coordinator.join(known=False)]
    coordinator.gather()
    ids = [coordinator.joined(request).member_id for request in joined]
    assert coordinator.leave("stranger", ("", "a"), (ids[0], "b"), ("", "nobody"), "", ids[2]) == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    ]
    assert list(coordinator.group().members) == [ids[1]]
    assert coordinator.leave("x", "y", group="unknown") == [ErrorCode.UNKNOWN_MEMBER_ID] * 2


def test_an_id_that_was_given_out_may_be_given_back() -> None:
    """Nothing has to be rebalanced for it."""
    coordinator = Coordinator()
    coordinator.stable(2)
    member_id = coordinator.new_id()
    assert coordinator.leave(member_id) == [ErrorCode.NONE]
    assert coordinator.state is ClassicGroupState.STABLE
    assert coordinator.join_error(coordinator.join(member_id)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_waiting_requests_of_who_leaves_are_answered() -> None:
    """A join and a sync: an administrator may remove whom he likes."""
    coordinator = Coordinator()
    requests = [coordinator.join(instance=instance) for instance in "ab"]
    coordinator.gather()
    a, b = (coordinator.joined(request).member_id for request in requests)
    sync = coordinator.sync(b, 1, instance="b")
    coordinator.leave(("", "b"))
    assert coordinator.reply(sync).error is ErrorCode.UNKNOWN_MEMBER_ID
    coordinator.sync_all([coordinator.joined(coordinator.join(a, instance="a"))])
    join = coordinator.join(instance="c")
    coordinator.leave(("", "c"))
    assert coordinator.join_error(join) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_need_not_wait_for_who_left() -> None:
    """All that are still members have joined."""
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    request = coordinator.join(leader)
    coordinator.leave(follower)
    assert [member.member_id for member in coordinator.joined(request).members] == [leader]


def test_all_leave_while_the_group_gathers() -> None:
    """Nobody is there when the wait ends."""
    coordinator = Coordinator()
    member_id = coordinator.new_id()
    coordinator.join(member_id)
    coordinator.leave(member_id)
    coordinator.gather()
    assert coordinator.state is ClassicGroupState.EMPTY
    assert coordinator.group().generation == 1
