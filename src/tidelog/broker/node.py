"""A broker without sockets, threads or an event loop: the parts and how they know each other.

    server (frames) -> handlers/<api>.handle(node, context, request) -> node.replicas, node.controller, node.groups, ...
                                                                          |
                                                        storage.LogManager, replication, purgatory

Everything that touches the outside goes through the ports handed to the constructor and through `Shell`: what the
runtime does for a node with timers and threads. The simulator runs this very class with its own ports.

All methods are called on one thread, the loop's; only what is given to `Shell.in_pool` runs elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tidelog.broker.client_quotas import client_quotas
from tidelog.broker.cluster.config_changes import KnownSettings
from tidelog.broker.cluster.departures import Departures
from tidelog.broker.cluster.replica_marks import ReplicaMarks
from tidelog.broker.context import RequestContext
from tidelog.broker.deferred import Deferred
from tidelog.broker.disk_scheduler import DiskScheduler
from tidelog.broker.fetches.cold_reads import ColdReads
from tidelog.broker.fetches.fetch_sessions import FetchSessions
from tidelog.broker.fetches.replica_fetch import ReplicaFetches
from tidelog.broker.fetches.replica_sessions import ReplicaSessions
from tidelog.broker.fetches.replication_throttles import ReplicationThrottles
from tidelog.broker.fetches.shared_reads import SharedReads
from tidelog.broker.following.replica_fetcher_manager import ReplicaFetcherManager
from tidelog.broker.logs.cleaning import LogCleanerRunner
from tidelog.broker.logs.directory_moves import Moves
from tidelog.broker.logs.recopies import Recopies
from tidelog.broker.logs.repairs import Repairs
from tidelog.broker.logs.scrubbing import Scrubbing
from tidelog.broker.orders.config_handler import ConfigHandler
from tidelog.broker.orders.leadership import Leadership
from tidelog.broker.replicas.alter_partition_manager import AlterPartitionManager
from tidelog.broker.replicas.purgatory import Purgatory
from tidelog.broker.replicas.replica_manager import ReplicaManager
from tidelog.broker.telemetry.offer import tell_why_not, without_telemetry
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.topics import CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from tidelog.broker.channels import ControllerChannel, Settings
    from tidelog.broker.cluster.metadata_cache import MetadataCache
    from tidelog.broker.cluster.producer_ids import ProducerIds
    from tidelog.broker.cluster.stored_quotas import StoredQuotas
    from tidelog.broker.cluster.stored_security import StoredSecurity
    from tidelog.broker.cluster.stored_tokens import StoredTokens
    from tidelog.broker.coordinators.groups import GroupCoordinatorService
    from tidelog.broker.coordinators.transactions import TransactionCoordinatorService
    from tidelog.broker.environment import BrokerEnvironment
    from tidelog.broker.handler import Handler
    from tidelog.broker.replicas.transactional_appends import TransactionalAppends
    from tidelog.broker.sharing.sharing import Sharing
    from tidelog.broker.telemetry.client_metrics_manager import ClientMetricsManager
    from tidelog.coordinator.groups.counts import GroupCounts
    from tidelog.model.identifiers import BrokerEpoch, BrokerId, TopicId, TopicPartition
    from tidelog.protocol.apis import ApiKey
    from tidelog.quotas.client_quotas import ClientQuotas
    from tidelog.security.authorizer import Authorizer
    from tidelog.storage.log_manager import LogManager


class Node:
    """One broker. Attributes are its public surface for handlers."""

    def __init__(
        self,
        environment: BrokerEnvironment,
        *,
        metadata: MetadataCache,
        logs: LogManager,
        controller: ControllerChannel,
        settings: Settings,
        handlers: dict[int, Handler],
        known_settings: KnownSettings | None = None,
        security: StoredSecurity | None = None,
        quotas: ClientQuotas | None = None,
        stored_quotas: StoredQuotas | None = None,
        tokens: StoredTokens | None = None,
        client_metrics: ClientMetricsManager | None = None,
    ) -> None:
        self.environment = environment
        self.broker_id = environment.broker_id
        self.cluster_id = environment.cluster_id
        self.config = config = environment.config
        self.clock = environment.clock
        self.random = environment.random
        self.disk = environment.disk
        self.shell = environment.shell
        self.metadata = metadata
        """The cluster as UpdateMetadata told it: `metadata.image` is a ClusterImage; never the controller's own."""
        self.logs = logs
        """Every partition's log on this broker."""
        logs.cordoned = config.cordoned_log_dirs
        self.controller = controller
        self.settings = settings
        self.known_settings = KnownSettings() if known_settings is None else known_settings
        """Which version of each resource's settings is in force here."""
        self._security = security
        self.quotas = quotas or client_quotas(config)
        """Client quotas, and what has been used of them here."""
        self._stored_quotas = stored_quotas
        self.tokens = tokens
        """Delegation tokens; None where there are none (`delegation.token.secret.key`)."""
        self.client_metrics = client_metrics
        """What clients push (KIP-714); None: they are not offered to, as by Kafka without a receiver."""
        self.handlers = handlers if client_metrics is not None else without_telemetry(handlers)
        """By API key, ascending."""
        self.refused_settings: Callable[[Mapping[str, str]], str | None] = lambda values: None
        """Why this broker could not do with settings of its own (a key store cannot be read), for it to be set; None:
        it could."""
        self._make_replicas()
        self._make_log_care()
        self._make_orders()
        self._transactional_appends: TransactionalAppends | None = None
        self._groups: GroupCoordinatorService | None = None
        self._transactions: TransactionCoordinatorService | None = None
        self._sharing: Sharing | None = None
        self._producer_ids: ProducerIds | None = None

    def _make_replicas(self) -> None:
        """What leads and follows partitions, and answers fetches."""
        environment, config = self.environment, self.config
        self.departures = Departures(self.metadata, self.shell)
        """Brokers that die or have died, and what clients are answered meanwhile."""
        self.purgatory = Purgatory(self.shell)
        """Operations that wait: consumers' long polls, DeleteRecords."""
        self.cold_reads = ColdReads(self.shell)
        """Reads of records that are not in the page cache."""
        self.disk_scheduler = DiskScheduler(environment, self.logs)
        """Flushes, checkpoints and what else the logs have done."""
        self.replicas = ReplicaManager(
            broker_id=self.broker_id,
            clock=self.clock,
            purgatory=self.purgatory,
            shell=self.shell,
            on_disk_work=self.disk_scheduler.wake,
            is_live=self._is_live,
            lag_ms_max=config.replica_lag_time_max_ms,
            on_proposal=lambda replica, proposal: self.alter_partition_manager.propose(replica, proposal),
            on_followers=lambda: self.alter_partition_manager.watch(),
        )
        """Every partition that this broker leads or follows; appends and reads go through it."""
        self.metadata.on_brokers_changed.append(self.replicas.live_brokers_changed)
        self.metadata.on_topics_deleted.append(self._topics_deleted)
        self.alter_partition_manager = AlterPartitionManager(environment, self.controller, self.replicas)
        """What the leaders here want of the controller: changes of their ISRs."""
        self.throttles = ReplicationThrottles(self.broker_id, config, clock=self.clock, shell=self.shell)
        """How fast throttled partitions are sent to followers and fetched from leaders."""
        self.fetcher_manager = ReplicaFetcherManager(
            environment, purgatory=self.purgatory, throttles=self.throttles, disk_scheduler=self.disk_scheduler
        )
        """What this broker follows, and the way from its leaders."""
        self.disk_scheduler.on_task_done += [self.replicas.flushed, self.fetcher_manager.flushed]
        slots_max = config.max_incremental_fetch_session_cache_slots
        self.fetch_sessions = FetchSessions(random=self.random, slots_max=slots_max)
        self.shared_reads = SharedReads(self.clock)
        self.replica_sessions = ReplicaSessions(random=self.random, is_live=self._is_live)
        """What followers of this broker's partitions fetch."""

    def _make_log_care(self) -> None:
        """What compacts, checks, repairs and moves logs."""
        environment, logs, disk_scheduler = self.environment, self.logs, self.disk_scheduler
        self.marks = ReplicaMarks(self.broker_id, logs)
        """Replicas here that have lost records, as the controller is told of them."""
        self.cleaning = LogCleanerRunner(environment, logs, disk_scheduler)
        """Compaction."""
        self.recopies = Recopies(
            environment,
            metadata=self.metadata,
            logs=logs,
            marks=self.marks,
            fetcher_manager=self.fetcher_manager,
        )
        """Replicas that are copied anew."""
        self.repairs = Repairs(
            environment, metadata=self.metadata, logs=logs, disk_scheduler=disk_scheduler, recopies=self.recopies
        )
        """Segments that were found rotten."""
        self.scrubbing = Scrubbing(environment, logs, disk_scheduler, self.repairs)
        """The look through all logs for rot."""
        self.moves = Moves(
            environment,
            logs=logs,
            replicas=self.replicas,
            fetcher_manager=self.fetcher_manager,
            throttles=self.throttles,
            disk_scheduler=disk_scheduler,
        )
        """Replicas on their way to another log directory."""
        self.replica_fetches = ReplicaFetches(
            environment,
            metadata=self.metadata,
            logs=logs,
            replicas=self.replicas,
            sessions=self.replica_sessions,
            throttles=self.throttles,
            cold_reads=self.cold_reads,
            on_rot=self.repairs.look,
        )
        """The fetches of followers."""
        disk_scheduler.on_tick += [self.replicas.look_at_starts, self.repairs.look]

    def _make_orders(self) -> None:
        """What carries out the orders of the controller and altered settings."""
        self.config_handler = ConfigHandler(
            self.environment,
            metadata=self.metadata,
            settings=self.settings,
            known_settings=self.known_settings,
            logs=self.logs,
            replicas=self.replicas,
            fetcher_manager=self.fetcher_manager,
            moves=self.moves,
            throttles=self.throttles,
            cleaning=self.cleaning,
            disk_scheduler=self.disk_scheduler,
            on_broker_changed=self._broker_settings_changed,
            on_group_changed=self._group_settings_changed,
            on_client_metrics_changed=self._client_metrics_changed,
        )
        """Altered settings, put in force."""
        self.leadership = Leadership(
            self.environment,
            metadata=self.metadata,
            settings=self.settings,
            config_handler=self.config_handler,
            logs=self.logs,
            replicas=self.replicas,
            fetcher_manager=self.fetcher_manager,
            moves=self.moves,
            marks=self.marks,
            disk_scheduler=self.disk_scheduler,
            on_leadership_changed=self._leadership_changed,
        )
        """LeaderAndIsr and StopReplica."""

    @property
    def broker_epoch(self) -> BrokerEpoch:
        """Of this broker's registration; -1 before it."""
        return self.environment.broker_epoch

    @broker_epoch.setter
    def broker_epoch(self, broker_epoch: BrokerEpoch) -> None:
        self.environment.broker_epoch = broker_epoch

    @property
    def groups(self) -> GroupCoordinatorService:
        """Offsets committed to the partitions of `__consumer_offsets` that this broker leads; loaded on first use."""
        if self._groups is None:
            from tidelog.broker.coordinators.groups import GroupCoordinatorService

            self._groups = GroupCoordinatorService(
                self.environment,
                metadata=self.metadata,
                replicas=self.replicas,
                controller=self.controller,
                transactional_appends=lambda: self.transactional_appends,
            )
            self._groups.start()
        return self._groups

    @property
    def group_counts(self) -> GroupCounts | None:
        """What the coordinators of groups have decided; None where there was no need of one yet."""
        return None if self._groups is None else self._groups.counts

    @property
    def transactional_appends(self) -> TransactionalAppends:
        """The way of transactional batches into the partitions led here; loaded on first use."""
        if self._transactional_appends is None:
            from tidelog.broker.replicas.transactional_appends import TransactionalAppends

            self._transactional_appends = TransactionalAppends(
                self.environment, metadata=self.metadata, replicas=self.replicas, ask_here=self.ask_here
            )
        return self._transactional_appends

    @property
    def transactions(self) -> TransactionCoordinatorService:
        """Transactional ids in the partitions of `__transaction_state` that this broker leads; loaded on first use."""
        if self._transactions is None:
            from tidelog.broker.coordinators.transactions import TransactionCoordinatorService

            self._transactions = TransactionCoordinatorService(
                self.environment,
                metadata=self.metadata,
                replicas=self.replicas,
                controller=self.controller,
                producer_ids=self.producer_ids,
                ask_here=self.ask_here,
            )
            self._transactions.start()
        return self._transactions

    @property
    def sharing(self) -> Sharing:
        """Share groups: their partitions that this broker leads, and the state that it keeps; loaded on first use."""
        if self._sharing is None:
            from tidelog.broker.sharing.sharing import Sharing

            self._sharing = Sharing(self, self.environment, self.controller)
            self._sharing.start()
        return self._sharing

    def connection_closed(self, connection_id: int) -> None:
        """A client is gone: what it held is given back."""
        if self._sharing is not None:
            self._sharing.connection_closed(connection_id)
        if self.client_metrics is not None:
            self.client_metrics.connection_closed(connection_id)

    @property
    def producer_ids(self) -> ProducerIds:
        """Ids for idempotent producers; loaded on first use."""
        if self._producer_ids is None:
            from tidelog.broker.cluster.producer_ids import ProducerIds

            self._producer_ids = ProducerIds(self.environment, self.controller)
        return self._producer_ids

    def _is_live(self, broker_id: BrokerId) -> bool:
        return self.metadata.image.is_live(broker_id)

    def ask_here(self, key: ApiKey, version: int, request: Any) -> Deferred[Any]:
        """Asks this broker's own handler as another broker would; see `channels.AskHere`."""
        handler = self.handlers.get(key)
        if handler is None:
            return Deferred.failed(KafkaError(ErrorCode.UNSUPPORTED_VERSION))
        listener = self.config.inter_broker_listener_name
        context = RequestContext(key, version, 0, None, self.clock.monotonic_ms(), listener)
        try:
            response = handler.handle(self, context, request)
        except KafkaError as error:
            return Deferred.failed(error)
        return response if isinstance(response, Deferred) else Deferred.of(response)

    # What coordinators are told.

    def _leadership_changed(self, topic_partition: TopicPartition) -> None:
        if topic_partition.topic == CONSUMER_OFFSETS_TOPIC:
            self.groups.leadership_changed(topic_partition.partition)
        elif topic_partition.topic == TRANSACTION_STATE_TOPIC:
            self.transactions.leadership_changed(topic_partition.partition)
        elif topic_partition.topic == SHARE_GROUP_STATE_TOPIC:
            self.sharing.leadership_changed(topic_partition)
        elif self._sharing is not None:
            self._sharing.leadership_changed(topic_partition)

    def partitions_deleted(self, partitions: list[TopicPartition]) -> None:
        """Topics are gone from the cluster."""
        if self._groups is not None and partitions:
            self._groups.partitions_deleted(partitions)

    def _topics_deleted(self, topics: frozenset[TopicId]) -> None:
        """What share groups have stored of these topics goes."""
        if self._groups is not None:
            self._groups.topics_deleted(topics)
        if self._sharing is not None:
            self._sharing.topics_deleted(topics)

    def _group_settings_changed(self, group: str, values: Mapping[str, str]) -> None:
        if self._groups is not None:
            self._groups.group_settings_changed(group, values)
        if self._sharing is not None:
            self._sharing.partitions.settings_changed()

    def _client_metrics_changed(self, resource: str, values: Mapping[str, str]) -> None:
        if self.client_metrics is not None:
            self.client_metrics.subscription_changed(resource, values)
        elif values:
            tell_why_not(resource, self.config)

    def _broker_settings_changed(self) -> None:
        self.groups.settings_changed()
        if self._sharing is not None:
            self._sharing.partitions.settings_changed()

    # Who may do what.

    @property
    def security(self) -> StoredSecurity:
        """Users and ACLs of the cluster."""
        if self._security is None:
            raise KafkaError(ErrorCode.SECURITY_DISABLED, "This broker has no store of users and ACLs.")
        return self._security

    @property
    def stored_quotas(self) -> StoredQuotas:
        """Changes client quotas in the metadata store."""
        if self._stored_quotas is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "This broker has no store of client quotas.")
        return self._stored_quotas

    @property
    def authorizer(self) -> Authorizer | None:
        """Decides who may do what; None: all is allowed."""
        return None if self._security is None else self._security.authorizer

    def directory_failed(self) -> None:
        """A log directory went offline: requests that wait for its partitions are answered."""
        for replica in list(self.replicas):
            if replica.log.is_offline:
                self.replicas.disturbed(replica)
        self.fetcher_manager.directory_failed()

    def stop(self) -> None:
        """Begins nothing more; what runs on I/O threads is finished by the runtime."""
        self.leadership.try_no_more()
        self.fetcher_manager.stop()
        self.cleaning.stop()
        self.moves.stop()
        self.repairs.stop()
        self.recopies.stop()
        self.scrubbing.stop()
        self.alter_partition_manager.stop()
        self.departures.stop()
        self.disk_scheduler.stop()
