"""An event loop whose time passes only when nothing is left to do at the present moment.

A subclass of asyncio's own loop: tasks, futures and timers are the real ones. Where a real loop would sleep, this one
sets the clock forward to the next timer. A second of simulated time costs what its callbacks cost.

Every callback belongs to the process (`sim.world.process`) in whose context it was scheduled. Within a process
callbacks run in the order in which they were scheduled, as asyncio promises and code relies on; between processes a
seed decides.
Callbacks of a process that was killed never run; those of one that stands still (SIGSTOP) run late.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from sim.world.ownership import PROCESS

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

    from sim.world.ownership import Owner
    from sim.world.randomness import SeededRandom

CANCELLED_TIMERS_MAX: Final = 200
"""Cancelled timers that may lie in the heap before it is cleaned, if they are also the greater part of it."""


class NothingToDoError(RuntimeError):
    """All tasks wait, and nothing will ever wake them: a lost wake-up."""


class VirtualLoop(asyncio.BaseEventLoop):
    """See the module."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _timer_cancelled_count: int
    _stopping: bool

    def __init__(self, random: SeededRandom) -> None:
        super().__init__()
        self._now = 0.0
        self._random = random
        self.errors: list[BaseException] = []
        """What callbacks of living processes raised."""
        self.set_exception_handler(self._note_error)

    def time(self) -> float:
        return self._now

    def _write_to_self(self) -> None:
        """No thread sleeps that would have to be woken."""

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none: networks and disks are timers."""

    def _run_once(self) -> None:
        """One turn: lets time pass if nothing is left to do now, then runs what is due, in the order of `_mix`."""
        ready = self._ready
        self._drop_cancelled()
        scheduled = self._scheduled
        if not ready and not self._stopping:
            if not scheduled:
                raise NothingToDoError("nothing is scheduled, and the simulation has not come to its end")
            self._now = max(self._now, scheduled[0]._when)  # type: ignore[attr-defined]  # As asyncio's own loop does.
        now = self._now
        while scheduled and scheduled[0]._when <= now:  # type: ignore[attr-defined]  # As above.
            timer = heapq.heappop(scheduled)
            timer._scheduled = False  # type: ignore[attr-defined]  # As above.
            ready.append(timer)
        self._mix()
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                owner = _owner(handle)
                if owner is None or owner.runs:
                    handle._run()
                elif owner.alive:
                    owner.held.append(handle)

    def _drop_cancelled(self) -> None:
        scheduled = self._scheduled
        if self._timer_cancelled_count > max(CANCELLED_TIMERS_MAX, len(scheduled) // 2):
            kept = []
            for timer in scheduled:
                if timer._cancelled:
                    timer._scheduled = False  # type: ignore[attr-defined]  # As above.
                else:
                    kept.append(timer)
            heapq.heapify(kept)
            self._scheduled = kept
            self._timer_cancelled_count = 0
            return
        while scheduled and scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(scheduled)._scheduled = False  # type: ignore[attr-defined]  # As above.

    def _mix(self) -> None:
        """Puts the callbacks of different processes into a random order, and keeps each process's own."""
        ready = self._ready
        if len(ready) < 2:
            return
        queues: dict[Owner | None, deque[asyncio.Handle]] = {}
        for handle in ready:
            owner = _owner(handle)
            queue = queues.get(owner)
            if queue is None:
                queues[owner] = deque((handle,))
            else:
                queue.append(handle)
        if len(queues) < 2:
            return
        waiting = list(queues.values())
        ready.clear()
        while len(waiting) > 1:
            index = self._random.below(len(waiting))
            ready.append(waiting[index].popleft())
            if not waiting[index]:
                del waiting[index]
        ready.extend(waiting[0])

    def resumed(self, process: Owner) -> None:
        """What a process could not do while it stood still is due now, before whatever came since."""
        self._ready.extendleft(reversed(process.held))
        process.held.clear()

    def create_task(  # type: ignore[override]  # As its superclass has it, less the type variables.
        self, coroutine: Any, **options: Any
    ) -> asyncio.Task[Any]:
        task = super().create_task(coroutine, **options)
        owner = PROCESS.get()
        if owner is not None:
            owner.started(task)
        return task

    async def create_connection(  # type: ignore[override]  # What the product's client uses of it.
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, *, ssl: object = None
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        """Connects over the simulated network, from the machine of the process that asks; without TLS."""
        process = PROCESS.get()
        if ssl is not None:
            raise RuntimeError("the simulated network knows no TLS")
        if process is None or process.outside is None:
            raise RuntimeError("this process has its network from elsewhere, or none")
        return await process.outside.network.connect(protocol_factory, host, port)

    def bury(self) -> None:
        """Takes back what dead processes had scheduled."""
        for handle in [*self._ready, *self._scheduled]:
            owner = _owner(handle)
            if owner is not None and not owner.alive:
                handle.cancel()

    def _note_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        handle = context.get("handle")
        if handle is not None and (owner := _owner(handle)) is not None and not owner.alive:
            return
        if error is not None and (handle is not None or "transport" in context):
            self.errors.append(error)


def _owner(handle: asyncio.Handle) -> Owner | None:
    context: Context = handle._context  # type: ignore[attr-defined]  # The only place where it is kept.
    return context.get(PROCESS)
