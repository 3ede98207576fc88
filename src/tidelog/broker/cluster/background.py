"""Coroutines on behalf of what knows no loop: each runs as a task, and its outcome is a `Deferred`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from tidelog.broker.deferred import Deferred

T = TypeVar("T")


class Background:
    """Tasks that are under way, held so that they are not collected."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, work: Coroutine[Any, Any, T]) -> Deferred[T]:
        """Begins `work`; completes with its value, or fails with what it raises."""
        outcome: Deferred[T] = Deferred()

        async def carry_out() -> None:
            try:
                value = await work
            except Exception as error:
                outcome.fail(error)
            else:
                outcome.complete(value)

        task = asyncio.get_running_loop().create_task(carry_out())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return outcome
