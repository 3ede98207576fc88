"""DescribeAcls: the ACLs that a filter selects, by resource.

Versions 1-3. v1: patterns (KIP-290); v2: flexible; v3: users as resources. Answered from what this broker follows in
the metadata store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._acls import filter_of, require_authorizer
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node
    from tidelog.model.errors import KafkaError
    from tidelog.security.acls import AclEntry, ResourcePattern

KEY: Final = ApiKey.DESCRIBE_ACLS
VERSIONS: Final = Versions(1, 3)

_Resource = messages.DescribeAclsResponse.DescribeAclsResource
_Description = messages.DescribeAclsResponse.AclDescription


def handle(node: Node, context: RequestContext, request: messages.DescribeAclsRequest) -> messages.DescribeAclsResponse:
    wanted = filter_of(request)
    authorizer = require_authorizer(node, context, Operation.DESCRIBE)
    found: dict[ResourcePattern, list[AclEntry]] = {}
    for binding in authorizer.select(wanted):
        found.setdefault(binding.pattern, []).append(binding.entry)
    resources = [
        _Resource(
            resource_type=pattern.type,
            resource_name=pattern.name,
            pattern_type=pattern.pattern_type,
            acls=[_description(entry) for entry in sorted(entries, key=str)],
        )
        for pattern, entries in found.items()
    ]
    return messages.DescribeAclsResponse(error_message="", resources=resources)


def _description(entry: AclEntry) -> _Description:
    return _Description(
        principal=entry.principal, host=entry.host, operation=entry.operation, permission_type=entry.permission
    )


def error_response(
    request: messages.DescribeAclsRequest, version: int, error: KafkaError
) -> messages.DescribeAclsResponse:
    return messages.DescribeAclsResponse(error_code=error.code, error_message=error.message, resources=[])
