"""ACLs and SCRAM credentials as the metadata store keeps them: nodes and their JSON, as Kafka 3.9 writes and reads.

/kafka-acl/<Type>/<name>                      literal patterns    {"version":1,"acls":[{...}, ...]}
/kafka-acl-extended/prefixed/<Type>/<name>    prefixed patterns
/kafka-acl-changes/acl_changes_N              which literal pattern changed: `TOPIC:name`
/kafka-acl-extended-changes/acl_changes_N     which other one: {"version":1,"resourceType":...}
/config/users/<name, URL-encoded>             settings SCRAM-SHA-256 and SCRAM-SHA-512, beside the user's quotas
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from tidelog.security.access import Operation, ResourceType
from tidelog.security.acls import AclEntry, PatternType, Permission, ResourcePattern

ACLS: Final = "/kafka-acl"
ACL_CHANGES: Final = "/kafka-acl-changes"
EXTENDED_ACLS: Final = "/kafka-acl-extended"
EXTENDED_ACL_CHANGES: Final = "/kafka-acl-extended-changes"
CHANGE_PREFIX: Final = "acl_changes_"
_VERSION: Final = 1
_NO_NODE: Final = re.compile("[/\\x00-\\x1f\\x7f-\\x9f\\ud800-\\uf8ff\\ufff0-\\uffff]")
"""Characters that no name in ZooKeeper has: control characters, private ones, and those that stand for none."""


def _title(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


_TYPES: Final = MappingProxyType({kind: _title(kind.name) for kind in ResourceType})
_OPERATIONS: Final = MappingProxyType({operation: _title(operation.name) for operation in Operation})
_PERMISSIONS: Final = MappingProxyType({permission: _title(permission.name) for permission in Permission})


def _by_name(names: Mapping[Any, str]) -> Mapping[str, Any]:
    """Kafka reads names in any case, with or without underscores."""
    return MappingProxyType({name.upper(): value for value, name in names.items()})


_TYPE_BY_NAME: Final = _by_name(_TYPES)
_OPERATION_BY_NAME: Final = _by_name(_OPERATIONS)
_PERMISSION_BY_NAME: Final = _by_name(_PERMISSIONS)

CONTAINERS: Final = (
    ACLS,
    *(f"{ACLS}/{name}" for name in _TYPES.values()),
    ACL_CHANGES,
    EXTENDED_ACLS,
    f"{EXTENDED_ACLS}/prefixed",
    *(f"{EXTENDED_ACLS}/prefixed/{name}" for name in _TYPES.values()),
    EXTENDED_ACL_CHANGES,
)
"""Persistent nodes that a broker with an authorizer makes, parents first."""

FOLDERS: Final = MappingProxyType(
    {f"{ACLS}/{name}": (PatternType.LITERAL, kind) for kind, name in _TYPES.items()}
    | {f"{EXTENDED_ACLS}/prefixed/{name}": (PatternType.PREFIXED, kind) for kind, name in _TYPES.items()}
)
"""Where the nodes of patterns lie."""


class MalformedNode(ValueError):
    """A node's content that cannot be read; names the node."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} in the metadata store cannot be read: {reason}")
        self.path = path


# ACLs.


def can_be_stored(pattern: ResourcePattern) -> bool:
    """Whether a pattern's name can be a node's: Kafka 3.9 refuses the others too."""
    name = pattern.name
    return bool(name) and name not in (".", "..") and _NO_NODE.search(name) is None


def acl_path(pattern: ResourcePattern) -> str:
    """The node of a pattern's ACLs."""
    folder = ACLS if pattern.pattern_type is PatternType.LITERAL else f"{EXTENDED_ACLS}/prefixed"
    return f"{folder}/{_TYPES[pattern.type]}/{pattern.name}"


def encode_acls(entries: Iterable[AclEntry]) -> bytes:
    """All ACLs of a pattern."""
    acls = [
        {
            "principal": entry.principal,
            "permissionType": _PERMISSIONS[entry.permission],
            "host": entry.host,
            "operation": _OPERATIONS[entry.operation],
        }
        for entry in entries
    ]
    return _dump({"acls": acls, "version": _VERSION})


def decode_acls(path: str, data: bytes | None) -> list[AclEntry]:
    """MalformedNode, also where an operation is not known here: a DENY may be among the entries."""
    if not data:
        return []
    content = _load(path, data)
    try:
        if content["version"] != _VERSION:
            raise ValueError(f"version {content['version']}")
        return [
            AclEntry(
                _text(acl["principal"]),
                _text(acl.get("host", "*")),
                _OPERATION_BY_NAME[_plain(acl["operation"])],
                _PERMISSION_BY_NAME[_plain(acl["permissionType"])],
            )
            for acl in content["acls"]
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MalformedNode(path, f"{type(error).__name__}: {error}") from error


def change_node(pattern: ResourcePattern) -> tuple[str, bytes]:
    """The path (a number follows) and content of the node that tells of a changed pattern."""
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{ACL_CHANGES}/{CHANGE_PREFIX}", f"{pattern.type.name}:{pattern.name}".encode()
    told = {
        "version": _VERSION,
        "resourceType": pattern.type.name,
        "name": pattern.name,
        "patternType": pattern.pattern_type.name,
    }
    return f"{EXTENDED_ACL_CHANGES}/{CHANGE_PREFIX}", _dump(told)


def decode_change(path: str, data: bytes | None) -> ResourcePattern:
    """The pattern that a node of `change_node`, of ours or of Kafka's, tells of; MalformedNode."""
    try:
        if path.startswith(ACL_CHANGES + "/"):
            kind, colon, name = (data or b"").decode().partition(":")
            if not colon:
                raise ValueError("no resource type")
            return ResourcePattern(_TYPE_BY_NAME[_plain(kind)], name)
        content = _load(path, data or b"")
        pattern_type = PatternType[content["patternType"].upper()]
        return ResourcePattern(_TYPE_BY_NAME[_plain(content["resourceType"])], _text(content["name"]), pattern_type)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MalformedNode(path, f"{type(error).__name__}: {error}") from error


# Users.


def sanitized(user: str) -> str:
    """A user's name as a node's name and in JMX (Sanitizer of Kafka): URL-encoded, blanks as %20.

    The two names that no node can have are encoded, too, as those of quotas are.
    """
    from urllib.parse import quote

    return user.replace(".", "%2E") if user in (".", "..") else quote(user, safe="").replace("~", "%7E")


def desanitized(name: str) -> str:
    """The inverse of `sanitized`."""
    from urllib.parse import unquote

    return unquote(name)


def _dump(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


def _load(path: str, data: bytes) -> dict[str, Any]:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MalformedNode(path, str(error)) from error
    if not isinstance(content, dict):
        raise MalformedNode(path, "it is no JSON object")
    return content


def _plain(name: str) -> str:
    return name.replace("_", "").upper()


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
