"""A topic's settings: checked in Kafka's words, resolved over the broker's."""

from __future__ import annotations

import pytest

from tidelog.config import topic_config
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.setting import Value
from tidelog.config.topic_config import InvalidTopicConfig


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"foo": "bar"}, "Unknown topic config name: foo"),
        ({"retention.ms": None}, "Null value not supported for topic configs: retention.ms"),
        (
            {"min.compaction.lag.ms": "100", "max.compaction.lag.ms": "10"},
            "conflict topic config setting min.compaction.lag.ms (100) > max.compaction.lag.ms (10)",
        ),
        ({"segment.ms": "0"}, "Invalid value 0 for configuration segment.ms: Value must be at least 1"),
        (
            {"remote.storage.enable": "true"},
            "Invalid value true for configuration remote.storage.enable: "
            "there is no tiered storage in this release: leave it out",
        ),
    ],
)
def test_refusals(overrides: dict[str, str | None], sentence: str) -> None:
    """The first thing that is wrong, as Kafka says it."""
    with pytest.raises(InvalidTopicConfig) as refused:
        topic_config.validate(overrides)
    assert str(refused.value) == sentence


@pytest.mark.parametrize("text", ["-1", "0"])
def test_a_time_that_would_close_a_segment_with_each_batch_is_left_out(text: str) -> None:
    """Of all topics, as of one: -1 is no "never" here."""
    broker = BrokerConfig()
    broker.set_dynamic({"log.roll.ms": text}, {})
    assert topic_config.resolve({}, broker)["segment.ms"] == 604_800_000


def test_valid_overrides_become_values() -> None:
    """By name, parsed."""
    assert topic_config.validate({"cleanup.policy": "compact", "remote.storage.enable": "false"}) == {
        "cleanup.policy": ("compact",),
        "remote.storage.enable": False,
    }


@pytest.mark.row("R33")
@pytest.mark.row("R34")
@pytest.mark.parametrize(
    ("broker", "name", "value"),
    [
        ({}, "retention.ms", 604_800_000),
        ({"log.retention.hours": 1}, "retention.ms", 3_600_000),
        ({"log.retention.hours": 1, "log.retention.minutes": 2}, "retention.ms", 120_000),
        ({"log.retention.hours": 1, "log.retention.minutes": 2, "log.retention.ms": 3}, "retention.ms", 3),
        ({"log.retention.hours": -1}, "retention.ms", -1),
        ({"log.roll.hours": 2}, "segment.ms", 7_200_000),
        ({"log.roll.hours": 2, "log.roll.ms": 5}, "segment.ms", 5),
        ({"log.roll.jitter.hours": 1}, "segment.jitter.ms", 3_600_000),
        ({"log.flush.scheduler.interval.ms": 9}, "flush.ms", 9),
        ({"log.flush.scheduler.interval.ms": 9, "log.flush.interval.ms": 8}, "flush.ms", 8),
        ({"message.max.bytes": 7}, "max.message.bytes", 7),
        ({"log.segment.delete.delay.ms": 7}, "file.delete.delay.ms", 7),
        ({"log.cleanup.policy": "compact,delete"}, "cleanup.policy", ("compact", "delete")),
    ],
)
def test_the_brokers_settings_are_the_defaults(broker: dict[str, object], name: str, value: Value) -> None:
    """Milliseconds go before minutes before hours; each under its other name."""
    assert topic_config.resolve({}, BrokerConfig.from_mapping(broker))[name] == value


def test_a_topics_own_setting_wins() -> None:
    """Over whatever the broker has; one that was written past us and is invalid counts as not set."""
    broker = BrokerConfig.from_mapping({"log.retention.ms": 5})
    assert topic_config.resolve({"retention.ms": "9"}, broker)["retention.ms"] == 9
    assert topic_config.resolve({"retention.ms": "soon"}, broker)["retention.ms"] == 5


def test_everything_is_resolved() -> None:
    """Every setting of a topic has a value, whether it was set or not."""
    from tidelog.config import registry

    assert topic_config.resolve({}, BrokerConfig()).keys() == registry.TOPIC.keys()
