"""ListPartitionReassignments: which partitions are moved to other brokers now, from where and to where (KIP-455).

Version 0. Without a list of topics all are meant; what is not being moved is left out of the answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._deadlines import within
from tidelog.controller.requests import ListReassignments, OngoingReassignment
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node

KEY: Final = ApiKey.LIST_PARTITION_REASSIGNMENTS
VERSIONS: Final = Versions(0, 0)


def handle(
    node: Node, context: RequestContext, request: messages.ListPartitionReassignmentsRequest
) -> Deferred[messages.ListPartitionReassignmentsResponse]:
    if not authorize(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    chosen = None
    if request.topics is not None:
        chosen = [TopicPartition(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    submitted = node.controller.submit(ListReassignments(chosen))
    return within(node, context, submitted, request.timeout_ms).then(_response)


def error_response(
    request: messages.ListPartitionReassignmentsRequest, version: int, error: KafkaError
) -> messages.ListPartitionReassignmentsResponse:
    kind = messages.ListPartitionReassignmentsResponse
    topics = []
    if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        # Kafka names what was asked for, without replicas.
        for topic in request.topics or ():
            named = [kind.OngoingPartitionReassignment(partition_index=index) for index in topic.partition_indexes]
            topics.append(kind.OngoingTopicReassignment(name=topic.name, partitions=named))
    return kind(error_code=error.code, error_message=error.message, topics=topics)


def _response(ongoing: Iterable[OngoingReassignment]) -> messages.ListPartitionReassignmentsResponse:
    kind = messages.ListPartitionReassignmentsResponse
    topics: dict[str, messages.ListPartitionReassignmentsResponse.OngoingTopicReassignment] = {}
    for each in ongoing:
        name, index = each.topic_partition
        if name not in topics:
            topics[name] = kind.OngoingTopicReassignment(name=name, partitions=[])
        topics[name].partitions.append(
            kind.OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(each.replicas),
                adding_replicas=list(each.adding),
                removing_replicas=list(each.removing),
            )
        )
    return kind(topics=list(topics.values()))
