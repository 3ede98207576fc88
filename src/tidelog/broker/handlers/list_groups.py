"""ListGroups: the groups that this broker coordinates.

Versions 0-5. v4: filter by state; v5: by type, and each group's type. A group that only has committed offsets is a
classic one without a protocol, Empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred
from tidelog.broker.handlers import Versions
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node
    from tidelog.coordinator.groups.events import ListedGroup
    from tidelog.model.errors import KafkaError

KEY: Final = ApiKey.LIST_GROUPS
VERSIONS: Final = Versions(0, 5)

STATES_SINCE: Final = 4
TYPES_SINCE: Final = 5


def handle(
    node: Node, context: RequestContext, request: messages.ListGroupsRequest
) -> messages.ListGroupsResponse | Deferred[messages.ListGroupsResponse]:
    return node.groups.list_groups().then(lambda groups: _response(context, request, groups))


def _response(
    context: RequestContext, request: messages.ListGroupsRequest, groups: list[ListedGroup]
) -> messages.ListGroupsResponse:
    version = context.api_version
    # Filters are compared as Kafka does, without regard to case; an empty one lets all pass.
    states = {state.lower() for state in request.states_filter} if version >= STATES_SINCE else set()
    types = {kind.lower() for kind in request.types_filter} if version >= TYPES_SINCE else set()
    everything = authorize(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True)
    return messages.ListGroupsResponse(
        groups=[
            _group(version, group)
            for group in groups
            if (not states or group.state.lower() in states)
            and (not types or group.kind.lower() in types)
            and (everything or authorize(context, Operation.DESCRIBE, ResourceType.GROUP, group.group, quiet=True))
        ]
    )


def _group(version: int, group: ListedGroup) -> messages.ListGroupsResponse.ListedGroup:
    listed = messages.ListGroupsResponse.ListedGroup(group_id=group.group, protocol_type=group.protocol_type)
    if version >= STATES_SINCE:
        listed.group_state = group.state
    if version >= TYPES_SINCE:
        listed.group_type = group.kind
    return listed


def error_response(request: messages.ListGroupsRequest, version: int, error: KafkaError) -> messages.ListGroupsResponse:
    return messages.ListGroupsResponse(error_code=error.code)
