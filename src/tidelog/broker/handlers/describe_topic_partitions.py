"""DescribeTopicPartitions (KIP-966): Metadata in pages, for clusters with very many partitions.

Version 0. Topics come in the order of their names; a page holds at most `response_partition_limit` partitions, and the
cursor of the answer says where the next one begins. Eligible leader replicas don't exist in ZooKeeper's layout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize, authorized_operations
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers.metadata import leader_for, offline_replicas
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.topics import INTERNAL_TOPICS, invalid_topic_name_reason
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import TOPIC_OPERATIONS, Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node
    from tidelog.metadata.image import TopicImage

KEY: Final = ApiKey.DESCRIBE_TOPIC_PARTITIONS
VERSIONS: Final = Versions(0, 0)


def handle(
    node: Node, context: RequestContext, request: messages.DescribeTopicPartitionsRequest
) -> messages.DescribeTopicPartitionsResponse:
    image = node.metadata.image
    asked = {topic.name for topic in request.topics}
    names = sorted(asked or image.topics)
    first_partition = 0
    cursor = request.cursor
    if cursor is not None:
        if cursor.partition_index < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"The cursor's partition is {cursor.partition_index}.")
        names = [name for name in names if name >= cursor.topic_name]
        if names and names[0] == cursor.topic_name:
            first_partition = cursor.partition_index
    limit = max(1, min(request.response_partition_limit, node.config.max_request_partition_size_limit))
    response = messages.DescribeTopicPartitionsResponse()
    for name in names:
        topic = image.topics.get(name)
        if not authorize(context, Operation.DESCRIBE, ResourceType.TOPIC, name, quiet=name not in asked):
            if name in asked:
                response.topics.append(_denied(name))
            continue
        if topic is None:
            if name in asked:
                response.topics.append(_unknown(context, name))
            continue
        if limit == 0:
            response.next_cursor = _cursor(name, first_partition)
            break
        described, next_partition = _describe(node, context, topic, first_partition, limit)
        response.topics.append(described)
        limit -= len(described.partitions)
        if next_partition is not None:
            response.next_cursor = _cursor(name, next_partition)
            break
        first_partition = 0
    return response


def _describe(
    node: Node, context: RequestContext, topic: TopicImage, first_partition: int, limit: int
) -> tuple[messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic, int | None]:
    """A topic from a partition on, and the partition at which the next page begins; None when it is whole."""
    indexes = [index for index in sorted(topic.partitions) if index >= first_partition]
    page = indexes[:limit]
    described = messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        topic_authorized_operations=authorized_operations(context, TOPIC_OPERATIONS, ResourceType.TOPIC, topic.name),
    )
    for index in page:
        partition = topic.partitions[index]
        leader, error = leader_for(node, context, partition)
        described.partitions.append(
            messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition(
                error_code=error,
                partition_index=index,
                leader_id=leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=offline_replicas(node, partition),
            )
        )
    return described, indexes[limit] if len(indexes) > limit else None


def _denied(name: str) -> messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic:
    return messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, is_internal=name in INTERNAL_TOPICS
    )


def _unknown(
    context: RequestContext, name: str
) -> messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic:
    invalid = invalid_topic_name_reason(name) is not None
    return messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.INVALID_TOPIC_EXCEPTION if invalid else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=authorized_operations(context, TOPIC_OPERATIONS, ResourceType.TOPIC, name),
    )


def _cursor(topic: str, partition: int) -> messages.DescribeTopicPartitionsResponse.Cursor:
    return messages.DescribeTopicPartitionsResponse.Cursor(topic_name=topic, partition_index=partition)


def error_response(
    request: messages.DescribeTopicPartitionsRequest, version: int, error: KafkaError
) -> messages.DescribeTopicPartitionsResponse:
    return messages.DescribeTopicPartitionsResponse(
        topics=[
            messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
                error_code=error.code, name=topic.name
            )
            for topic in request.topics
        ]
    )
