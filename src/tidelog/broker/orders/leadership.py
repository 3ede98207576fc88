"""What the controller orders: lead, follow, stop, delete.

LeaderAndIsr and StopReplica come here; nothing else changes a leader. They are carried out one after the other, since
each may have to wait for the store (a new topic's settings) and for the disk (its files, made durable by one
sync a request). For a disk that hangs they wait for seconds at most.

    LeaderAndIsr: stale epochs refused -> settings read -> logs created, some in each turn -> synced -> lead or follow

StopReplica is carried out by `replica_stops`, in turn with the others.

What the disk refuses for a lack of descriptors or memory, or does not make durable in time, is tried again later:
`postponed_orders`.
"""

from __future__ import annotations

import functools
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Final, TypeVar

from tidelog.broker.cluster.metadata_cache import broker_ids
from tidelog.broker.deferred import Deferred
from tidelog.broker.orders.postponed_orders import Order, PostponedOrders
from tidelog.broker.orders.replica_stops import LOGS_PER_TURN, PARTITIONS_PER_TURN, ReplicaStops, one_by_one
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.replicas.replica_manager import ReplicaManager
from tidelog.broker.replicas.topic_settings import log_config
from tidelog.metadata.image import ConfigResource, ConfigResourceType
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import (
    NO_LEADER,
    ZERO_TOPIC_ID,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
    TopicPartition,
)
from tidelog.model.topics import invalid_topic_name_reason
from tidelog.replication.events import IsrCommitted
from tidelog.storage.errors import RefusedForNow, StorageError
from tidelog.store.errors import StoreError

if TYPE_CHECKING:
    from tidelog.broker.channels import Settings
    from tidelog.broker.cluster.metadata_cache import MetadataCache
    from tidelog.broker.cluster.replica_marks import ReplicaMarks
    from tidelog.broker.disk_scheduler import DiskScheduler
    from tidelog.broker.environment import BrokerEnvironment
    from tidelog.broker.following.replica_fetcher_manager import ReplicaFetcherManager
    from tidelog.broker.logs.directory_moves import Moves
    from tidelog.broker.orders.config_handler import ConfigHandler
    from tidelog.protocol import messages
    from tidelog.storage.log import Log
    from tidelog.storage.log_manager import LogManager

logger: Final = logging.getLogger(__name__)

T = TypeVar("T")


class Leadership:
    """Carries out the controller's orders on one node's replicas."""

    def __init__(
        self,
        environment: BrokerEnvironment,
        *,
        metadata: MetadataCache,
        settings: Settings,
        config_handler: ConfigHandler,
        logs: LogManager,
        replicas: ReplicaManager,
        fetcher_manager: ReplicaFetcherManager,
        moves: Moves,
        marks: ReplicaMarks,
        disk_scheduler: DiskScheduler,
        on_leadership_changed: Callable[[TopicPartition], object],
    ) -> None:
        """`on_leadership_changed` is called for each partition that this broker leads, or leads no more."""
        self._environment = environment
        self._broker_id = environment.broker_id
        self._config = environment.config
        self._shell = environment.shell
        self._metadata = metadata
        self._settings = settings
        self._config_handler = config_handler
        self._logs = logs
        self._replicas = replicas
        self._fetcher_manager = fetcher_manager
        self._moves = moves
        self._marks = marks
        self._disk_scheduler = disk_scheduler
        self._on_leadership_changed = on_leadership_changed
        self._waiting: deque[Callable[[], None]] = deque()
        self._busy = False
        self._postponed = PostponedOrders(environment.shell, lambda: self._in_order(self._try_postponed))
        self._stops = ReplicaStops(
            environment,
            metadata=metadata,
            logs=logs,
            replicas=replicas,
            fetcher_manager=fetcher_manager,
            marks=marks,
            disk_scheduler=disk_scheduler,
            postponed=self._postponed,
            on_leadership_changed=on_leadership_changed,
        )

    def try_no_more(self) -> None:
        """The node stops: what was refused for now is not tried again."""
        self._postponed.stop()

    # The queue.

    def _in_order(self, work: Callable[[], Deferred[T]]) -> Deferred[T]:
        """Runs `work` when all that came before is done."""
        outcome: Deferred[T] = Deferred()

        def start() -> None:
            self._busy = True
            try:
                working = work()
            except Exception as error:
                working = Deferred()
                working.fail(error)
            working.on_complete(finish)

        def finish(working: Deferred[T]) -> None:
            self._busy = False
            try:
                value = working.result()
            except Exception as error:
                outcome.fail(error)
            else:
                outcome.complete(value)
            if self._waiting and not self._busy:
                self._waiting.popleft()()

        if self._busy:
            self._waiting.append(start)
        else:
            start()
        return outcome

    def _check_epochs(self, controller_epoch: int, broker_epoch: int) -> None:
        """Refuses deposed controllers, and orders meant for an earlier life of this broker (KIP-380)."""
        self._metadata.check_controller_epoch(controller_epoch)
        if 0 <= broker_epoch < self._environment.broker_epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Broker epoch {broker_epoch} is of an earlier registration;"
                f" now it is {self._environment.broker_epoch}.",
            )

    # LeaderAndIsr.

    def lead_or_follow(self, request: messages.LeaderAndIsrRequest) -> Deferred[dict[TopicPartition, ErrorCode]]:
        """An outcome for each partition. KafkaError STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH for the whole."""
        return self._in_order(lambda: self._lead_or_follow(request))

    def _lead_or_follow(self, request: messages.LeaderAndIsrRequest) -> Deferred[dict[TopicPartition, ErrorCode]]:
        self._check_epochs(request.controller_epoch, request.broker_epoch)
        self._metadata.saw_controller(request.controller_id, request.controller_epoch)
        orders = []
        outcomes: dict[TopicPartition, ErrorCode] = {}
        for topic in request.topic_states:
            for state in topic.partition_states:
                topic_partition = TopicPartition(topic.topic_name, state.partition_index)
                order = Order(topic_partition, TopicId(topic.topic_id), state, request.broker_epoch)
                postponed = self._postponed.get(topic_partition)
                if postponed is not None and order.is_older_than(postponed):
                    outcomes[topic_partition] = ErrorCode.STALE_CONTROLLER_EPOCH
                    continue
                self._postponed.drop(topic_partition)
                deletion = self._postponed.deletion(topic_partition)
                if deletion is not None and deletion.topic_id in (None, order.topic_id):
                    # The replica is wanted again; what it has that its leader has not it will cut.
                    self._postponed.drop_deletion(topic_partition)
                orders.append(order)
        self._end_namesakes(orders, outcomes)
        replicas = self._replicas
        missing = dict.fromkeys(
            order.topic_partition.topic
            for order in orders
            if order.topic_partition in outcomes or replicas.get(order.topic_partition) is None
        )
        done: Deferred[dict[TopicPartition, ErrorCode]] = Deferred()

        def with_settings(settled: Deferred[dict[str, dict[str, str]]]) -> None:
            try:
                settings = settled.result()
                # From here on the node's own picture is asked, which changes are told to: logs are made in many turns,
                # and each gets the settings that hold when it comes to be.
                for topic in missing:
                    self._config_handler.settings_changed(
                        ConfigResource(ConfigResourceType.TOPIC, topic), settings.get(topic, {})
                    )
            except StoreError as error:
                # The controller repeats it until the store is back, or this broker gone.
                done.fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"The topics' settings cannot be read: {error}"))
            except Exception as error:
                # Not answered, it would hold up all orders behind it for ever.
                done.fail(error)
            else:
                self._carry_out(orders, outcomes, done)

        if missing:
            self._settings.of_topics(missing).on_complete(with_settings)
        else:
            with_settings(Deferred.of({}))
        return done

    def _end_namesakes(self, orders: Iterable[Order], outcomes: dict[TopicPartition, ErrorCode]) -> None:
        for order in orders:
            refused = self._spare_others(order, functools.partial(self._end_namesake, order))
            if refused is not None:
                outcomes[order.topic_partition] = refused

    def _end_namesake(self, order: Order) -> None:
        """Ends the replica of a deleted topic whose name another one has, of which a replica is to be made.

        This broker was away when the replica moved to others and the topic was deleted: it was told to stop nothing.
        The new topic was told of before; an order that contradicts what was told is refused (`_take_up`). So is one for
        a replica in sync that is not new: the store may be an old one, and the replica the one that clients write to.
        """
        topic_partition, topic_id = order.topic_partition, order.topic_id
        replica = self._replicas.get(topic_partition)
        topic = self._metadata.image.topics.get(topic_partition.topic)
        if replica is None or topic is None or topic.topic_id != topic_id:
            return
        if not order.state.is_new and self._broker_id in order.state.isr:
            return
        if ZERO_TOPIC_ID in (topic_id, replica.topic_id) or topic_id == replica.topic_id or replica.log.is_offline:
            return
        self._fetcher_manager.stop_following(topic_partition)
        self._replicas.remove(topic_partition)
        self._on_leadership_changed(topic_partition)

    def _carry_out(
        self,
        orders: list[Order],
        outcomes: dict[TopicPartition, ErrorCode],
        done: Deferred[dict[TopicPartition, ErrorCode]],
    ) -> None:
        """Creates what is missing, then leads or follows; completes `done` with `outcomes`, these orders' added."""

        def made() -> None:
            try:
                durable = self._disk_scheduler.folders_durable()
            except Exception as error:
                # Not answered, the order would hold up all orders behind it for ever.
                done.fail(error)
            else:
                # A sync that fails takes its directory offline, which `_take_up` sees, or is to be done again.
                durable.then(lambda _: self._unsynced()).on_complete(take_up)

        def take_up(settled: Deferred[set[str]]) -> None:
            try:
                unsynced = settled.result()
            except Exception as error:
                # The same, where a task of the disk's failed as nothing foresaw.
                done.fail(error)
                return
            wanted = deque(order for order in orders if order.topic_partition not in outcomes)
            one_by_one(
                self._shell,
                wanted,
                lambda order: (
                    order.topic_partition,
                    self._spare_others(order, lambda: self._take_up(order, unsynced)),
                ),
                outcomes,
                done,
                PARTITIONS_PER_TURN,
            )

        self._create_some(
            deque(order for order in orders if order.topic_partition not in outcomes), outcomes, done, made
        )

    def _unsynced(self) -> set[str]:
        """Folders of logs of which it is not durable that they are there, or that they are gone."""
        online = [each for each in self._logs.directories if each.failure is None]
        created = {folder for each in online for folder in each.created}
        # A start would find a log that is made anew and, in another directory, the one that was put away.
        return created | {f"{each.path}/{gone}" for each in online for gone in each.put_away}

    def _try_postponed(self) -> Deferred[dict[TopicPartition, ErrorCode]]:
        """Carries out what was refused for now; the settings of these topics have been read."""
        for deletion in self._postponed.take_deletions(self._environment.broker_epoch):
            self._stops.delete(deletion)
        orders = self._postponed.take(self._environment.broker_epoch)
        done: Deferred[dict[TopicPartition, ErrorCode]] = Deferred()

        def tried(working: Deferred[dict[TopicPartition, ErrorCode]]) -> None:
            try:
                working.result()
            except Exception as error:
                logger.exception("postponed orders not carried out")
                for order in orders:
                    self._postponed.add(order, error)
            self._postponed.tried()

        done.on_complete(tried)
        outcomes: dict[TopicPartition, ErrorCode] = {}
        self._end_namesakes(orders, outcomes)
        self._carry_out(orders, outcomes, done)
        return done

    def _postpone(self, order: Order, error: Exception | str) -> ErrorCode:
        """Keeps the order for later; returns what the controller is told, which leaves the replica as it is."""
        self._postponed.add(order, error)
        return ErrorCode.REPLICA_NOT_AVAILABLE

    def _spare_others(self, order: Order, work: Callable[[], T]) -> T | ErrorCode:
        """What `work` says of the order. An error that nothing foresaw is this partition's alone: it is tried again."""
        try:
            return work()
        except Exception as error:
            logger.exception("order not carried out: partition=%s", order.topic_partition)
            self._postponed.add(order, error)
            return ErrorCode.UNKNOWN_SERVER_ERROR

    def _create_some(
        self,
        orders: deque[Order],
        outcomes: dict[TopicPartition, ErrorCode],
        done: Deferred[dict[TopicPartition, ErrorCode]],
        then: Callable[[], None],
    ) -> None:
        """Creates missing logs, a few in each turn; then goes on with `then`, or fails `done`."""
        turn = LOGS_PER_TURN
        try:
            while orders:
                if not turn:
                    self._shell.soon(self._create_some, orders, outcomes, done, then)
                    return
                order = orders.popleft()
                if self._replicas.get(order.topic_partition) is not None:
                    continue
                turn -= 1
                refused = self._spare_others(order, functools.partial(self._create, order))
                if refused is not None:
                    outcomes[order.topic_partition] = refused
        except Exception as error:
            done.fail(error)
            return
        then()

    def _create(self, order: Order) -> ErrorCode | None:
        """Makes the replica and its log; returns why there is none."""
        topic_partition = order.topic_partition
        try:
            replica = Replica(self._log(topic_partition, order.topic_id, is_new=bool(order.state.is_new)))
            self._moves.resume(replica)
        except RefusedForNow as error:
            return self._postpone(order, error)
        except (KafkaError, StorageError) as error:
            logger.error("log not created: partition=%s error=%s", topic_partition, error)
            return error.code if isinstance(error, KafkaError) else ErrorCode.KAFKA_STORAGE_ERROR
        self._replicas.add(replica)
        return None

    def _log(self, topic_partition: TopicPartition, topic_id: TopicId, *, is_new: bool) -> Log:
        """The partition's log, found or made, with the settings of this moment."""
        reason = invalid_topic_name_reason(topic_partition.topic)
        if reason is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
        config = log_config(self._config, self._metadata.image.topic_config(topic_partition.topic))
        logs = self._logs
        found = logs.get(topic_partition)
        if found is not None and found.topic_id not in (None, topic_id):
            # No replica of this life: a deleted topic's, which a power cut brought back or whose disk was away.
            # Or the disk has not let it be deleted yet.
            if self._postponed.deletion(topic_partition) is not None:
                logs.delete(topic_partition)
                self._postponed.drop_deletion(topic_partition)
            elif topic_id != ZERO_TOPIC_ID:
                logger.warning(
                    "log of another topic put aside: partition=%s directory=%s", topic_partition, found.directory
                )
                logs.mark_stray(topic_partition)
            if logs.get(topic_partition) is None:
                self._marks.dropped(topic_partition)
        log = logs.create(topic_partition, None if topic_id == ZERO_TOPIC_ID else topic_id, config, is_new=is_new)
        logs.set_config(topic_partition, config)
        return log

    def _take_up(self, order: Order, unsynced: Collection[str]) -> ErrorCode:
        """Leads or follows as ordered, unless the order is old. `unsynced`: folders of logs that are not durable."""
        topic_partition, topic_id, state, _ = order
        replicas: ReplicaManager = self._replicas
        replica = replicas.get(topic_partition)
        if replica is None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if replica.log.is_offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if ZERO_TOPIC_ID not in (topic_id, replica.topic_id) and topic_id != replica.topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        epoch, partition_epoch = LeaderEpoch(state.leader_epoch), PartitionEpoch(state.partition_epoch)
        if epoch < replica.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if any(f"{each.path}/{topic_partition}" in unsynced for each in self._logs.directories):
            return self._postpone(order, "its folder is not durable yet")
        is_named = replica.topic_id == ZERO_TOPIC_ID != topic_id
        if is_named:
            try:
                self._logs.assign_topic_id(replica.log, topic_id)
            except RefusedForNow as error:
                return self._postpone(order, error)
            except KafkaError as error:
                return error.code
        isr = broker_ids(state.isr)
        if partition_epoch >= replica.partition_epoch:
            replica.is_being_added = self._broker_id in state.adding_replicas
        if epoch == replica.leader_epoch:
            # An ISR change; a follower goes on as it was.
            if partition_epoch > replica.partition_epoch:
                assigned, adding = broker_ids(state.replicas), broker_ids(state.adding_replicas)
                replicas.isr_committed(replica, IsrCommitted(isr, partition_epoch, assigned, adding))
            # Without its topic's id a replica cannot be fetched.
            return self._follow(replica, state) if is_named and state.leader != self._broker_id else ErrorCode.NONE
        before = replica.leader_epoch, replica.partition_epoch
        try:
            return self._change_leader(order, replica)
        except Exception:
            # Tried again, the order would else be taken for one that was carried out.
            replicas.resign(replica, NO_LEADER, *before)
            raise

    def _change_leader(self, order: Order, replica: Replica) -> ErrorCode:
        """Begins the leadership or followership of a new leader epoch."""
        topic_partition, _, state, _ = order
        epoch, partition_epoch = LeaderEpoch(state.leader_epoch), PartitionEpoch(state.partition_epoch)
        if state.leader == self._broker_id:
            logger.info(
                "leads: partition=%s leader_epoch=%d log_end=%d", topic_partition, epoch, replica.log.log_end_offset
            )
            self._fetcher_manager.stop_following(topic_partition)
            try:
                self._replicas.lead(
                    replica,
                    epoch,
                    partition_epoch,
                    broker_ids(state.isr),
                    broker_ids(state.replicas),
                    adding=broker_ids(state.adding_replicas),
                )
            except RefusedForNow as error:
                return self._postpone(order, error)
            except KafkaError as error:
                if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                    # Damaged records, which may be mended. Where no other replica can lead, no order would come again.
                    self._postponed.add(order, error)
                # Else an I/O thread has taken the directory offline since.
                return error.code
            self._on_leadership_changed(topic_partition)
        else:
            leader_id = BrokerId(state.leader)
            logger.info(
                "follows: partition=%s leader=%d leader_epoch=%d log_end=%d",
                topic_partition,
                leader_id,
                epoch,
                replica.log.log_end_offset,
            )
            self._replicas.resign(replica, leader_id, epoch, partition_epoch)
            self._on_leadership_changed(topic_partition)
            return self._follow(replica, state)
        return ErrorCode.NONE

    def _follow(self, replica: Replica, state: messages.LeaderAndIsrRequest.LeaderAndIsrPartitionState) -> ErrorCode:
        leader_id, epoch = BrokerId(state.leader), LeaderEpoch(state.leader_epoch)
        try:
            self._fetcher_manager.follow(replica, leader_id, epoch, is_in_sync=self._broker_id in state.isr)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    # StopReplica.

    def stop(self, request: messages.StopReplicaRequest) -> Deferred[dict[TopicPartition, ErrorCode]]:
        """An outcome for each partition. KafkaError STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH for the whole."""
        return self._in_order(lambda: self._stop(request))

    def _stop(self, request: messages.StopReplicaRequest) -> Deferred[dict[TopicPartition, ErrorCode]]:
        self._check_epochs(request.controller_epoch, request.broker_epoch)
        self._metadata.saw_controller(request.controller_id, request.controller_epoch)
        return self._stops.stop(request)

    def put_aside_unassigned(self) -> None:
        """Ends the replicas that moved to other brokers while this one was not told, and puts their logs aside.

        To be called when the metadata are known to be complete. Nothing is deleted: the order to do so is the
        controller's, and it may have been given by one whose store was out of date.
        """
        self._in_order(self._put_aside_unassigned)

    def _put_aside_unassigned(self) -> Deferred[None]:
        self._stops.put_aside_unassigned()
        return Deferred.of(None)
