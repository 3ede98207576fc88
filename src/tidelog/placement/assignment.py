"""Which brokers hold the replicas of new partitions: Kafka's placement with ZooKeeper, without and with racks.

Without racks, leaders go round the broker list from a random start, and the other replicas follow at a distance that
grows by one after each round, so that no two brokers share all their partitions. Four brokers, start and shift 0:

    partition   0      1      2      3    |   4      5      6      7
    replicas   0 1 2  1 2 3  2 3 0  3 0 1 |  0 2 3  1 3 0  2 0 1  3 1 2

With racks the list takes one broker of each rack in turn, the distance moves by whole racks, and a broker is passed
over while its rack already has a replica and another rack has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.placement.brokers import (
    BrokerNotAvailable,
    BrokerRack,
    IncompleteRacks,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    MissingFirstPartition,
    rack_alternated,
)
from tidelog.ports.random import Random

RANDOM_START = -1
"""As `fixed_start_index`: start and shift are drawn."""


def assign_replicas(
    brokers: Sequence[BrokerRack],
    partitions: int,
    replication_factor: int,
    *,
    random: Random,
    fixed_start_index: int = RANDOM_START,
    start_partition: int = -1,
) -> dict[int, list[int]]:
    """Places `partitions` new partitions: partition -> replicas, the preferred leader first.

    `brokers` is taken in the order given where no racks are set (see `in_creation_order`). A `fixed_start_index` serves
    as start and as shift; else both are drawn, the start first. New partitions are numbered from `start_partition`, or
    from 0 when that is negative. Raises InvalidPartitions, InvalidReplicationFactor, IncompleteRacks.
    """
    if partitions <= 0:
        raise InvalidPartitions("Number of partitions must be larger than 0.")
    if replication_factor <= 0:
        raise InvalidReplicationFactor("Replication factor must be larger than 0.")
    if replication_factor > len(brokers):
        raise InvalidReplicationFactor(
            f"Replication factor: {replication_factor} larger than available brokers: {len(brokers)}."
        )
    racks = {broker.id: broker.rack for broker in brokers}
    if all(rack is None for rack in racks.values()):
        ids = [broker.id for broker in brokers]
    elif None in racks.values():
        raise IncompleteRacks
    else:
        ids = rack_alternated(brokers)
    count = len(ids)
    start = fixed_start_index if fixed_start_index >= 0 else random.below(count)
    shift = fixed_start_index if fixed_start_index >= 0 else random.below(count)
    first_partition = max(0, start_partition)
    assignment: dict[int, list[int]] = {}
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % count == 0:
            shift += 1
        first = (partition + start) % count
        if ids and racks[ids[first]] is not None:
            assignment[partition] = _spread_over_racks(ids, racks, first, shift, replication_factor)
        else:
            followers = (_follower_index(first, shift + j, count) for j in range(replication_factor - 1))
            assignment[partition] = [ids[first], *(ids[index] for index in followers)]
    return assignment


def expand(
    topic: str,
    existing: Mapping[int, Sequence[int]],
    brokers: Sequence[BrokerRack],
    total_partitions: int,
    *,
    random: Random,
    manual: Mapping[int, Sequence[int]] | None = None,
    start: int | None = None,
) -> dict[int, list[int]]:
    """Places the partitions that a topic gains, continuing the order in which it was created.

    The start is the place of partition 0's preferred leader in `brokers` (or of the next higher id, if that broker is
    gone): with the list of the creation, the new partitions are led as the creation would have had them led. The
    replication factor is that of partition 0. A `start` given is used instead (`creation_start`). With `manual` the
    caller's choice is checked instead. Raises one of PlacementRefused's kinds.
    """
    if 0 not in existing or not existing[0]:
        raise MissingFirstPartition(topic)
    additional = total_partitions - len(existing)
    if additional <= 0:
        raise InvalidPartitions(
            f"The number of partitions for a topic can only be increased. Topic {topic} currently has "
            f"{len(existing)} partitions, {total_partitions} would not be an increase."
        )
    first_replica, replication_factor = existing[0][0], len(existing[0])
    if manual is not None:
        check_assignment(manual, replication_factor, {broker.id for broker in brokers})
        return {partition: list(replicas) for partition, replicas in manual.items()}
    if start is None:
        start = next((index for index, broker in enumerate(brokers) if broker.id >= first_replica), 0)
    return assign_replicas(
        brokers,
        additional,
        replication_factor,
        random=random,
        fixed_start_index=start,
        start_partition=len(existing),
    )


def check_assignment(manual: Mapping[int, Sequence[int]], replication_factor: int, available: set[int]) -> None:
    """Refuses a caller's assignment with empty, repeated or unknown replicas, or of another replication factor."""
    for partition, replicas in manual.items():
        if not replicas:
            raise InvalidReplicaAssignment(f"Cannot have replication factor of 0 for partition id {partition}.")
        listed = ", ".join(map(str, replicas))
        if len(set(replicas)) != len(replicas):
            raise InvalidReplicaAssignment(
                f"Duplicate brokers not allowed in replica assignment: {listed} for partition id {partition}."
            )
        if not available.issuperset(replicas):
            raise BrokerNotAvailable(
                f"Some brokers specified for partition id {partition} are not available. Specified brokers: {listed}, "
                f"available brokers: {', '.join(map(str, sorted(available)))}."
            )
    odd = {partition: len(replicas) for partition, replicas in manual.items() if len(replicas) != replication_factor}
    if odd:
        partitions = ", ".join(str(partition) for partition in sorted(odd))
        factors = ", ".join(str(odd[partition]) for partition in sorted(odd))
        raise InvalidReplicaAssignment(
            f"Inconsistent replication factor between partitions, partition 0 has {replication_factor} while "
            f"partitions [{partitions}] have replication factors [{factors}], respectively."
        )


def _follower_index(first: int, distance: int, count: int) -> int:
    """Place in the list of the follower at `distance` from the leader's place, never the leader's own."""
    return (first + 1 + distance % (count - 1)) % count


def _spread_over_racks(
    ids: Sequence[int], racks: Mapping[int, str | None], first: int, shift: int, replication_factor: int
) -> list[int]:
    count, rack_count = len(ids), len(set(racks.values()))
    replicas = [ids[first]]
    racks_used = {racks[ids[first]]}
    distance = shift * rack_count
    while len(replicas) < replication_factor:
        broker = ids[_follower_index(first, distance, count)]
        distance += 1
        rack = racks[broker]
        if broker not in replicas and (rack not in racks_used or len(racks_used) == rack_count):
            replicas.append(broker)
            racks_used.add(rack)
    return replicas
