"""Uniform: the broker's assignor for groups of the next-generation protocol (KIP-848).

What members own is the group's target assignment, which never has two owners: nothing to judge, and partitions change
hands by the protocol itself. With equal subscriptions each member keeps up to its quota, and what is above it or
unowned fills the others; a member that has the larger share keeps it, so a balanced group does not move at all.

With unequal ones each topic is dealt to its least loaded subscribers, those topics first that leave each of them most,
and then topic after topic is levelled: from the most loaded subscriber to the least, until they are one apart.

Among equals `hash_order` decides, so that the outcome is Kafka's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from tidelog.assignors.assignor import (
    Assignment,
    MemberId,
    Subscription,
    TopicLayout,
    assignments_steps,
    subscribed_topics,
)
from tidelog.assignors.hash_order import numbers_in_order, strings_in_order_steps, topic_rank, topics_in_order
from tidelog.assignors.steps import STEP, Pace, Steps, at_once
from tidelog.model.identifiers import TopicPartition

ROUNDS_MAX: Final = 16
"""Of levelling all topics. Overlapping subscriptions may take many to settle; what is left after these is small."""
_LOOKS_A_UNIT: Final = 8
"""Members whose subscription is only looked at that take as long as one of which a step takes STEP."""


class UniformAssignor:
    """Kafka's UniformAssignor."""

    name = "uniform"

    def assign(
        self, members: Mapping[MemberId, Subscription], topics: Mapping[str, TopicLayout]
    ) -> dict[MemberId, Assignment]:
        """A balanced assignment that keeps what it can of `owned`."""
        return at_once(self.steps(members, topics))

    def steps(
        self, members: Mapping[MemberId, Subscription], topics: Mapping[str, TopicLayout]
    ) -> Steps[dict[MemberId, Assignment]]:
        """`assign`, in steps."""
        known = subscribed_topics(members, topics)
        order = yield from strings_in_order_steps(members)
        pace = Pace()
        owned: dict[MemberId, list[TopicPartition]] = {}
        for member in order:
            subscription = members[member]
            owned[member] = [each for each in subscription.owned if _wants(subscription, known, each)]
            if pace.is_over(len(subscription.owned) + 1):
                yield
        if len({subscription.topics for subscription in members.values()}) == 1:
            given = yield from _equal_shares(owned, known)
        else:
            given = yield from _Levelled(members, known, owned).given()
        return (yield from assignments_steps(members, given))


def _wants(subscription: Subscription, topics: Mapping[str, TopicLayout], topic_partition: TopicPartition) -> bool:
    topic, partition = topic_partition
    return topic in subscription.topics and topic in topics and 0 <= partition < topics[topic].partitions


def _equal_shares(
    owned: Mapping[MemberId, list[TopicPartition]], topics: Mapping[str, TopicLayout]
) -> Steps[dict[MemberId, list[TopicPartition]]]:
    """Of those that have more than the least share the first keep the larger one, and the last of the others get it."""
    pace = Pace()
    least, extras = divmod(sum(layout.partitions for layout in topics.values()), len(owned))
    above = [member for member, partitions in owned.items() if len(partitions) > least]
    others = [member for member, partitions in owned.items() if len(partitions) <= least]
    larger = {*above[:extras], *others[len(others) - max(0, extras - len(above)) :]}
    quotas = {member: least + (member in larger) for member in owned}
    yield
    ids = {name: layout.topic_id for name, layout in topics.items() if layout.topic_id is not None}
    unassigned = yield from _unowned(owned, topics, topics_in_order(topics, ids))
    given: dict[MemberId, list[TopicPartition]] = {}
    for member, partitions in owned.items():
        if pace.is_over(len(partitions) + 1):
            yield
        if len(partitions) <= quotas[member]:
            given[member] = list(partitions)
            continue
        by_topic: dict[str, list[int]] = {}
        for topic, partition in partitions:
            by_topic.setdefault(topic, []).append(partition)
        mine = [
            TopicPartition(topic, partition)
            for topic in topics_in_order(by_topic, ids)
            for partition in numbers_in_order(by_topic[topic])
        ]
        given[member] = mine[: quotas[member]]
        unassigned += mine[quotas[member] :]
    rest = iter(unassigned)
    for member, partitions in given.items():
        missing = quotas[member] - len(partitions)
        partitions.extend(islice(rest, missing))
        if pace.is_over(missing + 1):
            yield
    return given


def _unowned(
    owned: Mapping[MemberId, list[TopicPartition]], topics: Mapping[str, TopicLayout], order: Sequence[str]
) -> Steps[list[TopicPartition]]:
    """The partitions that no member has, topic after topic in that order."""
    pace = Pace()
    held: set[TopicPartition] = set()
    for partitions in owned.values():
        held.update(partitions)
        if pace.is_over(len(partitions) + 1):
            yield
    unowned: list[TopicPartition] = []
    for name in order:
        count = topics[name].partitions
        for start in range(0, count, STEP):
            every = (TopicPartition(name, partition) for partition in range(start, min(start + STEP, count)))
            unowned += [each for each in every if each not in held]
            if pace.is_over(STEP):
                yield
    return unowned


class _Levels:
    """A topic's subscribers by load: whose turn it is to get a partition, and to give one up.

    Those at the low end have all got as many as the next one has, or one more if it was their turn already; when all
    had theirs, the level is one higher, and they are joined by those that had as many before. At the high end it is the
    same, downwards, without those that have nothing left to give.

        load   .       #
               .     # #     the turn goes from left to right at the low end,
               # # # # #     from right to left at the high one
    """

    def __init__(self, subscribers: Sequence[int], loads: list[int]) -> None:
        """`subscribers` ascend; `loads` [member] are the caller's, which changes them as partitions move."""
        self._loads = loads
        # Among equal loads they stay in their own order.
        self._members = sorted(subscribers, key=loads.__getitem__)
        self._low = loads[self._members[0]] - 1
        self._low_end = 0
        self._next_taker = 0
        count = len(self._members)
        self._high = loads[self._members[-1]] + 1
        self._high_start = self._high_end = count
        self._next_giver = count - 1

    @property
    def spread(self) -> int:
        """By how many partitions the most and the least loaded differ, before any turn."""
        return self._loads[self._members[-1]] - self._loads[self._members[0]]

    def are_level(self) -> bool:
        """Whether the two ends are one apart at most, after the last turn."""
        return self._high - self._low <= 1

    def taker(self) -> int:
        """The next one to get a partition."""
        members, loads = self._members, self._loads
        if self._next_taker >= self._low_end:
            self._low += 1
            while self._low_end < len(members) and loads[members[self._low_end]] == self._low:
                self._low_end += 1
            self._next_taker = 0
        self._next_taker += 1
        return members[self._next_taker - 1]

    def giver(self) -> int | None:
        """The next member to give a partition up; None: none is left."""
        members, loads = self._members, self._loads
        if self._next_giver < self._high_start:
            if self._high_end <= self._high_start and self._high_start > 0:
                # All that were here have nothing to give.
                self._high = loads[members[self._high_start - 1]]
            else:
                self._high -= 1
            while self._high_start > 0 and loads[members[self._high_start - 1]] == self._high:
                self._high_start -= 1
            self._next_giver = self._high_end - 1
        if self._next_giver < 0:
            return None
        self._next_giver -= 1
        return members[self._next_giver + 1]

    def exclude_giver(self) -> None:
        """The last `giver` has nothing to give: the one at the high end takes its place."""
        members, place = self._members, self._next_giver + 1
        self._high_end -= 1
        members[place], members[self._high_end] = members[self._high_end], members[place]


class _Levelled:
    """One assignment to members with unequal subscriptions; members are numbers here."""

    def __init__(
        self,
        members: Mapping[MemberId, Subscription],
        topics: Mapping[str, TopicLayout],
        owned: Mapping[MemberId, list[TopicPartition]],
    ) -> None:
        self._members = list(owned)
        self._subscriptions = members
        self._topics = topics
        self._owned = owned
        self._loads = [len(partitions) for partitions in owned.values()]
        self._owners: dict[str, list[int | None]] = {
            name: [None] * layout.partitions for name, layout in topics.items()
        }
        self._subscribers: dict[str, list[int]] = {}
        self._pace = Pace()

    def given(self) -> Steps[dict[MemberId, list[TopicPartition]]]:
        """[member] -> its partitions."""
        yield from self._look()
        # `topics` are sorted by name, which decides where ids are not known.
        order = sorted(self._topics, key=self._precedence)
        for topic in order:
            yield from self._deal(topic)
        yield from self._level_all([topic for topic in order if len(self._subscribers[topic]) > 1])
        given: dict[MemberId, list[TopicPartition]] = {member: [] for member in self._members}
        for topic, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                assert owner is not None, "every topic has a subscriber, or it would not be here"
                given[self._members[owner]].append(TopicPartition(topic, partition))
                if self._pace.is_over():
                    yield
        return given

    def _look(self) -> Steps[None]:
        """Which member has which partition, and which subscribe to a topic."""
        for number, partitions in enumerate(self._owned.values()):
            for topic, partition in partitions:
                self._owners[topic][partition] = number
            if self._pace.is_over(len(partitions) + 1):
                yield
        wanted = [self._subscriptions[member].topics for member in self._members]
        for name in self._topics:
            self._subscribers[name] = [number for number, names in enumerate(wanted) if name in names]
            if self._pace.is_over(len(wanted) // _LOOKS_A_UNIT):
                yield

    def _precedence(self, topic: str) -> tuple[float, int, tuple[int, int]]:
        subscribers = len(self._subscribers[topic])
        return -len(self._owners[topic]) / subscribers, subscribers, topic_rank(self._topics[topic].topic_id)

    def _deal(self, topic: str) -> Steps[None]:
        """Gives the topic's partitions without an owner to its least loaded subscribers."""
        levels = _Levels(self._subscribers[topic], self._loads)
        if self._pace.is_over(len(self._subscribers[topic]) // _LOOKS_A_UNIT):
            yield
        owners = self._owners[topic]
        for partition, owner in enumerate(owners):
            if owner is None:
                owners[partition] = taker = levels.taker()
                self._loads[taker] += 1
            if self._pace.is_over():
                yield

    def _level_all(self, topics: list[str]) -> Steps[None]:
        """Levels one topic after the other until all are level, for levelling one may tilt another."""
        level = 0
        for turn in range(ROUNDS_MAX * len(topics)):
            moved = yield from self._level(topics[turn % len(topics)])
            level = 0 if moved else level + 1
            if level == len(topics):
                return

    def _level(self, topic: str) -> Steps[int]:
        """Moves partitions of the topic from most to least loaded subscribers; how many moved."""
        levels = _Levels(self._subscribers[topic], self._loads)
        if self._pace.is_over(len(self._subscribers[topic]) // _LOOKS_A_UNIT):
            yield
        if levels.spread <= 1:
            return 0
        owners = self._owners[topic]
        to_give: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            if owner is not None:
                to_give.setdefault(owner, []).append(partition)
            if self._pace.is_over():
                yield
        moved = 0
        while not levels.are_level():
            giver = levels.giver()
            while giver is not None and not to_give.get(giver):
                levels.exclude_giver()
                giver = levels.giver()
            if giver is None:
                break
            taker = levels.taker()
            if levels.are_level():
                break
            owners[to_give[giver].pop()] = taker
            self._loads[giver] -= 1
            self._loads[taker] += 1
            moved += 1
            if self._pace.is_over():
                yield
        return moved
