"""Where replicas of new partitions go."""

from __future__ import annotations

import pytest

from tidelog.model.errors import ErrorCode
from tidelog.placement.assignment import assign_replicas, expand
from tidelog.placement.brokers import (
    BrokerRack,
    IncompleteRacks,
    InvalidPartitions,
    InvalidReplicationFactor,
    MissingFirstPartition,
    creation_start,
    in_creation_order,
    in_order_of,
    rack_alternated,
)


class Drawn:
    """Randomness that gives the numbers it was told."""

    def __init__(self, *values: int) -> None:
        self.values = list(values)

    def below(self, bound: int) -> int:
        value = self.values.pop(0)
        assert 0 <= value < bound
        return value

    def token(self, size: int) -> bytes:
        raise AssertionError


def brokers(*ids: int) -> list[BrokerRack]:
    return [BrokerRack(id) for id in ids]


@pytest.mark.row("R01")
def test_four_brokers_show_the_documents_pattern() -> None:
    """Sixteen partitions on four brokers: the gap grows by one each round: 3, 1, 2, 3, as a real cluster listed it."""
    # The document's listing is that of the broker list [0, 2, 3, 1].
    assignment = assign_replicas(brokers(0, 2, 3, 1), 16, 3, random=Drawn(0, 2))
    assert [assignment[partition] for partition in range(16)] == [
        [0, 1, 2], [2, 0, 3], [3, 2, 1], [1, 3, 0],
        [0, 2, 3], [2, 3, 1], [3, 1, 0], [1, 0, 2],
        [0, 3, 1], [2, 1, 0], [3, 0, 2], [1, 2, 3],
        [0, 1, 2], [2, 0, 3], [3, 2, 1], [1, 3, 0],
    ]  # fmt: skip


@pytest.mark.row("R01")
def test_start_and_shift_are_drawn_in_that_order() -> None:
    """The first draw is the first leader's place, the second the first follower's distance."""
    assert assign_replicas(brokers(0, 1, 2, 3), 1, 2, random=Drawn(3, 1)) == {0: [3, 1]}


@pytest.mark.row("R01")
def test_one_broker_takes_everything() -> None:
    """With a single broker there is no follower to place."""
    assert assign_replicas(brokers(7), 3, 1, random=Drawn(0, 0)) == {0: [7], 1: [7], 2: [7]}


@pytest.mark.row("R02")
def test_no_rack_is_used_twice_while_one_is_unused() -> None:
    """Three racks of two brokers: three replicas are in three racks, whatever the start and the shift."""
    racked = [BrokerRack(id, rack) for id, rack in enumerate("aabbcc")]
    rack_of = {broker.id: broker.rack for broker in racked}
    for start in range(6):
        for shift in range(6):
            for replicas in assign_replicas(racked, 36, 3, random=Drawn(start, shift)).values():
                assert {rack_of[replica] for replica in replicas} == {"a", "b", "c"}


@pytest.mark.row("R02")
def test_brokers_are_taken_from_the_racks_in_turn() -> None:
    """Racks by name, ids inside; a rack that is exhausted is left out."""
    given = [BrokerRack(0, "b"), BrokerRack(1, "a"), BrokerRack(2, "b"), BrokerRack(3, "c"), BrokerRack(4, "b")]
    assert rack_alternated(given) == [1, 0, 3, 2, 4]


@pytest.mark.row("R02")
def test_racks_on_some_brokers_only_are_an_error() -> None:
    """Kafka refuses to guess what rack a broker without one is in."""
    with pytest.raises(IncompleteRacks) as refusal:
        assign_replicas([BrokerRack(0, "a"), BrokerRack(1)], 1, 1, random=Drawn())
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("partitions", "replication_factor", "kind"),
    [
        (0, 1, InvalidPartitions),
        (-1, 1, InvalidPartitions),
        (1, 0, InvalidReplicationFactor),
        (1, 3, InvalidReplicationFactor),
    ],
)
def test_impossible_counts_are_refused(partitions: int, replication_factor: int, kind: type[Exception]) -> None:
    """No partitions, no replicas, more replicas than brokers."""
    with pytest.raises(kind):
        assign_replicas(brokers(0, 1), partitions, replication_factor, random=Drawn())


@pytest.mark.row("R10")
def test_an_expansion_continues_the_creation() -> None:
    """Two partitions created and grown to five are placed as five created at once ."""
    five = brokers(0, 1, 2, 3, 4)
    created = assign_replicas(five, 2, 1, random=Drawn(3, 0))
    assert created == {0: [3], 1: [4]}
    assert expand("t", created, five, 5, random=Drawn()) == {2: [0], 3: [1], 4: [2]}


@pytest.mark.row("R10")
def test_where_the_first_leader_is_gone_the_next_higher_id_is_the_start() -> None:
    """Partition 0's leader was broker 1; without it the order goes on from broker 2."""
    assert expand("t", {0: [1], 1: [2]}, brokers(0, 2, 3), 4, random=Drawn()) == {2: [0], 3: [2]}


@pytest.mark.row("R10")
def test_brokers_in_any_order_give_one_order() -> None:
    """The document's defect: created over [1, 0, 2] and expanded over [0, 1, 2]; here both see the same list."""
    live = brokers(1, 0, 2)
    created = assign_replicas(in_creation_order(live), 2, 1, random=Drawn(1, 0))
    added = expand("t", created, in_creation_order(live), 3, random=Drawn())
    assert sorted(replicas[0] for replicas in (created | added).values()) == [0, 1, 2]


@pytest.mark.row("R10")
def test_a_topic_made_over_another_order_is_continued_in_its_own() -> None:
    """The document's topic itself, leaders 1 and 0, made by Kafka: partition 2 goes to broker 2, which has nothing."""
    existing = {0: [1], 1: [0]}
    assert expand("t", existing, in_creation_order(brokers(1, 0, 2)), 3, random=Drawn()) == {2: [0]}, "Kafka's defect"
    assert expand("t", existing, in_order_of(existing, brokers(1, 0, 2)), 3, random=Drawn()) == {2: [2]}


@pytest.mark.row("R10")
@pytest.mark.parametrize(
    ("leaders", "order"),
    [
        ([1, 2], [0, 1, 2]),
        ([2, 0, 1, 2], [0, 1, 2]),
        ([1, 0], [1, 0, 2]),
        ([2, 1, 0, 2, 1], [2, 1, 0]),
        ([1, 1], [0, 1, 2]),
        ([0, 2, 1, 1], [0, 1, 2]),
        ([9, 0], [0, 1, 2]),
    ],
)
def test_the_order_of_a_creation_is_read_from_its_leaders(leaders: list[int], order: list[int]) -> None:
    """By id if that fits, else the leaders' own order, and by id again where there is none, or where one is gone."""
    existing = {partition: [leader] for partition, leader in enumerate(leaders)}
    assert [broker.id for broker in in_order_of(existing, brokers(2, 0, 1))] == order


@pytest.mark.row("R02")
@pytest.mark.row("R10")
@pytest.mark.parametrize("start", [0, 1, 2])
def test_an_expansion_over_racks_continues_the_creation(start: int) -> None:
    """The list goes 0, 2, 1 here; Kafka counts on from the place by id, and puts partition 2 on a broker in use."""
    live = [BrokerRack(0, "a"), BrokerRack(1, "a"), BrokerRack(2, "b")]
    created = assign_replicas(live, 2, 1, random=Drawn(start, 0))
    at_once = assign_replicas(live, 7, 1, random=Drawn(start, 0))
    begun = creation_start(created, live)
    assert begun == start
    assert created | expand("t", created, live, 7, random=Drawn(), start=begun) == at_once
    kafkas = created | expand("t", created, live, 3, random=Drawn())
    assert (len({replicas[0] for replicas in kafkas.values()}) == 3) is (start == 0)


def test_the_start_of_a_creation_is_not_known_without_racks_or_leader() -> None:
    """Then an expansion begins as Kafka's does."""
    assert creation_start({0: [1]}, brokers(0, 1)) is None
    assert creation_start({0: [7]}, [BrokerRack(0, "a"), BrokerRack(1, "b")]) is None
    assert creation_start({1: [0]}, [BrokerRack(0, "a")]) is None


def test_a_topic_without_partition_0_cannot_be_expanded() -> None:
    """Replication factor and order come from partition 0."""
    with pytest.raises(MissingFirstPartition):
        expand("t", {1: [0]}, brokers(0, 1), 3, random=Drawn())
