"""Keys and values of the coordinators' logs, with the record type or version that stands before them."""

from __future__ import annotations

from typing import Any

from tests.vectors.json_form import from_json, to_json
from tidelog.protocol import codec, coordinator_records, messages

FILES = ("coordinator-records.json.gz",)


def check(case: dict[str, Any]) -> None:
    given, expected = case["input"], bytes.fromhex(case["expected"]["hex"])
    cls, version = getattr(messages, given["name"]), given["version"]
    message = from_json(cls, version, dict(given["json"]))
    assert given["record_type"] == cls.RECORD_TYPE
    if given["part"] == "key":
        assert coordinator_records.encode_key(message) == expected
        decoded = coordinator_records.decode_key(given["log"], expected)
    else:
        assert coordinator_records.encode_value(message, version) == expected
        decoded, found = coordinator_records.decode_value(cls, expected)
        assert found == version
    assert decoded == message
    assert to_json(decoded, version) == given["json"]
    assert codec.encode(decoded, version) == expected[2:]
