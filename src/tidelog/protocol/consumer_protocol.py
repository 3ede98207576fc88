"""What members of a classic group of consumers tell each other in the opaque bytes of JoinGroup and SyncGroup.

A version as int16, then a ConsumerProtocolSubscription (from each member to the leader) or a ConsumerProtocolAssignment
(from the leader to each member). Clients of all ages share a group; each version begins as the one before:

    version   subscription                       assignment
    0         topics, user data                  partitions, user data
    1         + what is owned (KIP-429)          the same
    2         + since which generation (KIP-792) the same
    3         + the member's rack (KIP-881)      the same
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeVar

from tidelog.protocol import codec, messages
from tidelog.protocol.errors import ProtocolError

PROTOCOL_TYPE: Final = "consumer"
"""Of groups of consumers; others (Connect's workers, schema registries) divide things that are no partitions."""
VERSION: Final = 3
"""The highest that is known; a newer one is read as this one, and what it adds is skipped."""
_VERSION: Final = Struct(">h")
M = TypeVar("M", bound=messages.Message)


def version_of(data: bytes) -> int:
    """The version in which a consumer speaks; ProtocolError."""
    if len(data) < _VERSION.size:
        raise ProtocolError(f"{len(data)} bytes have no version of the consumers' protocol")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise ProtocolError(f"the consumers' protocol has no version {version}")
    return version


def decode(kind: type[M], data: bytes) -> M:
    """A subscription or an assignment of any version; ProtocolError."""
    message, _ = codec.decode(kind, min(version_of(data), VERSION), data, _VERSION.size)
    return message


def topics_of(subscription: bytes) -> list[str]:
    """The topics of a subscription, of which nothing else need be readable; ProtocolError."""
    version_of(subscription)
    message, _ = codec.decode(messages.ConsumerProtocolSubscription, 0, subscription, _VERSION.size)
    return message.topics


def encode(message: messages.Message, version: int) -> bytes:
    """The bytes of a subscription or an assignment; in VERSION for a member that speaks a newer one."""
    version = min(version, VERSION)
    return _VERSION.pack(version) + codec.encode(message, version)
