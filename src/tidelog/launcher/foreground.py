"""Running in the foreground: the loop of a process that does one thing until it is told to stop.

How it stops depends on what asks: a signal says that this process should go, the end of the parent's pipe that the
cluster does.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, TypeVar

import uvloop

from tidelog.ports.system_calls import malloc_trim, signal_at_parents_death
from tidelog.records import implementation

if TYPE_CHECKING:
    from tidelog.config.broker_config import BrokerConfig

logger: Final = logging.getLogger(__name__)

T = TypeVar("T")


FULL_COLLECTION_RARITY: Final = 1000
"""A full garbage collection comes after so many smaller ones, not after 10. It looks at all that lives: with 10,000
partitions it stops the loop for a third of a second, and finds next to nothing, for hardly anything here is a cycle."""
COMPILED_MODULES: Final = (
    "broker.connections._single_requests",
    "broker.handlers._fetch_bytes",
    "broker.handlers._fetch_frames",
    "broker.handlers._heartbeat_frames",
    "broker.handlers._produce_frames",
    "broker.handlers._produce_partition",
    "broker.handlers._produce_several",
    "ports._system_calls",
    "records._column_builder",
    "records._compaction",
    "records._encoding",
    "records._integrity",
    "records._row_builder",
    "records._sections",
    "storage._append",
    "storage._append_followed",
    "storage._read",
)
"""Those that setup.py builds where there is a C compiler, each of which may fail by itself."""
ORPHAN_S_MAX: Final = 30.0
"""Seconds that a process has to stop cleanly after its parent's end; its next start recovers what it did not finish."""


class Stop:
    """That the process is to stop, and why."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.whole_cluster = False
        """Whether all brokers stop: then none is there to take over what this process has."""

    def ask(self, *, whole_cluster: bool = False) -> None:
        """Only the first reason counts."""
        if not self._event.is_set():
            self.whole_cluster = whole_cluster
            self._event.set()

    @property
    def asked(self) -> bool:
        """Whether the process is to stop."""
        return self._event.is_set()

    async def wait(self) -> None:
        """Returns when the process is to stop."""
        await self._event.wait()

    async def wait_for(self, work: Awaitable[T]) -> T | None:
        """The outcome of `work`; None, with `work` cancelled to its end, where the process is to stop before."""
        task = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self.wait())
        try:
            awaited: set[asyncio.Future[Any]] = {task, stopped}
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            return None
        finally:
            stopped.cancel()


def run(main: Callable[[Stop], Awaitable[None]], *, parent_pipe: int | None = None) -> None:
    """Runs `main` in a loop of its own; SIGINT and SIGTERM ask it to stop, and so does the end of `parent_pipe`.

    `parent_pipe` is a descriptor that this process inherited, for reading; nothing is ever written there.
    """

    async def started() -> None:
        stop = Stop()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.ask)
        if parent_pipe is not None:
            os.set_inheritable(parent_pipe, False)
            # A process that is stopped (SIGSTOP) when its parent dies would never see the pipe's end.
            signal_at_parents_death(signal.SIGCONT)
            loop.add_reader(parent_pipe, _parent_gone, loop, parent_pipe, stop)
        await main(stop)

    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, FULL_COLLECTION_RARITY)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(started())


def _parent_gone(loop: asyncio.AbstractEventLoop, parent_pipe: int, stop: Stop) -> None:
    loop.remove_reader(parent_pipe)
    stop.ask(whole_cluster=True)
    # No supervisor is left that would kill a process that does not end.
    loop.call_later(ORPHAN_S_MAX, os._exit, 1)


async def first_failure(*watched: Coroutine[Any, Any, str]) -> str:
    """The reason of whatever fails first."""
    tasks = [asyncio.ensure_future(one) for one in watched]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()
    finally:
        for task in tasks:
            task.cancel()


async def run_all(coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Runs all side by side; the first error ends the others, and is raised when they have ended."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    if not tasks:
        return
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    # In the order of the tasks: where two fail at once, the same one is told each time.
    for task in tasks:
        if task in done:
            task.result()


def log_warnings(config: BrokerConfig) -> None:
    """Says once what was set and has no effect."""
    for sentence in config.warnings():
        logger.warning("%s", sentence)


def log_absent_kernel() -> None:
    """Says once that plain Python does what the compiled kernel would, or a part of it, and what that costs."""
    if implementation.ABSENT:
        logger.warning("kernel_absent: reason=%r effect=%r", implementation.ABSENT, implementation.PURE_COST)
        return
    absent = [name for name in COMPILED_MODULES if find_spec(f"tidelog.{name}") is None]
    if absent:
        effect = "requests that they would handle cost several times the processor time"
        logger.warning("compiled_parts_absent: modules=%s effect=%r", ",".join(absent), effect)


def settle_memory() -> None:
    """What start-up has made stays: the garbage collector need not look at it again.

    Whole pages of the heap that start-up has freed go back to the system.
    """
    gc.collect()
    gc.freeze()
    malloc_trim()


LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"
"""Log lines as operators read them: time, level, where, what."""


def log_to_stderr(level: str, format: str = "text") -> None:
    """Sends the log to stderr, from `level` on; `format` is logging.format, text or json."""
    handler: Any = logging.StreamHandler()
    if format == "json":
        from tidelog.launcher.json_logs import JsonFormatter

        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter(LOG_FORMAT))
    logging.basicConfig(level=level.upper(), handlers=[handler])
