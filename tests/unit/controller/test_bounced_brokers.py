"""Brokers that came back while nobody controlled: a new controller knows them by their registration's transaction."""

import pytest
from tests.unit.controller.harness import SESSION, Cluster, broker

from tidelog.metadata.operations import Create
from tidelog.metadata.replica_marks import MARKS, unclean_stop_path
from tidelog.metadata.znodes import decode_state, state_path

LATER = 1_000_000
"""A transaction after all that the test has written."""


def state(cluster: Cluster) -> tuple[int, tuple[int, ...]]:
    """Leader and ISR of the only partition, in the store."""
    data, _ = cluster.tree.get(state_path("t", 0))
    found = decode_state("t", 0, data)
    return found.leader, found.isr


def test_a_broker_that_was_away_leaves_the_isr_before_it_can_lead() -> None:
    """It may have lost what was not flushed; the others have stayed, and one of them leads."""
    cluster = Cluster(broker(0, 1), broker(1, 2), broker(2, 3))
    cluster.make("t", [0, 1, 2])
    cluster.brokers[0] = broker(0, LATER)
    cluster.term(2)
    assert state(cluster) == (1, (1, 2))


def test_a_follower_that_was_away_leaves_the_isr_and_the_leader_stays() -> None:
    """Its leader takes it in again when it has caught up."""
    cluster = Cluster(broker(0, 1), broker(1, 2), broker(2, 3))
    cluster.make("t", [0, 1, 2])
    cluster.brokers[2] = broker(2, LATER)
    cluster.term(2)
    assert state(cluster) == (0, (0, 1))


def test_where_all_were_away_nobody_is_put_behind() -> None:
    """A restart of the whole cluster leaves leaders and ISRs as they were; so does one that some have not ended yet."""
    cluster = Cluster(broker(0, 1), broker(1, 2), broker(2, 3))
    cluster.make("t", [0, 1, 2])
    cluster.brokers = {number: broker(number, LATER + number) for number in range(3)}
    cluster.term(2)
    assert state(cluster) == (0, (0, 1, 2))
    cluster.brokers = {0: broker(0, LATER * 2)}
    cluster.term(3)
    assert state(cluster) == (0, (0,))


@pytest.mark.parametrize(("reborn", "expected"), [(0, (1, (1, 2))), (2, (0, (0, 1)))], ids=["the leader", "a follower"])
def test_a_state_that_was_on_its_way_while_a_broker_died_and_came_back(
    reborn: int, expected: tuple[int, tuple[int, ...]]
) -> None:
    """The write is younger than the registration, and names the broker as it was before: its mark says so."""
    cluster = Cluster(broker(0, 1), broker(1, 2), broker(2, 3))
    cluster.make("t", [0, 1, 2])
    cluster.brokers[reborn] = broker(reborn, 4)
    for operation in (Create(MARKS), Create(unclean_stop_path(reborn), b"")):
        cluster.tree.transact(SESSION, [operation], 0)
    cluster.term(2)
    assert state(cluster) == expected
