"""Uniform: the broker's assignor for groups of the next-generation protocol (KIP-848).

What members own is the group's target assignment, which never has two owners: nothing to judge, and partitions change
hands by the protocol itself. With equal subscriptions each member keeps up to its quota, and what is above it or
unowned fills the others; a member that has the larger share keeps it, so a balanced group does not move at all.

With unequal ones each topic is dealt to its least loaded subscribers, those topics first that leave each of them most,
and then topic after topic is levelled: from the most loaded subscriber to the least, until they are one apart.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Final

from tidelog.assignors.assignor import (
    Assignment,
    MemberId,
    Subscription,
    TopicLayout,
    assignments,
    by_text,
    subscribed_topics,
)
from tidelog.model.identifiers import TopicPartition

ROUNDS_MAX: Final = 16
"""Of levelling all topics. Overlapping subscriptions may take many to settle; what is left after these is small."""


class UniformAssignor:
    """Kafka's UniformAssignor."""

    name = "uniform"

    def assign(
        self, members: Mapping[MemberId, Subscription], topics: Mapping[str, TopicLayout]
    ) -> dict[MemberId, Assignment]:
        """A balanced assignment that keeps what it can of `owned`."""
        known = subscribed_topics(members, topics)
        owned = {
            member: [each for each in members[member].owned if _wants(members[member], known, each)]
            for member in sorted(members, key=by_text)
        }
        if len({subscription.topics for subscription in members.values()}) == 1:
            return assignments(members, _equal_shares(owned, known))
        return assignments(members, _Levelled(members, known, owned).given())


def _wants(subscription: Subscription, topics: Mapping[str, TopicLayout], topic_partition: TopicPartition) -> bool:
    topic, partition = topic_partition
    return topic in subscription.topics and topic in topics and 0 <= partition < topics[topic].partitions


def _equal_shares(
    owned: Mapping[MemberId, list[TopicPartition]], topics: Mapping[str, TopicLayout]
) -> dict[MemberId, list[TopicPartition]]:
    least, extras = divmod(sum(layout.partitions for layout in topics.values()), len(owned))
    above = [member for member, partitions in owned.items() if len(partitions) > least]
    others = [member for member, partitions in owned.items() if len(partitions) <= least]
    larger = {*above[:extras], *others[len(others) - max(0, extras - len(above)) :]}
    quotas = {member: least + (member in larger) for member in owned}
    given = {member: sorted(partitions)[: quotas[member]] for member, partitions in owned.items()}
    taken = {each for partitions in given.values() for each in partitions}
    every = (TopicPartition(name, p) for name, layout in topics.items() for p in range(layout.partitions))
    unassigned = (each for each in every if each not in taken)
    for member, partitions in given.items():
        for _ in range(quotas[member] - len(partitions)):
            partitions.append(next(unassigned))
    return given


class _Levelled:
    """One assignment to members with unequal subscriptions.

    Members are numbers here. Of those that have nothing yet the ones that want fewer topics come first, and so get the
    larger share of these: the others can make up for it elsewhere.
    """

    def __init__(
        self,
        members: Mapping[MemberId, Subscription],
        topics: Mapping[str, TopicLayout],
        owned: Mapping[MemberId, list[TopicPartition]],
    ) -> None:
        self._members = sorted(
            owned, key=lambda member: (0 if owned[member] else len(members[member].topics), by_text(member))
        )
        self._loads = [len(owned[member]) for member in self._members]
        self._owners: dict[str, list[int | None]] = {
            name: [None] * layout.partitions for name, layout in topics.items()
        }
        for number, member in enumerate(self._members):
            for topic, partition in owned[member]:
                self._owners[topic][partition] = number
        self._subscribers = {
            name: [number for number, member in enumerate(self._members) if name in members[member].topics]
            for name in topics
        }
        self._order = sorted(topics, key=self._precedence)

    def given(self) -> dict[MemberId, list[TopicPartition]]:
        """[member] -> its partitions."""
        for topic in self._order:
            self._deal(topic)
        self._level_all([topic for topic in self._order if len(self._subscribers[topic]) > 1])
        given: dict[MemberId, list[TopicPartition]] = {member: [] for member in self._members}
        for topic, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                assert owner is not None, "every topic has a subscriber, or it would not be here"
                given[self._members[owner]].append(TopicPartition(topic, partition))
        return given

    def _precedence(self, topic: str) -> tuple[float, int, bytes]:
        subscribers = len(self._subscribers[topic])
        return -len(self._owners[topic]) / subscribers, subscribers, by_text(topic)

    def _by_load(self, topic: str) -> list[int]:
        return sorted(self._subscribers[topic], key=lambda member: (self._loads[member], member))

    def _deal(self, topic: str) -> None:
        """Gives the topic's partitions that nobody owns to its least loaded subscribers."""
        least = [(self._loads[member], place, member) for place, member in enumerate(self._by_load(topic))]
        owners = self._owners[topic]
        for partition, owner in enumerate(owners):
            if owner is None:
                load, place, member = least[0]
                heapq.heapreplace(least, (load + 1, place, member))
                owners[partition] = member
                self._loads[member] += 1

    def _level_all(self, topics: list[str]) -> None:
        """Levels one topic after the other until all are level, for levelling one may tilt another."""
        level = 0
        for turn in range(ROUNDS_MAX * len(topics)):
            level = 0 if self._level(topics[turn % len(topics)]) else level + 1
            if level == len(topics):
                return

    def _level(self, topic: str) -> int:
        """Moves partitions of the topic from most to least loaded subscribers; how many moved."""
        by_load = self._by_load(topic)
        if self._loads[by_load[-1]] - self._loads[by_load[0]] <= 1:
            return 0
        owners = self._owners[topic]
        to_give: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            if owner is not None:
                to_give.setdefault(owner, []).append(partition)
        least = [(self._loads[member], place, member) for place, member in enumerate(by_load)]
        most = [(-self._loads[member], -place, member) for place, member in enumerate(by_load) if member in to_give]
        heapq.heapify(most)
        moved = 0
        while most and -most[0][0] - least[0][0] > 1:
            load, place, giver = most[0]
            partition = to_give[giver].pop()
            if to_give[giver]:
                heapq.heapreplace(most, (load + 1, place, giver))
            else:
                heapq.heappop(most)
            taken, place, taker = least[0]
            heapq.heapreplace(least, (taken + 1, place, taker))
            owners[partition] = taker
            self._loads[giver] -= 1
            self._loads[taker] += 1
            moved += 1
        return moved
