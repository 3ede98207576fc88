"""What judges groups and transactions finds what it is for."""

from __future__ import annotations

from typing import Any

from tests.conformance.clients import judge
from tests.conformance.clients.judge import History, Place

T0 = Place("t", 0)


def history(name: str, *events: tuple[float, str, dict[str, Any]], ended_at: float | None = None) -> History:
    return History(name, tuple({"event": event, "at": at, **fields} for at, event, fields in events), ended_at)


def owner(name: str, begin: float, end: float, generation: int | None, how: str = "revoked") -> History:
    partitions = {"partitions": [["t", 0]]}
    return history(name, (begin, "assigned", {**partitions, "generation": generation}), (end, how, partitions))


def test_two_owners_at_one_time() -> None:
    """Of clients that tell no generation the time decides; who was put out, or hung, is excused."""
    assert judge.owners([owner("a", 1, 2, None), owner("b", 2, 3, None)]) == []
    assert len(judge.owners([owner("a", 1, 2.5, None), owner("b", 2, 3, None)])) == 1
    assert judge.owners([owner("a", 1, 2.5, None, "lost"), owner("b", 2, 3, None)]) == []
    assert judge.owners([owner("a", 1, 2.5, None), owner("b", 2, 3, None)], stalled=["a"]) == []


def test_two_owners_in_one_generation() -> None:
    """However the times are, and whoever was put out."""
    assert judge.owners([owner("a", 1, 2, 5), owner("b", 3, 4, 6)]) == []
    assert len(judge.owners([owner("a", 1, 2, 5, "lost"), owner("b", 3, 4, 5)])) == 1


def test_a_static_member_that_came_back() -> None:
    """Takes its own place, in the same generation."""
    first, second = owner("a", 1, 2, 5), owner("b", 3, 4, 5)
    double = [History(each.name, each.events, None, "one") for each in (first, second)]
    assert judge.owners(double) == []


def test_who_was_killed_owns_nothing_any_more() -> None:
    """Its last word was that it does."""
    killed = history("a", (1, "assigned", {"partitions": [["t", 0]], "generation": 1}), ended_at=2.0)
    assert judge.owners([killed, owner("b", 3, 4, 2)]) == []
    assert len(judge.owners([killed, owner("b", 1.5, 4, 2)])) == 1


def test_a_lost_commit() -> None:
    """The next owner begins before it, or the group's offset at the end is behind it."""
    first = history(
        "a", (1, "assigned", {"partitions": [["t", 0]]}), (2, "committed", {"offsets": [["t", 0, 10]]}), ended_at=3.0
    )
    good = history("b", (4, "assigned", {"partitions": [["t", 0]]}), (5, "consumed", {"records": [["t", 0, [10]]]}))
    bad = history("b", (4, "assigned", {"partitions": [["t", 0]]}), (5, "consumed", {"records": [["t", 0, [9]]]}))
    assert judge.commits([first, good], {T0: 10}) == []
    assert len(judge.commits([first, bad], {T0: 10})) == 1
    assert len(judge.commits([first, good], {T0: 9})) == 1


def test_a_record_that_nobody_consumed() -> None:
    """Is missed."""
    seen = [history("a", (1, "consumed", {"records": [["t", 0, [0, 1]]]}))]
    assert judge.consumed(seen, {T0: range(2)}) == []
    assert len(judge.consumed(seen, {T0: range(3)})) == 1


def test_half_a_transaction() -> None:
    """Or a value of an aborted one, or one twice; of one that nobody was told of, all or nothing."""
    told = [
        history(
            "p",
            (1, "begin", {"number": 0}),
            (2, "transaction", {"number": 0, "outcome": "committed"}),
            (3, "begin", {"number": 1}),
            (4, "transaction", {"number": 1, "outcome": "aborted"}),
            (5, "begin", {"number": 2}),
        )
    ]
    assert judge.atomic(told, ["p-0-0", "p-0-1"], 2) == []
    assert judge.atomic(told, ["p-0-0", "p-0-1", "p-2-0", "p-2-1"], 2) == []
    for wrong in (["p-0-0"], [], ["p-0-0", "p-0-1", "p-1-0"], ["p-0-0", "p-0-1", "p-2-0"]):
        assert len(judge.atomic(told, wrong, 2)) == 1, wrong
    assert len(judge.atomic(told, ["p-0-0", "p-0-1", "p-0-1"], 2)) == 1


def test_what_was_not_copied_exactly_once() -> None:
    """Not at all, twice, or wrongly."""
    source = {T0: {0: "x", 1: "y"}}
    assert judge.copied(source, [("t-0-0", "x"), ("t-0-1", "y")]) == []
    assert len(judge.copied(source, [("t-0-0", "x")])) == 1
    assert len(judge.copied(source, [("t-0-0", "x"), ("t-0-1", "y"), ("t-0-1", "y")])) == 1
    assert len(judge.copied(source, [("t-0-0", "x"), ("t-0-1", "z")])) == 1
