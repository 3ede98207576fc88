"""The table of APIs: what is advertised, and which header goes before a message."""

from __future__ import annotations

import pytest

from tidelog.protocol import apis, catalogue
from tidelog.protocol.apis import ApiKey
from tidelog.protocol.errors import UnsupportedVersion

SERVED_BY_KAFKA = {
    0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 8: (2, 10), 9: (1, 10), 10: (0, 6), 11: (0, 9), 12: (0, 4),
    13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5), 17: (0, 1), 36: (0, 2), 18: (0, 4), 19: (2, 7), 20: (1, 6),
    21: (0, 2), 22: (0, 5), 23: (2, 4), 24: (0, 5), 25: (0, 4), 26: (0, 5), 28: (0, 5), 29: (1, 3), 30: (1, 3),
    31: (1, 3), 32: (1, 4), 33: (0, 2), 44: (0, 1), 37: (0, 3), 42: (0, 2), 47: (0, 0), 68: (0, 1), 69: (0, 1),
    76: (1, 1), 78: (1, 2), 79: (1, 2), 34: (1, 2), 35: (1, 5), 43: (0, 2), 45: (0, 1), 46: (0, 0), 48: (0, 1),
    49: (0, 1), 55: (0, 2), 57: (0, 2), 60: (0, 2), 65: (0, 0), 66: (0, 2), 74: (0, 1),
}  # fmt: skip
"""[key] -> the range of Kafka 4.3, as its clients meet it."""


@pytest.mark.parametrize("key", sorted(SERVED_BY_KAFKA))
def test_the_advertised_range_is_kafkas(key: int) -> None:
    """Clients infer features and releases from these ranges, so they are those of 4.3."""
    assert apis.advertised(ApiKey(key)) == SERVED_BY_KAFKA[key]


def test_produce_is_advertised_from_0() -> None:
    """librdkafka before 2.11.1 turns compression off when the lowest version of Produce is above 0."""
    assert apis.advertised(ApiKey.PRODUCE) == (0, 13)


@pytest.mark.parametrize("key", [4, 5, 6, 7])
def test_what_only_an_older_kafka_has_is_not_advertised(key: int) -> None:
    """The controller's calls of 3.9 are known to the codec and advertised to nobody."""
    assert apis.advertised(ApiKey(key)) is None
    assert apis.versions(ApiKey(key)).lowest == 0


@pytest.mark.parametrize("key", list(ApiKey))
def test_the_two_tables_agree(key: ApiKey) -> None:
    """Name, known versions and first flexible version are those of the request and of the response."""
    api = apis.APIS[key]
    for part in ("Request", "Response"):
        schema = catalogue.schema(api.name + part)
        assert schema.key == key
        assert (schema.lowest, schema.highest) == api.versions
        assert schema.flexible_since == api.first_flexible
    assert key.name == "".join(f"_{c}" if c.isupper() else c for c in api.name).strip("_").upper()
    if api.advertised is not None and key is not ApiKey.PRODUCE:
        assert api.advertised.lowest in api.versions
        assert api.advertised.highest in api.versions


def test_an_api_versions_response_has_the_oldest_header() -> None:
    """A tag byte there aborts librdkafka's process (KIP-511); its request has a flexible header."""
    assert [apis.response_header_version(18, version) for version in range(5)] == [0, 0, 0, 0, 0]
    assert [apis.request_header_version(18, version) for version in range(5)] == [1, 1, 1, 2, 2]


def test_header_versions_follow_the_first_flexible_version() -> None:
    """Version 2 and 1 from there on, 1 and 0 before; only ControlledShutdown 0 lacks a client id."""
    assert apis.request_header_version(3, 8) == 1
    assert apis.request_header_version(3, 9) == 2
    assert apis.response_header_version(3, 8) == 0
    assert apis.response_header_version(3, 9) == 1
    assert apis.request_header_version(7, 0) == 0
    assert apis.request_header_version(7, 1) == 1
    assert apis.request_header_version(47, 0) == 1
    assert apis.request_header_version(17, 1) == 1


def test_an_unknown_key_has_no_headers() -> None:
    """The error names the key."""
    with pytest.raises(UnsupportedVersion, match="999"):
        apis.request_header_version(999, 0)
    with pytest.raises(UnsupportedVersion, match="999"):
        apis.response_header_version(999, 0)
