"""Has the logs compacted: runs the cleaner's tasks, one at a time, whenever one is due."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Final

from tidelog.broker.logs.settings import cleaner_settings
from tidelog.broker.shell import blocking_half
from tidelog.storage.disk_errors import as_os_error
from tidelog.storage.tasks import log_unexpected

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.deferred import Deferred
    from tidelog.broker.disk_scheduler import DiskScheduler
    from tidelog.broker.environment import BrokerEnvironment
    from tidelog.broker.shell import Timer
    from tidelog.config.broker_config import BrokerConfig
    from tidelog.storage.log_manager import LogManager
    from tidelog.storage.tasks import DiskTask

logger: Final = logging.getLogger(__name__)

HUNG_MS: Final = 30_000
"""After which a task counts as one whose log directory hangs; the logs in the others are cleaned meanwhile."""
UNCONFIRMED_MS: Final = 1_000
"""Pause before the store is asked again to confirm the settings; the task that has run waits meanwhile."""


class LogCleanerRunner:
    """On the loop's thread; what blocks runs on an I/O thread, in slices, so that others get it in between."""

    def __init__(self, environment: BrokerEnvironment, logs: LogManager, disk_scheduler: DiskScheduler) -> None:
        self._clock = environment.clock
        self._shell = environment.shell
        self._logs = logs
        self._disk_scheduler = disk_scheduler
        self._finish: Callable[[], None] | None = None
        """Second half of a task that has run: called once the settings, by which records go, are confirmed."""
        self._timer: Timer | None = None
        self._is_busy = False
        self._running: DiskTask | None = None
        """What an I/O thread is at, unless it was set aside."""
        self._watch: Timer | None = None
        """Set while it may come to be."""
        self._is_stopped = False
        self._cleanings = 0
        """Cleanings that were finished when the checkpoint was last asked for."""

    def start(self) -> None:
        """The broker serves: logs may be cleaned from now on."""
        self._go_on()

    def stop(self) -> None:
        """Begins nothing more; what a cleaning has written and not put in place goes."""
        self._is_stopped = True
        if self._watch is not None:
            self._watch.cancel()
        self._logs.cleaner.stop()
        self._cancel()
        self._finish_task()

    def settings_changed(self, config: BrokerConfig) -> None:
        self._logs.cleaner.settings_changed(cleaner_settings(config))
        if not self._is_busy and self._timer is not None:
            self._go_on()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _go_on(self) -> None:
        """Runs what is due, or waits until something is."""
        if self._is_stopped or self._is_busy:
            return
        self._cancel()
        cleaner, shell = self._logs.cleaner, self._shell
        task = cleaner.next_task()
        if task is not None:
            self._is_busy = True
            self._running = task
            if task.log_dir is not None:
                self._watch = shell.after(HUNG_MS, self._set_aside)
            shell.in_pool(blocking_half(task)).on_complete(lambda ran: self._ran(task, ran))
            return
        due_ms = cleaner.next_due_ms
        if due_ms is not None:
            self._timer = shell.after(max(due_ms - self._clock.monotonic_ms(), 1), self._go_on)

    def _set_aside(self) -> None:
        """The task under way does not end."""
        self._watch = None
        if self._running is not None and not self._is_stopped and self._logs.cleaner.set_aside():
            logger.warning("cleaner_does_not_wait: task=%r log_dir=%s", self._running, self._running.log_dir)
            self._running = None
            self._is_busy = False
            self._go_on()

    def _ran(self, task: DiskTask, ran: Deferred[None]) -> None:
        try:
            ran.result()
            error: OSError | None = None
        except Exception as caught:
            log_unexpected(task, caught)
            error = as_os_error(caught)
        if self._running is not task:
            # It was set aside: it puts nothing in place any more.
            task.finish(error)
            return
        self._running = None
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._finish = functools.partial(task.finish, error)
        self._finish_if_current()

    def _finish_if_current(self) -> None:
        gate = self._logs.maintenance.settings_gate

        def confirmed() -> None:
            if gate.are_current or self._is_stopped:
                self._finish_task()
            else:
                self._timer = self._shell.after(UNCONFIRMED_MS, self._finish_if_current)

        if gate.are_current or self._is_stopped:
            self._finish_task()
        else:
            gate.when_current(confirmed)

    def _finish_task(self) -> None:
        finish, self._finish = self._finish, None
        if finish is None:
            return
        self._is_busy = False
        finish()
        cleaner = self._logs.cleaner
        if cleaner.cleanings != self._cleanings:
            self._cleanings = cleaner.cleanings
            for writing in self._logs.maintenance.checkpoint_tasks(high_watermarks=False):
                self._disk_scheduler.run(writing)
        if not self._is_stopped:
            self._shell.soon(self._go_on)
