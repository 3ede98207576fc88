"""The striped placement of Kafka 4.x: racks in turn, in each rack the brokers in turn, from random offsets.

A stripe goes round the racks; the leader comes from the rack whose turn it is, each follower from the next one. Every
partition starts one rack and one broker further. When as many partitions were placed as there are unfenced brokers, all
orders are shuffled, so that patterns don't repeat. Fenced brokers are taken when a rack has no other left, never
as leaders.

    racks      a: 0 1     b: 2 3     c: 4 5
    partition 0 -> 0 2 4,  1 -> 3 5 1,  2 -> 4 0 2, ...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tidelog.placement.brokers import BrokerRack, InvalidReplicationFactor, rack_order
from tidelog.ports.random import Random

T = TypeVar("T")


class _Ring:
    """Brokers of one rack that are alike, in turn; each epoch starts one further and visits each once."""

    __slots__ = ("_brokers", "_epoch", "_offset", "_taken")

    def __init__(self, brokers: list[int], random: Random) -> None:
        self._brokers = sorted(brokers)
        self._epoch = 0
        self._taken = 0
        self._offset = random.below(len(brokers)) if brokers else 0

    def shuffle(self, random: Random) -> None:
        _shuffle(self._brokers, random)

    def next(self, epoch: int) -> int | None:
        if not self._brokers:
            return None
        if self._epoch != epoch:
            self._epoch = epoch
            self._taken = 0
            self._offset = (self._offset + 1) % len(self._brokers)
        if self._taken >= len(self._brokers):
            return None
        broker = self._brokers[(self._taken + self._offset) % len(self._brokers)]
        self._taken += 1
        return broker


class _Rack:
    __slots__ = ("_fenced", "_unfenced")

    def __init__(self, brokers: list[BrokerRack], random: Random) -> None:
        self._fenced = _Ring([broker.id for broker in brokers if broker.fenced], random)
        self._unfenced = _Ring([broker.id for broker in brokers if not broker.fenced], random)

    def shuffle(self, random: Random) -> None:
        self._fenced.shuffle(random)
        self._unfenced.shuffle(random)

    def next_leader(self, epoch: int) -> int | None:
        return self._unfenced.next(epoch)

    def next_follower(self, epoch: int) -> int | None:
        broker = self._unfenced.next(epoch)
        return self._fenced.next(epoch) if broker is None else broker


class _Stripes:
    """Hands out one partition's replicas after the other."""

    def __init__(self, brokers: Sequence[BrokerRack], random: Random) -> None:
        by_rack: dict[str | None, list[BrokerRack]] = {}
        for broker in brokers:
            by_rack.setdefault(broker.rack, []).append(broker)
        self._random = random
        self._racks_in_order_of_draws = [(name, _Rack(members, random)) for name, members in by_rack.items()]
        by_name = sorted(self._racks_in_order_of_draws, key=lambda named: _no_rack_first(named[0]))
        self._racks = [rack for _, rack in by_name]
        self._offset = random.below(len(self._racks)) if self._racks else 0
        self._unfenced_count = sum(not broker.fenced for broker in brokers)
        self._epoch = 0

    def place(self, replication_factor: int) -> list[int]:
        if self._epoch == self._unfenced_count and self._unfenced_count > 1:
            _shuffle(self._racks, self._random)
            for _, members in self._racks_in_order_of_draws:
                members.shuffle(self._random)
            self._epoch = 0
        if self._offset == len(self._racks):
            self._offset = 0
        leader_rack = self._offset
        while (leader := self._racks[leader_rack].next_leader(self._epoch)) is None:
            leader_rack = (leader_rack + 1) % len(self._racks)
        replicas = [leader]
        rack = self._offset
        # The leader's rack gave its share of the first round already.
        skipped: int | None = leader_rack
        while len(replicas) < replication_factor:
            if rack == skipped:
                skipped = None
            else:
                follower = self._racks[rack].next_follower(self._epoch)
                if follower is not None:
                    replicas.append(follower)
            rack = (rack + 1) % len(self._racks)
        self._epoch += 1
        self._offset += 1
        return replicas


def striped(
    brokers: Sequence[BrokerRack], partitions: int, replication_factor: int, *, random: Random
) -> list[list[int]]:
    """Replicas of each of `partitions` new partitions, the leader first. Raises InvalidReplicationFactor.

    Racks draw in the order in which they first appear in `brokers`: for each the offset of its fenced brokers, then of
    its unfenced ones (none for an empty list), then one offset for the list of racks. Existing partitions have no
    influence, so an expansion does not continue a creation's order: `assignment.expand` does.
    """
    stripes = _Stripes(brokers, random)
    if replication_factor <= 0:
        raise InvalidReplicationFactor(
            f"Invalid replication factor {replication_factor}: the replication factor must be positive."
        )
    if all(broker.fenced for broker in brokers):
        raise InvalidReplicationFactor("All brokers are currently fenced.")
    if replication_factor > len(brokers):
        raise InvalidReplicationFactor(too_few_brokers(replication_factor, len(brokers)))
    return [stripes.place(replication_factor) for _ in range(partitions)]


def too_few_brokers(replication_factor: int, registered: int) -> str:
    """Kafka's sentence for a replication factor above the registered brokers."""
    return (
        f"The target replication factor of {replication_factor} cannot be reached because only {registered} "
        "broker(s) are registered."
    )


def _no_rack_first(name: str | None) -> tuple[bool, bytes]:
    return name is not None, rack_order(name or "")


def _shuffle(items: list[T], random: Random) -> None:
    """Fisher and Yates from the end, with draws in Java's order."""
    for bound in range(len(items), 1, -1):
        drawn = random.below(bound)
        items[bound - 1], items[drawn] = items[drawn], items[bound - 1]
