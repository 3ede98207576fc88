"""Followers' fetch sessions, on the leader's side: a request and its answer cost as much as has changed.

A consumer's session is looked through partition by partition; a broker follows thousands, nearly all of them idle. So a
follower's session keeps the partitions *with news*: those that the request names, those whose leader has noted an
append, of a high watermark, of a first offset or of the end of its leadership, and those that want a look at every
fetch, since the follower is not in the ISR yet. Everything else has nothing to say, and is not looked at.

    leader appends ---> ReplicaSession.mark(partition) ---> news ---> the waiting fetch, once a turn of the loop
    request names ----> ReplicaSession.update ------------> news ---> read now

What the leader of a partition must know of requests that don't name it, the time, lies in `FetchTimes`, which all
partitions of the session share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from tidelog.broker.fetches.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    TOPIC_IDS_SINCE,
    FetchPartition,
    PartitionKey,
)
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import ZERO_TOPIC_ID, BrokerEpoch, BrokerId, TopicId
from tidelog.replication.progress import NEVER_MS, FetchTimes

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.replicas.replica import Replica
    from tidelog.ports.random import Random
    from tidelog.protocol import messages

SESSIONS_PER_FOLLOWER: Final = 16
"""More than any broker's num.replica.fetchers; beyond it the session that was unused for longest goes."""
PARTITIONS_MAX: Final = 200_000
"""Partitions in all sessions of followers together: about 60 MiB."""
_EPOCH_MAX: Final = 0x7FFFFFFF


class FollowedPartition(FetchPartition):
    """A partition as one follower fetches it."""

    __slots__ = ("follower_start", "is_watched", "replica", "sent_in", "sent_offset", "session")

    def __init__(self, session: ReplicaSession, topic: str, topic_id: TopicId, partition: int) -> None:
        super().__init__(topic, topic_id, partition)
        self.session = session
        self.replica: Replica | None = None
        """This broker's, once it was found; it tells of changes through `mark`."""
        self.follower_start = -1
        """The first offset of the follower's log."""
        self.is_watched = False
        self.sent_in = 0
        """Number of the request that was answered with records, if the partition was not named since; else 0."""
        self.sent_offset = -1
        """From which records were last sent; -1 where none were."""

    def ask(self, wanted: messages.FetchRequest.FetchPartition) -> None:
        super().ask(wanted)
        self.sent_in = 0
        # The answer before may have crossed this request: then the follower has not taken in what that told.
        self.high_watermark = self.log_start_offset = -1
        self.follower_start = wanted.log_start_offset

    def watch(self, replica: Replica) -> None:
        """Hears of `replica`'s changes from now on."""
        self.replica = replica
        self.is_watched = True
        replica.watchers = [*replica.watchers, self]

    def unwatch(self) -> None:
        """Is told of no changes any more."""
        if self.is_watched and self.replica is not None:
            self.is_watched = False
            self.replica.watchers = [each for each in self.replica.watchers if each is not self]

    def mark(self, *, urgent: bool) -> None:
        """The replica has changed; `urgent`: the follower is to know at once, for there are records, or an error."""
        session = self.session
        session.news[self] = None
        if session.waiting is not None:
            session.waiting.has_news(urgent=urgent)
        elif urgent:
            session.missed_news = True

    def look_again(self) -> None:
        """The replica's ISR has changed: the next request looks at what that means for the follower."""
        self.session.news[self] = None


class WaitingReplicaFetch(Protocol):
    """A request of the session that waits for news."""

    def has_news(self, *, urgent: bool) -> None:
        """Something changed."""
        ...


class ReplicaSession:
    """What one follower fetches, over one connection as a rule."""

    __slots__ = (
        "broker_epoch",
        "by_id",
        "epoch",
        "fetch_times",
        "follower",
        "id",
        "missed_news",
        "news",
        "partitions",
        "requests",
        "throttle_turn_ms",
        "waiting",
    )

    def __init__(self, id: int, follower: BrokerId, *, by_id: bool) -> None:
        self.id = id
        """0: the session lives for one request."""
        self.follower = follower
        self.by_id = by_id
        """Whether its topics are named by id."""
        self.epoch = INITIAL_EPOCH
        """Of the next request."""
        self.requests = 0
        """How many there were."""
        self.throttle_turn_ms = NEVER_MS
        """When it last got records of a throttled partition."""
        self.broker_epoch = BrokerEpoch(-1)
        """The registration under which the follower last fetched."""
        self.fetch_times = FetchTimes()
        self.partitions: dict[PartitionKey, FollowedPartition] = {}
        self.news: dict[FollowedPartition, None] = {}
        """Partitions that are to be looked at, longest waiting first."""
        self.waiting: WaitingReplicaFetch | None = None
        """Its request that waits, if one does."""
        self.missed_news = False
        """Whether there were urgent news while none did."""

    def update(self, request: messages.FetchRequest) -> list[FollowedPartition]:
        """Takes over what a request says; returns the partitions that were dropped."""
        self.advance()
        for topic in request.topics:
            name = "" if self.by_id else topic.topic
            topic_id = TopicId(topic.topic_id) if self.by_id else ZERO_TOPIC_ID
            for wanted in topic.partitions:
                key = (name or topic_id, wanted.partition)
                partition = self.partitions.get(key)
                if partition is None:
                    partition = self.partitions[key] = FollowedPartition(self, name, topic_id, wanted.partition)
                partition.ask(wanted)
                self.news[partition] = None
        dropped: list[FollowedPartition] = []
        for forgotten in request.forgotten_topics_data:
            named: str | TopicId = TopicId(forgotten.topic_id) if self.by_id else forgotten.topic
            for index in forgotten.partitions:
                partition = self.partitions.pop((named, index), None)
                if partition is not None:
                    self.news.pop(partition, None)
                    dropped.append(partition)
        return dropped

    def advance(self) -> None:
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1
        self.requests += 1


class ReplicaSessions:
    """All followers' sessions of a broker."""

    def __init__(self, *, random: Random, is_live: Callable[[BrokerId], bool]) -> None:
        self._random = random
        self._is_live = is_live
        self._sessions: dict[int, ReplicaSession] = {}
        """By id; the least recently used one first."""
        self._epochs: dict[BrokerId, BrokerEpoch] = {}
        """The newest broker epoch that each follower has fetched with."""
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """Partitions in all sessions."""
        return self._partitions

    def begin(
        self, request: messages.FetchRequest, version: int, follower: BrokerId, broker_epoch: BrokerEpoch, now_ms: int
    ) -> tuple[ReplicaSession, list[FollowedPartition]]:
        """The session of a request, and the partitions that it has dropped, whose leaders are to be told.

        KafkaError FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or FETCH_SESSION_TOPIC_ID_ERROR, whereupon
        the follower starts a new one; STALE_BROKER_EPOCH of a follower that has registered anew since (KIP-903).
        """
        self._check_epoch(follower, broker_epoch)
        by_id = version >= TOPIC_IDS_SINCE
        dropped: list[FollowedPartition] = []
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            known = self._sessions.get(request.session_id)
            if known is not None and known.follower == follower:
                dropped += self.close(known)
            session = ReplicaSession(NO_SESSION, follower, by_id=by_id)
            if request.session_epoch == INITIAL_EPOCH and self._is_live(follower):
                dropped += self._keep(session, request)
        else:
            session = self._find(request, follower, by_id)
        if session.broker_epoch != broker_epoch:
            # Each leader is to know the follower by its new registration.
            session.broker_epoch = broker_epoch
            session.news.update(dict.fromkeys(session.partitions.values()))
        before = len(session.partitions)
        dropped += session.update(request)
        if session.id != NO_SESSION:
            self._partitions += len(session.partitions) - before
            if self._partitions > PARTITIONS_MAX:
                for partition in self.close(session):
                    partition.unwatch()
                raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.fetch_times.latest_ms = max(now_ms, session.fetch_times.latest_ms)
        return session, dropped

    def close(self, session: ReplicaSession) -> list[FollowedPartition]:
        """Ends a session; its partitions, whose leaders are to be told."""
        if self._sessions.pop(session.id, None) is not None:
            self._partitions -= len(session.partitions)
        partitions = list(session.partitions.values())
        session.partitions.clear()
        session.news.clear()
        return partitions

    def _check_epoch(self, follower: BrokerId, broker_epoch: BrokerEpoch) -> None:
        newest = self._epochs.get(follower, BrokerEpoch(-1))
        if 0 <= broker_epoch < newest:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Broker {follower} fetches with epoch {broker_epoch}, and has been known by {newest}.",
            )
        if broker_epoch > newest and self._is_live(follower):
            self._epochs[follower] = broker_epoch

    def _find(self, request: messages.FetchRequest, follower: BrokerId, by_id: bool) -> ReplicaSession:
        session = self._sessions.get(request.session_id)
        if session is None or session.follower != follower:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self._sessions[session.id] = self._sessions.pop(session.id)
        return session

    def _keep(self, session: ReplicaSession, request: messages.FetchRequest) -> list[FollowedPartition]:
        """Gives a new session an id, unless it has no place; the partitions of one that had to make room."""
        size = sum(len(topic.partitions) for topic in request.topics)
        if self._partitions + size > PARTITIONS_MAX:
            return []
        dropped: list[FollowedPartition] = []
        others = [known for known in self._sessions.values() if known.follower == session.follower]
        if len(others) >= SESSIONS_PER_FOLLOWER:
            dropped = self.close(others[0])
        while session.id == NO_SESSION or session.id in self._sessions:
            session.id = 1 + self._random.below(0x7FFFFFFF)
        self._sessions[session.id] = session
        return dropped
