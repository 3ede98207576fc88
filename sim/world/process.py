"""Processes that can be killed, on one loop and in one thread.

A process is a context: whatever is scheduled from within it belongs to it, and never runs once it is dead. So the code
of the broker needs to know nothing of being simulated, and a kill leaves nothing behind but what it wrote.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import events
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar
from weakref import ref

from sim.world.disk import ProcessDeath
from sim.world.loop import VirtualLoop
from sim.world.ownership import PROCESS, Owner
from sim.world.randomness import SeededRandom
from sim.world.threads import Work

P = ParamSpec("P")
T = TypeVar("T")

LONG_CHANCE: Final = 0.2
"""How often an operation of an I/O task takes as long as a device may, and not as long as the page cache does."""
WAITS_MAX: Final = 100
"""Waits in `finally` blocks of a task of a dead process."""
UNWINDING_MAX: Final = 1000
"""Operations that a task of a dead process may still try."""


class Process(Owner):
    """Alive until `kill`, and then for ever dead."""

    def __init__(self, name: str, loop: VirtualLoop) -> None:
        super().__init__(name)
        self._loop = loop
        self._tasks: list[ref[asyncio.Task[Any]]] = []
        self._tasks_max = 64
        self._left: list[asyncio.Task[Any]] = []
        """Tasks that the kill has left standing; kept, so that nothing of them is unwound before `close`."""
        self._on_kill: list[Callable[[], object]] = []
        self._on_close: list[Callable[[], object]] = []
        self.context: Context = copy_context()
        self.context.run(PROCESS.set, self)

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Runs a coroutine within the process."""
        return self.context.copy().run(self._loop.create_task, coroutine)

    def started(self, task: asyncio.Task[Any]) -> None:
        """A task that belongs to the process."""
        if not self.alive:
            self._left.append(task)  # Begun by the call in the middle of which it was killed.
            return
        if len(self._tasks) >= self._tasks_max:
            self._tasks = [known for known in self._tasks if known() is not None]
            self._tasks_max = max(64, 2 * len(self._tasks))
        self._tasks.append(ref(task))

    def on_kill(self, callback: Callable[[], object]) -> None:
        """What else dies with it: connections, locks."""
        self._on_kill.append(callback)

    def kill(self) -> None:
        """Ends it, at once and without a word. Idempotent."""
        if not self.alive:
            return
        self.alive = self.runs = False
        self.held.clear()
        self._left = [task for known in self._tasks if (task := known()) is not None and not task.done()]
        self._loop.bury()
        for callback in self._on_kill:
            callback()

    def on_close(self, callback: Callable[[], object]) -> None:
        """What else is unwound at the end."""
        self._on_close.append(callback)

    def pause(self) -> None:
        """Lets it stand still, as SIGSTOP does: clocks go on, and others see only that it does not answer."""
        self.runs = False

    def resume(self) -> None:
        """Lets it go on, with everything that came due meanwhile. Idempotent."""
        if self.alive and not self.runs:
            self.runs = True
            self._loop.resumed(self)

    def close(self) -> None:
        """Unwinds what the kill left standing, once the simulation is over; whatever that raises meant nothing."""
        for callback in self._on_close:
            callback()
        events._set_running_loop(self._loop)  # What runs in a `finally` looks for its loop.
        unraisable, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            while self._left:
                task = self._left.pop()
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # It was to be destroyed pending.
                coroutine = task.get_coro()
                # A coroutine that would go on waiting in its `finally` cannot: that is the RuntimeError. The next try
                # ends that wait, too.
                for _ in range(WAITS_MAX):
                    try:
                        if coroutine is not None:
                            self.context.run(coroutine.close)
                    except RuntimeError:
                        continue
                    except ProcessDeath:
                        pass
                    break
        finally:
            sys.unraisablehook = unraisable
            events._set_running_loop(None)


class SimulatedExecutor(Executor):
    """The pool of I/O threads: work begins a while after it was submitted, in no particular order, and between any two
    operations of its disk others go on.
    """

    def __init__(self, loop: VirtualLoop, random: SeededRandom, latency: tuple[float, float] = (0.0001, 0.008)) -> None:
        """`latency`: least and greatest time until a task begins, in seconds; most of its operations take little more
        than none.
        """
        self._loop = loop
        self._random = random
        self.latency = latency
        self._under_way: dict[Work, asyncio.Handle] = {}
        """What has stopped before an operation, or has not begun, and what lets it go on."""
        self._futures: dict[Work, Future[Any]] = {}
        owner = PROCESS.get()
        if owner is not None:
            owner.on_close(self.close)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        work = Work(partial(fn, *args, **kwargs), copy_context(), self._advance)
        self._futures[work] = future
        self._later(work, self._random.between(*self.latency))
        return future

    def _later(self, work: Work, delay_s: float) -> None:
        self._under_way[work] = self._loop.call_later(delay_s, self._advance, work)

    def _advance(self, work: Work) -> None:
        """Lets it go on to its next operation; then it waits again, or is done."""
        self._under_way.pop(work).cancel()
        work.step()
        if not work.is_done:
            operation_s = self.latency[self._random.chance(LONG_CHANCE)]
            self._later(work, work.rest_s + self._random.between(0.0, operation_s))
            return
        future = self._futures.pop(work)
        if isinstance(work.error, ProcessDeath):
            return  # No caller is left to be told.
        if work.error is not None:
            future.set_exception(work.error)
        else:
            future.set_result(work.result)

    def close(self) -> None:
        """Unwinds what the process's end has left standing: its mount is dead, and so is each further operation."""
        while self._under_way:
            work = self._under_way.popitem()[0]
            steps = 0
            while work.has_begun and not work.is_done:
                work.step()
                steps += 1
                if steps > UNWINDING_MAX:
                    raise RuntimeError("an I/O task does not end with its process")
