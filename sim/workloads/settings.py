"""Topics' settings altered while things break: by requests, and as the old tools do it, by writing into the store.

What is altered changes nothing that a client could see; in the end each log must go by it (`checks/settings.py`). Some
notifications are gone before any broker can read them, as where another broker's clock is ahead.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

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
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.store.client import SessionState
from tidelog.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.cluster import Cluster
    from sim.workloads.client import Router
    from sim.world.randomness import SeededRandom

SETTING: Final = "file.delete.delay.ms"
VALUE_MIN: Final = 2_000
PAUSE_S: Final = (0.4, 3.0)
SET, DELETE = 0, 1


class SettingsAlterer:
    """See the module."""

    def __init__(self, router: Router, random: SeededRandom, cluster: Cluster, topics: Sequence[str]) -> None:
        self._router = router
        self._random = random
        self._cluster = cluster
        self._topics = topics
        self._tool: SimulatedStore | None = None
        self.done = 0
        """Alterations that were answered."""
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self._random.between(*PAUSE_S))
            topic = self._topics[self._random.below(len(self._topics))]
            try:
                if self._cluster.store is None or self._random.chance(0.6):
                    await self._request(topic)
                else:
                    await self._by_tool(topic, is_purged=self._random.chance(0.5))
            except (OSError, TimeoutError, StoreError) as error:
                self._cluster.trace.record("alterer_fails", repr(error))
        self._router.close()
        if self._tool is not None:
            await self._tool.close()

    def _draw(self) -> str | None:
        return None if self._random.chance(0.2) else str(VALUE_MIN + self._random.below(1_000))

    async def _request(self, topic: str) -> None:
        value = self._draw()
        request = messages.IncrementalAlterConfigsRequest
        change = request.AlterableConfig(name=SETTING, config_operation=DELETE if value is None else SET, value=value)
        resource = request.AlterConfigsResource(resource_type=2, resource_name=topic, configs=[change])
        response = await self._router.ask_any(ApiKey.INCREMENTAL_ALTER_CONFIGS, request(resources=[resource]))
        (result,) = response.responses
        self._cluster.trace.record("altered", topic, value, result.error_code)
        self.done += not result.error_code

    async def _by_tool(self, topic: str, *, is_purged: bool) -> None:
        """Kafka writes settings and notification one after the other; here in one, or no purge could be in time."""
        store = await self._session()
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        data, stat = await store.get(config_path(resource))
        values = decode_config(config_path(resource), data)
        value = self._draw()
        values.pop(SETTING, None)
        if value is not None:
            values[SETTING] = value
        notification = encode_config_change(entity_path(resource))
        operations: list[Create | Delete | SetData] = [
            SetData(config_path(resource), encode_config(values), stat.version),
            Create(CONFIG_CHANGE_PREFIX, notification, sequential=True),
        ]
        if is_purged:
            _, changes = await store.children(CONFIG_CHANGES)
            number = (changes.cversion + changes.num_children) // 2
            operations.append(Delete(f"{CONFIG_CHANGE_PREFIX}{number:010d}"))
        await store.multi(operations)
        self._cluster.trace.record("altered_by_tool", topic, value, is_purged)

    async def _session(self) -> SimulatedStore:
        store = self._cluster.store
        assert store is not None
        if self._tool is None or self._tool.state in (SessionState.EXPIRED, SessionState.CLOSED):
            self._tool = await SimulatedStore.connect(
                self._cluster.network.host("settings tool"),
                store.hosts,
                SESSION_TIMEOUT_MS,
                self._random.stream("tool"),
                self._cluster.store_history,
            )
        return self._tool
