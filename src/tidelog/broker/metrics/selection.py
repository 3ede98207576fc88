"""Which topics and groups have series of their own: `metrics.topics`, `metrics.groups`, `metrics.partitions`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.patterns import InvalidPattern, Matcher, compile_pattern

if TYPE_CHECKING:
    from tidelog.config.broker_config import BrokerConfig

_ALL = ".*"


class Selection:
    """What the settings ask for now; read anew for each page, since they may change while the broker runs."""

    def __init__(self, config: BrokerConfig) -> None:
        self.partitions = config.metrics_partitions
        """Whether partitions have series."""
        self._topics = _matcher(config.metrics_topics)
        self._groups = _matcher(config.metrics_groups)

    def has_topic(self, topic: str) -> bool:
        """Whether the topic has series."""
        return self._topics is None or bool(self._topics(topic))

    def has_group(self, group: str) -> bool:
        """Whether the group has series."""
        return self._groups is None or bool(self._groups(group))


def _matcher(pattern: str) -> Matcher | None:
    """None for one that matches all, and for one that is too large to be used: nothing is hidden by mistake."""
    if pattern == _ALL:
        return None
    try:
        return compile_pattern(pattern)
    except InvalidPattern:
        return None
