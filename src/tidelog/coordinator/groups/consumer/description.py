"""A consumer group as ConsumerGroupDescribe shows it."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.coordinator.groups.consumer.events import DescribedConsumer, DescribedConsumerGroup, NamedPartitions
from tidelog.coordinator.groups.consumer.group import ConsumerGroup
from tidelog.coordinator.groups.consumer.member import NO_PARTITIONS, ConsumerMember, plain
from tidelog.coordinator.groups.topics_view import TopicsView
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicId


def described(group: ConsumerGroup, topics: TopicsView, default_assignor: str) -> DescribedConsumerGroup:
    """The group with all its members; partitions of topics that have gone are left out."""
    return DescribedConsumerGroup(
        ErrorCode.NONE,
        group.group_id,
        state=group.state,
        epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor=group.assignor or default_assignor,
        members=[_described(group, member, topics) for member in group.members.values()],
    )


def _described(group: ConsumerGroup, member: ConsumerMember, topics: TopicsView) -> DescribedConsumer:
    return DescribedConsumer(
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.client_host,
        sorted(member.topics),
        member.pattern,
        member.classic is not None,
        _named(plain(member.assigned), topics),
        _named(group.target.get(member.member_id, NO_PARTITIONS), topics),
    )


def _named(partitions: Mapping[TopicId, frozenset[int]], topics: TopicsView) -> list[NamedPartitions]:
    named = [
        NamedPartitions(topic_id, topics.names[topic_id], sorted(each))
        for topic_id, each in partitions.items()
        if topic_id in topics.names
    ]
    return sorted(named, key=lambda each: each.topic)
