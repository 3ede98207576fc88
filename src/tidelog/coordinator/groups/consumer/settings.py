"""The broker's settings by which consumer groups (KIP-848) are coordinated: group.consumer.*."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.assignors import BROKERS


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """Kafka's defaults, but for the assignment interval."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    group_size_max: int = 2**31 - 1
    assignors: tuple[str, ...] = tuple(BROKERS)
    """The default one first."""
    assignment_interval_ms: int = 0
    """Time between two targets of a group (KIP-1263): members that come together share one. This default is for tests;
    a broker always gives group.consumer.assignment.interval.ms, 1,000 as in Kafka."""
    assigned_at_once_max: int = 512
    """Members and partitions of a group whose target is computed at once, in less than five milliseconds; that of a
    larger one in steps."""
    pattern_refresh_ms: int = 600_000
    """How often patterns are looked at again, should nothing else call for it."""
    may_upgrade: bool = True
    """Whether a classic group with members becomes a consumer group when one joins by the new protocol."""
    may_downgrade: bool = True
    """Whether it becomes classic again when the last such one has left."""
