"""Round robin: all partitions of all topics in order, dealt to the members in turn.

    t0: 0 1 2, t1: 0 1 2, members a, b -> a: t0-0 t0-2 t1-1, b: t0-1 t1-0 t1-2

A member whose turn it is and that does not want the topic is passed over, and the turn goes on from there: with unequal
subscriptions the shares may be far from equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

from tidelog.assignors.assignor import (
    Assignment,
    MemberId,
    Subscription,
    TopicLayout,
    assignments,
    in_order,
    subscribed_topics,
)
from tidelog.model.identifiers import TopicPartition


class RoundRobinAssignor:
    """Kafka's RoundRobinAssignor."""

    name = "roundrobin"

    def assign(
        self, members: Mapping[MemberId, Subscription], topics: Mapping[str, TopicLayout]
    ) -> dict[MemberId, Assignment]:
        """Each partition to the next member that wants its topic."""
        given: dict[MemberId, list[TopicPartition]] = {member: [] for member in members}
        turns = cycle(in_order(members))
        for name, layout in subscribed_topics(members, topics).items():
            for partition in range(layout.partitions):
                member = next(turn for turn in turns if name in members[turn].topics)
                given[member].append(TopicPartition(name, partition))
        return assignments(members, given)
