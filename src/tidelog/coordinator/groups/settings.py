"""The broker's settings by which groups are coordinated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.coordinator.groups.consumer.settings import ConsumerSettings
from tidelog.coordinator.groups.share.settings import ShareGroupSettings


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
    """What a record, or a target, says of a group: it has to fit one batch of the topic, by message.max.bytes."""
    consumer: ConsumerSettings = field(default_factory=ConsumerSettings)
    """Those of consumer groups (KIP-848)."""
    of_groups: Mapping[str, ConsumerSettings] = field(default_factory=dict)
    """[group id] -> those of a consumer group that has settings of its own."""
    share: ShareGroupSettings = field(default_factory=ShareGroupSettings)
    """Those of share groups (KIP-932)."""
    of_share_groups: Mapping[str, ShareGroupSettings] = field(default_factory=dict)
    """[group id] -> those of a share group that has settings of its own."""

    def of_group(self, group_id: str) -> ConsumerSettings:
        """By which a consumer group is coordinated."""
        return self.of_groups.get(group_id, self.consumer)

    def of_share_group(self, group_id: str) -> ShareGroupSettings:
        """By which a share group is coordinated."""
        return self.of_share_groups.get(group_id, self.share)

    @property
    def subscription_length_max(self) -> int:
        """Characters that a member of a consumer group subscribes with: four bytes each, and room for its names."""
        return self.group_record_max_bytes // 5

    @property
    def pattern_topics_length_max(self) -> int:
        """Characters of the topics that a pattern stands for, with room for their number."""
        return self.group_record_max_bytes // 2
