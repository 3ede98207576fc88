"""What members of a share group were told: who acknowledged which record, and who got it afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.invariants import require

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.model.identifiers import TopicPartition


Leadership = tuple[int, int]
"""Broker, leader epoch."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is so of a partition when a fetch is sent to its leader."""

    done: frozenset[int]
    """Offsets that are never to be delivered again."""
    presumed: Leadership | None
    """As which the broker asked answers, as far as it knows; None: it does not lead."""


class ShareHistory:
    """Of one group."""

    def __init__(
        self,
        group: str,
        delivery_count_limit: int,
        stored: Callable[[TopicPartition], Leadership | None] = lambda _: None,
        presumed: Callable[[TopicPartition, int], Leadership | None] = lambda *_: None,
    ) -> None:
        """`stored`: a partition's leadership in the store; None where the store has none, as with a lone broker.

        `presumed`: the leadership in the view of a broker that takes itself for the leader.
        """
        self.group = group
        self._stored = stored
        self._presumed = presumed
        self._limit = delivery_count_limit
        self.acknowledged = 0
        self.refused = 0
        self.by_deposed = 0
        """Records that a deposed leader has delivered though they were done."""
        self._done: dict[TopicPartition, dict[int, str]] = {}
        """[partition][offset] -> who has acknowledged it for good, and was told that this holds."""

    def asks(self, partition: TopicPartition, broker: int) -> Asked:
        """A fetch is sent to a broker: to be kept until it is answered."""
        return Asked(frozenset(self._done.get(partition, ())), self._presumed(partition, broker))

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

    def acquired(self, partition: TopicPartition, member: str, first: int, last: int, count: int, asked: Asked) -> None:
        """A member got records; `asked` is what `asks` gave for the fetch."""
        require(22, 1 <= count <= self._limit, f"{self.group}: {partition} {first}-{last} is delivered {count} times")
        again = sorted(asked.done.intersection(range(first, last + 1)))
        if not again:
            return
        if not self._is_bound(partition, asked):
            self.by_deposed += len(again)
            return
        owner = self._done[partition][again[0]]
        require(22, False, f"{self.group}: {partition} {again[0]} goes to {member} after {owner} was done")

    def accepted(self, partition: TopicPartition, member: str, first: int, last: int) -> None:
        """A member was told that nothing is left to do with these records: by its word, or by another's before, if its
        locks had ended."""
        done = self._done.setdefault(partition, {})
        for offset in range(first, last + 1):
            done.setdefault(offset, member)
        self.acknowledged += last - first + 1
