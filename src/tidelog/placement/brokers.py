"""Brokers as placement sees them, the order in which it takes them, and why a placement is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tidelog.model.errors import ErrorCode, KafkaError


class BrokerRack(NamedTuple):
    """A broker that may hold replicas."""

    id: int
    rack: str | None = None
    """`broker.rack`; None where it is not set."""
    fenced: bool = False
    """Registered, but not to be led by now; only the striped placement knows such brokers."""


class PlacementRefused(KafkaError):
    """Base: no placement exists for what was asked. The message is Kafka's."""


class InvalidPartitions(PlacementRefused):
    """The count of partitions is not positive, or not an increase."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_PARTITIONS, message)


class InvalidReplicationFactor(PlacementRefused):
    """More replicas than brokers, or fewer than one."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REPLICATION_FACTOR, message)


class InvalidReplicaAssignment(PlacementRefused):
    """An assignment chosen by the caller contradicts itself or the topic."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


class BrokerNotAvailable(PlacementRefused):
    """An assignment chosen by the caller names a broker that is not live."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.BROKER_NOT_AVAILABLE, message)


class IncompleteRacks(PlacementRefused):
    """Some brokers have a rack and some have none: set broker.rack on all or on none."""

    def __init__(self) -> None:
        super().__init__(
            ErrorCode.INVALID_REQUEST, "Not all brokers have rack information for replica rack aware assignment."
        )


class MissingFirstPartition(PlacementRefused):
    """A topic without partition 0 cannot be expanded: its replication factor and order are unknown."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"Unexpected existing replica assignment for topic '{topic}', partition id 0 is missing.",
        )


def in_creation_order(brokers: Iterable[BrokerRack]) -> list[BrokerRack]:
    """By id: the one order in which topics are created *and* expanded.

    Kafka created topics through the admin API over the live brokers in no particular order and expanded them over the
    sorted ones, so that new partitions landed on brokers already in use. Every caller takes its list from here.
    """
    return sorted(brokers, key=lambda broker: broker.id)


def in_order_of(existing: Mapping[int, Sequence[int]], brokers: Iterable[BrokerRack]) -> list[BrokerRack]:
    """The brokers in the order in which a topic was created, as far as its partitions tell: for its expansion.

    Topics of ours were created by id. One that was made over another order (by Kafka's admin API, or by hand: leaders
    1 and 0 of brokers 0, 1 and 2) is continued in its own: 1, 0, then 2, which has nothing yet. Where the leaders
    follow no order at all, it is by id again. With racks the order given has no influence on the placement
    (`creation_start` has).
    """
    by_id = in_creation_order(brokers)
    leaders = [existing[partition][0] for partition in sorted(existing) if existing[partition]]
    known = {broker.id: broker for broker in by_id}
    if not leaders or not set(leaders) <= set(known):
        return by_id
    start = next(index for index, broker in enumerate(by_id) if broker.id == leaders[0])
    if _goes_round(leaders, [broker.id for broker in by_id[start:] + by_id[:start]]):
        return by_id
    seen = dict.fromkeys(leaders)
    unseen = [broker for broker in by_id if broker.id not in seen]
    recovered = [known[leader] for leader in seen] + unseen
    return recovered if _goes_round(leaders, [broker.id for broker in recovered]) else by_id


def creation_start(existing: Mapping[int, Sequence[int]], brokers: Sequence[BrokerRack]) -> int | None:
    """Where a topic over racks was begun: the place of partition 0's leader in the list that goes through the racks.

    Kafka looks it up in the list by id and counts on in the other one, so that an expansion lands on brokers in use
    wherever the two differ. None without racks, or where that leader is gone: then it is as `expand` says.
    """
    if 0 not in existing or not existing[0] or any(broker.rack is None for broker in brokers):
        return None
    alternated = rack_alternated(brokers)
    return alternated.index(existing[0][0]) if existing[0][0] in alternated else None


def _goes_round(leaders: Sequence[int], ring: Sequence[int]) -> bool:
    return all(leader == ring[index % len(ring)] for index, leader in enumerate(leaders))


def rack_order(rack: str) -> bytes:
    """Sort key of rack names: UTF-16 code units, as Java compares strings."""
    return rack.encode("utf-16-be", "surrogatepass")


def rack_alternated(brokers: Sequence[BrokerRack]) -> list[int]:
    """One broker of each rack in turn: racks by name, ids ascending inside a rack; exhausted racks are left out.

    >>> rack_alternated([BrokerRack(0, "a"), BrokerRack(1, "a"), BrokerRack(2, "b")])
    [0, 2, 1]
    """
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(brokers):
        if broker.rack is None:
            raise IncompleteRacks
        by_rack.setdefault(broker.rack, []).append(broker.id)
    columns = [by_rack[rack] for rack in sorted(by_rack, key=rack_order)]
    deepest = max(map(len, columns), default=0)
    return [column[row] for row in range(deepest) for column in columns if row < len(column)]
