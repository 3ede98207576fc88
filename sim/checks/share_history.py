"""What members of a share group were told: which of them has a record's lock, acknowledged it, gets it afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sim.invariants import require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidelog.model.identifiers import TopicPartition


Leadership = tuple[int, int]
"""Broker, leader epoch."""
CLOCKS_DIFFER: Final = 0.99
"""What part of a lock's time has passed for a broker whose clock is fast."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is so of a partition when a fetch is sent to its leader."""

    done: frozenset[int]
    """Offsets that are never to be delivered again."""
    presumed: Leadership | None
    """As which the broker asked answers, as far as it knows; None: it does not lead."""
    broker: int
    at_s: float


@dataclass(slots=True, eq=False)
class Lock:
    """Records that a member got with one answer."""

    member: str
    leadership: Leadership
    """Under which they were locked."""
    begun_s: float
    """When the fetch was sent: the lock begins no earlier."""
    known_s: float
    """When its answer had arrived: the lock begins no later."""
    is_whole: Callable[[], bool]
    """Whether the connection on which it was given is still there, at both ends."""
    is_given_up: bool = False
    """Whether the member has sent something by which the lock may end."""


class ShareHistory:
    """Of one group."""

    def __init__(
        self,
        group: str,
        delivery_count_limit: int,
        stored: Callable[[TopicPartition], Leadership | None] = lambda _: None,
        presumed: Callable[[TopicPartition, int], Leadership | None] = lambda *_: None,
        *,
        lock_s: float = 0.0,
        now: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`stored`: a partition's leadership in the store; None where the store has none, as with a lone broker.

        `presumed`: the leadership in the view of a broker that takes itself for the leader. `lock_s`: how long a lock
        holds.
        """
        self.group = group
        self._stored = stored
        self._presumed = presumed
        self._limit = delivery_count_limit
        self._lock_s = lock_s
        self._now = now
        self.acknowledged = 0
        self.refused = 0
        self.by_deposed = 0
        """Records that a deposed leader has delivered though they were done."""
        self._done: dict[TopicPartition, dict[int, str]] = {}
        """[partition][offset] -> who has acknowledged it for good, and was told that this holds."""
        self._locks: dict[TopicPartition, dict[int, Lock]] = {}
        """[partition][offset] -> the last lock that a member was told of."""
        self._owed: dict[TopicPartition, dict[int, str]] = {}
        """[partition][offset] -> the member that has released it: it is to be delivered once more."""
        self.assigned: set[TopicPartition] = set()
        """What any member was ever given: before that their state may still be made anew."""
        self.exclusive = 0
        """Deliveries before which the record was locked for a member."""

    def asks(self, partition: TopicPartition, broker: int) -> Asked:
        """A fetch is sent to a broker: to be kept until it is answered."""
        done = frozenset(self._done.get(partition, ()))
        return Asked(done, self._presumed(partition, broker), broker, self._now())

    def _is_bound(self, partition: TopicPartition, asked: Asked) -> bool:
        """Whether the leader whose answer has just arrived had to know all that was acknowledged before it was asked.

        A leader that was deposed, as by a pause longer than its session, delivers from memory until it learns of that,
        and lacks what its successors were told. Kafka's leaders do the same: locks are never written, and only writes
        are fenced. What its members acknowledge is refused. A leader is bound if, when it was asked, it knew the
        leadership that the store has when it answers: since epochs only rise, it was the leader all the time between,
        and has read its state, and fenced all others, under this epoch.
        """
        stored = self._stored(partition)
        return stored is None or stored == asked.presumed

    def acquired(
        self,
        partition: TopicPartition,
        member: str,
        first: int,
        last: int,
        count: int,
        asked: Asked,
        is_whole: Callable[[], bool] = lambda: True,
    ) -> Lock | None:
        """A member got records; `asked` is what `asks` gave for the fetch. Gives the lock; None where the leadership
        changed meanwhile, which ends locks."""
        require(22, 1 <= count <= self._limit, f"{self.group}: {partition} {first}-{last} is delivered {count} times")
        self._check_done(partition, member, first, last, asked)
        self._settle(partition, first, last)
        if asked.presumed is None or self._presumed(partition, asked.broker) != asked.presumed:
            return None
        locks = self._locks.setdefault(partition, {})
        lock = Lock(member, asked.presumed, asked.at_s, self._now(), is_whole)
        for offset in range(first, last + 1):
            former = locks.get(offset)
            if former is not None:
                self.exclusive += 1
                found = f"{self.group}: {partition} {offset} goes to {member}, and is locked for {former.member}"
                require(24, not self._is_held(former, asked), found)
            locks[offset] = lock
        return lock

    def _is_held(self, lock: Lock, asked: Asked) -> bool:
        """Whether a lock held, for certain, all the time from when a fetch was sent until now, when it is answered.

        The broker that gave it has let no time pass it over, has heard nothing of the member by which it ends, and
        has been the leader all the time.
        """
        return (
            lock.leadership == asked.presumed
            and lock.known_s <= asked.at_s
            and self._now() < lock.begun_s + self._lock_s * CLOCKS_DIFFER
            and not lock.is_given_up
            and lock.is_whole()
        )

    def _check_done(self, partition: TopicPartition, member: str, first: int, last: int, asked: Asked) -> None:
        again = sorted(asked.done.intersection(range(first, last + 1)))
        if not again:
            return
        if not self._is_bound(partition, asked):
            self.by_deposed += len(again)
            return
        owner = self._done[partition][again[0]]
        require(22, False, f"{self.group}: {partition} {again[0]} goes to {member} after {owner} was done")

    def releases(self, partition: TopicPartition, member: str, first: int, last: int, count: int) -> None:
        """A member is about to release what was delivered `count` times; `unanswered`, where that is not confirmed.

        A lock that may have ended says nothing: others may have had the records since, for the last time.
        """
        lock = self._locks.get(partition, {}).get(first)
        is_held = lock is not None and lock.member == member and self._now() < lock.begun_s + self._lock_s / 2
        if count < self._limit and is_held:
            self._owed.setdefault(partition, {}).update(dict.fromkeys(range(first, last + 1), member))

    def unanswered(self, partitions: Iterable[TopicPartition]) -> None:
        """A request has failed, or was refused: what it has freed, or its answer would have delivered, is not known."""
        for partition in partitions:
            self._owed.pop(partition, None)

    def _settle(self, partition: TopicPartition, first: int, last: int) -> None:
        owed = self._owed.get(partition, {})
        for offset in range(first, last + 1):
            owed.pop(offset, None)

    def check_final(self, partitions: Iterable[TopicPartition]) -> None:
        """Members have seen all; of `partitions` nothing was deleted."""
        for partition in partitions:
            for offset, member in self._owed.get(partition, {}).items():
                require(22, False, f"{self.group}: {partition} {offset} was released by {member} and came no more")

    def accepted(self, partition: TopicPartition, member: str, first: int, last: int) -> None:
        """A member was told that nothing is left to do with these records: by its word, or by another's before, if its
        locks had ended."""
        done = self._done.setdefault(partition, {})
        for offset in range(first, last + 1):
            done.setdefault(offset, member)
        self.acknowledged += last - first + 1
