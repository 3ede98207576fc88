"""What consumers that speak the classic protocol tell each other (`protocol.consumer_protocol`), as a consumer group
sees it: partitions by the ids of their topics.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.coordinator.groups.consumer.member import Partitions
from tidelog.coordinator.groups.topics_view import TopicsView
from tidelog.model.identifiers import TopicId
from tidelog.protocol import consumer_protocol, messages


def parse_subscription(data: bytes) -> messages.ConsumerProtocolSubscription:
    """What a consumer subscribes to; ProtocolError."""
    return consumer_protocol.decode(messages.ConsumerProtocolSubscription, data)


def parse_assignment(data: bytes) -> Mapping[str, frozenset[int]]:
    """[topic] -> partitions of an assignment; empty bytes are one of nothing. ProtocolError."""
    if not data:
        return {}
    found: dict[str, frozenset[int]] = {}
    for topic in consumer_protocol.decode(messages.ConsumerProtocolAssignment, data).assigned_partitions:
        found[topic.topic] = found.get(topic.topic, frozenset()) | frozenset(topic.partitions)
    return found


def encode_assignment(partitions: Partitions, topics: TopicsView, version: int) -> bytes:
    """An assignment for a consumer that speaks `version`; topics that have gone are left out."""
    assignment = messages.ConsumerProtocolAssignment
    by_name = {topics.names[id]: each for id, each in partitions.items() if id in topics.names}
    body = assignment(
        assigned_partitions=[
            assignment.TopicPartition(topic=name, partitions=sorted(each)) for name, each in sorted(by_name.items())
        ]
    )
    return consumer_protocol.encode(body, version)


def by_id(partitions: Mapping[str, frozenset[int]], topics: TopicsView) -> dict[TopicId, frozenset[int]]:
    """The same partitions by the ids of their topics; those that do not exist are left out."""
    found: dict[TopicId, frozenset[int]] = {}
    for name, each in partitions.items():
        topic = topics.topics.get(name)
        if topic is not None:
            known = frozenset(partition for partition in each if 0 <= partition < topic.layout.partitions)
            if known:
                found[topic.topic_id] = known
    return found
