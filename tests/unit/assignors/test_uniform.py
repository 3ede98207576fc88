"""The broker's uniform assignor (KIP-848)."""

from __future__ import annotations

from tests.unit.assignors.groups import after, assigned, members, owning, partitions, topics

from tidelog.assignors.assignor import MemberId
from tidelog.assignors.hash_order import numbers_in_order, strings_in_order, topic_rank, topics_in_order
from tidelog.assignors.uniform import UniformAssignor
from tidelog.model.identifiers import TopicId

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


# Of answers that are equally good Kafka's is the one that its hash tables' order leads to. These are Kafka 4.3's.


def test_as_kafka_where_two_may_get_the_larger_share() -> None:
    """The last member in Kafka's order, which is neither that of names nor of coming."""
    first, second = "b6ec60bb72d35891-1", "294c115c185d14ae-2"
    group = owning(members(**{first: "t", second: "t"}), {first: partitions("tp0 tp1"), second: partitions("tp2 tp3")})
    assert assigned(UNIFORM, group, topics(t=7)) == {first: "tp0 tp1 tp4", second: "tp2 tp3 tp5 tp6"}
    assert strings_in_order([second, first]) == [first, second]


def test_as_kafka_with_more_members_than_partitions() -> None:
    """What those who had two give up goes to the new ones in Kafka's order."""
    ids = ["de09623df1df4cea-5", "474265829e899ea8-7", "62e0492fdb1a2f64-8", "acadb09046064c48-9"]
    owned = {ids[0]: partitions("tp0 tp1"), ids[1]: partitions("tp2 tp3")}
    group = owning(members(**dict.fromkeys(ids, "t")), owned)
    assert assigned(UNIFORM, group, topics(t=4)) == {ids[0]: "tp0", ids[1]: "tp2", ids[2]: "tp3", ids[3]: "tp1"}


def test_javas_order() -> None:
    """Hashes of strings, ids and numbers, in tables that grow with what is in them."""
    assert strings_in_order(["hello", "b", "a", "q", "Aa", "BB"]) == ["Aa", "BB", "a", "q", "b", "hello"]
    assert numbers_in_order([33, 1, 16, 0]) == [0, 16, 1, 33]
    assert numbers_in_order([33, *range(14)]) == [0, 1, 33, *range(2, 14)]
    ids = {name: TopicId(bytes(7) + bytes([rank]) + bytes(8)) for name, rank in (("t", 3), ("u", 1), ("v", 0xFF))}
    assert topics_in_order(ids, ids) == ["u", "t", "v"]
    assert topics_in_order(["v", "t"], {}) == ["t", "v"]
    assert topic_rank(TopicId(b"\xff" * 16)) < topic_rank(TopicId(bytes(16))) < topic_rank(ids["u"])


def test_nobody_and_nothing_are_fine() -> None:
    """No members, or none that wants anything that exists."""
    assert UNIFORM.assign({}, topics(t=1)) == {}
    assert assigned(UNIFORM, members(a="absent", b=""), topics(t=1)) == {"a": "", "b": ""}
    assert assigned(UNIFORM, {MemberId("a"): members(a="t")[MemberId("a")]}, topics(t=0)) == {"a": ""}
