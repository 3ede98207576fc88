"""What consumers that speak the classic protocol put into the opaque bytes of JoinGroup and SyncGroup.

A version as int16, then a ConsumerProtocolSubscription or ConsumerProtocolAssignment. Versions above those known here
begin as the newest known one; what they add is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final, TypeVar

from tidelog.coordinator.groups.consumer.member import Partitions
from tidelog.coordinator.groups.topics_view import TopicsView
from tidelog.model.identifiers import TopicId
from tidelog.protocol import codec, messages
from tidelog.protocol.classes import Message
from tidelog.protocol.errors import ProtocolError

_VERSION: Final = Struct(">h")
M = TypeVar("M", bound=Message)


def version_of(data: bytes) -> int:
    """The version in which a consumer speaks; ProtocolError."""
    if len(data) < _VERSION.size:
        raise ProtocolError(f"{len(data)} bytes have no version of the consumers' protocol")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise ProtocolError(f"the consumers' protocol has no version {version}")
    return version


def _parse(cls: type[M], data: bytes) -> M:
    version = min(version_of(data), cls.HIGHEST_VERSION)
    message, _ = codec.decode(cls, version, data, _VERSION.size)
    return message


def parse_subscription(data: bytes) -> messages.ConsumerProtocolSubscription:
    """What a consumer subscribes to; ProtocolError."""
    return _parse(messages.ConsumerProtocolSubscription, data)


def parse_assignment(data: bytes) -> Mapping[str, frozenset[int]]:
    """[topic] -> partitions of an assignment; empty bytes are one of nothing. ProtocolError."""
    if not data:
        return {}
    found: dict[str, frozenset[int]] = {}
    for topic in _parse(messages.ConsumerProtocolAssignment, data).assigned_partitions:
        found[topic.topic] = found.get(topic.topic, frozenset()) | frozenset(topic.partitions)
    return found


def encode_assignment(partitions: Partitions, topics: TopicsView, version: int) -> bytes:
    """An assignment for a consumer that speaks `version`; topics that have gone are left out."""
    assignment = messages.ConsumerProtocolAssignment
    version = min(version, assignment.HIGHEST_VERSION)
    by_name = {topics.names[id]: each for id, each in partitions.items() if id in topics.names}
    body = assignment(
        assigned_partitions=[
            assignment.TopicPartition(topic=name, partitions=sorted(each)) for name, each in sorted(by_name.items())
        ]
    )
    return _VERSION.pack(version) + codec.encode(body, version)


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
