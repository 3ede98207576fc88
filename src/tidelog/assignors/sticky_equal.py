"""Shares partitions equally among members that all want the same topics, in time linear in the partitions.

Balance is strict: with P partitions and C members each ends with P div C, and P mod C of them with one more. A
member keeps what it owned up to its share; what is over goes, in turn, to members that have less than theirs. No
partition moves without need:

    a owned 0 1 2 3, b owned 4 5, c is new  ->  a keeps 0 1, b 4 5, c gets 2 3
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping

from tidelog.assignors.assignor import MemberId, TopicLayout, by_text
from tidelog.assignors.racks import Racks
from tidelog.model.identifiers import TopicPartition


class EqualShares:
    """One rebalance, in which every member wants all of `topics`.

    `kept`: what each member owned until now, where no other member claims it.
    """

    def __init__(
        self, kept: Mapping[MemberId, Iterable[TopicPartition]], topics: Mapping[str, TopicLayout], racks: Racks
    ) -> None:
        self._owned = kept
        self._topics = topics
        self._racks = racks
        self._least, self._extras = divmod(sum(layout.partitions for layout in topics.values()), len(kept))
        self.given: dict[MemberId, list[TopicPartition]] = {}
        self._below: list[MemberId] = []
        """Members that have less than the least share, in order."""
        self._at_least: list[MemberId] = []
        """Members with just the least share, which may get one of the `_extras` yet, in order."""

    def assign(self) -> dict[MemberId, list[TopicPartition]]:
        """[member] -> its partitions."""
        for member in sorted(self._owned, key=by_text):
            self._keep(member)
        if not self._extras:
            self._at_least.clear()
        unassigned = self._unassigned()
        if self._racks.of_member:
            unassigned = self._give_near(unassigned)
        self._deal(unassigned)
        return self.given

    def _keep(self, member: MemberId) -> None:
        owned = [each for each in self._owned[member] if not self._racks.is_far(member, each)]
        owned.sort(key=lambda each: (each.partition, by_text(each.topic)))
        if len(owned) < self._least:
            self._below.append(member)
        elif len(owned) > self._least and self._extras:
            self._extras -= 1
            del owned[self._least + 1 :]
        else:
            self._at_least.append(member)
            del owned[self._least :]
        self.given[member] = owned

    def _unassigned(self) -> list[TopicPartition]:
        taken = {each for partitions in self.given.values() for each in partitions}
        every = (TopicPartition(name, p) for name, layout in self._topics.items() for p in range(layout.partitions))
        return [each for each in every if each not in taken]

    def _give_near(self, unassigned: list[TopicPartition]) -> list[TopicPartition]:
        """Gives partitions to members near them, those with the fewest such members first; returns what is left."""
        population = self._racks.population()
        racks_of = self._racks.of_partition
        unassigned.sort(key=lambda each: sum(population[rack] for rack in racks_of(each)))
        waiting = Counter(self._racks.of_member.get(member) for member in self._below)
        turn = 0
        left = []
        for topic_partition in unassigned:
            near = racks_of(topic_partition)
            if any(waiting[rack] for rack in near):
                turn = self._next_near(near, turn)
                member = self._below[turn]
                self.given[member].append(topic_partition)
                if len(self.given[member]) < self._least:
                    turn += 1
                else:
                    del self._below[turn]
                    waiting[self._racks.of_member[member]] -= 1
                    if self._extras:
                        self._at_least.append(member)
                turn = turn % len(self._below) if self._below else 0
            elif not self._give_near_extra(topic_partition, near):
                left.append(topic_partition)
        return left

    def _next_near(self, near: frozenset[str], turn: int) -> int:
        """The index in `_below` of the next member in one of these racks, from `turn` on and round."""
        size = len(self._below)
        of_member = self._racks.of_member
        return next(at % size for at in range(turn, turn + size) if of_member.get(self._below[at % size]) in near)

    def _give_near_extra(self, topic_partition: TopicPartition, near: frozenset[str]) -> bool:
        for index, member in enumerate(self._at_least):
            if self._racks.of_member.get(member) in near:
                self.given[member].append(topic_partition)
                del self._at_least[index]
                self._extras -= 1
                if not self._extras:
                    self._at_least.clear()
                return True
        return False

    def _deal(self, unassigned: list[TopicPartition]) -> None:
        """Gives all that is left: in turn to those below the least share, then one each."""
        below, extras = deque(self._below), deque(self._at_least)
        for topic_partition in unassigned:
            member = below.popleft() if below else extras.popleft()
            partitions = self.given[member]
            partitions.append(topic_partition)
            if len(partitions) < self._least:
                below.append(member)
            elif len(partitions) == self._least:
                extras.append(member)
