"""JoinGroup: a client becomes a member of a classic group, or joins its next generation.

Versions 0-9. v1: a rebalance timeout beside the session timeout; v4: a new member is first told its id; v5: static
members; v7: protocol types; v8: a reason; v9: a static leader that comes back is told to skip the assignment.

Answered when the other members have joined too, which may take as long as the slowest one's rebalance timeout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._members import (
    CLIENT_ID_SIZE_MAX,
    NAME_SIZE_MAX,
    REASON_LENGTH_MAX,
    cut,
    member_error,
    random_uuid,
    topic_rights,
)
from tidelog.coordinator.groups.classic.events import JoinGroup, JoinReply
from tidelog.coordinator.groups.classic.members import Protocol
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.JOIN_GROUP
VERSIONS: Final = Versions(0, 9)

REBALANCE_TIMEOUT_SINCE: Final = 1
KNOWN_MEMBER_SINCE: Final = 4
NULLABLE_PROTOCOL_SINCE: Final = 7
SKIP_ASSIGNMENT_SINCE: Final = 9


def handle(
    node: Node, context: RequestContext, request: messages.JoinGroupRequest
) -> messages.JoinGroupResponse | Deferred[messages.JoinGroupResponse]:
    if not authorize(context, Operation.READ, ResourceType.GROUP, request.group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    version = context.api_version
    refused = _refusal(node, request)
    if refused is not ErrorCode.NONE:
        return _response(version, JoinReply(refused, request.member_id))
    # A client that goes away leaves a member behind that waits: it expires, unless the client comes back.
    asked: Deferred[JoinReply] = node.groups.ask(
        request.group_id, lambda request_id: _event(node, context, request, request_id)
    )
    told = asked.recover(KafkaError, lambda error: JoinReply(member_error(error), request.member_id))
    return told.then(lambda reply: _response(version, reply))


def _refusal(node: Node, request: messages.JoinGroupRequest) -> ErrorCode:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    config = node.config
    shortest, longest = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    return ErrorCode.NONE if shortest <= request.session_timeout_ms <= longest else ErrorCode.INVALID_SESSION_TIMEOUT


def _event(node: Node, context: RequestContext, request: messages.JoinGroupRequest, request_id: int) -> JoinGroup:
    version = context.api_version
    client_id = cut(context.client_id or "", CLIENT_ID_SIZE_MAX)
    name = client_id if request.group_instance_id is None else request.group_instance_id
    return JoinGroup(
        request_id,
        request.group_id,
        request.member_id,
        f"{cut(name, NAME_SIZE_MAX)}-{random_uuid(node.random.token(16))}",
        client_id,
        # As Java writes an address.
        f"/{context.client_address}",
        request.session_timeout_ms,
        request.rebalance_timeout_ms if version >= REBALANCE_TIMEOUT_SINCE else request.session_timeout_ms,
        request.protocol_type,
        [Protocol(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols],
        node.clock.wall_ms(),
        request.group_instance_id,
        needs_known_id=version >= KNOWN_MEMBER_SINCE,
        may_skip_assignment=version >= SKIP_ASSIGNMENT_SINCE,
        reason=(request.reason or "")[:REASON_LENGTH_MAX],
        rights=topic_rights(node, context),
    )


def _response(version: int, reply: JoinReply) -> messages.JoinGroupResponse:
    # No protocol was an empty name once.
    no_protocol = None if version >= NULLABLE_PROTOCOL_SINCE else ""
    return messages.JoinGroupResponse(
        error_code=reply.error,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol or no_protocol,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            messages.JoinGroupResponse.JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in reply.members
        ],
    )


def error_response(request: messages.JoinGroupRequest, version: int, error: KafkaError) -> messages.JoinGroupResponse:
    return _response(version, JoinReply(error.code, ""))
