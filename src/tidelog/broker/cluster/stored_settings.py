"""Settings of topics and brokers as the store has them, for a node that knows nothing of coroutines.

`ControllerDriver` follows the notifications of changes. What comes without a notification is read here: a topic's
first settings, when its first log is made; and what this broker itself has just changed, so that its client
sees it at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from tidelog.broker.cluster.background import Background
from tidelog.broker.cluster.settings_in_force import IN_FORCE_MS_MAX
from tidelog.broker.deferred import Deferred
from tidelog.config import broker_config, group_config, topic_config
from tidelog.metadata.image import CLUSTER_DEFAULT, ConfigResource, ConfigResourceType
from tidelog.metadata.znodes import config_path
from tidelog.store.errors import StoreError

if TYPE_CHECKING:
    from tidelog.broker.cluster.controller_driver import ControllerDriver
    from tidelog.model.identifiers import BrokerId
    from tidelog.ports.clock import Clock

logger = logging.getLogger(__name__)

CONFIRM_MS_MAX: Final = 5_000
"""How long the store is waited for to say whether settings were altered."""


class StoredSettings:
    """Reads settings; `on_read(resource, values)` is told of all that it reads."""

    def __init__(
        self,
        driver: ControllerDriver,
        on_read: Callable[[ConfigResource, Mapping[str, str]], None],
        clock: Clock,
    ) -> None:
        self._driver = driver
        self._on_read = on_read
        self._clock = clock
        self._current_ms: int | None = None
        """Monotonic time as of which all settings here were those of the store."""
        self._confirming: Deferred[None] | None = None
        self._is_unconfirmed = False
        """Whether the last attempt failed, which has been said."""
        self._background = Background()

    def of_topics(self, topics: Iterable[str]) -> Deferred[dict[str, dict[str, str]]]:
        """`topic -> its own settings`, read from the store now; fails with StoreError when that cannot be reached."""
        resources = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in topics]
        return self._background.run(self.read(resources)).then(
            lambda read: {resource.name: values for resource, values in read.items() if values}
        )

    def refresh(self, resources: Iterable[ConfigResource]) -> Deferred[None]:
        """Has what the store says of `resources` take effect now."""
        return self._background.run(self.read(resources)).then(lambda _: None)

    # `storage.settings_gate.SettingsGate`.

    @property
    def are_current(self) -> bool:
        """Whether the settings here were the store's a moment ago: AlterConfigs waits for a silent broker longer."""
        return self._current_ms is not None and self._clock.monotonic_ms() - self._current_ms < IN_FORCE_MS_MAX

    def when_current(self, then: Callable[[], None]) -> None:
        """Asks the store whether anything was altered, has it take effect, and calls `then`; also where it cannot."""
        if self._confirming is None:
            self._confirming = self._confirm()
        self._confirming.on_complete(lambda _: then())

    def _confirm(self) -> Deferred[None]:
        asked_ms = self._clock.monotonic_ms()
        confirmed = self._background.run(asyncio.wait_for(self._driver.confirm_settings(), CONFIRM_MS_MAX / 1000))

        def settle(settled: Deferred[None]) -> None:
            self._confirming = None
            try:
                settled.result()
            except (StoreError, TimeoutError) as error:
                if not self._is_unconfirmed:
                    logger.warning("settings_unconfirmed: reason=%r: nothing is deleted or compacted meanwhile", error)
                self._is_unconfirmed = True
            else:
                self._current_ms = asked_ms
                self._is_unconfirmed = False

        confirmed.on_complete(settle)
        return confirmed

    async def read(self, resources: Iterable[ConfigResource]) -> dict[ConfigResource, dict[str, str]]:
        """Reads the settings of `resources`, and tells."""
        read = await self._driver.read_configs(resources)
        for resource, values in read.items():
            self._on_read(resource, values)
        return {resource: dict(values) for resource, values in read.items()}


def broker_resources(broker_id: BrokerId) -> list[ConfigResource]:
    """What concerns a broker itself."""
    return [CLUSTER_DEFAULT, ConfigResource(ConfigResourceType.BROKER, str(broker_id))]


def tell_what_cannot_be(resource: ConfigResource, values: Mapping[str, str]) -> None:
    """Logs what a tool wrote into the store past every check: such settings are left out, the others take effect."""
    for name, value in values.items():
        try:
            if resource.type is ConfigResourceType.TOPIC:
                topic_config.validate({name: value})
            else:
                broker_config.validate_dynamic({name: value}, cluster_default=resource == CLUSTER_DEFAULT)
        except ValueError as error:
            logger.error("setting in the metadata store left out: of=%s reason=%s", config_path(resource), error)


def tell_of_group(resource: ConfigResource, values: Mapping[str, str], limits: group_config.GroupLimits) -> None:
    """The same for a group, whose settings may also have been set when brokers had other bounds."""
    for complaint in group_config.complaints(values, limits):
        logger.error("settings in the metadata store: of=%s reason=%s", config_path(resource), complaint)
