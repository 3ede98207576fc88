"""The checker of our own client's users sees what it is there to see."""

from __future__ import annotations

import pytest
from sim.checks.client_history import SETTLED_S, ClientHistory, GroupWatch, Incarnation, value_for
from sim.invariants import InvariantBrokenError

from tidelog.model.identifiers import TopicPartition

PARTITION = TopicPartition("topic", 0)
HERE = Incarnation(PARTITION, 0)


class Clock:
    """Time that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def history_of(*numbers: int) -> tuple[ClientHistory, GroupWatch]:
    """Records of one producer that were acknowledged, in the order of their offsets."""
    history, watch = ClientHistory(Clock()), GroupWatch("group", Clock())
    for offset, number in enumerate(numbers):
        history.delivered(value_for("producer", 0, number), PARTITION, offset)
    return history, watch


def test_what_is_acknowledged_and_not_read() -> None:
    """It is named while it is missing, and at the end."""
    history, watch = history_of(0, 1)
    history.consumed(watch, "member", PARTITION, 0, value_for("producer", 0, 0))
    assert watch.unread(history.acknowledged) == ["group was given topic-0 up to 1 of 2"]
    history.consumed(watch, "member", PARTITION, 1, value_for("producer", 0, 1))
    assert watch.unread(history.acknowledged) == []
    history.check_final([HERE])


def test_what_was_acknowledged_nowhere_and_is_not_read() -> None:
    """A duplicate is acknowledged without an offset."""
    history, _ = history_of()
    history.delivered(value_for("producer", 0, 0), PARTITION, -1)
    with pytest.raises(InvariantBrokenError, match="acknowledged in topic-0 and is not read"):
        history.check_final([HERE])


def test_what_is_left_out() -> None:
    """A group that goes on behind a record that none of its members was given."""
    history, watch = history_of(0, 1)
    with pytest.raises(InvariantBrokenError, match="is given offset 1 of topic-0, and nobody was given 0"):
        history.consumed(watch, "member", PARTITION, 1, value_for("producer", 0, 1))


def test_a_record_twice() -> None:
    """One value at two offsets."""
    history, watch = history_of(0)
    history.consumed(watch, "member", PARTITION, 0, value_for("producer", 0, 0))
    with pytest.raises(InvariantBrokenError, match="stands at 0 of topic-0, and again at 1"):
        history.consumed(watch, "member", PARTITION, 1, value_for("producer", 0, 0))


def test_records_out_of_order() -> None:
    """The second one stands before the first one."""
    history, _ = history_of(1, 0)
    with pytest.raises(InvariantBrokenError, match="stands at 1, behind number 1 of its producer"):
        history.check_final([HERE])


def test_the_next_topic_of_a_name_begins_anew() -> None:
    """Offsets of the former one mean nothing in it."""
    history, watch = history_of(0, 1)
    history.consumed(watch, "member", PARTITION, 0, value_for("producer", 1, 7))
    assert watch.unread({Incarnation(PARTITION, 1): 1}) == []


def test_a_rebalance_without_a_cause() -> None:
    """A group that has been at rest for a while gives nothing up, until somebody joins; and nothing is ever lost."""
    clock = Clock()
    watch = GroupWatch("group", clock)
    watch.caused("member joined")
    watch.looked_at([PARTITION], [PARTITION])
    watch.gave_up("member", [PARTITION])
    clock.now = SETTLED_S
    watch.looked_at([PARTITION], [PARTITION])
    with pytest.raises(InvariantBrokenError, match="at rest since member joined"):
        watch.gave_up("member", [PARTITION])
    watch.caused("other joined")
    watch.gave_up("member", [PARTITION])
    with pytest.raises(InvariantBrokenError, match="member has lost topic-0"):
        watch.lost("member", [PARTITION])


def test_a_loss_in_a_rebalance_whose_coordinator_moves() -> None:
    """Members that have joined a generation of which the next coordinator knows nothing lose what they had."""
    clock, coordinators = Clock(), [1, 1]
    watch = GroupWatch("group", clock, lambda: tuple(coordinators))
    watch.looked_at([PARTITION], [PARTITION])
    clock.now = SETTLED_S
    watch.looked_at([PARTITION], [PARTITION])
    coordinators[:] = 2, 2
    with pytest.raises(InvariantBrokenError, match="member has lost topic-0"):
        watch.lost("member", [PARTITION])
    watch.caused("other joined")
    watch.lost("member", [PARTITION])
