"""How long a rebalance waits, and for whom."""

from __future__ import annotations

import pytest
from tests.unit.coordinator.groups.classic.cluster import REBALANCE_MS, SESSION_MS, Coordinator

from tidelog.coordinator.groups.classic.group import ClassicGroup, ClassicGroupState
from tidelog.coordinator.groups.classic.rebalance import GATHER_MS, QUIET_MS, fail_waiting
from tidelog.coordinator.groups.classic.turn import ClassicTurn
from tidelog.coordinator.groups.settings import GroupSettings
from tidelog.coordinator.result import Result
from tidelog.model.errors import ErrorCode


@pytest.mark.parametrize(("setting", "delay"), [(0, GATHER_MS), (GATHER_MS - 1, GATHER_MS), (3000, 3000)])
def test_a_new_group_waits_for_further_members(setting: int, delay: int) -> None:
    """group.initial.rebalance.delay.ms, and a moment at least."""
    coordinator = Coordinator(GroupSettings(group_initial_rebalance_delay_ms=setting))
    request = coordinator.join(known=False)
    coordinator.pass_time(delay - 1)
    assert coordinator.reply(request) is None
    coordinator.pass_time(1)
    assert coordinator.joined(request).generation == 1


def test_it_waits_again_while_members_keep_coming() -> None:
    """They are one generation then."""
    coordinator = Coordinator(GroupSettings(group_initial_rebalance_delay_ms=1000))
    requests = []
    for _ in range(4):
        requests.append(coordinator.join(known=False))
        coordinator.pass_time(900)
    assert [coordinator.reply(request) for request in requests] == [None] * 4
    coordinator.pass_time(1400)
    assert {coordinator.joined(request).generation for request in requests} == {1}
    assert len(coordinator.group().members) == 4


def test_one_that_asks_for_its_id_keeps_coming_too() -> None:
    """It will join in a moment."""
    coordinator = Coordinator()
    request = coordinator.join(coordinator.new_id())
    coordinator.pass_time(GATHER_MS - 1)
    coordinator.new_id()
    coordinator.pass_time(QUIET_MS - 1)
    assert coordinator.reply(request) is None
    coordinator.pass_time(1)
    assert coordinator.joined(request).generation == 1


def test_members_that_have_all_come_need_not_wait_longer() -> None:
    """Without a delay in the settings nothing is added for those that came at once."""
    coordinator = Coordinator()
    requests = [coordinator.join(known=False) for _ in range(3)]
    coordinator.pass_time(GATHER_MS)
    assert {coordinator.joined(request).generation for request in requests} == {1}


def test_it_does_not_wait_longer_than_a_rebalance_may_take() -> None:
    """However many keep coming."""
    coordinator = Coordinator(GroupSettings(group_initial_rebalance_delay_ms=1000))
    first = coordinator.join(known=False, rebalance_ms=2500)
    began_ms = coordinator.now_ms
    while coordinator.reply(first) is None:
        coordinator.join(known=False, rebalance_ms=2500)
        coordinator.pass_time(100)
    assert coordinator.now_ms - began_ms == 2500


def test_the_slowest_member_decides_how_long_a_rebalance_waits() -> None:
    """Its rebalance timeout is the group's."""
    coordinator = Coordinator()
    ids = [coordinator.new_id(client=f"c{index}") for index in range(3)]
    timeouts = [1000, REBALANCE_MS, 2000]
    requests = [
        coordinator.join(member_id, rebalance_ms=timeout, session_ms=10 * REBALANCE_MS)
        for member_id, timeout in zip(ids, timeouts, strict=True)
    ]
    coordinator.gather()
    coordinator.sync_all([coordinator.joined(request) for request in requests])
    request = coordinator.join(ids[0], rebalance_ms=1000)
    coordinator.pass_time(REBALANCE_MS - 1)
    assert coordinator.reply(request) is None
    coordinator.pass_time(1)
    assert [member.member_id for member in coordinator.joined(request).members] == ids[:1]


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31)])
def test_a_senseless_rebalance_timeout_hurts_its_group_alone(timeout_ms: int) -> None:
    """Clients may say anything: nothing waits, nothing hangs, nothing spins."""
    coordinator = Coordinator()
    member_id = coordinator.new_id()
    request = coordinator.join(member_id, rebalance_ms=timeout_ms)
    coordinator.gather()
    assert coordinator.joined(request).generation == 1
    coordinator.pass_time(SESSION_MS)
    assert coordinator.state is ClassicGroupState.EMPTY
    assert coordinator.machine.next_due_ms is None


def test_sessions_begin_anew_with_a_new_coordinator() -> None:
    """It knows members by the log alone, and gives each its session timeout to be heard of."""
    before = Coordinator()
    before.stable(2)
    before.pass_time(SESSION_MS - 1)
    coordinator = before.moved()
    coordinator.pass_time(SESSION_MS - 1)
    leader, _ = coordinator.group().members
    assert coordinator.heartbeat(leader, 1) is ErrorCode.NONE
    coordinator.pass_time(1)
    assert list(coordinator.group().members) == [leader]


def test_a_rebalance_is_forgotten_with_its_coordinator() -> None:
    """The last assignment that was written holds; whoever is ahead of it is told to join anew."""
    before = Coordinator()
    leader, follower = before.stable(2)
    before.join(leader)
    before.join(follower)
    assert before.group().generation == 2
    coordinator = before.moved()
    assert (coordinator.state, coordinator.group().generation) == (ClassicGroupState.STABLE, 1)
    assert coordinator.heartbeat(leader, 2) is ErrorCode.ILLEGAL_GENERATION
    assert coordinator.reply(coordinator.sync(leader, 2)).error is ErrorCode.ILLEGAL_GENERATION
    assert coordinator.heartbeat(follower, 1) is ErrorCode.NONE


def test_a_group_that_becomes_something_else_answers_all_that_wait() -> None:
    """And nothing is due in it any more."""
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    coordinator.new_id()
    request = coordinator.join(leader)
    result: Result[object, object] = Result()
    group = coordinator.group()
    assert isinstance(group, ClassicGroup)
    fail_waiting(
        ClassicTurn(coordinator.now_ms, coordinator.wall_ms, coordinator.settings, result),
        group,
        ErrorCode.NOT_COORDINATOR,
    )
    assert [(found, reply.error) for found, reply in result.replies] == [(request, ErrorCode.NOT_COORDINATOR)]  # type: ignore[attr-defined]
    assert coordinator.machine.next_due_ms is None
    assert follower in group.members
