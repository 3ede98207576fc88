"""Requests, responses, headers and data messages: bytes and JSON form, both directions, in every version."""

from __future__ import annotations

from typing import Any

from tests.vectors.json_form import from_json, to_json
from tidelog.protocol import apis, codec, messages

FILES = ("messages.json.gz",)


def check(case: dict[str, Any]) -> None:
    given = case["input"]
    cls, version, expected = getattr(messages, given["name"]), given["version"], bytes.fromhex(case["expected"]["hex"])
    unknown = [(tag, bytes.fromhex(content)) for tag, content in given.get("unknown_tagged_fields", [])]
    message = from_json(cls, version, dict(given["json"]))
    message.unknown_tagged_fields = unknown
    assert codec.encode(message, version) == expected
    for data in (expected, memoryview(bytearray(expected))):
        decoded = codec.decode_exactly(cls, version, data)
        assert to_json(decoded, version) == given["json"]
        assert decoded == message
        assert list(decoded.unknown_tagged_fields) == unknown
        assert codec.encode(decoded, version) == expected
    assert cls.SCHEMA.is_flexible(version) == given["flexible"]
    assert given["type"] == cls.KIND
    if "api_key" in given:
        key = apis.ApiKey(given["api_key"])
        assert key == cls.API_KEY
        is_request = given["type"] == "request"
        header_version = apis.request_header_version if is_request else apis.response_header_version
        assert header_version(key, version) == given["header_version"]
