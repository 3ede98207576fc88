"""What a run waits for: it comes, an invariant is broken, or another task's failure ends the wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from sim.invariants import InvariantBrokenError
from sim.waiting import SETTLE_S_MAX, until, within
from sim.world.loop import VirtualLoop
from sim.world.randomness import SeededRandom

Wait = Callable[[list[asyncio.Task[None]]], Awaitable[None]]


def waited_s(wait: Wait, others: Callable[[], Awaitable[None]] | None = None) -> float:
    """For how many simulated seconds it was waited, with another task beside."""
    loop = VirtualLoop(SeededRandom(1))

    async def main() -> None:
        await wait([] if others is None else [asyncio.ensure_future(others())])

    try:
        loop.run_until_complete(main())
        return loop.time()
    finally:
        loop.close()


async def never() -> None:
    await asyncio.sleep(1_000)


async def fails() -> None:
    await asyncio.sleep(1)
    raise ZeroDivisionError


WAITS = {
    "until": lambda others: until(lambda: False, lambda: "it does not hold", others, number=18),
    "within": lambda others: within(never(), SETTLE_S_MAX, "it has no end", others),
}


def test_what_comes_is_waited_for() -> None:
    """No longer than it takes."""
    calls: list[None] = []

    def holds() -> bool:
        calls.append(None)
        return len(calls) > 5

    assert waited_s(lambda others: until(holds, lambda: "", others, look_s=2.0)) == 10.0
    assert 1.0 <= waited_s(lambda others: within(asyncio.sleep(1.0), 30.0, "", others)) <= 1.1


@pytest.mark.parametrize(("kind", "number"), [("until", 18), ("within", 17)])
def test_what_does_not_come_breaks_an_invariant(kind: str, number: int) -> None:
    with pytest.raises(InvariantBrokenError, match=f"invariant {number} .*it (does not hold|has no end)"):
        waited_s(WAITS[kind])


@pytest.mark.parametrize("kind", WAITS)
def test_another_task_that_fails_ends_the_wait(kind: str) -> None:
    """Long before the wait's own end."""
    with pytest.raises(ZeroDivisionError):
        waited_s(WAITS[kind], fails)
