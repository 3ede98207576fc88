"""The records of consumer groups (KIP-848), types 3 to 8 and 16 of `__consumer_offsets`.

Kafka 4.3 writes no ConsumerGroupPartitionMetadata any more, but a tombstone where a former release left one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tidelog.coordinator.groups.consumer.member import (
    ClassicMemberMetadata,
    ConsumerMember,
    HeldPartitions,
    MemberState,
    Partitions,
)
from tidelog.coordinator.records import CoordinatorRecord
from tidelog.model.identifiers import TopicId
from tidelog.protocol import messages

_Member = messages.ConsumerGroupMemberMetadataValue
_Current = messages.ConsumerGroupCurrentMemberAssignmentValue
_Target = messages.ConsumerGroupTargetAssignmentMemberValue


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    key = messages.ConsumerGroupMetadataKey(group_id=group_id)
    return CoordinatorRecord(key, messages.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash))


def no_group(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(messages.ConsumerGroupMetadataKey(group_id=group_id), None)


def no_partition_metadata(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(messages.ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_metadata(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """The member's names and what it wants."""
    classic = member.classic
    value = _Member(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.pattern,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=None
        if classic is None
        else _Member.ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                _Member.ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols
            ],
        ),
    )
    return CoordinatorRecord(
        messages.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value
    )


def with_metadata(member: ConsumerMember, value: messages.ConsumerGroupMemberMetadataValue) -> ConsumerMember:
    """The member as the record says."""
    classic = value.classic_member_metadata
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=frozenset(value.subscribed_topic_names),
        pattern=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=None
        if classic is None
        else ClassicMemberMetadata(
            classic.session_timeout_ms, tuple((each.name, bytes(each.metadata)) for each in classic.supported_protocols)
        ),
    )


def no_member_metadata(group_id: str, member_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(messages.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)


def target_epoch(group_id: str, epoch: int, wall_ms: int) -> CoordinatorRecord:
    """The target of that group epoch is complete; computed at `wall_ms`."""
    key = messages.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
    value = messages.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=wall_ms)
    return CoordinatorRecord(key, value)


def no_target_epoch(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(messages.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None)


def target(group_id: str, member_id: str, partitions: Partitions) -> CoordinatorRecord:
    """What the member is to have."""
    key = messages.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    topic_partitions = [
        _Target.TopicPartition(topic_id=topic_id, partitions=sorted(each))
        for topic_id, each in sorted(partitions.items())
    ]
    return CoordinatorRecord(key, _Target(topic_partitions=topic_partitions))


def target_of(value: messages.ConsumerGroupTargetAssignmentMemberValue) -> dict[TopicId, frozenset[int]]:
    return {TopicId(bytes(each.topic_id)): frozenset(each.partitions) for each in value.topic_partitions}


def no_target(group_id: str, member_id: str) -> CoordinatorRecord:
    key = messages.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return CoordinatorRecord(key, None)


def current(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """How far the member is, and what it holds."""
    value = _Current(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=int(member.state),
        assigned_partitions=_held_records(member.assigned),
        partitions_pending_revocation=_held_records(member.pending_revocation),
    )
    key = messages.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return CoordinatorRecord(key, value)


def with_current(member: ConsumerMember, value: messages.ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
    """The member as the record says."""
    try:
        state = MemberState(value.state)
    except ValueError:
        state = MemberState.UNKNOWN
    # Records of former releases have no epochs: what they gave is taken for given with the member's epoch.
    since = max(value.member_epoch, 0)
    return replace(
        member,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=state,
        assigned=_held(value.assigned_partitions, since),
        pending_revocation=_held(value.partitions_pending_revocation, since),
    )


def no_current(group_id: str, member_id: str) -> CoordinatorRecord:
    key = messages.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    return CoordinatorRecord(key, None)


def pattern(group_id: str, text: str, topics: Iterable[str], version: int, wall_ms: int) -> CoordinatorRecord:
    """The topics that a regular expression stood for, in that version of the metadata."""
    key = messages.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=text)
    value = messages.ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=version, timestamp=wall_ms)
    return CoordinatorRecord(key, value)


def no_pattern(group_id: str, text: str) -> CoordinatorRecord:
    key = messages.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=text)
    return CoordinatorRecord(key, None)


def _held_records(held: HeldPartitions) -> list[messages.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]:
    return [
        _Current.TopicPartitions(
            topic_id=topic_id,
            partitions=sorted(partitions),
            assignment_epochs=[partitions[partition] for partition in sorted(partitions)],
        )
        for topic_id, partitions in sorted(held.items())
    ]


def _held(
    records: Iterable[messages.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions], since: int
) -> dict[TopicId, dict[int, int]]:
    held: dict[TopicId, dict[int, int]] = {}
    for each in records:
        epochs = each.assignment_epochs
        if epochs is None or len(epochs) != len(each.partitions):
            epochs = [since] * len(each.partitions)
        if each.partitions:
            held[TopicId(bytes(each.topic_id))] = dict(zip(each.partitions, epochs, strict=True))
    return held
