"""What members of one group were told, and what must therefore be so (invariant 15), whichever protocol they speak.

Commits of a partition carry rising offsets, since each owner begins where the last one's commit stands; so a stale
commit that was let in, or an acknowledged one that was lost, shows as an offset that goes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from sim.invariants import require
from tidelog.model.identifiers import TopicPartition

NOTHING = -1
"""The offset of a partition for which nothing is committed."""


@dataclass(slots=True)
class Holding:
    """A member's claim on a partition, under the protocol in which the coordinator assigns."""

    member: str
    valid_until: Callable[[], float]
    """Time until which the coordinator cannot have taken the member for dead."""


@dataclass(slots=True)
class GroupHistory:
    """Of one group."""

    group: str
    now: Callable[[], float]
    leader: Callable[[], int | None] = lambda: None
    """Broker that leads the group's partition of `__consumer_offsets`, as the store has it; None: none does, or it is
    not known."""
    owners: dict[int, dict[TopicPartition, str]] = field(default_factory=dict)
    """[generation] -> who was given which partition by it."""
    newest: int = -1
    """Greatest generation that a member was given an assignment of."""
    holdings: dict[TopicPartition, Holding] = field(default_factory=dict)
    sent: dict[TopicPartition, set[tuple[int, str]]] = field(default_factory=dict)
    """Offsets and notes of all commits that were ever asked for."""
    floor: dict[TopicPartition, int] = field(default_factory=dict)
    """Greatest offset that was acknowledged, or seen as committed."""
    generations: int = 0
    acknowledged: int = 0
    """Commits, of one partition each."""
    refused: int = 0
    """Commits of stale members."""

    # Classic groups: a generation's assignment.

    def assigned(self, member: str, generation: int, partitions: Iterable[TopicPartition]) -> None:
        """A member was given its part of a generation."""
        partitions = list(partitions)
        self._begin_anew(member, generation, partitions)
        self.generations += generation not in self.owners
        owners = self.owners.setdefault(generation, {})
        for partition in partitions:
            owner = owners.setdefault(partition, member)
            found = f"{self.group}: in generation {generation} {partition} has {owner} and {member}"
            require(15, owner == member, found)
        self.newest = max(self.newest, generation)

    def _begin_anew(self, member: str, generation: int, partitions: Iterable[TopicPartition]) -> None:
        """An empty group without offsets expires, and its generations begin again from 1 with the next member."""
        owners = self.owners.get(generation, {})
        contradicts = any(owners.get(partition, member) != member for partition in partitions)
        if not self.floor and (contradicts or generation < self.newest):
            self.owners.clear()
            self.newest = -1

    # Groups whose coordinator assigns: a partition is held from one answer to a later request.

    def is_coordinator(self, broker: int) -> bool:
        """Whether the answer of `broker`, which has just arrived, binds every coordinator after it.

        A broker that stood still while its session ended answers heartbeats from memory until it hears of its
        successor, as Kafka's does: the successor knows nothing of these. Each coordinator that the store makes after
        this moment loads the group later than the request was sent, and gives each member a whole session.
        """
        return self.leader() in (None, broker)

    def taken(self, member: str, partition: TopicPartition, valid_until: Callable[[], float]) -> None:
        """A member was told that the partition is its own."""
        holding = self.holdings.get(partition)
        if holding is not None and holding.member != member:
            require(
                15,
                self.now() >= holding.valid_until(),
                f"{self.group}: {member} is given {partition}, which {holding.member} has not released",
            )
        self.holdings[partition] = Holding(member, valid_until)

    def released(self, member: str, partitions: Iterable[TopicPartition]) -> None:
        """A member says with its next request that it has given these up."""
        for partition in partitions:
            holding = self.holdings.get(partition)
            if holding is not None and holding.member == member:
                del self.holdings[partition]

    # Commits.

    def committing(self, partition: TopicPartition, offset: int, note: str) -> None:
        """A commit is about to be sent."""
        self.sent.setdefault(partition, set()).add((offset, note))

    def committed(self, commits: Mapping[TopicPartition, int], generation: int | None, newest_before: int) -> None:
        """Commits were acknowledged. `newest_before`: `newest` at their sending. A member epoch is no `generation`."""
        for partition, offset in commits.items():
            if generation is not None:
                require(
                    15,
                    generation >= newest_before,
                    f"{self.group}: a commit of generation {generation} was taken, {newest_before} had begun",
                )
            self.acknowledged += 1
            self.floor[partition] = max(self.floor.get(partition, NOTHING), offset)

    def floors(self) -> dict[TopicPartition, int]:
        """What is committed at the least now: what a fetch that is sent now may show."""
        return dict(self.floor)

    def fetched(self, partition: TopicPartition, offset: int, note: str, floors: Mapping[TopicPartition, int]) -> None:
        """What a fetch showed that was sent when `floors` held."""
        least = floors.get(partition, NOTHING)
        require(15, offset >= least, f"{self.group}: {offset} is committed for {partition}, it was {least}")
        if offset != NOTHING:
            known = (offset, note) in self.sent.get(partition, ())
            require(
                15, known, f"{self.group}: {offset} with {note!r} is committed for {partition}: nobody asked for it"
            )
            self.floor[partition] = max(self.floor.get(partition, NOTHING), offset)
