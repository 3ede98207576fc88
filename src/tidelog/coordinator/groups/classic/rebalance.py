"""How a classic group comes to its next generation.

A rebalance is two waits. PreparingRebalance waits until all members have joined again, or the slowest one's rebalance
timeout has passed: members that have not joined by then are removed, except static members, whose absence is no news
until their session ends. CompletingRebalance waits for the leader's SyncGroup, which has the assignment; the group is
Stable when that is in the log. Members of which nothing comes in either phase are put out, so that no rebalance waits
for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from tidelog.coordinator.groups.classic.events import UNKNOWN_MEMBER, JoinedMember, JoinReply, SyncReply
from tidelog.coordinator.groups.classic.group import ClassicGroup, ClassicGroupState
from tidelog.coordinator.groups.classic.members import ClassicMember
from tidelog.coordinator.groups.classic.turn import ClassicTurn
from tidelog.model.errors import ErrorCode

logger = logging.getLogger(__name__)

GATHER_MS: Final = 100
"""Least wait of a new group for further members, whatever group.initial.rebalance.delay.ms says. Members that start
together come some ten milliseconds apart; one of which the first generation knows nothing waits until the others' next
heartbeats, three seconds as a rule."""
QUIET_MS: Final = 50
"""How long no member may have come at the end of that least wait."""
RETRY_MS_MIN: Final = 500
"""Least wait for static members of which none has joined again. They say how long a rebalance may take, and a timeout
of 0 must not keep the coordinator busy until their sessions end."""


def rebalance(turn: ClassicTurn, group: ClassicGroup, reason: str) -> None:
    """Members have come or gone: begins a rebalance; in one that has begun, looks whether all have joined."""
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        complete_join_if_all_joined(turn, group)
    else:
        prepare(turn, group, reason)


def prepare(turn: ClassicTurn, group: ClassicGroup, reason: str) -> None:
    """Begins a rebalance: members learn of it with their next Heartbeat or SyncGroup."""
    initial = group.state is ClassicGroupState.EMPTY
    if group.state is ClassicGroupState.COMPLETING_REBALANCE:
        hand_out(turn, group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_sync.clear()
    turn.await_no_syncs(group)
    logger.info(
        "rebalance begins: group=%s generation=%d members=%d reason=%s",
        group.group_id,
        group.generation,
        len(group.members),
        reason,
    )
    group.enter(ClassicGroupState.PREPARING_REBALANCE, turn.wall_ms)
    if initial:
        group.came_ms = None
        delay_ms = _initial_delay_ms(turn)
        group.delay_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        turn.await_joins(group, delay_ms)
    elif group.all_joined:
        complete_join(turn, group)
    else:
        turn.await_joins(group, group.rebalance_timeout_ms)


def _initial_delay_ms(turn: ClassicTurn) -> int:
    return max(turn.settings.group_initial_rebalance_delay_ms, GATHER_MS)


def _more_delay_ms(turn: ClassicTurn, group: ClassicGroup) -> int:
    """How much longer a new group waits, since a member has come meanwhile; 0 if none has."""
    came_ms, group.came_ms = group.came_ms, None
    if came_ms is None:
        return 0
    setting_ms = turn.settings.group_initial_rebalance_delay_ms
    more_ms = setting_ms if setting_ms >= GATHER_MS else max(came_ms + QUIET_MS - turn.now_ms, 0)
    return min(more_ms, group.delay_left_ms)


def complete_join_if_all_joined(turn: ClassicTurn, group: ClassicGroup) -> None:
    """The first members of a group wait for the end of the initial delay, all joined or not."""
    if group.state is ClassicGroupState.PREPARING_REBALANCE and not group.is_initial and group.all_joined:
        complete_join(turn, group)


def joins_due(turn: ClassicTurn, group: ClassicGroup) -> None:
    """The rebalance has waited long enough for members; an initial one begins again while members keep coming."""
    if group.state is not ClassicGroupState.PREPARING_REBALANCE:
        return
    more_ms = _more_delay_ms(turn, group) if group.is_initial else 0
    if more_ms:
        group.delay_left_ms -= more_ms
        turn.await_joins(group, more_ms)
    else:
        complete_join(turn, group)


def complete_join(turn: ClassicTurn, group: ClassicGroup) -> None:
    """The members that have joined are the next generation."""
    turn.await_no_joins(group)
    absent = [member for member in group.members.values() if member.join_request is None]
    for member in absent:
        if not member.is_static:
            logger.info("member did not join again: group=%s member=%s", group.group_id, member.member_id)
            remove(turn, group, member)
    if group.members and not group.elect_joined_leader():
        # Static members alone, and all are away: their sessions decide.
        turn.await_joins(group, max(group.rebalance_timeout_ms, RETRY_MS_MIN))
        return
    group.next_generation(turn.wall_ms)
    if group.state is ClassicGroupState.EMPTY:
        logger.info("group is empty: group=%s generation=%d", group.group_id, group.generation)
        turn.record(group)
        return
    logger.info(
        "generation: group=%s generation=%d members=%d protocol=%s leader=%s",
        group.group_id,
        group.generation,
        len(group.members),
        group.protocol,
        group.leader,
    )
    for member in list(group.members.values()):
        turn.reply(group.wait_for_join(member, None), joined(group, member))
        turn.expect_member(group, member)
        member.is_new = False
        group.pending_sync[member.member_id] = None
    turn.await_syncs(group)


def syncs_due(turn: ClassicTurn, group: ClassicGroup) -> None:
    """Members that have joined and whose SyncGroup has not come are out."""
    if group.state not in (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE) or not group.pending_sync:
        return
    for member_id in list(group.pending_sync):
        logger.info("member did not sync: group=%s member=%s", group.group_id, member_id)
        remove(turn, group, group.members[member_id])
    prepare(turn, group, "members did not send SyncGroup")


def member_due(turn: ClassicTurn, group: ClassicGroup, member_id: str) -> None:
    """A member, or an id that was given out, has sent no heartbeat for its session timeout."""
    if member_id in group.pending:
        group.remove(member_id)
        complete_join_if_all_joined(turn, group)
        return
    member = group.members.get(member_id)
    if member is None or member.needs_no_heartbeat:
        return
    logger.info("member's session ended: group=%s member=%s", group.group_id, member_id)
    remove(turn, group, member)
    rebalance(turn, group, f"session of {member_id} ended")


def remove(
    turn: ClassicTurn, group: ClassicGroup, member: ClassicMember, error: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID
) -> None:
    """Puts a member out. If it lives, the answer to whatever of its waits has it join anew."""
    turn.expect_nothing_of(group, member.member_id)
    turn.answer_joins(group, member, ErrorCode.UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER)
    turn.answer_sync(member, SyncReply(ErrorCode.UNKNOWN_MEMBER_ID))
    group.remove(member.member_id)


def joined(group: ClassicGroup, member: ClassicMember) -> JoinReply:
    """The answer to a member of the generation; its leader is told the other members."""
    return JoinReply(
        ErrorCode.NONE,
        member.member_id,
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader or "",
        joined_members(group) if group.leader == member.member_id else (),
    )


def joined_members(group: ClassicGroup) -> Sequence[JoinedMember]:
    return [
        JoinedMember(member.member_id, member.instance_id, member.metadata(group.protocol))
        for member in group.members.values()
    ]


def hand_out(turn: ClassicTurn, group: ClassicGroup, error: ErrorCode = ErrorCode.NONE) -> None:
    """Gives each member whose SyncGroup waits its assignment; with an error none has one, and all learn the error."""
    for member in group.members.values():
        if error is not ErrorCode.NONE:
            member.assignment = b""
        if turn.answer_sync(member, synced(group, member) if error is ErrorCode.NONE else SyncReply(error)):
            # Its session was not watched while it waited here.
            turn.expect_member(group, member)


def synced(group: ClassicGroup, member: ClassicMember) -> SyncReply:
    """What the member is assigned."""
    return SyncReply(ErrorCode.NONE, group.protocol_type, group.protocol, member.assignment)


def fail_waiting(turn: ClassicTurn, group: ClassicGroup, error: ErrorCode) -> None:
    """Answers all that wait with an error: the group is to be something else, or no more. Its deadlines end."""
    turn.await_no_joins(group)
    turn.await_no_syncs(group)
    for member_id in group.pending:
        turn.expect_nothing_of(group, member_id)
    for member in group.members.values():
        turn.expect_nothing_of(group, member.member_id)
        turn.answer_joins(group, member, error, member.member_id)
        turn.answer_sync(member, SyncReply(error))
