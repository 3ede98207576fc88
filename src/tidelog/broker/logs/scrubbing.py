"""Runs the scrub of `storage/scrub.py`, which reads closed segments again: a slice at a time on an I/O thread.

A slice that does not end is not waited for: the scrub goes on in the other log directories.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tidelog.broker.shell import blocking_half
from tidelog.storage.scrub import Scrub, rest_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.broker.deferred import Deferred
    from tidelog.broker.disk_scheduler import DiskScheduler
    from tidelog.broker.environment import BrokerEnvironment
    from tidelog.broker.logs.repairs import Repairs
    from tidelog.broker.shell import Timer
    from tidelog.storage.log_manager import LogManager
    from tidelog.storage.scrub import DirectoryScrub
    from tidelog.storage.tasks import DiskTask

logger: Final = logging.getLogger(__name__)

LOOK_MS: Final = 60_000
"""How often it is looked whether a pass is due, by the settings of that moment."""
FLUSH_MS: Final = 50
"""How long a slice waits for a flush that is under way in its directory, for which producers may wait."""
HUNG_MS: Final = 30_000
"""After which a slice counts as one whose log directory hangs."""


class Scrubbing:
    """The scrubs of a broker's log directories. Called on the loop's thread; what blocks runs on an I/O thread."""

    def __init__(
        self, environment: BrokerEnvironment, logs: LogManager, disk_scheduler: DiskScheduler, repairs: Repairs
    ) -> None:
        self._config = environment.config
        self._clock = environment.clock
        self._disk = environment.disk
        self._shell = environment.shell
        self._logs = logs
        self._disk_scheduler = disk_scheduler
        self._repairs = repairs
        self._scrub: Scrub | None = None
        self._timer: Timer | None = None
        self._running: DiskTask | None = None
        """What is waited for."""
        self._watch: Timer | None = None
        """Set while it is."""
        self._hung: set[str] = set()
        """Log directories whose last task has not ended, and is not waited for."""
        self._is_stopped = False

    @property
    def directories(self) -> Sequence[DirectoryScrub]:
        """How far the scrub is in each log directory; none before `start`."""
        return () if self._scrub is None else self._scrub.directories

    def start(self) -> None:
        """The broker serves: the scrub goes on where the last pass was, after a pause."""
        logs = self._logs
        self._scrub = Scrub(self._disk, self._clock, logs.directories)
        self._scrub.load()
        self._wait(logs.settings.initial_task_delay_ms)

    def stop(self) -> None:
        """Begins nothing more."""
        self._is_stopped = True
        for timer in (self._timer, self._watch):
            if timer is not None:
                timer.cancel()

    def _wait(self, delay_ms: int) -> None:
        self._timer = self._shell.after(max(delay_ms, 1), self._go_on)

    def _go_on(self) -> None:
        """Runs the next slice, or waits until one is due."""
        scrub, config = self._scrub, self._config
        if self._is_stopped or scrub is None:
            return
        if not config.log_scrub_max_bytes_per_second:
            self._wait(LOOK_MS)
            return
        flushing = self._disk_scheduler.flushing
        task = scrub.next_task(config.log_scrub_interval_ms, but=self._hung | flushing)
        if task is None:
            due_ms = scrub.due_ms(config.log_scrub_interval_ms, but=self._hung) - self._clock.wall_ms()
            self._wait(FLUSH_MS if flushing else min(due_ms, LOOK_MS))
            return
        began_ms = self._clock.monotonic_ms()
        self._running = task
        self._watch = self._shell.after(HUNG_MS, self._set_aside)
        self._shell.in_pool(blocking_half(task)).on_complete(lambda ran: self._ran(scrub, task, began_ms, ran))

    def _set_aside(self) -> None:
        """The slice under way does not end."""
        task, self._running, self._watch = self._running, None, None
        if task is not None and task.log_dir is not None and not self._is_stopped:
            logger.warning("scrub_does_not_wait: task=%r log_dir=%s", task, task.log_dir)
            self._hung.add(task.log_dir)
            self._go_on()

    def _ran(self, scrub: Scrub, task: DiskTask, began_ms: int, ran: Deferred[None]) -> None:
        error: OSError | None = None
        try:
            ran.result()
        except OSError as caught:
            error = caught
        except Exception:
            # Of one segment, and the others are to be read.
            logger.exception("scrub_failed: task=%r", task)
        task.finish(error)
        self._repairs.look()
        if self._running is not task:
            self._hung.discard(task.log_dir or "")
            return
        self._running = None
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        took_ms = self._clock.monotonic_ms() - began_ms
        rate = self._config.log_scrub_max_bytes_per_second
        self._wait(rest_ms(scrub.slice_bytes, took_ms, rate) if rate else LOOK_MS)
