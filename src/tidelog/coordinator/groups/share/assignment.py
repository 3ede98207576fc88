"""The simple assignor of share groups (KIP-932): every partition has a member, and every member a partition.

Members share partitions where there are more of them. Each topic is given out by itself, to the members that subscribe
to it; each member keeps what it has as far as the others' portions allow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Final

from tidelog.coordinator.groups.consumer.member import NO_PARTITIONS, Partitions
from tidelog.model.identifiers import TopicId

NAME: Final = "simple"


def assign(
    subscriptions: Mapping[str, Set[TopicId]],
    assignable: Partitions,
    former: Mapping[str, Partitions],
) -> dict[str, Partitions]:
    """[member id] -> what it is to have of `assignable`, by what it subscribes to and had before."""
    subscribers: dict[frozenset[str], list[tuple[TopicId, int]]] = {}
    for topic_id, partitions in sorted(assignable.items()):
        members = frozenset(member for member, topics in subscriptions.items() if topic_id in topics)
        if members:
            # Topics with the same members are given out together, so that none gets the first of each.
            subscribers.setdefault(members, []).extend((topic_id, each) for each in sorted(partitions))
    given: dict[str, dict[TopicId, set[int]]] = {member: {} for member in subscriptions}
    for members, places in subscribers.items():
        for member, held in _give_out(sorted(members), places, former).items():
            for topic_id, partition in held:
                given[member].setdefault(topic_id, set()).add(partition)
    return {
        member: {topic_id: frozenset(each) for topic_id, each in sorted(topics.items())}
        for member, topics in given.items()
    }


def _give_out(
    members: Sequence[str], places: Sequence[tuple[TopicId, int]], former: Mapping[str, Partitions]
) -> dict[str, list[tuple[TopicId, int]]]:
    """Each place to at least one member, each member at least one place; the portions differ by one at most."""
    per_member = -(-len(places) // len(members))
    per_place = -(-len(members) // len(places))
    held: dict[str, list[tuple[TopicId, int]]] = {member: [] for member in members}
    users: dict[tuple[TopicId, int], int] = dict.fromkeys(places, 0)
    # A portion that is one larger than the smallest is for as many as there are left over.
    larger_members = len(places) - (per_member - 1) * len(members)
    larger_places = len(members) - (per_place - 1) * len(places)
    for member in members:
        for place in _of(former.get(member, NO_PARTITIONS), users):
            if len(held[member]) >= per_member or users[place] >= per_place:
                continue
            if per_member > 1 and len(held[member]) == per_member - 1:
                if not larger_members:
                    continue
                larger_members -= 1
            if per_place > 1 and users[place] == per_place - 1:
                if not larger_places:
                    continue
                larger_places -= 1
            held[member].append(place)
            users[place] += 1
    for place in sorted(places, key=lambda place: users[place]):
        if not users[place]:
            member = min(members, key=lambda each: len(held[each]))
            held[member].append(place)
            users[place] += 1
    for member in members:
        if not held[member]:
            place = min(places, key=lambda each: users[each])
            held[member].append(place)
            users[place] += 1
    return held


def _of(partitions: Partitions, places: Mapping[tuple[TopicId, int], int]) -> list[tuple[TopicId, int]]:
    return [
        (topic_id, each)
        for topic_id, those in sorted(partitions.items())
        for each in sorted(those)
        if (topic_id, each) in places
    ]
