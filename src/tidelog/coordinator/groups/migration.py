"""From one protocol to the other and back, while a group's members go on consuming.

A classic group of consumers becomes a consumer group when a member joins it by the new protocol: the others stay in it
as they are, with what they were assigned, and are served by the new coordinator in their own language. When the last
member of the new protocol leaves, what remains is a classic group again.

A cooperative member may hold more than it was assigned last: it learns from its SyncGroup what it is to give up, which
may be lost, or under way. What it said in its last JoinGroup that it owns counts as held by it too, until it joins
again; Kafka looks at the assignment alone, and may give such a partition to a second member.

In both directions one batch of records takes the group's one form away and writes the other.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from tidelog.coordinator.groups.classic.group import ClassicGroup, ClassicGroupState
from tidelog.coordinator.groups.classic.members import ClassicMember, Protocol
from tidelog.coordinator.groups.classic.rebalance import fail_waiting, prepare
from tidelog.coordinator.groups.consumer import records
from tidelog.coordinator.groups.consumer.group import ConsumerGroup, target_of
from tidelog.coordinator.groups.consumer.member import ClassicMemberMetadata, ConsumerMember, Partitions, held_at, plain
from tidelog.coordinator.groups.consumer.turn import ConsumerTurn
from tidelog.coordinator.groups.embedded_protocol import (
    by_id,
    encode_assignment,
    parse_assignment,
    parse_subscription,
)
from tidelog.coordinator.groups.topics_view import TopicsView
from tidelog.coordinator.records import CoordinatorRecord
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicId
from tidelog.protocol import messages
from tidelog.protocol.consumer_protocol import PROTOCOL_TYPE, version_of
from tidelog.protocol.errors import ProtocolError

logger = logging.getLogger(__name__)

RECORD_OVERHEAD: Final = 31
"""Bytes of a record in a batch beside its key and value, at most."""


def upgrade(turn: ConsumerTurn, classic: ClassicGroup) -> ConsumerGroup:
    """What the group is as a consumer group, and the records of that; the caller calls `end_classic` when it is sure.

    Raises KafkaError GROUP_ID_NOT_FOUND where the group cannot become one.
    """
    refusal = _upgrade_refusal(turn, classic)
    if refusal is not None:
        logger.info("group stays classic: group=%s reason=%s", classic.group_id, refusal)
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Group {classic.group_id} is not a consumer group, and stays so: {refusal}."
        )
    try:
        members = [_consumer(member, classic, turn.topics) for member in classic.members.values()]
        members = _with_owned(members, classic, turn.topics)
    except ProtocolError as error:
        logger.warning("group stays classic: group=%s reason=%s", classic.group_id, error)
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Group {classic.group_id} cannot become a consumer group: what its members said is malformed.",
        ) from error
    group = ConsumerGroup(classic.group_id)
    end_of_classic = CoordinatorRecord(messages.GroupMetadataKey(group=classic.group_id), None)
    written = [end_of_classic, *_records(classic.group_id, classic.generation, members, turn.wall_ms)]
    for record in written[1:]:
        group.replay(record.key, record.value)
    if any(
        group.owner(topic_id, partition) != member.member_id
        for member in members
        for topic_id, partitions in member.assigned.items()
        for partition in partitions
    ):
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Group {classic.group_id} cannot become a consumer group: a partition is assigned to two members.",
        )
    for record in written:
        turn.write(record)
    for member in members:
        turn.await_heartbeat(group, member)
    logger.info("group becomes a consumer group: group=%s members=%d", classic.group_id, len(members))
    return group


def end_classic(turn: ConsumerTurn, classic: ClassicGroup) -> None:
    """Members that wait for the classic group's rebalance are to join anew, and the group is no more."""
    fail_waiting(turn.as_classic(), classic, ErrorCode.REBALANCE_IN_PROGRESS)
    turn.groups.pop(classic.group_id, None)


def _upgrade_refusal(turn: ConsumerTurn, classic: ClassicGroup) -> str | None:
    if not turn.settings.may_upgrade:
        return "group.consumer.migration.policy does not allow it"
    if classic.protocol_type != PROTOCOL_TYPE:
        return f"its members are of type {classic.protocol_type!r}"
    if len(classic.members) > turn.settings.group_size_max:
        return "it has more members than a consumer group may have"
    return None


def _consumer(member: ClassicMember, classic: ClassicGroup, topics: TopicsView) -> ConsumerMember:
    """The member of the classic group as one of a consumer group; ProtocolError."""
    subscription = _subscription(member, classic)
    return ConsumerMember(
        member.member_id,
        epoch=classic.generation,
        previous_epoch=classic.generation,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(subscription.topics),
        classic=ClassicMemberMetadata(
            member.session_timeout_ms, tuple((name, data) for name, data in member.protocols)
        ),
        assigned=held_at(by_id(parse_assignment(member.assignment), topics), classic.generation),
    )


def _with_owned(members: list[ConsumerMember], classic: ClassicGroup, topics: TopicsView) -> list[ConsumerMember]:
    """The members of a classic group, each also with what it owns by its last JoinGroup, unless that is assigned to
    another one; what several own is that of the newest generation's. ProtocolError.
    """
    owners: dict[tuple[TopicId, int], str] = {}
    for member in members:
        _note(owners, member.member_id, plain(member.assigned))
    subscriptions = {member_id: _subscription(member, classic) for member_id, member in classic.members.items()}
    for member_id, told in sorted(subscriptions.items(), key=lambda each: each[1].generation_id, reverse=True):
        owned = {topic.topic: frozenset(topic.partitions) for topic in told.owned_partitions}
        _note(owners, member_id, by_id(owned, topics))
    held: dict[str, dict[TopicId, dict[int, int]]] = {
        member.member_id: {topic_id: dict(each) for topic_id, each in member.assigned.items()} for member in members
    }
    epochs = {member.member_id: member.epoch for member in members}
    for (topic_id, partition), member_id in sorted(owners.items()):
        held[member_id].setdefault(topic_id, {}).setdefault(partition, epochs[member_id])
    return [replace(member, assigned=held[member.member_id]) for member in members]


def _note(owners: dict[tuple[TopicId, int], str], member_id: str, partitions: Partitions) -> None:
    for topic_id, each in partitions.items():
        for partition in each:
            owners.setdefault((topic_id, partition), member_id)


def _subscription(member: ClassicMember, classic: ClassicGroup) -> messages.ConsumerProtocolSubscription:
    """What the member said for the protocol by which the group goes; ProtocolError."""
    protocol = classic.protocol
    if protocol is None:
        # No generation was completed yet.
        protocol = member.protocols[0].name if member.protocols else ""
    return parse_subscription(member.metadata(protocol))


def _records(group_id: str, epoch: int, members: Collection[ConsumerMember], wall_ms: int) -> list[CoordinatorRecord]:
    """A consumer group in which every member has what it is to have; in Kafka's order."""
    targets: dict[str, Partitions] = {
        member.member_id: {topic_id: frozenset(each) for topic_id, each in member.assigned.items()}
        for member in members
    }
    return [
        *(records.member_metadata(group_id, member) for member in members),
        records.group_epoch(group_id, epoch, 0),
        *(records.target(group_id, member_id, target) for member_id, target in targets.items()),
        # The next target is due at once: a member that joins is the reason for all this.
        records.target_epoch(group_id, epoch, 0),
        *(records.current(group_id, member) for member in members),
    ]


def fit(turn: ConsumerTurn, records: Iterable[CoordinatorRecord], more: int = 0) -> bool:
    """Whether a batch holds the records, with `more` bytes. A migration is one batch, or half of it might be lost; to
    find out by an append would cost all groups of the partition what is not in the log."""
    size = more
    for record in records:
        key, value = record.encode()
        size += RECORD_OVERHEAD + len(key) + len(value or b"")
    return size <= turn.all_settings.group_record_max_bytes


def can_downgrade(turn: ConsumerTurn, group: ConsumerGroup, leaving: Collection[str], joining: int = 0) -> bool:
    """Whether the group, without `leaving` and with that many new classic members, is to be classic."""
    remaining = len(group.members) - len(leaving) + joining
    return (
        turn.settings.may_downgrade
        and 0 < remaining <= turn.all_settings.group_max_size
        and group.is_classic_without(leaving)
    )


def downgrade(
    turn: ConsumerTurn, group: ConsumerGroup, leaving: Collection[str], joining: ConsumerMember | None = None
) -> ClassicGroup:
    """Makes the group classic; `joining` takes the place of the one of `leaving` that has its instance id.

    A group in which all have what they are to have keeps its assignment; in any other a member's is what it holds, and
    a rebalance follows, as it does where a member left. Raises ProtocolError, and has done nothing then, where what a
    member said is malformed, or all of it together fits no batch.
    """
    classic = ClassicGroup(group.group_id, turn.deadlines, turn.wall_ms)
    classic.generation = group.epoch
    members = [member for member_id, member in group.members.items() if member_id not in leaving]
    settled = group.epoch == group.assignment_epoch and all(
        member.is_reconciled_to(group.assignment_epoch) for member in members
    )
    for member in (*members, *([] if joining is None else [joining])):
        assert member.classic is not None, "only members that speak the classic protocol are left"
        protocols = [Protocol(name, data) for name, data in member.classic.protocols]
        # A target's partition may still be another member's, and if the group is upgraded again before its next
        # generation, what stands here is taken for what members hold.
        share = target_of(group, member.member_id, member.instance_id) if settled else _held(member)
        assignment = encode_assignment(share, turn.topics, version_of(protocols[0].metadata))
        classic.add(
            ClassicMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.classic.session_timeout_ms,
                member.rebalance_timeout_ms,
                protocols,
                assignment,
            ),
            PROTOCOL_TYPE,
        )
    classic.protocol = classic.elected_protocol()
    classic.state = ClassicGroupState.STABLE
    as_classic = turn.as_classic()
    end = group.tombstones()
    if not fit(turn, end, classic.record_size):
        raise ProtocolError(f"{len(classic.members)} members are too many for one batch of records")
    for member_id in group.members:
        turn.forget(group, member_id)
    for record in end:
        turn.write(record)
    as_classic.record(classic)
    turn.groups[group.group_id] = classic
    for classic_member in classic.members.values():
        as_classic.expect_member(classic, classic_member)
    logger.info("group becomes classic: group=%s members=%d", group.group_id, len(classic.members))
    if joining is None or not settled:
        prepare(as_classic, classic, "the last member of the newer protocol left")
    return classic


def _held(member: ConsumerMember) -> Partitions:
    """What the member holds, whether it is to give it up or not."""
    held = dict(plain(member.assigned))
    for topic_id, partitions in plain(member.pending_revocation).items():
        held[topic_id] = held.get(topic_id, frozenset()) | partitions
    return held
