"""The shell on the running event loop: `Shell` as a broker's parts use it.

after, soon   the loop's timers and turns
in_pool       I/O threads, or the executor that a simulation gives
ask           connections to the other brokers
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidelog.broker.deferred import Deferred
from tidelog.broker.io_threads import IoThreads

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

    from tidelog.broker.connections.peers import Peers
    from tidelog.broker.shell import Purpose

T = TypeVar("T")

STOP_IO_MS_MAX: Final = 30_000
"""How long a stopping broker waits for its I/O threads."""


class LoopShell:
    """One broker's timers, threads and questions to other brokers."""

    def __init__(self, peers: Peers, executor: Executor | None) -> None:
        """`executor` runs what blocks; threads of its own if None."""
        self._peers = peers
        self._loop = asyncio.get_running_loop()
        self._threads = IoThreads()
        self._executor = executor
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_stopped = False

    def after(self, delay_ms: int, callback: Callable[..., object], *arguments: Any) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_ms / 1000, self._fire, callback, *arguments)

    def _fire(self, callback: Callable[..., object], *arguments: Any) -> None:
        """A timer is due. Those of a broker that has stopped do nothing: its logs may be another one's by now."""
        if not self._is_stopped:
            callback(*arguments)

    def soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        self._loop.call_soon(callback, *arguments)

    def soon_from_any_thread(self, callback: Callable[..., object], *arguments: Any) -> None:
        """As `soon`, for callers that are not on the loop's thread."""
        self._loop.call_soon_threadsafe(callback, *arguments)

    def in_pool(self, work: Callable[[], T]) -> Deferred[T]:
        outcome: Deferred[T] = Deferred()
        threads = self._threads if self._executor is None else self._executor
        self._in_flight += 1
        self._idle.clear()

        def deliver(done: Future[T]) -> None:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()
            error = done.exception()
            if error is None:
                outcome.complete(done.result())
            elif isinstance(error, Exception):
                outcome.fail(error)
            else:
                raise error

        future: Future[T] = threads.submit(work)
        future.add_done_callback(lambda done: self._loop.call_soon_threadsafe(deliver, done))
        return outcome

    def ask(self, broker_id: int, purpose: Purpose, message: Any, version: int, timeout_ms: int) -> Deferred[Any]:
        return self._peers.ask(broker_id, purpose, message, version, timeout_ms)

    # Stop.

    async def stop(self) -> None:
        """Waits for work under way, not for ever; then timers do nothing any more."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._idle.wait(), STOP_IO_MS_MAX / 1000)
        self._is_stopped = True

    @property
    def busy_directories(self) -> frozenset[str]:
        """Log directories in which work has not ended."""
        return self._threads.busy_directories

    def end_threads(self) -> None:
        """Lets I/O threads end when their work has; waits for none."""
        self._threads.shutdown()
