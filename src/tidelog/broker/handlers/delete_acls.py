"""DeleteAcls: removes the ACLs that filters select, and names them.

Versions 1-3. v1: patterns (KIP-290); v2: flexible; v3: users as resources. Any broker carries it out, as CreateAcls.
What two filters of a request select, each of them names. They select from what the store has when the request comes:
an ACL that another broker created a moment ago is not overlooked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.deferred import Deferred, gather
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._acls import change, filter_of, require_authorizer
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation, ResourceType
from tidelog.security.acls import ANY, MATCH, PatternType, Permission

if TYPE_CHECKING:
    from tidelog.broker.cluster.stored_security import AclChange
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node
    from tidelog.security.acls import AclBinding, AclEntry, AclFilter, ResourcePattern
    from tidelog.security.authorizer import Authorizer

KEY: Final = ApiKey.DELETE_ACLS
VERSIONS: Final = Versions(1, 3)

_Result = messages.DeleteAclsResponse.DeleteAclsFilterResult
_Matching = messages.DeleteAclsResponse.DeleteAclsMatchingAcl


def handle(
    node: Node, context: RequestContext, request: messages.DeleteAclsRequest
) -> Deferred[messages.DeleteAclsResponse]:
    filters = [filter_of(asked) for asked in request.filters]
    authorizer = require_authorizer(node, context, Operation.ALTER)
    return node.security.caught_up().and_then(lambda _: _delete(node, authorizer, filters))


def _delete(node: Node, authorizer: Authorizer, filters: list[AclFilter]) -> Deferred[messages.DeleteAclsResponse]:
    refusals = [_refusal(wanted) for wanted in filters]
    selected = [[] if refused else authorizer.select(wanted) for wanted, refused in zip(filters, refusals, strict=True)]
    gone: dict[ResourcePattern, set[AclEntry]] = {}
    for bindings in selected:
        for binding in bindings:
            gone.setdefault(binding.pattern, set()).add(binding.entry)
    deleted = gather([change(node, pattern, _without(entries)) for pattern, entries in gone.items()])

    def answer(failures: list[KafkaError | None]) -> messages.DeleteAclsResponse:
        by_pattern = dict(zip(gone, failures, strict=True))
        results = [
            _Result(
                error_code=ErrorCode.NONE if refused is None else ErrorCode.INVALID_REQUEST,
                error_message=refused,
                matching_acls=[_matching(binding, by_pattern[binding.pattern]) for binding in bindings],
            )
            for bindings, refused in zip(selected, refusals, strict=True)
        ]
        return messages.DeleteAclsResponse(filter_results=results)

    return deleted.then(answer)


def _refusal(wanted: AclFilter) -> str | None:
    """Why a filter is refused, in Kafka's words: it has a code that a later version may know."""
    if wanted.resource_type not in (ANY, *ResourceType) or wanted.pattern_type not in (ANY, MATCH, *PatternType):
        return "Unknown patternFilter."
    if wanted.operation not in (ANY, *Operation) or wanted.permission not in (ANY, *Permission):
        return "Unknown entryFilter."
    return None


def _without(entries: set[AclEntry]) -> AclChange:
    return lambda before: [entry for entry in before if entry not in entries]


def _matching(binding: AclBinding, error: KafkaError | None) -> _Matching:
    return _Matching(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        resource_type=binding.pattern.type,
        resource_name=binding.pattern.name,
        pattern_type=binding.pattern.pattern_type,
        principal=binding.entry.principal,
        host=binding.entry.host,
        operation=binding.entry.operation,
        permission_type=binding.entry.permission,
    )


def error_response(request: messages.DeleteAclsRequest, version: int, error: KafkaError) -> messages.DeleteAclsResponse:
    result = _Result(error_code=error.code, error_message=error.message, matching_acls=[])
    return messages.DeleteAclsResponse(filter_results=[result for _ in request.filters])
