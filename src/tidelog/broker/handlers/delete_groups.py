"""DeleteGroups: groups without members, with all that they committed.

Versions 0-2. v2: flexible.

NON_EMPTY_GROUP where there are members, GROUP_ID_NOT_FOUND where there is no group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.handlers import Versions
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node
    from tidelog.model.errors import KafkaError

KEY: Final = ApiKey.DELETE_GROUPS
VERSIONS: Final = Versions(0, 2)


def handle(
    node: Node, context: RequestContext, request: messages.DeleteGroupsRequest
) -> messages.DeleteGroupsResponse | Deferred[messages.DeleteGroupsResponse]:
    groups = list(dict.fromkeys(request.groups_names))
    allowed = [group for group in groups if authorize(context, Operation.DELETE, ResourceType.GROUP, group)]
    denied = dict.fromkeys(groups, ErrorCode.GROUP_AUTHORIZATION_FAILED)

    def delete(kept: dict[str, KafkaError]) -> Deferred[messages.DeleteGroupsResponse]:
        errors = denied | {group: error.code for group, error in kept.items()}
        gone = [group for group in allowed if group not in kept]
        return node.groups.delete_groups(gone).then(lambda deleted: _response(groups, errors | deleted))

    # What share groups have stored elsewhere goes before they do.
    return node.sharing.offsets.forget_groups(allowed).and_then(delete)


def _response(groups: list[str], errors: dict[str, ErrorCode]) -> messages.DeleteGroupsResponse:
    result = messages.DeleteGroupsResponse.DeletableGroupResult
    return messages.DeleteGroupsResponse(results=[result(group_id=group, error_code=errors[group]) for group in groups])


def error_response(
    request: messages.DeleteGroupsRequest, version: int, error: KafkaError
) -> messages.DeleteGroupsResponse:
    groups = list(dict.fromkeys(request.groups_names))
    return _response(groups, dict.fromkeys(groups, error.code))
