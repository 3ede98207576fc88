"""Keys and values of the coordinators' logs (__consumer_offsets, __transaction_state, __share_group_state).

A key is its record type as int16, then its message; a value is its version as int16, then its message. A value is of
the same record type as its key. A record type that is not known here was written by a later release: skip its record.
"""

from __future__ import annotations

from functools import cache
from struct import Struct, error
from typing import Any, Final, TypeVar

from tidelog.protocol import catalogue, codec, messages
from tidelog.protocol.errors import InvalidMessage, ProtocolError, UnsupportedVersion
from tidelog.protocol.wire import Buffer

M = TypeVar("M", bound=messages.Message)

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
_INT16: Final = Struct(">h")


@cache
def _names(log: str) -> dict[int, str]:
    """[record type] -> name of its messages without Key or Value."""
    found = {}
    for name in catalogue.places():
        if _log(name) == log and " coordinator-key " in catalogue.block(name).partition("\n")[0]:
            schema = catalogue.schema(name)
            assert schema.key is not None
            found[schema.key] = name.removesuffix("Key")
    return found


def _log(name: str) -> str:
    if name.startswith("TransactionLog"):
        return TRANSACTION_STATE
    return SHARE_GROUP_STATE if name.startswith(("ShareSnapshot", "ShareUpdate")) else CONSUMER_OFFSETS


def key_class(log: str, record_type: int) -> type[messages.Message]:
    """The class of a key. UnsupportedVersion when the record type is not known."""
    return _class(log, record_type, "Key")


def value_class(log: str, record_type: int) -> type[messages.Message]:
    """The class of the value that goes with a key. UnsupportedVersion when the record type is not known."""
    return _class(log, record_type, "Value")


def _class(log: str, record_type: int, part: str) -> type[messages.Message]:
    name = _names(log).get(record_type)
    if name is None:
        raise UnsupportedVersion(f"{log} has no record type {record_type} in this release")
    found: type[messages.Message] = getattr(messages, name + part)
    return found


def encode_key(key: messages.Message) -> bytes:
    """A record's key."""
    if key.KIND != "coordinator-key" or key.RECORD_TYPE is None:
        raise InvalidMessage(f"{type(key).__name__} is not the key of a coordinator's record")
    return _INT16.pack(key.RECORD_TYPE) + codec.encode(key, key.HIGHEST_VERSION)


def encode_value(value: messages.Message, version: int) -> bytes:
    """A record's value; which version to write is the coordinator's choice."""
    return _INT16.pack(version) + codec.encode(value, version)


def decode_key(log: str, data: Buffer) -> Any:
    """The key of a record of `log`. UnsupportedVersion when its type is unknown, ProtocolError when it is malformed."""
    cls = key_class(log, _int16(data, "key"))
    return codec.decode_exactly(cls, cls.HIGHEST_VERSION, data[2:])


def decode_value(cls: type[M], data: Buffer) -> tuple[M, int]:
    """A value of a known class, and its version. Raises as `decode_key`."""
    version = _int16(data, "value")
    return codec.decode_exactly(cls, version, data[2:]), version


def _int16(data: Buffer, what: str) -> int:
    try:
        return int(_INT16.unpack_from(data, 0)[0])
    except error as problem:
        raise ProtocolError(f"a record's {what} of {len(data)} bytes is too short") from problem
