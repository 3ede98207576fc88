"""Kafka's JSON form of messages, as the golden vectors hold it, to objects and back."""

from __future__ import annotations

import base64
from typing import Any

from tidelog.model.identifiers import format_topic_id, parse_topic_id
from tidelog.protocol.classes import Message, Structure
from tidelog.protocol.schema import Field, camel_case
from tidelog.protocol.source import Layout


def from_json(cls: type[Message], version: int, form: dict[str, Any]) -> Any:
    """The message that a JSON form stands for; tagged fields that are absent are at their defaults."""
    return _struct_from(cls, cls.SCHEMA.fields, cls, Layout(version, cls.SCHEMA.is_flexible(version)), form)


def to_json(message: Message, version: int) -> dict[str, Any]:
    """The JSON form of a message."""
    schema = message.SCHEMA
    return _struct_to(message, schema.fields, Layout(version, schema.is_flexible(version)))


def _struct_from(
    cls: type[Structure], fields: tuple[Field, ...], root: type[Message], layout: Layout, form: dict[str, Any]
) -> Any:
    values = {}
    for field in layout.present(fields) + layout.tagged(fields):
        key = camel_case(field.name)
        if key in form:
            value = form.pop(key)
            if field.is_array and value is not None:
                values[field.name] = [_from(field, root, layout, item) for item in value]
            else:
                values[field.name] = _from(field, root, layout, value)
        else:
            assert layout.is_tagged(field), f"{key} is missing in the JSON form"
    assert not form, f"the table has no {list(form)} in version {layout.version}"
    return cls(**values)


def _from(field: Field, root: type[Message], layout: Layout, value: Any) -> Any:
    if value is None:
        return None
    if field.is_struct:
        return _struct_from(root.STRUCTS[field.type], field.fields, root, layout, dict(value))
    match field.type:
        case "uuid":
            return parse_topic_id(value)
        case "bytes" | "records":
            return base64.b64decode(value)
        case _:
            return value


def _struct_to(value: Any, fields: tuple[Field, ...], layout: Layout) -> dict[str, Any]:
    form = {}
    for field in sorted(layout.present(fields) + layout.tagged(fields), key=fields.index):
        content = getattr(value, field.name)
        if layout.is_tagged(field) and content == getattr(type(value)(), field.name):
            continue
        if field.is_array and content is not None:
            form[camel_case(field.name)] = [_to(field, layout, item) for item in content]
        else:
            form[camel_case(field.name)] = _to(field, layout, content)
    return form


def _to(field: Field, layout: Layout, value: Any) -> Any:
    if value is None:
        return None
    if field.is_struct:
        return _struct_to(value, field.fields, layout)
    match field.type:
        case "uuid":
            return format_topic_id(value)
        case "bytes" | "records":
            return base64.b64encode(value).decode()
        case _:
            return value
