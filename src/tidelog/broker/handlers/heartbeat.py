"""Heartbeat: a member of a classic group says that it lives, and learns whether it has to join again.

Versions 0-4. v3: static members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred
from tidelog.broker.handlers import Versions
from tidelog.coordinator.groups.classic.events import Heartbeat, HeartbeatReply
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.HEARTBEAT
VERSIONS: Final = Versions(0, 4)


def handle(
    node: Node, context: RequestContext, request: messages.HeartbeatRequest
) -> messages.HeartbeatResponse | Deferred[messages.HeartbeatResponse]:
    group = request.group_id
    if not authorize(context, Operation.READ, ResourceType.GROUP, group):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not group:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    asked: Deferred[HeartbeatReply] = node.groups.ask(
        group,
        lambda request_id: Heartbeat(
            request_id, group, request.member_id, request.generation_id, request.group_instance_id
        ),
    )
    told = asked.then(lambda reply: reply.error).recover(KafkaError, _told)
    return told.then(lambda error: messages.HeartbeatResponse(error_code=error))


def _told(failure: KafkaError) -> ErrorCode:
    """While the coordinator loads it does not know its members, whose sessions begin anew when it has."""
    return ErrorCode.NONE if failure.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else failure.code


def error_response(request: messages.HeartbeatRequest, version: int, error: KafkaError) -> messages.HeartbeatResponse:
    return messages.HeartbeatResponse(error_code=error.code)
