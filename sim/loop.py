"""An event loop whose time passes only when nothing is left to do at the present moment.

A subclass of asyncio's own loop: tasks, futures and timers are the real ones. The selector, where a real loop sleeps,
sets the clock forward to the next timer instead. A second of simulated time costs what its callbacks cost.

Every callback belongs to the process (`sim.process`) in whose context it was scheduled. Within a process callbacks run
in the order in which they were scheduled, as asyncio promises and code relies on; between processes a seed decides.
Callbacks of a process that was killed never run.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.process import Process
    from sim.randomness import SeededRandom

PROCESS: ContextVar[Process | None] = ContextVar("simulated process", default=None)
"""To which simulated process the running code belongs; None for the simulator's own."""


class NothingToDoError(RuntimeError):
    """Everybody waits, and nothing will ever wake them: a lost wake-up."""


class _Selector:
    """In the place of the operating system's: waiting is letting time pass."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise NothingToDoError("nothing is scheduled, and the simulation has not come to its end")
        self._loop.advance(timeout)
        return []

    def close(self) -> None:
        """Nothing to close."""


class VirtualLoop(asyncio.BaseEventLoop):
    """See the module."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, random: SeededRandom) -> None:
        super().__init__()
        self._now = 0.0
        self._random = random
        self._selector = _Selector(self)
        self._clock_resolution = 1e-9
        self.errors: list[str] = []
        """Exceptions that callbacks of living processes raised."""
        self.set_exception_handler(self._note_error)

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Lets time pass."""
        self._now += max(seconds, 0.0)

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none: networks and disks are timers."""

    def _write_to_self(self) -> None:
        """Nobody sleeps who would have to be woken."""

    def _run_once(self) -> None:
        self._mix()
        super()._run_once()  # type: ignore[misc]  # Not in the stubs; every loop of asyncio's is made of it.

    def _mix(self) -> None:
        """Puts the callbacks of different processes into a random order, and keeps each process's own."""
        queues: dict[Process | None, deque[asyncio.Handle]] = {}
        for handle in self._ready:
            queues.setdefault(_owner(handle), deque()).append(handle)
        if len(queues) < 2:
            return
        waiting = list(queues.values())
        self._ready.clear()
        while waiting:
            index = self._random.below(len(waiting))
            self._ready.append(waiting[index].popleft())
            if not waiting[index]:
                del waiting[index]

    def _call_soon(self, callback: Callable[..., object], args: Any, context: Context | None) -> asyncio.Handle:
        handle: asyncio.Handle = super()._call_soon(callback, args, context)  # type: ignore[misc]  # As above.
        _bury(handle)
        return handle

    def call_at(  # type: ignore[override]  # As its superclass has it, less the type variables.
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = super().call_at(when, callback, *args, context=context)
        _bury(handle)
        return handle

    def create_task(  # type: ignore[override]  # As above.
        self, coroutine: Any, **options: Any
    ) -> asyncio.Task[Any]:
        task = super().create_task(coroutine, **options)
        owner = PROCESS.get()
        if owner is not None:
            owner.started(task)
        return task

    def bury(self) -> None:
        """Takes back what dead processes had scheduled."""
        for handle in [*self._ready, *self._scheduled]:
            _bury(handle)

    def _note_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        handle = context.get("handle")
        if handle is not None and (owner := _owner(handle)) is not None and not owner.alive:
            return
        if handle is not None or "transport" in context:
            self.errors.append(f"{context.get('message')}: {error!r}")


def _owner(handle: asyncio.Handle) -> Process | None:
    context: Context = handle._context  # type: ignore[attr-defined]  # The only place where it is kept.
    return context.get(PROCESS)


def _bury(handle: asyncio.Handle) -> None:
    owner = _owner(handle)
    if owner is not None and not owner.alive:
        handle.cancel()
