"""By which share groups are coordinated: group.share.*, and a group's own share.*."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShareGroupSettings:
    """Kafka's defaults, but for the assignment interval, which a broker gives."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    group_size_max: int = 200
    assignment_interval_ms: int = 0
    initialize_retry_ms: int = 30_000
    """After which a partition whose state was to be initialized, without an answer, is tried again."""
