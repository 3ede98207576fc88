"""The target assignment of a consumer group: which member is to have what, computed when the group's epoch was raised.

The assignor sees each member's former target as what it owns, and so keeps what it can of it. Its cost grows with
members and partitions; that is why it runs for a group at most once in group.consumer.assignment.interval.ms, and for a
large one in steps (`computation`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidelog.assignors import BROKERS
from tidelog.assignors.assignor import MemberId, Subscription
from tidelog.assignors.steps import Pace, Steps, at_once
from tidelog.coordinator.groups.consumer.group import ResolvedPattern
from tidelog.coordinator.groups.consumer.member import NO_PARTITIONS, ConsumerMember, Partitions
from tidelog.coordinator.groups.topics_view import TopicsView
from tidelog.model.identifiers import TopicId, TopicPartition


def compute_target(
    members: Mapping[str, ConsumerMember],
    former: Mapping[str, Partitions],
    patterns: Mapping[str, ResolvedPattern],
    topics: TopicsView,
    assignor: str,
) -> dict[str, Partitions]:
    """[member id] -> what it is to have. `former` is the target until now, of those of `members` that had one."""
    return at_once(target_in_steps(members, former, patterns, topics, assignor))


def target_in_steps(
    members: Mapping[str, ConsumerMember],
    former: Mapping[str, Partitions],
    patterns: Mapping[str, ResolvedPattern],
    topics: TopicsView,
    assignor: str,
) -> Steps[dict[str, Partitions]]:
    """`compute_target`, in steps; none of the mappings may change before the last."""
    pace = Pace()
    subscribed: dict[tuple[frozenset[str], str], frozenset[str]] = {}
    subscriptions: dict[MemberId, Subscription] = {}
    for member_id, member in members.items():
        key = (member.topics, member.pattern)
        names = subscribed.get(key)
        if names is None:
            resolved = patterns.get(member.pattern)
            # One object for all that subscribe to the same: assignors compare them.
            names = subscribed[key] = member.topics if resolved is None else member.topics | resolved.topics
        owned = tuple(
            TopicPartition(topics.names[topic_id], partition)
            for topic_id, partitions in former.get(member_id, NO_PARTITIONS).items()
            if topic_id in topics.names
            for partition in partitions
        )
        subscriptions[MemberId(member_id)] = Subscription(
            topics=names, owned=owned, instance_id=member.instance_id, rack=member.rack_id
        )
        if pace.is_over(len(owned) + 1):
            yield
    wanted = frozenset[str]().union(*subscribed.values())
    layouts = {
        name: replace(topics.topics[name].layout, topic_id=topics.topics[name].topic_id)
        for name in sorted(wanted)
        if name in topics.topics
    }
    given = yield from BROKERS[assignor].steps(subscriptions, layouts)
    target: dict[str, Partitions] = {}
    for member_id in members:
        partitions = given[MemberId(member_id)].partitions
        target[member_id] = _by_id(partitions, topics)
        if pace.is_over(len(partitions) + 1):
            yield
    return target


def _by_id(partitions: tuple[TopicPartition, ...], topics: TopicsView) -> Partitions:
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    by_id: dict[TopicId, frozenset[int]] = {
        topics.topics[topic].topic_id: frozenset(each) for topic, each in found.items()
    }
    return by_id
