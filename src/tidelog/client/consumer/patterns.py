"""Topics subscribed to by a pattern: judged here with each look at the metadata, or by the coordinator (KIP-848)."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from tidelog.client.views import TopicView


@dataclasses.dataclass(frozen=True, slots=True)
class SubscriptionPattern:
    """A regular expression that the coordinator matches with whole names of topics, in the syntax of RE2.

    Only in groups with GroupProtocol.CONSUMER, and only where brokers take it (Apache Kafka from 4.0 on, tidelog).
    """

    pattern: str


Subscription: TypeAlias = "Iterable[str] | re.Pattern[str] | SubscriptionPattern"
"""Topics by name, those whose whole name a pattern of Python's matches, or those that the coordinator finds."""


def matching(pattern: re.Pattern[str], topics: Mapping[str, TopicView]) -> list[str]:
    """The topics whose whole name matches, sorted; internal ones only by name, as in Kafka's consumer."""
    return sorted(name for name, view in topics.items() if not view.internal and pattern.fullmatch(name))
