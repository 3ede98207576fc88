"""I/O threads of simulated processes: stacks of calls (greenlets), of which one runs at a time, until its next disk
operation.

    loop's stack   --step-->   I/O thread runs   --turn-->   loop's stack: other callbacks, other I/O threads
                               (a disk operation is next)

A task on a real pool may be interrupted between any two system calls: the loop, or another task, goes on there. Here it
stops before each operation of its disk (`turn`), and goes on when its pool says so, at a time that the seed draws.
As only the stack that was handed control runs, a run stays the same run.

A task that stops may hold a lock of the product. Whichever task wants that lock then runs the holder, operation by
operation, until it has let go; a task that waits for a condition gives way until the condition holds.
`cooperative_locks` gives the product's modules locks and conditions that do so.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import Context
from typing import Any, Final

from greenlet import getcurrent, greenlet

PRODUCT: Final = "tidelog."


class Work:
    """One call on a thread of a pool. `advance` is the pool's: it lets the call go on to its next operation."""

    __slots__ = ("_context", "_stack", "advance", "call", "error", "is_done", "rest_s", "result")

    def __init__(self, call: Callable[[], object], context: Context, advance: Callable[[Work], None]) -> None:
        self.call = call
        self.advance = advance
        self.is_done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.rest_s = 0.0
        """Least seconds until the operation that is next returns: what it takes longer than usual."""
        self._context = context
        self._stack: _Stack | None = None

    @property
    def has_begun(self) -> bool:
        """Whether it has stopped somewhere within."""
        return self._stack is not None

    def step(self) -> None:
        """Runs it to its next disk operation, or to its end."""
        global _running
        if self._stack is None:
            self._stack = _idle.pop() if _idle else _Stack()
            self._stack.work = self
        before, _running = _running, self
        self._stack.run_on()
        _running = before
        if self.is_done:
            _idle.append(self._stack)
            self._stack = None

    def perform(self) -> None:
        """Called on its stack."""
        try:
            self.result = self._context.run(self.call)
        except BaseException as error:
            self.error = error
        self.is_done = True

    def stop(self, rest_s: float) -> None:
        """Called on its stack: gives control back until the next `step`."""
        assert self._stack is not None
        self.rest_s = rest_s
        self._stack.hand_back()


class _Stack:
    """A stack of calls of its own, on which one piece of work after the other is performed."""

    def __init__(self) -> None:
        self.work: Work | None = None
        self._greenlet = greenlet(self._main)
        self._caller: greenlet | None = None

    def _main(self) -> None:
        while True:
            assert self.work is not None
            self.work.perform()
            self.work = None
            self.hand_back()

    def run_on(self) -> None:
        """Called by what has control, which waits until this stack hands it back."""
        self._caller = getcurrent()
        self._greenlet.switch()

    def hand_back(self) -> None:
        """Called on this stack."""
        assert self._caller is not None
        self._caller.switch()


_running: Work | None = None
"""What runs on an I/O thread just now; None: the loop does."""
_idle: list[_Stack] = []


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


class CooperativeCondition(CooperativeLock):
    """`threading.Condition` among threads of which one runs at a time: what waits looks again at each turn."""

    def __init__(self) -> None:
        super().__init__(again=True)

    def wait_for(self, predicate: Callable[[], object]) -> bool:
        while not predicate():
            if _running is None:
                raise RuntimeError("the loop waits for a condition: nothing can come about meanwhile")
            self.release()
            turn()
            self.acquire()
        return True

    def notify_all(self) -> None:
        """Nothing sleeps."""


@contextlib.contextmanager
def cooperative_locks() -> Iterator[None]:
    """While it lasts, locks that the product's modules make are cooperative; those of all others are Python's own."""
    own = threading.Lock, threading.RLock, threading.Condition

    def maker(real: Callable[..., Any], cooperative: Callable[[], CooperativeLock]) -> Callable[..., Any]:
        def make(*arguments: Any) -> Any:
            caller = sys._getframe(1).f_globals.get("__name__", "")
            return cooperative() if caller.startswith(PRODUCT) else real(*arguments)

        return make

    threading.Lock = maker(own[0], lambda: CooperativeLock(again=False))  # type: ignore[assignment]  # A function that makes one, too.
    threading.RLock = maker(own[1], lambda: CooperativeLock(again=True))  # type: ignore[assignment]  # As above.
    threading.Condition = maker(own[2], CooperativeCondition)  # type: ignore[assignment, misc]  # As above.
    try:
        yield
    finally:
        threading.Lock, threading.RLock, threading.Condition = own  # type: ignore[misc]  # As above.
