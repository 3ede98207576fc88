"""The broker's settings by which groups are coordinated."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.coordinator.groups.consumer.settings import ConsumerSettings


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Kafka's defaults."""

    offset_metadata_max_bytes: int = 4096
    """Characters in the note of a commit, by offset.metadata.max.bytes."""
    group_initial_rebalance_delay_ms: int = 0
    """How long a new classic group waits for further members. Kafka's default is 3,000."""
    group_max_size: int = 2**31 - 1
    """Members of a classic group."""
    group_record_max_bytes: int = 1_000_000
    """What members of a classic group say and are assigned, together: it has to fit one batch of the topic."""
    consumer: ConsumerSettings = field(default_factory=ConsumerSettings)
    """Those of consumer groups (KIP-848)."""
