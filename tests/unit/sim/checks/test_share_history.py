"""What members of a share group may get again, and what not (invariant 22)."""

from __future__ import annotations

import pytest
from sim.checks.share_history import Leadership, ShareHistory
from sim.invariants import InvariantBrokenError

from tidelog.model.identifiers import TopicPartition

PARTITION = TopicPartition("kept", 0)


class Leaders:
    """Who leads the partition, as the store says and as brokers think."""

    def __init__(self) -> None:
        self.stored: Leadership | None = (4, 0)
        self.presumed: dict[int, int] = {4: 0}

    def history(self) -> ShareHistory:
        def presumed(_: TopicPartition, broker: int) -> Leadership | None:
            return (broker, self.presumed[broker]) if broker in self.presumed else None

        return ShareHistory("shares", 5, lambda _: self.stored, presumed)


def test_a_leader_that_delivers_what_was_acknowledged_is_found_out() -> None:
    history = Leaders().history()
    history.accepted(PARTITION, "a", 43, 48)
    with pytest.raises(InvariantBrokenError, match="43 goes to b after a was done"):
        history.acquired(PARTITION, "b", 40, 48, 1, history.asks(PARTITION, 4))


def test_what_was_acknowledged_after_the_question_may_be_in_its_answer() -> None:
    history = Leaders().history()
    asked = history.asks(PARTITION, 4)
    history.accepted(PARTITION, "a", 43, 48)
    history.acquired(PARTITION, "b", 43, 48, 1, asked)


def test_a_deposed_leader_that_has_not_heard_of_it_does_not_know_what_its_successor_was_told() -> None:
    leaders = Leaders()
    history = leaders.history()
    leaders.stored, leaders.presumed[3] = (3, 1), 1
    history.accepted(PARTITION, "a", 43, 48)
    history.acquired(PARTITION, "b", 43, 48, 1, history.asks(PARTITION, 4))
    assert history.by_deposed == 6
    with pytest.raises(InvariantBrokenError):
        history.acquired(PARTITION, "b", 43, 48, 1, history.asks(PARTITION, 3))


def test_a_leader_that_was_elected_again_and_has_heard_of_it_has_to_know() -> None:
    leaders = Leaders()
    history = leaders.history()
    history.accepted(PARTITION, "a", 43, 48)
    leaders.stored = (4, 2)
    history.acquired(PARTITION, "b", 43, 48, 1, history.asks(PARTITION, 4))
    leaders.presumed[4] = 2
    with pytest.raises(InvariantBrokenError):
        history.acquired(PARTITION, "b", 43, 48, 1, history.asks(PARTITION, 4))


def test_a_lone_broker_always_knows() -> None:
    leaders = Leaders()
    leaders.stored, leaders.presumed = None, {}
    history = leaders.history()
    history.accepted(PARTITION, "a", 43, 48)
    with pytest.raises(InvariantBrokenError):
        history.acquired(PARTITION, "b", 43, 48, 1, history.asks(PARTITION, 0))


def test_a_record_is_not_delivered_more_often_than_it_may_be() -> None:
    history = Leaders().history()
    asked = history.asks(PARTITION, 4)
    history.acquired(PARTITION, "a", 43, 48, 5, asked)
    with pytest.raises(InvariantBrokenError):
        history.acquired(PARTITION, "a", 43, 48, 6, asked)
