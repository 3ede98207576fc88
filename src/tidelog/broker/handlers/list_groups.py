"""ListGroups: the groups that this broker coordinates.

Versions 0-5. v4: filter by state; v5: by type, and each group's type. There is no membership in this release: a group
is its committed offsets, which Kafka calls a classic group without a protocol, Empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.handlers import Versions
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node
    from tidelog.model.errors import KafkaError

KEY: Final = ApiKey.LIST_GROUPS
VERSIONS: Final = Versions(0, 5)

STATES_FROM: Final = 4
TYPES_FROM: Final = 5
STATE: Final = "Empty"
TYPE: Final = "classic"


def handle(node: Node, context: RequestContext, request: messages.ListGroupsRequest) -> messages.ListGroupsResponse:
    version = context.api_version
    groups = node.groups.list_groups()
    # Filters are compared as Kafka does, without regard to case; an empty one lets all pass.
    if version >= STATES_FROM and request.states_filter and STATE.lower() not in map(str.lower, request.states_filter):
        groups = []
    if version >= TYPES_FROM and request.types_filter and TYPE not in map(str.lower, request.types_filter):
        groups = []
    everything = authorize(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    return messages.ListGroupsResponse(
        groups=[
            _group(version, group)
            for group in groups
            if everything or authorize(context, Operation.DESCRIBE, ResourceType.GROUP, group)
        ]
    )


def _group(version: int, group: str) -> messages.ListGroupsResponse.ListedGroup:
    listed = messages.ListGroupsResponse.ListedGroup(group_id=group, protocol_type="")
    if version >= STATES_FROM:
        listed.group_state = STATE
    if version >= TYPES_FROM:
        listed.group_type = TYPE
    return listed


def error_response(request: messages.ListGroupsRequest, version: int, error: KafkaError) -> messages.ListGroupsResponse:
    return messages.ListGroupsResponse(error_code=error.code)
