"""Fetches by followers: what the leader reads for them, what it learns from them, and when they are answered.

For each partition of a request, in this order:

    read the log, up to its (flushed) end -> take note of the follower's log end -> move the high watermark -> answer

The log ends are learnt when the request comes, also if it is then to wait; the high watermark in the answer is that of
the answer's time. A request for which there are no records waits for replica.fetch.wait.max.ms at most. It is answered
as soon as there are records (once in a turn of the loop, so that the appends of a turn share an answer), within
`WATERMARK_DELAY_MS` when only a high watermark has moved, and at once when its follower sends the next one, which the
server would otherwise keep waiting (`Deferred.hurry`).

While the leader's throttle is exceeded, a follower outside the ISR gets no records of throttled partitions, the others
go on; a request that has nothing else to give is looked at again when the rate allows more (KIP-73).

Refused: a broker that is not assigned, one with an outdated or a too new leader epoch, an earlier life of a follower
(KIP-903), and a request that claims this broker's own id.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from tidelog.broker.deferred import Deferred
from tidelog.broker.fetches.fetch_partitions import failed, replica_of, topic_of
from tidelog.broker.fetches.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, TOPIC_IDS_SINCE
from tidelog.broker.fetches.replica_reading import Reading, discard, read_these
from tidelog.broker.replicas.replica import check_leader_epoch
from tidelog.broker.replicas.replica_manager import diverging_epoch
from tidelog.broker.shell import InDirectories
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import BrokerEpoch, BrokerId, Offset
from tidelog.protocol import messages
from tidelog.replication.events import FollowerFetched, FollowerLeft
from tidelog.storage.errors import WouldBlock

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.cluster.metadata_cache import MetadataCache
    from tidelog.broker.context import RequestContext
    from tidelog.broker.environment import BrokerEnvironment
    from tidelog.broker.fetches.cold_reads import ColdReads
    from tidelog.broker.fetches.replica_sessions import FollowedPartition, ReplicaSession, ReplicaSessions
    from tidelog.broker.fetches.replication_throttles import ReplicationThrottles
    from tidelog.broker.replicas.replica import Replica
    from tidelog.broker.replicas.replica_manager import ReplicaManager
    from tidelog.broker.shell import Timer
    from tidelog.storage.log import ReadResult
    from tidelog.storage.log_manager import LogManager

WATERMARK_DELAY_MS: Final = 50
"""How long a follower may go without the news of a high watermark, when there is nothing else to tell."""
_UNKNOWN: Final = -1
_DIVERGING_EPOCH_SINCE: Final = 12


class ReplicaFetches:
    """The fetches of followers, and what it takes to answer them."""

    def __init__(
        self,
        environment: BrokerEnvironment,
        *,
        metadata: MetadataCache,
        logs: LogManager,
        replicas: ReplicaManager,
        sessions: ReplicaSessions,
        throttles: ReplicationThrottles,
        cold_reads: ColdReads,
        on_rot: Callable[[], object],
    ) -> None:
        """`on_rot` is called when a read has met rot, which is to be repaired."""
        self.broker_id = environment.broker_id
        self.config = environment.config
        self.clock = environment.clock
        self.shell = environment.shell
        self.metadata = metadata
        self.logs = logs
        self.replicas = replicas
        self.sessions = sessions
        self.throttles = throttles
        self.cold_reads = cold_reads
        self.on_rot = on_rot

    def handle(
        self, context: RequestContext, request: messages.FetchRequest, follower: BrokerId, broker_epoch: BrokerEpoch
    ) -> messages.FetchResponse | Deferred[messages.FetchResponse]:
        """Fetch of a broker that says it is `follower`, registered with `broker_epoch` (-1: it does not say).

        That it may be one was asked before (`require_broker`).
        """
        if follower == self.broker_id:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Broker {follower} is this one, and fetches nothing from itself."
            )
        session, dropped = self.sessions.begin(
            request, context.api_version, follower, broker_epoch, context.received_ms
        )
        for partition in dropped:
            _leave(self.replicas, partition)
        fetch = _ReplicaFetch(self, context, request, session)
        fetch.begin()
        return fetch.answer.result() if fetch.answer.done else fetch.answer


class _ReplicaFetch:
    """One request, until it is answered."""

    __slots__ = (
        "_bytes_max",
        "_bytes_min",
        "_cold",
        "_context",
        "_delay",
        "_fetches",
        "_held_back",
        "_is_full",
        "_is_woken",
        "_request",
        "_session",
        "_timer",
        "answer",
    )

    def __init__(
        self,
        fetches: ReplicaFetches,
        context: RequestContext,
        request: messages.FetchRequest,
        session: ReplicaSession,
    ) -> None:
        self._fetches = fetches
        self._context = context
        self._request = request
        self._session = session
        self._bytes_max = min(request.max_bytes, fetches.config.fetch_max_bytes)
        self._bytes_min = min(request.min_bytes, self._bytes_max)
        self._is_full = request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH)
        """Whether the answer names every partition, news or not."""
        self._timer: Timer | None = None
        self._delay: Timer | None = None
        """Set while news that are not urgent wait."""
        self._held_back = False
        """Whether the throttle kept records from the follower when it was last looked."""
        self._is_woken = False
        """Whether the loop's next turn will look for records."""
        self._cold = False
        """Whether an I/O thread reads, and will answer."""
        self.answer: Deferred[messages.FetchResponse] = Deferred()

    def begin(self) -> None:
        """Reads and learns; answers, or waits."""
        self._session.missed_news = False
        try:
            readings = self._look(learn=True)
        except BaseException:
            self._abandon()
            raise
        if readings is None:
            return
        if self._is_enough(readings) or self._request.max_wait_ms <= 0 or not self._session.partitions:
            self._complete(readings)
            return
        discard(readings)
        previous = self._session.waiting
        if isinstance(previous, _ReplicaFetch):
            # On another connection: the follower has given that one up.
            previous._complete([])
        self._session.waiting = self
        shell = self._fetches.shell
        self._timer = shell.after(self._request.max_wait_ms, self._answer_now)
        if any(reading.differs for reading in readings):
            self._delay = shell.after(WATERMARK_DELAY_MS, self._answer_now)
        if self._session.missed_news:
            # What was learnt has let a waiting append go on, in a partition that was looked at before.
            self.has_news(urgent=True)
        self._await_throttle()
        self.answer.on_abandoned = self._abandon
        self.answer.on_hurried = self._answer_now

    # What may end the wait.

    def has_news(self, *, urgent: bool) -> None:
        if self._cold:
            return
        if not urgent:
            if self._delay is None:
                self._delay = self._fetches.shell.after(WATERMARK_DELAY_MS, self._answer_now)
        elif not self._is_woken:
            self._is_woken = True
            self._fetches.shell.soon(self._try)

    def _try(self) -> None:
        self._is_woken = False
        if self.answer.done or self._cold or self._session.waiting is not self:
            return
        readings = self._look(learn=False)
        if readings is None:
            return
        if self._is_enough(readings):
            self._complete(readings)
        else:
            discard(readings)
            self._await_throttle()

    def _await_throttle(self) -> None:
        """Looks again when the throttle allows what it has held back; unless the answer is only not full enough."""
        throttles = self._fetches.throttles
        if self._held_back and throttles.leader.is_exceeded(self._fetches.clock.monotonic_ms()):
            throttles.waiting_fetches.add(self)

    @property
    def turn_ms(self) -> int:
        """When the throttle last let records through to this session."""
        return self._session.throttle_turn_ms

    def throttle_allows(self) -> None:
        """The throttle holds nothing back for now."""
        self._try()

    def _answer_now(self) -> None:
        """With what there is."""
        if self.answer.done or self._cold:
            return
        readings = self._look(learn=False)
        if readings is not None:
            self._complete(readings)

    def _abandon(self) -> None:
        self._stop_waiting()
        if self._session.id == NO_SESSION:
            self._close_session()

    def _stop_waiting(self) -> None:
        if self._held_back:
            self._fetches.throttles.waiting_fetches.remove(self)
        if self._session.waiting is self:
            self._session.waiting = None
        for timer in (self._timer, self._delay):
            if timer is not None:
                timer.cancel()
        self._timer = self._delay = None  # They point back at this fetch.

    def _close_session(self) -> None:
        for partition in self._fetches.sessions.close(self._session):
            _leave(self._fetches.replicas, partition)

    # Reading.

    def _look(self, *, learn: bool) -> list[Reading] | None:
        """Reads the partitions with news, or all for a full answer; None when an I/O thread goes on and answers."""
        partitions = self._to_look_at()
        readings: list[Reading] = []
        cold: list[Reading] = []
        remaining = self._bytes_max
        nothing_yet = True
        quota = self._fetches.throttles.leader
        portion = 0
        if quota.throttles_any and not quota.is_exceeded(self._fetches.clock.monotonic_ms()):
            portion = quota.portion
        self._held_back = False
        try:
            for partition in partitions:
                reading = Reading(partition)
                readings.append(reading)
                try:
                    self._check(reading)
                    reading.is_behind = quota.throttles_any and self._is_behind(reading)
                    if self._compare(reading) and (remaining or nothing_yet):
                        if not reading.is_behind:
                            reading.read(remaining, nothing_yet)
                        elif portion:
                            reading.bytes_max = min(reading.bytes_max, portion)
                            reading.read(remaining, nothing_yet)
                            portion = max(0, portion - reading.size)
                        elif partition.fetch_offset < reading.limit:
                            self._held_back = True
                    if learn:
                        self._learn(reading)
                except WouldBlock:
                    cold.append(reading)
                    nothing_yet = False
                    if reading.is_behind:
                        portion = max(0, portion - reading.bytes_max)
                    if learn:
                        self._learn(reading)
                except KafkaError as error:
                    reading.leader = None
                    reading.data = self._failure(partition, error)
                if reading.size:
                    nothing_yet = False
                    remaining = max(0, remaining - reading.size)
        except BaseException:
            discard(readings)
            raise
        return None if cold and self._read_cold(readings, cold, remaining) else readings

    def _to_look_at(self) -> list[FollowedPartition]:
        """Those with news, but for what the request before was answered with: this one may have crossed that answer."""
        session = self._session
        if self._is_full:
            return list(session.partitions.values())
        just_sent = session.requests - 1
        return [partition for partition in session.news if not 0 < just_sent == partition.sent_in]

    def _check(self, reading: Reading) -> None:
        """Finds the leader's replica; KafkaError where the follower may not read from it."""
        partition, session = reading.partition, self._session
        replica = self._replica(partition)
        if replica.log.is_offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        check_leader_epoch(replica, partition.current_leader_epoch)
        leader = replica.leader
        if leader is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        leader.check_fetch(
            session.follower, session.broker_epoch, knows_epoch=partition.current_leader_epoch != _UNKNOWN
        )
        reading.replica, reading.leader, reading.limit = replica, leader, leader.reported_log_end

    def _is_behind(self, reading: Reading) -> bool:
        assert reading.leader is not None
        return self._session.follower not in reading.leader.isr and self._is_throttled(reading)

    def _is_throttled(self, reading: Reading) -> bool:
        assert reading.replica is not None
        topic, partition = reading.replica.topic_partition
        return self._fetches.throttles.leader.is_throttled(topic, partition)

    def _replica(self, partition: FollowedPartition) -> Replica:
        replica = partition.replica
        if replica is not None and not replica.removed:
            return replica
        partition.unwatch()
        fetches = self._fetches
        replica = replica_of(fetches.metadata, fetches.replicas, topic_of(fetches.metadata, partition), partition)
        partition.watch(replica)
        return replica

    def _compare(self, reading: Reading) -> bool:
        """Whether the follower's log is a part of ours, as far as it goes; if not, `data` says where they part.

        KafkaError OFFSET_OUT_OF_RANGE. Asked of every partition, also where the answer has no room for records: what
        is learnt of a follower rests on it.
        """
        partition, replica = reading.partition, reading.replica
        assert replica is not None
        log = replica.log
        if partition.last_fetched_epoch >= 0 and self._context.api_version >= _DIVERGING_EPOCH_SINCE:
            diverging = diverging_epoch(log, partition.fetch_offset, partition.last_fetched_epoch)
            if diverging is not None:
                reading.data = reading.new_data()
                reading.data.diverging_epoch.epoch, reading.data.diverging_epoch.end_offset = diverging
                return False
        if not log.log_start_offset <= partition.fetch_offset <= log.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return True

    def _read_cold(self, readings: list[Reading], cold: list[Reading], remaining: int) -> bool:
        """Reads what is not in memory on I/O threads: a follower far behind. Whether that answers the request.

        Of several log directories those with late reads are not waited for (`cold_reads`): where there are no others,
        the request goes on without what lies there, and is looked at again when that comes.
        """
        by_directory: dict[str, list[Reading]] = {}
        for reading in cold:
            assert reading.replica is not None
            by_directory.setdefault(reading.replica.log.owner.path, []).append(reading)
        first = not any(reading.size for reading in readings)
        share = remaining // len(by_directory)
        reads = {directory: partial(read_these, group, share, first) for directory, group in by_directory.items()}

        def done(ended: dict[str, Deferred[list[ReadResult | KafkaError]]]) -> None:
            self._cold = False
            failure = None
            for directory, settled in ended.items():
                try:
                    results = settled.result()
                except Exception as error:
                    failure = error
                    continue
                for reading, result in zip(by_directory[directory], results, strict=True):
                    if isinstance(result, KafkaError):
                        reading.data = self._failure(reading.partition, result)
                    else:
                        reading.take(result)
            if failure is not None:
                self._abandon()
                if not self.answer.done:
                    self.answer.fail(failure)
            if self.answer.done:
                # Or the follower has begun anew on another connection.
                discard(readings)
            else:
                self._complete(readings)

        def late(results: list[ReadResult | KafkaError]) -> None:
            for result in results:
                if not isinstance(result, KafkaError):
                    for file_range in result.ranges:
                        file_range.release()
            if self._session.waiting is not None:
                self._session.waiting.has_news(urgent=True)

        fetches = self._fetches
        if len(fetches.logs.directories) > 1 and all(fetches.cold_reads.is_late(directory) for directory in reads):
            fetches.cold_reads.read(reads, lambda _: None, late)
            return False
        self._cold = True
        if len(fetches.logs.directories) > 1:
            fetches.cold_reads.read(reads, done, late)
        else:
            [(path, read)] = reads.items()
            fetches.shell.in_pool(InDirectories((path,), read)).on_complete(lambda settled: done({path: settled}))
        return True

    def _learn(self, reading: Reading) -> None:
        """What the request says of the follower's log. Nothing, where it parts from ours: it will be truncated."""
        partition, session = reading.partition, self._session
        if reading.data is not None and reading.data.diverging_epoch.epoch >= 0:
            return
        assert reading.replica is not None
        self._fetches.replicas.follower_fetched(
            reading.replica,
            FollowerFetched(
                session.follower,
                Offset(partition.fetch_offset),
                Offset(partition.follower_start),
                session.broker_epoch,
                reading.replica.log.log_start_offset,
                None if session.id == NO_SESSION else session.fetch_times,
            ),
            self._context.received_ms,
        )

    # Answering.

    def _is_enough(self, readings: list[Reading]) -> bool:
        size = 0
        for reading in readings:
            data = reading.data
            if data is not None and (data.error_code or data.diverging_epoch.epoch >= 0):
                return True
            size += reading.size
        return size >= self._bytes_min

    def _complete(self, readings: list[Reading]) -> None:
        self._fetches.on_rot()
        self._stop_waiting()
        session = self._session
        response = messages.FetchResponse(session_id=session.id)
        topic: messages.FetchResponse.FetchableTopicResponse | None = None
        by_id = self._context.api_version >= TOPIC_IDS_SINCE
        throttled = 0
        for reading in readings:
            partition = reading.partition
            if reading.leader is not None and (reading.replica is None or reading.replica.leader is not reading.leader):
                # Its leadership ended while an I/O thread read.
                reading.discard()
                reading.leader = None
                reading.data = self._failure(partition, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            data = reading.data
            if data is None:
                if not self._is_full and not reading.differs:
                    self._settle(reading)
                    continue
                data = reading.new_data()
            elif not data.error_code:
                reading.fill(data)
            self._told(reading, data)
            if reading.replica is not None:
                traffic = reading.replica.traffic
                traffic.fetches += 1
                traffic.replication_bytes_out += reading.size
                if reading.leader is not None and session.follower in reading.leader.adding:
                    traffic.reassignment_bytes_out += reading.size
            if reading.size and self._is_throttled(reading):
                throttled += reading.size
            if topic is None or (topic.topic_id != partition.topic_id if by_id else topic.topic != partition.topic):
                topic = messages.FetchResponse.FetchableTopicResponse(
                    topic=partition.topic, topic_id=partition.topic_id
                )
                response.responses.append(topic)
            topic.partitions.append(data)
        if throttled:
            session.throttle_turn_ms = self._fetches.clock.monotonic_ms()
            self._fetches.throttles.leader.record(session.throttle_turn_ms, throttled)
        if session.id == NO_SESSION:
            self._close_session()
        self.answer.complete(response)

    def _told(self, reading: Reading, data: messages.FetchResponse.PartitionData) -> None:
        """The answer goes out: remembers what the follower knows now."""
        partition, news = reading.partition, self._session.news
        partition.high_watermark = _UNKNOWN if data.error_code else data.high_watermark
        partition.log_start_offset = data.log_start_offset
        if data.error_code or reading.size or data.diverging_epoch.epoch >= 0:
            # It is looked at again whether the follower names it or not, and after the others.
            if reading.size:
                partition.sent_in = self._session.requests
                partition.sent_offset = partition.fetch_offset
            if partition in news:
                del news[partition]
                news[partition] = None
        else:
            self._settle(reading)

    def _settle(self, reading: Reading) -> None:
        """There is no more to say of the partition, unless its follower is still to join the ISR."""
        leader = reading.leader
        if (
            leader is not None
            and self._session.follower in leader.isr
            and leader.reported_log_end <= reading.partition.fetch_offset
        ):
            self._session.news.pop(reading.partition, None)

    def _failure(self, partition: FollowedPartition, error: KafkaError) -> messages.FetchResponse.PartitionData:
        return failed(self._fetches.metadata, self._context.api_version, partition, error)


def _leave(replicas: ReplicaManager, partition: FollowedPartition) -> None:
    """A follower's session does not have the partition any more."""
    partition.unwatch()
    if partition.replica is not None:
        session = partition.session
        replicas.unfollowed(partition.replica, FollowerLeft(session.follower, session.fetch_times))
