"""Kafka's own records of consumer groups are read, and written back byte for byte."""

from __future__ import annotations

from tidelog.coordinator.groups.consumer import records
from tidelog.coordinator.groups.consumer.group import ConsumerGroup
from tidelog.coordinator.groups.consumer.member import ConsumerMember, MemberState
from tidelog.coordinator.records import decode_record
from tidelog.model.identifiers import TopicId
from tidelog.protocol import messages
from tidelog.protocol.coordinator_records import CONSUMER_OFFSETS

ONE, TWO = TopicId(b"1" * 16), TopicId(b"2" * 16)


def test_a_member_survives_its_records() -> None:
    """What is written of a member makes the same member."""
    member = ConsumerMember(
        "m",
        epoch=7,
        previous_epoch=5,
        state=MemberState.UNREVOKED_PARTITIONS,
        instance_id="i",
        rack_id="r",
        rebalance_timeout_ms=60_000,
        client_id="c",
        client_host="/h",
        topics=frozenset({"b", "a"}),
        pattern="x.*",
        assignor="range",
        assigned={ONE: {0: 3, 2: 7}},
        pending_revocation={TWO: {1: 5}},
    )
    group = ConsumerGroup("g")
    for record in (records.member_metadata("g", member), records.current("g", member)):
        key, value = record.encode()
        read = decode_record(CONSUMER_OFFSETS, key, value)
        group.replay(read.key, read.value)
    assert group.members == {"m": member}
    assert group.owner(TWO, 1) == group.owner(ONE, 2) == "m"


def test_records_of_former_releases() -> None:
    """Without assignment epochs what a member holds counts from its own epoch; states of later ones are not known."""
    kind = messages.ConsumerGroupCurrentMemberAssignmentValue
    value = kind(member_epoch=4, state=9, assigned_partitions=[kind.TopicPartitions(topic_id=ONE, partitions=[1, 2])])
    member = records.with_current(ConsumerMember("m"), value)
    assert (member.assigned, member.state) == ({ONE: {1: 4, 2: 4}}, MemberState.UNKNOWN)


def test_a_former_releases_list_of_topics_goes() -> None:
    """Its tombstone comes with the group's own."""
    group = ConsumerGroup("g")
    key = messages.ConsumerGroupPartitionMetadataKey(group_id="g")
    group.replay(key, messages.ConsumerGroupPartitionMetadataValue())
    assert records.no_partition_metadata("g") in group.tombstones()
