"""A consumer group's own settings (KIP-848): what may be set, in Kafka's words, and what they come to on a broker.

A group's value must lie within bounds that are brokers' settings. Bounds may change after the value was set: a broker
then goes by the nearest value within its bounds, as Kafka 4.3 does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from tidelog.config import registry
from tidelog.config.setting import InvalidValue

if TYPE_CHECKING:
    from tidelog.config.broker_config import BrokerConfig

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL: Final = "consumer.assignment.interval.ms"


_BROKERS: Final = {
    SESSION_TIMEOUT: (
        "group.consumer.session.timeout.ms",
        "group.consumer.min.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
    ),
    HEARTBEAT_INTERVAL: (
        "group.consumer.heartbeat.interval.ms",
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
    ),
    ASSIGNMENT_INTERVAL: (
        "group.consumer.assignment.interval.ms",
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms",
    ),
}
"""[setting of a group] -> brokers' settings: the default, the least and the greatest value."""


class InvalidGroupConfig(ValueError):
    """Settings that a group cannot have; the message is Kafka's, for an `error_message` beside INVALID_CONFIG."""


class Limits(NamedTuple):
    """A setting's value where a group has none of its own, and the bounds, both included, of one that it has; ms."""

    default: int
    lowest: int
    highest: int


class GroupLimits(NamedTuple):
    """A broker's settings that groups' settings go by. Kafka's defaults."""

    session_timeout_ms: Limits = Limits(45_000, 45_000, 60_000)
    heartbeat_interval_ms: Limits = Limits(5_000, 5_000, 15_000)
    assignment_interval_ms: Limits = Limits(1_000, 0, 15_000)

    @classmethod
    def of(cls, config: BrokerConfig) -> GroupLimits:
        """Those of a broker."""

        def limits(name: str) -> Limits:
            return Limits(*(cast(int, config.get(each)) for each in _BROKERS[name]))

        return cls(limits(SESSION_TIMEOUT), limits(HEARTBEAT_INTERVAL), limits(ASSIGNMENT_INTERVAL))

    def by_name(self) -> dict[str, Limits]:
        """[setting's name] -> its limits."""
        return {
            SESSION_TIMEOUT: self.session_timeout_ms,
            HEARTBEAT_INTERVAL: self.heartbeat_interval_ms,
            ASSIGNMENT_INTERVAL: self.assignment_interval_ms,
        }


def validate(overrides: Mapping[str, str], limits: GroupLimits) -> None:
    """Raises InvalidGroupConfig for the first that is unknown, no value of its setting, or out of bounds."""
    unknown = [name for name in overrides if name not in registry.GROUP]
    if unknown:
        raise InvalidGroupConfig(f"Unknown group config name: {unknown[0]}")
    values = {name: _parse(name, text) for name, text in overrides.items()}
    bounds = limits.by_name()
    for name, value in values.items():
        complaint = _out_of_bounds(name, value, bounds[name])
        if complaint:
            raise InvalidGroupConfig(complaint)
    session_ms = values.get(SESSION_TIMEOUT, limits.session_timeout_ms.default)
    heartbeat_ms = values.get(HEARTBEAT_INTERVAL, limits.heartbeat_interval_ms.default)
    if values.keys() & {SESSION_TIMEOUT, HEARTBEAT_INTERVAL} and session_ms <= heartbeat_ms:
        raise InvalidGroupConfig(f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}")


def resolve(overrides: Mapping[str, str], limits: GroupLimits) -> dict[str, int]:
    """All settings of a group as they hold, [name] -> ms: its own within the bounds, else the broker's.

    What is unknown or no value (written past us into the store) is left out. Where a session would be no longer than
    the time between two heartbeats, the broker's own values hold for both.
    """
    values = {}
    for name, (default, lowest, highest) in limits.by_name().items():
        values[name] = default
        if name in overrides:
            try:
                values[name] = min(max(_parse(name, overrides[name]), lowest), highest)
            except InvalidGroupConfig:
                continue
    if values[SESSION_TIMEOUT] <= values[HEARTBEAT_INTERVAL]:
        values[SESSION_TIMEOUT] = limits.session_timeout_ms.default
        values[HEARTBEAT_INTERVAL] = limits.heartbeat_interval_ms.default
    return values


def complaints(overrides: Mapping[str, str], limits: GroupLimits) -> Iterator[str]:
    """What `resolve` does not take as it stands, a sentence for each."""
    bounds = limits.by_name()
    for name, text in overrides.items():
        try:
            value = _parse(name, text)
        except InvalidGroupConfig as error:
            yield f"left out: {error}"
            continue
        complaint = _out_of_bounds(name, value, bounds[name])
        if complaint:
            yield f"{complaint}; that one holds"


def _parse(name: str, text: str) -> int:
    found = registry.GROUP.get(name)
    if found is None:
        raise InvalidGroupConfig(f"Unknown group config name: {name}")
    try:
        value = found.parse(text)
    except InvalidValue as error:
        raise InvalidGroupConfig(str(error)) from error
    assert isinstance(value, int)
    return value


def _out_of_bounds(name: str, value: int, limits: Limits) -> str | None:
    _, lowest, highest = _BROKERS[name]
    if value < limits.lowest:
        return f"{name} must be greater than or equal to {lowest}"
    if value > limits.highest:
        return f"{name} must be less than or equal to {highest}"
    return None
