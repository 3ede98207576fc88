"""Following: every partition that this broker follows, and the fetchers that copy them from their leaders.

    LeaderAndIsr --> follow --> PartitionFollower --> LeaderFetcher of that leader --> Fetch, answers --> Log

There is one fetcher for each leader broker, as with num.replica.fetchers=1, which is all there is: a fetcher is no
thread here, and a second connection between the same two loops would carry nothing more.

What a followership wants done is carried out here, where the log is; what goes over the wire is the fetcher's.
Partitions don't wait for one another: one that rests, waits for a flush, or is being truncated is left out of the
requests until it is ready.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.following.leader_fetcher import Followed, LeaderFetcher
from tidelog.broker.shell import Purpose
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ZERO_TOPIC_ID,
    BrokerId,
    LeaderEpoch,
    Offset,
    TopicPartition,
)
from tidelog.protocol import messages
from tidelog.replication.events import Flushed, FlushPolicyChanged, HighWatermarkAdvanced
from tidelog.replication.follower import PartitionFollower
from tidelog.replication.follower_events import (
    LeaderRange,
    LogStartAdvanced,
    LogStartDurable,
    NewBeginning,
    RangeUnknown,
    RangeWanted,
    RecordsAppended,
    RecordsRefused,
    RecordsWanted,
    Resting,
    RestOver,
    Stopped,
    Truncated,
    TruncationWanted,
)

if TYPE_CHECKING:
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.disk_scheduler import DiskScheduler
    from tidelog.broker.environment import BrokerEnvironment
    from tidelog.broker.fetches.replication_throttles import ReplicationThrottles
    from tidelog.broker.replicas.purgatory import Purgatory
    from tidelog.broker.replicas.replica import Replica
    from tidelog.ports.disk import Bytes
    from tidelog.replication.follower_events import FollowerEffect, FollowerEvent

logger: Final = logging.getLogger(__name__)

LIST_OFFSETS_VERSION: Final = 8


class ReplicaFetcherManager:
    """All that this broker follows."""

    def __init__(
        self,
        environment: BrokerEnvironment,
        *,
        purgatory: Purgatory,
        throttles: ReplicationThrottles,
        disk_scheduler: DiskScheduler,
    ) -> None:
        """`purgatory` is where consumers wait for records, which may be here (KIP-392)."""
        self._environment = environment
        self._broker_id = environment.broker_id
        self._config = environment.config
        self._clock = environment.clock
        self._shell = environment.shell
        self._purgatory = purgatory
        self._throttles = throttles
        self._disk_scheduler = disk_scheduler
        self._by_leader: dict[BrokerId, LeaderFetcher] = {}
        self._followed: dict[TopicPartition, Followed] = {}
        self._awaiting_flush: dict[TopicPartition, Followed] = {}
        self._awaiting_truncation: dict[TopicPartition, Followed] = {}
        self._stopped = False
        self.lossy_truncations = 0
        """Truncations below the high watermark since the start: each one lost what was said to be committed."""

    def __len__(self) -> int:
        """Partitions that are followed."""
        return len(self._followed)

    def followed(self) -> list[Followed]:
        """Every partition that is followed."""
        return list(self._followed.values())

    def get(self, topic_partition: TopicPartition) -> Followed | None:
        """How a partition is followed; None when it is not."""
        return self._followed.get(topic_partition)

    # What the controller orders.

    def follow(
        self, replica: Replica, leader_id: BrokerId, leader_epoch: LeaderEpoch, *, is_in_sync: bool = False
    ) -> None:
        """Follows `leader_id` from now on; whatever an earlier leader still answers is dropped.

        `is_in_sync`: the order says that this broker is in the ISR, where acks=all waits for it: no throttle is for it.

        KafkaError KAFKA_STORAGE_ERROR when the log's directory has failed.
        """
        former = self._followed.get(replica.topic_partition)
        self.stop_following(replica.topic_partition)
        if self._stopped or leader_id < 0:
            return
        if replica.topic_id == ZERO_TOPIC_ID:
            # The controller asks for the topic's id, and orders again when it knows it.
            logger.info("not followed for now: partition=%s reason=no topic id", replica.topic_partition)
            return
        log = replica.log
        log.begin_following()
        if replica.known_high_watermark < log.log_start_offset:
            replica.known_high_watermark = log.log_start_offset
        flush_first = log.config.flush_messages == 1
        follower = PartitionFollower(
            leader_id=leader_id,
            leader_epoch=leader_epoch,
            epochs=log.epochs,
            log_start=log.log_start_offset,
            log_end=log.log_end_offset,
            flushed_end=log.flushed_offset,
            high_watermark=Offset(min(replica.known_high_watermark, log.log_end_offset)),
            flush_before_fetch=flush_first,
            rest_ms_max=self._config.replica_fetch_backoff_ms,
            is_in_sync=is_in_sync,
        )
        if former is not None and former.replica is replica and former.follower.has_untold_start:
            follower.reported_log_start = former.follower.reported_log_start
        fetcher = self._by_leader.get(leader_id)
        if fetcher is None:
            fetcher = self._by_leader[leader_id] = LeaderFetcher(
                self._environment, self._throttles, leader_id, self.step
            )
        followed = self._followed[replica.topic_partition] = Followed(replica, follower, fetcher)
        if log.truncation_is_pending:
            # An earlier followership has cut the log; nothing is appended before that is durable.
            self._truncating(followed)
        self._want_flush(followed)
        fetcher.add(followed)

    def stop_following(self, topic_partition: TopicPartition) -> None:
        """The partition is led here, or taken away, or has no leader. Idempotent."""
        followed = self._followed.pop(topic_partition, None)
        if followed is None:
            return
        self._awaiting_flush.pop(topic_partition, None)
        self._awaiting_truncation.pop(topic_partition, None)
        self._leave(followed)

    def follow_again(self, replica: Replica) -> None:
        """The replica has another log, which equals the one that was followed with; nothing where it is not followed.

        KafkaError KAFKA_STORAGE_ERROR when the log's directory has failed.
        """
        followed = self._followed.get(replica.topic_partition)
        if followed is not None:
            follower = followed.follower
            self.follow(replica, follower.leader_id, follower.leader_epoch, is_in_sync=follower.has_all_committed)

    def begin_anew(self, topic_partition: TopicPartition, leader_id: BrokerId | None) -> bool:
        """Gives up the whole log of a partition that is followed from `leader_id`, which has to be fetched again.

        False where another leader is followed, or the log is being cut already. KafkaError KAFKA_STORAGE_ERROR when the
        log's directory has failed.
        """
        followed = self._followed.get(topic_partition)
        if followed is None or followed.follower.leader_id != leader_id or followed.cut is not None:
            return False
        if followed.replica.log.truncation_is_pending:
            return False
        # Anew: what the leader has answered by then is for the log as it was.
        self.follow(followed.replica, followed.follower.leader_id, followed.follower.leader_epoch)
        followed = self._followed[topic_partition]
        self._begin_anew(followed, followed.replica.log.log_start_offset, "it is damaged")
        return True

    def _leave(self, followed: Followed) -> None:
        if followed.rest is not None:
            followed.rest.cancel()
            followed.rest = None
        fetcher = followed.fetcher
        fetcher.remove(followed)
        if fetcher.is_idle and self._by_leader.get(fetcher.leader_id) is fetcher:
            del self._by_leader[fetcher.leader_id]
            fetcher.stop()

    def stop(self) -> None:
        """Fetches no more."""
        self._stopped = True
        for fetcher in self._by_leader.values():
            fetcher.stop()
        for followed in self._followed.values():
            if followed.rest is not None:
                followed.rest.cancel()

    # What happens around.

    def config_changed(self, replica: Replica) -> None:
        """The log's settings were replaced."""
        followed = self._followed.get(replica.topic_partition)
        if followed is not None:
            self.step(followed, FlushPolicyChanged(replica.log.config.flush_messages == 1))
            self._want_flush(followed)

    def flushed(self) -> None:
        """Some task of the disk has finished: tells those that waited for a flush or for a truncation."""
        for followed in list(self._awaiting_flush.values()):
            log = followed.replica.log
            if log.flushed_offset > followed.follower.flushed_end or log.is_offline:
                del self._awaiting_flush[followed.replica.topic_partition]
                self.step(followed, Flushed(log.flushed_offset))
                self._want_flush(followed)
        for followed in list(self._awaiting_truncation.values()):
            log = followed.replica.log
            if not log.truncation_is_pending and not log.is_offline:
                self._truncation_goes_on(followed)

    def throttles_changed(self) -> None:
        """Other partitions are throttled than before, or the rate is another: what is held back is looked at anew."""
        for fetcher in self._by_leader.values():
            fetcher.release()

    def directory_failed(self) -> None:
        """A log directory went offline: its partitions are not fetched any more."""
        for followed in list(self._followed.values()):
            if followed.replica.log.is_offline:
                self.stop_following(followed.replica.topic_partition)

    # What a followership wants done.

    def step(self, followed: Followed, event: FollowerEvent, records: Bytes | None = None) -> None:
        """Hands an event to a followership and carries out what follows; `records` are those of an `Answered`."""
        self._carry_out(followed, followed.follower.step(event), records)
        followed.fetcher.look_at(followed)

    def _carry_out(self, followed: Followed, effects: list[FollowerEffect], records: Bytes | None = None) -> None:
        replica = followed.replica
        for effect in effects:
            match effect:
                case RecordsWanted():
                    assert records is not None
                    self._append(followed, records)
                case HighWatermarkAdvanced(offset):
                    followed.complaint = ErrorCode.NONE
                    replica.known_high_watermark = offset
                    replica.log.update_high_watermark(offset)
                    # Consumers of this rack may wait here (KIP-392).
                    self._purgatory.check_soon(replica)
                case LogStartAdvanced(offset):
                    self._advance_start(followed, offset)
                case TruncationWanted(offset, committed):
                    self._truncate(followed, offset, committed)
                case NewBeginning(offset):
                    self._begin_anew(followed, offset)
                case RangeWanted():
                    self._ask_for_range(followed)
                case Resting(delay_ms, error):
                    self._complain(followed, error)
                    # The leader is asked anew afterwards, from the same position too: its session may have no reason
                    # to look at the partition again.
                    followed.told = None
                    followed.rest = self._shell.after(delay_ms, self._rested, followed)
                case Stopped(error):
                    self._complain(followed, error)

    def _append(self, followed: Followed, records: Bytes) -> None:
        replica = followed.replica
        log = replica.log
        try:
            info = log.append_as_follower(records, leader_epoch=followed.follower.leader_epoch)
        except KafkaError as error:
            if error.code is not followed.complaint:
                logger.error(
                    "records refused: partition=%s leader=%d offset=%d error=%s",
                    replica.topic_partition,
                    followed.follower.leader_id,
                    log.log_end_offset,
                    error,
                )
                followed.complaint = error.code
            self._carry_out(followed, followed.follower.step(RecordsRefused(error.code)))
            return
        replica.traffic.replication_bytes_in += len(records)
        if replica.is_being_added:
            replica.traffic.reassignment_bytes_in += len(records)
        if info.records_count:
            followed.complaint = ErrorCode.NONE
        self._carry_out(followed, followed.follower.step(RecordsAppended(log.log_end_offset, log.log_start_offset)))
        self._want_flush(followed)
        if info.rolled or log.is_flush_due:
            self._disk_scheduler.wake()

    def _want_flush(self, followed: Followed) -> None:
        """With flush.messages=1 what is not flushed is not reported to the leader: sees to it that it is flushed."""
        follower = followed.follower
        if follower.flush_before_fetch and follower.flushed_end < follower.log_end:
            log = followed.replica.log
            if log.flushed_offset > follower.flushed_end:
                follower.step(Flushed(log.flushed_offset))
            if follower.flushed_end < follower.log_end and not log.is_offline:
                self._awaiting_flush[followed.replica.topic_partition] = followed
                log.want_flush()
                self._disk_scheduler.wake()

    def _advance_start(self, followed: Followed, offset: Offset) -> None:
        replica = followed.replica
        try:
            replica.log.advance_start(offset)
        except KafkaError as error:
            logger.error("log start not advanced: partition=%s error=%s", replica.topic_partition, error)
            return

        def durable(_: Deferred[None]) -> None:
            present = self._followed.get(replica.topic_partition)
            if present is not None and present.replica is replica and not replica.log.is_offline:
                self.step(present, LogStartDurable(offset))

        # The leader answers DeleteRecords when it learns of this: no crash may bring the records back then.
        self._disk_scheduler.starts_durable([replica.log.owner.path]).on_complete(durable)

    def _rested(self, followed: Followed) -> None:
        followed.rest = None
        self.step(followed, RestOver())

    def _complain(self, followed: Followed, error: ErrorCode) -> None:
        """Says what keeps a partition from being followed, once."""
        if error is followed.complaint:
            return
        followed.complaint = error
        at_a_change_of_leaders = error in (
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_ID,
        )
        logger.log(
            logging.INFO if at_a_change_of_leaders else logging.WARNING,
            "not fetched for now: partition=%s leader=%d leader_epoch=%d offset=%d reason=%s",
            followed.replica.topic_partition,
            followed.follower.leader_id,
            followed.follower.leader_epoch,
            followed.follower.log_end,
            error.name,
        )

    # Truncation.

    def _truncate(self, followed: Followed, offset: Offset, committed: int) -> None:
        replica = followed.replica
        if committed:
            self.lossy_truncations += 1
            logger.error(
                "truncation below the high watermark: partition=%s to=%d high_watermark=%d log_end=%d leader=%d "
                "leader_epoch=%d: the leader does not have what was committed here, as after an unclean election or "
                "when several brokers lost their power at once",
                replica.topic_partition,
                offset,
                replica.known_high_watermark,
                replica.log.log_end_offset,
                followed.follower.leader_id,
                followed.follower.leader_epoch,
            )
        else:
            logger.info(
                "truncated: partition=%s to=%d log_end=%d leader_epoch=%d",
                replica.topic_partition,
                offset,
                replica.log.log_end_offset,
                followed.follower.leader_epoch,
            )
        replica.note_truncation(offset, self._clock.monotonic_ms())
        followed.cut = functools.partial(replica.log.truncate_to, offset)
        self._announce_truncation(followed, offset)

    def _begin_anew(
        self, followed: Followed, offset: Offset, why: str = "the leader's log begins above it, or it was empty"
    ) -> None:
        replica = followed.replica
        logger.warning(
            "log begins anew: partition=%s at=%d, was %d to %d: %s",
            replica.topic_partition,
            offset,
            replica.log.log_start_offset,
            replica.log.log_end_offset,
            why,
        )
        followed.cut = functools.partial(replica.log.truncate_fully, offset)
        self._announce_truncation(followed, replica.log.log_start_offset)

    def _announce_truncation(self, followed: Followed, offset: Offset) -> None:
        try:
            followed.replica.log.announce_truncation(offset)
        except KafkaError as error:
            self._carry_out(followed, followed.follower.step(RecordsRefused(error.code)))
        else:
            self._truncating(followed)

    def _truncation_goes_on(self, followed: Followed) -> None:
        """What was announced may be cut; what was cut will not come back."""
        replica = followed.replica
        log, cut = replica.log, followed.cut
        if cut is not None:
            try:
                cut()
            except KafkaError as error:
                # It may have come half-way: nothing is fetched before it is done. A directory that failed ends that.
                replica.known_high_watermark = min(replica.known_high_watermark, log.log_end_offset)
                self._complain(followed, error.code)
                if followed.rest is None and not log.is_offline:
                    delay_ms = self._config.replica_fetch_backoff_ms
                    followed.rest = self._shell.after(delay_ms, self._cut_again, followed)
                return
            followed.cut = None
            if followed.rest is not None:
                followed.rest.cancel()
                followed.rest = None
            replica.known_high_watermark = log.high_watermark
        if log.truncation_is_pending:
            self._disk_scheduler.wake()
            return
        del self._awaiting_truncation[replica.topic_partition]
        self.step(followed, Truncated(log.log_end_offset, log.log_start_offset))

    def _cut_again(self, followed: Followed) -> None:
        followed.rest = None
        replica = followed.replica
        if self._awaiting_truncation.get(replica.topic_partition) is followed and not replica.log.truncation_is_pending:
            self._truncation_goes_on(followed)

    def _truncating(self, followed: Followed) -> None:
        """Waits for the disk."""
        followed.follower.begin_truncation()
        self._awaiting_truncation[followed.replica.topic_partition] = followed
        self._disk_scheduler.wake()

    # What the leader has.

    def _ask_for_range(self, followed: Followed) -> None:
        """Two questions, since one names a partition only once; the answers come in the order asked."""
        ends: list[Offset] = []

        def answered(timestamp: int, settled: Deferred[Any]) -> None:
            if self._followed.get(followed.replica.topic_partition) is not followed:
                return
            try:
                ends.append(_offset_in(settled.result()))
            except (OSError, KafkaError) as error:
                code = error.code if isinstance(error, KafkaError) else ErrorCode.NETWORK_EXCEPTION
                self.step(followed, RangeUnknown(code))
                return
            if timestamp == EARLIEST_TIMESTAMP:
                ask(LATEST_TIMESTAMP)
            else:
                self.step(followed, LeaderRange(ends[0], ends[1]))

        def ask(timestamp: int) -> None:
            follower = followed.follower
            request = _list_offsets(self._broker_id, followed.replica.topic_partition, follower.leader_epoch, timestamp)
            timeout_ms = self._config.replica_socket_timeout_ms
            answer = self._shell.ask(follower.leader_id, Purpose.FETCH, request, LIST_OFFSETS_VERSION, timeout_ms)
            answer.on_complete(lambda settled: answered(timestamp, settled))

        ask(EARLIEST_TIMESTAMP)


def _list_offsets(
    broker_id: BrokerId, topic_partition: TopicPartition, leader_epoch: LeaderEpoch, timestamp: int
) -> messages.ListOffsetsRequest:
    return messages.ListOffsetsRequest(
        replica_id=broker_id,
        topics=[
            messages.ListOffsetsRequest.ListOffsetsTopic(
                name=topic_partition.topic,
                partitions=[
                    messages.ListOffsetsRequest.ListOffsetsPartition(
                        partition_index=topic_partition.partition,
                        current_leader_epoch=leader_epoch,
                        timestamp=timestamp,
                    )
                ],
            )
        ],
    )


def _offset_in(response: messages.ListOffsetsResponse) -> Offset:
    """The only partition's offset; KafkaError where there is an error, or no partition."""
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code:
                raise KafkaError(ErrorCode(partition.error_code))
            if partition.offset >= 0:
                return Offset(partition.offset)
    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The leader's answer names no offset.")
