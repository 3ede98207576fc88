"""Which members are near which partitions (KIP-881).

Racks count only where they can make a difference: some member is in a rack that has replicas, and not every partition
has replicas in all of these racks. Otherwise nothing is near or far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidelog.assignors.assignor import MemberId, Subscription, TopicLayout
from tidelog.model.identifiers import TopicPartition


@dataclass(frozen=True, slots=True)
class Racks:
    """Where some members of a group are, and the replicas of some topics."""

    of_member: Mapping[MemberId, str]
    topics: Mapping[str, TopicLayout]

    @classmethod
    def of(
        cls,
        members: Iterable[MemberId],
        subscriptions: Mapping[MemberId, Subscription],
        topics: Mapping[str, TopicLayout],
    ) -> Racks:
        """The racks of these members, those that have one, and of all of `topics`."""
        return cls({member: rack for member in members if (rack := subscriptions[member].rack)}, topics)

    def make_a_difference(self) -> bool:
        """Whether it matters which member gets which partition."""
        if not self.of_member:
            return False
        each = [layout.racks_of(partition) for layout in self.topics.values() for partition in range(layout.partitions)]
        known = frozenset[str]().union(*each)
        return not known.isdisjoint(self.of_member.values()) and any(racks != known for racks in each)

    def if_they_matter(self) -> Racks:
        """These, or racks without a member."""
        return self if self.make_a_difference() else Racks({}, self.topics)

    def of_partition(self, topic_partition: TopicPartition) -> frozenset[str]:
        """Racks that hold a replica."""
        return self.topics[topic_partition.topic].racks_of(topic_partition.partition)

    def is_far(self, member: MemberId, topic_partition: TopicPartition) -> bool:
        """Whether the member has a rack and the partition no replica in it."""
        rack = self.of_member.get(member)
        return rack is not None and rack not in self.of_partition(topic_partition)

    def population(self) -> Counter[str]:
        """How many members are in each rack."""
        return Counter(self.of_member.values())
