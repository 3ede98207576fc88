"""Topics' settings altered while things break: by requests, and as the old tools do it, by writing into the store.

Each alterer has a setting of its own, and undoes nothing that another was told is done: in the end the store has what
each did last, and each log goes by it (`checks/settings.py`). What is altered changes nothing that a client could see.
Some notifications are gone before any broker can read them, as where another broker's clock is ahead.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sim.invariants import require
from sim.machine import SESSION_TIMEOUT_MS
from sim.store.client import SimulatedStore
from tidelog.metadata.image import ConfigResource, ConfigResourceType
from tidelog.metadata.operations import Create, Delete, SetData
from tidelog.metadata.znodes import (
    CONFIG_CHANGE_PREFIX,
    CONFIG_CHANGES,
    config_path,
    decode_config,
    encode_config,
    encode_config_change,
    entity_path,
)
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.store.client import SessionState
from tidelog.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.cluster import Cluster
    from sim.workloads.client import Router
    from sim.world.randomness import SeededRandom

SETTINGS: Final = {"file.delete.delay.ms": 2_000, "max.compaction.lag.ms": 10_000_000}
"""[setting] -> the least value that it is given."""
BEAT_S: Final = 1.0
"""All alterers alter the same topic at about the same time, some now, some with the next beat."""
APART_S: Final = 0.03
SKIP_CHANCE: Final = 0.3
SET, DELETE = 0, 1


class SettingsAlterer:
    """See the module."""

    def __init__(
        self, setting: str, router: Router, random: SeededRandom, cluster: Cluster, topics: Sequence[str]
    ) -> None:
        """`setting`: one of `SETTINGS`, which only this one alters."""
        self._setting = setting
        self._router = router
        self._random = random
        self._cluster = cluster
        self._topics = topics
        self._tool: SimulatedStore | None = None
        self._last: dict[str, str | None] = {}
        """[topic] -> the value that it was told last is in force; None: that there is none."""
        self._unknown: dict[str, set[str | None]] = {topic: set() for topic in topics}
        """[topic] -> values that may have been written, and may yet be."""
        self.done = 0
        """Alterations that were answered."""
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            now = self._cluster.loop.time()
            beat = int(now / BEAT_S) + 1
            await asyncio.sleep(beat * BEAT_S - now + self._random.between(0.0, APART_S))
            if self._random.chance(SKIP_CHANCE):
                continue
            topic = self._topics[beat % len(self._topics)]
            try:
                if self._cluster.store is None or self._random.chance(0.6):
                    await self._request(topic)
                else:
                    await self._by_tool(topic, is_purged=self._random.chance(0.5))
            except (OSError, TimeoutError, StoreError) as error:
                self._cluster.trace.record("alterer_fails", self._setting, repr(error))
        self._router.close()
        if self._tool is not None:
            await self._tool.close()

    def check_final(self) -> None:
        """The store has what was answered last, or what was asked for without an answer."""
        if self._cluster.states is None:
            return
        for topic, last in self._last.items():
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            version = self._cluster.store_history.now(config_path(resource))
            values = {} if version.stat is None else decode_config(config_path(resource), version.data)
            found = values.get(self._setting)
            told = f"{self._setting} of {topic} is {found} in the end, it was altered to {last}"
            require(18, found in {last, *self._unknown[topic]}, told)

    def _draw(self) -> str | None:
        return None if self._random.chance(0.2) else str(SETTINGS[self._setting] + self._random.below(1_000))

    def _note(self, topic: str, value: str | None) -> None:
        self._last[topic] = value
        self._unknown[topic].discard(value)
        self.done += 1

    async def _request(self, topic: str) -> None:
        value = self._draw()
        request = messages.IncrementalAlterConfigsRequest
        operation = DELETE if value is None else SET
        change = request.AlterableConfig(name=self._setting, config_operation=operation, value=value)
        resource = request.AlterConfigsResource(resource_type=2, resource_name=topic, configs=[change])
        self._unknown[topic].add(value)
        response = await self._router.ask_any(ApiKey.INCREMENTAL_ALTER_CONFIGS, request(resources=[resource]))
        (result,) = response.responses
        code = ErrorCode(result.error_code)
        self._cluster.trace.record("altered", topic, self._setting, value, code.name)
        if code is ErrorCode.NONE:
            self._note(topic, value)

    async def _by_tool(self, topic: str, *, is_purged: bool) -> None:
        """Kafka writes settings and notification one after the other; here in one, or no purge could be in time."""
        store = await self._session()
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        data, stat = await store.get(config_path(resource))
        values = decode_config(config_path(resource), data)
        value = self._draw()
        values.pop(self._setting, None)
        if value is not None:
            values[self._setting] = value
        notification = encode_config_change(entity_path(resource))
        operations: list[Create | Delete | SetData] = [
            SetData(config_path(resource), encode_config(values), stat.version),
            Create(CONFIG_CHANGE_PREFIX, notification, sequential=True),
        ]
        if is_purged:
            _, changes = await store.children(CONFIG_CHANGES)
            number = (changes.cversion + changes.num_children) // 2
            operations.append(Delete(f"{CONFIG_CHANGE_PREFIX}{number:010d}"))
        self._unknown[topic].add(value)
        await store.multi(operations)
        self._cluster.trace.record("altered_by_tool", topic, self._setting, value, is_purged)
        self._note(topic, value)

    async def _session(self) -> SimulatedStore:
        store = self._cluster.store
        assert store is not None
        if self._tool is None or self._tool.state in (SessionState.EXPIRED, SessionState.CLOSED):
            self._tool = await SimulatedStore.connect(
                self._cluster.network.host(f"tool of {self._setting}"),
                store.hosts,
                SESSION_TIMEOUT_MS,
                self._random.stream("tool"),
                self._cluster.store_history,
            )
        return self._tool
