"""Metadata: brokers, topics, partitions and their leaders, as advertised for the listener that was asked.

Versions 0-13. v0: an empty list means all topics; from v1 on, null does. v4: auto-creation may be declined. v5: offline
replicas. v7: leader epochs. v8-10: authorized operations of the cluster. v10: topic ids; v12: topics asked for by
id. v13: an error of the whole answer.

A topic that is created by being asked for is awaited: the answer names its leaders, and the client need not ask again.
So is the controller's word on a leader whose connection has just broken, and a broker that left stays on the list for a
while: `tidelog.broker.cluster.departures` says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize, authorized_operations
from tidelog.broker.deferred import Deferred
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._creation import soon
from tidelog.controller.requests import CreateTopics, NewTopic
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import NO_LEADER, ZERO_TOPIC_ID, TopicId
from tidelog.model.topics import INTERNAL_TOPICS, invalid_topic_name_reason
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import (
    AUTHORIZED_OPERATIONS_UNASKED,
    CLUSTER_NAME,
    CLUSTER_OPERATIONS,
    TOPIC_OPERATIONS,
    Operation,
    ResourceType,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node
    from tidelog.metadata.image import BrokerRegistration, Endpoint, PartitionImage, TopicImage

KEY: Final = ApiKey.METADATA
VERSIONS: Final = Versions(0, 13)

NULL_NAMES_SINCE: Final = 12


def handle(
    node: Node, context: RequestContext, request: messages.MetadataRequest
) -> messages.MetadataResponse | Deferred[messages.MetadataResponse]:
    missing = _to_create(node, context, request)
    if not missing:
        may_answer = node.departures.before_naming(lambda: _names_suspected(node, request))
        return may_answer.then(lambda _: _answer(node, context, request))
    answer: Deferred[messages.MetadataResponse] = Deferred()
    # If it could not be created (there is no controller, say), it is simply not there yet: the client asks again.
    creation = node.controller.submit(CreateTopics([NewTopic(name) for name in missing]))
    soon(node, creation).on_complete(lambda _: answer.complete(_answer(node, context, request)))
    return answer


def _to_create(node: Node, context: RequestContext, request: messages.MetadataRequest) -> list[str]:
    """Topics that this request brings into being."""
    if not request.topics or not _creates(node, context, request):
        return []
    return [
        name
        for name in dict.fromkeys(topic.name for topic in request.topics if topic.name is not None)
        if name not in node.metadata.image.topics
        and name not in INTERNAL_TOPICS
        and invalid_topic_name_reason(name) is None
        and authorize(context, Operation.DESCRIBE, ResourceType.TOPIC, name)
        and _may_create(context, name)
    ]


def _creates(node: Node, context: RequestContext, request: messages.MetadataRequest) -> bool:
    """Whether topics that are not there are to be created."""
    allowed = context.api_version < 4 or request.allow_auto_topic_creation
    return allowed and node.config.auto_create_topics_enable


def _may_create(context: RequestContext, name: str, *, quiet: bool = False) -> bool:
    return authorize(context, Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True) or authorize(
        context, Operation.CREATE, ResourceType.TOPIC, name, quiet=quiet
    )


def _names_suspected(node: Node, request: messages.MetadataRequest) -> bool:
    """Whether the answer would name a leader that may just have died."""
    image = node.metadata.image
    topics: Iterable[TopicImage | None] = image.topics.values()
    if request.topics:
        topics = [
            image.topic_by_id(topic.topic_id) if topic.name is None else image.topics.get(topic.name)
            for topic in request.topics
        ]
    return any(
        node.departures.is_suspected(partition.leader)
        for topic in topics
        if topic is not None
        for partition in topic.partitions.values()
    )


def _answer(node: Node, context: RequestContext, request: messages.MetadataRequest) -> messages.MetadataResponse:
    image = node.metadata.image
    operations = request.include_topic_authorized_operations and context.api_version >= 8
    if request.topics is None or (context.api_version == 0 and not request.topics):
        topics = [
            _topic(node, context, topic, operations)
            for topic in image.topics.values()
            if authorize(context, Operation.DESCRIBE, ResourceType.TOPIC, topic.name, quiet=True)
        ]
    else:
        asked = dict.fromkeys((topic.name, topic.topic_id) for topic in request.topics)
        creates = _creates(node, context, request)
        topics = [_asked_topic(node, context, name, topic_id, operations, creates) for name, topic_id in asked]
    cluster_operations = AUTHORIZED_OPERATIONS_UNASKED
    if 8 <= context.api_version <= 10 and request.include_cluster_authorized_operations:
        cluster_operations = authorized_operations(context, CLUSTER_OPERATIONS, ResourceType.CLUSTER, CLUSTER_NAME)
    return messages.MetadataResponse(
        brokers=[
            messages.MetadataResponse.MetadataResponseBroker(
                node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
            )
            for broker, endpoint in _endpoints(node, context.listener)
        ],
        cluster_id=image.cluster_id,
        controller_id=image.controller_id if image.is_live(image.controller_id) else NO_LEADER,
        topics=topics,
        cluster_authorized_operations=cluster_operations,
    )


def _endpoints(node: Node, listener: str) -> Iterator[tuple[BrokerRegistration, Endpoint]]:
    yield from node.metadata.live_endpoints(listener)
    for registration in node.departures.lingering():
        endpoint = registration.endpoint(listener)
        if endpoint is not None:
            yield registration, endpoint


def _asked_topic(
    node: Node, context: RequestContext, name: str | None, topic_id: TopicId, operations: bool, creates: bool
) -> messages.MetadataResponse.MetadataResponseTopic:
    image = node.metadata.image
    if name is None:
        known = image.topic_by_id(topic_id)
        # Before version 12 an answer cannot do without a name.
        nameless = None if context.api_version >= NULL_NAMES_SINCE else ""
        if known is None:
            return _failed(nameless, topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
        if not authorize(context, Operation.DESCRIBE, ResourceType.TOPIC, known.name):
            return _failed(nameless, topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return _topic(node, context, known, operations)
    if invalid_topic_name_reason(name) is not None:
        return _failed(name, ZERO_TOPIC_ID, ErrorCode.INVALID_TOPIC_EXCEPTION)
    if not authorize(context, Operation.DESCRIBE, ResourceType.TOPIC, name):
        return _failed(name, ZERO_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    known = image.topics.get(name)
    if known is None:
        # What it may not create does not come by asking again.
        is_denied = creates and not _may_create(context, name, quiet=True)
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_denied else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return _failed(name, ZERO_TOPIC_ID, error)
    return _topic(node, context, known, operations)


def _failed(name: str | None, topic_id: TopicId, error: ErrorCode) -> messages.MetadataResponse.MetadataResponseTopic:
    return messages.MetadataResponse.MetadataResponseTopic(
        error_code=error, name=name, topic_id=topic_id, is_internal=name in INTERNAL_TOPICS
    )


def _operations(context: RequestContext, topic: str, *, asked: bool) -> int:
    if not asked:
        return AUTHORIZED_OPERATIONS_UNASKED
    return authorized_operations(context, TOPIC_OPERATIONS, ResourceType.TOPIC, topic)


def _topic(
    node: Node, context: RequestContext, topic: TopicImage, with_operations: bool
) -> messages.MetadataResponse.MetadataResponseTopic:
    partitions = []
    # Thousands of partitions are led and held by the same few brokers.
    leaders: dict[int, tuple[int, ErrorCode]] = {}
    offline: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
    for index, partition in sorted(topic.partitions.items()):
        leader = leaders.get(partition.leader)
        if leader is None:
            leader = leaders[partition.leader] = leader_for(node, context, partition)
        gone = offline.get((partition.replicas, partition.offline))
        if gone is None:
            gone = offline[partition.replicas, partition.offline] = offline_replicas(node, partition)
        partitions.append(
            messages.MetadataResponse.MetadataResponsePartition(
                error_code=leader[1],
                partition_index=index,
                leader_id=leader[0],
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                offline_replicas=gone,
            )
        )
    return messages.MetadataResponse.MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=_operations(context, topic.name, asked=with_operations),
    )


def leader_for(node: Node, context: RequestContext, partition: PartitionImage) -> tuple[int, ErrorCode]:
    """The leader as a client may be told, -1 where it cannot be reached, and the error that goes with that."""
    image = node.metadata.image
    if partition.leader == NO_LEADER or not image.is_live(partition.leader):
        return NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE
    if node.metadata.broker_endpoint(partition.leader, context.listener) is None:
        known = context.api_version >= 6
        return NO_LEADER, ErrorCode.LISTENER_NOT_FOUND if known else ErrorCode.LEADER_NOT_AVAILABLE
    return partition.leader, ErrorCode.NONE


def offline_replicas(node: Node, partition: PartitionImage) -> list[int]:
    """Replicas on dead brokers or failed directories."""
    image = node.metadata.image
    return [broker for broker in partition.replicas if broker in partition.offline or not image.is_live(broker)]


def error_response(request: messages.MetadataRequest, version: int, error: KafkaError) -> messages.MetadataResponse:
    return messages.MetadataResponse(
        error_code=error.code,
        topics=[
            _failed(topic.name, topic.topic_id, error.code)
            for topic in request.topics or ()
            if topic.name is not None or version >= 12
        ],
    )
