"""Messages as JSON, as Kafka's generated converters write them: for people and tools, never for the wire.

Names are in camel case, bytes in base64, topic ids as Kafka prints them; tagged fields stand there when they say
something.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from typing import Any, Final

from tidelog.model.identifiers import format_id
from tidelog.protocol import codec, messages
from tidelog.protocol.classes import Message
from tidelog.protocol.coordinator_records import decode_key, decode_value, value_class
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.schema import Field
from tidelog.protocol.source import Layout

_NO_ID: Final = bytes(16)
CONSUMER_PROTOCOL: Final = "consumer"
"""The protocol type of groups of consumers."""


def as_json(message: Message, version: int) -> dict[str, Any]:
    """The fields that the message has in that version."""
    layout = Layout(version, message.SCHEMA.is_flexible(version))
    return _struct(message, message.SCHEMA.fields, layout)


def _struct(value: Any, fields: tuple[Field, ...], layout: Layout) -> dict[str, Any]:
    found = {_camel(field.name): _value(getattr(value, field.name), field, layout) for field in layout.present(fields)}
    for field in layout.tagged(fields):
        content = getattr(value, field.name)
        empty: Any = None if field.default_is_null else [] if field.is_array else field.default
        if content != empty and not (field.type == "uuid" and content == _NO_ID):
            found[_camel(field.name)] = _value(content, field, layout)
    return found


def _value(value: Any, field: Field, layout: Layout) -> Any:
    if value is None:
        return None
    if field.is_array:
        element = field._replace(is_array=False)
        return [_value(item, element, layout) for item in value]
    if field.is_struct:
        return _struct(value, field.fields, layout)
    if field.type == "uuid":
        return format_id(bytes(value))
    if isinstance(value, bytes | bytearray | memoryview):
        return b64encode(bytes(value)).decode()
    return value


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def coordinator_record(
    topic: str, key: bytes | None, value: bytes | None
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Key and value of a record of an internal topic; None for what is not there. Raises ProtocolError.

    As Kafka's dump tool shows them: {"type": "1", "data": {...}} and {"version": "4", "data": {...}}.
    """
    if key is None:
        raise ProtocolError("the record has no key")
    name = decode_key(topic, key)
    shown_key = {"type": str(name.RECORD_TYPE), "data": as_json(name, name.HIGHEST_VERSION)}
    if value is None:
        return shown_key, None
    body, version = decode_value(value_class(topic, name.RECORD_TYPE), value)
    shown = as_json(body, version)
    if isinstance(body, messages.GroupMetadataValue) and body.protocol_type == CONSUMER_PROTOCOL:
        for member, fields in zip(body.members, shown["members"], strict=True):
            fields["subscription"] = _embedded(messages.ConsumerProtocolSubscription, member.subscription)
            fields["assignment"] = _embedded(messages.ConsumerProtocolAssignment, member.assignment)
    return shown_key, {"version": str(version), "data": shown}


def _embedded(cls: type[Message], data: bytes) -> Any:
    """What consumers tell one another through their coordinator, which does not look into it; in base64 if it is not
    what they usually say.
    """
    try:
        (version,) = struct.unpack_from(">h", data)
        return as_json(codec.decode(cls, version, data[2:])[0], version)
    except (struct.error, ProtocolError):
        return b64encode(data).decode()
