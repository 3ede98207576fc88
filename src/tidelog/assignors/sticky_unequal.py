"""Which member keeps and which gets what, when members want different topics.

Each member keeps what it owned and still wants. What is left goes to the least loaded member that wants it, topics with
the fewest takers first. Then partitions move, one at a time, from a member to one that has at least two less, until no
such move is left; each makes the sum of squared loads smaller, so this ends. The outcome of moving counts only where
it made the members' loads more equal: otherwise what stood before it stays.

A member that comes back from an earlier generation claims what others may own by now: it gets that back where it has
less than they do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidelog.assignors.assignor import MemberId, Subscription, TopicLayout, by_text
from tidelog.assignors.racks import Racks
from tidelog.model.identifiers import TopicPartition


@dataclass(frozen=True, slots=True)
class Kept:
    """What stands before anything is given; `gave_up`: some member owned what it no longer wants, or is far from."""

    owner: Mapping[TopicPartition, MemberId]
    gave_up: bool


class _Loads:
    """Which member has which partitions, and which has least."""

    def __init__(self, subscribers: Mapping[str, Sequence[MemberId]], members: Iterable[MemberId]) -> None:
        self.owner: dict[TopicPartition, MemberId] = {}
        self.of = dict.fromkeys(members, 0)
        self._subscribers = subscribers
        self._least: dict[str, MemberId] = {}
        self._near: dict[tuple[str, frozenset[str]], list[MemberId]] = {}
        """[topic, racks of a partition] -> the subscribers that are not far from it."""

    def give(self, topic_partition: TopicPartition, member: MemberId) -> None:
        former = self.owner.get(topic_partition)
        if former is not None:
            self.of[former] -= 1
        self.owner[topic_partition] = member
        self.of[member] += 1
        self._least.clear()

    def least(self, topic: str) -> MemberId:
        """The topic's least loaded subscriber; by member id among equals."""
        found = self._least.get(topic)
        if found is None:
            found = self._least[topic] = min(self._subscribers[topic], key=self.of.__getitem__)
        return found

    def least_near(self, topic_partition: TopicPartition, racks: Racks) -> MemberId | None:
        """The same among those that are not far from it, if any."""
        key = topic_partition.topic, racks.of_partition(topic_partition)
        near = self._near.get(key)
        if near is None:
            subscribers = self._subscribers[topic_partition.topic]
            near = self._near[key] = [each for each in subscribers if not racks.is_far(each, topic_partition)]
        return min(near, key=self.of.__getitem__, default=None)


class UnequalShares:
    """One rebalance; `earlier` -> the last member of an earlier generation that claimed a partition."""

    def __init__(
        self,
        members: Mapping[MemberId, Subscription],
        topics: Mapping[str, TopicLayout],
        racks: Racks,
        earlier: Mapping[TopicPartition, MemberId],
    ) -> None:
        ordered = sorted(members, key=by_text)
        self._members = members
        self._racks = racks
        self._subscribers = {name: [each for each in ordered if name in members[each].topics] for name in topics}
        rarest_first = sorted(topics, key=lambda name: (len(self._subscribers[name]), by_text(name)))
        self._every = [TopicPartition(name, p) for name in rarest_first for p in range(topics[name].partitions)]
        self._earlier = {each: member for each, member in earlier.items() if each.topic in members[member].topics}
        self._loads = _Loads(self._subscribers, ordered)
        self._origin: dict[TopicPartition, MemberId] = {}
        """[partition that moved] -> whose it was before."""
        self._away: dict[tuple[str, MemberId, MemberId], dict[TopicPartition, None]] = {}
        """[topic, whose they were, whose they are] -> partitions that moved."""

    def assign(self, kept: Kept) -> dict[MemberId, list[TopicPartition]]:
        """[member] -> its partitions."""
        loads = self._loads
        for topic_partition, member in kept.owner.items():
            loads.give(topic_partition, member)
        fresh = [each for each in self._every if each not in kept.owner]
        self._give(fresh)
        before = dict(loads.owner)
        imbalance = self._imbalance()
        if not kept.gave_up:
            self._even_out(fresh)
        if self._even_out(self._every) and kept.owner and self._imbalance() >= imbalance:
            for topic_partition, member in before.items():
                loads.give(topic_partition, member)
        given: dict[MemberId, list[TopicPartition]] = {member: [] for member in self._members}
        for topic_partition, member in loads.owner.items():
            given[member].append(topic_partition)
        return given

    def _give(self, fresh: Sequence[TopicPartition]) -> None:
        left = []
        for topic_partition in fresh:
            member = self._loads.least_near(topic_partition, self._racks) if self._racks.of_member else None
            if member is None:
                left.append(topic_partition)
            else:
                self._loads.give(topic_partition, member)
        for topic_partition in left:
            self._loads.give(topic_partition, self._loads.least(topic_partition.topic))

    def _even_out(self, movable: Sequence[TopicPartition]) -> bool:
        """Moves until nothing gets better; whether anything moved."""
        loads = self._loads
        any_moved = False
        moved = True
        while moved:
            moved = False
            for topic_partition in movable:
                load = loads.of[loads.owner[topic_partition]]
                for taker in (self._earlier.get(topic_partition), loads.least(topic_partition.topic)):
                    if taker is not None and load > loads.of[taker] + 1:
                        self._move(topic_partition, taker)
                        moved = any_moved = True
                        break
        return any_moved

    def _move(self, topic_partition: TopicPartition, taker: MemberId) -> None:
        """Moves it, or in its stead one of its topic that went the other way before: that one comes home."""
        loads = self._loads
        origin = self._origin.get(topic_partition, loads.owner[topic_partition])
        # Coming home may not make loads less equal. Fewer are away each time, so moving comes to an end.
        if loads.of[origin] > loads.of[taker]:
            came = self._away.get((topic_partition.topic, taker, origin), ())
            topic_partition = next(iter(came), topic_partition)
        owner = loads.owner[topic_partition]
        origin = self._origin.pop(topic_partition, owner)
        if origin != owner:
            del self._away[topic_partition.topic, origin, owner][topic_partition]
        if origin != taker:
            self._origin[topic_partition] = origin
            self._away.setdefault((topic_partition.topic, origin, taker), {})[topic_partition] = None
        loads.give(topic_partition, taker)

    def _imbalance(self) -> int:
        """The sum of differences over all pairs of members: 0 where all have the same."""
        # In ascending order the load at `index` is the greater one in `index` pairs, the smaller one in the others.
        loads = sorted(self._loads.of.values())
        return sum(load * (2 * index + 1 - len(loads)) for index, load in enumerate(loads))
