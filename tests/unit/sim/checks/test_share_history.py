"""What members of a share group may get again (invariant 22), and when (24)."""

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
        self.now_s = 0.0

    def history(self) -> ShareHistory:
        def presumed(_: TopicPartition, broker: int) -> Leadership | None:
            return (broker, self.presumed[broker]) if broker in self.presumed else None

        return ShareHistory("shares", 5, lambda _: self.stored, presumed, lock_s=2.0, now=lambda: self.now_s)


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


class Held:
    """Records 40 to 48, which member a has got with a fetch from 1.0 to 1.1 s."""

    def __init__(self) -> None:
        self.leaders = Leaders()
        self.history = self.leaders.history()
        self.is_whole = True
        self.leaders.now_s = 1.0
        asked = self.history.asks(PARTITION, 4)
        self.leaders.now_s = 1.1
        lock = self.history.acquired(PARTITION, "a", 40, 48, 1, asked, lambda: self.is_whole)
        assert lock is not None
        self.lock = lock

    def is_violated(self, asked_s: float, answered_s: float) -> bool:
        """Whether it shows that member b gets one of them."""
        self.leaders.now_s = asked_s
        asked = self.history.asks(PARTITION, 4)
        self.leaders.now_s = answered_s
        try:
            self.history.acquired(PARTITION, "b", 44, 44, 2, asked)
        except InvariantBrokenError as broken:
            return broken.number == 24
        return False


def test_a_record_that_is_locked_goes_to_no_other_member() -> None:
    assert Held().is_violated(1.1, 2.9)


def test_a_lock_may_end_with_its_time() -> None:
    assert not Held().is_violated(1.1, 3.0)


def test_of_fetches_at_one_time_either_may_be_the_later_one() -> None:
    assert not Held().is_violated(1.05, 1.2)


def test_a_lock_may_end_with_what_its_member_says() -> None:
    held = Held()
    held.lock.is_given_up = True
    assert not held.is_violated(1.2, 1.3)


def test_a_lock_ends_with_its_connection() -> None:
    held = Held()
    held.is_whole = False
    assert not held.is_violated(1.2, 1.3)


def test_a_lock_ends_with_the_leadership() -> None:
    held = Held()
    held.leaders.presumed[4] = 2
    assert not held.is_violated(1.2, 1.3)


def test_a_lock_that_was_given_while_leaders_changed_is_not_known_of() -> None:
    leaders = Leaders()
    history = leaders.history()
    asked = history.asks(PARTITION, 4)
    leaders.presumed[4] = 2
    assert history.acquired(PARTITION, "a", 40, 48, 1, asked) is None


def test_what_was_released_comes_once_more() -> None:
    leaders = Leaders()
    history = leaders.history()
    history.acquired(PARTITION, "a", 40, 41, 1, history.asks(PARTITION, 4))
    history.releases(PARTITION, "a", 40, 41, 1)
    history._locks[PARTITION][40].is_given_up = True
    history.acquired(PARTITION, "b", 40, 40, 2, history.asks(PARTITION, 4))
    with pytest.raises(InvariantBrokenError, match="41 was released by a and came no more"):
        history.check_final([PARTITION])
    history.unanswered([PARTITION])
    history.check_final([PARTITION])
    history.releases(PARTITION, "a", 40, 41, 5)
    history.check_final([PARTITION])


def test_a_release_after_the_lock_has_ended_promises_nothing() -> None:
    """Another member may have had the record since, and released it for the last time."""
    leaders = Leaders()
    history = leaders.history()
    history.acquired(PARTITION, "a", 40, 41, 4, history.asks(PARTITION, 4))
    leaders.now_s = 3.0
    history.releases(PARTITION, "a", 40, 41, 4)
    history.check_final([PARTITION])
