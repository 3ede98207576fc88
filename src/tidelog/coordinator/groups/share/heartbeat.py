"""ShareGroupHeartbeat: a member joins, says that it lives, or leaves (KIP-932).

    what it subscribes to --> group epoch --> target --> what the member has
                                  ^
    partitions without stored state: the answer names them, the shell has state made, and says so

A partition is given out once its state is stored. A refusal is a KafkaError, after which nothing of what was decided
holds.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tidelog.coordinator.groups.consumer.change import NAME_LENGTH_MAX
from tidelog.coordinator.groups.consumer.member import NO_PARTITIONS, Partitions
from tidelog.coordinator.groups.share import records
from tidelog.coordinator.groups.share.assignment import assign
from tidelog.coordinator.groups.share.events import ShareHeartbeat, ShareHeartbeatReply
from tidelog.coordinator.groups.share.group import ShareGroup
from tidelog.coordinator.groups.share.records import ShareMember, united, without
from tidelog.coordinator.groups.share.turn import ShareTurn
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicId

logger = logging.getLogger(__name__)

JOINING_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
MEMBER_ID_LENGTH_MAX: Final = 36
"""Characters of a UUID with its hyphens, as in Kafka."""
RETRY_MS: Final = 200
"""When a member asks again that has no partition yet, because state is being made or the target is too young."""


def heartbeat(turn: ShareTurn, event: ShareHeartbeat) -> ShareHeartbeatReply:
    """Raises KafkaError: INVALID_REQUEST, GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID,
    FENCED_MEMBER_EPOCH.
    """
    _check(turn, event)
    group = turn.group(event.group, joins=event.epoch == JOINING_EPOCH)
    if event.epoch == LEAVE_EPOCH:
        remove(turn, group, group.member(event.member_id))
        return ShareHeartbeatReply(ErrorCode.NONE, member_id=event.member_id, epoch=LEAVE_EPOCH)
    before = _member(turn, group, event)
    after = _as_told(before, event)
    members = {**group.members, event.member_id: after}
    if after != before:
        turn.write(records.member_metadata(event.group, after))
    if before is None:
        logger.info("member joined: group=%s member=%s", event.group, event.member_id)
    epoch = _advance(turn, group, members, is_needed=before is None or before.topics != after.topics)
    target, assignment_epoch = _assigned(turn, group, members, epoch)
    moved = _moved(after, target.get(event.member_id, NO_PARTITIONS), assignment_epoch)
    if moved != after or before is None:
        turn.write(records.current(event.group, moved))
    to_initialize = _to_initialize(turn, group, members, epoch)
    names = frozenset[str]().union(*(member.topics for member in members.values()))
    to_confirm = turn.confirm_state(event.group, assignable(turn, group, names))
    turn.await_heartbeat(group.group_id, event.member_id)
    must_tell = event.epoch == JOINING_EPOCH or event.topics is not None or moved.assigned != after.assigned
    is_waiting = epoch > assignment_epoch or bool(group.stored.initializing) or bool(to_initialize)
    interval_ms = turn.settings_of(event.group).heartbeat_interval_ms
    return ShareHeartbeatReply(
        ErrorCode.NONE,
        member_id=event.member_id,
        epoch=moved.epoch,
        interval_ms=min(interval_ms, RETRY_MS) if is_waiting and not moved.assigned else interval_ms,
        assignment=moved.assigned if must_tell else None,
        to_initialize=to_initialize,
        state_epoch=epoch,
        to_confirm=to_confirm,
    )


def remove(turn: ShareTurn, group: ShareGroup, member: ShareMember) -> None:
    """Takes a member out: the next heartbeat of another one computes a new target."""
    group_id, member_id = group.group_id, member.member_id
    turn.write(records.no_current(group_id, member_id))
    turn.write(records.no_target(group_id, member_id))
    turn.write(records.no_member_metadata(group_id, member_id))
    turn.expect_no_more(group_id, member_id)
    others = [each for each in group.members.values() if each.member_id != member_id]
    names = frozenset[str]().union(*(each.topics for each in others))
    turn.write(records.group_epoch(group_id, group.epoch + 1, turn.topics.hash_of(names)))


def _check(turn: ShareTurn, event: ShareHeartbeat) -> None:
    reason: str | None = None
    for name, text in (("GroupId", event.group), ("RackId", event.rack_id)):
        if text is not None and not text.strip():
            reason = f"{name} can't be empty."
        elif text is not None and len(text) > NAME_LENGTH_MAX:
            reason = f"{name} is longer than {NAME_LENGTH_MAX} characters."
    if not event.member_id.strip():
        reason = "MemberId can't be empty."
    elif len(event.member_id) > MEMBER_ID_LENGTH_MAX:
        reason = f"MemberId is longer than {MEMBER_ID_LENGTH_MAX} characters."
    elif event.epoch < LEAVE_EPOCH:
        reason = "MemberEpoch is invalid."
    elif event.epoch == JOINING_EPOCH and not event.topics:
        reason = "SubscribedTopicNames must be set in first request."
    elif event.topics and sum(map(len, event.topics)) > turn.all_settings.subscription_length_max:
        reason = "SubscribedTopicNames are too long together."
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)


def _member(turn: ShareTurn, group: ShareGroup, event: ShareHeartbeat) -> ShareMember | None:
    """The member as it is; None for one that joins."""
    known = group.members.get(event.member_id)
    if event.epoch == JOINING_EPOCH:
        if known is None and len(group.members) >= turn.settings_of(event.group).group_size_max:
            size = turn.settings_of(event.group).group_size_max
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED, f"The share group has reached its maximum capacity of {size} members."
            )
        return known
    member = group.member(event.member_id)
    if event.epoch not in (member.epoch, member.previous_epoch):
        comparison = "greater" if event.epoch > member.epoch else "smaller"
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member has a {comparison} member epoch ({event.epoch}) than the one known by the group"
            f" coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
        )
    return member


def _as_told(before: ShareMember | None, event: ShareHeartbeat) -> ShareMember:
    """The member with what it says about itself now; what it leaves out stays."""
    member = before or ShareMember(event.member_id)
    return replace(
        member,
        rack_id=member.rack_id if event.rack_id is None else event.rack_id,
        client_id=event.client_id,
        client_host=event.client_host,
        topics=member.topics if event.topics is None else event.topics,
    )


def _advance(turn: ShareTurn, group: ShareGroup, members: Mapping[str, ShareMember], *, is_needed: bool) -> int:
    """The group's epoch, raised where that is needed: topics changed, or partitions can be given out by now."""
    names = frozenset[str]().union(*(member.topics for member in members.values()))
    metadata_hash = turn.topics.hash_of(names)
    target: Partitions = NO_PARTITIONS
    for each in group.target.values():
        target = united(target, each)
    is_pending = group.epoch <= group.assignment_epoch and bool(without(assignable(turn, group, names), target))
    if not is_needed and metadata_hash == group.metadata_hash and not is_pending:
        return group.epoch
    turn.write(records.group_epoch(group.group_id, group.epoch + 1, metadata_hash))
    return group.epoch + 1


def assignable(turn: ShareTurn, group: ShareGroup, names: frozenset[str]) -> Partitions:
    """Partitions of these topics whose state is stored."""
    existing = subscribed(turn, names)
    return {
        topic_id: each & existing[topic_id]
        for topic_id, each in group.stored.initialized.items()
        if topic_id in existing and each & existing[topic_id]
    }


def subscribed(turn: ShareTurn, names: frozenset[str]) -> Partitions:
    """All partitions of those of the topics that exist."""
    topics = turn.topics.topics
    found = [topics[name] for name in sorted(names & topics.keys())]
    return {topic.topic_id: frozenset(range(topic.layout.partitions)) for topic in found}


def _assigned(
    turn: ShareTurn, group: ShareGroup, members: Mapping[str, ShareMember], epoch: int
) -> tuple[Mapping[str, Partitions], int]:
    """(the target, its epoch), a new one where the group's epoch was raised, unless the last one is too young."""
    if epoch <= group.assignment_epoch:
        return group.target, group.assignment_epoch
    age_ms = turn.wall_ms - group.assigned_at_ms
    if any(group.target.values()) and 0 <= age_ms < turn.settings_of(group.group_id).assignment_interval_ms:
        return group.target, group.assignment_epoch
    topics = turn.topics.topics
    subscriptions: dict[str, set[TopicId]] = {
        member_id: {topics[name].topic_id for name in member.topics if name in topics}
        for member_id, member in members.items()
    }
    names = frozenset[str]().union(*(member.topics for member in members.values()))
    target = assign(subscriptions, assignable(turn, group, names), group.target)
    for member_id, partitions in target.items():
        if group.target.get(member_id) != partitions:
            turn.write(records.target(group.group_id, member_id, partitions))
    turn.write(records.target_epoch(group.group_id, epoch, turn.wall_ms))
    return target, epoch


def _moved(member: ShareMember, target: Partitions, assignment_epoch: int) -> ShareMember:
    """The member with what it is to have."""
    if member.epoch == assignment_epoch:
        return member
    return replace(member, epoch=assignment_epoch, previous_epoch=member.epoch, assigned=target)


def _to_initialize(
    turn: ShareTurn, group: ShareGroup, members: Mapping[str, ShareMember], state_epoch: int
) -> Partitions:
    """Partitions that are subscribed to and have no state yet; those that wait for it too long are named again."""
    names = frozenset[str]().union(*(member.topics for member in members.values()))
    wanted = without(subscribed(turn, names), group.stored.initialized)
    under_way = {
        topic_id: frozenset(each for each in partitions if turn.awaits_state(group.group_id, topic_id, each))
        for topic_id, partitions in group.stored.initializing.items()
    }
    fresh = without(wanted, under_way)
    if not fresh:
        return NO_PARTITIONS
    after = group.stored.begun(fresh, turn.topics.names)
    if after != group.stored:
        turn.write(records.stored_state(group.group_id, after))
    turn.ask_for_state(group.group_id, fresh, state_epoch)
    return fresh
