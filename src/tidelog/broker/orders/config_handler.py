"""Settings that were altered in the store, put in force: of topics, of this broker, of all brokers, of groups."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tidelog.broker.cluster.stored_settings import broker_resources, tell_of_group, tell_what_cannot_be
from tidelog.broker.replicas.topic_settings import log_config
from tidelog.config.group_config import GroupLimits
from tidelog.metadata.image import CLUSTER_DEFAULT, ConfigChanged, ConfigResource, ConfigResourceType
from tidelog.metadata.znodes import config_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tidelog.broker.channels import Settings
    from tidelog.broker.cluster.config_changes import KnownSettings
    from tidelog.broker.cluster.metadata_cache import MetadataCache
    from tidelog.broker.disk_scheduler import DiskScheduler
    from tidelog.broker.environment import BrokerEnvironment
    from tidelog.broker.fetches.replication_throttles import ReplicationThrottles
    from tidelog.broker.following.replica_fetcher_manager import ReplicaFetcherManager
    from tidelog.broker.logs.cleaning import LogCleanerRunner
    from tidelog.broker.logs.directory_moves import Moves
    from tidelog.broker.replicas.replica_manager import ReplicaManager
    from tidelog.storage.log import Log
    from tidelog.storage.log_config import LogConfig
    from tidelog.storage.log_manager import LogManager

logger: Final = logging.getLogger(__name__)


class ConfigHandler:
    """Of one broker."""

    def __init__(
        self,
        environment: BrokerEnvironment,
        *,
        metadata: MetadataCache,
        settings: Settings,
        known_settings: KnownSettings,
        logs: LogManager,
        replicas: ReplicaManager,
        fetcher_manager: ReplicaFetcherManager,
        moves: Moves,
        throttles: ReplicationThrottles,
        cleaning: LogCleanerRunner,
        disk_scheduler: DiskScheduler,
        on_broker_changed: Callable[[], object],
        on_group_changed: Callable[[str, Mapping[str, str]], object],
        on_client_metrics_changed: Callable[[str, Mapping[str, str]], object],
    ) -> None:
        """`on_broker_changed` and `on_group_changed` tell what coordinates groups: of the broker's settings, of those
        of one group. `on_client_metrics_changed` tells what asks clients for metrics of a resource's settings.
        """
        self._broker_id = environment.broker_id
        self._config = environment.config
        self._metadata = metadata
        self._settings = settings
        self._known_settings = known_settings
        self._logs = logs
        self._replicas = replicas
        self._fetcher_manager = fetcher_manager
        self._moves = moves
        self._throttles = throttles
        self._cleaning = cleaning
        self._disk_scheduler = disk_scheduler
        self._on_broker_changed = on_broker_changed
        self._on_group_changed = on_group_changed
        self._on_client_metrics_changed = on_client_metrics_changed

    def settings_changed(self, resource: ConfigResource, values: Mapping[str, str]) -> None:
        """Settings of a topic, of this broker or of all brokers were read from the store: they hold from now on.

        An error that nothing foresaw is logged: it must not keep settings of others, or an order that waits for these,
        from being carried out.
        """
        try:
            if self._take_settings(resource, values):
                self._configure_logs(None if resource.type is not ConfigResourceType.TOPIC else resource.name)
        except Exception:
            # A fault of this broker, with one resource's settings.
            logger.exception("settings not taken in: of=%s", config_path(resource))

    def topics_changed(self, new: Iterable[str], gone: Iterable[str]) -> None:
        """The controller has told of topics: settings of a new one come without a notification, and are read."""
        for topic in gone:
            self._known_settings.forget(ConfigResource(ConfigResourceType.TOPIC, topic))
        resources = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in new]
        unknown = [resource for resource in resources if self._known_settings.version(resource) is None]
        if unknown:
            self._settings.refresh(unknown)

    def settings_loaded(self, stored: Mapping[ConfigResource, Mapping[str, str]]) -> None:
        """What was read before there was a node; logs that were loaded with other settings get these."""
        for resource, values in stored.items():
            self._take_settings(resource, values)
        self._configure_logs(None)

    def _take_settings(self, resource: ConfigResource, values: Mapping[str, str]) -> bool:
        """Whether settings of logs may have changed, and are to be looked at."""
        image = self._metadata.image
        if dict(image.configs.get(resource, {})) == dict(values):
            return False
        image.apply(ConfigChanged(resource, values or None))
        if resource.type is ConfigResourceType.GROUP:
            tell_of_group(resource, values, GroupLimits.of(self._config))
            self._on_group_changed(resource.name, values)
            return False
        if resource.type is ConfigResourceType.CLIENT_METRICS:
            self._on_client_metrics_changed(resource.name, values)
            return False
        if resource.type is ConfigResourceType.TOPIC or resource in broker_resources(self._broker_id):
            tell_what_cannot_be(resource, values)
        if resource.type is ConfigResourceType.TOPIC:
            if self._throttles.topic_changed(resource.name, values):
                self._throttles_changed()
            return True
        changed = self._config.set_dynamic(image.configs.get(CLUSTER_DEFAULT, {}), image.broker_config(self._broker_id))
        if changed:
            logger.info("settings changed: %s", ", ".join(sorted(changed)))
            self._logs.cordoned = self._config.cordoned_log_dirs
            self._on_broker_changed()
            self._cleaning.settings_changed(self._config)
            if self._throttles.broker_changed(self._config):
                self._throttles_changed()
        return bool(changed)

    def _throttles_changed(self) -> None:
        self._throttles.waiting_fetches.release()
        self._fetcher_manager.throttles_changed()
        self._moves.throttle_changed()

    def _configure_logs(self, topic: str | None) -> None:
        """Gives the logs of a topic, or of all topics, the settings that hold now, where they have others."""
        configs: dict[str, LogConfig] = {}
        for log in self._logs_of(topic):
            topic_partition = log.topic_partition
            config = configs.get(topic_partition.topic)
            if config is None:
                overrides = self._metadata.image.topic_config(topic_partition.topic)
                config = configs[topic_partition.topic] = log_config(self._config, overrides)
            if self._logs.set_config(topic_partition, config):
                replica = self._replicas.get(topic_partition)
                if replica is not None:
                    self._replicas.config_changed(replica)
                    self._fetcher_manager.config_changed(replica)
        self._disk_scheduler.wake()

    def _logs_of(self, topic: str | None) -> list[Log]:
        """Retention looks at all logs on the disk, also at those of which no LeaderAndIsr has come yet."""
        if topic is not None and len(self._replicas) == self._logs.log_count:
            return [replica.log for replica in self._replicas.of_topic(topic)]
        return [log for log in self._logs.logs() if topic in (None, log.topic_partition.topic)]
