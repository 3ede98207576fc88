"""How a setting's text becomes a value, and the words in which it is refused."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.config import registry
from tidelog.config.setting import (
    InvalidValue,
    Setting,
    Type,
    Value,
    java_double,
    render,
)


def topic(name: str) -> Setting:
    return registry.TOPIC[name]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", "-1", -1),
        ("retention.ms", " 77 ", 77),
        ("retention.ms", "+5", 5),
        ("retention.ms", "9223372036854775807", 2**63 - 1),
        ("retention.bytes", "-5", -5),
        ("preallocate", "TRUE", True),
        ("preallocate", " false", False),
        ("cleanup.policy", "", ()),
        ("cleanup.policy", "delete , compact", ("delete", "compact")),
        ("cleanup.policy", "delete,delete", ("delete",)),
        ("min.cleanable.dirty.ratio", "1e-1", 0.1),
        ("min.cleanable.dirty.ratio", ".5f", 0.5),
        ("leader.replication.throttled.replicas", "*", ("*",)),
        ("leader.replication.throttled.replicas", "0:1,1:2", ("0:1", "1:2")),
        ("compression.gzip.level", "-1", -1),
    ],
)
def test_texts_that_kafka_takes(name: str, text: str, value: Value) -> None:
    """A text is trimmed and read as Java reads it."""
    assert topic(name).parse(text) == value


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        (
            "cleanup.policy",
            "foo",
            "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        ("cleanup.policy", "delete,,compact", "Configuration 'cleanup.policy' values must not be empty."),
        ("retention.ms", "abc", "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
        ("retention.ms", "-2", "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        ("retention.ms", "", "Invalid value  for configuration retention.ms: Not a number of type LONG"),
        ("retention.ms", "1_000", "Invalid value 1_000 for configuration retention.ms: Not a number of type LONG"),
        ("retention.ms", "٣", "Invalid value ٣ for configuration retention.ms: Not a number of type LONG"),
        (
            "min.cleanable.dirty.ratio",
            "NaN",
            "Invalid value NaN for configuration min.cleanable.dirty.ratio: Not a number of type DOUBLE",
        ),
        (
            "preallocate",
            "maybe",
            "Invalid value maybe for configuration preallocate: Expected value to be either true or false",
        ),
        (
            "segment.bytes",
            "99999999999",
            "Invalid value 99999999999 for configuration segment.bytes: Not a number of type INT",
        ),
        (
            "compression.type",
            "GZIP",
            "Invalid value GZIP for configuration compression.type: "
            "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        (
            "min.cleanable.dirty.ratio",
            "2",
            "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        (
            "compression.gzip.level",
            "0",
            "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
        ),
        (
            "compression.zstd.level",
            "23",
            "Invalid value 23 for configuration compression.zstd.level: Value must be no more than 22",
        ),
        (
            "message.timestamp.type",
            "createtime",
            "Invalid value createtime for configuration message.timestamp.type: "
            "String must be one of: CreateTime, LogAppendTime",
        ),
        ("flush.messages", "0", "Invalid value 0 for configuration flush.messages: Value must be at least 1"),
    ],
)
def test_refusals_in_kafkas_words(name: str, text: str, sentence: str) -> None:
    """The sentences are those that Kafka 4.3's LogConfig.validate gives for the same text."""
    with pytest.raises(InvalidValue) as refused:
        topic(name).parse(text)
    assert str(refused.value) == sentence


@pytest.mark.parametrize("text", ["0:" + "9" * 5_000, "9" * 5_000 + ":0"])
def test_a_throttled_replica_has_numbers_that_can_be_read(text: str) -> None:
    """Python reads no number of more than 4,300 digits: brokers could not take such a setting in."""
    name = "leader.replication.throttled.replicas"
    with pytest.raises(InvalidValue):
        topic(name).parse(text)
    assert topic(name).parse("2147483647:2147483647") == ("2147483647:2147483647",)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (100.0, "100.0"),
        (1e7, "1.0E7"),
        (9999999.0, "9999999.0"),
        (1e-3, "0.001"),
        (1e-4, "1.0E-4"),
        (-12345678.9, "-1.23456789E7"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (float("nan"), "NaN"),
    ],
)
def test_doubles_print_as_javas(value: float, text: str) -> None:
    """Double.toString's form, which Kafka's tools show."""
    assert java_double(value) == text


@given(st.floats(allow_nan=False))
def test_a_printed_double_reads_back(value: float) -> None:
    """No digit is lost on the way through text."""
    setting = Setting("d", Type.DOUBLE, None, "")
    assert struct.pack(">d", setting.parse(java_double(value))) == struct.pack(">d", value)


@given(st.text(max_size=30))
def test_any_text_gives_a_value_or_a_refusal(text: str) -> None:
    """Whatever the text, nothing but InvalidValue is raised; and a value prints to a text of the same value."""
    for setting in registry.TOPIC.values():
        try:
            value = setting.parse(text)
        except InvalidValue:
            continue
        assert setting.parse(render(value)) == value


def test_every_default_is_valid() -> None:
    """A setting's own default passes its own check, and prints to a text of the same value."""
    for setting in (*registry.BROKER.values(), *registry.TOPIC.values()):
        if setting.default is not None:
            assert setting.parse(render(setting.default)) == setting.default
