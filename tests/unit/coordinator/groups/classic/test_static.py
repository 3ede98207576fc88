"""Static members: those with a group.instance.id, which come back under it without a rebalance."""

from __future__ import annotations

import pytest
from tests.unit.coordinator.groups.classic.cluster import RANGE, REBALANCE_MS, SESSION_MS, Coordinator

from tidelog.coordinator.groups.classic.group import ClassicGroupState
from tidelog.coordinator.groups.classic.members import Protocol
from tidelog.coordinator.groups.classic.rebalance import RETRY_MS_MIN
from tidelog.model.errors import ErrorCode


def stable(coordinator: Coordinator, *instances: str, **options: int) -> list[str]:
    """A stable group of static members; their ids, the leader's first."""
    requests = _joined(coordinator, *instances, **options)
    joined = [coordinator.joined(request) for request in requests]
    coordinator.sync_all(joined)
    return [reply.member_id for reply in joined]


def _joined(coordinator: Coordinator, *instances: str, **options: int) -> list[int]:
    """A generation whose leader has not spoken yet; the joins, the leader's first."""
    requests = [coordinator.join(instance=instance, **options) for instance in instances]  # type: ignore[arg-type]
    coordinator.gather()
    return requests


def test_a_static_member_needs_no_second_round() -> None:
    """Its instance id says who it is; its member id is made of it."""
    coordinator = Coordinator()
    assert stable(coordinator, "i") == ["i-1"]
    assert coordinator.group().static == {"i": "i-1"}


@pytest.mark.parametrize("who", [0, 1])
def test_coming_back_moves_nothing(who: int) -> None:
    """It gets a new id and its old assignment, in the same generation; the log knows."""
    coordinator = Coordinator()
    ids = stable(coordinator, "a", "b")
    instance, old = "ab"[who], ids[who]
    joined = coordinator.joined(coordinator.join(instance=instance))
    assert coordinator.state is ClassicGroupState.STABLE
    assert joined.member_id not in ids
    assert joined.generation == 1
    assert coordinator.synced(coordinator.sync(joined.member_id, 1)).assignment == old.encode()
    assert joined.member_id in coordinator.moved().group().members
    assert list(coordinator.group().members).index(joined.member_id) == who


def test_a_leader_that_comes_back_has_nothing_to_assign() -> None:
    """It is told so, with the members, whose topics it goes on to watch."""
    coordinator = Coordinator()
    _, follower = stable(coordinator, "a", "b")
    joined = coordinator.joined(coordinator.join(instance="a"))
    assert joined.skip_assignment
    assert joined.leader == joined.member_id
    assert [member.member_id for member in joined.members] == [joined.member_id, follower]


def test_a_leader_that_does_not_know_of_skipping_is_told_it_follows() -> None:
    """Before version 9: by the old leader's id, which is not its own."""
    coordinator = Coordinator()
    old, _ = stable(coordinator, "a", "b")
    joined = coordinator.joined(coordinator.join(instance="a", skip=False))
    assert (joined.leader, joined.members, joined.skip_assignment) == (old, (), False)


def test_a_follower_that_comes_back_follows() -> None:
    """It is told who leads."""
    coordinator = Coordinator()
    leader, _ = stable(coordinator, "a", "b")
    joined = coordinator.joined(coordinator.join(instance="b"))
    assert (joined.leader, joined.members, joined.skip_assignment) == (leader, (), False)


def test_the_old_id_is_fenced() -> None:
    """In whatever it asks with its instance id; without it, it is unknown."""
    coordinator = Coordinator()
    old, _ = stable(coordinator, "a", "b")
    new = coordinator.joined(coordinator.join(instance="a")).member_id
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert coordinator.heartbeat(old, 1, instance="a") is fenced
    assert coordinator.reply(coordinator.sync(old, 1, instance="a")).error is fenced
    assert coordinator.join_error(coordinator.join(old, instance="a")) is fenced
    assert coordinator.leave((old, "a")) == [fenced]
    assert coordinator.heartbeat(old, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.heartbeat(new, 1, instance="a") is ErrorCode.NONE


def test_an_unknown_instance_is_unknown() -> None:
    """Whoever's member id comes with it."""
    coordinator = Coordinator()
    old, _ = stable(coordinator, "a", "b")
    assert coordinator.heartbeat(old, 1, instance="c") is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.join_error(coordinator.join(old, instance="c")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_waiting_requests_of_the_old_id_are_fenced() -> None:
    """A join that waits, and a sync that waits."""
    coordinator = Coordinator()
    a, b = stable(coordinator, "a", "b")
    waiting = coordinator.join(a, instance="a")
    coordinator.join(instance="a")
    assert coordinator.join_error(waiting) is ErrorCode.FENCED_INSTANCE_ID
    coordinator.join(b, instance="b")
    assert coordinator.state is ClassicGroupState.COMPLETING_REBALANCE
    waiting = coordinator.sync(b, 2, instance="b")
    coordinator.join(instance="b")
    assert coordinator.reply(waiting).error is ErrorCode.FENCED_INSTANCE_ID


def test_coming_back_before_the_sync_rebalances() -> None:
    """The leader may already be assigning to the old id."""
    coordinator = Coordinator()
    first = coordinator.join(instance="a")
    coordinator.join(instance="b")
    coordinator.gather()
    leader = coordinator.joined(first).member_id
    again = coordinator.join(instance="b")
    assert coordinator.state is ClassicGroupState.PREPARING_REBALANCE
    assert coordinator.reply(coordinator.sync(leader, 1)).error is ErrorCode.REBALANCE_IN_PROGRESS
    coordinator.join(leader, instance="a")
    assert coordinator.joined(again).generation == 2


def test_coming_back_during_a_rebalance_is_joining() -> None:
    """It counts as the one that is waited for."""
    coordinator = Coordinator()
    a, _ = stable(coordinator, "a", "b")
    request = coordinator.join(a, instance="a")
    again = coordinator.join(instance="b")
    assert coordinator.joined(request).generation == coordinator.joined(again).generation == 2


def test_coming_back_before_its_own_sync_is_no_silence() -> None:
    """The new id is the one whose SyncGroup is awaited; when it has come nobody is put out."""
    coordinator = Coordinator()
    leader = coordinator.joined(_joined(coordinator, "a", "b")[0])
    coordinator.sync(leader.member_id, 1, instance="a")
    assert coordinator.state is ClassicGroupState.STABLE
    new = coordinator.joined(coordinator.join(instance="b")).member_id
    assert list(coordinator.group().pending_sync) == [new]
    coordinator.synced(coordinator.sync(new, 1, instance="b"))
    for _ in range(REBALANCE_MS // SESSION_MS * 2):
        coordinator.pass_time(SESSION_MS // 2)
        coordinator.heartbeat(leader.member_id, 1, instance="a")
        coordinator.heartbeat(new, 1, instance="b")
    assert coordinator.state is ClassicGroupState.STABLE


def test_a_changed_subscription_alone_does_not_rebalance() -> None:
    """While the same protocol wins: Kafka takes a static member at its instance id, not at its metadata."""
    coordinator = Coordinator()
    stable(coordinator, "a", "b")
    coordinator.joined(coordinator.join(instance="b", protocols=(Protocol("range", b"other"),)))
    assert coordinator.state is ClassicGroupState.STABLE


def test_a_protocol_that_does_not_win_any_more_rebalances() -> None:
    """Assignments of two protocols do not go together."""
    coordinator = Coordinator()
    both = (*RANGE, Protocol("sticky", b""))
    requests = [coordinator.join(instance=instance, protocols=both) for instance in "ab"]
    coordinator.gather()
    coordinator.sync_all([coordinator.joined(request) for request in requests])
    again = coordinator.join(instance="b", protocols=(Protocol("sticky", b""),))
    assert coordinator.state is ClassicGroupState.PREPARING_REBALANCE
    coordinator.join(coordinator.joined(requests[0]).member_id, instance="a", protocols=both)
    assert coordinator.joined(again).protocol == "sticky"


def test_an_absent_static_member_stays() -> None:
    """A rebalance passes without it; its session decides, and then its silence after the rebalance."""
    coordinator = Coordinator()
    a, b = stable(coordinator, "a", "b", session_ms=10 * REBALANCE_MS)
    request = coordinator.join(a, instance="a")
    coordinator.pass_time(REBALANCE_MS)
    assert [member.member_id for member in coordinator.joined(request).members] == [a, b]
    coordinator.synced(coordinator.sync(a, 2, {a: b"A", b: b"B"}, instance="a"))
    assert coordinator.synced(coordinator.sync(b, 2, instance="b")).assignment == b"B"


def test_an_absent_leader_is_replaced_as_leader() -> None:
    """It stays a member."""
    coordinator = Coordinator()
    a, b = stable(coordinator, "a", "b", session_ms=10 * REBALANCE_MS)
    request = coordinator.join(b, instance="b", protocols=(Protocol("range", b"changed"),))
    coordinator.pass_time(REBALANCE_MS)
    joined = coordinator.joined(request)
    assert (joined.leader, len(joined.members)) == (b, 2)
    assert a in coordinator.group().members


def test_static_members_that_are_all_away_are_waited_for_in_peace() -> None:
    """With a rebalance timeout of 0 the coordinator must not ask every millisecond whether one came."""
    coordinator = Coordinator()
    a, b = stable(coordinator, "a", "b", rebalance_ms=REBALANCE_MS)
    coordinator.join(a, instance="a")
    coordinator.leave((a, "a"))
    coordinator.group().members[b].rebalance_timeout_ms = 0
    coordinator.gather()
    before = coordinator.now_ms
    ticks = 0
    while coordinator.state is not ClassicGroupState.EMPTY:
        due_ms = coordinator.machine.next_due_ms
        assert due_ms is not None
        coordinator.pass_time(due_ms - coordinator.now_ms)
        ticks += 1
    assert coordinator.now_ms - before <= REBALANCE_MS + SESSION_MS
    assert ticks <= (REBALANCE_MS + SESSION_MS) // RETRY_MS_MIN


def test_the_session_of_a_static_member_ends() -> None:
    """Then it is out as any other."""
    coordinator = Coordinator()
    a, b = stable(coordinator, "a", "b")
    coordinator.pass_time(SESSION_MS - 1)
    coordinator.heartbeat(a, 1, instance="a")
    coordinator.pass_time(1)
    assert coordinator.state is ClassicGroupState.PREPARING_REBALANCE
    assert list(coordinator.group().members) == [a]
    assert coordinator.join_error(coordinator.join(b, instance="b")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_id_is_not_joined_with_an_instance_id() -> None:
    """It was given to a dynamic member."""
    coordinator = Coordinator()
    member_id = coordinator.new_id()
    assert coordinator.join_error(coordinator.join(member_id, instance="i")) is ErrorCode.UNKNOWN_MEMBER_ID
