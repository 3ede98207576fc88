"""One broker's fetch session (KIP-227): what a client asks for again and again, it names once. No I/O.

    no session  --- everything, (0, 0) ------------------> the broker answers with a session's id, or 0: no session
    id, epoch n --- what changed, what is forgotten -----> the answer has only the partitions with news
    any error   --- everything again, (id, 0) -----------> which ends the former session
    the reader stops --- nothing, (id, -1) --------------> which ends the session; its place is another reader's

A session counts requests: one that is lost makes the two sides differ, and then a new session is begun. Up to version 6
of Fetch there are none; up to version 12 topics go by name, from version 13 on by id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from tidelog.client.exchange import ByVersion
from tidelog.client.fetching import FetchSettings
from tidelog.model.errors import ErrorCode, error_code
from tidelog.model.identifiers import TopicId, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
"""The request names everything and wants a session."""
FINAL_EPOCH: Final = -1
"""The request is about no session."""
_EPOCH_MAX: Final = 0x7FFFFFFF
_SESSIONS_SINCE: Final = 7
_TOPIC_IDS_SINCE: Final = 13

_REFUSALS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Errors of a whole answer that are the session's, and no partition's."""


class Wanted(NamedTuple):
    """From where a partition is to be read."""

    offset: int
    leader_epoch: int
    """As the client knows it; -1: not at all."""
    topic_id: TopicId


class FetchSession:
    """The session with one broker; one request is on its way at a time.

    Each `request` is followed by `answered` or by `lost`.
    """

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        """Of the next request."""
        self._names: dict[TopicId, str] = {}
        self._listed: dict[TopicPartition, Wanted] = {}
        """What the broker reads for us, as of the last request."""
        self._by_id = False
        self.refusals = 0
        """How often in a row the broker refused the session."""

    def request(self, wanted: Mapping[TopicPartition, Wanted], settings: FetchSettings, rack: str = "") -> ByVersion:
        """A Fetch of exactly the partitions `wanted`. `rack` "": from the leader, whatever is nearer (KIP-392)."""

        def build(version: int) -> Any:
            by_id = version >= _TOPIC_IDS_SINCE
            if by_id != self._by_id or version < _SESSIONS_SINCE:
                self.lost()  # Another version of the broker listens there now.
            self._by_id = by_id
            news: Iterable[TopicPartition] = wanted
            gone: list[tuple[TopicPartition, TopicId]] = []
            if self._epoch != INITIAL_EPOCH:
                news = [tp for tp, each in wanted.items() if self._listed.get(tp) != each]
                gone = [
                    (tp, listed.topic_id)
                    for tp, listed in self._listed.items()
                    if tp not in wanted or (by_id and wanted[tp].topic_id != listed.topic_id)
                ]
            self._listed = dict(wanted)
            self._names = {each.topic_id: tp.topic for tp, each in wanted.items()}
            return messages.FetchRequest(
                max_wait_ms=settings.max_wait_ms,
                min_bytes=settings.min_bytes,
                max_bytes=settings.max_bytes,
                isolation_level=settings.isolation,
                session_id=self._id,
                session_epoch=self._epoch if version >= _SESSIONS_SINCE else FINAL_EPOCH,
                topics=_topics(news, wanted, settings),
                forgotten_topics_data=_forgotten(gone),
                rack_id=rack,
            )

        return ByVersion(ApiKey.FETCH, build)

    def ending(self) -> ByVersion | None:
        """The request that ends the session, which may overtake one that is on its way; None where there is none.

        A broker keeps so many sessions at the most (max.incremental.fetch.session.cache.slots). One that is left
        behind holds its place for two minutes.
        """
        if self._id == NO_SESSION:
            return None
        request = messages.FetchRequest(session_id=self._id, session_epoch=FINAL_EPOCH)
        self._id, self._epoch = NO_SESSION, INITIAL_EPOCH
        return ByVersion(ApiKey.FETCH, lambda version: request)

    @property
    def names(self) -> Mapping[TopicId, str]:
        """The topics of the last request, by the ids that it named."""
        return self._names

    def answered(self, response: Any) -> bool:
        """Takes note of an answer; False where the broker refused the session: ask again, which begins another."""
        code = error_code(response.error_code)
        if code in _REFUSALS:
            self.refusals += 1
            self._id = NO_SESSION if code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND else self._id
            self._epoch = INITIAL_EPOCH
            return False
        self.refusals = 0
        if code is not ErrorCode.NONE:
            self.lost()
        elif response.session_id == NO_SESSION:
            self._id, self._epoch = NO_SESSION, INITIAL_EPOCH
        elif self._epoch == INITIAL_EPOCH or self._epoch == _EPOCH_MAX:
            self._id, self._epoch = response.session_id, 1
        else:
            self._epoch += 1
        return True

    def lost(self) -> None:
        """The broker may have taken the last request or not: the next one ends this session and begins another."""
        self._epoch = INITIAL_EPOCH


def _topics(
    partitions: Iterable[TopicPartition], wanted: Mapping[TopicPartition, Wanted], settings: FetchSettings
) -> list[Any]:
    kind = messages.FetchRequest
    topics: dict[tuple[str, TopicId], list[Any]] = {}
    for topic_partition in partitions:
        offset, leader_epoch, topic_id = wanted[topic_partition]
        topics.setdefault((topic_partition.topic, topic_id), []).append(
            kind.FetchPartition(
                partition=topic_partition.partition,
                current_leader_epoch=leader_epoch,
                fetch_offset=offset,
                partition_max_bytes=settings.partition_max_bytes,
            )
        )
    return [
        kind.FetchTopic(topic=name, topic_id=topic_id, partitions=entries)
        for (name, topic_id), entries in topics.items()
    ]


def _forgotten(partitions: Iterable[tuple[TopicPartition, TopicId]]) -> list[Any]:
    topics: dict[tuple[str, TopicId], list[int]] = {}
    for topic_partition, topic_id in partitions:
        topics.setdefault((topic_partition.topic, topic_id), []).append(topic_partition.partition)
    kind = messages.FetchRequest.ForgottenTopic
    return [kind(topic=name, topic_id=topic_id, partitions=entries) for (name, topic_id), entries in topics.items()]
