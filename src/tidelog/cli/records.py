"""Records as text: what `produce` reads and `consume` writes.

JSON lines carry everything, so that what one cluster's `consume -o json` prints, another's `produce -f json` takes:

    {"key": "k", "value": "v", "headers": [{"key": "h", "value": "x"}], "partition": 0, "timestamp": 1700000000000}

Bytes that are no UTF-8 are under `key_base64` and `value_base64` instead. On the way in, a value that is no string is
taken as JSON, and headers may be an object.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any

from tidelog.client.consumed import ConsumedRecord, Header


class InvalidRecord(ValueError):
    """A line that is no record, or cannot be read; the message says why."""


@dataclasses.dataclass(frozen=True, slots=True)
class RecordToSend:
    """A record as a line gave it; None where the line left the choice to us."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()
    partition: int | None = None
    timestamp: int | None = None


# In


def line_parser(
    *, key: bytes | None, separator: bytes | None, null: bytes | None, is_base64: bool, headers: Sequence[Header]
) -> Callable[[bytes], RecordToSend]:
    """Reads a line as a value, or with `separator` as key and value; `null` stands for none, base64 is undone last."""

    def content(text: bytes) -> bytes | None:
        if null is not None and text == null:
            return None
        return _from_base64(text) if is_base64 else text

    def parse(line: bytes) -> RecordToSend:
        if separator is None:
            return RecordToSend(key, content(line), headers)
        found, separated, value = line.partition(separator)
        if not separated:
            raise InvalidRecord(f"no key separator {separator.decode(errors='replace')!r} in it")
        return RecordToSend(content(found), content(value), headers)

    return parse


_FIELDS = {
    "key", "value", "key_base64", "value_base64", "headers", "partition", "timestamp",
    "topic", "offset", "timestamp_type",
}  # fmt: skip
_TOO_DEEP = "not JSON that can be read: it is nested too deeply"


def json_parser(*, key: bytes | None, is_base64: bool, headers: Sequence[Header]) -> Callable[[bytes], RecordToSend]:
    """Reads a line as one JSON object, as the module says; `key` and `headers` are for those that have none."""

    def parse(line: bytes) -> RecordToSend:
        try:
            fields = json.loads(line)
        except ValueError as error:
            raise InvalidRecord(f"not JSON: {error}") from error
        except RecursionError as error:
            raise InvalidRecord(_TOO_DEEP) from error
        if not isinstance(fields, dict):
            raise InvalidRecord('not a JSON object such as {"key": ..., "value": ...}')
        unknown = fields.keys() - _FIELDS
        if unknown:
            raise InvalidRecord(f"unknown fields: {', '.join(sorted(unknown))}")
        try:
            return RecordToSend(
                key=_json_content(fields, "key", is_base64) if "key" in fields or "key_base64" in fields else key,
                value=_json_content(fields, "value", is_base64),
                headers=_json_headers(fields["headers"], is_base64) if "headers" in fields else headers,
                partition=_json_number(fields, "partition"),
                timestamp=_json_number(fields, "timestamp"),
            )
        except RecursionError as error:  # What can just be read is too deep to be written again.
            raise InvalidRecord(_TOO_DEEP) from error

    return parse


def _json_content(fields: dict[str, Any], name: str, is_base64: bool) -> bytes | None:
    encoded = fields.get(f"{name}_base64")
    if encoded is not None:
        if not isinstance(encoded, str):
            raise InvalidRecord(f"{name}_base64 is not a string")
        return _from_base64(encoded.encode("utf-8", "surrogatepass"))
    return _json_bytes(fields.get(name), is_base64)


def _json_bytes(value: Any, is_base64: bool) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        text = value.encode("utf-8", "surrogatepass")
        return _from_base64(text) if is_base64 else text
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def _json_headers(headers: Any, is_base64: bool) -> list[Header]:
    if headers is None:
        return []
    if isinstance(headers, dict):
        return [(_header_name(name), _json_bytes(value, is_base64)) for name, value in headers.items()]
    if isinstance(headers, list) and all(
        isinstance(entry, dict) and isinstance(entry.get("key"), str) for entry in headers
    ):
        return [(_header_name(entry["key"]), _json_content(entry, "value", is_base64)) for entry in headers]
    raise InvalidRecord('headers are neither an object nor a list of {"key": ..., "value": ...}')


def _header_name(name: str) -> str:
    """The name, if it is a text: JSON can write half of a surrogate pair, of which there is no UTF-8."""
    if any("\ud800" <= character <= "\udfff" for character in name):
        raise InvalidRecord(f"a header's name is no text: {name!r}")
    return name


def _json_number(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise InvalidRecord(f"{name} is not a number from 0 on")
    return value


def _from_base64(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise InvalidRecord(f"not base64: {error}") from error


# Out


def json_line(record: ConsumedRecord, *, as_base64: bool) -> bytes:
    """A record as one line of JSON, newline included."""
    fields: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": "LogAppendTime" if record.timestamp_type else "CreateTime",
        **_json_field("key", record.key, as_base64),
        **_json_field("value", record.value, as_base64),
        "headers": [{"key": name, **_json_field("value", value, as_base64)} for name, value in record.headers],
    }
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _json_field(name: str, content: bytes | None, as_base64: bool) -> dict[str, str | None]:
    if content is None:
        return {name: None}
    if not as_base64:
        try:
            return {name: content.decode()}
        except UnicodeDecodeError:
            pass
    return {f"{name}_base64": base64.b64encode(content).decode()}
