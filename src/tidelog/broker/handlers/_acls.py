"""What the three ACL APIs share: the right to use them, filters, and unknown codes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred
from tidelog.broker.peer import CloseConnection
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType
from tidelog.security.acls import AclFilter

if TYPE_CHECKING:
    from tidelog.broker.cluster.stored_security import AclChange
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node
    from tidelog.security.acls import ResourcePattern
    from tidelog.security.authorizer import Authorizer

UNKNOWN: Final = 0
"""In each of Kafka's enums: a request that names it is malformed."""


def require_authorizer(node: Node, context: RequestContext, operation: Operation) -> Authorizer:
    """KafkaError SECURITY_DISABLED, CLUSTER_AUTHORIZATION_FAILED."""
    if not authorize(context, operation, ResourceType.CLUSTER, CLUSTER_NAME):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"The request needs {operation.name} permission.")
    authorizer = node.authorizer
    if authorizer is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    return authorizer


def refuse_unknown(*codes: int) -> None:
    """CloseConnection where one of the codes is UNKNOWN, as in Kafka."""
    if UNKNOWN in codes:
        raise CloseConnection("an ACL or filter with an unknown element")


def filter_of(asked: Any) -> AclFilter:
    """The filter of a DescribeAcls request, or of one entry of DeleteAcls. CloseConnection."""
    refuse_unknown(asked.resource_type_filter, asked.pattern_type_filter, asked.operation, asked.permission_type)
    return AclFilter(
        resource_type=asked.resource_type_filter,
        name=asked.resource_name_filter,
        pattern_type=asked.pattern_type_filter,
        principal=asked.principal_filter,
        host=asked.host_filter,
        operation=asked.operation,
        permission=asked.permission_type,
    )


def change(node: Node, pattern: ResourcePattern, by: AclChange) -> Deferred[KafkaError | None]:
    """Changes one pattern's ACLs; the error that kept it from that, None where there was none."""
    changed: Deferred[KafkaError | None] = node.security.change_acls(pattern, by).then(lambda _: None)
    return changed.recover(KafkaError, lambda error: error)
