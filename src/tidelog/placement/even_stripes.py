"""The striped placement with its two weaknesses mended: growth looks at what stands, and leaders are even.

Kafka 4's placement (`striped`) starts each expansion anew, so that a new partition often lands on a broker that the
topic uses already (from 2 to 3 partitions over 3 brokers: two times in three), and its leaders resonate where the
number of racks divides that of the brokers of a rack (9 brokers in 3 racks, 9 partitions, factor 3: three brokers lead
three each). Here each partition is led by the broker that leads fewest of the topic, and followed from the racks that
come next, there by the broker with the fewest replicas of it. Only ties follow the ring through the racks, whose start
is drawn.

    racks      a: 0 1     b: 2 3     c: 4 5
    partition 0 -> 0 2 4,  1 -> 1 3 5,  2 -> 2 4 1,  3 -> 3 5 0, ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.placement.brokers import BrokerRack, InvalidReplicationFactor, rack_order
from tidelog.placement.striped import too_few_brokers
from tidelog.ports.random import Random


def place_evenly(
    brokers: Sequence[BrokerRack],
    partitions: int,
    replication_factor: int,
    *,
    random: Random,
    existing: Mapping[int, Sequence[int]] | None = None,
) -> list[list[int]]:
    """Replicas of `partitions` new partitions of a topic, the leader first. `existing` [partition] -> replicas.

    Fenced brokers lead nothing, and follow where there is no other. Raises InvalidReplicationFactor.
    """
    if replication_factor <= 0:
        raise InvalidReplicationFactor(
            f"Invalid replication factor {replication_factor}: the replication factor must be positive."
        )
    if all(broker.fenced for broker in brokers):
        raise InvalidReplicationFactor("All brokers are currently fenced.")
    if replication_factor > len(brokers):
        raise InvalidReplicationFactor(too_few_brokers(replication_factor, len(brokers)))
    stripes = _EvenStripes(brokers, existing or {}, random)
    return [stripes.place(replication_factor) for _ in range(partitions)]


class _EvenStripes:
    def __init__(self, brokers: Sequence[BrokerRack], existing: Mapping[int, Sequence[int]], random: Random) -> None:
        self._brokers = {broker.id: broker for broker in brokers}
        self._ring = _ring(brokers)
        start = random.below(len(self._ring))
        self._turn = {broker: (place - start) % len(self._ring) for place, broker in enumerate(self._ring)}
        self._rack_count = len({broker.rack for broker in brokers})
        self._leads = dict.fromkeys(self._ring, 0)
        self._holds = dict.fromkeys(self._ring, 0)
        for replicas in existing.values():
            self._count(replicas)

    def _count(self, replicas: Sequence[int]) -> None:
        """Brokers that are gone count for nothing."""
        for broker in replicas:
            if broker in self._holds:
                self._holds[broker] += 1
        if replicas and replicas[0] in self._leads:
            self._leads[replicas[0]] += 1

    def place(self, replication_factor: int) -> list[int]:
        able = [broker for broker in self._ring if not self._brokers[broker].fenced]
        leader = min(able, key=lambda broker: (self._leads[broker], self._holds[broker], self._turn[broker]))
        replicas = [leader]
        while len(replicas) < replication_factor:
            replicas.append(self._follower(replicas))
        self._count(replicas)
        return replicas

    def _follower(self, replicas: Sequence[int]) -> int:
        """From a rack that has none yet while there is one: the broker with the fewest replicas."""
        used = {self._brokers[broker].rack for broker in replicas}
        after = self._turn[replicas[0]]
        return min(
            (broker for broker in self._ring if broker not in replicas),
            key=lambda broker: (
                len(used) < self._rack_count and self._brokers[broker].rack in used,
                self._brokers[broker].fenced,
                self._holds[broker],
                (self._turn[broker] - after) % len(self._ring),
            ),
        )


def _ring(brokers: Sequence[BrokerRack]) -> list[int]:
    """One broker of each rack in turn, those without a rack as one rack of their own, ids ascending."""
    by_rack: dict[str | None, list[int]] = {}
    for broker in sorted(brokers, key=lambda broker: broker.id):
        by_rack.setdefault(broker.rack, []).append(broker.id)
    racks = [by_rack[rack] for rack in sorted(by_rack, key=lambda rack: (rack is not None, rack_order(rack or "")))]
    return [rack[row] for row in range(max(map(len, racks))) for rack in racks if row < len(rack)]
