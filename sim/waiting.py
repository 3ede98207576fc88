"""What a run waits for, in simulated time, while its tasks go on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sim.invariants import require

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

SETTLE_S_MAX: Final = 60.0
"""Simulated seconds after the last fault in which all must be whole again, and everything acknowledged and read."""


async def within(work: Awaitable[object], seconds: float, complaint: str, others: Sequence[asyncio.Task[None]]) -> None:
    """Waits for `work`, no longer than `seconds` (invariant 17); raises what one of the others fails with meanwhile."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    deadline = loop.time() + seconds
    while not task.done():
        raise_failures(others)
        require(17, loop.time() < deadline, complaint)
        await asyncio.sleep(0.05)
    task.result()


async def until(
    holds: Callable[[], bool],
    complaint: Callable[[], str],
    others: Sequence[asyncio.Task[None]] = (),
    *,
    number: int = 17,
    seconds: float = SETTLE_S_MAX,
    look_s: float = 0.1,
) -> None:
    """Waits until something holds, no longer than `seconds`: `number` is the invariant that is broken then. Raises what
    one of the others fails with meanwhile. `look_s`: between two looks."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not holds():
        raise_failures(others)
        if loop.time() >= deadline:
            require(number, False, complaint())
        await asyncio.sleep(look_s)
    raise_failures(others)


def raise_failures(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Raises what one of the tasks failed with."""
    for task in tasks:
        if task.done():
            task.result()
