"""Which clients are to push which metrics, and how often: the client metrics resources, parsed.

    resource `interval.ms`, `match`, `metrics` --> Subscription
    what is known of a client --> Subscriptions.wanted --> Wanted: the metrics of all that match, the shortest interval

KIP-714; the arithmetic of Apache Kafka's ClientMetricsManager.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.config import registry
from tidelog.config.setting import Value
from tidelog.coordinator.patterns import InvalidPattern, Matcher, compile_pattern
from tidelog.records.checksum import crc32c

ALL_METRICS: Final = "*"
INTERVAL_MS_DEFAULT: Final = 300_000
"""Between two pushes of a client that no subscription matches, and the longest that Kafka gives to any."""

_FOUR_INTS: Final = struct.Struct(">IIII")
_INT: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Subscription:
    """One client metrics resource."""

    metrics: frozenset[str]
    """Prefixes of names; `*`: all."""
    interval_ms: int
    match: Mapping[str, Matcher]
    """[what a client is told apart by, such as `client_id`] -> the pattern of its whole value."""

    @classmethod
    def of(cls, values: Mapping[str, str]) -> Subscription:
        """A resource's settings, which were validated when they were altered. InvalidValue, InvalidPattern."""

        def parsed(name: str) -> Value:
            setting = registry.CLIENT_METRICS[name]
            return setting.parse(values[name]) if name in values else setting.default

        metrics, interval_ms, match = parsed("metrics"), parsed("interval.ms"), parsed("match")
        assert isinstance(interval_ms, int)
        patterns = {}
        for text in match if isinstance(match, tuple) else ():
            name, _, pattern = text.partition("=")
            patterns[name.strip()] = compile_pattern(pattern.strip())
        return cls(frozenset(metrics if isinstance(metrics, tuple) else ()), interval_ms, patterns)

    def matches(self, client: Mapping[str, str | None]) -> bool:
        """Whether the client is meant: each pattern matches, and what it asks for is known of the client."""
        for name, matcher in self.match.items():
            value = client.get(name)
            if value is None or not matcher(value):
                return False
        return True


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one client is to push."""

    metrics: tuple[str, ...]
    """Prefixes of names, ascending; `*` alone: all; none: it pushes nothing."""
    interval_ms: int

    def subscription_id(self, client_instance_id: bytes) -> int:
        """The same for the same client and the same metrics on each broker, so that a client may change brokers."""
        text = f"[{', '.join(self.metrics)}]{self.interval_ms}"
        number = crc32c(text.encode())
        for part in _FOUR_INTS.unpack(client_instance_id):
            number ^= part
        (signed,) = _INT.unpack(number.to_bytes(4, "big"))
        return int(signed)


class Subscriptions:
    """All client metrics resources."""

    def __init__(self) -> None:
        self.version = 0
        """Raised by each change."""
        self._by_name: dict[str, Subscription] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def change(self, name: str, values: Mapping[str, str]) -> None:
        """The resource has these settings now; none: it is gone. InvalidPattern: it asks for nothing from now on."""
        self.version += 1
        self._by_name.pop(name, None)
        if values:
            self._by_name[name] = Subscription.of(values)

    def wanted(self, client: Mapping[str, str | None]) -> Wanted:
        """What all subscriptions together want of a client."""
        metrics: set[str] = set()
        interval_ms = INTERVAL_MS_DEFAULT
        for subscription in self._by_name.values():
            if subscription.matches(client):
                metrics |= subscription.metrics
                interval_ms = min(interval_ms, subscription.interval_ms)
        return Wanted((ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics)), interval_ms)


__all__ = ["ALL_METRICS", "InvalidPattern", "Subscription", "Subscriptions", "Wanted"]
