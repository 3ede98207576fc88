"""The group coordinator of this broker: a `GroupCoordinator` for each partition of `__consumer_offsets` that it leads.

handler --> ask(group, make) --> Shards --> GroupCoordinator        what Shards does stands there
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tidelog.assignors import BROKERS
from tidelog.broker.coordinators.internal_topic import InternalTopic
from tidelog.broker.coordinators.service import CoordinatorService
from tidelog.broker.deferred import Deferred, flow, gather
from tidelog.config import group_config
from tidelog.config.group_config import GroupLimits
from tidelog.coordinator.groups.consumer.settings import ConsumerSettings
from tidelog.coordinator.groups.coordinator import GroupCoordinator
from tidelog.coordinator.groups.counts import GroupCounts
from tidelog.coordinator.groups.events import (
    NOBODY,
    DeletedGroups,
    DeleteGroups,
    GroupListing,
    ListedGroup,
    ListGroups,
)
from tidelog.coordinator.groups.offset_events import CommitOffsets, ExpireOffsets, ForgetPartitions
from tidelog.coordinator.groups.settings import GroupSettings
from tidelog.coordinator.groups.share.events import ForgetTopics
from tidelog.coordinator.groups.share.settings import ShareGroupSettings
from tidelog.coordinator.groups.topics_view import TopicsView, topics_view
from tidelog.metadata.image import ConfigResourceType
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicId, TopicPartition
from tidelog.model.topics import CONSUMER_OFFSETS_TOPIC
from tidelog.records.batch import Codec

if TYPE_CHECKING:
    from tidelog.broker.channels import ControllerChannel
    from tidelog.broker.cluster.metadata_cache import MetadataCache
    from tidelog.broker.deferred import Steps
    from tidelog.broker.environment import BrokerEnvironment
    from tidelog.broker.replicas.replica_manager import ReplicaManager
    from tidelog.broker.replicas.transactional_appends import TransactionalAppends
    from tidelog.config.broker_config import BrokerConfig

MINUTE_MS: Final = 60_000
RECORD_ROOM: Final = 48_588
"""Bytes of a batch for what is not counted in a group's record: its id, its leader, how much there is of all."""
_VERIFICATIONS_MAX: Final = 3
"""How often a transaction's coordinator is asked for one commit, where the log refuses its verification."""


class GroupCoordinatorService(CoordinatorService[GroupCoordinator]):
    """All groups that this broker coordinates."""

    def __init__(
        self,
        environment: BrokerEnvironment,
        *,
        metadata: MetadataCache,
        replicas: ReplicaManager,
        controller: ControllerChannel,
        transactional_appends: Callable[[], TransactionalAppends],
    ) -> None:
        """`transactional_appends` are loaded with the first transactional commit."""
        super().__init__(
            environment,
            metadata=metadata,
            replicas=replicas,
            controller=controller,
            topic=_topic(environment.config),
            make=lambda: GroupCoordinator(self._settings, self.counts),
        )
        self.counts = GroupCounts()
        """What the coordinators have decided, also those that are no more."""
        self._metadata = metadata
        self._transactional_appends = transactional_appends
        self._of_groups: dict[str, ConsumerSettings] = {}
        """Of the groups that have settings of their own; `_settings` has the same dict."""
        self._of_share_groups: dict[str, ShareGroupSettings] = {}
        """The same, of share groups' settings."""
        self._settings = self._read_settings()
        self._topics = TopicsView()
        self._layout_changes = -1
        """Of the metadata when that view was made."""
        self.shards.prepare = self._prepare

    def start(self) -> None:
        """Begins to look for expired offsets, every offsets.retention.check.interval.ms."""
        self._shell.after(self._config.offsets_retention_check_interval_ms, self._expire)

    def settings_changed(self) -> None:
        """The broker's settings changed: they hold from the next event on."""
        self._settings = self._read_settings()

    def group_settings_changed(self, group: str, values: Mapping[str, str]) -> None:
        """A group's own settings changed: they hold from its next event on."""
        if values:
            limits = GroupLimits.of(self._config)
            self._of_groups[group] = _settings_of_group(self._settings.consumer, values, limits)
            self._of_share_groups[group] = _settings_of_share_group(self._settings.share, values, limits)
        else:
            self._of_groups.pop(group, None)
            self._of_share_groups.pop(group, None)

    def _read_settings(self) -> GroupSettings:
        config, configs = self._config, self._metadata.image.configs
        settings = _settings(config)
        limits = GroupLimits.of(config)
        self._of_groups = {
            resource.name: _settings_of_group(settings.consumer, values, limits)
            for resource, values in configs.items()
            if resource.type is ConfigResourceType.GROUP
        }
        self._of_share_groups = {
            resource.name: _settings_of_share_group(settings.share, values, limits)
            for resource, values in configs.items()
            if resource.type is ConfigResourceType.GROUP
        }
        return replace(settings, of_groups=self._of_groups, of_share_groups=self._of_share_groups)

    def _prepare(self, machine: GroupCoordinator) -> None:
        """What a coordinator is to know before each event: settings and topics as they are now."""
        metadata = self._metadata
        if metadata.layout_changes != self._layout_changes:
            self._layout_changes = metadata.layout_changes
            self._topics = topics_view(metadata.image, self._topics)
        machine.settings = self._settings
        machine.metadata = self._topics

    def ask(self, group: str, make: Callable[[int], Any]) -> Deferred[Any]:
        """The reply of the group's coordinator to the event `make(request_id)`; fails as `Shards.ask` does."""
        return self.shards.ask(group, make)

    def beat(self, group: str, member_id: str, generation: int) -> bool:
        """A member of a classic group says that it lives; true where there is nothing to tell it. Else `ask` does."""
        return self.shards.touch(
            group, lambda machine, now_ms: machine.classic.beat(now_ms, group, member_id, generation)
        )

    def ask_in_transaction(
        self, group: str, transactional_id: str, make: Callable[[int], CommitOffsets], *, adds: bool
    ) -> Deferred[Any]:
        """As `ask`, for offsets that are part of a transaction, once its coordinator has confirmed it.

        `adds`: the group's partition joins the transaction by this, rather than having been added before.
        """
        return flow(self._in_transaction(group, transactional_id, make, adds=adds))

    def _in_transaction(
        self, group: str, transactional_id: str, make: Callable[[int], CommitOffsets], *, adds: bool
    ) -> Steps[Any]:
        producer = make(NOBODY).producer
        assert producer is not None
        partition = self.shards.partition_of(group)
        tries = 0
        while True:
            shard = self.shards.ready(partition)
            tries += 1
            try:
                guard = yield self._transactional_appends().verify(
                    shard.replica, transactional_id, *producer, adds=adds
                )
                if not shard.is_current:
                    raise KafkaError(ErrorCode.NOT_COORDINATOR, "The coordinator has moved, or begins anew.")
                return (yield self.shards.ask_partition(partition, make, guard))
            except KafkaError as error:
                # A marker of an earlier transaction, sent twice, may have made the verification void.
                if error.code is not ErrorCode.INVALID_TXN_STATE or tries >= _VERIFICATIONS_MAX:
                    raise

    def list_groups(self) -> Deferred[list[ListedGroup]]:
        """Groups of all coordinators here; fails with COORDINATOR_LOAD_IN_PROGRESS while one is loading."""

        def joined(listings: list[GroupListing]) -> list[ListedGroup]:
            return sorted((found for listing in listings for found in listing.groups), key=lambda found: found.group)

        return self.shards.ask_all(ListGroups).then(joined)

    def delete_groups(self, groups: Sequence[str]) -> Deferred[dict[str, ErrorCode]]:
        """`group -> error`, also for those that are coordinated elsewhere; never fails with a KafkaError."""
        by_partition: dict[int, list[str]] = {}
        for group in dict.fromkeys(groups):
            by_partition.setdefault(self.shards.partition_of(group), []).append(group)
        return gather([self._delete(partition, names) for partition, names in by_partition.items()]).then(
            lambda outcomes: {group: error for outcome in outcomes for group, error in outcome}
        )

    def _delete(self, partition: int, groups: list[str]) -> Deferred[Sequence[tuple[str, ErrorCode]]]:
        asked: Deferred[DeletedGroups] = self.shards.ask_partition(
            partition, lambda request_id: DeleteGroups(request_id, groups)
        )
        errors: Deferred[Sequence[tuple[str, ErrorCode]]] = asked.then(lambda deleted: deleted.errors)
        return errors.recover(KafkaError, lambda error: [(group, error.code) for group in groups])

    # What else concerns the groups.

    def partitions_deleted(self, partitions: Sequence[TopicPartition]) -> None:
        """Topics were deleted: what groups committed for their partitions goes."""
        others = [partition for partition in partitions if partition.topic != CONSUMER_OFFSETS_TOPIC]
        if others:
            self.shards.tell_all(ForgetPartitions(others))

    def topics_deleted(self, topics: frozenset[TopicId]) -> None:
        """Share groups have no state of these topics any more: their share coordinators delete it by themselves."""
        self.shards.tell_all(ForgetTopics(topics))

    def transaction_ended(self, partition: int, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        """A transaction's marker in a partition of `__consumer_offsets` is committed: its offsets hold, or are void."""
        self.shards.transaction_ended(partition, producer_id, producer_epoch, committed=committed)

    def _expire(self) -> None:
        config, wall_ms = self._config, self._clock.wall_ms()
        self._shell.after(config.offsets_retention_check_interval_ms, self._expire)
        retention_ms = config.offsets_retention_minutes * MINUTE_MS
        self.shards.sweep(lambda request_id, rest: ExpireOffsets(wall_ms, retention_ms, request_id, rest))


def _topic(config: BrokerConfig) -> InternalTopic:
    factor_is_set = config.is_set("offsets.topic.replication.factor")
    return InternalTopic(
        CONSUMER_OFFSETS_TOPIC,
        partitions=config.offsets_topic_num_partitions,
        replication_factor=config.offsets_topic_replication_factor if factor_is_set else None,
        configs=[
            ("cleanup.policy", "compact"),
            ("compression.type", "producer"),
            ("segment.bytes", str(config.offsets_topic_segment_bytes)),
        ],
        codec=Codec(config.offsets_topic_compression_codec),
        commit_timeout_ms=config.offsets_commit_timeout_ms,
        load_buffer_size=config.offsets_load_buffer_size,
    )


def _settings(config: BrokerConfig) -> GroupSettings:
    return GroupSettings(
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        group_max_size=config.group_max_size,
        group_record_max_bytes=max(config.message_max_bytes - RECORD_ROOM, config.message_max_bytes // 2),
        consumer=_consumer_settings(config),
        share=_share_settings(config),
    )


def _settings_of_group(
    settings: ConsumerSettings, overrides: Mapping[str, str], limits: GroupLimits
) -> ConsumerSettings:
    """The settings with a group's own."""
    values = group_config.resolve(overrides, limits)
    return replace(
        settings,
        session_timeout_ms=values[group_config.SESSION_TIMEOUT],
        heartbeat_interval_ms=values[group_config.HEARTBEAT_INTERVAL],
        assignment_interval_ms=values[group_config.ASSIGNMENT_INTERVAL],
    )


def _share_settings(config: BrokerConfig) -> ShareGroupSettings:
    return ShareGroupSettings(
        session_timeout_ms=config.group_share_session_timeout_ms,
        heartbeat_interval_ms=config.group_share_heartbeat_interval_ms,
        group_size_max=config.group_share_max_size,
        assignment_interval_ms=config.group_share_assignment_interval_ms,
        initialize_retry_ms=config.group_share_initialize_retry_interval_ms,
    )


def _settings_of_share_group(
    settings: ShareGroupSettings, overrides: Mapping[str, str], limits: GroupLimits
) -> ShareGroupSettings:
    values = group_config.resolve(overrides, limits)
    return replace(
        settings,
        session_timeout_ms=values[group_config.SHARE_SESSION_TIMEOUT],
        heartbeat_interval_ms=values[group_config.SHARE_HEARTBEAT_INTERVAL],
        assignment_interval_ms=values[group_config.SHARE_ASSIGNMENT_INTERVAL],
    )


def _assignor(name: str) -> str:
    """The short name of an assignor; an old server.properties may have Kafka's class of it."""
    for assignor in BROKERS:
        if name.endswith(f".{assignor.capitalize()}Assignor"):
            return assignor
    return name


def _consumer_settings(config: BrokerConfig) -> ConsumerSettings:
    policy = config.group_consumer_migration_policy.lower()
    known = ConsumerSettings()
    return ConsumerSettings(
        session_timeout_ms=config.group_consumer_session_timeout_ms,
        heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
        group_size_max=config.group_consumer_max_size,
        assignors=tuple(dict.fromkeys(map(_assignor, config.group_consumer_assignors))) or known.assignors,
        assignment_interval_ms=config.group_consumer_assignment_interval_ms,
        pattern_refresh_ms=config.group_consumer_regex_refresh_interval_ms,
        may_upgrade=policy in ("upgrade", "bidirectional"),
        may_downgrade=policy in ("downgrade", "bidirectional"),
    )
