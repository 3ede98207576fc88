"""Runs of partitions, static members, and racks."""

from __future__ import annotations

from tests.unit.assignors.groups import Members, assigned, members, topics

from tidelog.assignors.assignor import MemberId, Subscription, TopicLayout
from tidelog.assignors.range import RangeAssignor
from tidelog.assignors.round_robin import RoundRobinAssignor


def layout(*racks: str) -> TopicLayout:
    """One letter a replica: `xy` is a partition with replicas in racks x and y."""
    return TopicLayout(len(racks), tuple(frozenset(each) for each in racks))


def in_racks(wanted: str, **racks: str) -> Members:
    return {MemberId(name): Subscription(frozenset(wanted.split()), rack=rack) for name, rack in racks.items()}


def test_static_members_come_first_by_their_own_names() -> None:
    """A static member keeps its run when a restart gives it another member id."""
    group = {
        MemberId("z"): Subscription(frozenset({"t"}), instance_id="one"),
        MemberId("y"): Subscription(frozenset({"t"}), instance_id="two"),
        MemberId("a"): Subscription(frozenset({"t"})),
    }
    for assignor in (RangeAssignor(), RoundRobinAssignor()):
        assert assigned(assignor, group, topics(t=3)) == {"z": "tp0", "y": "tp1", "a": "tp2"}
    restarted = {MemberId("b"): group[MemberId("z")], MemberId("y"): group[MemberId("y")]}
    assert assigned(RangeAssignor(), restarted, topics(t=3)) == {"b": "tp0 tp1", "y": "tp2"}


def test_only_subscribers_share_a_topic() -> None:
    """Each topic is cut by its own subscribers; topics that are absent, empty or unwanted are nobody's."""
    group = members(a="t absent", b="t u", c="u empty")
    assert assigned(RangeAssignor(), group, topics(t=2, u=3, empty=0, unwanted=5)) == {
        "a": "tp0",
        "b": "tp1 up0 up1",
        "c": "up2",
    }


def test_members_get_partitions_of_their_rack() -> None:
    """Quotas stay: the second member of rack x gets what is left."""
    topic = layout("x", "y", "x", "y", "x", "x")
    assert assigned(RangeAssignor(), in_racks("t", a="y", b="x", c="x"), {"t": topic}) == {
        "a": "tp1 tp3",
        "b": "tp0 tp2",
        "c": "tp4 tp5",
    }


def test_the_brokers_range_knows_no_racks() -> None:
    """The same group by the assignor of KIP-848."""
    topic = layout("x", "y", "x", "y", "x", "x")
    assert assigned(RangeAssignor(nearness=False), in_racks("t", a="y", b="x", c="x"), {"t": topic}) == {
        "a": "tp0 tp1",
        "b": "tp2 tp3",
        "c": "tp4 tp5",
    }


def test_equal_topics_stay_together() -> None:
    """Two topics of one size with the same subscribers: equal numbers meet in one member, near it where possible."""
    both = {"t": layout("x", "y"), "u": layout("x", "y")}
    assert assigned(RangeAssignor(), in_racks("t u", a="y", b="x"), both) == {"a": "tp1 up1", "b": "tp0 up0"}
    crossed = {"t": layout("x", "y"), "u": layout("y", "x")}
    assert assigned(RangeAssignor(), in_racks("t u", a="y", b="x"), crossed) == {"a": "tp0 up0", "b": "tp1 up1"}


def test_racks_that_make_no_difference_are_left_alone() -> None:
    """Replicas of everything in all racks, or members elsewhere: plain runs."""
    plain = {"a": "tp0", "b": "tp1"}
    assert assigned(RangeAssignor(), in_racks("t", a="y", b="x"), {"t": layout("xy", "xy")}) == plain
    assert assigned(RangeAssignor(), in_racks("t", a="z", b="z"), {"t": layout("x", "y")}) == plain
    assert assigned(RangeAssignor(), in_racks("t", a="y", b="x"), topics(t=2)) == plain
