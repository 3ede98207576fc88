"""Deadlines: what is due comes in order, whatever was moved meanwhile, and the heap stays in bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinator.deadlines import Deadlines

STEPS = st.lists(st.tuples(st.sampled_from("abcd"), st.none() | st.integers(0, 50)), max_size=60)


def popped(deadlines: Deadlines, now_ms: int) -> list[object]:
    found = []
    while (key := deadlines.pop_due(now_ms)) is not None:
        found.append(key)
    return found


@given(STEPS, st.integers(0, 60))
def test_what_is_due_comes_in_order(steps: list[tuple[str, int | None]], now_ms: int) -> None:
    """Each key once, at the time that was set last; `next_due_ms` is never later than the first."""
    deadlines, model = Deadlines(), dict[str, int]()
    for key, due_ms in steps:
        if due_ms is None:
            deadlines.cancel(key)
            model.pop(key, None)
        else:
            deadlines.set(key, due_ms)
            model[key] = due_ms
        assert (deadlines.next_due_ms is None) == (not model)
        assert not model or (deadlines.next_due_ms or 0) <= min(model.values())
    due = popped(deadlines, now_ms)
    assert sorted(due, key=str) == sorted(key for key, due_ms in model.items() if due_ms <= now_ms)
    assert [model[str(key)] for key in due] == sorted(model[str(key)] for key in due)
    assert len(deadlines) == len(model) - len(due)


def test_moving_to_and_fro_fills_no_memory() -> None:
    """A client may say another timeout each time."""
    deadlines = Deadlines()
    for turn in range(10_000):
        deadlines.set("a", 1_000 + turn % 2)
        deadlines.set("b", 5_000 - turn % 7)
    assert len(deadlines._heap) < 100
    assert popped(deadlines, 10_000) == ["a", "b"]
