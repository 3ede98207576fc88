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
    _scheduled: list[tuple[float, asyncio.TimerHandle]]
    """(when, timer): numbers are compared, not objects, but for those of the same instant."""
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

    # Half a million callbacks of a run are scheduled by these, without what a real loop is to look after.

    def call_soon(  # type: ignore[override]  # As its superclass has it, less the type variables.
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]  # As above.
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]  # As above.
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._scheduled, (when, timer))
        timer._scheduled = True  # type: ignore[attr-defined]  # As asyncio's own loop does.
        return timer

    def _run_once(self) -> None:
        """Turns until it is to stop: each lets time pass if nothing is left to do now, then runs what is due, in the
        order of `_mix`.
        """
        self._turn()
        while not self._stopping:
            self._turn()

    def _turn(self) -> None:
        ready = self._ready
        scheduled = self._scheduled
        if scheduled and (scheduled[0][1]._cancelled or self._timer_cancelled_count > CANCELLED_TIMERS_MAX):
            self._drop_cancelled()
            scheduled = self._scheduled
        if not ready and not self._stopping:
            if not scheduled:
                raise NothingToDoError("nothing is scheduled, and the simulation has not come to its end")
            self._now = max(self._now, scheduled[0][0])
        now = self._now
        while scheduled and scheduled[0][0] <= now:
            timer = heapq.heappop(scheduled)[1]
            timer._scheduled = False  # type: ignore[attr-defined]  # As above.
            ready.append(timer)
        if len(ready) > 1:
            self._mix()
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                owner = handle._context.get(PROCESS)  # type: ignore[attr-defined]  # As `_owner`, of each callback.
                if owner is None or owner.runs:
                    handle._run()
                elif owner.alive:
                    owner.held.append(handle)

    def _drop_cancelled(self) -> None:
        scheduled = self._scheduled
        if self._timer_cancelled_count > max(CANCELLED_TIMERS_MAX, len(scheduled) // 2):
            kept = []
            for entry in scheduled:
                if entry[1]._cancelled:
                    entry[1]._scheduled = False  # type: ignore[attr-defined]  # As above.
                else:
                    kept.append(entry)
            heapq.heapify(kept)
            self._scheduled = kept
            self._timer_cancelled_count = 0
            return
        while scheduled and scheduled[0][1]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(scheduled)[1]._scheduled = False  # type: ignore[attr-defined]  # As above.

    def _mix(self) -> None:
        """Puts the callbacks of different processes into a random order, and keeps each process's own."""
        ready = self._ready
        queues: dict[Owner | None, list[asyncio.Handle]] = {}
        for handle in ready:
            owner = handle._context.get(PROCESS)  # type: ignore[attr-defined]  # As above.
            queue = queues.get(owner)
            if queue is None:
                queues[owner] = [handle]
            else:
                queue.append(handle)
        if len(queues) < 2:
            return
        waiting = list(queues.values())
        for queue in waiting:
            queue.reverse()
        ready.clear()
        below = self._random.below
        while len(waiting) > 1:
            index = below(len(waiting))
            queue = waiting[index]
            ready.append(queue.pop())
            if not queue:
                del waiting[index]
        ready.extend(reversed(waiting[0]))

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
        for handle in [*self._ready, *(timer for _, timer in self._scheduled)]:
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
