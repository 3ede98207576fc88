"""ConsumerGroupHeartbeat: a member of a consumer group (KIP-848) joins, lives, reconciles, leaves.

Versions 0-1. v1: members draw their ids themselves, and may subscribe with a regular expression.

Answered when what it changed is committed, at once where it changed nothing. Topics that are subscribed by name are
authorized one by one. A pattern stands for topics that may be described by the member whose heartbeat has it resolved,
as in Kafka, and is resolved again when ACLs change; the answer to another member leaves out what that may not describe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._members import CLIENT_ID_SIZE_MAX, check_heartbeat, cut, topic_rights
from tidelog.coordinator.groups.consumer.events import ConsumerHeartbeat, ConsumerHeartbeatReply
from tidelog.coordinator.groups.consumer.member import Partitions
from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import TopicId, dashless_id, format_id
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.CONSUMER_GROUP_HEARTBEAT
VERSIONS: Final = Versions(0, 1)

_Response = messages.ConsumerGroupHeartbeatResponse


def handle(
    node: Node, context: RequestContext, request: messages.ConsumerGroupHeartbeatRequest
) -> messages.ConsumerGroupHeartbeatResponse | Deferred[messages.ConsumerGroupHeartbeatResponse]:
    check_heartbeat(context, request.group_id, request.subscribed_topic_names)
    asked = node.groups.ask(request.group_id, lambda request_id: _event(node, context, request, request_id))
    return asked.then(lambda reply: _response(node, context, reply))


def _event(
    node: Node, context: RequestContext, request: messages.ConsumerGroupHeartbeatRequest, request_id: int
) -> ConsumerHeartbeat:
    names = request.subscribed_topic_names
    return ConsumerHeartbeat(
        request_id,
        request.group_id,
        request.member_id,
        request.member_epoch,
        node.clock.wall_ms(),
        new_member_id="" if request.member_id else format_id(dashless_id(node.random.token(16))),
        version=context.api_version,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        client_id=cut(context.client_id or "", CLIENT_ID_SIZE_MAX),
        client_host=f"/{context.client_address}",
        topics=None if names is None else frozenset(names),
        pattern=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=_owned(request.topic_partitions),
        rights=topic_rights(node, context),
    )


def _owned(told: list[messages.ConsumerGroupHeartbeatRequest.TopicPartitions] | None) -> Partitions | None:
    if told is None:
        return None
    owned: dict[TopicId, frozenset[int]] = {}
    for topic in told:
        topic_id = TopicId(bytes(topic.topic_id))
        owned[topic_id] = owned.get(topic_id, frozenset()) | frozenset(topic.partitions)
    return owned


def _response(
    node: Node, context: RequestContext, reply: ConsumerHeartbeatReply
) -> messages.ConsumerGroupHeartbeatResponse:
    assignment = None
    names = node.metadata.image.topic_names
    if reply.assignment is not None:
        assignment = _Response.Assignment(
            topic_partitions=[
                _Response.TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in sorted(reply.assignment.items())
                # An id that this broker does not know yet tells nothing of a name.
                if topic_id not in names or authorize(context, Operation.DESCRIBE, ResourceType.TOPIC, names[topic_id])
            ]
        )
    return _Response(
        error_code=reply.error,
        error_message=reply.message,
        member_id=reply.member_id,
        member_epoch=reply.epoch,
        heartbeat_interval_ms=reply.interval_ms,
        assignment=assignment,
    )


def error_response(
    request: messages.ConsumerGroupHeartbeatRequest, version: int, error: KafkaError
) -> messages.ConsumerGroupHeartbeatResponse:
    return _Response(error_code=error.code, error_message=error.message)
