"""StopReplica: replicas that are to stop, and their logs to be deleted. Replicas that moved away untold.

    StopReplica: stale epochs refused -> replicas resigned or removed, logs deleted, some in each turn -> made durable

What the disk refuses for a lack of descriptors or memory is deleted later: `postponed_orders`. `leadership` has one
order follow the other.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final, TypeVar

from tidelog.broker.deferred import Deferred
from tidelog.broker.orders.postponed_orders import Deletion
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import BrokerId, TopicPartition
from tidelog.storage.errors import RefusedForNow
from tidelog.storage.log_directory import directory_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.broker.cluster.metadata_cache import MetadataCache
    from tidelog.broker.cluster.replica_marks import ReplicaMarks
    from tidelog.broker.disk_scheduler import DiskScheduler
    from tidelog.broker.environment import BrokerEnvironment
    from tidelog.broker.following.replica_fetcher_manager import ReplicaFetcherManager
    from tidelog.broker.orders.postponed_orders import PostponedOrders
    from tidelog.broker.replicas.replica_manager import ReplicaManager
    from tidelog.broker.shell import Shell
    from tidelog.protocol import messages
    from tidelog.storage.log_directory import LogDirectory
    from tidelog.storage.log_manager import LogManager

logger: Final = logging.getLogger(__name__)

T = TypeVar("T")

LOGS_PER_TURN: Final = 16
"""Logs created, or renamed to be deleted, before clients have their turn: some milliseconds."""
PARTITIONS_PER_TURN: Final = 128
"""Partitions taken up, or stopped, before clients have their turn: some milliseconds too."""


class ReplicaStops:
    """Ends one node's replicas. `Leadership` calls it, in the order of the controller's requests."""

    def __init__(
        self,
        environment: BrokerEnvironment,
        *,
        metadata: MetadataCache,
        logs: LogManager,
        replicas: ReplicaManager,
        fetcher_manager: ReplicaFetcherManager,
        marks: ReplicaMarks,
        disk_scheduler: DiskScheduler,
        postponed: PostponedOrders,
        on_leadership_changed: Callable[[TopicPartition], object],
    ) -> None:
        """`postponed` has the orders that wait; the rest as for `Leadership`."""
        self._broker_id = environment.broker_id
        self._shell = environment.shell
        self._metadata = metadata
        self._logs = logs
        self._replicas = replicas
        self._fetcher_manager = fetcher_manager
        self._marks = marks
        self._disk_scheduler = disk_scheduler
        self._postponed = postponed
        self._on_leadership_changed = on_leadership_changed

    def stop(self, request: messages.StopReplicaRequest) -> Deferred[dict[TopicPartition, ErrorCode]]:
        """An outcome for each partition."""
        orders = deque(
            (TopicPartition(topic.topic_name, state.partition_index), state)
            for topic in request.topic_states
            for state in topic.partition_states
        )

        deleted: dict[TopicPartition, LogDirectory] = {}

        def stop_one(
            order: tuple[TopicPartition, messages.StopReplicaRequest.StopReplicaPartitionState],
        ) -> tuple[TopicPartition, ErrorCode]:
            topic_partition, state = order
            log = self._logs.get(topic_partition)
            if state.delete_partition and log is not None:
                deleted[topic_partition] = directory_of(log)
            try:
                outcome = self._stop_one(
                    topic_partition, state.leader_epoch, request.broker_epoch, delete=state.delete_partition
                )
            except Exception:
                # It must not keep the others from being stopped; the controller asks again for what is to be deleted.
                logger.exception("replica not stopped: partition=%s", topic_partition)
                outcome = ErrorCode.UNKNOWN_SERVER_ERROR
            return topic_partition, outcome

        done: Deferred[dict[TopicPartition, ErrorCode]] = Deferred()
        deletes = any(state.delete_partition for _, state in orders)
        one_by_one(self._shell, orders, stop_one, {}, done, LOGS_PER_TURN if deletes else PARTITIONS_PER_TURN)
        return done.and_then(lambda outcomes: self._made_durable(outcomes, deleted)) if deletes else done

    def _made_durable(
        self, outcomes: dict[TopicPartition, ErrorCode], deleted: Mapping[TopicPartition, LogDirectory]
    ) -> Deferred[dict[TopicPartition, ErrorCode]]:
        """The outcomes, once no power cut brings back what was deleted: the controller forgets topics that are gone."""

        def told(_: object) -> dict[TopicPartition, ErrorCode]:
            online = [each for each in self._logs.directories if each.failure is None]
            unsynced = {gone for each in online for gone in (*each.put_away, *each.dropped_copies)}
            for topic_partition, outcome in outcomes.items():
                directory = deleted.get(topic_partition)
                if outcome is ErrorCode.NONE and directory is not None and directory.failure is not None:
                    outcomes[topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
                elif outcome is ErrorCode.NONE and topic_partition in unsynced:
                    outcomes[topic_partition] = ErrorCode.REPLICA_NOT_AVAILABLE
            return outcomes

        return self._disk_scheduler.folders_durable(list(deleted.values())).then(told)

    def put_aside_unassigned(self) -> None:
        """As `Leadership.put_aside_unassigned`."""
        self._postponed.drop_unassigned(self._metadata.image, self._broker_id)
        for log in list(self._logs.logs()):
            topic = self._metadata.image.topics.get(log.topic_partition.topic)
            image = None if topic is None else topic.partitions.get(log.topic_partition.partition)
            if topic is None or image is None or self._broker_id in image.replicas:
                continue
            if self._postponed.deletion(log.topic_partition) is not None:
                continue
            if log.topic_id not in (None, topic.topic_id):
                continue  # Of one without an id the disk failed as the log was made; it is put aside like the others.
            logger.warning(
                "log put aside, its partition has moved: partition=%s replicas=%s directory=%s",
                log.topic_partition,
                list(image.replicas),
                log.directory,
            )
            try:
                self._put_aside(log.topic_partition)
            except KafkaError as error:
                logger.error("log not put aside: partition=%s error=%s", log.topic_partition, error)
            except Exception:
                # A fault of this broker, with one log: the others are still to be put aside.
                logger.exception("log not put aside: partition=%s", log.topic_partition)
        self._disk_scheduler.wake()

    def _put_aside(self, topic_partition: TopicPartition) -> None:
        if self._replicas.get(topic_partition) is not None:
            self._fetcher_manager.stop_following(topic_partition)
            self._replicas.remove(topic_partition)
            self._on_leadership_changed(topic_partition)
        self._logs.mark_stray(topic_partition)
        self._marks.dropped(topic_partition)

    def _stop_one(
        self, topic_partition: TopicPartition, leader_epoch: int, broker_epoch: int, *, delete: bool
    ) -> ErrorCode:
        replicas = self._replicas
        replica = replicas.get(topic_partition)
        # -2 stands for a topic that is being deleted, -1 for a sender that knows no epoch: both are always current.
        if replica is not None and 0 <= leader_epoch < replica.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        postponed = self._postponed.get(topic_partition)
        if postponed is not None and 0 <= leader_epoch < postponed.state.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        self._postponed.drop(topic_partition)
        if replica is not None:
            self._fetcher_manager.stop_following(topic_partition)
            if not delete:
                replicas.resign(replica, BrokerId(-1), replica.leader_epoch, replica.partition_epoch)
            else:
                replicas.remove(topic_partition)
            self._on_leadership_changed(topic_partition)
        if not delete:
            return ErrorCode.NONE
        log = self._logs.get(topic_partition)
        return self.delete(Deletion(topic_partition, None if log is None else log.topic_id, broker_epoch))

    def delete(self, deletion: Deletion) -> ErrorCode:
        """Deletes the log that the order names, if this broker has it: at once, or later where the disk refuses."""
        topic_partition = deletion.topic_partition
        try:
            if self._logs.delete(topic_partition):
                self._marks.dropped(topic_partition)
                self._disk_scheduler.wake()
            elif self._logs.absent.may_be_offline(topic_partition):
                logger.error("log not deleted: partition=%s error=its log directory may be offline", topic_partition)
                return ErrorCode.KAFKA_STORAGE_ERROR
        except RefusedForNow as error:
            self._postponed.add_deletion(deletion, error)
            return ErrorCode.REPLICA_NOT_AVAILABLE
        except KafkaError as error:
            logger.error("log not deleted: partition=%s error=%s", topic_partition, error)
            return error.code
        except Exception as error:
            # A fault of this broker, with one log: the controller hears of it, and the log is deleted later.
            logger.exception("log not deleted: partition=%s", topic_partition)
            self._postponed.add_deletion(deletion, error)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        self._postponed.drop_deletion(topic_partition)
        return ErrorCode.NONE


def one_by_one(
    shell: Shell,
    waiting: deque[T],
    carry_out: Callable[[T], tuple[TopicPartition, ErrorCode]],
    outcomes: dict[TopicPartition, ErrorCode],
    done: Deferred[dict[TopicPartition, ErrorCode]],
    per_turn: int,
) -> None:
    """Carries out what waits, `per_turn` of it in each turn; completes `done` with all outcomes, or fails it."""
    try:
        for _ in range(min(len(waiting), per_turn)):
            topic_partition, outcome = carry_out(waiting.popleft())
            outcomes[topic_partition] = outcome
    except Exception as error:
        # Not answered, the order would hold up all orders behind it for ever.
        done.fail(error)
        return
    if waiting:
        shell.soon(one_by_one, shell, waiting, carry_out, outcomes, done, per_turn)
    else:
        done.complete(outcomes)
