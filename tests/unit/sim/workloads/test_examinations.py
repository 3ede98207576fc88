"""Examinations come by turns, are made again where nothing can be said, and end a run where an answer is wrong."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from sim.invariants import InvariantBrokenError
from sim.workloads import examinations
from sim.workloads.examinations import EXAMINATIONS, OF_OUR_CLIENT, TRIES, Guest, examine
from sim.workloads.examinations.guest import NotNow
from sim.world.loop import VirtualLoop
from sim.world.randomness import SeededRandom
from sim.world.trace import Trace

from tidelog.model.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

Examination = Callable[[Guest], "Coroutine[Any, Any, None]"] if TYPE_CHECKING else Any


def examined(seed: int, *, clients: bool = False, log_dirs: int = 1, flushes: bool = False) -> list[str]:
    """What a seed's run notes of its examination, on a cluster that is asked nothing."""
    loop = VirtualLoop(SeededRandom(seed, "loop"))
    trace = Trace(loop.time, None)
    plan = SimpleNamespace(clients=clients, log_dirs=log_dirs, flushes=flushes)
    cluster: Any = SimpleNamespace(plan=plan, is_whole=True)
    router: Any = SimpleNamespace(close=lambda: None)
    administrator: Any = None
    try:
        loop.run_until_complete(
            examine(seed, lambda name: router, administrator, cluster, SeededRandom(seed, "own"), trace, [])
        )
    finally:
        loop.close()
    return [line.split(" ", 1)[1] for line in trace.lines]


def replace(monkeypatch: pytest.MonkeyPatch, name: str, made: list[Examination]) -> None:
    monkeypatch.setattr(examinations, name, tuple(made))


def named(name: str, work: Callable[[Guest], None]) -> Examination:
    async def examination(guest: Guest) -> None:
        work(guest)

    examination.__name__ = name
    return examination


def test_each_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many seeds that follow one another have all of them; runs with our own client those of the client."""
    for name, known in (("EXAMINATIONS", EXAMINATIONS), ("OF_OUR_CLIENT", OF_OUR_CLIENT)):
        replace(monkeypatch, name, [named(each.__name__, lambda guest: None) for each in known])
    for known, clients in ((EXAMINATIONS, False), (OF_OUR_CLIENT, True)):
        seen = {line for seed in range(5, 5 + len(known)) for line in examined(seed, clients=clients)}
        assert seen == {f"examined {each.__name__.replace('_', '-')} 0" for each in known}


def test_those_of_disks_come_after_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory fails where there are two; power fails where records are flushed, in every other run."""
    replace(monkeypatch, "EXAMINATIONS", [named("it_is_so", lambda guest: None)])
    monkeypatch.setattr(examinations, "failed_directories_are_left", named("one_fails", lambda guest: None))
    monkeypatch.setattr(examinations, "power_cuts_take_nothing", named("power_fails", lambda guest: None))
    assert examined(2) == ["examined it-is-so 0"]
    assert examined(1, flushes=True) == ["examined it-is-so 0"]
    assert examined(2, flushes=True) == ["examined it-is-so 0", "examined power-fails 0"]
    assert examined(1, log_dirs=2) == ["examined it-is-so 0", "examined one-fails 0"]


def test_one_that_is_not_answered_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With names of its own; and not for ever."""
    names: list[str] = []

    def answer(guest: Guest) -> None:
        names.append(guest.name)
        if len(names) < 3:
            guest.expect(ErrorCode.NOT_COORDINATOR, ErrorCode.NONE, "a question")

    replace(monkeypatch, "EXAMINATIONS", [named("it_is_so", answer)])
    assert examined(1)[-1] == "examined it-is-so 2"
    assert names == ["it-is-so-0", "it-is-so-1", "it-is-so-2"]

    def refuse(guest: Guest) -> None:
        raise NotNow

    replace(monkeypatch, "EXAMINATIONS", [named("it_is_so", refuse)])
    with pytest.raises(InvariantBrokenError, match=r"invariant 17 .*it-is-so gets no answers"):
        examined(1)
    assert TRIES > 1


def test_a_wrong_answer_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else is answered than what has to be."""

    def ask(guest: Guest) -> None:
        guest.expect(ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, "a stranger")

    replace(monkeypatch, "EXAMINATIONS", [named("it_is_so", ask)])
    with pytest.raises(
        InvariantBrokenError, match=r"invariant 26 .*a stranger is answered NONE, and not UNKNOWN_MEMBER_ID"
    ):
        examined(1)
