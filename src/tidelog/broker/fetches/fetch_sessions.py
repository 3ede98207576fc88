"""Fetch sessions (KIP-227): what a client asks for again and again, it names once.

A session keeps the partitions of a client with their fetch offsets, and what it was last told about each. An
incremental request names only what changed, and its answer names only partitions with news. The cache is bounded in
sessions and in partitions; a client that gets no session simply names everything each time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicId

if TYPE_CHECKING:
    from tidelog.ports.random import Random
    from tidelog.protocol import messages

FINAL_EPOCH: Final = -1
"""The request ends its session, or wants none."""
INITIAL_EPOCH: Final = 0
"""The request names everything and wants a session."""
NO_SESSION: Final = 0
PARTITIONS_MAX: Final = 100_000
"""Partitions in all sessions together: about 20 MiB."""
_EPOCH_MAX: Final = 0x7FFFFFFF
TOPIC_IDS_SINCE: Final = 13
"""From this version of Fetch on, topics are named by id."""

PartitionKey: TypeAlias = tuple[str | TopicId, int]
"""The topic as the request names it, and the partition."""


class FetchPartition:
    """What a client wants of a partition, and what it was last told."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: TopicId, partition: int) -> None:
        self.topic = topic
        """Empty where the topic is named by id."""
        self.topic_id = topic_id
        self.partition = partition
        self.max_bytes = 0
        self.fetch_offset = 0
        self.current_leader_epoch = -1
        self.last_fetched_epoch = -1
        self.high_watermark = -1
        """As last told; -1: never."""
        self.log_start_offset = -1
        """As last told."""

    @property
    def key(self) -> PartitionKey:
        return (self.topic or self.topic_id, self.partition)

    def ask(self, wanted: messages.FetchRequest.FetchPartition) -> None:
        """Takes over what a request says."""
        self.ask_for(
            wanted.current_leader_epoch, wanted.fetch_offset, wanted.last_fetched_epoch, wanted.partition_max_bytes
        )

    def ask_for(self, current_leader_epoch: int, fetch_offset: int, last_fetched_epoch: int, max_bytes: int) -> None:
        """As `ask`, of a request that was not decoded."""
        self.max_bytes = max_bytes
        self.fetch_offset = fetch_offset
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch


class Session:
    """One client's partitions, in the order in which they are read."""

    __slots__ = ("by_id", "created_ms", "epoch", "id", "partitions", "used_ms")

    def __init__(self, id: int, by_id: bool, now_ms: int) -> None:
        self.id = id
        self.by_id = by_id
        """Whether its topics are named by id."""
        self.epoch = INITIAL_EPOCH
        """Of the next request."""
        self.partitions: dict[PartitionKey, FetchPartition] = {}
        self.created_ms = now_ms
        self.used_ms = now_ms

    def advance(self) -> None:
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1


class FetchContext:
    """How one fetch request is to be read and answered."""

    __slots__ = ("is_incremental", "partitions", "session")

    def __init__(
        self, partitions: dict[PartitionKey, FetchPartition], session: Session | None, incremental: bool
    ) -> None:
        self.partitions = partitions
        """In the order in which they are to be read."""
        self.session = session
        self.is_incremental = incremental

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.id

    def has_news(self, wanted: FetchPartition, data: messages.FetchResponse.PartitionData) -> bool:
        """Whether an answer must name the partition."""
        return (
            not self.is_incremental
            or bool(data.records)
            or data.error_code != 0
            or data.high_watermark != wanted.high_watermark
            or data.log_start_offset != wanted.log_start_offset
            or data.preferred_read_replica >= 0
            or data.diverging_epoch.epoch >= 0
        )

    def told(self, wanted: FetchPartition, data: messages.FetchResponse.PartitionData) -> None:
        """The answer goes out: remembers what the client knows now, and reads it last next time if it got records."""
        if self.session is None:
            return
        # After an error the next answer names the partition again, whatever it says.
        wanted.high_watermark = -1 if data.error_code else data.high_watermark
        wanted.log_start_offset = data.log_start_offset
        if data.records and self.is_incremental:
            self.read_last(wanted)

    def read_last(self, wanted: FetchPartition) -> None:
        """The partition got records: the next request reads the others before it."""
        key = wanted.key
        if self.partitions.pop(key, None) is not None:
            self.partitions[key] = wanted


class FetchSessions:
    """All sessions of a broker."""

    def __init__(self, *, random: Random, slots_max: int, eviction_ms: int = 120_000) -> None:
        """`slots_max`: max.incremental.fetch.session.cache.slots; `eviction_ms`: unused for so long, a session goes."""
        self._random = random
        self._slots_max = slots_max
        self._eviction_ms = eviction_ms
        self._sessions: dict[int, Session] = {}
        self._partitions = 0
        self.evictions = 0
        """Sessions that had to go for another one."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """Partitions in all sessions."""
        return self._partitions

    def begin(self, request: messages.FetchRequest, version: int, now_ms: int) -> FetchContext:
        """Finds or makes the session of a request.

        KafkaError FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or FETCH_SESSION_TOPIC_ID_ERROR, whereupon
        the client starts a new one.
        """
        by_id = version >= TOPIC_IDS_SINCE
        session_id, epoch = request.session_id, request.session_epoch
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != NO_SESSION:
                self._remove(self._sessions.get(session_id))
            partitions: dict[PartitionKey, FetchPartition] = {}
            _each(request, by_id, lambda topic, topic_id, wanted: _put(partitions, topic, topic_id, wanted))
            session = None
            if epoch == INITIAL_EPOCH:
                session = self._create(partitions, by_id, now_ms)
            return FetchContext(partitions, session, False)
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self._update(session, request, by_id)
        return self.use(session, now_ms)

    def find(self, session_id: int, epoch: int, by_id: bool) -> Session | None:
        """The session of an incremental request; None where `begin` has an error to tell."""
        session = self._sessions.get(session_id)
        if session is None or session.epoch != epoch or session.by_id != by_id:
            return None
        return session

    def use(self, session: Session, now_ms: int) -> FetchContext:
        """An incremental request of the session, which has what is new in it, is to be handled."""
        session.used_ms = now_ms
        # The least recently used one comes first.
        self._sessions[session.id] = self._sessions.pop(session.id)
        session.advance()
        return FetchContext(session.partitions, session, True)

    def withhold(self, context: FetchContext) -> int:
        """The session's id for an answer that is empty because of a quota: a session begins with a full answer."""
        if context.is_incremental:
            return context.session_id
        self._remove(context.session)
        return NO_SESSION

    def _update(self, session: Session, request: messages.FetchRequest, by_id: bool) -> None:
        before = len(session.partitions)
        _each(request, by_id, lambda topic, topic_id, wanted: _put(session.partitions, topic, topic_id, wanted))
        for forgotten in request.forgotten_topics_data:
            name: str | TopicId = TopicId(forgotten.topic_id) if by_id else forgotten.topic
            for partition in forgotten.partitions:
                session.partitions.pop((name, partition), None)
        self._partitions += len(session.partitions) - before
        if self._partitions > PARTITIONS_MAX:
            self._remove(session)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def _create(self, partitions: dict[PartitionKey, FetchPartition], by_id: bool, now_ms: int) -> Session | None:
        size = len(partitions)
        if not size or self._slots_max <= 0:
            return None
        while len(self._sessions) >= self._slots_max or self._partitions + size > PARTITIONS_MAX:
            evicted = self._evictable(size, now_ms)
            if evicted is None:
                return None
            self.evictions += 1
            self._remove(evicted)
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = 1 + self._random.below(0x7FFFFFFF)
        session = Session(session_id, by_id, now_ms)
        session.partitions = partitions
        session.advance()
        self._sessions[session_id] = session
        self._partitions += size
        return session

    def _evictable(self, size: int, now_ms: int) -> Session | None:
        """A session that may make room for one of `size` partitions: unused for long, or smaller and not young."""
        if not self._sessions:
            return None
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.used_ms >= self._eviction_ms:
            return oldest
        smallest = min(self._sessions.values(), key=lambda session: len(session.partitions))
        if len(smallest.partitions) < size and now_ms - smallest.created_ms >= self._eviction_ms:
            return smallest
        return None

    def _remove(self, session: Session | None) -> None:
        if session is not None and self._sessions.pop(session.id, None) is not None:
            self._partitions -= len(session.partitions)


def _put(
    partitions: dict[PartitionKey, FetchPartition],
    topic: str,
    topic_id: TopicId,
    wanted: messages.FetchRequest.FetchPartition,
) -> None:
    key = (topic or topic_id, wanted.partition)
    known = partitions.get(key)
    if known is None:
        known = partitions[key] = FetchPartition(topic, topic_id, wanted.partition)
    known.ask(wanted)


def _each(request: messages.FetchRequest, by_id: bool, take: Callable[[str, TopicId, Any], None]) -> None:
    for topic in request.topics:
        name = "" if by_id else topic.topic
        topic_id = TopicId(topic.topic_id) if by_id else ZERO_TOPIC_ID
        for wanted in topic.partitions:
            take(name, topic_id, wanted)
