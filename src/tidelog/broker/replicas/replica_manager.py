"""The partitions on this broker: which it leads, how they are appended to and read, and requests that wait for them.

    Produce ------------> append --> Log.append --+                                     +--> producers: waits
    a follower's Fetch ----> follower_fetched ----+--> PartitionLeader.step --> effects +--> consumers: purgatory
    LeaderAndIsr, answers of the controller ------+                                     +--> followers: watchers
                                                                                        +--> the controller: on_proposal

Leadership comes from the controller only, by LeaderAndIsr and StopReplica (`leadership`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tidelog.broker.deferred import Deferred
from tidelog.broker.replicas.delayed_commit import DelayedCommit
from tidelog.broker.replicas.delayed_produce import ACKS_ALL
from tidelog.broker.replicas.refusals import Refusals, note_before, refused_batch
from tidelog.broker.replicas.replica import Replica, check_leader_epoch
from tidelog.metrics.traffic import TrafficByTopic
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import (
    NO_LEADER_EPOCH,
    ZERO_TOPIC_ID,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    TopicPartition,
)
from tidelog.replication.events import (
    Appended,
    Effect,
    Flushed,
    FlushPolicyChanged,
    FlushWanted,
    FollowerFetched,
    FollowerLeft,
    HighWatermarkAdvanced,
    IsrCommitted,
    IsrProposed,
    LagCheckDue,
    LiveBrokersChanged,
    MinIsrChanged,
    ProposalCommitted,
    ProposalRefused,
)
from tidelog.replication.leader import PartitionLeader
from tidelog.storage.producer_state import AppendOrigin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tidelog.broker.replicas.purgatory import Purgatory
    from tidelog.broker.shell import Shell
    from tidelog.ports.clock import Clock
    from tidelog.ports.disk import Bytes
    from tidelog.storage.log import AppendInfo, Log
    from tidelog.storage.verification import VerificationGuard

logger: Final = logging.getLogger(__name__)


class ReplicaManager:
    """All replicas of this broker."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        clock: Clock,
        purgatory: Purgatory,
        shell: Shell,
        on_disk_work: Callable[[], None],
        is_live: Callable[[BrokerId], bool],
        lag_ms_max: int,
        on_proposal: Callable[[Replica, IsrProposed], None],
        on_followers: Callable[[], None],
    ) -> None:
        """`on_disk_work` is called when logs have something to flush; `is_live`: whether a broker is, as far as known.

        `lag_ms_max`: replica.lag.time.max.ms. `on_proposal` brings a leader's proposal to the controller;
        `on_followers` is called when a partition that has followers is led, so that `check_lag` is from time to time.
        """
        self._shell = shell
        self._on_proposal = on_proposal
        self._on_followers = on_followers
        self.broker_id = broker_id
        self._is_live = is_live
        self._lag_ms_max = lag_ms_max
        self._clock = clock
        self._purgatory = purgatory
        self._on_disk_work = on_disk_work
        self._awaiting_flush: dict[Replica, None] = {}
        """Replicas whose leader waits for a flush of its log."""
        self._by_topic: dict[str, dict[int, Replica]] = {}
        self.traffic = TrafficByTopic()
        """What has gone through the topics that are here, for metrics."""
        self.isr_shrinks = self.isr_expands = 0
        """How often an ISR of a partition led here has become smaller, and larger, since the start."""
        self.by_wire_name: dict[bytes, dict[int, Replica]] = {}
        """[topic's name or id, as they stand in a request][partition] -> replica"""
        self.refusals_before: dict[TopicPartition, Refusals] = {}
        """Of partitions whose replicas are not there yet."""

    def __iter__(self) -> Iterator[Replica]:
        for replicas in self._by_topic.values():
            yield from replicas.values()

    def __len__(self) -> int:
        return sum(map(len, self._by_topic.values()))

    def get(self, topic_partition: TopicPartition) -> Replica | None:
        """The replica on this broker, led by it or not; None when there is none."""
        replicas = self._by_topic.get(topic_partition[0])
        return None if replicas is None else replicas.get(topic_partition[1])

    def find(self, topic: str, partition: int) -> Replica | None:
        """As `get`, where there is no `TopicPartition` yet."""
        replicas = self._by_topic.get(topic)
        return None if replicas is None else replicas.get(partition)

    def of_topic(self, topic: str) -> Iterable[Replica]:
        """This broker's replicas of a topic."""
        return self._by_topic.get(topic, {}).values()

    def leader(self, topic_partition: TopicPartition, current_leader_epoch: int = NO_LEADER_EPOCH) -> Replica:
        """The replica, which this broker leads.

        KafkaError NOT_LEADER_OR_FOLLOWER; KAFKA_STORAGE_ERROR when its directory has failed; or, where the client knows
        another epoch than `current_leader_epoch` (KIP-320), FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH.
        """
        replica = self.get(topic_partition)
        if replica is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"This broker holds no replica of {topic_partition}.")
        if replica.log.is_offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log directory of {topic_partition} has failed.")
        check_leader_epoch(replica, current_leader_epoch)
        if replica.leader is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"This broker does not lead {topic_partition}.")
        return replica

    def add(self, replica: Replica) -> None:
        """A new replica, created or loaded."""
        replica.traffic = self.traffic.of(replica.topic_partition.topic)
        replica.refusals = self.refusals_before.pop(replica.topic_partition, None)
        topic, partition = replica.topic_partition
        replicas = self._by_topic.setdefault(topic, {})
        replicas[partition] = replica
        self.by_wire_name[topic.encode()] = replicas
        if replica.topic_id != ZERO_TOPIC_ID:
            # A mapping of its own: an earlier topic of that name has another id.
            self.by_wire_name.setdefault(replica.topic_id, {})[partition] = replica

    def remove(self, topic_partition: TopicPartition) -> Replica | None:
        """Forgets a replica; requests that wait for it are answered."""
        replicas = self._by_topic.get(topic_partition[0], {})
        replica = replicas.pop(topic_partition[1], None)
        if replica is None:
            return None
        replica.removed = True
        replica.end_leadership()
        if not replicas:
            del self._by_topic[topic_partition[0]]
            self.traffic.forget(topic_partition[0])
            del self.by_wire_name[topic_partition[0].encode()]
        by_id = self.by_wire_name.get(replica.topic_id)
        if by_id is not None:
            by_id.pop(topic_partition[1], None)
            if not by_id:
                del self.by_wire_name[replica.topic_id]
        self.disturbed(replica)
        return replica

    # Leadership.

    def lead(
        self,
        replica: Replica,
        leader_epoch: LeaderEpoch,
        partition_epoch: PartitionEpoch,
        isr: tuple[BrokerId, ...],
        replicas: tuple[BrokerId, ...] = (),
        *,
        adding: tuple[BrokerId, ...] = (),
    ) -> None:
        """Begins a leadership: the epoch starts at the log end. KafkaError when the log's directory has failed."""
        log = replica.log
        log.assign_epoch(leader_epoch)
        replica.leader_id = self.broker_id
        replica.leader_epoch = leader_epoch
        replica.partition_epoch = partition_epoch
        now_ms = self._clock.monotonic_ms()
        leader = replica.leader = PartitionLeader(
            broker_id=self.broker_id,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            replicas=replicas or isr,
            adding=adding,
            isr=isr,
            log_end=Offset(log.log_end_offset),
            flushed_end=Offset(log.flushed_offset),
            # Of an earlier epoch too, if this broker has led until now.
            high_watermark=Offset(max(replica.high_watermark, log.log_start_offset)),
            flush_before_acknowledge=log.config.flush_messages == 1,
            min_insync_replicas=log.config.min_insync_replicas,
            lag_ms_max=self._lag_ms_max,
            is_live=self._is_live,
            now_ms=now_ms,
        )
        log.update_high_watermark(leader.high_watermark)
        self._carry_out(replica, leader.begin(now_ms))
        if leader.followers:
            self._on_followers()
        self.disturbed(replica)

    def resign(
        self, replica: Replica, leader_id: BrokerId, leader_epoch: LeaderEpoch, partition_epoch: PartitionEpoch
    ) -> None:
        """Another broker leads, or none (-1)."""
        replica.end_leadership()
        replica.leader_id = leader_id
        replica.leader_epoch = leader_epoch
        replica.partition_epoch = partition_epoch
        self.disturbed(replica)

    def log_moved(self, replica: Replica, log: Log) -> None:
        """`log`, in another directory, has taken the place of the replica's: it equals it, and is flushed."""
        # Coordinators that are being asked do not know of it.
        log.producers.verifications = {**log.producers.verifications, **replica.log.producers.verifications}
        replica.log = log
        if replica.leader is not None and not log.is_offline:
            event = Flushed(Offset(log.flushed_offset))
            self._carry_out(replica, replica.leader.step(self._clock.monotonic_ms(), event))
            if replica.delayed_appends is not None:
                replica.delayed_appends.flushed(replica.leader.flushed_end)
        self.disturbed(replica)

    def disturbed(self, replica: Replica) -> None:
        """Its leadership, its directory or its settings have changed: requests that wait for it look again."""
        # Appends first, whatever goes wrong with the others: of one that still waits when this broker leads again, the
        # records may be cut by then.
        if replica.delayed_appends is not None:
            replica.delayed_appends.try_complete_all()
        self._purgatory.check(replica)
        for watcher in replica.watchers:
            watcher.mark(urgent=True)

    def isr_committed(self, replica: Replica, event: IsrCommitted) -> None:
        """The ISR changed within a leadership."""
        replica.partition_epoch = event.partition_epoch
        if replica.leader is not None:
            self._isr_step(replica, replica.leader, event)

    def proposal_answered(self, replica: Replica, event: ProposalCommitted | ProposalRefused) -> None:
        """The controller's answer to what a leader proposed."""
        if replica.leader is not None:
            self._isr_step(replica, replica.leader, event)

    def _isr_step(
        self, replica: Replica, leader: PartitionLeader, event: IsrCommitted | ProposalCommitted | ProposalRefused
    ) -> None:
        before = leader.isr
        effects = leader.step(self._clock.monotonic_ms(), event)
        replica.partition_epoch = leader.partition_epoch
        if leader.isr != before:
            self.isr_shrinks += not set(before) <= set(leader.isr)
            self.isr_expands += not set(leader.isr) <= set(before)
            logger.info(
                "isr: partition=%s isr=%s before=%s leader_epoch=%d partition_epoch=%d high_watermark=%d log_end=%d",
                replica.topic_partition,
                list(leader.isr),
                list(before),
                leader.leader_epoch,
                leader.partition_epoch,
                leader.high_watermark,
                leader.log_end,
            )
        self._carry_out(replica, effects)
        self._purgatory.check(replica)
        for watcher in replica.watchers:
            watcher.look_again()

    def check_lag(self) -> None:
        """Half of replica.lag.time.max.ms has passed: followers that lag are proposed to leave the ISR."""
        now_ms = self._clock.monotonic_ms()
        for replica in list(self):
            leader = replica.leader
            # No follower can fetch from a leader whose directory has failed: it does not lag.
            if leader is not None and leader.followers and not replica.log.is_offline:
                self._carry_out(replica, leader.step(now_ms, LagCheckDue()))

    def live_brokers_changed(self) -> None:
        """Stop waiting for dead brokers."""
        now_ms = self._clock.monotonic_ms()
        for replica in list(self):
            leader = replica.leader
            if leader is not None and leader.followers:
                effects = leader.step(now_ms, LiveBrokersChanged())
                if effects:
                    self._carry_out(replica, effects)
                # DeleteRecords waits for live followers only.
                self._purgatory.check(replica)

    # Followers.

    def follower_fetched(self, replica: Replica, event: FollowerFetched, now_ms: int) -> None:
        """A follower's fetch of a partition led here was read. `now_ms`: when it came."""
        leader = replica.leader
        if leader is not None:
            effects = leader.step(now_ms, event)
            if effects:
                self._carry_out(replica, effects)

    def unfollowed(self, replica: Replica, event: FollowerLeft) -> None:
        """A follower's session does not have the partition any more."""
        if replica.leader is not None:
            replica.leader.step(self._clock.monotonic_ms(), event)

    def low_watermark(self, replica: Replica) -> Offset:
        """Where this leader and all its live or in-sync followers begin: what DeleteRecords waits for."""
        own = replica.log.log_start_offset
        others = None if replica.leader is None else replica.leader.low_watermark
        return own if others is None else min(own, others)

    def start_advanced(self, replica: Replica) -> None:
        """The log of a partition begins later than before: its followers are to know."""
        for watcher in replica.watchers:
            watcher.mark(urgent=False)

    def look_at_starts(self) -> None:
        """Retention may have moved the first offsets of logs."""
        for replica in self:
            start = replica.log.log_start_offset
            for watcher in replica.watchers:
                if 0 <= watcher.log_start_offset < start:
                    watcher.mark(urgent=False)

    # Records.

    def append(
        self,
        replica: Replica,
        data: Bytes,
        *,
        required_acks: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Appends batches to a partition that this broker leads; `data` is not kept.

        `guard` and `transaction_version` are those of `Log.append`.

        With `required_acks` -1 it is refused (NOT_ENOUGH_REPLICAS) while fewer than min.insync.replicas are in sync;
        behind a batch that was refused lately (`Refusals`) it is refused like that one.
        Raises whatever else `Log.append` refuses. Whether the append is acknowledged yet, `acknowledged` says.
        """
        leader = replica.leader
        if leader is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"This broker does not lead {replica.topic_partition}.")
        log, traffic = replica.log, replica.traffic
        traffic.produces += 1
        if required_acks == ACKS_ALL and not leader.has_enough_replicas:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR {list(leader.isr)} is insufficient to satisfy the min.isr requirement of "
                f"{leader.effective_min_isr} for partition {replica.topic_partition}",
            )
        if replica.refusals is not None:
            replica.check_refusals(data, self._clock.monotonic_ms())
        info = log.append(
            data,
            leader_epoch=leader.leader_epoch,
            now_ms=self._clock.wall_ms(),
            origin=origin,
            guard=guard,
            transaction_version=transaction_version,
        )
        if not info.duplicate:
            self.appended(replica, leader, len(data), info)
        return info

    def appended(self, replica: Replica, leader: PartitionLeader, size: int, info: AppendInfo) -> None:
        """`size` bytes of batches have gone into the log of a partition: counts them, and carries out what follows."""
        log, traffic = replica.log, replica.traffic
        traffic.bytes_in += size
        traffic.messages_in += info.last_offset - info.first_offset + 1
        effects = leader.step(self._clock.monotonic_ms(), Appended(Offset(log.log_end_offset)))
        if effects:
            self._carry_out(replica, effects)
        if replica.watchers and not leader.flush_before_acknowledge:
            self._wake_followers(replica)
        if info.rolled or log.log_end_offset - log.flushed_offset >= log.config.flush_messages:
            self._on_disk_work()

    def note_refusal(self, topic_partition: TopicPartition, data: Bytes, code: ErrorCode, now_ms: int) -> None:
        """A producer's batch was refused with `code`: those behind it in flight are to be refused, too (`Refusals`)."""
        batch = refused_batch(data, code)
        if batch is None:
            return
        replica = self.get(topic_partition)
        if replica is not None:
            replica.note_refusal(*batch, code, now_ms)
        else:
            note_before(self.refusals_before, topic_partition, batch, code, now_ms)

    def acknowledged(self, replica: Replica, last_offset: int, required_acks: int) -> bool:
        """Whether an append up to `last_offset` has what `required_acks` asks for."""
        leader = replica.leader
        if leader is None:
            return False
        if required_acks == ACKS_ALL:
            return leader.high_watermark > last_offset
        return not leader.flush_before_acknowledge or leader.flushed_end > last_offset

    def append_and_wait(
        self,
        topic_partition: TopicPartition,
        data: Bytes,
        timeout_ms: int,
        *,
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> Deferred[AppendInfo]:
        """Appends a coordinator's batch; completes when it is committed. `guard` and so on: of `append`.

        Fails with KafkaError: those of `leader` and `append`, NOT_LEADER_OR_FOLLOWER when leadership is lost
        meanwhile, KAFKA_STORAGE_ERROR when the log's directory fails, REQUEST_TIMED_OUT.
        """
        outcome: Deferred[AppendInfo] = Deferred()
        try:
            replica = self.leader(topic_partition)
            info = self.append(
                replica,
                data,
                required_acks=ACKS_ALL,
                origin=AppendOrigin.COORDINATOR,
                guard=guard,
                transaction_version=transaction_version,
            )
        except KafkaError as error:
            outcome.fail(error)
            return outcome
        if self.acknowledged(replica, info.last_offset, ACKS_ALL):
            outcome.complete(info)
        else:
            wait = DelayedCommit(replica, info, outcome)
            replica.delayed().add(wait, ACKS_ALL)
            wait.timer = self._shell.after(timeout_ms, wait.expire)
        return outcome

    def config_changed(self, replica: Replica) -> None:
        """The log's settings were replaced."""
        leader = replica.leader
        if leader is not None:
            now_ms = self._clock.monotonic_ms()
            config = replica.log.config
            self._carry_out(replica, leader.step(now_ms, FlushPolicyChanged(config.flush_messages == 1)))
            self._carry_out(replica, leader.step(now_ms, MinIsrChanged(config.min_insync_replicas)))
            # A produce that waited for a flush may not have to any more.
            self.disturbed(replica)

    # Effects.

    def _carry_out(self, replica: Replica, effects: list[Effect]) -> None:
        for effect in effects:
            if type(effect) is HighWatermarkAdvanced:
                replica.log.update_high_watermark(effect.offset)
                if replica.delayed_appends is not None:
                    replica.delayed_appends.committed(effect.offset)
                self._purgatory.check_soon(replica)
                for watcher in replica.watchers:
                    watcher.mark(urgent=False)
            elif type(effect) is FlushWanted:
                self._awaiting_flush[replica] = None
                self._on_disk_work()
            elif type(effect) is IsrProposed:
                logger.info(
                    "isr proposed: partition=%s isr=%s before=%s high_watermark=%d log_end=%d",
                    replica.topic_partition,
                    [member.broker_id for member in effect.isr],
                    None if replica.leader is None else list(replica.leader.isr),
                    replica.high_watermark,
                    replica.log.log_end_offset,
                )
                self._on_proposal(replica, effect)
            else:
                # A follower's log begins later: a DeleteRecords request may have waited for that.
                self._purgatory.check(replica)

    @staticmethod
    def _wake_followers(replica: Replica) -> None:
        for watcher in replica.watchers:
            watcher.mark(urgent=True)

    def flushed(self) -> None:
        """Some flush has finished: tells the leaders that waited for one how far their logs are durable."""
        for replica in list(self._awaiting_flush):
            leader = replica.leader
            if leader is None or replica.log.is_offline:
                del self._awaiting_flush[replica]
                self.disturbed(replica)
            elif replica.log.flushed_offset > leader.flushed_end:
                del self._awaiting_flush[replica]
                event = Flushed(Offset(replica.log.flushed_offset))
                self._carry_out(replica, leader.step(self._clock.monotonic_ms(), event))
                if replica.delayed_appends is not None:
                    replica.delayed_appends.flushed(leader.flushed_end)
                self._wake_followers(replica)


def diverging_epoch(log: Log, fetch_offset: int, last_fetched_epoch: int) -> tuple[LeaderEpoch, Offset] | None:
    """Where the fetcher's log and `log` part: the largest common epoch and its end here; None: nowhere.

    The fetcher sends the leader epoch of its last record before `fetch_offset` (KIP-595). KafkaError
    OFFSET_OUT_OF_RANGE when that cannot be told, or the offset lies before the log.
    """
    epoch, end_offset = log.end_offset_for_epoch(last_fetched_epoch)
    if epoch < 0 or end_offset < 0:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Nothing is known of epoch {last_fetched_epoch} of {log.topic_partition}, or of earlier ones.",
        )
    if fetch_offset < log.log_start_offset:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Offset {fetch_offset} of {log.topic_partition} lies before the first one, {log.log_start_offset}.",
        )
    if epoch < last_fetched_epoch or end_offset < fetch_offset:
        return epoch, end_offset
    return None
