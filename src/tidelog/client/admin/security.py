"""ACLs and SCRAM users: described, added, removed. No I/O.

ACLs are values of `tidelog.security.acls`; a password leaves this process salted and hashed only.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tidelog.client.admin.answers import error_codes, error_of
from tidelog.client.errors import InvalidResponse
from tidelog.client.operations import Operation
from tidelog.client.routing import Routing
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.security import access
from tidelog.security.access import ResourceType
from tidelog.security.acls import AclBinding, AclEntry, AclFilter, PatternType, Permission, ResourcePattern
from tidelog.security.scram import BY_CODE, MECHANISMS, salted_password

ITERATIONS: Final = 8_192
_SALT_BYTES: Final = 24


class ScramUpsertion(NamedTuple):
    """A password for a user by one mechanism; what the user had by that mechanism before is replaced."""

    user: str
    mechanism: str
    password: str
    iterations: int = ITERATIONS

    def __repr__(self) -> str:
        return f"ScramUpsertion(user={self.user!r}, mechanism={self.mechanism!r}, iterations={self.iterations})"


def describe_acls(
    routing: Routing, selected: AclFilter, *, timeout_s: float | None = None
) -> Operation[list[AclBinding]]:
    """The ACLs that the filter selects, in an order of their own. KafkaError."""
    request = messages.DescribeAclsRequest(
        resource_type_filter=selected.resource_type,
        resource_name_filter=selected.name,
        pattern_type_filter=selected.pattern_type,
        principal_filter=selected.principal,
        host_filter=selected.host,
        operation=selected.operation,
        permission_type=selected.permission,
    )
    answer = yield from routing.ask_any(request, routing.deadline(timeout_s))
    refused = error_of(answer.error_code, answer.error_message, "the list of ACLs")
    if refused is not None:
        raise refused
    found = [
        _binding(resource.resource_type, resource.resource_name, resource.pattern_type, acl)
        for resource in answer.resources
        for acl in resource.acls
    ]
    return sorted(found, key=_order)


def create_acls(
    routing: Routing, bindings: Sequence[AclBinding], *, timeout_s: float | None = None
) -> Operation[dict[AclBinding, KafkaError | None]]:
    """Adds ACLs; each one's error or None. One that is there already is no error."""
    kind = messages.CreateAclsRequest
    request = kind(
        creations=[
            kind.AclCreation(
                resource_type=each.pattern.type,
                resource_name=each.pattern.name,
                resource_pattern_type=each.pattern.pattern_type,
                principal=each.entry.principal,
                host=each.entry.host,
                operation=each.entry.operation,
                permission_type=each.entry.permission,
            )
            for each in bindings
        ]
    )
    answer = yield from routing.ask_any(request, routing.deadline(timeout_s))
    return {
        binding: error_of(result.error_code, result.error_message, "an ACL")
        for binding, result in zip(bindings, answer.results, strict=True)
    }


def delete_acls(
    routing: Routing, filters: Sequence[AclFilter], *, timeout_s: float | None = None
) -> Operation[dict[AclFilter, list[AclBinding] | KafkaError]]:
    """Removes the ACLs that any of the filters selects; what each one removed, or its error."""
    kind = messages.DeleteAclsRequest
    request = kind(
        filters=[
            kind.DeleteAclsFilter(
                resource_type_filter=each.resource_type,
                resource_name_filter=each.name,
                pattern_type_filter=each.pattern_type,
                principal_filter=each.principal,
                host_filter=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in filters
        ]
    )
    answer = yield from routing.ask_any(request, routing.deadline(timeout_s))
    results: dict[AclFilter, list[AclBinding] | KafkaError] = {}
    for each, result in zip(filters, answer.filter_results, strict=True):
        matching = result.matching_acls
        failures = [result, *(acl for acl in matching if acl.error_code != ErrorCode.NONE)]
        refused = next(filter(None, (error_of(one.error_code, one.error_message, "an ACL") for one in failures)), None)
        results[each] = refused or [
            _binding(acl.resource_type, acl.resource_name, acl.pattern_type, acl) for acl in matching
        ]
    return results


def describe_scram_users(
    routing: Routing, users: Iterable[str] | None = None, *, timeout_s: float | None = None
) -> Operation[dict[str, dict[str, int] | KafkaError]]:
    """[user][mechanism] -> iterations, of these users or of all that there are, or a user's error. KafkaError."""
    kind = messages.DescribeUserScramCredentialsRequest
    request = kind(users=None if users is None else [kind.UserName(name=user) for user in users])
    answer = yield from routing.ask_any(request, routing.deadline(timeout_s))
    refused = error_of(answer.error_code, answer.error_message, "the list of users")
    if refused is not None:
        raise refused
    return {
        result.user: error_of(result.error_code, result.error_message, f"user '{result.user}'")
        or {_mechanism(info.mechanism): info.iterations for info in result.credential_infos}
        for result in sorted(answer.results, key=lambda each: each.user)
    }


def alter_scram_users(
    routing: Routing,
    upsertions: Iterable[ScramUpsertion] = (),
    deletions: Iterable[tuple[str, str]] = (),
    *,
    timeout_s: float | None = None,
) -> Operation[Mapping[str, KafkaError | None]]:
    """Sets passwords, and takes away credentials, (user, mechanism) each; each user's error or None.

    Brokers allow a user once in a request: KafkaError DUPLICATE_RESOURCE otherwise, for that user. Each password costs
    its iterations of a hash here.
    """
    kind = messages.AlterUserScramCredentialsRequest
    request = kind(
        upsertions=[_upsertion(each) for each in upsertions],
        deletions=[
            kind.ScramCredentialDeletion(name=user, mechanism=MECHANISMS[mechanism].code)
            for user, mechanism in deletions
        ],
    )
    deadline = routing.deadline(timeout_s)
    answer = yield from routing.ask_controller(request, deadline, lambda found: error_codes(found.results))
    return {
        result.user: error_of(result.error_code, result.error_message, f"user '{result.user}'")
        for result in answer.results
    }


def _upsertion(each: ScramUpsertion) -> Any:
    mechanism = MECHANISMS[each.mechanism]
    salt = secrets.token_bytes(_SALT_BYTES)
    return messages.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=each.user,
        mechanism=mechanism.code,
        iterations=each.iterations,
        salt=salt,
        salted_password=salted_password(mechanism, each.password, salt, each.iterations),
    )


def _mechanism(code: int) -> str:
    return BY_CODE[code].name if code in BY_CODE else f"mechanism {code}"


def _binding(resource_type: int, name: str, pattern_type: int, acl: Any) -> AclBinding:
    try:
        return AclBinding(
            ResourcePattern(ResourceType(resource_type), name, PatternType(pattern_type)),
            AclEntry(acl.principal, acl.host, access.Operation(acl.operation), Permission(acl.permission_type)),
        )
    except ValueError as error:
        raise InvalidResponse(f"a broker names an ACL that is not known here: {error}") from error


def _order(binding: AclBinding) -> tuple[object, ...]:
    pattern, entry = binding.pattern, binding.entry
    return (
        *(pattern.type, pattern.name, pattern.pattern_type),
        *(entry.permission, entry.principal, entry.host, entry.operation),
    )
