"""SyncGroup: a classic group's leader sends the assignment, and each member learns its own.

Versions 0-5. v3: static members; v5: the protocol's type and name, which have to be the group's.

Answered when the leader's assignment is committed in `__consumer_offsets`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._members import member_error
from tidelog.coordinator.groups.classic.events import MemberAssignment, SyncGroup, SyncReply
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.SYNC_GROUP
VERSIONS: Final = Versions(0, 5)

PROTOCOL_SINCE: Final = 5


def handle(
    node: Node, context: RequestContext, request: messages.SyncGroupRequest
) -> messages.SyncGroupResponse | Deferred[messages.SyncGroupResponse]:
    if context.api_version >= PROTOCOL_SINCE and (request.protocol_type is None or request.protocol_name is None):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not authorize(context, Operation.READ, ResourceType.GROUP, request.group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    asked: Deferred[SyncReply] = node.groups.ask(request.group_id, lambda request_id: _event(node, request, request_id))
    return asked.recover(KafkaError, lambda error: SyncReply(member_error(error))).then(_response)


def _event(node: Node, request: messages.SyncGroupRequest, request_id: int) -> SyncGroup:
    return SyncGroup(
        request_id,
        request.group_id,
        request.member_id,
        request.generation_id,
        node.clock.wall_ms(),
        request.group_instance_id,
        request.protocol_type,
        request.protocol_name,
        [MemberAssignment(given.member_id, bytes(given.assignment)) for given in request.assignments],
    )


def _response(reply: SyncReply) -> messages.SyncGroupResponse:
    return messages.SyncGroupResponse(
        error_code=reply.error,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        assignment=reply.assignment,
    )


def error_response(request: messages.SyncGroupRequest, version: int, error: KafkaError) -> messages.SyncGroupResponse:
    return _response(SyncReply(error.code))
