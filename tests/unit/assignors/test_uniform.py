"""The broker's uniform assignor (KIP-848)."""

from __future__ import annotations

from tests.unit.assignors.groups import after, assigned, members, owning, partitions, topics

from tidelog.assignors.assignor import MemberId
from tidelog.assignors.uniform import UniformAssignor

UNIFORM = UniformAssignor()


def test_whoever_has_the_larger_share_keeps_it() -> None:
    """Three shares of four and one of five: no order of members makes a balanced group move."""
    owned = {"a": partitions("tp0"), "b": partitions("tp1"), "c": partitions("tp2 tp3")}
    for wanted in (members(a="t", b="t", c="t"), members(c="t", a="t", b="t")):
        outcome = UNIFORM.assign(owning(wanted, owned), topics(t=4))
        assert {member: given.partitions for member, given in outcome.items()} == owned


def test_one_that_joins_gets_what_is_above_the_others_quotas() -> None:
    """Three of nine move, and no others."""
    group = owning(members(a="t", b="t", c="t"), {"a": partitions("tp0 tp1 tp2 tp3 tp4"), "b": partitions("tp5 tp6")})
    assert assigned(UNIFORM, group, topics(t=7)) == {"a": "tp0 tp1 tp2", "b": "tp5 tp6", "c": "tp3 tp4"}


def test_what_is_no_longer_wanted_goes_to_those_who_want_it() -> None:
    """Topics left, deleted or shrunk: such partitions are not kept."""
    group = owning(members(a="u", b="t u"), {"a": partitions("tp0 up0 gonep1"), "b": partitions("up1 up9")})
    assert assigned(UNIFORM, group, topics(t=1, u=2)) == {"a": "up0", "b": "tp0 up1"}


def test_unequal_subscriptions_are_levelled() -> None:
    """The one who wants just one topic gets most of it, since the others have the rest to themselves."""
    group = members(a="t", b="t u", c="u")
    outcome = assigned(UNIFORM, group, topics(t=4, u=4))
    assert sorted(len(owned.split()) for owned in outcome.values()) == [2, 3, 3]


def test_unequal_groups_do_not_move_either() -> None:
    """Asked again with what it gave, it gives the same."""
    group = members(a="t v", b="t u", c="u v", d="t")
    layout = topics(t=7, u=4, v=5)
    outcome = UNIFORM.assign(group, layout)
    assert UNIFORM.assign(after(group, outcome), layout) == outcome


def test_nobody_and_nothing_are_fine() -> None:
    """No members, or none that wants anything that exists."""
    assert UNIFORM.assign({}, topics(t=1)) == {}
    assert assigned(UNIFORM, members(a="absent", b=""), topics(t=1)) == {"a": "", "b": ""}
    assert assigned(UNIFORM, {MemberId("a"): members(a="t")[MemberId("a")]}, topics(t=0)) == {"a": ""}
