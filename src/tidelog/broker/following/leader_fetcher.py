"""Fetching from one leader broker: one connection, one fetch session, all partitions in one request.

    partitions whose position changed -> FetchRequest -> the leader waits for news -> FetchResponse -> each partition's
                     ^                                                                                      |
                     +--------------------------------------------------------------------------------------+

The session is incremental (KIP-227): a request names partitions that are new or whose position has changed, and those
that are to be forgotten for a while; an answer names those with news. So a request costs what has changed, and an idle
follower of thousands of partitions one empty request each replica.fetch.wait.max.ms.

While a request waits at the leader, a second one may follow on the same connection when another partition has become
ready: the leader then answers the first at once. Never more than two are under way, so that at most two answers of
replica.fetch.response.max.bytes (and one batch, where it is larger) are in memory.

While the follower's throttle is exceeded, throttled partitions that are behind are left out of the requests, and of the
session, until the rate allows more (KIP-73); the others go on.

An answer is taken in over several turns of the loop where it is large. What an answer says of a partition counts only
if the request that it answers, or an earlier one, named the partition's present position.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from tidelog.broker.shell import Purpose
from tidelog.model.errors import ErrorCode, error_code
from tidelog.model.identifiers import LeaderEpoch, Offset, TopicId
from tidelog.protocol import messages
from tidelog.records.batch import first_base_offset
from tidelog.replication.follower_events import Answered, EpochEnd

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.deferred import Deferred
    from tidelog.broker.environment import BrokerEnvironment
    from tidelog.broker.fetches.replication_throttles import ReplicationThrottles
    from tidelog.broker.replicas.replica import Replica
    from tidelog.broker.shell import Timer
    from tidelog.model.identifiers import BrokerId
    from tidelog.ports.disk import Bytes
    from tidelog.replication.follower import PartitionFollower
    from tidelog.replication.follower_events import FetchPosition, FollowerEvent

logger: Final = logging.getLogger(__name__)

FETCH_VERSION: Final = 17
UNDER_WAY_MAX: Final = 2
"""Requests without an answer: one that waits for news, and one that brings the leader news."""
PARTITIONS_PER_TURN: Final = 64
"""Partitions of an answer that are taken in before others have their turn."""
BYTES_PER_TURN: Final = 1 << 20
"""Bytes appended, likewise: about a millisecond."""
FIRST_REST_MS: Final = 20
"""After a failed request; each further one in a row is followed by a rest twice as long, up to
replica.fetch.backoff.ms."""
_NO_SESSION: Final = 0
_INITIAL_EPOCH: Final = 0
_EPOCH_MAX: Final = 0x7FFFFFFF
_SESSION_LOST: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)

PartitionKey: TypeAlias = tuple[TopicId, int]
"""A partition as requests name it."""


class Followed:
    """One partition while this broker follows it, in one leader epoch."""

    __slots__ = ("complaint", "cut", "fetcher", "follower", "key", "replica", "rest", "told", "told_in")

    def __init__(self, replica: Replica, follower: PartitionFollower, fetcher: LeaderFetcher) -> None:
        self.replica = replica
        self.follower = follower
        self.fetcher = fetcher
        self.key: PartitionKey = (replica.topic_id, replica.topic_partition.partition)
        self.told: FetchPosition | None = None
        """What the leader's fetch session has of it; None when nothing, or nothing that still holds."""
        self.told_in = 0
        """Number of the request that said so: answers to earlier ones are of no use any more."""
        self.rest: Timer | None = None
        self.cut: Callable[[], object] | None = None
        """The truncation that is announced and not done."""
        self.complaint = ErrorCode.NONE
        """What was logged last, so that it is not logged again at each attempt."""


class LeaderFetcher:
    """The way from one leader."""

    def __init__(
        self,
        environment: BrokerEnvironment,
        throttles: ReplicationThrottles,
        leader_id: BrokerId,
        step: Callable[[Followed, FollowerEvent, Bytes | None], None],
    ) -> None:
        """`step` hands an event to a partition, with the records of an `Answered`."""
        self._environment = environment
        self._broker_id = environment.broker_id
        self._config = environment.config
        self._clock = environment.clock
        self._shell = environment.shell
        self._throttles = throttles
        self.leader_id = leader_id
        self._step = step
        self._partitions: dict[PartitionKey, Followed] = {}
        self._changed: dict[PartitionKey, None] = {}
        """Partitions to look at for the next request."""
        self._in_session: dict[PartitionKey, None] = {}
        """Partitions that the leader's session has."""
        self._session_id = _NO_SESSION
        self._epoch = _INITIAL_EPOCH
        self._knows_session = False
        """Whether an answer has said if there is a session."""
        self._generation = 0
        """Counts sessions: answers to requests of an earlier one mean nothing."""
        self._request_number = 0
        self._under_way = 0
        self._answers: deque[tuple[int, FetchedPartition]] = deque()
        """What is not taken in yet: number of the request, and a partition's data."""
        self._failures = 0
        self._rest: Timer | None = None
        self._held_back: dict[PartitionKey, None] = {}
        """Partitions that the throttle keeps out of the requests."""
        self._held_back_timer: Timer | None = None
        self._is_scheduled = False
        self._is_stopped = False

    # The partitions.

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to fetch."""
        return not self._partitions

    def add(self, followed: Followed) -> None:
        """A partition to fetch, from its follower's position.

        The controller has just said that this leader lives: whatever it failed at before is tried again at once.
        """
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        self._partitions[followed.key] = followed
        self._change(followed.key)

    def remove(self, followed: Followed) -> None:
        """Not to be fetched any more."""
        if self._partitions.get(followed.key) is followed:
            del self._partitions[followed.key]
            self._change(followed.key)

    def look_at(self, followed: Followed) -> None:
        """The partition has changed: its position may be another, or the next fetch has to name it again."""
        is_news = followed.told is None or followed.follower.position() != followed.told
        # One that has its former position again may be in no request: where it was the only one, none was sent.
        if (is_news or followed.key in self._changed) and self._partitions.get(followed.key) is followed:
            self._change(followed.key)

    def _change(self, key: PartitionKey) -> None:
        self._changed[key] = None
        self._schedule()

    def stop(self) -> None:
        """Asks no more; what is still answered is dropped."""
        self._is_stopped = True
        self._answers.clear()
        for timer in (self._rest, self._held_back_timer):
            if timer is not None:
                timer.cancel()

    # Throttled partitions.

    def _is_behind(self, followed: Followed) -> bool:
        """Whether the throttle is for the partition: it is named there, and has not all that is committed."""
        return not followed.follower.has_all_committed and self._is_throttled(followed)

    def _is_throttled(self, followed: Followed) -> bool:
        topic, partition = followed.replica.topic_partition
        return self._throttles.follower.is_throttled(topic, partition)

    def _hold_back(self, key: PartitionKey) -> None:
        """The throttle is exceeded: looks at the partition again when it is not."""
        self._held_back[key] = None
        if self._held_back_timer is None:
            delay_ms = self._throttles.follower.delay_ms(self._clock.monotonic_ms())
            self._held_back_timer = self._shell.after(max(1, delay_ms), self.release)

    def release(self) -> None:
        """The throttle may allow more: whatever it held back is looked at."""
        if self._held_back_timer is not None:
            self._held_back_timer.cancel()
            self._held_back_timer = None
        if self._held_back:
            self._changed.update(self._held_back)
            self._held_back.clear()
            self._schedule()

    # Requests.

    def _schedule(self) -> None:
        """Looks at what is to be asked in the next turn, when all that happened in this one is known."""
        if not self._is_scheduled and not self._is_stopped:
            self._is_scheduled = True
            self._shell.soon(self._turn)

    def _turn(self) -> None:
        try:
            # Partitions that change by it are asked for below: no further turn is needed for them.
            if self._answers and not self._is_stopped:
                self._take_some()
        finally:
            self._is_scheduled = False
        if self._is_stopped:
            return
        if self._answers:
            self._schedule()
        # Without a session each request would begin one, and the answers would not tell which of them is meant.
        under_way_max = 1 if self._session_id == _NO_SESSION else UNDER_WAY_MAX
        if not self._answers and self._rest is None and self._under_way < under_way_max:
            self._ask()

    def _ask(self) -> None:
        """Sends a request, unless one waits at the leader already and there is nothing to add to it."""
        is_full = self._session_id == _NO_SESSION
        named: list[tuple[Followed, FetchPosition]] = []
        forgotten: list[PartitionKey] = []
        quota = self._throttles.follower
        is_exceeded = quota.throttles_any and quota.is_exceeded(self._clock.monotonic_ms())
        for key in list(self._partitions) if is_full else list(self._changed):
            followed = self._partitions.get(key)
            position = None if followed is None else followed.follower.position()
            if is_exceeded and followed is not None and position is not None and self._is_behind(followed):
                self._hold_back(key)
                position = None
            if followed is not None and position is not None:
                if is_full or position != followed.told or key not in self._in_session:
                    named.append((followed, position))
                else:
                    del self._changed[key]
            elif key in self._in_session:
                forgotten.append(key)
            else:
                self._changed.pop(key, None)
        if self._under_way and not any(followed.key in self._changed for followed, _ in named):
            return
        staying = len(named) if is_full else len(self._in_session) - len(forgotten)
        if not named and staying <= 0:
            return
        self._request_number += 1
        if is_full:
            self._in_session.clear()
        self._changed.clear()
        for followed, position in named:
            followed.told, followed.told_in = position, self._request_number
            self._in_session[followed.key] = None
        for key in forgotten:
            self._in_session.pop(key, None)
            left = self._partitions.get(key)
            if left is not None:
                left.told = None
        # A leader that keeps no session for us has nothing to forget.
        self._send(self._request(named, [] if is_full else forgotten))

    def _request(
        self, named: list[tuple[Followed, FetchPosition]], forgotten: list[PartitionKey]
    ) -> messages.FetchRequest:
        config = self._config
        # The first answer of a session comes at once: no further request is possible before its id is known.
        max_wait_ms = config.replica_fetch_wait_max_ms if self._knows_session else 0
        request = messages.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._epoch,
        )
        request.replica_state.replica_id = self._broker_id
        request.replica_state.replica_epoch = self._environment.broker_epoch
        quota = self._throttles.follower
        behind = {followed.key for followed, _ in named if self._is_behind(followed)} if quota.throttles_any else set()
        # Together they ask for what the rate allows at once; a batch that is larger comes alone.
        portion = min(config.replica_fetch_max_bytes, max(1, quota.portion // max(1, len(behind))))
        topics: dict[TopicId, messages.FetchRequest.FetchTopic] = {}
        for followed, position in named:
            topic_id, index = followed.key
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = messages.FetchRequest.FetchTopic(topic_id=topic_id)
                request.topics.append(topic)
            topic.partitions.append(
                messages.FetchRequest.FetchPartition(
                    partition=index,
                    current_leader_epoch=position.current_leader_epoch,
                    fetch_offset=position.offset,
                    last_fetched_epoch=position.last_fetched_epoch,
                    log_start_offset=position.log_start_offset,
                    partition_max_bytes=portion if followed.key in behind else config.replica_fetch_max_bytes,
                )
            )
        gone: dict[TopicId, messages.FetchRequest.ForgottenTopic] = {}
        for topic_id, index in forgotten:
            forgotten_topic = gone.get(topic_id)
            if forgotten_topic is None:
                forgotten_topic = gone[topic_id] = messages.FetchRequest.ForgottenTopic(topic_id=topic_id)
                request.forgotten_topics_data.append(forgotten_topic)
            forgotten_topic.partitions.append(index)
        return request

    def _send(self, request: messages.FetchRequest) -> None:
        if self._session_id != _NO_SESSION:
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1
        self._under_way += 1
        number, generation = self._request_number, self._generation
        timeout_ms = self._config.replica_socket_timeout_ms
        answer = self._shell.ask(self.leader_id, Purpose.FETCH, request, FETCH_VERSION, timeout_ms)
        answer.on_complete(lambda settled: self._answered(number, generation, settled))

    # Answers.

    def _answered(self, number: int, generation: int, settled: Deferred[Any]) -> None:
        if self._is_stopped or generation != self._generation:
            return
        self._under_way -= 1
        try:
            response: messages.FetchResponse = settled.result()
        except OSError as error:
            self._failed(f"{type(error).__name__}: {error}")
            return
        code = error_code(response.error_code)
        if code is not ErrorCode.NONE:
            if code in _SESSION_LOST and not self._failures:
                # At once; a leader that never has a session for us is asked at intervals.
                logger.info("fetch session lost: leader=%d error=%s", self.leader_id, code.name)
                self._failures = 1
                self._start_over()
                self._schedule()
            else:
                self._failed(code.name)
            return
        if self._failures:
            logger.info("fetching again: leader=%d", self.leader_id)
        self._failures = 0
        self._knows_session = True
        if self._session_id == _NO_SESSION and response.session_id != _NO_SESSION:
            self._session_id, self._epoch = response.session_id, 1
        for topic in response.responses:
            topic_id = TopicId(topic.topic_id)
            self._answers.extend((number, FetchedPartition(topic_id, data)) for data in topic.partitions)
        self._schedule()

    def _failed(self, reason: str) -> None:
        """The connection broke, or the leader refuses us: starts over after a rest."""
        if not self._failures:
            logger.warning("fetch failed, trying again: leader=%d reason=%s", self.leader_id, reason)
        delay_ms = min(self._config.replica_fetch_backoff_ms, FIRST_REST_MS << min(self._failures, 16))
        self._failures += 1
        self._start_over()
        if self._rest is not None:
            self._rest.cancel()
        self._rest = self._shell.after(delay_ms, self._rested)

    def _rested(self) -> None:
        self._rest = None
        self._schedule()

    def _start_over(self) -> None:
        """Forgets the session and whatever was asked in it; what has been answered is still taken in."""
        self._generation += 1
        self._session_id, self._epoch, self._knows_session = _NO_SESSION, _INITIAL_EPOCH, False
        self._under_way = 0
        self._in_session.clear()
        self._changed = dict.fromkeys(self._partitions)

    def _take_some(self) -> None:
        """Takes in what fits into a turn; the rest is for the next one."""
        size = 0
        answers = self._answers
        for _ in range(min(PARTITIONS_PER_TURN, len(answers))):
            number, fetched = answers.popleft()
            size += self._take(number, fetched)
            if size >= BYTES_PER_TURN or not answers:
                break

    def _take(self, number: int, fetched: FetchedPartition) -> int:
        """Hands its part of an answer to a partition; gives the bytes of records."""
        data = fetched.data
        followed = self._partitions.get((fetched.topic_id, data.partition_index))
        if (
            followed is None
            or followed.told is None
            or followed.told_in > number
            or followed.told != followed.follower.position()
        ):
            return 0
        records = data.records
        size = 0 if records is None else len(records)
        if size and self._is_throttled(followed):
            self._throttles.follower.record(self._clock.monotonic_ms(), size)
        diverging = None
        if data.diverging_epoch.end_offset >= 0:
            diverging = EpochEnd(LeaderEpoch(data.diverging_epoch.epoch), Offset(data.diverging_epoch.end_offset))
        event = Answered(
            error_code(data.error_code),
            Offset(data.high_watermark),
            Offset(data.log_start_offset),
            size,
            diverging,
            Offset(first_base_offset(cast("Bytes", records)) if size else -1),
        )
        try:
            self._step(followed, event, cast("Bytes | None", records))
        except Exception:
            # One partition's trouble is not the others', as in Kafka: the controller's next order makes a new follower.
            logger.exception("not fetched any more: partition=%s", followed.replica.topic_partition)
            self.remove(followed)
        return size


class FetchedPartition:
    """A partition of an answer, with its topic."""

    __slots__ = ("data", "topic_id")

    def __init__(self, topic_id: TopicId, data: messages.FetchResponse.PartitionData) -> None:
        self.topic_id = topic_id
        self.data = data
