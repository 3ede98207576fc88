"""I/O threads of simulated processes: real threads, of which one runs at a time, until its next disk operation.

    loop's thread   --step-->   I/O thread runs   --turn-->   loop's thread: other callbacks, other I/O threads
                                (a disk operation is next)

A task on a real pool may be interrupted between any two system calls: the loop, or another task, goes on there. Here it
stops before each operation of its disk (`turn`), and goes on when its pool says so, at a time that the seed draws.
As only the thread that was handed control runs, a run stays the same run.

A thread that stops may hold a lock of the product. Whichever thread wants that lock then runs the holder, operation by
operation, until it has let go: `cooperative_locks` gives the product's modules locks that do so.
"""

from __future__ import annotations

import _thread
import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import Context
from typing import Any, Final

PRODUCT: Final = "tidelog."
BLOCKED_S_MAX: Final = 300.0
"""Real seconds that a thread may run without coming to a disk operation: it waits for something that never comes."""


class Work:
    """One call on a thread of a pool. `advance` is the pool's: it lets the call go on to its next operation."""

    __slots__ = ("_context", "_thread", "advance", "call", "error", "is_done", "rest_s", "result")

    def __init__(self, call: Callable[[], object], context: Context, advance: Callable[[Work], None]) -> None:
        self.call = call
        self.advance = advance
        self.is_done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.rest_s = 0.0
        """Least seconds until the operation that is next returns: what it takes longer than usual."""
        self._context = context
        self._thread: _Thread | None = None

    @property
    def has_begun(self) -> bool:
        """Whether it has stopped somewhere within."""
        return self._thread is not None

    def step(self) -> None:
        """Runs it to its next disk operation, or to its end."""
        global _running
        if self._thread is None:
            self._thread = _idle.pop() if _idle else _Thread()
            self._thread.work = self
        before, _running = _running, self
        self._thread.run_on()
        _running = before
        if self.is_done:
            _idle.append(self._thread)
            self._thread = None

    def perform(self) -> None:
        """Called on its thread."""
        try:
            self.result = self._context.run(self.call)
        except BaseException as error:
            self.error = error
        self.is_done = True

    def stop(self, rest_s: float) -> None:
        """Called on its thread: gives control back until the next `step`."""
        assert self._thread is not None
        self.rest_s = rest_s
        self._thread.hand_back()


class _Thread:
    """A thread that waits for work, again and again."""

    def __init__(self) -> None:
        self.work: Work | None = None
        self._go = _thread.allocate_lock()
        self._back = _thread.allocate_lock()
        self._go.acquire()
        self._back.acquire()
        threading.Thread(target=self._main, name="simulated I/O", daemon=True).start()

    def _main(self) -> None:
        while True:
            self._go.acquire()
            assert self.work is not None
            self.work.perform()
            self.work = None
            self._back.release()

    def run_on(self) -> None:
        """Called by the thread that has control, which waits."""
        self._go.release()
        if not self._back.acquire(timeout=BLOCKED_S_MAX):
            raise RuntimeError("an I/O thread waits for something that no simulated thread can give it")

    def hand_back(self) -> None:
        """Called on this thread."""
        self._back.release()
        self._go.acquire()


_running: Work | None = None
"""What runs on an I/O thread just now; None: the loop does."""
_idle: list[_Thread] = []


def turn(rest_s: float = 0.0) -> bool:
    """Called before a disk operation. On an I/O thread others come first, for `rest_s` seconds at least; false on the
    loop's own.
    """
    if _running is None:
        return False
    _running.stop(rest_s)
    return True


class CooperativeLock:
    """`threading.Lock` and `RLock` among threads of which one runs at a time."""

    def __init__(self, *, again: bool) -> None:
        """`again`: whether its holder may take it once more."""
        self._again = again
        self._holder: Work | None = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = _running
        while self._count and not (self._again and self._holder is me):
            holder = self._holder
            if not blocking:
                return False
            if holder is None or holder is me or holder.is_done:
                raise RuntimeError("a deadlock: the lock's holder waits for the thread that wants it, or has ended")
            holder.advance(holder)
        self._holder = me
        self._count += 1
        return True

    def release(self) -> None:
        if not self._count:
            raise RuntimeError("release unlocked lock")
        self._count -= 1

    def locked(self) -> bool:
        return self._count > 0

    def __enter__(self) -> bool:
        if self._count:
            return self.acquire()
        self._holder = _running
        self._count = 1
        return True

    def __exit__(self, *_: object) -> None:
        self._count -= 1


@contextlib.contextmanager
def cooperative_locks() -> Iterator[None]:
    """While it lasts, locks that the product's modules make are cooperative; those of all others are Python's own."""
    own = threading.Lock, threading.RLock

    def maker(real: Callable[[], Any], *, again: bool) -> Callable[[], Any]:
        def make() -> Any:
            caller = sys._getframe(1).f_globals.get("__name__", "")
            return CooperativeLock(again=again) if caller.startswith(PRODUCT) else real()

        return make

    threading.Lock = maker(own[0], again=False)  # type: ignore[assignment]  # A function that makes one, too.
    threading.RLock = maker(own[1], again=True)  # type: ignore[assignment]  # As above.
    try:
        yield
    finally:
        threading.Lock, threading.RLock = own
