"""The examples by which users learn assignment: the same members and topics, the same outcome."""

from __future__ import annotations

import pytest
from tests.unit.assignors.groups import after, assigned, members, owning, partitions, topics

from tidelog.assignors import CONSUMERS, assignor_named
from tidelog.assignors.assignor import MemberId
from tidelog.assignors.range import RangeAssignor
from tidelog.assignors.round_robin import RoundRobinAssignor
from tidelog.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

THREE_WITH_FOUR_TOPICS = members(c0="t0 t1 t2 t3", c1="t0 t1 t2 t3", c2="t0 t1 t2 t3")
FOUR_TOPICS = topics(t0=2, t1=2, t2=2, t3=2)
DEALT = {"c0": "t0p0 t1p1 t3p0", "c1": "t0p1 t2p0 t3p1", "c2": "t1p0 t2p1"}


@pytest.mark.row("R15")
@pytest.mark.parametrize("name", CONSUMERS)
def test_one_to_eight_members_share_seven_partitions(name: str) -> None:
    """Each partition has one member at any size of the group, shares differ by one, and the eighth member is idle."""
    assignor = assignor_named(name)
    for size in range(1, 9):
        group = members(**{f"c{number}": "t" for number in range(size)})
        outcome = assignor.assign(group, topics(t=7))
        owned = sorted(each for assignment in outcome.values() for each in assignment.partitions)
        assert owned == [("t", partition) for partition in range(7)]
        loads = [len(assignment.partitions) for assignment in outcome.values()]
        assert max(loads) - min(loads) <= 1
        assert loads.count(0) == (1 if size == 8 else 0)


@pytest.mark.row("R15")
@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_the_eighth_of_seven_gets_nothing(name: str) -> None:
    """It is the last one by name that stays idle."""
    outcome = assigned(assignor_named(name), members(**{f"c{number}": "t" for number in range(8)}), topics(t=7))
    assert outcome["c7"] == ""


@pytest.mark.row("R16")
def test_range_with_even_topics() -> None:
    """Two topics of four: both members get the same half of each."""
    assert assigned(RangeAssignor(), members(c0="t0 t1", c1="t0 t1"), topics(t0=4, t1=4)) == {
        "c0": "t0p0 t0p1 t1p0 t1p1",
        "c1": "t0p2 t0p3 t1p2 t1p3",
    }


@pytest.mark.row("R16")
def test_range_with_odd_topics() -> None:
    """Two topics of three: the first member gets the odd one of each, so shares are 4 and 2."""
    assert assigned(RangeAssignor(), members(c0="t0 t1", c1="t0 t1"), topics(t0=3, t1=3)) == {
        "c0": "t0p0 t0p1 t1p0 t1p1",
        "c1": "t0p2 t1p2",
    }


@pytest.mark.row("R17")
def test_round_robin_with_equal_subscriptions() -> None:
    """What range makes 4 and 2 of is 3 and 3 here."""
    assert assigned(RoundRobinAssignor(), members(c0="t0 t1", c1="t0 t1"), topics(t0=3, t1=3)) == {
        "c0": "t0p0 t0p2 t1p1",
        "c1": "t0p1 t1p0 t1p2",
    }


@pytest.mark.row("R17")
def test_round_robin_with_unequal_subscriptions() -> None:
    """A member's turn passes where it does not want the topic: t1p1 could have gone to c1, and goes to c2."""
    assert assigned(RoundRobinAssignor(), members(c0="t0", c1="t0 t1", c2="t0 t1 t2"), topics(t0=1, t1=2, t2=3)) == {
        "c0": "t0p0",
        "c1": "t1p0",
        "c2": "t1p1 t2p0 t2p1 t2p2",
    }


@pytest.mark.row("R18")
@pytest.mark.parametrize("assignor", [StickyAssignor(), CooperativeStickyAssignor()])
def test_sticky_before_anybody_left(assignor: StickyAssignor | CooperativeStickyAssignor) -> None:
    """Four topics of two, dealt to three members."""
    assert assigned(assignor, THREE_WITH_FOUR_TOPICS, FOUR_TOPICS) == DEALT


@pytest.mark.row("R18")
@pytest.mark.parametrize("assignor", [StickyAssignor(), CooperativeStickyAssignor()])
def test_sticky_after_c1_left(assignor: StickyAssignor | CooperativeStickyAssignor) -> None:
    """The others keep all they had and share what c1 had, so that both have four; none of c0's or c2's moves."""
    outcome = assignor.assign(THREE_WITH_FOUR_TOPICS, FOUR_TOPICS)
    group = after(THREE_WITH_FOUR_TOPICS, outcome)
    del group[MemberId("c1")]
    now = assigned(assignor, group, FOUR_TOPICS)
    assert now == {"c0": "t0p0 t0p1 t1p1 t3p0", "c2": "t1p0 t2p0 t2p1 t3p1"}
    assert all(set(DEALT[member].split()) < set(now[member].split()) for member in now)


@pytest.mark.row("R18")
def test_sticky_after_c1_left_to_the_letter() -> None:
    """Each of c1's goes to who has less at that moment: Kafka's only way before 2.4, still that of unequal groups."""
    outcome = StickyAssignor().assign(THREE_WITH_FOUR_TOPICS, FOUR_TOPICS)
    group = after(members(c0="t0 t1 t2 t3", c2="t0 t1 t2 t3 absent"), outcome)
    assert assigned(StickyAssignor(), group, FOUR_TOPICS) == {
        "c0": "t0p0 t1p1 t2p0 t3p0",
        "c2": "t0p1 t1p0 t2p1 t3p1",
    }


@pytest.mark.row("R18")
def test_round_robin_after_c1_left() -> None:
    """For comparison: it begins anew, and most partitions move."""
    assert assigned(RoundRobinAssignor(), members(c0="t0 t1 t2 t3", c2="t0 t1 t2 t3"), FOUR_TOPICS) == {
        "c0": "t0p0 t1p0 t2p0 t3p0",
        "c2": "t0p1 t1p1 t2p1 t3p1",
    }


@pytest.mark.row("R18")
def test_balance_comes_before_stickiness() -> None:
    """A member that owned everything gives up what is above its share."""
    group = owning(members(c0="t", c1="t"), {"c0": partitions("tp0 tp1 tp2 tp3")})
    assert assigned(StickyAssignor(), group, topics(t=4)) == {"c0": "tp0 tp1", "c1": "tp2 tp3"}
