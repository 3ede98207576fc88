"""The striped placement without Kafka's two weaknesses."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.unit.placement.test_striped import Zero

from tidelog.placement.brokers import BrokerRack, InvalidReplicationFactor
from tidelog.placement.even_stripes import place_evenly
from tidelog.placement.striped import striped


class Fixed:
    """Draws one number."""

    def __init__(self, drawn: int) -> None:
        self.drawn = drawn

    def below(self, bound: int) -> int:
        return self.drawn % bound

    def token(self, size: int) -> bytes:
        raise AssertionError


def leaders(placed: Sequence[Sequence[int]], brokers: int) -> list[int]:
    return [sum(replicas[0] == broker for replicas in placed) for broker in range(brokers)]


NINE = [BrokerRack(broker, "abc"[broker // 3]) for broker in range(9)]


@pytest.mark.row("R02")
@pytest.mark.parametrize("start", range(9))
@pytest.mark.parametrize("partitions", [9, 27])
def test_leaders_do_not_resonate(partitions: int, start: int) -> None:
    """Nine brokers in three racks: Kafka's has six that lead nothing at nine partitions; here all lead as many."""
    assert max(leaders(striped(NINE, 9, 3, random=Zero()), 9)) == 3
    placed = place_evenly(NINE, partitions, 3, random=Fixed(start))
    assert set(leaders(placed, 9)) == {partitions // 9}
    for replicas in placed:
        assert len({broker // 3 for broker in replicas}) == 3
    held = [sum(broker in replicas for replicas in placed) for broker in range(9)]
    assert max(held) - min(held) <= 1


@pytest.mark.row("R10")
@pytest.mark.parametrize("start", range(3))
def test_an_expansion_lands_on_the_unused_broker(start: int) -> None:
    """From 2 to 3 partitions over 3 brokers: the third one, whichever brokers the first two are on."""
    brokers = [BrokerRack(broker) for broker in range(3)]
    for used in ((0, 1), (1, 0), (2, 0), (1, 2)):
        existing = {0: [used[0]], 1: [used[1]]}
        [[added]] = place_evenly(brokers, 1, 1, random=Fixed(start), existing=existing)
        assert added not in used


def test_growth_step_by_step_is_as_even_as_at_once() -> None:
    """One partition after the other, each broker leads as many, though every step draws anew."""
    existing: dict[int, list[int]] = {}
    for number in range(18):
        [replicas] = place_evenly(NINE, 1, 3, random=Fixed(number * 5), existing=existing)
        existing[number] = replicas
    assert set(leaders(list(existing.values()), 9)) == {2}


def test_racks_of_unequal_size_and_fenced_brokers() -> None:
    """No rack twice while one is unused; what is fenced leads nothing, and follows where nobody else is left."""
    cluster = [BrokerRack(0, "a"), BrokerRack(1, "b"), BrokerRack(2, "b"), BrokerRack(3, "c", fenced=True)]
    for replicas in place_evenly(cluster, 12, 3, random=Zero()):
        assert replicas[0] != 3
        assert {cluster[broker].rack for broker in replicas} == {"a", "b", "c"}
    assert place_evenly([BrokerRack(0), BrokerRack(1, fenced=True)], 2, 2, random=Zero()) == [[0, 1]] * 2


@pytest.mark.parametrize(
    ("cluster", "replication_factor", "message"),
    [
        ([BrokerRack(0)], 3, "The target replication factor of 3 cannot be reached because only 1 broker"),
        ([BrokerRack(0)], 0, "the replication factor must be positive"),
        ([BrokerRack(0, fenced=True)], 1, "All brokers are currently fenced."),
        ([], 1, "All brokers are currently fenced."),
    ],
)
def test_impossible_factors_are_refused(cluster: list[BrokerRack], replication_factor: int, message: str) -> None:
    with pytest.raises(InvalidReplicationFactor) as refusal:
        place_evenly(cluster, 1, replication_factor, random=Zero())
    assert message in refusal.value.message
