"""What the sticky assignors keep, whom they believe, and what they withhold."""

from __future__ import annotations

import dataclasses

import pytest
from tests.unit.assignors.groups import Members, after, assigned, members, owning, partitions, topics

from tidelog.assignors import ownership
from tidelog.assignors.assignor import MemberId, Subscription, TopicLayout, is_cooperative, user_data_of
from tidelog.assignors.range import RangeAssignor
from tidelog.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from tidelog.model.identifiers import TopicPartition

STICKY = StickyAssignor()
COOPERATIVE = CooperativeStickyAssignor()


def claiming(group: Members, member: str, claim: str, generation: int | None = 1) -> Members:
    """The group, and one member's word for what it owns."""
    owned = partitions(claim)
    changed = dataclasses.replace(
        group[MemberId(member)],
        owned=owned,
        generation=generation,
        user_data=None if generation is None else ownership.encode(owned, generation),
    )
    return group | {MemberId(member): changed}


def test_a_balanced_group_does_not_move() -> None:
    """The same question again, whatever the order of members and topics, has the same answer."""
    group, layout = members(a="t u", b="t u", c="u t"), topics(t=5, u=3)
    outcome = STICKY.assign(group, layout)
    again = dict(reversed(after(group, outcome).items()))
    assert STICKY.assign(again, dict(reversed(layout.items()))) == dict(reversed(outcome.items()))


def test_the_higher_generation_keeps_what_two_claim() -> None:
    """A member that was away claims what another one got meanwhile, and is not believed."""
    group = claiming(members(a="t", b="t"), "a", "tp0 tp1 tp2", generation=4)
    group = claiming(group, "b", "tp2 tp3", generation=5)
    assert assigned(STICKY, group, topics(t=4)) == {"a": "tp0 tp1", "b": "tp2 tp3"}


def test_two_claims_of_one_generation_are_both_dropped() -> None:
    """The partition is given anew, to one of them or to a third, and never stays with both."""
    group = claiming(members(a="t", b="t", c="t"), "a", "tp0 tp1")
    group = claiming(group, "b", "tp1 tp2")
    assert assigned(STICKY, group, topics(t=3)) == {"a": "tp0", "b": "tp2", "c": "tp1"}


def test_what_is_doubly_claimed_is_withheld_until_nobody_has_it() -> None:
    """Cooperative members that both consume a partition both stop, before anybody gets it."""
    group = claiming(members(a="t", b="t"), "a", "tp0 tp1")
    group = claiming(group, "b", "tp1 tp2 tp3")
    first = assigned(COOPERATIVE, group, topics(t=4))
    assert first == {"a": "tp0", "b": "tp2 tp3"}
    second = claiming(claiming(group, "a", first["a"], 2), "b", first["b"], 2)
    assert assigned(COOPERATIVE, second, topics(t=4)) == {"a": "tp0 tp1", "b": "tp2 tp3"}


def test_cooperative_hands_over_in_two_steps() -> None:
    """What moves is withheld in the first rebalance, and given in the second."""
    group = claiming(members(a="t", b="t"), "a", "tp0 tp1 tp2 tp3")
    first = COOPERATIVE.assign(group, topics(t=4))
    assert {member: given.partitions for member, given in first.items()} == {
        "a": partitions("tp0 tp1"),
        "b": (),
    }
    assert assigned(COOPERATIVE, after(group, first, 2), topics(t=4)) == {"a": "tp0 tp1", "b": "tp2 tp3"}


def test_cooperative_withholds_with_unequal_subscriptions_too() -> None:
    """The general way has the same two steps."""
    group = claiming(members(a="t u", b="t"), "a", "tp0 tp1 up0")
    first = COOPERATIVE.assign(group, topics(t=2, u=1))
    assert all(not set(given.partitions) & set(partitions("tp0")) for given in first.values())
    assert assigned(COOPERATIVE, after(group, first, 2), topics(t=2, u=1)) == {"a": "tp1 up0", "b": "tp0"}


def test_a_static_member_that_restarts_without_its_generation_moves_little() -> None:
    """User data without a generation (-1, or none) still says what was owned: nothing moves for it."""
    owned = {"a": partitions("tp0 tp1"), "b": partitions("tp2 tp3")}
    group = owning(members(a="t", b="t"), owned, generation=-1)
    for _ in range(3):
        outcome = STICKY.assign(group, topics(t=4))
        assert {member: given.partitions for member, given in outcome.items()} == owned
        group = owning(group, {member: given.partitions for member, given in outcome.items()}, generation=-1)


def test_a_member_is_never_given_a_topic_that_it_left() -> None:
    """Kafka gives it back what it had in an earlier generation, which its consumer refuses, round after round."""
    group = claiming(members(a="u", b="t", c="t"), "a", "tp0", generation=1)
    group = claiming(group, "b", "tp0 tp1 tp2 tp3", generation=2)
    assert assigned(STICKY, group, topics(t=4, u=1)) == {"a": "up0", "b": "tp2 tp3", "c": "tp0 tp1"}


def test_partitions_that_are_gone_are_forgotten() -> None:
    """Claims on deleted topics, on numbers beyond the topic's end and below zero count for nothing."""
    group = claiming(members(a="t", b="t"), "a", "tp0 tp7 gonep0")
    group[MemberId("b")] = dataclasses.replace(
        group[MemberId("b")], owned=(TopicPartition("t", -1),), user_data=ownership.encode([TopicPartition("t", -1)], 1)
    )
    for assignor in (STICKY, COOPERATIVE):
        assert assigned(assignor, group, topics(t=2)) == {"a": "tp0", "b": "tp1"}


def test_a_member_that_leaves_moves_only_its_own() -> None:
    """A group of 3 on 9 partitions loses one: six stay where they are."""
    group = members(a="t", b="t", c="t")
    outcome = STICKY.assign(group, topics(t=9))
    rest = {member: each for member, each in after(group, outcome).items() if member != "b"}
    now = STICKY.assign(rest, topics(t=9))
    assert all(set(outcome[member].partitions) <= set(now[member].partitions) for member in rest)


def test_racks_are_minded_where_shares_allow() -> None:
    """Each member gets the partitions of its rack, and gives up those that are elsewhere."""
    layout = {"t": TopicLayout(4, tuple(frozenset({rack}) for rack in "xyxy"))}
    group = {
        MemberId("a"): Subscription(frozenset({"t"}), rack="y"),
        MemberId("b"): Subscription(frozenset({"t"}), rack="x"),
    }
    assert assigned(STICKY, group, layout) == {"a": "tp1 tp3", "b": "tp0 tp2"}
    owned = {"a": partitions("tp0 tp1"), "b": partitions("tp2 tp3")}
    assert assigned(STICKY, owning(group, owned), layout) == {"a": "tp1 tp3", "b": "tp0 tp2"}


def test_nobody_and_nothing_are_fine() -> None:
    """No members, no topics, no partitions: an answer for each member there is."""
    assert STICKY.assign({}, topics(t=1)) == {}
    assert assigned(STICKY, members(a="absent", b="absent"), topics(t=1)) == {"a": "", "b": ""}
    assert assigned(STICKY, members(a="", b="t"), topics(t=1)) == {"a": "", "b": "tp0"}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("0000000100027431000000010000000000000000", ((TopicPartition("t1", 0),), 0)),
        ("00000001000274310000000100000000", ((TopicPartition("t1", 0),), None)),
        ("00000000ffffffff", ((), -1)),
        ("7fffffff000274310000000100000000", ((), None)),
        ("ffffffff", ((), None)),
        ("00", ((), None)),
        ("", ((), None)),
    ],
)
def test_user_data_of_both_versions(data: str, expected: tuple[tuple[TopicPartition, ...], int | None]) -> None:
    """Version 1 has a generation behind it, version 0 has none; anything else owns nothing."""
    assert ownership.decode(bytes.fromhex(data)) == expected


def test_user_data_is_kafkas() -> None:
    """What a member sends is what Kafka's would, and is read back."""
    data = user_data_of(STICKY, partitions("t1p0"), 0)
    assert data is not None
    assert data.hex() == "0000000100027431000000010000000000000000"
    assert user_data_of(STICKY, (), None) is None
    assert user_data_of(COOPERATIVE, (), 7) == bytes.fromhex("00000007")
    assert user_data_of(COOPERATIVE, (), None) == bytes.fromhex("ffffffff")
    assert user_data_of(RangeAssignor(), (), 7) is None
    assert [is_cooperative(each) for each in (STICKY, COOPERATIVE, RangeAssignor())] == [False, True, False]


def test_a_cooperative_generation_may_stand_in_user_data() -> None:
    """Clients before KIP-792 tell it there: the later of two claims wins all the same."""
    group = members(a="t", b="t")
    for member, owned, generation in (("a", "tp0 tp1", 3), ("b", "tp1", 4)):
        group[MemberId(member)] = dataclasses.replace(
            group[MemberId(member)],
            owned=partitions(owned),
            user_data=ownership.encode_generation(generation),
        )
    assert assigned(COOPERATIVE, group, topics(t=2)) == {"a": "tp0", "b": "tp1"}
