"""DescribeGroups: members and state of classic groups.

Versions 0-6. v3: authorized operations; v4: static members; v6: an unknown group is GROUP_ID_NOT_FOUND, before it was
Dead. Groups of the consumer protocol (KIP-848) are described by ConsumerGroupDescribe alone: here they are unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize, authorized_operations
from tidelog.broker.deferred import Deferred, gather
from tidelog.broker.handlers import Versions
from tidelog.coordinator.groups.classic.events import DescribedGroup, DescribeGroup
from tidelog.coordinator.groups.classic.group import ClassicGroupState
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import GROUP_OPERATIONS, Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.DESCRIBE_GROUPS
VERSIONS: Final = Versions(0, 6)

OPERATIONS_SINCE: Final = 3
NOT_FOUND_SINCE: Final = 6


def handle(
    node: Node, context: RequestContext, request: messages.DescribeGroupsRequest
) -> messages.DescribeGroupsResponse | Deferred[messages.DescribeGroupsResponse]:
    with_operations = context.api_version >= OPERATIONS_SINCE and request.include_authorized_operations
    described = gather([_describe(node, context, group, with_operations) for group in request.groups])
    return described.then(lambda groups: messages.DescribeGroupsResponse(groups=groups))


def _describe(
    node: Node, context: RequestContext, group: str, with_operations: bool
) -> Deferred[messages.DescribeGroupsResponse.DescribedGroup]:
    """One group; never fails with a KafkaError."""
    if not authorize(context, Operation.DESCRIBE, ResourceType.GROUP, group):
        return Deferred.of(_failed(group, ErrorCode.GROUP_AUTHORIZATION_FAILED))

    def describe(found: DescribedGroup) -> messages.DescribeGroupsResponse.DescribedGroup:
        described = _described(context.api_version, group, found)
        if with_operations and not described.error_code:
            described.authorized_operations = authorized_operations(
                context, GROUP_OPERATIONS, ResourceType.GROUP, group
            )
        return described

    asked: Deferred[DescribedGroup] = node.groups.ask(group, lambda request_id: DescribeGroup(request_id, group))
    return asked.then(describe).recover(KafkaError, lambda error: _failed(group, error.code))


def _described(version: int, group: str, found: DescribedGroup) -> messages.DescribeGroupsResponse.DescribedGroup:
    described = messages.DescribeGroupsResponse.DescribedGroup(
        group_id=group,
        group_state=found.state,
        protocol_type=found.protocol_type,
        protocol_data=found.protocol,
        members=[
            messages.DescribeGroupsResponse.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in found.members
        ],
    )
    if found.state == ClassicGroupState.DEAD and version >= NOT_FOUND_SINCE:
        described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        described.error_message = (
            f"Group {group} {'is not a classic group' if found.is_of_other_kind else 'not found'}."
        )
    return described


def _failed(group: str, error: ErrorCode) -> messages.DescribeGroupsResponse.DescribedGroup:
    return messages.DescribeGroupsResponse.DescribedGroup(group_id=group, error_code=error)


def error_response(
    request: messages.DescribeGroupsRequest, version: int, error: KafkaError
) -> messages.DescribeGroupsResponse:
    return messages.DescribeGroupsResponse(groups=[_failed(group, error.code) for group in request.groups])
