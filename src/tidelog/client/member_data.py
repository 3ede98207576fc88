"""What members of a classic group tell each other through the coordinator, as assignors see it.

A subscription goes from each member to the leader in JoinGroup, an assignment from the leader to each member in
SyncGroup; `protocol.consumer_protocol` has their bytes, of which any version may come.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidelog.assignors.assignor import Assignment, Subscription
from tidelog.client.offsets import by_topic
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import consumer_protocol, messages
from tidelog.protocol.consumer_protocol import VERSION
from tidelog.protocol.errors import ProtocolError


class InvalidMemberData(ValueError):
    """Bytes of another member that are no subscription or assignment."""


def encode_subscription(subscription: Subscription, version: int = VERSION) -> bytes:
    """A member's subscription; fields that the version does not have are left out."""
    kind = messages.ConsumerProtocolSubscription
    message = kind(topics=sorted(subscription.topics), user_data=subscription.user_data)
    if version >= 1:
        message.owned_partitions = [
            kind.TopicPartition(topic=name, partitions=[tp.partition for tp in partitions])
            for name, partitions in by_topic(subscription.owned)
        ]
    if version >= 2:
        message.generation_id = -1 if subscription.generation is None else subscription.generation
    if version >= 3:
        message.rack_id = subscription.rack
    return consumer_protocol.encode(message, version)


def decode_subscription(data: bytes, instance_id: str | None = None) -> Subscription:
    """The inverse, for any version; the instance id comes beside it. InvalidMemberData."""
    message = _decode(messages.ConsumerProtocolSubscription, data)
    generation = message.generation_id
    return Subscription(
        topics=frozenset(message.topics),
        owned=tuple(_partitions(message.owned_partitions)),
        generation=generation if generation >= 0 else None,
        instance_id=instance_id,
        rack=message.rack_id,
        user_data=_bytes(message.user_data),
    )


def encode_assignment(assignment: Assignment, version: int = VERSION) -> bytes:
    """A member's assignment."""
    kind = messages.ConsumerProtocolAssignment
    entries = [
        kind.TopicPartition(topic=name, partitions=[tp.partition for tp in partitions])
        for name, partitions in by_topic(assignment.partitions)
    ]
    message = kind(assigned_partitions=entries, user_data=assignment.user_data)
    return consumer_protocol.encode(message, version)


def decode_assignment(data: bytes) -> Assignment:
    """The inverse, for any version; no bytes at all are an empty assignment. InvalidMemberData."""
    if not data:
        return Assignment()
    message = _decode(messages.ConsumerProtocolAssignment, data)
    return Assignment(tuple(_partitions(message.assigned_partitions)), _bytes(message.user_data))


def _decode(kind: type[Any], data: bytes) -> Any:
    try:
        return consumer_protocol.decode(kind, data)
    except ProtocolError as error:
        raise InvalidMemberData(str(error)) from error


def _partitions(entries: Iterable[Any]) -> list[TopicPartition]:
    return [TopicPartition(entry.topic, partition) for entry in entries for partition in entry.partitions]


def _bytes(data: Any) -> bytes | None:
    return None if data is None else bytes(data)
