"""DescribeProducers: what a partition's replica remembers of its producers, and where their open transactions begin.

Version 0. Any replica answers, not only the leader: a tool that looks for hanging transactions may compare them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.handlers import Versions
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.model.topics import invalid_topic_name_reason
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.DESCRIBE_PRODUCERS
VERSIONS: Final = Versions(0, 0)

Partition = messages.DescribeProducersResponse.PartitionResponse


def handle(
    node: Node, context: RequestContext, request: messages.DescribeProducersRequest
) -> messages.DescribeProducersResponse:
    return messages.DescribeProducersResponse(
        topics=[
            messages.DescribeProducersResponse.TopicResponse(
                name=topic.name,
                partitions=[_partition(node, context, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _partition(
    node: Node, context: RequestContext, topic: str, index: int
) -> messages.DescribeProducersResponse.PartitionResponse:
    try:
        producers = _producers(node, context, TopicPartition(topic, index))
    except KafkaError as error:
        return Partition(partition_index=index, error_code=error.code, error_message=error.message)
    return Partition(partition_index=index, active_producers=producers)


def _producers(
    node: Node, context: RequestContext, topic_partition: TopicPartition
) -> list[messages.DescribeProducersResponse.ProducerState]:
    """The producers of a replica here; KafkaError."""
    topic = topic_partition.topic
    reason = invalid_topic_name_reason(topic)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
    if not authorize(context, Operation.READ, ResourceType.TOPIC, topic):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    replica = node.replicas.get(topic_partition)
    if replica is None:
        if node.metadata.image.partition(topic_partition) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"This broker holds no replica of {topic_partition}.")
    log = replica.log
    if log.is_offline:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log directory of {topic_partition} has failed.")
    log.catch_up_producers(node.clock.wall_ms())
    return [
        messages.DescribeProducersResponse.ProducerState(
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=entry.transaction_first_offset,
        )
        for entry in log.producers.entries.values()
    ]


def error_response(
    request: messages.DescribeProducersRequest, version: int, error: KafkaError
) -> messages.DescribeProducersResponse:
    return messages.DescribeProducersResponse(
        topics=[
            messages.DescribeProducersResponse.TopicResponse(
                name=topic.name,
                partitions=[
                    Partition(partition_index=index, error_code=error.code, error_message=error.message)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )
