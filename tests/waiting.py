"""Waiting for what other threads, processes and clusters bring about: nobody tells of it, so it is asked for again.

Every wait has a deadline, and says at the end of it what it has waited for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

DEADLINE_S: Final = 180.0
LOOK_INTERVAL_S: Final = 0.02


def until(
    condition: Callable[[], T],
    what: str | Callable[[], str] = "",
    *,
    limit_s: float = DEADLINE_S,
    every_s: float = LOOK_INTERVAL_S,
) -> T:
    """The first true result of `condition`; AssertionError with `what`, or what it says by then, after the deadline."""
    deadline = time.monotonic() + limit_s
    while not (result := condition()):
        if time.monotonic() > deadline:
            told = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {limit_s:g} s: {told or condition}")
        time.sleep(every_s)
    return result


def until_equal(look: Callable[[], Any], wanted: object, *, limit_s: float = DEADLINE_S) -> None:
    """Returns when `look()` equals `wanted`; AssertionError with what there was instead after the deadline."""
    found: Any = None

    def same() -> bool:
        nonlocal found
        found = look()
        return bool(found == wanted)

    until(same, lambda: f"{wanted}; there is {found}", limit_s=limit_s)


async def eventually(
    condition: Callable[[], object], what: str = "", *, limit_s: float = DEADLINE_S, every_s: float = 0.002
) -> None:
    """As `until`, for what happens on this loop, or in another thread beside it."""
    try:
        async with asyncio.timeout(limit_s):
            while not condition():  # noqa: ASYNC110  # What is waited for knows nothing of events.
                await asyncio.sleep(every_s)
    except TimeoutError:
        raise AssertionError(f"not within {limit_s:g} s: {what or condition}") from None
