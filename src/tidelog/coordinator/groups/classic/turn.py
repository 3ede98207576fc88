"""What the decisions about classic groups have in common: the time, the settings, and the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidelog.coordinator.groups.classic.deadlines import JOIN, SESSION, SYNC, ClassicDeadline
from tidelog.coordinator.groups.classic.events import HeartbeatReply, JoinReply, LeaveReply, SyncReply
from tidelog.coordinator.groups.classic.group import ClassicGroup
from tidelog.coordinator.groups.classic.members import ClassicMember
from tidelog.coordinator.records import CoordinatorRecord
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages

if TYPE_CHECKING:
    from tidelog.coordinator.groups.part import GroupResult
    from tidelog.coordinator.groups.settings import GroupSettings

VALUE_VERSION: Final = 3
"""Of GroupMetadataValue, as Kafka 4.3 writes it."""


@dataclass(slots=True)
class ClassicTurn:
    """One event's work on one group."""

    now_ms: int
    wall_ms: int
    settings: GroupSettings
    result: GroupResult

    def reply(self, request_id: int | None, reply: JoinReply | SyncReply | HeartbeatReply | LeaveReply) -> None:
        """Answers a request; None: no request waits."""
        if request_id is not None:
            self.result.replies.append((request_id, reply))

    def expect_member(self, group: ClassicGroup, member: ClassicMember) -> None:
        """The member's session begins anew."""
        group.expect(self.now_ms, member.member_id, member.session_timeout_ms)

    def expect_nothing_of(self, group: ClassicGroup, member_id: str) -> None:
        group.deadlines.cancel(ClassicDeadline(SESSION, group.group_id, member_id))

    def await_joins(self, group: ClassicGroup, timeout_ms: int) -> None:
        """The rebalance waits that long for members."""
        group.deadlines.set(ClassicDeadline(JOIN, group.group_id), self.now_ms + timeout_ms)

    def await_no_joins(self, group: ClassicGroup) -> None:
        group.deadlines.cancel(ClassicDeadline(JOIN, group.group_id))

    def await_syncs(self, group: ClassicGroup) -> None:
        """The generation waits as long as a rebalance may take for each member's SyncGroup."""
        group.deadlines.set(ClassicDeadline(SYNC, group.group_id), self.now_ms + group.rebalance_timeout_ms)

    def await_no_syncs(self, group: ClassicGroup) -> None:
        group.deadlines.cancel(ClassicDeadline(SYNC, group.group_id))

    def record(self, group: ClassicGroup) -> None:
        """Writes the group as it is now."""
        key = messages.GroupMetadataKey(group=group.group_id)
        self.result.writes.append(CoordinatorRecord(key, group.as_record(), VALUE_VERSION))

    def answer_joins(self, group: ClassicGroup, member: ClassicMember, error: ErrorCode, told_id: str) -> None:
        """Refuses the member's JoinGroup, if one waits."""
        self.reply(group.wait_for_join(member, None), JoinReply(error, told_id))

    def answer_sync(self, member: ClassicMember, reply: SyncReply) -> bool:
        """Answers the member's SyncGroup; whether one waited."""
        waiting, member.sync_request = member.sync_request, None
        self.reply(waiting, reply)
        return waiting is not None
