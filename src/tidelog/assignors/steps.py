"""Long computations in steps: a generator that yields where its caller may do something else, and returns the outcome.

A step is some hundreds of members or partitions, at most a millisecond or two of work. So a broker computes what ten
thousand members are to have between the requests of its clients, and a simulated one does so in the same steps.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final, TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]

STEP: Final = 256
"""Members, or partitions, between two yields."""


def at_once(steps: Steps[T]) -> T:
    """The outcome, without a rest in between."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            outcome: T = end.value
            return outcome


class Pace:
    """Tells when a step is over: `if pace.is_over(len(partitions)): yield`."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = STEP

    def is_over(self, units: int = 1) -> bool:
        """`units` more members or partitions have been seen to."""
        self._left -= units
        if self._left > 0:
            return False
        self._left = STEP
        return True


def order_of(keys: Sequence[Any]) -> Steps[list[int]]:
    """The indexes of `keys` in the order of the keys, equal ones as they stand.

    Runs are sorted one by one; the sort at the end finds them in order and only merges them.
    """
    runs: list[int] = []
    for start in range(0, len(keys), STEP):
        runs += sorted(range(start, min(start + STEP, len(keys))), key=keys.__getitem__)
        yield
    return sorted(runs, key=keys.__getitem__)
