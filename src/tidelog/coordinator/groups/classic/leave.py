"""LeaveGroup of a classic group: members that say goodbye, and static ones that an administrator removes."""

from __future__ import annotations

import logging

from tidelog.coordinator.groups.classic.events import UNKNOWN_MEMBER, LeaveGroup, LeaveReply, LeavingMember
from tidelog.coordinator.groups.classic.group import ClassicGroup
from tidelog.coordinator.groups.classic.rebalance import complete_join_if_all_joined, rebalance, remove
from tidelog.coordinator.groups.classic.turn import ClassicTurn
from tidelog.model.errors import ErrorCode

logger = logging.getLogger(__name__)


def leave(turn: ClassicTurn, group: ClassicGroup, event: LeaveGroup) -> None:
    """Each by itself; then one rebalance for all that have left."""
    before = len(group.members)
    turn.reply(event.request_id, LeaveReply([_leave(turn, group, member) for member in event.members]))
    if len(group.members) < before:
        rebalance(turn, group, "members left")
    else:
        complete_join_if_all_joined(turn, group)


def _leave(turn: ClassicTurn, group: ClassicGroup, leaving: LeavingMember) -> ErrorCode:
    member_id, instance_id, reason = leaving
    if member_id in group.pending:
        turn.expect_nothing_of(group, member_id)
        group.remove(member_id)
        return ErrorCode.NONE
    if member_id == UNKNOWN_MEMBER and instance_id is not None:
        # By its instance id alone, whatever member id it has at the moment.
        member_id = group.static.get(instance_id, UNKNOWN_MEMBER)
    error = group.membership_error(member_id, instance_id)
    if error is ErrorCode.NONE:
        logger.info(
            "member left: group=%s member=%s instance=%s reason=%s",
            group.group_id,
            member_id,
            instance_id,
            reason or "none given",
        )
        remove(turn, group, group.members[member_id])
    return error


def not_members(event: LeaveGroup) -> LeaveReply:
    """The answer where there is no such group."""
    return LeaveReply([ErrorCode.UNKNOWN_MEMBER_ID for _ in event.members])
