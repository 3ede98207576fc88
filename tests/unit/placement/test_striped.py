"""The striped placement of Kafka 4.x."""

from __future__ import annotations

import pytest

from tidelog.placement.brokers import BrokerRack, InvalidReplicationFactor
from tidelog.placement.striped import striped


class Zero:
    """Draws nothing but zeros."""

    def below(self, bound: int) -> int:
        return 0

    def token(self, size: int) -> bytes:
        raise AssertionError


@pytest.mark.row("R02")
def test_stripes_go_round_the_racks() -> None:
    """Leader and followers come from three racks, and the next partition begins one rack further."""
    racked = [BrokerRack(id, rack) for id, rack in enumerate("aabbcc")]
    assert striped(racked, 3, 3, random=Zero()) == [[0, 2, 4], [3, 5, 1], [4, 0, 2]]


def test_fenced_brokers_follow_only() -> None:
    """A fenced broker leads nothing, and takes a replica when nobody else is left."""
    cluster = [BrokerRack(0), BrokerRack(1, fenced=True)]
    assert striped(cluster, 4, 2, random=Zero()) == [[0, 1]] * 4


@pytest.mark.parametrize(
    ("cluster", "replication_factor", "message"),
    [
        (
            [BrokerRack(0)],
            3,
            "The target replication factor of 3 cannot be reached because only 1 broker(s) are registered.",
        ),
        ([BrokerRack(0)], 0, "Invalid replication factor 0: the replication factor must be positive."),
        ([BrokerRack(0, fenced=True)], 1, "All brokers are currently fenced."),
        ([], 1, "All brokers are currently fenced."),
    ],
)
def test_impossible_factors_are_refused(cluster: list[BrokerRack], replication_factor: int, message: str) -> None:
    """In Kafka's words."""
    with pytest.raises(InvalidReplicationFactor) as refusal:
        striped(cluster, 1, replication_factor, random=Zero())
    assert refusal.value.message == message
