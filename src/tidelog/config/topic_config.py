"""A topic's settings: what may be set, checked in Kafka's words, and what it comes to with the broker's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from tidelog.config import registry
from tidelog.config.setting import InvalidValue, Setting, Value

if TYPE_CHECKING:
    from tidelog.config.broker_config import BrokerConfig


class InvalidTopicConfig(ValueError):
    """Settings that a topic cannot have; the message is Kafka's, for an `error_message` beside INVALID_CONFIG."""


def setting(name: str) -> Setting:
    """The row of a topic's setting; raises InvalidTopicConfig when there is none of that name."""
    found = registry.TOPIC.get(name)
    if found is None:
        raise InvalidTopicConfig(f"Unknown topic config name: {name}")
    return found


def validate(overrides: Mapping[str, str | None]) -> dict[str, Value]:
    """The values of a topic's own settings; raises InvalidTopicConfig for the first that is unknown or invalid."""
    values: dict[str, Value] = {}
    for name, text in overrides.items():
        found = setting(name)
        if text is None:
            raise InvalidTopicConfig(f"Null value not supported for topic configs: {name}")
        try:
            values[name] = found.parse(text)
        except InvalidValue as error:
            raise InvalidTopicConfig(str(error)) from error
        advice = registry.refusal(found, text)
        if advice:
            raise InvalidTopicConfig(f"Invalid value {text} for configuration {name}: {advice}")
    shortest, longest = values.get("min.compaction.lag.ms"), values.get("max.compaction.lag.ms")
    if isinstance(shortest, int) and isinstance(longest, int) and shortest > longest:
        raise InvalidTopicConfig(
            f"conflict topic config setting min.compaction.lag.ms ({shortest}) > max.compaction.lag.ms ({longest})"
        )
    return values


def resolve(overrides: Mapping[str, str], broker: BrokerConfig) -> dict[str, Value]:
    """All settings of a topic: its own, else the broker's, else the default; the broker's hours are milliseconds here.

    An override that is invalid (written past us into the store) is left out, as if it were not set.
    """
    values: dict[str, Value] = {}
    for name, found in registry.TOPIC.items():
        values[name] = broker_default(found, broker)
        if name in overrides:
            with suppress(InvalidValue):
                values[name] = found.parse(overrides[name])
    return values


def broker_default(found: Setting, broker: BrokerConfig) -> Value:
    """What a topic gets when it does not set `found` itself."""
    for synonym in found.synonyms:
        value = broker.get(synonym)
        if value is not None:
            return registry.milliseconds(synonym, value) if isinstance(value, int) else value
    return found.default
