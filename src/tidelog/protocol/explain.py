"""Finds the field that made an encoder fail. Slow and thorough; runs only when something has failed already."""

from __future__ import annotations

import struct
from typing import Any

from tidelog.protocol.classes import Message
from tidelog.protocol.schema import FIXED, Field
from tidelog.protocol.source import Layout
from tidelog.protocol.wire import STRING_SIZE_MAX


def explain(message: Message, version: int) -> str | None:
    """What is wrong with the first field that cannot be encoded, with its path; None where every field looks right."""
    layout = Layout(version, message.SCHEMA.is_flexible(version))
    return _struct(message, message.SCHEMA.fields, layout, "")


def _struct(value: Any, fields: tuple[Field, ...], layout: Layout, path: str) -> str | None:
    for field in layout.present(fields) + layout.tagged(fields):
        name = f"{path}{field.name}"
        content = getattr(value, field.name)
        problem = _array(content, field, layout, name) if field.is_array else _single(content, field, layout, name)
        if problem:
            return problem
    for number, tag in enumerate(value.unknown_tagged_fields):
        if not (isinstance(tag, tuple) and len(tag) == 2 and isinstance(tag[0], int) and isinstance(tag[1], bytes)):
            return f"{path}unknown_tagged_fields[{number}] must be (tag, bytes), not {tag!r}"
    return None


def _array(value: Any, field: Field, layout: Layout, path: str) -> str | None:
    if value is None:
        return None if layout.is_nullable(field) else f"{path} may not be None in this version"
    if not isinstance(value, list | tuple):
        return f"{path} must be a list, not {type(value).__name__}"
    element = field._replace(is_array=False, null_versions=frozenset())
    for index, item in enumerate(value):
        if problem := _single(item, element, layout, f"{path}[{index}]"):
            return problem
    return None


def _single(value: Any, field: Field, layout: Layout, path: str) -> str | None:
    if value is None:
        return None if layout.is_nullable(field) else f"{path} may not be None in this version"
    if field.is_struct:
        if type(value).__name__ != field.type:
            return f"{path} must be a {field.type}, not {type(value).__name__}"
        return _struct(value, field.fields, layout, f"{path}.")
    if field.type == "uuid":
        right = isinstance(value, bytes) and len(value) == 16
        return None if right else f"{path} must be 16 bytes, not {value!r}"
    if field.type in FIXED:
        try:
            struct.pack(f">{FIXED[field.type][0]}", value)
        except struct.error as error:
            return f"{path} is {value!r}, which {field.type} cannot hold: {error}"
        return None
    if field.type == "string":
        return _string(value, path)
    allowed: tuple[type, ...] = (bytes, bytearray, memoryview) + ((list,) if field.type == "records" else ())
    return None if isinstance(value, allowed) else f"{path} must be bytes, not {type(value).__name__}"


def _string(value: Any, path: str) -> str | None:
    if not isinstance(value, str):
        return f"{path} must be a str, not {type(value).__name__}"
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        return f"{path} cannot be written as UTF-8: {error.reason}"
    return f"{path} has {size} bytes; a string has {STRING_SIZE_MAX} at most" if size > STRING_SIZE_MAX else None
