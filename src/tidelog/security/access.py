"""The vocabulary of access control: who may do what to which resource.

Codes and names are Kafka's (AclOperation, ResourceType), since they travel in ACL requests and in the
`authorized_operations` bit sets of Metadata, DescribeCluster and DescribeGroups.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final

from tidelog.model.values import value


class Operation(IntEnum):
    """What a request does to a resource."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """What a request does it to."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


CLUSTER_NAME: Final = "kafka-cluster"
"""The one resource of type CLUSTER."""

AUTHORIZED_OPERATIONS_UNASKED: Final = -2147483648
"""The bit set's value when the client did not ask for it."""

TOPIC_OPERATIONS: Final = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
"""What can be done to a topic."""

CLUSTER_OPERATIONS: Final = (
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)
"""What can be done to the cluster."""

GROUP_OPERATIONS: Final = (
    Operation.READ,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
"""What can be done to a group."""


def operation_bits(operations: Iterable[Operation]) -> int:
    """The bit set of `operations`, as `authorized_operations` fields carry it."""
    bits = 0
    for operation in operations:
        bits |= 1 << operation
    return bits


@value
class Principal:
    """Who is asking; prints as Kafka's `User:name`."""

    name: str
    type: str = "User"

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


class UnknownPrincipal(Exception):
    """A certificate that names no principal here: the text is for the log."""


ANONYMOUS: Final = Principal("ANONYMOUS")
"""Every client of a listener without authentication."""
