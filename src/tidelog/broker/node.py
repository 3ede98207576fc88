"""A broker without sockets, threads or an event loop: the parts and how they know each other.

    server (frames) -> handlers/<api>.handle(node, context, request) -> node.replicas, node.controller, node.groups, ...
                                                                          |
                                                        storage.LogManager, replication, purgatory

Everything that touches the outside goes through the ports handed to the constructor and through `Shell`: what the
runtime does for a node with timers and threads. The simulator runs this very class with its own ports.

All methods are called on one thread, the loop's; only what is given to `Shell.in_pool` runs elsewhere.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from tidelog.broker.cluster.config_changes import KnownSettings
from tidelog.broker.cluster.departures import Departures
from tidelog.broker.cluster.metadata_cache import MetadataCache
from tidelog.broker.cluster.replica_marks import ReplicaMarks
from tidelog.broker.cluster.stored_settings import broker_resources, tell_of_group, tell_what_cannot_be
from tidelog.broker.connections.throttling import client_quotas
from tidelog.broker.deferred import Deferred, gather
from tidelog.broker.handlers import load_handlers
from tidelog.broker.replicas.alter_partition_manager import AlterPartitionManager
from tidelog.broker.replicas.cleaning import LogCleanerRunner
from tidelog.broker.replicas.cold_reads import ColdReads
from tidelog.broker.replicas.directory_moves import Moves
from tidelog.broker.replicas.fetch_sessions import FetchSessions
from tidelog.broker.replicas.leadership import Leadership
from tidelog.broker.replicas.purgatory import Purgatory
from tidelog.broker.replicas.recopies import Recopies
from tidelog.broker.replicas.repairs import Repairs
from tidelog.broker.replicas.replica_fetcher_manager import ReplicaFetcherManager
from tidelog.broker.replicas.replica_manager import ReplicaManager
from tidelog.broker.replicas.replica_sessions import ReplicaSessions
from tidelog.broker.replicas.scrubbing import Scrubbing
from tidelog.broker.replicas.throttles import Throttles
from tidelog.broker.replicas.topic_settings import log_config
from tidelog.broker.shell import InDirectories, blocking_half
from tidelog.config.group_config import GroupLimits
from tidelog.metadata.image import CLUSTER_DEFAULT, ConfigChanged, ConfigResource, ConfigResourceType
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import BrokerEpoch
from tidelog.model.topics import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from tidelog.storage.disk_errors import as_os_error
from tidelog.storage.tasks import log_unexpected

if TYPE_CHECKING:
    from tidelog.broker.cluster.producer_ids import ProducerIds
    from tidelog.broker.cluster.stored_quotas import StoredQuotas
    from tidelog.broker.cluster.stored_security import StoredSecurity
    from tidelog.broker.cluster.stored_tokens import StoredTokens
    from tidelog.broker.coordinators.groups import GroupCoordinatorService
    from tidelog.broker.coordinators.transactions import TransactionCoordinatorService
    from tidelog.broker.handlers import Handler
    from tidelog.broker.replicas.replica import Replica
    from tidelog.broker.replicas.transactional_appends import TransactionalAppends
    from tidelog.broker.shell import Shell, Timer
    from tidelog.config.broker_config import BrokerConfig
    from tidelog.model.identifiers import BrokerId, ControllerEpoch, TopicPartition
    from tidelog.ports.clock import Clock
    from tidelog.ports.disk import Disk
    from tidelog.ports.random import Random
    from tidelog.quotas.client_quotas import ClientQuotas
    from tidelog.security.authorizer import Authorizer
    from tidelog.storage.log import Log
    from tidelog.storage.log_config import LogConfig
    from tidelog.storage.log_manager import LogManager
    from tidelog.storage.tasks import DiskTask

logger: Final = logging.getLogger(__name__)

FLUSH_DELAY_MS_MIN: Final = 10
"""Between two looks at what flush.ms asks for: appends of that time share a flush, whatever the setting."""
STARTS_RETRY_MS: Final = 500
"""Before checkpoints are written again that a disk has refused for a lack of descriptors or memory."""
DISK_TICK_MS_MIN: Final = 1_000
"""Between two looks at what is due for the disk; flushes that somebody waits for don't wait for it."""


class ControllerChannel(Protocol):
    """The way to the controller for what only it may decide: in this process, or by requests to its broker."""

    @property
    def is_here(self) -> bool:
        """Whether this broker is the controller."""
        ...

    @property
    def lacks_store(self) -> bool:
        """Whether this broker has no connection to the metadata store at the moment."""
        ...

    def confirm(self, controller_id: BrokerId, epoch: ControllerEpoch) -> Deferred[bool]:
        """Whether the store names that broker as the controller of that epoch; StoreError when it cannot be asked."""
        ...

    def serve(self, event: Any) -> Deferred[Any]:
        """As `submit`, for a request of another broker: KafkaError NOT_CONTROLLER at once where this one is not it."""
        ...

    def submit(self, event: Any) -> Deferred[Any]:
        """Hands an event of `tidelog.controller.events` to the active controller; its result comes when all is done.

        Fails with KafkaError NOT_CONTROLLER or REQUEST_TIMED_OUT when there was none to be reached for a while.
        """
        ...


class Settings(Protocol):
    """Settings as the store has them."""

    def of_topics(self, topics: Iterable[str]) -> Deferred[dict[str, dict[str, str]]]:
        """`topic -> its own settings`, read now; topics without any are left out."""
        ...

    def refresh(self, resources: Iterable[ConfigResource]) -> Deferred[None]:
        """Completes when what the store says of `resources` now has taken effect here."""
        ...


class Node:
    """One broker. Attributes are its public surface for handlers."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        cluster_id: str,
        config: BrokerConfig,
        clock: Clock,
        random: Random,
        disk: Disk,
        shell: Shell,
        logs: LogManager,
        controller: ControllerChannel,
        settings: Settings,
        security: StoredSecurity | None = None,
        quotas: ClientQuotas | None = None,
        stored_quotas: StoredQuotas | None = None,
        tokens: StoredTokens | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.cluster_id = cluster_id
        self.broker_epoch = BrokerEpoch(-1)
        """Of this broker's registration; -1 before it."""
        self.config = config
        self.clock = clock
        self.random = random
        self.disk = disk
        self.shell = shell
        self.logs = logs
        logs.cordoned = config.cordoned_log_dirs
        """Every partition's log on this broker."""
        self.controller = controller
        self.settings = settings
        self._security = security
        self.quotas = quotas or client_quotas(config)
        """Client quotas, and what has been used of them here."""
        self._stored_quotas = stored_quotas
        self.tokens = tokens
        """Delegation tokens; None where there are none (`delegation.token.secret.key`)."""
        self.known_settings = KnownSettings()
        """Which version of each resource's settings is in force here; the runtime's, where there is one."""
        self.handlers: dict[int, Handler] = load_handlers()
        """By API key, ascending."""
        self.metadata = MetadataCache(cluster_id)
        """The cluster as UpdateMetadata told it: `metadata.image` is a ClusterImage; never the controller's own."""
        self.departures = Departures(self.metadata, shell)
        """Brokers that die or have died: what clients are told meanwhile."""
        self.purgatory = Purgatory(shell)
        self.cold_reads = ColdReads(shell)
        """Operations that wait: consumers' long polls, DeleteRecords."""
        self.alter_partition_manager = AlterPartitionManager(self)
        """What the leaders here want of the controller: changes of their ISRs."""
        self.replicas = ReplicaManager(
            broker_id=broker_id,
            clock=clock,
            purgatory=self.purgatory,
            shell=shell,
            on_disk_work=self.disk_work,
            is_live=self._is_live,
            lag_ms_max=config.replica_lag_time_max_ms,
            on_proposal=self.alter_partition_manager.propose,
            on_followers=self.alter_partition_manager.watch,
        )
        """Every partition that this broker leads or follows; appends and reads go through it."""
        self.throttles = Throttles(broker_id, config, clock=clock, shell=shell)
        """How fast throttled partitions are sent to followers and fetched from leaders."""
        self.fetcher_manager = ReplicaFetcherManager(self)
        """What this broker follows, and the way from its leaders."""
        self.marks = ReplicaMarks(broker_id, logs)
        """Replicas here that have lost records, as the controller is told of them."""
        self.cleaning = LogCleanerRunner(self)
        """Compaction."""
        self.scrubbing = Scrubbing(self)
        """The look through all logs for rot."""
        self.repairs = Repairs(self)
        self.recopies = Recopies(self)
        """Segments that were found rotten."""
        self.moves = Moves(self)
        """Replicas on their way to another log directory."""
        self.metadata.on_brokers_changed.append(self.replicas.live_brokers_changed)
        self.leadership = Leadership(self)
        self.fetch_sessions = FetchSessions(random=random, slots_max=config.max_incremental_fetch_session_cache_slots)
        self.replica_sessions = ReplicaSessions(random=random, is_live=self._is_live)
        """What followers of this broker's partitions fetch."""
        self._transactional_appends: TransactionalAppends | None = None
        self._groups: GroupCoordinatorService | None = None
        self._transactions: TransactionCoordinatorService | None = None
        self._producer_ids: ProducerIds | None = None
        logs.producer_limit.on_crowded = self.disk_work
        self._disk_timer: Timer | None = None
        self._flush_timer: Timer | None = None
        self._flush_due_ms = 0
        """Monotonic time of that timer."""
        for directory in logs.directories:
            directory.on_flush_due = self._flush_by
        self._flush_scheduled = False
        self._checking_ahead: set[Log] = set()
        """Logs in which an I/O thread looks at what consumers will want."""
        self._flushing: dict[str | None, int] = {}
        """[log directory] -> flushes of its group that is under way."""
        self._starts_timer: Timer | None = None
        """Set while a disk is to have time to find descriptors or memory for checkpoints again."""
        self._awaiting_starts: list[Deferred[None]] = []
        """Who waits until the first offsets of logs are written down."""
        self._stopped = False

    @property
    def groups(self) -> GroupCoordinatorService:
        """Offsets committed to the partitions of `__consumer_offsets` that this broker leads; loaded on first use."""
        if self._groups is None:
            from tidelog.broker.coordinators.groups import GroupCoordinatorService

            self._groups = GroupCoordinatorService(self)
            self._groups.start()
        return self._groups

    @property
    def transactional_appends(self) -> TransactionalAppends:
        """The way of transactional batches into the partitions led here; loaded on first use."""
        if self._transactional_appends is None:
            from tidelog.broker.replicas.transactional_appends import TransactionalAppends

            self._transactional_appends = TransactionalAppends(self)
        return self._transactional_appends

    @property
    def transactions(self) -> TransactionCoordinatorService:
        """Transactional ids in the partitions of `__transaction_state` that this broker leads; loaded on first use."""
        if self._transactions is None:
            from tidelog.broker.coordinators.transactions import TransactionCoordinatorService

            self._transactions = TransactionCoordinatorService(self)
            self._transactions.start()
        return self._transactions

    @property
    def producer_ids(self) -> ProducerIds:
        """Ids for idempotent producers; loaded on first use."""
        if self._producer_ids is None:
            from tidelog.broker.cluster.producer_ids import ProducerIds

            self._producer_ids = ProducerIds(self)
        return self._producer_ids

    def _is_live(self, broker_id: BrokerId) -> bool:
        return self.metadata.image.is_live(broker_id)

    # Leadership, as the controller orders it.

    def leads(self, replica: Replica) -> None:
        """This broker leads `replica` from now on."""
        self._leadership_changed(replica.topic_partition)

    def resigned(self, topic_partition: TopicPartition) -> None:
        """This broker does not lead the partition any more, or has lost it."""
        self._leadership_changed(topic_partition)

    def _leadership_changed(self, topic_partition: TopicPartition) -> None:
        if topic_partition.topic == CONSUMER_OFFSETS_TOPIC:
            self.groups.leadership_changed(topic_partition.partition)
        elif topic_partition.topic == TRANSACTION_STATE_TOPIC:
            self.transactions.leadership_changed(topic_partition.partition)

    def partitions_deleted(self, partitions: list[TopicPartition]) -> None:
        """Topics are gone from the cluster."""
        if self._groups is not None and partitions:
            self._groups.partitions_deleted(partitions)

    # Settings.

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

    def settings_changed(self, resource: ConfigResource, values: Mapping[str, str]) -> None:
        """Settings of a topic, of this broker or of all brokers were read from the store: they hold from now on."""
        if self._take_settings(resource, values):
            self._configure_logs(None if resource.type is not ConfigResourceType.TOPIC else resource.name)

    def topics_changed(self, new: Iterable[str], gone: Iterable[str]) -> None:
        """The controller has told of topics: settings of a new one come without a notification, and are read."""
        for topic in gone:
            self.known_settings.forget(ConfigResource(ConfigResourceType.TOPIC, topic))
        resources = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in new]
        unknown = [resource for resource in resources if self.known_settings.version(resource) is None]
        if unknown:
            self.settings.refresh(unknown)

    def settings_loaded(self, stored: Mapping[ConfigResource, Mapping[str, str]]) -> None:
        """What was read before there was a node; logs that were loaded with other settings get these."""
        for resource, values in stored.items():
            self._take_settings(resource, values)
        self._configure_logs(None)

    def _take_settings(self, resource: ConfigResource, values: Mapping[str, str]) -> bool:
        """Whether logs may be concerned, whose settings are to be looked at."""
        image = self.metadata.image
        if dict(image.configs.get(resource, {})) == dict(values):
            return False
        image.apply(ConfigChanged(resource, values or None))
        if resource.type is ConfigResourceType.GROUP:
            tell_of_group(resource, values, GroupLimits.of(self.config))
            if self._groups is not None:
                self._groups.group_settings_changed(resource.name, values)
            return False
        if resource.type is ConfigResourceType.CLIENT_METRICS:
            return False
        if resource.type is ConfigResourceType.TOPIC or resource in broker_resources(self.broker_id):
            tell_what_cannot_be(resource, values)
        if resource.type is ConfigResourceType.TOPIC:
            if self.throttles.topic_changed(resource.name, values):
                self._throttles_changed()
            return True
        changed = self.config.set_dynamic(image.configs.get(CLUSTER_DEFAULT, {}), image.broker_config(self.broker_id))
        if changed:
            logger.info("settings changed: %s", ", ".join(sorted(changed)))
            self.logs.cordoned = self.config.cordoned_log_dirs
            self.groups.settings_changed()
            self.cleaning.settings_changed(self.config)
            if self.throttles.broker_changed(self.config):
                self._throttles_changed()
        return bool(changed)

    def _throttles_changed(self) -> None:
        self.throttles.waiting_fetches.release()
        self.fetcher_manager.throttles_changed()
        self.moves.throttle_changed()

    def _configure_logs(self, topic: str | None) -> None:
        """Gives the logs of a topic, or of all topics, the settings that hold now, where they have others."""
        configs: dict[str, LogConfig] = {}
        for log in self._logs_of(topic):
            topic_partition = log.topic_partition
            config = configs.get(topic_partition.topic)
            if config is None:
                overrides = self.metadata.image.topic_config(topic_partition.topic)
                config = configs[topic_partition.topic] = log_config(self.config, overrides)
            if log.config != config:
                self.logs.set_config(topic_partition, config)
                replica = self.replicas.get(topic_partition)
                if replica is not None:
                    self.replicas.config_changed(replica)
                    self.fetcher_manager.config_changed(replica)
        self.disk_work()

    def _logs_of(self, topic: str | None) -> list[Log]:
        """Retention looks at all logs on the disk, those too that the controller has not spoken of yet."""
        if topic is not None and len(self.replicas) == self.logs.log_count:
            return [replica.log for replica in self.replicas.of_topic(topic)]
        return [log for log in self.logs.logs() if topic in (None, log.topic_partition.topic)]

    # Work for the disk.

    @property
    def is_flushing(self) -> bool:
        """Whether a flush is under way that producers may wait for."""
        return bool(self._flushing)

    def run_disk_task(self, task: DiskTask) -> Deferred[None]:
        """Runs a task on an I/O thread and finishes it here; completes in any case, `finish` sees to errors.

        One that a disk refused for a lack of descriptors or memory is due again with the next `tick`.
        """
        done: Deferred[None] = Deferred()

        def finish(running: Deferred[None]) -> None:
            error = outcome_of(task, running)
            try:
                task.finish(error)
            except Exception:
                # What waits for the task goes on; the directory too, as far as `finish` came.
                logger.exception("disk_task_not_finished task=%s", task)
            self.replicas.flushed()
            self.fetcher_manager.flushed()
            if error is None and self.logs.maintenance.has_truncations:
                # The checkpoint files may have been in use when that was asked for.
                self.disk_work()
            done.complete(None)
            self._write_starts()

        self.shell.in_pool(blocking_half(task)).on_complete(finish)
        return done

    def disk_work(self) -> None:
        """Logs have something to flush or to remove: looks at it soon."""
        if not self._flush_scheduled and not self._stopped:
            self._flush_scheduled = True
            self.shell.soon(self._flush)

    def _flush(self) -> None:
        """Flushes all logs that ask for it, as one group in each log directory; who asks meanwhile shares the next."""
        self._flush_scheduled = False
        if self._stopped:
            return
        for truncation in self.logs.maintenance.truncation_tasks():
            # Flushes have waited for it.
            self.run_disk_task(truncation).on_complete(self._flush_if_wanted)
        for task in self.logs.producer_maintenance.tasks(self.clock.monotonic_ms()):
            self.run_disk_task(task)
        tasks = self.logs.maintenance.flush_tasks(but=self._flushing)
        for task in tasks:
            self._flushing[task.log_dir] = self._flushing.get(task.log_dir, 0) + 1
        for task in tasks:
            self.run_disk_task(task).on_complete(functools.partial(self._flush_done, task.log_dir))

    def _flush_done(self, log_dir: str | None, _: Deferred[None]) -> None:
        self._flushing[log_dir] -= 1
        if not self._flushing[log_dir]:
            del self._flushing[log_dir]
        self._flush_if_wanted(_)

    def _flush_if_wanted(self, _: Deferred[None]) -> None:
        if any(each.flush_requests and each.path not in self._flushing for each in self.logs.directories):
            self.disk_work()

    def _flush_by(self, due_ms: int) -> None:
        """A log wants a flush by the monotonic time `due_ms`: because of flush.ms, or since one has failed."""
        if self._flush_timer is not None:
            if self._flush_due_ms <= due_ms:
                return
            self._flush_timer.cancel()
        if not self._stopped:
            self._flush_due_ms = due_ms
            delay_ms = max(due_ms - self.clock.monotonic_ms(), FLUSH_DELAY_MS_MIN)
            self._flush_timer = self.shell.after(delay_ms, self._flush_overdue)

    def _flush_overdue(self) -> None:
        self._flush_timer = None
        for task in self.logs.maintenance.overdue_flush_tasks(self.clock.monotonic_ms()):
            self.run_disk_task(task)
        next_ms = self.logs.maintenance.next_flush_ms()
        if next_ms is not None:
            self._flush_by(next_ms)

    def check_ahead(self, log: Log) -> None:
        """Has an I/O thread check what a consumer will want next, while it is sent what it asked for."""
        if log in self._checking_ahead or self._stopped:
            return
        self._checking_ahead.add(log)

        def checked(done: Deferred[None]) -> None:
            self._checking_ahead.discard(log)
            try:
                done.result()
            except OSError as error:
                # Whoever reads there meets it again, and judges the device.
                logger.info("not checked ahead: partition=%s error=%s", log.topic_partition, error)

        self.shell.in_pool(InDirectories((log.owner.path,), log.check_ahead)).on_complete(checked)

    def starts_durable(self) -> Deferred[None]:
        """Completes when the first offsets of all logs, as they are now, are written down: no crash moves one back.

        A directory that fails meanwhile is offline, which is for the caller to see.
        """
        durable: Deferred[None] = Deferred()
        self._awaiting_starts.append(durable)
        self._write_starts()
        return durable

    def _write_starts(self) -> None:
        """Writes the checkpoints for who waits for them; what is being written just now may be older."""
        if not self._awaiting_starts or self.logs.maintenance.is_checkpointing or self._starts_timer is not None:
            return
        waiting, self._awaiting_starts = self._awaiting_starts, []

        def again() -> None:
            self._starts_timer = None
            self._write_starts()

        def written(_: Deferred[list[None]]) -> None:
            if any(each.checkpoints_are_behind and each.failure is None for each in self.logs.directories):
                # Without descriptors or memory; nothing is durable yet.
                self._awaiting_starts = waiting + self._awaiting_starts
                self._starts_timer = self.shell.after(STARTS_RETRY_MS, again)
                return
            for durable in waiting:
                durable.complete(None)

        tasks = self.logs.maintenance.checkpoint_tasks(high_watermarks=False)
        gather([self.run_disk_task(task) for task in tasks]).on_complete(written)

    def tick(self) -> None:
        """Does what is due for the disk, and comes back when more is, not within a second."""
        if self._stopped:
            return
        now_ms = self.clock.monotonic_ms()
        for task in self.logs.maintenance.due_tasks(now_ms):
            self.run_disk_task(task)
        self.replicas.look_at_starts()
        self.repairs.look()
        delay_ms = max(self.logs.maintenance.next_due_ms() - self.clock.monotonic_ms(), DISK_TICK_MS_MIN)
        self._disk_timer = self.shell.after(delay_ms, self.tick)

    def replica_moved(self, replica: Replica) -> None:
        """Another log directory has the replica's log now."""
        log = self.logs.get(replica.topic_partition)
        assert log is not None
        self.replicas.log_moved(replica, log)
        if replica.leader is None and not log.is_offline:
            self.fetcher_manager.follow_again(replica)
        self.disk_work()

    def directory_failed(self) -> None:
        """A log directory went offline: whoever waits for its partitions is answered."""
        for replica in list(self.replicas):
            if replica.log.is_offline:
                self.replicas.disturbed(replica)
        self.fetcher_manager.directory_failed()

    def stop(self) -> None:
        """Begins nothing more; what runs on I/O threads is finished by the runtime."""
        self._stopped = True
        self.leadership.try_no_more()
        self.fetcher_manager.stop()
        self.cleaning.stop()
        self.moves.stop()
        self.repairs.stop()
        self.recopies.stop()
        self.scrubbing.stop()
        self.alter_partition_manager.stop()
        self.departures.stop()
        for timer in (self._disk_timer, self._flush_timer, self._starts_timer):
            if timer is not None:
                timer.cancel()


def outcome_of(task: DiskTask, running: Deferred[None]) -> OSError | None:
    """What `task.finish` is to be told once `task.run` has ended; anything that no disk raises is logged."""
    try:
        running.result()
    except Exception as error:
        log_unexpected(task, error)
        return as_os_error(error)
    return None
