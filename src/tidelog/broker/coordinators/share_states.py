"""The share coordinator of this broker: a `ShareCoordinator` for each partition of `__share_group_state` that it leads.

The topic is not compacted: a state is a snapshot and the updates since. From time to time all states are written anew,
and what lies before is deleted, so that a new coordinator has little to read.

The coordinator deletes the state of a deleted topic (`ForgetTopics`). It misses a deletion that comes while the
partition of the state has no leader, or before the next leader has begun. So it looks, from time to time, for stored
topics that this broker does not know, and deletes their state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.coordinators.internal_topic import InternalTopic
from tidelog.broker.coordinators.service import CoordinatorService
from tidelog.broker.deferred import Deferred
from tidelog.coordinator.share_state.coordinator import ShareCoordinator
from tidelog.coordinator.share_state.events import ForgetTopics, SnapshotAll
from tidelog.coordinator.state_machine import Remaining
from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import TopicId, TopicPartition
from tidelog.model.topics import SHARE_GROUP_STATE_TOPIC
from tidelog.records.batch import Codec

if TYPE_CHECKING:
    from tidelog.broker.channels import ControllerChannel
    from tidelog.broker.cluster.metadata_cache import MetadataCache
    from tidelog.broker.disk_scheduler import DiskScheduler
    from tidelog.broker.environment import BrokerEnvironment
    from tidelog.broker.replicas.replica import Replica
    from tidelog.broker.replicas.replica_manager import ReplicaManager
    from tidelog.config.broker_config import BrokerConfig
    from tidelog.replication.leader import PartitionLeader

PRUNE_RECORDS_MIN: Final = 10_000
"""Records of a partition of the topic that are not worth being pruned."""


class ShareStates(CoordinatorService[ShareCoordinator]):
    """All share partitions whose state this broker keeps."""

    def __init__(
        self,
        environment: BrokerEnvironment,
        *,
        metadata: MetadataCache,
        replicas: ReplicaManager,
        controller: ControllerChannel,
        disk_scheduler: DiskScheduler,
    ) -> None:
        updates = environment.config.share_coordinator_snapshot_update_records_per_snapshot
        super().__init__(
            environment,
            metadata=metadata,
            replicas=replicas,
            controller=controller,
            topic=_topic(environment.config),
            make=lambda: ShareCoordinator(updates),
        )
        self._metadata = metadata
        self._replicas = replicas
        self._disk_scheduler = disk_scheduler
        self._unknown: frozenset[TopicId] = frozenset()
        """Topics of which something is stored, and of which this broker knew nothing when it looked last."""

    def start(self) -> None:
        """Begins to prune, every share.coordinator.state.topic.prune.interval.ms."""
        self._shell.after(self._config.share_coordinator_state_topic_prune_interval_ms, self._prune_all)

    def _prune_all(self) -> None:
        self._shell.after(self._config.share_coordinator_state_topic_prune_interval_ms, self._prune_all)
        self._forget_unknown()
        for partition in self.shards.led_partitions():
            replica = self._replicas.get(TopicPartition(SHARE_GROUP_STATE_TOPIC, partition))
            if replica is None or replica.leader is None:
                continue
            if replica.high_watermark - replica.log.log_start_offset >= PRUNE_RECORDS_MIN:
                self._prune(partition, replica, replica.leader, replica.log.log_end_offset, None)

    def _forget_unknown(self) -> None:
        """Deletes what is stored of topics that were unknown the last time, too: a new topic is known by then.

        Nothing as long as this broker was not told all topics: one that the controller cannot read is not deleted.
        """
        if not self._metadata.is_whole:
            return
        stored = {key.topic_id for shard in self.shards.loaded() for key in shard.machine.states}
        unknown = frozenset(each for each in stored if self._metadata.topic_name(each) is None)
        gone, self._unknown = unknown & self._unknown, unknown
        if gone:
            self.shards.tell_all(ForgetTopics(gone))

    def _prune(self, partition: int, replica: Replica, leader: PartitionLeader, end_offset: int, rest: object) -> None:
        """Has states written anew, a part at a time, then deletes what is below `end_offset`: all in one leadership, or
        other records may be there, and what was written anew be gone."""
        wall_ms = self._clock.wall_ms()

        def look(outcome: Deferred[Remaining]) -> None:
            try:
                remaining = outcome.result()
            except KafkaError:
                # The coordinator has moved: the next one prunes.
                return
            if replica.leader is not leader:
                return
            if remaining.rest:
                self._shell.soon(self._prune, partition, replica, leader, end_offset, remaining.rest)
            elif not replica.log.is_offline and end_offset <= replica.high_watermark:
                self._drop_when_flushed(replica, leader, end_offset)

        asked = self.shards.ask_partition(partition, lambda request_id: SnapshotAll(request_id, wall_ms, rest))
        asked.on_complete(look)

    def _drop_when_flushed(self, replica: Replica, leader: PartitionLeader, offset: int) -> None:
        """Deletes what is below `offset` once all that was written anew behind it is durable: a power cut that takes
        that must not find the rest deleted. Where a flush has to wait, or is refused, the next pruning does it."""
        log, end = replica.log, replica.log.log_end_offset
        try:
            flush = log.flush_task()
        except KafkaError:
            return

        def flushed(_: object) -> None:
            if replica.leader is leader and not log.is_offline and log.flushed_offset >= end:
                log.announce_start(offset)
                durable = self._disk_scheduler.starts_durable([log.owner.path])
                durable.on_complete(lambda _: self._drop(replica, leader, offset))

        (Deferred.of(None) if flush is None else self._disk_scheduler.run(flush)).on_complete(flushed)

    def _drop(self, replica: Replica, leader: PartitionLeader, offset: int) -> None:
        if replica.leader is leader and not replica.log.is_offline and replica.log.advance_start(offset):
            self._replicas.start_advanced(replica)


def _topic(config: BrokerConfig) -> InternalTopic:
    factor_is_set = config.is_set("share.coordinator.state.topic.replication.factor")
    return InternalTopic(
        SHARE_GROUP_STATE_TOPIC,
        partitions=config.share_coordinator_state_topic_num_partitions,
        replication_factor=config.share_coordinator_state_topic_replication_factor if factor_is_set else None,
        configs=[
            ("cleanup.policy", "delete"),
            ("retention.ms", "-1"),
            ("compression.type", "producer"),
            ("min.insync.replicas", str(config.share_coordinator_state_topic_min_isr)),
            ("segment.bytes", str(config.share_coordinator_state_topic_segment_bytes)),
        ],
        codec=Codec(config.share_coordinator_state_topic_compression_codec),
        commit_timeout_ms=config.share_coordinator_write_timeout_ms,
        load_buffer_size=config.share_coordinator_load_buffer_size,
    )
