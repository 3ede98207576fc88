"""OffsetForLeaderEpoch: where an epoch ended, so that a client or follower can find where its log and ours part
(KIP-101).

Versions 2-4; librdkafka sends 2 only. v3: the asking replica. v4: flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.handlers import Versions
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.OFFSET_FOR_LEADER_EPOCH
VERSIONS: Final = Versions(2, 4)

EpochEndOffset = messages.OffsetForLeaderEpochResponse.EpochEndOffset


def handle(
    node: Node, context: RequestContext, request: messages.OffsetForLeaderEpochRequest
) -> messages.OffsetForLeaderEpochResponse:
    response = messages.OffsetForLeaderEpochResponse()
    for topic in request.topics:
        answer = messages.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic=topic.topic)
        response.topics.append(answer)
        for wanted in topic.partitions:
            found = EpochEndOffset(partition=wanted.partition, leader_epoch=-1, end_offset=-1)
            answer.partitions.append(found)
            try:
                found.leader_epoch, found.end_offset = _look_up(node, context, topic.topic, wanted)
            except KafkaError as error:
                found.error_code = error.code
    return response


def _look_up(
    node: Node,
    context: RequestContext,
    topic: str,
    wanted: messages.OffsetForLeaderEpochRequest.OffsetForLeaderPartition,
) -> tuple[int, int]:
    # Brokers have the one right; consumers, since KIP-320, the other.
    if not authorize(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME) and not authorize(
        context, Operation.DESCRIBE, ResourceType.TOPIC, topic
    ):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic_partition = TopicPartition(topic, wanted.partition)
    if node.metadata.image.partition(topic_partition) is None and node.replicas.get(topic_partition) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    replica = node.replicas.leader(topic_partition, wanted.current_leader_epoch)
    return replica.log.end_offset_for_epoch(wanted.leader_epoch)


def error_response(
    request: messages.OffsetForLeaderEpochRequest, version: int, error: KafkaError
) -> messages.OffsetForLeaderEpochResponse:
    return messages.OffsetForLeaderEpochResponse(
        topics=[
            messages.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=wanted.partition, error_code=error.code, leader_epoch=-1, end_offset=-1)
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
