"""DescribeGroups: members and state of groups, of which there is only one kind here: Empty.

Versions 0-6. v3: authorized operations; v6: an unknown group is GROUP_ID_NOT_FOUND, before it was Dead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred, gather
from tidelog.broker.handlers import Versions
from tidelog.coordinator.groups.offset_events import FetchedOffsets, FetchOffsets
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import GROUP_OPERATIONS, Operation, ResourceType, operation_bits

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.DESCRIBE_GROUPS
VERSIONS: Final = Versions(0, 6)

OPERATIONS_FROM: Final = 3
NOT_FOUND_FROM: Final = 6
EMPTY: Final = "Empty"
DEAD: Final = "Dead"


def handle(
    node: Node, context: RequestContext, request: messages.DescribeGroupsRequest
) -> messages.DescribeGroupsResponse | Deferred[messages.DescribeGroupsResponse]:
    with_operations = context.api_version >= OPERATIONS_FROM and request.include_authorized_operations
    described = gather([_describe(node, context, group, with_operations) for group in request.groups])
    answer = described.then(lambda groups: messages.DescribeGroupsResponse(groups=groups))
    return answer.result() if answer.done else answer


def _describe(
    node: Node, context: RequestContext, group: str, with_operations: bool
) -> Deferred[messages.DescribeGroupsResponse.DescribedGroup]:
    """One group; never fails with a KafkaError."""
    answer: Deferred[messages.DescribeGroupsResponse.DescribedGroup] = Deferred()
    if not authorize(context, Operation.DESCRIBE, ResourceType.GROUP, group):
        answer.complete(_failed(group, ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return answer

    def settle(outcome: Deferred[object]) -> None:
        try:
            reply = outcome.result()
        except KafkaError as error:
            answer.complete(_failed(group, error.code))
            return
        assert isinstance(reply, FetchedOffsets)
        described = _described(context.api_version, group, bool(reply.offsets))
        if with_operations:
            described.authorized_operations = operation_bits(GROUP_OPERATIONS)
        answer.complete(described)

    node.groups.ask(group, lambda request_id: FetchOffsets(request_id, group)).on_complete(settle)
    return answer


def _described(version: int, group: str, exists: bool) -> messages.DescribeGroupsResponse.DescribedGroup:
    described = messages.DescribeGroupsResponse.DescribedGroup(group_id=group, group_state=EMPTY if exists else DEAD)
    if not exists and version >= NOT_FOUND_FROM:
        described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        described.error_message = f"Group {group} not found."
    return described


def _failed(group: str, error: ErrorCode) -> messages.DescribeGroupsResponse.DescribedGroup:
    return messages.DescribeGroupsResponse.DescribedGroup(group_id=group, error_code=error)


def error_response(
    request: messages.DescribeGroupsRequest, version: int, error: KafkaError
) -> messages.DescribeGroupsResponse:
    return messages.DescribeGroupsResponse(groups=[_failed(group, error.code) for group in request.groups])
