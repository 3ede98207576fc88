"""Range: each topic by itself, cut into runs of partitions, one run a member; the first members get one more.

    7 partitions, 3 members -> 0 1 2 | 3 4 | 5 6

Members with equal subscriptions get the same numbers of every topic of equal size, so that records with equal keys meet
in one member (co-partitioning). With racks (KIP-881) balance comes first, then co-partitioning, then nearness: members
take partitions near them within the same quotas, and what is left is cut into runs as without racks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from tidelog.assignors.assignor import (
    Assignment,
    MemberId,
    Subscription,
    TopicLayout,
    assignments_steps,
    in_order_steps,
    subscribed_topics,
)
from tidelog.assignors.racks import Racks
from tidelog.assignors.steps import Pace, Steps, at_once
from tidelog.model.identifiers import TopicPartition


class _Shares:
    """One topic on its way to its subscribers: what is left of it, and of each one's quota."""

    def __init__(self, name: str, layout: TopicLayout, subscribers: Sequence[MemberId], racks: Racks) -> None:
        self.name = name
        self.layout = layout
        self.subscribers = subscribers
        self.racks = racks
        self.racks_matter = racks.make_a_difference()
        self._left = dict.fromkeys(range(layout.partitions))
        self._least, self._extras = divmod(layout.partitions, len(subscribers))
        self._counts = dict.fromkeys(subscribers, 0)

    def room(self, member: MemberId) -> int:
        """How many partitions the member may still get."""
        return max(0, self._least + (self._extras > 0) - self._counts[member])

    def is_near(self, member: MemberId, partition: int) -> bool:
        return not self.racks.is_far(member, TopicPartition(self.name, partition))

    def give(self, member: MemberId, partition: int) -> TopicPartition:
        del self._left[partition]
        self._counts[member] += 1
        if self._counts[member] == self._least + 1:
            self._extras -= 1
        return TopicPartition(self.name, partition)

    def near_runs(self) -> Iterator[tuple[MemberId, int]]:
        """(member, partition) for each member's first partitions near it; members without a rack take any."""
        left_for: dict[str | None, Iterator[int]] = {}
        for member in self.subscribers:
            rack = self.racks.of_member.get(member)
            if rack not in left_for:
                left_for[rack] = self._near(rack)
            # What is still to be looked at stays so: another rack's members may have taken some of it since.
            yield from ((member, partition) for partition in islice(left_for[rack], self.room(member)))

    def runs(self) -> Iterator[tuple[MemberId, int]]:
        """(member, partition) for all that is left, in order."""
        left = iter(list(self._left))
        for member in self.subscribers:
            if not self._left:
                return
            yield from ((member, partition) for partition in islice(left, self.room(member)))

    def _near(self, rack: str | None) -> Iterator[int]:
        for partition in range(self.layout.partitions):
            if partition in self._left and (rack is None or rack in self.layout.racks_of(partition)):
                yield partition


@dataclass(frozen=True, slots=True)
class RangeAssignor:
    """Kafka's RangeAssignor; without `nearness` the broker's one (KIP-848), which knows of no racks."""

    nearness: bool = True

    @property
    def name(self) -> str:
        return "range"

    def assign(
        self, members: Mapping[MemberId, Subscription], topics: Mapping[str, TopicLayout]
    ) -> dict[MemberId, Assignment]:
        """Runs of partitions for each member."""
        return at_once(self.steps(members, topics))

    def steps(
        self, members: Mapping[MemberId, Subscription], topics: Mapping[str, TopicLayout]
    ) -> Steps[dict[MemberId, Assignment]]:
        """`assign`, in steps, without racks; with them all that is near is given in one."""
        given: dict[MemberId, list[TopicPartition]] = {member: [] for member in members}
        shares = yield from self._shares(members, topics)
        if any(topic.racks_matter for topic in shares):
            _give_near(shares, given)
        pace = Pace()
        for topic in shares:
            for member, partition in topic.runs():
                given[member].append(topic.give(member, partition))
                if pace.is_over():
                    yield
        return (yield from assignments_steps(members, given))

    def _shares(
        self, members: Mapping[MemberId, Subscription], topics: Mapping[str, TopicLayout]
    ) -> Steps[list[_Shares]]:
        order = yield from in_order_steps(members)
        shares = []
        for name, layout in subscribed_topics(members, topics).items():
            subscribers = [member for member in order if name in members[member].topics]
            racks = Racks.of(subscribers if self.nearness else (), members, {name: layout})
            shares.append(_Shares(name, layout, subscribers, racks))
            yield
        return shares


def _give_near(shares: list[_Shares], given: dict[MemberId, list[TopicPartition]]) -> None:
    alike: dict[tuple[int, tuple[MemberId, ...]], list[_Shares]] = {}
    for topic in shares:
        alike.setdefault((topic.layout.partitions, tuple(topic.subscribers)), []).append(topic)
    for together in alike.values():
        if len(together) > 1:
            _give_near_together(together, given)
        elif together[0].racks_matter:
            for member, partition in together[0].near_runs():
                given[member].append(together[0].give(member, partition))


def _give_near_together(topics: list[_Shares], given: dict[MemberId, list[TopicPartition]]) -> None:
    """Gives equal numbers of all these topics to a member that is near all of them, where there is one."""
    waiting = list(topics[0].subscribers)
    for partition in range(topics[0].layout.partitions):
        for member in waiting:
            if all(topic.room(member) > 0 and topic.is_near(member, partition) for topic in topics):
                break
        else:
            continue
        given[member].extend(topic.give(member, partition) for topic in topics)
        if not topics[0].room(member):
            waiting.remove(member)
