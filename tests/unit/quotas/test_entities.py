"""What may be asked for, and how the store keeps it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.quotas.entities import (
    CLIENT_ID,
    IP,
    USER,
    Entity,
    Filter,
    Match,
    Name,
    QuotaKey,
    decode_values,
    encode_values,
    entity_of,
    entity_path,
    java_double,
    parse_entity,
    parse_value,
)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([], "Invalid empty client quota entity"),
        ([("group", "g")], "Unhandled client quota entity type: group"),
        ([(USER, "")], "Empty user not supported"),
        ([(USER, "u"), (USER, "v")], "Invalid client quota entity, duplicate entity entry user"),
        ([(USER, "u"), (IP, "127.0.0.1")], "Invalid empty client quota entity"),
        ([(IP, "not-an-address")], "not-an-address is not a valid IP or resolvable host."),
    ],
)
def test_entities_that_cannot_be(parts: list[tuple[str, Name]], reason: str) -> None:
    with pytest.raises(KafkaError) as refused:
        parse_entity(parts)
    assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_REQUEST, reason)


@pytest.mark.parametrize(
    ("names", "key", "value", "reason"),
    [
        ({USER: "u"}, "connection_creation_rate", 1, "Invalid configuration key connection_creation_rate"),
        ({IP: None}, "producer_byte_rate", 1, "Invalid configuration key producer_byte_rate"),
        ({USER: "u"}, "producer_byte_rate", 0, "Quota producer_byte_rate must be greater than 0"),
        ({USER: "u"}, "request_percentage", math.nan, "Quota request_percentage must be greater than 0"),
        ({USER: "u"}, "producer_byte_rate", 1.5, "producer_byte_rate cannot be a fractional value."),
        ({USER: "u"}, "consumer_byte_rate", math.inf, "Proposed value for consumer_byte_rate is too large for a LONG."),
        (
            {IP: None},
            "connection_creation_rate",
            2**31,
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
    ],
)
def test_values_that_cannot_be(names: dict[str, Name], key: str, value: float, reason: str) -> None:
    with pytest.raises(KafkaError) as refused:
        parse_value(Entity.of(names), key, value)
    assert refused.value.message == reason


@pytest.mark.parametrize(
    ("names", "path"),
    [
        ({USER: "user1"}, "users/user1"),
        ({USER: None}, "users/<default>"),
        ({CLIENT_ID: "a/b"}, "clients/a%2Fb"),
        ({USER: "CN=a, O=b/c*", CLIENT_ID: None}, "users/CN%3Da%2C%20O%3Db%2Fc%2A/clients/<default>"),
        ({IP: "127.0.0.2"}, "ips/127.0.0.2"),
        ({USER: "."}, "users/%2E"),
    ],
)
def test_paths_are_kafkas(names: dict[str, Name], path: str) -> None:
    entity = Entity.of(names)
    assert entity_path(entity) == path
    assert entity_of(path) == entity


def test_paths_of_others_are_none_of_ours() -> None:
    for path in ("topics/t", "brokers/1", "users", "users/", "users/u/clients", "clients/c/users/u", "ips/1/users/u"):
        assert entity_of(path) is None


_NAMES = st.one_of(st.none(), st.text(min_size=1).filter(lambda text: text.isprintable()))


@given(_NAMES, _NAMES)
def test_paths_lead_back(user: Name, client_id: Name) -> None:
    for names in ({USER: user}, {CLIENT_ID: client_id}, {USER: user, CLIENT_ID: client_id}):
        assert entity_of(entity_path(Entity.of(names))) == Entity.of(names)


def test_values_are_written_as_kafka_writes_them() -> None:
    values = {
        QuotaKey.PRODUCER_BYTE_RATE: 1024.0,
        QuotaKey.REQUEST_PERCENTAGE: 200.0,
        QuotaKey.CONTROLLER_MUTATION_RATE: 5.5,
    }
    written = encode_values(values)
    assert written == {"producer_byte_rate": "1024", "request_percentage": "200.0", "controller_mutation_rate": "5.5"}
    assert decode_values(Entity.of({USER: "u"}), {**written, "SCRAM-SHA-256": "x"}) == (values, [])
    assert decode_values(Entity.of({USER: "u"}), {"producer_byte_rate": "many", "consumer_byte_rate": "-1"}) == (
        {},
        ["producer_byte_rate=many", "consumer_byte_rate=-1"],
    )


@given(st.floats(min_value=1e-300, allow_infinity=False))
def test_doubles_are_read_back(value: float) -> None:
    assert float(java_double(value)) == value


def test_filters() -> None:
    """As ClientQuotasImage: strict leaves out entities of further types."""
    user, both = Entity.of({USER: "u"}), Entity.of({USER: "u", CLIENT_ID: None})
    default, address = Entity.of({USER: None}), Entity.of({IP: "127.0.0.1"})
    cases: list[tuple[list[Match], bool, list[Entity]]] = [
        ([], False, [user, both, default, address]),
        ([], True, []),
        ([Match(USER, 0, "u")], False, [user, both]),
        ([Match(USER, 0, "u")], True, [user]),
        ([Match(USER, 1, None)], True, [default]),
        ([Match(USER, 2, None)], True, [user, default]),
        ([Match(USER, 2, None), Match(CLIENT_ID, 1, None)], False, [both]),
        ([Match(IP, 2, None)], False, [address]),
    ]
    for components, strict, expected in cases:
        wanted = Filter.parse(components, strict)
        assert [entity for entity in (user, both, default, address) if wanted.matches(entity)] == expected


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([Match("", 0, "u")], ErrorCode.INVALID_REQUEST),
        ([Match(USER, 0, "u"), Match(USER, 1, None)], ErrorCode.INVALID_REQUEST),
        ([Match("group", 0, "u")], ErrorCode.UNSUPPORTED_VERSION),
        ([Match(USER, 0, None)], ErrorCode.INVALID_REQUEST),
        ([Match(USER, 1, "u")], ErrorCode.INVALID_REQUEST),
        ([Match(USER, 2, "u")], ErrorCode.INVALID_REQUEST),
        ([Match(USER, 3, None)], ErrorCode.INVALID_REQUEST),
        ([Match(USER, 0, "u"), Match(IP, 2, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_filters_that_cannot_be(components: list[Match], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        Filter.parse(components, strict=False)
    assert refused.value.code is code
