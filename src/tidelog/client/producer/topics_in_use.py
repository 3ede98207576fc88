"""Metadata for a producer: topics asked for again when something is wrong with them, and when they are old.

One request at a time for all topics together, with growing pauses while it brings nothing new, however many
partitions want one: a partition without a leader never makes a storm of requests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from tidelog.client.cluster import Cluster
from tidelog.client.errors import ClientError
from tidelog.model.errors import ErrorCode

REFRESH_S_MAX: Final = 10.0
"""One attempt, over all brokers."""


class TopicsInUse:
    """Refreshes `Routing`'s view of topics in the background; `on_refreshed(topics, errors)` is called after each."""

    def __init__(
        self, cluster: Cluster, max_age_s: float, on_refreshed: Callable[[set[str], dict[str, ErrorCode]], object]
    ) -> None:
        self._cluster = cluster
        self._routing = cluster.routing
        self._max_age_s = max_age_s
        self._on_refreshed = on_refreshed
        self._checked_at: dict[str, float] = {}
        self._wanted: set[str] = set()
        self._attempts: dict[str, int] = {}
        """Refreshes since something went wrong with the topic."""
        self._task: asyncio.Task[None] | None = None

    def used(self, topic: str) -> None:
        """The topic belongs to those that are kept fresh."""
        self._checked_at.setdefault(topic, time.monotonic())

    def want(self, topic: str) -> None:
        """Something is wrong with what is known of the topic."""
        self._attempts.setdefault(topic, 0)
        self._wanted.add(topic)
        self._start()

    def well(self, topic: str) -> None:
        """The topic's leaders answer: the next trouble begins with short pauses again."""
        self._attempts.pop(topic, None)

    def refresh_old(self) -> float:
        """Asks for topics that have come of age; monotonic seconds of when to look again."""
        now = time.monotonic()
        if not self._checked_at:
            return now + self._max_age_s
        oldest = min(self._checked_at.values())
        if oldest + self._max_age_s <= now:
            self._wanted.update(self._checked_at)
            self._checked_at = dict.fromkeys(self._checked_at, now)
            self._start()
            oldest = now
        return oldest + self._max_age_s

    async def close(self) -> None:
        """Ends a request that is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while self._wanted:
            topics, self._wanted = self._wanted, set()
            attempts = max(self._attempts.get(topic, 0) for topic in topics)
            if attempts:
                await asyncio.sleep(self._routing.retry.pause_s(attempts, self._routing.draw))
            for topic in topics & self._attempts.keys():
                self._attempts[topic] += 1
            errors: dict[str, ErrorCode] = {}
            try:
                errors = await self._cluster.run(self._routing.refresh(topics, self._routing.deadline(REFRESH_S_MAX)))
            except ClientError:
                # No broker answers. The partitions try what they know, and want another refresh when that fails.
                self._on_refreshed(topics, {})
                continue
            now = time.monotonic()
            self._checked_at.update({topic: now for topic in topics if topic in self._checked_at})
            self._on_refreshed(topics, errors)
