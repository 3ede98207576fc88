"""The consumer groups (KIP-848) of one coordinator: requests, deadlines and records find their group here.

heartbeat, or a classic request on a consumer group --> decision --> writes, reply, deadlines
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidelog.coordinator.groups.classic.events import (
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    SyncGroup,
    SyncReply,
)
from tidelog.coordinator.groups.consumer import classic_compatibility
from tidelog.coordinator.groups.consumer.change import assign_in_steps
from tidelog.coordinator.groups.consumer.computation import TargetComputation
from tidelog.coordinator.groups.consumer.description import described
from tidelog.coordinator.groups.consumer.events import (
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DescribeConsumerGroup,
    DescribedConsumerGroup,
)
from tidelog.coordinator.groups.consumer.group import ConsumerGroup, NewTarget
from tidelog.coordinator.groups.consumer.heartbeat import fence, heartbeat
from tidelog.coordinator.groups.consumer.member import MemberState
from tidelog.coordinator.groups.consumer.turn import (
    ASSIGN,
    KINDS,
    REBALANCE,
    SESSION,
    ConsumerDeadline,
    ConsumerTurn,
)
from tidelog.coordinator.groups.modern import ModernGroups
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages

if TYPE_CHECKING:
    from tidelog.coordinator.groups.part import DeadlineHandler, EventHandler, GroupResult, Replayer
    from tidelog.coordinator.groups.state import CoordinatorState

logger = logging.getLogger(__name__)


class ConsumerGroups(ModernGroups[ConsumerGroup, ConsumerTurn]):
    """Decides for those of the coordinator's groups that are consumer groups, and makes them."""

    GROUP = ConsumerGroup
    KEYS = (
        messages.ConsumerGroupMetadataKey,
        messages.ConsumerGroupPartitionMetadataKey,
        messages.ConsumerGroupMemberMetadataKey,
        messages.ConsumerGroupTargetAssignmentMetadataKey,
        messages.ConsumerGroupTargetAssignmentMemberKey,
        messages.ConsumerGroupCurrentMemberAssignmentKey,
        messages.ConsumerGroupRegularExpressionKey,
    )
    NOUN = "a consumer group"

    def __init__(self, coordinator: CoordinatorState) -> None:
        super().__init__(coordinator)
        self._computations: dict[str, TargetComputation] = {}
        """[group id] -> its next target, where that is computed in steps."""

    def replayers(self) -> Mapping[type, Replayer]:
        return {**super().replayers(), NewTarget: self._replay_target}

    def _replay_target(self, new: NewTarget, _: object) -> None:
        """A whole target at once."""
        group = self._find(new.group_id)
        assert group is not None, "its target was computed in this very event"
        group.replay_target(new)

    def handlers(self) -> Mapping[type, EventHandler]:
        return {ConsumerHeartbeat: self._heartbeat, DescribeConsumerGroup: self._describe}

    def deadlines(self) -> Mapping[str, DeadlineHandler]:
        return dict.fromkeys((*KINDS, ASSIGN), self._expired)

    def loaded(self, now_ms: int, wall_ms: int, result: GroupResult) -> None:
        """Sessions and rebalances begin anew."""
        turn = self._turn(now_ms, wall_ms, result)
        for group in self._groups.values():
            if not isinstance(group, ConsumerGroup):
                continue
            for member in group.members.values():
                turn.await_heartbeat(group, member)
                if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                    turn.expect(REBALANCE, group, member.member_id, max(member.rebalance_timeout_ms, 0))

    # The newer protocol.

    def _heartbeat(self, now_ms: int, event: ConsumerHeartbeat, result: GroupResult) -> None:
        def refused(error: KafkaError) -> ConsumerHeartbeatReply:
            return ConsumerHeartbeatReply(error.code, error.message)

        self._decide(now_ms, event.wall_ms, event.request_id, result, lambda turn: heartbeat(turn, event), refused)

    def _describe(self, now_ms: int, event: DescribeConsumerGroup, result: GroupResult) -> None:
        group = self._find(event.group)
        if group is not None:
            reply = described(group, self._topics, self._coordinator.settings.consumer.assignors[0])
        else:
            reply = DescribedConsumerGroup(ErrorCode.GROUP_ID_NOT_FOUND, event.group, self._missing(event.group))
        result.replies.append((event.request_id, reply))

    # Requests of the classic protocol to a consumer group; False: the group is not a consumer group, or not any more.

    def join(self, now_ms: int, event: JoinGroup, result: GroupResult) -> bool:
        """An empty group gives way to the classic group that the join makes."""
        group = self._find(event.group)
        if group is None:
            return False
        if group.is_empty:
            result.writes.extend(group.tombstones())
            del self._groups[event.group]
            return False

        def refused(error: KafkaError) -> JoinReply:
            return JoinReply(error.code, event.member_id)

        self._decide(
            now_ms,
            event.wall_ms,
            event.request_id,
            result,
            lambda turn: classic_compatibility.join(turn, group, event),
            refused,
        )
        return True

    def sync(self, now_ms: int, event: SyncGroup, result: GroupResult) -> bool:
        group = self._find(event.group)
        if group is None:
            return False

        def refused(error: KafkaError) -> SyncReply:
            return SyncReply(error.code)

        self._decide(
            now_ms,
            event.wall_ms,
            event.request_id,
            result,
            lambda turn: classic_compatibility.sync(turn, group, event),
            refused,
        )
        return True

    def classic_heartbeat(self, now_ms: int, event: Heartbeat, result: GroupResult) -> bool:
        group = self._find(event.group)
        if group is None:
            return False

        def refused(error: KafkaError) -> HeartbeatReply:
            return HeartbeatReply(error.code)

        self._decide(
            now_ms,
            0,
            event.request_id,
            result,
            lambda turn: classic_compatibility.heartbeat(turn, group, event),
            refused,
        )
        return True

    def leave(self, now_ms: int, event: LeaveGroup, result: GroupResult) -> bool:
        group = self._find(event.group)
        if group is None:
            return False
        turn = self._turn(now_ms, event.wall_ms, result)
        turn.reply(event.request_id, classic_compatibility.leave(turn, group, event))
        return True

    # Time.

    def _expired(self, now_ms: int, wall_ms: int, key: ConsumerDeadline, result: GroupResult) -> None:
        """One of the deadlines is due."""
        group = self._find(key.group_id)
        if group is None:
            # It was deleted, or is of the other kind now.
            self._computations.pop(key.group_id, None)
            return
        turn = self._turn(now_ms, wall_ms, result)
        if key.kind == ASSIGN:
            assign_in_steps(turn, group)
            return
        member = group.members.get(key.member_id)
        if member is None:
            return
        if key.kind == REBALANCE:
            if member.state is not MemberState.UNREVOKED_PARTITIONS:
                return
        elif key.kind != SESSION and member.classic is None:
            return
        logger.info("member put out: group=%s member=%s deadline=%s", key.group_id, key.member_id, key.kind)
        fence(turn, group, [member])

    def _turn(self, now_ms: int, wall_ms: int, result: GroupResult) -> ConsumerTurn:
        state = self._coordinator
        groups, computations = self._groups, self._computations
        return ConsumerTurn(
            now_ms, wall_ms, state.settings, self._topics, state.deadlines, groups, computations, result
        )
