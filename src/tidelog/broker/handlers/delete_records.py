"""DeleteRecords: moves the first offset of partitions up; what lies before is gone for every reader at once.

Versions 0-2. Offset -1 means the high watermark. The bytes go when whole segments lie before the new start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.handlers import Versions
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.model.topics import INTERNAL_TOPICS
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.DELETE_RECORDS
VERSIONS: Final = Versions(0, 2)

HIGH_WATERMARK: Final = -1
NO_LOW_WATERMARK: Final = -1


def handle(
    node: Node, context: RequestContext, request: messages.DeleteRecordsRequest
) -> messages.DeleteRecordsResponse:
    response = messages.DeleteRecordsResponse
    return response(
        topics=[
            response.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    _delete(node, context, TopicPartition(topic.name, partition.partition_index), partition.offset)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _delete(
    node: Node, context: RequestContext, tp: TopicPartition, offset: int
) -> messages.DeleteRecordsResponse.DeleteRecordsPartitionResult:
    result = messages.DeleteRecordsResponse.DeleteRecordsPartitionResult
    try:
        low_watermark = _advance(node, context, tp, offset)
    except KafkaError as error:
        return result(partition_index=tp.partition, low_watermark=NO_LOW_WATERMARK, error_code=error.code)
    return result(partition_index=tp.partition, low_watermark=low_watermark, error_code=ErrorCode.NONE)


def _advance(node: Node, context: RequestContext, tp: TopicPartition, offset: int) -> int:
    """The partition's first offset afterwards; raises KafkaError."""
    if not authorize(context, Operation.DELETE, ResourceType.TOPIC, tp.topic):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if node.metadata.image.partition(tp) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if tp.topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {tp.topic}.")
    replica = node.replicas.leader(tp)
    if not replica.log.config.deleted:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"Records of partition {tp} can not be deleted due to the policy.")
    wanted = replica.high_watermark if offset == HIGH_WATERMARK else offset
    if wanted < 0 or wanted > replica.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"The offset {offset} for partition {tp} is not between 0 and the high watermark {replica.high_watermark}.",
        )
    replica.log.advance_start(wanted)
    return replica.log.log_start_offset


def error_response(
    request: messages.DeleteRecordsRequest, version: int, error: KafkaError
) -> messages.DeleteRecordsResponse:
    response = messages.DeleteRecordsResponse
    return response(
        topics=[
            response.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    response.DeleteRecordsPartitionResult(
                        partition_index=partition.partition_index,
                        low_watermark=NO_LOW_WATERMARK,
                        error_code=error.code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
