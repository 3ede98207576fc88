"""The own settings of consumer groups (KIP-848) and share groups (KIP-932): what may be set, in Kafka's words, and what
they come to on a broker.

A group's value must lie within bounds that are brokers' settings. Bounds may change after the value was set: a broker
then uses the nearest value within its bounds, as Kafka 4.3 does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from tidelog.config import registry
from tidelog.config.setting import InvalidValue

if TYPE_CHECKING:
    from tidelog.config.broker_config import BrokerConfig

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL: Final = "consumer.assignment.interval.ms"
SHARE_SESSION_TIMEOUT: Final = "share.session.timeout.ms"
SHARE_HEARTBEAT_INTERVAL: Final = "share.heartbeat.interval.ms"
SHARE_ASSIGNMENT_INTERVAL: Final = "share.assignment.interval.ms"
SHARE_RECORD_LOCK_DURATION: Final = "share.record.lock.duration.ms"
SHARE_DELIVERY_COUNT_LIMIT: Final = "share.delivery.count.limit"
SHARE_PARTITION_MAX_RECORD_LOCKS: Final = "share.partition.max.record.locks"
SHARE_AUTO_OFFSET_RESET: Final = "share.auto.offset.reset"
SHARE_ISOLATION_LEVEL: Final = "share.isolation.level"
SHARE_RENEW_ACKNOWLEDGE_ENABLE: Final = "share.renew.acknowledge.enable"
_SESSIONS: Final = ((SESSION_TIMEOUT, HEARTBEAT_INTERVAL), (SHARE_SESSION_TIMEOUT, SHARE_HEARTBEAT_INTERVAL))
"""Of which the first must be greater."""


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
    SHARE_SESSION_TIMEOUT: (
        "group.share.session.timeout.ms",
        "group.share.min.session.timeout.ms",
        "group.share.max.session.timeout.ms",
    ),
    SHARE_HEARTBEAT_INTERVAL: (
        "group.share.heartbeat.interval.ms",
        "group.share.min.heartbeat.interval.ms",
        "group.share.max.heartbeat.interval.ms",
    ),
    SHARE_ASSIGNMENT_INTERVAL: (
        "group.share.assignment.interval.ms",
        "group.share.min.assignment.interval.ms",
        "group.share.max.assignment.interval.ms",
    ),
    SHARE_RECORD_LOCK_DURATION: (
        "group.share.record.lock.duration.ms",
        "group.share.min.record.lock.duration.ms",
        "group.share.max.record.lock.duration.ms",
    ),
    SHARE_DELIVERY_COUNT_LIMIT: (
        "group.share.delivery.count.limit",
        "group.share.min.delivery.count.limit",
        "group.share.max.delivery.count.limit",
    ),
    SHARE_PARTITION_MAX_RECORD_LOCKS: (
        "group.share.partition.max.record.locks",
        "group.share.min.partition.max.record.locks",
        "group.share.max.partition.max.record.locks",
    ),
}
"""[setting of a group] -> brokers' settings: the default, the least and the greatest value."""


class InvalidGroupConfig(ValueError):
    """Settings that a group cannot have; the message is Kafka's, for an `error_message` beside INVALID_CONFIG."""


class Limits(NamedTuple):
    """A setting's value where a group has none of its own, and the bounds, both included, of one that it has."""

    default: int
    lowest: int
    highest: int


class GroupLimits(NamedTuple):
    """A broker's settings that bound groups' settings. Kafka's defaults."""

    session_timeout_ms: Limits = Limits(45_000, 45_000, 60_000)
    heartbeat_interval_ms: Limits = Limits(5_000, 5_000, 15_000)
    assignment_interval_ms: Limits = Limits(1_000, 0, 15_000)
    share_session_timeout_ms: Limits = Limits(45_000, 45_000, 60_000)
    share_heartbeat_interval_ms: Limits = Limits(5_000, 5_000, 15_000)
    share_assignment_interval_ms: Limits = Limits(1_000, 0, 15_000)
    share_record_lock_duration_ms: Limits = Limits(30_000, 15_000, 60_000)
    share_delivery_count_limit: Limits = Limits(5, 2, 10)
    share_partition_max_record_locks: Limits = Limits(2_000, 100, 4_000)

    @classmethod
    def of(cls, config: BrokerConfig) -> GroupLimits:
        """Those of a broker."""
        return cls(*(Limits(*(cast(int, config.get(each)) for each in names)) for names in _BROKERS.values()))

    def by_name(self) -> dict[str, Limits]:
        """[setting's name] -> its limits."""
        return dict(zip(_BROKERS, self, strict=True))


def validate(overrides: Mapping[str, str], limits: GroupLimits) -> None:
    """Raises InvalidGroupConfig for the first that is unknown, no value of its setting, or out of bounds."""
    unknown = [name for name in overrides if name not in registry.GROUP]
    if unknown:
        raise InvalidGroupConfig(f"Unknown group config name: {unknown[0]}")
    values = {name: _parse(name, text) for name, text in overrides.items()}
    bounds = limits.by_name()
    for name, value in values.items():
        complaint = _out_of_bounds(name, value, bounds.get(name))
        if complaint:
            raise InvalidGroupConfig(complaint)
    for session, heartbeat in _SESSIONS:
        session_ms = values.get(session, bounds[session].default)
        heartbeat_ms = values.get(heartbeat, bounds[heartbeat].default)
        if values.keys() & {session, heartbeat} and session_ms <= heartbeat_ms:
            raise InvalidGroupConfig(f"{session} must be greater than {heartbeat}")


def resolve(overrides: Mapping[str, str], limits: GroupLimits) -> dict[str, Any]:
    """All settings of a group as they hold, [name] -> value: its own within the bounds, else the broker's.

    What is unknown or no value (written past us into the store) is left out. Where a session would be no longer than
    the time between two heartbeats, the broker's own values hold for both.
    """
    bounds = limits.by_name()
    values: dict[str, Any] = {}
    for name, setting in registry.GROUP.items():
        limit = bounds.get(name)
        values[name] = setting.default if limit is None else limit.default
        if name in overrides:
            try:
                value = _parse(name, overrides[name])
            except InvalidGroupConfig:
                continue
            values[name] = value if limit is None else min(max(value, limit.lowest), limit.highest)
    for session, heartbeat in _SESSIONS:
        if values[session] <= values[heartbeat]:
            values[session] = bounds[session].default
            values[heartbeat] = bounds[heartbeat].default
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
        complaint = _out_of_bounds(name, value, bounds.get(name))
        if complaint:
            yield f"{complaint}; that one holds"


def _parse(name: str, text: str) -> Any:
    found = registry.GROUP.get(name)
    if found is None:
        raise InvalidGroupConfig(f"Unknown group config name: {name}")
    try:
        return found.parse(text)
    except InvalidValue as error:
        raise InvalidGroupConfig(str(error)) from error


def _out_of_bounds(name: str, value: Any, limits: Limits | None) -> str | None:
    if limits is None:
        return None
    _, lowest, highest = _BROKERS[name]
    if value < limits.lowest:
        return f"{name} must be greater than or equal to {lowest}"
    if value > limits.highest:
        return f"{name} must be less than or equal to {highest}"
    return None
