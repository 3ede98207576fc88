"""From which replica a partition is read."""

from __future__ import annotations

from tidelog.client.addresses import Address
from tidelog.client.near_replicas import AWAY_S, NearReplicas
from tidelog.client.routing import Routing
from tidelog.client.views import Broker
from tidelog.model.identifiers import TopicPartition

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
LEADER, FOLLOWER = Broker(1, Address("a", 1), "a"), Broker(2, Address("b", 1), "b")


class Clock:
    """A test's own."""

    def __init__(self) -> None:
        self.now = 100.0


def replicas(clock: Clock, rack: str = "b") -> tuple[Routing, NearReplicas]:
    """Those of a reader in `rack`, which may be read for a minute."""
    routing = Routing([LEADER.address], now=lambda: clock.now, draw=lambda: 0.5)
    routing.brokers = {1: LEADER, 2: FOLLOWER}
    return routing, NearReplicas(routing, rack, 60.0)


def test_a_choice_is_kept_until_it_is_old() -> None:
    """Then the leader is asked, which may name another one."""
    clock = Clock()
    _, near = replicas(clock)
    assert near.source(TP, LEADER) is LEADER
    near.prefer(TP, 2)
    clock.now += 59
    assert (near.source(TP, LEADER), near.source(OTHER, LEADER)) == (FOLLOWER, LEADER)
    clock.now += 1
    assert near.source(TP, LEADER) is LEADER
    assert near.rack_for([TP]) == "b"


def test_after_a_failure_the_leader_is_not_told_the_rack() -> None:
    """It would send the reader back to the follower that failed, without records."""
    clock = Clock()
    _, near = replicas(clock)
    near.prefer(TP, 2)
    near.leave(TP)
    assert near.source(TP, LEADER) is LEADER
    assert (near.rack_for([TP, OTHER]), near.rack_for([OTHER])) == ("", "b")
    clock.now += AWAY_S
    assert near.rack_for([TP]) == "b"
    near.leave(TP)
    near.forget(TP)
    assert near.rack_for([TP]) == "b"


def test_a_follower_that_metadata_does_not_know_is_none() -> None:
    """It has gone since it was named, or is not known yet: the leader is read, with records."""
    clock = Clock()
    routing, near = replicas(clock)
    near.prefer(TP, 3)
    assert (near.source(TP, LEADER), near.rack_for([TP])) == (LEADER, "")
    near.prefer(OTHER, 2)
    del routing.brokers[2]
    assert near.source(OTHER, LEADER) is LEADER


def test_without_a_rack_none_is_named() -> None:
    """Brokers then answer with records."""
    _, near = replicas(Clock(), "")
    near.leave(TP)
    assert near.rack_for([TP]) == ""
