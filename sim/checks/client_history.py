"""What users of the product's own client were told, and what must therefore be so (invariants 20 and 21).

A value is "producer/incarnation:number": numbers of a producer rise in the order of sending, and the incarnation says
which of the topics of one name it was sent to. The partitions here are those of one incarnation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sim.invariants import require
from tidelog.model.identifiers import TopicPartition

SETTLED_S: Final = 4.0
"""How long a group must have stood still before a rebalance needs another cause."""


class Incarnation(NamedTuple):
    """A partition of one of the topics that bore a name, one after the other."""

    partition: TopicPartition
    number: int


def value_for(producer: str, incarnation: int, number: int) -> bytes:
    """What a producer sends as its `number`th record."""
    return f"{producer}/{incarnation}:{number}".encode()


def _parsed(value: bytes) -> tuple[str, int, int]:
    producer, _, rest = value.decode().partition("/")
    incarnation, _, number = rest.partition(":")
    return producer, int(incarnation), int(number)


@dataclass(slots=True)
class GroupWatch:
    """What one group was given, and why its partitions changed hands."""

    group: str
    now: Callable[[], float]
    coordinator: Callable[[], object] = lambda: None
    """The broker that coordinates the group now and its epoch, where a move of it may cost members their partitions."""
    next_offset: dict[Incarnation, int] = field(default_factory=dict)
    """Behind the last record that some member was given."""
    cause: str = "nothing has happened yet"
    """What the last rebalance may come from."""
    is_settled: bool = False
    _still_since: float | None = None
    _coordinator_at_rest: object = None
    rebalances: int = 0

    def caused(self, what: str) -> None:
        """A member comes or goes, or the topics change: partitions may change hands."""
        self.cause = what
        self.is_settled = False
        self._still_since = None

    def unread(self, ends: Mapping[Incarnation, int]) -> list[str]:
        """Partitions of which no member was given all up to these offsets."""
        return [
            f"{self.group} was given {where.partition} up to {self.next_offset.get(where, 0)} of {end}"
            for where, end in sorted(ends.items())
            if self.next_offset.get(where, 0) < end
        ]

    def looked_at(self, owned: Collection[TopicPartition], expected: Collection[TopicPartition]) -> None:
        """Looks whether the group is at rest: each partition has one owner."""
        if not owned or sorted(owned) != sorted(expected):
            self._still_since = None
        elif self._still_since is None:
            self._still_since = self.now()
            self._coordinator_at_rest = self.coordinator()
        elif self.now() - self._still_since >= SETTLED_S:
            self.is_settled = True

    def gave_up(self, member: str, partitions: Collection[TopicPartition]) -> None:
        """A member's partitions were revoked."""
        self.rebalances += 1
        explained = not self.is_settled
        told = ", ".join(map(str, partitions))
        require(21, explained, f"{self.group}: {member} gives up {told}; the group has been at rest since {self.cause}")

    def lost(self, member: str, partitions: Collection[TopicPartition]) -> None:
        """A member's partitions are others' already, without having been asked for.

        In a rebalance of a classic group the coordinator may move when members have joined a generation and its log
        does not have that yet. The next one knows of the generation before, and refuses them, as Kafka's does.
        """
        told = ", ".join(map(str, partitions))
        explained = not self.is_settled and self.coordinator() != self._coordinator_at_rest
        require(21, explained, f"{self.group}: {member} has lost {told}, and neither left nor was silent for so long")


class ClientHistory:
    """Of all users of the client in a run."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self._values: dict[Incarnation, dict[int, bytes]] = {}
        self._places: dict[bytes, tuple[Incarnation, int]] = {}
        self.acknowledged: dict[Incarnation, int] = {}
        """[partition] -> behind the last record that was acknowledged."""
        self._told: dict[bytes, Incarnation] = {}
        """What was acknowledged, and where it must be read."""
        self.failed = 0
        self.read = 0

    @property
    def acknowledged_count(self) -> int:
        return len(self._told)

    def delivered(self, value: bytes, partition: TopicPartition, offset: int) -> None:
        """A producer was told that a record is in the log; `offset` -1: it was not told where."""
        where = Incarnation(partition, _parsed(value)[1])
        self._told[value] = where
        if offset >= 0:
            self._note(where, offset, value)
            self.acknowledged[where] = max(self.acknowledged.get(where, 0), offset + 1)

    def consumed(self, watch: GroupWatch, member: str, partition: TopicPartition, offset: int, value: bytes) -> None:
        """A member was given a record: none may be left out before it, whichever member had the partition then."""
        where = Incarnation(partition, _parsed(value)[1])
        self._note(where, offset, value)
        self.read += 1
        following = watch.next_offset.get(where, 0)
        found = f"{watch.group}: {member} is given offset {offset} of {partition}, and nobody was given {following}"
        require(20, offset <= following, found)
        watch.next_offset[where] = max(following, offset + 1)

    def _note(self, where: Incarnation, offset: int, value: bytes) -> None:
        known = self._values.setdefault(where, {}).setdefault(offset, value)
        require(20, known == value, f"{where.partition}: offset {offset} shows {value!r}, it was {known!r}")
        place = self._places.setdefault(value, (where, offset))
        found = f"{value!r} stands at {place[1]} of {place[0].partition}, and again at {offset} of {where.partition}"
        require(20, place == (where, offset), found)

    def check_final(self, incarnations: Collection[Incarnation]) -> None:
        """All that was acknowledged in these was read by some group, once, and in the order of sending."""
        for where in sorted(incarnations):
            last: dict[str, int] = {}
            for offset, value in sorted(self._values.get(where, {}).items()):
                producer, _, number = _parsed(value)
                before = last.get(producer, -1)
                found = f"{where.partition}: {value!r} stands at {offset}, behind number {before} of its producer"
                require(20, number > before, found)
                last[producer] = number
        for value, where in self._told.items():
            if where in incarnations:
                require(20, value in self._places, f"{value!r} was acknowledged in {where.partition} and is not read")
