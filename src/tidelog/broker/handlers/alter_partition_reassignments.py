"""AlterPartitionReassignments: partitions are moved to other brokers, or a move is cancelled (KIP-455).

Versions 0-1. v1: other replication factors can be forbidden (KIP-860). Flexible from the beginning. The answer comes
when the controller has begun; it goes on by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._deadlines import within
from tidelog.controller.requests import AlterReassignments, ReassignmentOutcome, ReassignPartition
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import BrokerId, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node

KEY: Final = ApiKey.ALTER_PARTITION_REASSIGNMENTS
VERSIONS: Final = Versions(0, 1)


def handle(
    node: Node, context: RequestContext, request: messages.AlterPartitionReassignmentsRequest
) -> Deferred[messages.AlterPartitionReassignmentsResponse]:
    if not authorize(context, Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wishes = [
        ReassignPartition(
            TopicPartition(topic.name, wish.partition_index),
            None if wish.replicas is None else [BrokerId(id) for id in wish.replicas],
        )
        for topic in request.topics
        for wish in topic.partitions
    ]
    allowed = context.api_version < 1 or request.allow_replication_factor_change
    submitted = node.controller.submit(AlterReassignments(wishes, allowed))
    return within(node, context, submitted, request.timeout_ms).then(lambda outcomes: _response(outcomes, allowed))


def error_response(
    request: messages.AlterPartitionReassignmentsRequest, version: int, error: KafkaError
) -> messages.AlterPartitionReassignmentsResponse:
    kind = messages.AlterPartitionReassignmentsResponse
    responses = []
    if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        # Kafka tells it of each partition, too.
        for topic in request.topics:
            told = [
                kind.ReassignablePartitionResponse(
                    partition_index=wish.partition_index, error_code=error.code, error_message=error.message
                )
                for wish in topic.partitions
            ]
            responses.append(kind.ReassignableTopicResponse(name=topic.name, partitions=told))
    return kind(error_code=error.code, error_message=error.message, responses=responses)


def _response(outcomes: Iterable[ReassignmentOutcome], allowed: bool) -> messages.AlterPartitionReassignmentsResponse:
    kind = messages.AlterPartitionReassignmentsResponse
    topics: dict[str, messages.AlterPartitionReassignmentsResponse.ReassignableTopicResponse] = {}
    for outcome in outcomes:
        name, index = outcome.topic_partition
        if name not in topics:
            topics[name] = kind.ReassignableTopicResponse(name=name, partitions=[])
        topics[name].partitions.append(
            kind.ReassignablePartitionResponse(
                partition_index=index, error_code=outcome.error, error_message=outcome.message
            )
        )
    return kind(responses=list(topics.values()), allow_replication_factor_change=allowed)
