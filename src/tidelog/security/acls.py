"""ACLs as values: what one says, what a filter selects, and what is refused at their creation.

    AclBinding = pattern (which resources) + principal, host, operation, permission

Codes and names are Kafka's (PatternType, AclPermissionType); 0 stands for UNKNOWN and 1 for ANY in each of its enums.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from tidelog.model.values import value
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType

ANY: Final = 1
"""In a filter: whatever it is. Each of Kafka's enums has it."""
MATCH: Final = 2
"""A filter's pattern type: every pattern that a resource of that name matches."""
WILDCARD: Final = "*"
"""As a literal pattern's name: all resources of the type. As a host: all hosts."""
WILDCARD_PRINCIPAL: Final = "User:*"


class PatternType(IntEnum):
    """How an ACL's resource name is meant."""

    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """What an ACL says."""

    DENY = 2
    ALLOW = 3


class InvalidAcl(ValueError):
    """An ACL that cannot be created; the text is for the answer."""


@value
class ResourcePattern:
    """Which resources an ACL is about."""

    type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        return f"{self.type.name}:{self.pattern_type.name}:{self.name}"


@value
class AclEntry:
    """Whom an ACL allows or denies what."""

    principal: str
    """`User:name`, or `User:*` for all."""
    host: str
    """An address as Java prints it, or `*`."""
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        return (
            f"(principal={self.principal}, host={self.host}, operation={self.operation.name}, "
            f"permissionType={self.permission.name})"
        )


@value
class AclBinding:
    """One ACL."""

    pattern: ResourcePattern
    entry: AclEntry


@value
class AclFilter:
    """Selects ACLs; numbers are Kafka's codes, None stands for any name, principal or host."""

    resource_type: int = ANY
    name: str | None = None
    pattern_type: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY

    def matches(self, binding: AclBinding) -> bool:
        """Whether it selects `binding`."""
        entry = binding.entry
        return (
            self.matches_pattern(binding.pattern)
            and self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (ANY, entry.operation)
            and self.permission in (ANY, entry.permission)
        )

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        """Whether it selects ACLs of `pattern`."""
        if self.resource_type not in (ANY, pattern.type):
            return False
        if self.pattern_type not in (ANY, MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type != MATCH:
            return self.name == pattern.name
        if pattern.pattern_type is PatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name in (self.name, WILDCARD)


def check_new(binding: AclBinding) -> None:
    """InvalidAcl where an ACL cannot be created, in Kafka's words."""
    pattern = binding.pattern
    if pattern.type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        raise InvalidAcl("The only valid name for the CLUSTER resource is kafka-cluster")
    if not pattern.name:
        raise InvalidAcl("Invalid empty resource name")


def implied_by(operation: Operation) -> frozenset[Operation]:
    """Operations whose ALLOW allows `operation` too, itself and ALL among them; a DENY implies nothing."""
    return _IMPLIED.get(operation, frozenset({operation, Operation.ALL}))


_IMPLIED: Final = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.ALL}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL}),
}
