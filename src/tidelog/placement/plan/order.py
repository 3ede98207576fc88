"""The order of creation as a goal: a topic's partitions are led by the brokers in turn.

    brokers 0 1 2 3, begun at 2:    partitions 0 1 2 3 4 ... are led by 2 3 0 1 2 ...

Partitions that a topic gains go on with that turn (`assignment.expand`), so each lands on the broker that comes next
and not on one that has just had its turn. Moves by hand, factors and retired brokers end the turn; this goal restores
it.

Where the turn of a topic begins is free: of all beginnings the one is taken that copies fewest replicas, then the one
that gives fewest partitions another leader.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidelog.placement.brokers import BrokerRack, in_order_of, rack_alternated
from tidelog.placement.plan.layout import Layout


@dataclass(frozen=True, slots=True)
class Turn:
    """The leaders that the partitions of one topic should have, and how many of them cannot lead without a copy."""

    topic: str
    leaders: Mapping[int, int]
    """[item] -> broker, both as places in the layout."""
    copies: int


def turns(layout: Layout) -> Iterator[Turn]:
    """The turn of each topic that may be moved, by its name."""
    of_topic: dict[str, list[int]] = {}
    for item, partition in enumerate(layout.partitions):
        of_topic.setdefault(partition.topic, []).append(item)
    standing: dict[str, dict[int, tuple[int, ...]]] = {}
    for each in layout.state.partitions.values():
        standing.setdefault(each.topic, {})[each.partition] = each.replicas
    for topic, items in sorted(of_topic.items()):
        ring = _ring(layout, standing[topic])
        if ring:
            yield _best(layout, topic, items, ring)


def pin_leaders(layout: Layout) -> int:
    """Ties each partition to the broker that is to lead it, for the stages to come; the fewest copies that takes."""
    copies = 0
    for turn in turns(layout):
        copies += turn.copies
        for item, broker in turn.leaders.items():
            layout.pins[item] = broker
    return copies


@dataclass(frozen=True, slots=True)
class Ordered:
    """What `settle_order` did, in partitions."""

    changes: int
    off_turn: Mapping[str, int]
    """[topic] -> those whose turn falls on a broker that has no replica of them; topics without any are left out."""


def settle_order(layout: Layout) -> Ordered:
    """Puts the replica first whose turn it is, wherever there is one: nothing is copied."""
    changes = 0
    off_turn: dict[str, int] = {}
    for turn in turns(layout):
        for item, broker in turn.leaders.items():
            if broker in layout.replicas[item]:
                changes += layout.lead(item, broker)
            else:
                off_turn[turn.topic] = off_turn.get(turn.topic, 0) + 1
    return Ordered(changes, off_turn)


def _ring(layout: Layout, existing: Mapping[int, Sequence[int]]) -> list[int]:
    """The brokers that new partitions of a topic could land on, in the order in which they are taken.

    `existing` [partition] -> replicas, those that are left alone among them: they have their place in the turn too.
    """
    able = [
        BrokerRack(broker.id, broker.rack)
        for place, broker in enumerate(layout.brokers)
        if layout.holds[place] and layout.closed[place] is None
    ]
    if able and all(broker.rack is not None for broker in able):
        ids = rack_alternated(able)
    else:
        ids = [broker.id for broker in in_order_of(existing, able)]
    return [layout.index[id] for id in ids]


def _best(layout: Layout, topic: str, items: Sequence[int], ring: Sequence[int]) -> Turn:
    def cost(start: int) -> tuple[int, int, int]:
        copies = changes = 0
        for item in items:
            broker, replicas = leader(start, item), layout.replicas[item]
            copies += broker not in replicas
            changes += broker != replicas[0]
        return copies, changes, start

    def leader(start: int, item: int) -> int:
        return ring[(start + layout.partitions[item].partition) % len(ring)]

    start = min(range(len(ring)), key=cost)
    return Turn(topic, {item: leader(start, item) for item in items}, cost(start)[0])
