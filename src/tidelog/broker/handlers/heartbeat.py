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
    if asked.done:
        return _response(asked)
    answer: Deferred[messages.HeartbeatResponse] = Deferred()
    asked.on_complete(lambda outcome: answer.complete(_response(outcome)))
    answer.on_abandoned = asked.abandon
    return answer


def _response(outcome: Deferred[HeartbeatReply]) -> messages.HeartbeatResponse:
    try:
        error = outcome.result().error
    except KafkaError as failure:
        # While the coordinator loads it does not know its members, whose sessions begin anew when it has.
        loading = failure.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        error = ErrorCode.NONE if loading else failure.code
    return messages.HeartbeatResponse(error_code=error)


def error_response(request: messages.HeartbeatRequest, version: int, error: KafkaError) -> messages.HeartbeatResponse:
    return messages.HeartbeatResponse(error_code=error.code)
