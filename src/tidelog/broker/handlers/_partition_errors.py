"""What OffsetDelete and TxnOffsetCommit share: each partition of a request is judged, and answered, by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidelog.broker.context import authorize
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicPartition
from tidelog.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node


def check_readable(node: Node, context: RequestContext, place: TopicPartition) -> ErrorCode:
    """Whether the client may read the partition's topic, and the partition exists."""
    if not authorize(context, Operation.READ, ResourceType.TOPIC, place.topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = node.metadata.image.topics.get(place.topic)
    if topic is None or place.partition not in topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def topics_with_errors(
    topics: Sequence[Any], errors: Mapping[TopicPartition, ErrorCode], of_topic: type[Any], of_partition: type[Any]
) -> list[Any]:
    """The topics of an answer, in the order of the request's `topics`: instances of `of_topic` and `of_partition`."""
    return [
        of_topic(
            name=topic.name,
            partitions=[
                of_partition(
                    partition_index=partition.partition_index,
                    error_code=errors[TopicPartition(topic.name, partition.partition_index)],
                )
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]
