"""ConsumerGroupHeartbeat: a member joins, says that it lives and what it owns, or leaves (KIP-848).

Most heartbeats find nothing to do: they move a deadline and write nothing. The others take the group through the steps
of `change`. A refusal is a KafkaError, after which nothing of what was decided holds.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from tidelog.coordinator.groups.classic.group import ClassicGroup, ClassicGroupState
from tidelog.coordinator.groups.consumer import records
from tidelog.coordinator.groups.consumer.change import (
    NAME_LENGTH_MAX,
    GroupChange,
    assignment_delay_ms,
    check_room,
    remove,
    replace_static,
)
from tidelog.coordinator.groups.consumer.events import ConsumerHeartbeat, ConsumerHeartbeatReply
from tidelog.coordinator.groups.consumer.group import ConsumerGroup
from tidelog.coordinator.groups.consumer.member import (
    JOINING_EPOCH,
    LEAVE_EPOCH,
    NOTHING_HELD,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    Partitions,
    id_of,
    plain,
)
from tidelog.coordinator.groups.consumer.turn import JOIN, REBALANCE, SYNC, ConsumerTurn
from tidelog.coordinator.groups.migration import can_downgrade, downgrade, end_classic, fit, upgrade
from tidelog.coordinator.records import CoordinatorRecord
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.errors import ProtocolError

logger = logging.getLogger(__name__)

OWN_ID_SINCE: Final = 1
"""Version from which members draw their ids."""
RETRY_MS_MIN: Final = 100
"""Least wait of a member for a target that is about to be computed."""


def heartbeat(turn: ConsumerTurn, event: ConsumerHeartbeat) -> ConsumerHeartbeatReply:
    """Raises KafkaError: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR, GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED,
    UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID, FENCED_INSTANCE_ID, INVALID_REGULAR_EXPRESSION.
    """
    found = turn.groups.get(event.group)
    if isinstance(found, ConsumerGroup) and _has_no_news(turn, found, event):
        turn.await_heartbeat(found, found.members[event.member_id])
        return ConsumerHeartbeatReply(
            ErrorCode.NONE,
            member_id=event.member_id,
            epoch=event.epoch,
            interval_ms=turn.settings_of(event.group).heartbeat_interval_ms,
        )
    _check(turn, event)
    if event.epoch < JOINING_EPOCH:
        return _leave(turn, event)
    former = turn.groups.get(event.group)
    group = _group(turn, event.group, joins=event.epoch == JOINING_EPOCH)
    member_id = event.member_id or event.new_member_id
    check_room(turn, group, member_id)
    before, replaced = _member(group, event, member_id)
    change = GroupChange(turn, group, before, _as_told(before, event, member_id), id_of(replaced), event.rights)
    if replaced is not None and before is not None:
        replace_static(turn, group, replaced, before)
    change.advance(is_needed=change.subscribe())
    change.assign()
    is_behind = before is not None and JOINING_EPOCH < event.epoch < before.epoch
    after = change.move(event.owned, event.epoch if is_behind else None)
    if isinstance(former, ClassicGroup):
        if not fit(turn, turn.result.writes):
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Group {event.group} is not a consumer group, and has too many members to become one.",
            )
        end_classic(turn, former)
    if before is None:
        logger.info("member joined: group=%s member=%s instance=%s", event.group, member_id, event.instance_id)
    elif before.classic is not None:
        turn.expect_no_more(JOIN, group, member_id)
        turn.expect_no_more(SYNC, group, member_id)
    turn.await_heartbeat(group, after)
    return ConsumerHeartbeatReply(
        ErrorCode.NONE,
        member_id=member_id,
        epoch=after.epoch,
        interval_ms=_interval_ms(turn, change),
        assignment=plain(after.assigned) if _must_tell(event, before, after) else None,
    )


def _has_no_news(turn: ConsumerTurn, group: ConsumerGroup, event: ConsumerHeartbeat) -> bool:
    """Whether a member that has its whole target only says that it lives: nearly all heartbeats of a large group."""
    member = group.members.get(event.member_id)
    return (
        member is not None
        and member.epoch == event.epoch == group.epoch
        and member.is_reconciled_to(group.assignment_epoch)
        and group.topics_seen is turn.topics
        and (not group.patterns or group.is_resolved_by(turn.topics, event.rights))
        and all(told is None for told in (event.topics, event.pattern, event.assignor, event.rack_id))
        and event.rebalance_timeout_ms < 0
        and event.instance_id == member.instance_id
        and event.client_id == member.client_id
        and event.client_host == member.client_host
        and member.classic is None
    )


def _check(turn: ConsumerTurn, event: ConsumerHeartbeat) -> None:
    """What can be said without knowing the group."""
    reason = _complaint(event, turn.all_settings.subscription_length_max)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    if event.assignor is not None and event.assignor not in turn.settings.assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {event.assignor} is not supported. Supported assignors: "
            f"{', '.join(turn.settings.assignors)}.",
        )


def _complaint(event: ConsumerHeartbeat, subscription_length_max: int) -> str | None:
    for name, text in (("GroupId", event.group), ("InstanceId", event.instance_id), ("RackId", event.rack_id)):
        if text is not None and not text.strip():
            return f"{name} can't be empty."
        if text is not None and len(text) > NAME_LENGTH_MAX:
            return f"{name} is longer than {NAME_LENGTH_MAX} characters."
    if len(event.member_id) > NAME_LENGTH_MAX:
        return f"MemberId is longer than {NAME_LENGTH_MAX} characters."
    if event.topics is not None and sum(map(len, event.topics)) > subscription_length_max:
        return f"SubscribedTopicNames are longer than {subscription_length_max} characters together."
    if not event.member_id and (event.version >= OWN_ID_SINCE or event.epoch != JOINING_EPOCH):
        return "MemberId can't be empty."
    if event.epoch < STATIC_LEAVE_EPOCH:
        return f"MemberEpoch is invalid: {event.epoch}."
    if event.epoch == STATIC_LEAVE_EPOCH and event.instance_id is None:
        return "InstanceId can't be null."
    if event.epoch == JOINING_EPOCH:
        if event.rebalance_timeout_ms < 0:
            return "RebalanceTimeoutMs must be provided in first request."
        if event.owned is None or event.owned:
            return "TopicPartitions must be empty when (re-)joining."
        if event.topics is None and event.pattern is None:
            return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    return None


# The group and the member.


def _group(turn: ConsumerTurn, group_id: str, *, joins: bool) -> ConsumerGroup:
    """The consumer group; a new one, or what a classic one becomes, if a member joins."""
    group = turn.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return group
    if group is None:
        if not joins:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
        return ConsumerGroup(group_id)
    if not joins or not isinstance(group, ClassicGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    if group.state is ClassicGroupState.EMPTY:
        if group.recorded is not None:
            turn.write(CoordinatorRecord(messages.GroupMetadataKey(group=group_id), None))
        return ConsumerGroup(group_id)
    return upgrade(turn, group)


def _member(
    group: ConsumerGroup, event: ConsumerHeartbeat, member_id: str
) -> tuple[ConsumerMember | None, ConsumerMember | None]:
    """(the member as it is, None if new; the former self of a static one that came back with another id)"""
    joins = event.epoch == JOINING_EPOCH
    if event.instance_id is None:
        if joins:
            return group.members.get(member_id), None
        member = group.member(member_id)
    else:
        known = group.static_member(event.instance_id)
        if joins:
            return _static_member(group, event, member_id, known)
        member = _check_instance(known, event)
    _check_epoch(member, event.epoch, event.owned)
    return member, None


def _static_member(
    group: ConsumerGroup, event: ConsumerHeartbeat, member_id: str, known: ConsumerMember | None
) -> tuple[ConsumerMember | None, ConsumerMember | None]:
    """A static member joins: for the first time, once more, or in its former self's place."""
    if known is None or known.member_id == member_id:
        return known or group.members.get(member_id), None
    if known.classic is None and known.epoch != STATIC_LEAVE_EPOCH:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {event.instance_id} cannot join the group because the"
            f" instance id is owned by {known.member_id} member.",
        )
    return replace(known, member_id=member_id, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH), known


def _check_instance(known: ConsumerMember | None, event: ConsumerHeartbeat) -> ConsumerMember:
    if known is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {event.instance_id} is unknown.")
    if known.member_id != event.member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {event.member_id} with instance id {event.instance_id} was fenced by member"
            f" {known.member_id}.",
        )
    return known


def _check_epoch(member: ConsumerMember, epoch: int, owned: Partitions | None) -> None:
    """The member's epoch, or the one before: the answer with the new one may have been lost. Then it may own no more
    than is kept for it: what it has been given, and what it is to give back. Kafka fences it for the latter."""
    if epoch == member.epoch:
        return
    if epoch < member.epoch and epoch == member.previous_epoch and _is_within(owned, member):
        return
    comparison = "greater" if epoch > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {comparison} member epoch ({epoch}) than the one known by the group"
        f" coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _is_within(owned: Partitions | None, member: ConsumerMember) -> bool:
    if owned is None:
        return False
    given, to_give_back = member.assigned, member.pending_revocation
    return all(
        partitions <= given.get(topic_id, {}).keys() | to_give_back.get(topic_id, {}).keys()
        for topic_id, partitions in owned.items()
    )


def _as_told(before: ConsumerMember | None, event: ConsumerHeartbeat, member_id: str) -> ConsumerMember:
    """The member with what it says about itself now; what it leaves out stays."""
    member = before or ConsumerMember(member_id)
    return replace(
        member,
        instance_id=member.instance_id if event.instance_id is None else event.instance_id,
        rack_id=member.rack_id if event.rack_id is None else event.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if event.rebalance_timeout_ms < 0 else event.rebalance_timeout_ms
        ),
        client_id=event.client_id,
        client_host=event.client_host,
        topics=member.topics if event.topics is None else event.topics,
        pattern=member.pattern if event.pattern is None else event.pattern,
        assignor=member.assignor if event.assignor is None else event.assignor,
        classic=None,
    )


# The answer.


def _interval_ms(turn: ConsumerTurn, change: GroupChange) -> int:
    """A member that waits for the next target comes back when it is there, not a whole interval later."""
    interval_ms = turn.settings_of(change.group.group_id).heartbeat_interval_ms
    if change.epoch <= change.assignment_epoch:
        return interval_ms
    return min(interval_ms, max(RETRY_MS_MIN, assignment_delay_ms(turn, change.group)))


def _must_tell(event: ConsumerHeartbeat, before: ConsumerMember | None, after: ConsumerMember) -> bool:
    """Whether the answer has the assignment: it changed, or the member told all there is, as it does to begin anew."""
    subscribes = event.topics is not None or event.pattern is not None
    if event.epoch == JOINING_EPOCH or (event.rebalance_timeout_ms >= 0 and subscribes and event.owned is not None):
        return True
    assert before is not None, "a new member joins with epoch 0"
    return before.assigned is not after.assigned and plain(before.assigned) != plain(after.assigned)


# Leaving.


def _leave(turn: ConsumerTurn, event: ConsumerHeartbeat) -> ConsumerHeartbeatReply:
    group = _group(turn, event.group, joins=False)
    if event.instance_id is None:
        member = group.member(event.member_id)
    else:
        member = _check_instance(group.static_member(event.instance_id), event)
    logger.info("member left: group=%s member=%s epoch=%d", event.group, member.member_id, event.epoch)
    if event.epoch == LEAVE_EPOCH:
        fence(turn, group, [member])
    else:
        # Kept for it until its session ends: it is about to be back, with another member id.
        away = replace(
            member,
            epoch=STATIC_LEAVE_EPOCH,
            previous_epoch=STATIC_LEAVE_EPOCH,
            assigned={topic_id: dict.fromkeys(each, 0) for topic_id, each in member.assigned.items()},
            pending_revocation=NOTHING_HELD,
        )
        turn.write(records.current(group.group_id, away))
        turn.expect_no_more(REBALANCE, group, member.member_id)
    return ConsumerHeartbeatReply(ErrorCode.NONE, member_id=event.member_id, epoch=event.epoch)


def fence(turn: ConsumerTurn, group: ConsumerGroup, members: Collection[ConsumerMember]) -> None:
    """Takes members out, for whatever reason; the group is classic then if no member speaks the newer protocol."""
    leaving = [member.member_id for member in members]
    if can_downgrade(turn, group, leaving):
        try:
            downgrade(turn, group, leaving)
        except ProtocolError as error:
            logger.warning("group stays a consumer group: group=%s reason=%s", group.group_id, error)
        else:
            return
    remove(turn, group, list(members))
