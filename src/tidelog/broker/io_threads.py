"""Threads for what waits for a disk: a few for each log directory, so that one that hangs stalls itself alone.

    work in directory A       -> lane A       at most IO_THREADS threads
    work in directory B       -> lane B       at most IO_THREADS threads
    work in A and B at once   -> lane A, B    its own: a thread that waits for A is missing to no work in B alone
    all other work            -> a lane without a directory

A thread is started when work comes and all threads of its lane are busy. Where the system has none left, and the lane
has no other, the work fails as for a lack of descriptors: it may be tried again. They are daemons: a disk that never
answers does not keep the process from ending.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Final, TypeAlias

from tidelog.broker.shell import InDirectories

logger: Final = logging.getLogger(__name__)

IO_THREADS: Final = 4
"""Of each lane, for reads that miss the page cache and for fsyncs: enough to keep a device busy, few enough to stay
small."""

Lane: TypeAlias = frozenset[str]
_Work: TypeAlias = "tuple[Future[Any], Callable[[], Any]]"


class IoThreads:
    """What `Runtime` submits work to; used by the loop's thread."""

    def __init__(self) -> None:
        self._lanes: dict[Lane, _Lane] = {}

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        """Runs `work` on a thread of its directories."""
        directories = work.directories if isinstance(work, InDirectories) else frozenset()
        lane = self._lanes.get(directories)
        if lane is None:
            lane = self._lanes[directories] = _Lane(", ".join(sorted(directories)))
        return lane.submit(work)

    @property
    def busy_directories(self) -> frozenset[str]:
        """Those in which work has not ended."""
        return frozenset(name for names, lane in self._lanes.items() if lane.unfinished for name in names)

    def shutdown(self) -> None:
        """Lets threads end when their work has; waits for none."""
        for lane in self._lanes.values():
            lane.shutdown()


class _Lane:
    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._threads = 0
        self._lock = threading.Lock()
        self.unfinished = 0
        """Work that was submitted and has not ended."""

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            self.unfinished += 1
            is_new = self._threads < min(self.unfinished, IO_THREADS)
        if is_new and not self._start() and not self._threads:
            self._ended()
            future.set_exception(OSError(errno.EAGAIN, "the system has no thread left"))
            return future
        self._queue.put((future, work))
        return future

    def _start(self) -> bool:
        """Starts another thread; false where the system has none left. Those that run take its work then."""
        try:
            threading.Thread(target=self._run, name=f"tidelog-io {self._name}", daemon=True).start()
        except RuntimeError as error:
            logger.warning("io_thread_not_started: lane=%r threads=%d error=%s", self._name, self._threads, error)
            return False
        self._threads += 1
        return True

    def shutdown(self) -> None:
        for _ in range(self._threads):
            self._queue.put(None)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            future, work = item
            try:
                result = work()
            except BaseException as error:
                self._ended()
                future.set_exception(error)
            else:
                self._ended()
                future.set_result(result)
            del item, future, work

    def _ended(self) -> None:
        with self._lock:
            self.unfinished -= 1
