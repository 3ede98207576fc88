"""JoinGroup of a classic group: which clients become members, and under which id."""

from __future__ import annotations

import logging
from typing import Final

from tidelog.coordinator.groups.classic.events import UNKNOWN_MEMBER, JoinGroup, JoinReply, SyncReply
from tidelog.coordinator.groups.classic.group import ClassicGroup, ClassicGroupState
from tidelog.coordinator.groups.classic.members import ClassicMember
from tidelog.coordinator.groups.classic.rebalance import (
    complete_join_if_all_joined,
    joined,
    joined_members,
    prepare,
    rebalance,
)
from tidelog.coordinator.groups.classic.turn import ClassicTurn
from tidelog.model.errors import ErrorCode

logger = logging.getLogger(__name__)

NEW_MEMBER_TIMEOUT_MS: Final = 5 * 60 * 1000
"""How long a new member's first join may wait. It has no id yet and sends no heartbeats; if its client gave up and
asked again, this one is nobody's."""

PENDING_MS_MAX: Final = 60_000
"""How long an id that was given out may be joined with, however long the session: clients do so at once or never. A
client that only ever asks for ids must not fill the memory."""


def join(turn: ClassicTurn, group: ClassicGroup, event: JoinGroup) -> None:
    """Answers at once, or when the rebalance of which it is part has come that far."""
    if not _has_room(turn, group, event.member_id):
        # A member that is too many when it comes back, too: group.max.size may have been lowered.
        _put_out(turn, group, event.member_id)
        turn.reply(event.request_id, JoinReply(ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER))
        complete_join_if_all_joined(turn, group)
    elif sum(len(protocol.metadata) for protocol in event.protocols) > turn.settings.group_record_max_bytes:
        # No record could hold it: what Kafka says when the leader's SyncGroup comes.
        turn.reply(event.request_id, JoinReply(ErrorCode.UNKNOWN_SERVER_ERROR, event.member_id))
    elif not group.supports(event.protocol_type, event.protocols):
        turn.reply(event.request_id, JoinReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, event.member_id))
    elif event.member_id != UNKNOWN_MEMBER:
        _join_again(turn, group, event)
    elif event.instance_id is not None:
        _join_as_static_member(turn, group, event, event.instance_id)
    elif event.needs_known_id:
        group.pending[event.new_member_id] = None
        group.came_ms = turn.now_ms
        group.expect(turn.now_ms, event.new_member_id, min(event.session_timeout_ms, PENDING_MS_MAX))
        turn.reply(event.request_id, JoinReply(ErrorCode.MEMBER_ID_REQUIRED, event.new_member_id))
    else:
        _add(turn, group, event, event.new_member_id)


def _has_room(turn: ClassicTurn, group: ClassicGroup, member_id: str) -> bool:
    """While a rebalance is being prepared the first to join are in, and the others are too many."""
    if group.state is ClassicGroupState.EMPTY:
        return True
    member = group.members.get(member_id)
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        is_in, count = member is not None and member.join_request is not None, group.waiting_joins
    else:
        is_in, count = member is not None, len(group.members)
    return is_in or count < turn.settings.group_max_size


def _put_out(turn: ClassicTurn, group: ClassicGroup, member_id: str) -> None:
    turn.expect_nothing_of(group, member_id)
    group.remove(member_id)


def _join_again(turn: ClassicTurn, group: ClassicGroup, event: JoinGroup) -> None:
    if event.member_id in group.pending and event.instance_id is None:
        _add(turn, group, event, event.member_id)
        return
    error = group.membership_error(event.member_id, event.instance_id)
    if error is not ErrorCode.NONE:
        turn.reply(event.request_id, JoinReply(error, event.member_id))
        return
    member = group.members[event.member_id]
    changed = list(member.protocols) != list(event.protocols)
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        _update(turn, group, member, event)
        complete_join_if_all_joined(turn, group)
    elif changed or (group.state is ClassicGroupState.STABLE and group.leader == event.member_id):
        # A leader that joins again has seen a change that the others need not know of: topics with more partitions.
        _update(turn, group, member, event)
        prepare(turn, group, f"{event.member_id} joined again: {event.reason or 'no reason given'}")
    else:
        # It has not received its answer: the generation stands, and SyncGroup is what comes next.
        turn.reply(event.request_id, joined(group, member))


def _add(turn: ClassicTurn, group: ClassicGroup, event: JoinGroup, member_id: str) -> None:
    """A new member, whose join waits."""
    member = ClassicMember(
        member_id,
        event.instance_id,
        event.client_id,
        event.client_host,
        event.session_timeout_ms,
        event.rebalance_timeout_ms,
        event.protocols,
        is_new=True,
    )
    group.came_ms = turn.now_ms
    group.add(member, event.protocol_type)
    group.wait_for_join(member, event.request_id)
    group.expect(turn.now_ms, member_id, NEW_MEMBER_TIMEOUT_MS)
    rebalance(turn, group, f"{member_id} joined: {event.reason or 'no reason given'}")


def _update(turn: ClassicTurn, group: ClassicGroup, member: ClassicMember, event: JoinGroup) -> None:
    """A known member's join waits."""
    group.update(member, event.protocols, event.session_timeout_ms, event.rebalance_timeout_ms)
    before = group.wait_for_join(member, event.request_id)
    # Its client asked again on another connection, and does not read the former answer.
    turn.reply(before, JoinReply(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))


def _join_as_static_member(turn: ClassicTurn, group: ClassicGroup, event: JoinGroup, instance_id: str) -> None:
    old_id = group.static.get(instance_id)
    if old_id is None:
        _add(turn, group, event, event.new_member_id)
        return
    former_leader = group.leader or ""
    member = _replace(turn, group, event, old_id)
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        complete_join_if_all_joined(turn, group)
    elif group.state is ClassicGroupState.STABLE and group.elected_protocol() == group.protocol:
        _go_on(turn, group, member, event, former_leader)
    else:
        # In CompletingRebalance the leader may already be assigning to the old id.
        prepare(turn, group, f"static member {instance_id} joined: {event.reason or 'no reason given'}")


def _replace(turn: ClassicTurn, group: ClassicGroup, event: JoinGroup, old_id: str) -> ClassicMember:
    """A static member came back: the old id is fenced for any client that still uses it."""
    logger.info(
        "static member replaced: group=%s instance=%s member=%s new=%s",
        group.group_id,
        event.instance_id,
        old_id,
        event.new_member_id,
    )
    old = group.members[old_id]
    turn.expect_nothing_of(group, old_id)
    turn.answer_joins(group, old, ErrorCode.FENCED_INSTANCE_ID, old_id)
    turn.answer_sync(old, SyncReply(ErrorCode.FENCED_INSTANCE_ID))
    member = group.replace_static(old_id, event.new_member_id)
    _update(turn, group, member, event)
    turn.expect_member(group, member)
    return member


def _go_on(turn: ClassicTurn, group: ClassicGroup, member: ClassicMember, event: JoinGroup, former_leader: str) -> None:
    """The assignment stands, and other members do not notice: only the log must know the new id.

    A leader that came back leads, and is told that there is nothing to assign. Clients that do not understand this are
    told the leader's old id, so that they take themselves for followers.
    """
    group.wait_for_join(member, None)
    leads = group.leader == member.member_id
    turn.record(group)
    turn.reply(
        event.request_id,
        JoinReply(
            ErrorCode.NONE,
            member.member_id,
            group.generation,
            group.protocol_type,
            group.protocol,
            (group.leader or "") if event.may_skip_assignment else former_leader,
            joined_members(group) if leads and event.may_skip_assignment else (),
            skip_assignment=leads and event.may_skip_assignment,
        ),
    )
