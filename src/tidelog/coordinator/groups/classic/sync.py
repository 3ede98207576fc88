"""SyncGroup and Heartbeat of a classic group: members of a generation get their assignment, and say that they live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.coordinator.groups.classic.events import Heartbeat, HeartbeatReply, SyncGroup, SyncReply
from tidelog.coordinator.groups.classic.group import ClassicGroup, ClassicGroupState
from tidelog.coordinator.groups.classic.members import ClassicMember
from tidelog.coordinator.groups.classic.rebalance import hand_out, prepare, synced
from tidelog.coordinator.groups.classic.turn import ClassicTurn
from tidelog.model.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.coordinator.groups.part import GroupResult

_ALIVE: Final = HeartbeatReply(ErrorCode.NONE)
_JOIN_AGAIN: Final = HeartbeatReply(ErrorCode.REBALANCE_IN_PROGRESS)


def sync(turn: ClassicTurn, group: ClassicGroup, event: SyncGroup) -> None:
    """Answers at once in a stable group, otherwise when the leader has sent the assignment."""
    error = _sync_error(group, event)
    if error is not ErrorCode.NONE:
        turn.reply(event.request_id, SyncReply(error))
        return
    member = group.members[event.member_id]
    _has_synced(turn, group, member)
    if group.state is ClassicGroupState.STABLE:
        turn.reply(event.request_id, synced(group, member))
        return
    # Its client asked again on another connection, and does not read the former answer.
    turn.answer_sync(member, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync_request = event.request_id
    if group.leader == member.member_id:
        _assign(turn, group, event)


def _sync_error(group: ClassicGroup, event: SyncGroup) -> ErrorCode:
    if group.state is ClassicGroupState.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.membership_error(event.member_id, event.instance_id)
    if error is not ErrorCode.NONE:
        return error
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differ(event.protocol_type, group.protocol_type) or _differ(event.protocol, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is ClassicGroupState.PREPARING_REBALANCE else ErrorCode.NONE


def _differ(said: str | None, known: str | None) -> bool:
    return said is not None and known is not None and said != known


def _has_synced(turn: ClassicTurn, group: ClassicGroup, member: ClassicMember) -> None:
    group.pending_sync.pop(member.member_id, None)
    if not group.pending_sync:
        turn.await_no_syncs(group)


def _assign(turn: ClassicTurn, group: ClassicGroup, event: SyncGroup) -> None:
    """Writes the leader's assignment; the members' answers wait until that is committed."""
    assignments = dict(event.assignments)
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
    if group.record_size > turn.settings.group_record_max_bytes:
        hand_out(turn, group, ErrorCode.UNKNOWN_SERVER_ERROR)
        prepare(turn, group, f"a record of {group.record_size} bytes is too large to be written")
        return
    group.enter(ClassicGroupState.STABLE, turn.wall_ms)
    turn.record(group)
    hand_out(turn, group)


def beat(now_ms: int, group: ClassicGroup, member_id: str, generation: int) -> int | None:
    """What `heartbeat` does for a member that lives and has nothing to learn: until when its next one has to come.

    None, with nothing changed, for others. Nearly all heartbeats are such, of members without an instance id, and this
    makes no event and no reply of them.
    """
    member = group.members.get(member_id)
    if member is None or generation != group.generation or group.state is ClassicGroupState.PREPARING_REBALANCE:
        return None
    group.expect(now_ms, member_id, member.session_timeout_ms)
    return now_ms + member.session_timeout_ms


def heartbeat(now_ms: int, group: ClassicGroup, event: Heartbeat, result: GroupResult) -> None:
    """A heartbeat: prolongs the member's session. While members are to join again the answer says so."""
    member = group.members.get(event.member_id)
    if member is None or event.instance_id is not None or event.generation != group.generation:
        error = group.membership_error(event.member_id, event.instance_id)
        if error is ErrorCode.NONE and event.generation != group.generation:
            error = ErrorCode.ILLEGAL_GENERATION
        if error is not ErrorCode.NONE or member is None:
            result.replies.append((event.request_id, HeartbeatReply(error)))
            return
    group.expect(now_ms, member.member_id, member.session_timeout_ms)
    reply = _JOIN_AGAIN if group.state is ClassicGroupState.PREPARING_REBALANCE else _ALIVE
    result.replies.append((event.request_id, reply))
