"""LeaveGroup: members say goodbye to a classic group, or an administrator removes static ones.

Versions 0-5. v3: several members, also by their instance ids alone; v5: a reason for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._members import REASON_LENGTH_MAX, member_error
from tidelog.coordinator.groups.classic.events import LeaveGroup, LeaveReply, LeavingMember
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.LEAVE_GROUP
VERSIONS: Final = Versions(0, 5)

SEVERAL_SINCE: Final = 3


def handle(
    node: Node, context: RequestContext, request: messages.LeaveGroupRequest
) -> messages.LeaveGroupResponse | Deferred[messages.LeaveGroupResponse]:
    group = request.group_id
    if not authorize(context, Operation.READ, ResourceType.GROUP, group):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not group:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    version = context.api_version
    leaving = _leaving(request, version)
    asked: Deferred[LeaveReply] = node.groups.ask(
        group, lambda request_id: LeaveGroup(request_id, group, leaving, node.clock.wall_ms())
    )
    return asked.then(lambda reply: _response(version, leaving, reply.errors)).recover(
        KafkaError, lambda error: error_response(request, version, KafkaError(member_error(error)))
    )


def _leaving(request: messages.LeaveGroupRequest, version: int) -> Sequence[LeavingMember]:
    if version < SEVERAL_SINCE:
        return [LeavingMember(request.member_id)]
    return [
        LeavingMember(member.member_id, member.group_instance_id, (member.reason or "")[:REASON_LENGTH_MAX])
        for member in request.members
    ]


def _response(
    version: int, leaving: Sequence[LeavingMember], errors: Sequence[ErrorCode]
) -> messages.LeaveGroupResponse:
    if version < SEVERAL_SINCE:
        return messages.LeaveGroupResponse(error_code=errors[0])
    return messages.LeaveGroupResponse(
        members=[
            messages.LeaveGroupResponse.MemberResponse(
                member_id=member.member_id, group_instance_id=member.instance_id, error_code=error
            )
            for member, error in zip(leaving, errors, strict=True)
        ]
    )


def error_response(request: messages.LeaveGroupRequest, version: int, error: KafkaError) -> messages.LeaveGroupResponse:
    return messages.LeaveGroupResponse(error_code=error.code)
