"""Share sessions (KIP-932): what a member fetches from one broker, and an epoch that counts its requests.

epoch 0 begins a session, anew if there is one; -1 ends it; any other must be the one that is expected
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicId

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1


class SharedPlace(NamedTuple):
    """A partition, as sessions name it."""

    topic_id: TopicId
    partition: int


@dataclass(slots=True)
class ShareSession:
    """What a member fetches here."""

    group: str
    member: str
    connection_id: int
    next_epoch: int = INITIAL_EPOCH + 1
    places: dict[SharedPlace, None] = field(default_factory=dict)
    """In the order in which they were named."""
    touched: set[SharedPlace] = field(default_factory=set)
    """Whose share partitions may hold locks for the member."""
    is_over: bool = False
    """It has ended, or another one took its place: a fetch of it that still waits must lock nothing for the member."""

    def change(self, added: Iterable[SharedPlace], forgotten: Iterable[SharedPlace]) -> None:
        """The request names more partitions, and others no more."""
        for place in added:
            self.places[place] = None
        for place in forgotten:
            self.places.pop(place, None)

    def rotated(self) -> list[SharedPlace]:
        """The partitions, beginning with another one each time, so that each has its turn."""
        places = list(self.places)
        if not places:
            return places
        start = self.next_epoch % len(places)
        return places[start:] + places[:start]


class ShareSessions:
    """All share sessions of a broker."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._by_connection: dict[int, set[tuple[str, str]]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, group: str, member: str, connection_id: int) -> ShareSession:
        """A new session, in the place of an earlier one; KafkaError SHARE_SESSION_LIMIT_REACHED."""
        former = self._sessions.get((group, member))
        if former is None and len(self._sessions) >= self._count_max:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = ShareSession(group, member, connection_id)
        if former is not None:
            session.touched = former.touched
            self.end(former)
        self._sessions[group, member] = session
        self._by_connection.setdefault(connection_id, set()).add((group, member))
        return session

    def has_group(self, group: str) -> bool:
        """Whether a member of the group has a session."""
        return any(each == group for each, _ in self._sessions)

    def find(self, group: str, member: str, epoch: int) -> ShareSession:
        """The session that a request with `epoch` goes on with, or ends.

        KafkaError SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
        """
        session = self._sessions.get((group, member))
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch == FINAL_EPOCH:
            return session
        if epoch != session.next_epoch:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.next_epoch = INITIAL_EPOCH + 1 if epoch == _EPOCH_MAX else epoch + 1
        return session

    def end(self, session: ShareSession) -> None:
        """Forgets the session."""
        session.is_over = True
        name = (session.group, session.member)
        if self._sessions.get(name) is session:
            del self._sessions[name]
            names = self._by_connection.get(session.connection_id, set())
            names.discard(name)
            if not names:
                self._by_connection.pop(session.connection_id, None)

    def connection_closed(self, connection_id: int) -> list[ShareSession]:
        """The sessions that ended with a connection."""
        names = self._by_connection.get(connection_id, ())
        gone = [self._sessions[name] for name in names]
        for session in gone:
            self.end(session)
        return gone
