"""CreateAcls: adds ACLs, each judged by itself; one that is there already is no error.

Versions 1-3. v1: patterns (KIP-290); v2: flexible; v3: users as resources. Any broker carries it out: the store's node
of the pattern is compared and set, and the ACLs are in force here before the answer.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeVar

from tidelog.broker.deferred import Deferred, gather
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._acls import change, refuse_unknown, require_authorizer
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation, ResourceType
from tidelog.security.acls import (
    ANY,
    MATCH,
    AclBinding,
    AclEntry,
    InvalidAcl,
    PatternType,
    Permission,
    ResourcePattern,
    check_new,
)
from tidelog.security.stored import can_be_stored

if TYPE_CHECKING:
    from tidelog.broker.cluster.stored_security import AclChange
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.CREATE_ACLS
VERSIONS: Final = Versions(1, 3)

_Result = messages.CreateAclsResponse.AclCreationResult
_Creation = messages.CreateAclsRequest.AclCreation

E = TypeVar("E", bound=IntEnum)


def handle(
    node: Node, context: RequestContext, request: messages.CreateAclsRequest
) -> Deferred[messages.CreateAclsResponse]:
    for creation in request.creations:
        refuse_unknown(
            creation.resource_type, creation.resource_pattern_type, creation.operation, creation.permission_type
        )
    require_authorizer(node, context, Operation.ALTER)
    judged: list[AclBinding | KafkaError] = [_judge(creation) for creation in request.creations]
    wanted: dict[ResourcePattern, list[AclEntry]] = {}
    for outcome in judged:
        if isinstance(outcome, AclBinding):
            wanted.setdefault(outcome.pattern, []).append(outcome.entry)
    written = gather([change(node, pattern, _adding(entries)) for pattern, entries in wanted.items()])

    def answer(failures: list[KafkaError | None]) -> messages.CreateAclsResponse:
        by_pattern = dict(zip(wanted, failures, strict=True))
        errors = [each if isinstance(each, KafkaError) else by_pattern[each.pattern] for each in judged]
        return messages.CreateAclsResponse(results=[_result(error) for error in errors])

    return written.then(answer)


def _adding(entries: list[AclEntry]) -> AclChange:
    return lambda before: list(dict.fromkeys([*before, *entries]))


def _judge(creation: _Creation) -> AclBinding | KafkaError:
    """The ACL, or why it cannot be created, in Kafka's words."""
    kind, pattern_type = creation.resource_type, creation.resource_pattern_type
    if ANY in (kind, pattern_type, creation.operation, creation.permission_type) or pattern_type == MATCH:
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    if ":" not in creation.principal:
        reason = (
            f"Could not parse principal from `{creation.principal}` (no colon is present separating the principal type "
            "from the principal name)"
        )
        return KafkaError(ErrorCode.INVALID_REQUEST, reason)
    try:
        pattern = ResourcePattern(
            _known(ResourceType, kind, "resourceType"),
            creation.resource_name,
            _known(PatternType, pattern_type, "patternType"),
        )
        entry = AclEntry(
            creation.principal,
            creation.host,
            _known(Operation, creation.operation, "operation"),
            _known(Permission, creation.permission_type, "permissionType"),
        )
        binding = AclBinding(pattern, entry)
        check_new(binding)
        if not can_be_stored(pattern):
            raise InvalidAcl("Failed to create ACL: the metadata store cannot hold a resource of this name.")
    except InvalidAcl as error:
        return KafkaError(ErrorCode.INVALID_REQUEST, str(error))
    return binding


def _known(kind: type[E], code: int, name: str) -> E:
    try:
        return kind(code)
    except ValueError:
        raise InvalidAcl(f"Invalid {name} UNKNOWN") from None


def _result(error: KafkaError | None) -> _Result:
    if error is None:
        return _Result(error_message="")
    return _Result(error_code=error.code, error_message=error.message)


def error_response(request: messages.CreateAclsRequest, version: int, error: KafkaError) -> messages.CreateAclsResponse:
    return messages.CreateAclsResponse(results=[_result(error) for _ in request.creations])
