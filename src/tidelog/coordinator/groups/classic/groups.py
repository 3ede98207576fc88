"""The classic groups of one coordinator: finds a request's group, and keeps the log and the memory of it together.

request --> group, found or made --> decision --> writes (`GroupMetadata` records), replies, deadlines
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from tidelog.coordinator.groups.classic.deadlines import JOIN, SESSION, SYNC, ClassicDeadline
from tidelog.coordinator.groups.classic.events import (
    UNKNOWN_MEMBER,
    DescribedGroup,
    DescribedMember,
    DescribeGroup,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    SyncGroup,
    SyncReply,
)
from tidelog.coordinator.groups.classic.group import ClassicGroup, ClassicGroupState
from tidelog.coordinator.groups.classic.join import join
from tidelog.coordinator.groups.classic.leave import leave, not_members
from tidelog.coordinator.groups.classic.rebalance import joins_due, member_due, prepare, syncs_due
from tidelog.coordinator.groups.classic.sync import beat, heartbeat, sync
from tidelog.coordinator.groups.classic.turn import ClassicTurn
from tidelog.coordinator.groups.events import CLASSIC, CONSUMER
from tidelog.coordinator.groups.group import OFFSETS_ONLY
from tidelog.coordinator.groups.part import Part
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages

if TYPE_CHECKING:
    from tidelog.coordinator.groups.part import DeadlineHandler, EventHandler, GroupResult, Replayer
    from tidelog.coordinator.groups.state import CoordinatorState


class ClassicCompatibility(Protocol):
    """What decides for members of the classic protocol in groups of the consumer protocol (KIP-848).

    False: the group is not such a one, or is none any more.
    """

    def join(self, now_ms: int, event: JoinGroup, result: GroupResult) -> bool: ...

    def sync(self, now_ms: int, event: SyncGroup, result: GroupResult) -> bool: ...

    def classic_heartbeat(self, now_ms: int, event: Heartbeat, result: GroupResult) -> bool: ...

    def leave(self, now_ms: int, event: LeaveGroup, result: GroupResult) -> bool: ...


class ClassicGroups(Part):
    """Decides for those of the coordinator's groups that are classic, and makes them."""

    def __init__(self, state: CoordinatorState) -> None:
        self._state = state
        self._groups = state.groups
        self._is_loaded = False
        self.compatibility: ClassicCompatibility | None = None

    def handlers(self) -> Mapping[type, EventHandler]:
        return {
            JoinGroup: self._join,
            SyncGroup: self._sync,
            Heartbeat: self._heartbeat,
            LeaveGroup: self._leave,
            DescribeGroup: self._describe,
        }

    def replayers(self) -> Mapping[type, Replayer]:
        return {messages.GroupMetadataKey: self._replay}

    def deadlines(self) -> Mapping[str, DeadlineHandler]:
        return dict.fromkeys((SESSION, JOIN, SYNC), self._expired)

    def loaded(self, now_ms: int, wall_ms: int, result: GroupResult) -> None:
        """Each member has its session timeout, from now on, for its next heartbeat."""
        self._is_loaded = True
        turn = self._turn(now_ms, wall_ms, result)
        for group in list(self._groups.values()):
            if not isinstance(group, ClassicGroup):
                continue
            for member in group.members.values():
                turn.expect_member(group, member)
            if len(group.members) > turn.settings.group_max_size:
                prepare(turn, group, "more members than are allowed now")

    # Requests.

    def _join(self, now_ms: int, event: JoinGroup, result: GroupResult) -> None:
        """A client that has no id yet may make a group."""
        compatibility = self._compatibility_of(event.group)
        if compatibility is not None and compatibility.join(now_ms, event, result):
            return
        if compatibility is None and self._is_of_other_kind(event.group):
            result.replies.append((event.request_id, JoinReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, event.member_id)))
            return
        group = self._find(event.group)
        if group is None:
            if event.member_id != UNKNOWN_MEMBER:
                result.replies.append((event.request_id, JoinReply(ErrorCode.UNKNOWN_MEMBER_ID, event.member_id)))
                return
            group = ClassicGroup(event.group, self._state.deadlines, event.wall_ms)
            self._groups[event.group] = group
        join(self._turn(now_ms, event.wall_ms, result), group, event)
        self._forget_if_nothing(group)

    def _sync(self, now_ms: int, event: SyncGroup, result: GroupResult) -> None:
        compatibility = self._compatibility_of(event.group)
        if compatibility is not None and compatibility.sync(now_ms, event, result):
            return
        group = self._find(event.group)
        if group is None:
            result.replies.append((event.request_id, SyncReply(ErrorCode.UNKNOWN_MEMBER_ID)))
        else:
            sync(self._turn(now_ms, event.wall_ms, result), group, event)

    def _heartbeat(self, now_ms: int, event: Heartbeat, result: GroupResult) -> None:
        group = self._groups.get(event.group)
        if isinstance(group, ClassicGroup):
            heartbeat(now_ms, group, event, result)
            return
        compatibility = self._compatibility_of(event.group)
        if compatibility is None or not compatibility.classic_heartbeat(now_ms, event, result):
            result.replies.append((event.request_id, HeartbeatReply(ErrorCode.UNKNOWN_MEMBER_ID)))

    def beat(self, now_ms: int, group_id: str, member_id: str, generation: int) -> int | None:
        """As the function of that name, of a group that may be of any kind."""
        group = self._groups.get(group_id)
        return beat(now_ms, group, member_id, generation) if isinstance(group, ClassicGroup) else None

    def _leave(self, now_ms: int, event: LeaveGroup, result: GroupResult) -> None:
        compatibility = self._compatibility_of(event.group)
        if compatibility is not None and compatibility.leave(now_ms, event, result):
            return
        group = self._find(event.group)
        if group is None:
            result.replies.append((event.request_id, not_members(event)))
        else:
            leave(self._turn(now_ms, event.wall_ms, result), group, event)
            self._forget_if_nothing(group)

    def _describe(self, now_ms: int, event: DescribeGroup, result: GroupResult) -> None:
        group = self._state.group(event.group)
        if isinstance(group, ClassicGroup):
            described = described_group(group)
        else:
            has_offsets = group is OFFSETS_ONLY
            state = ClassicGroupState.EMPTY if has_offsets else ClassicGroupState.DEAD
            is_of_other_kind = group is not None and not has_offsets
            described = DescribedGroup(state, "", "", (), is_of_other_kind=is_of_other_kind)
        result.replies.append((event.request_id, described))

    # Time, and the log.

    def _expired(self, now_ms: int, wall_ms: int, key: ClassicDeadline, result: GroupResult) -> None:
        """One of the deadlines is due."""
        group = self._find(key.group_id)
        if group is None:
            # It was deleted, or is of the other kind now.
            return
        turn = self._turn(now_ms, wall_ms, result)
        if key.kind == SESSION:
            member_due(turn, group, key.member_id)
        elif key.kind == JOIN:
            joins_due(turn, group)
        else:
            syncs_due(turn, group)
        self._forget_if_nothing(group)

    def _replay(self, key: messages.GroupMetadataKey, value: messages.Message | None) -> None:
        """Notes what the log says. A group that lives here has brought it about, and knows already."""
        group = self._find(key.group)
        if value is None:
            if group is not None:
                del self._groups[key.group]
            return
        assert isinstance(value, messages.GroupMetadataValue)
        if group is not None and self._is_loaded:
            group.recorded = value
        else:
            self._groups[key.group] = ClassicGroup.restored(key.group, self._state.deadlines, value)

    # What requests and deadlines need.

    def _is_of_other_kind(self, group_id: str) -> bool:
        """Whether the name is that of a group whose members never speak the classic protocol."""
        group = self._groups.get(group_id)
        return group is not None and group.kind not in (CLASSIC, CONSUMER)

    def _compatibility_of(self, group_id: str) -> ClassicCompatibility | None:
        """What decides instead, for a group of the other kind."""
        group = self._groups.get(group_id)
        return self.compatibility if group is not None and group.kind == CONSUMER else None

    def _find(self, group_id: str) -> ClassicGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def _turn(self, now_ms: int, wall_ms: int, result: GroupResult) -> ClassicTurn:
        return ClassicTurn(now_ms, wall_ms, self._state.settings, result)

    def _forget_if_nothing(self, group: ClassicGroup) -> None:
        """Groups whose first member never completed its join must not fill the memory."""
        if group.is_forgettable and self._groups.get(group.group_id) is group:
            del self._groups[group.group_id]


def described_group(group: ClassicGroup) -> DescribedGroup:
    """What members said and were assigned is shown for the protocol in force, hence in a stable group only."""
    is_stable = group.state is ClassicGroupState.STABLE
    return DescribedGroup(
        group.state,
        group.protocol_type,
        (group.protocol or "") if is_stable else "",
        list(_described_members(group, is_stable=is_stable)),
    )


def _described_members(group: ClassicGroup, *, is_stable: bool) -> Iterator[DescribedMember]:
    for member in group.members.values():
        yield DescribedMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.metadata(group.protocol) if is_stable else b"",
            member.assignment,
        )
