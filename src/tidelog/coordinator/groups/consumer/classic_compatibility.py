"""Members of a consumer group that use the classic protocol: those that were there before it was one, and new ones.

- A JoinGroup does what a full heartbeat does in the newer protocol. It is answered at once, without waiting for other
  members.
- The member's epoch is its generation. Its assignment comes with SyncGroup. No member leads.
- When the member has to give partitions up, or some have become free for it, its heartbeats tell it to join again. Its
  next JoinGroup says what it still owns.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from tidelog.coordinator.groups.classic.events import (
    UNKNOWN_MEMBER,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    LeavingMember,
    SyncGroup,
    SyncReply,
)
from tidelog.coordinator.groups.consumer.change import (
    NAME_LENGTH_MAX,
    GroupChange,
    check_room,
    remove,
    replace_static,
)
from tidelog.coordinator.groups.consumer.group import ConsumerGroup
from tidelog.coordinator.groups.consumer.member import (
    JOINING_EPOCH,
    NO_PARTITIONS,
    ClassicMemberMetadata,
    ConsumerMember,
    MemberState,
    Partitions,
    id_of,
    plain,
)
from tidelog.coordinator.groups.consumer.reconciliation import is_waiting_for_others
from tidelog.coordinator.groups.consumer.turn import JOIN, SYNC, ConsumerTurn
from tidelog.coordinator.groups.embedded_protocol import by_id, encode_assignment, parse_subscription
from tidelog.coordinator.groups.migration import can_downgrade, downgrade
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol.consumer_protocol import PROTOCOL_TYPE, version_of
from tidelog.protocol.errors import ProtocolError

logger = logging.getLogger(__name__)


def join(turn: ConsumerTurn, group: ConsumerGroup, event: JoinGroup) -> JoinReply:
    """Raises KafkaError."""
    member_id = event.member_id or event.new_member_id
    check_room(turn, group, member_id)
    told = sum(len(protocol.name) + len(protocol.metadata) for protocol in event.protocols)
    if told > turn.all_settings.subscription_length_max or len(event.instance_id or "") > NAME_LENGTH_MAX:
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, "What the member says does not fit a record.")
    if not group.supports_classic(event.protocol_type, (protocol.name for protocol in event.protocols)):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if event.member_id == UNKNOWN_MEMBER and event.instance_id is None and event.needs_known_id:
        return JoinReply(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    before, replaced = _joining(group, event, member_id)
    try:
        after, owned = _as_told(turn, before, event, member_id)
        if replaced is not None and can_downgrade(turn, group, [replaced.member_id], joining=1):
            return _join_downgraded(turn, group, replaced, after)
    except ProtocolError as error:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error
    change = GroupChange(turn, group, before, after, id_of(replaced), event.rights)
    if replaced is not None and before is not None:
        replace_static(turn, group, replaced, before)
    change.advance(is_needed=change.subscribe())
    change.assign()
    moved = change.move(owned)
    turn.expect_no_more(JOIN, group, member_id)
    turn.await_heartbeat(group, moved)
    turn.expect(SYNC, group, member_id, event.rebalance_timeout_ms)
    return _joined(moved, moved.epoch)


def _joined(member: ConsumerMember, generation: int) -> JoinReply:
    assert member.classic is not None
    return JoinReply(ErrorCode.NONE, member.member_id, generation, PROTOCOL_TYPE, member.classic.protocols[0][0])


def _joining(
    group: ConsumerGroup, event: JoinGroup, member_id: str
) -> tuple[ConsumerMember | None, ConsumerMember | None]:
    """(the member as it is, None if new; the former self of a static one that came back with another id)"""
    if event.instance_id is None:
        return group.members.get(member_id), None
    if event.member_id != UNKNOWN_MEMBER:
        return _identified(group, event.member_id, event.instance_id), None
    known = group.static_member(event.instance_id)
    if known is None:
        return None, None
    return replace(known, member_id=member_id, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH), known


def _as_told(
    turn: ConsumerTurn, before: ConsumerMember | None, event: JoinGroup, member_id: str
) -> tuple[ConsumerMember, Partitions]:
    """The member with what its request says, and what it owns; ProtocolError."""
    subscription = parse_subscription(event.protocols[0].metadata)
    owned: dict[str, frozenset[int]] = {}
    for topic in subscription.owned_partitions:
        owned[topic.topic] = owned.get(topic.topic, frozenset()) | frozenset(topic.partitions)
    member = before or ConsumerMember(member_id)
    told = replace(
        member,
        instance_id=event.instance_id if event.instance_id is not None else member.instance_id,
        rack_id=subscription.rack_id if subscription.rack_id is not None else member.rack_id,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        client_id=event.client_id,
        client_host=event.client_host,
        topics=frozenset(subscription.topics),
        # Only the newer protocol has these.
        pattern="",
        assignor=None,
        classic=ClassicMemberMetadata(
            event.session_timeout_ms, tuple((each.name, each.metadata) for each in event.protocols)
        ),
    )
    return told, by_id(owned, turn.topics)


def _join_downgraded(
    turn: ConsumerTurn, group: ConsumerGroup, replaced: ConsumerMember, member: ConsumerMember
) -> JoinReply:
    """The last member of the newer protocol came back with the classic one."""
    classic = downgrade(turn, group, [replaced.member_id], joining=member)
    return JoinReply(ErrorCode.NONE, member.member_id, classic.generation, PROTOCOL_TYPE, classic.protocol)


def sync(turn: ConsumerTurn, group: ConsumerGroup, event: SyncGroup) -> SyncReply:
    """The member's assignment. Raises KafkaError."""
    member, classic = _classic_member(group, event.member_id, event.instance_id)
    _check_generation(member, event.generation)
    protocol, metadata = classic.protocols[0]
    if event.protocol_type not in (None, PROTOCOL_TYPE) or event.protocol not in (None, protocol):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        _expect_join(turn, group, member)
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    turn.expect_no_more(SYNC, group, member.member_id)
    turn.await_heartbeat(group, member)
    assignment = encode_assignment(plain(member.assigned), turn.topics, version_of(metadata))
    return SyncReply(ErrorCode.NONE, event.protocol_type, event.protocol, assignment)


def heartbeat(turn: ConsumerTurn, group: ConsumerGroup, event: Heartbeat) -> HeartbeatReply:
    """Raises KafkaError."""
    member, _ = _classic_member(group, event.member_id, event.instance_id)
    _check_generation(member, event.generation)
    turn.await_heartbeat(group, member)
    if member.epoch < group.epoch or member.state is MemberState.UNREVOKED_PARTITIONS or _may_go_on(group, member):
        _expect_join(turn, group, member)
        return HeartbeatReply(ErrorCode.REBALANCE_IN_PROGRESS)
    return HeartbeatReply(ErrorCode.NONE)


def _may_go_on(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether everything that it waited for is free now."""
    target = group.target.get(member.member_id, NO_PARTITIONS)
    return member.state is MemberState.UNRELEASED_PARTITIONS and not is_waiting_for_others(
        member, target, group.is_free
    )


def leave(turn: ConsumerTurn, group: ConsumerGroup, event: LeaveGroup) -> LeaveReply:
    """Each by itself."""
    errors: list[ErrorCode] = []
    gone: dict[str, ConsumerMember] = {}
    for leaving in event.members:
        try:
            member = _leaving(group, leaving)
        except KafkaError as error:
            errors.append(error.code)
            continue
        # A member that is named twice is gone by the second time.
        errors.append(ErrorCode.UNKNOWN_MEMBER_ID if member.member_id in gone else ErrorCode.NONE)
        gone[member.member_id] = member
        logger.info(
            "member left: group=%s member=%s reason=%s",
            group.group_id,
            member.member_id,
            leaving.reason or "none given",
        )
    if gone:
        remove(turn, group, list(gone.values()))
    return LeaveReply(errors)


def _leaving(group: ConsumerGroup, leaving: LeavingMember) -> ConsumerMember:
    if leaving.instance_id is not None and leaving.member_id == UNKNOWN_MEMBER:
        # An administrator removes a static member by its instance id alone, whichever protocol the member speaks.
        member = group.static_member(leaving.instance_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member
    return _classic_member(group, leaving.member_id, leaving.instance_id)[0]


def _identified(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """A member by id and instance id; KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    if instance_id is None:
        return group.member(member_id)
    known = group.static_member(instance_id)
    if known is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if known.member_id != member_id:
        raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
    return known


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicMemberMetadata]:
    member = _identified(group, member_id, instance_id)
    if member.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    return member, member.classic


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)


def _expect_join(turn: ConsumerTurn, group: ConsumerGroup, member: ConsumerMember) -> None:
    """From when it was first told to join again."""
    if not turn.is_expected(JOIN, group, member.member_id):
        turn.expect(JOIN, group, member.member_id, member.rebalance_timeout_ms)
