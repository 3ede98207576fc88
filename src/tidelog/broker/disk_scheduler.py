"""When a broker's logs are flushed, checkpointed and looked after, and on which threads.

    logs, handlers, fetchers --wake--> flushes, truncations, snapshots of producers --> I/O threads --> on_task_done
    the clock -----------------------> retention, checkpoints, files to remove -------> I/O threads --> on_task_done

What is due `storage.LogManager` knows; it has it done here. Flushes that are asked for while one is under way share the
next one.
"""

from __future__ import annotations

import functools
import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

from tidelog.broker.deferred import Deferred, gather
from tidelog.broker.shell import InDirectories, blocking_half
from tidelog.metrics.histogram import Histogram
from tidelog.storage.disk_errors import as_os_error
from tidelog.storage.tasks import log_unexpected

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from tidelog.broker.environment import BrokerEnvironment
    from tidelog.broker.shell import Shell, Timer
    from tidelog.storage.log import Log
    from tidelog.storage.log_directory import LogDirectory
    from tidelog.storage.log_manager import LogManager
    from tidelog.storage.tasks import DiskTask

logger: Final = logging.getLogger(__name__)

FLUSH_DELAY_MS_MIN: Final = 10
"""Between two looks at what flush.ms asks for: appends of that time share a flush, whatever the setting."""
STARTS_RETRY_MS: Final = 500
"""Before checkpoints are written again that a disk has refused for a lack of descriptors or memory."""
FOLDERS_WAIT_MS: Final = 5_000
"""For how long an order waits for its new folders to be durable: a disk that is busy is quicker, one that hangs is to
hold up no order for partitions elsewhere."""
DISK_TICK_MS_MIN: Final = 1_000
"""Between two looks at what is due for the disk; flushes that producers wait for don't wait for it."""


class DiskScheduler:
    """On the loop's thread; what blocks runs on I/O threads."""

    def __init__(self, environment: BrokerEnvironment, logs: LogManager) -> None:
        self._clock = environment.clock
        self._shell = environment.shell
        self._logs = logs
        self.on_task_done: list[Callable[[], object]] = []
        """Called after each task: a flush or a truncation may be durable now."""
        self.on_tick: list[Callable[[], object]] = []
        """Called with each look at what is due."""
        logs.producer_limit.on_crowded = self.wake
        for directory in logs.directories:
            directory.on_flush_due = self._flush_by
        self._disk_timer: Timer | None = None
        self._flush_timer: Timer | None = None
        self._flush_due_ms = 0
        """Monotonic time of that timer."""
        self._flush_scheduled = False
        self._checking_ahead: set[Log] = set()
        """Logs in which an I/O thread looks at what consumers will want."""
        self._flushing: dict[str | None, int] = {}
        """[log directory] -> flushes of its group that is under way."""
        self._starts = {each.path: _Starts(each, self, logs, environment.shell) for each in logs.directories}
        self._late_syncs: Counter[str] = Counter()
        """[log directory] -> syncs of new folders that an order has waited for in vain, and that have not ended."""
        self.flush_times = Histogram()
        """How long flushes took, those included that waited for a thread."""
        self._stopped = False

    def stop(self) -> None:
        """Begins nothing more; what runs on I/O threads is finished by the runtime."""
        self._stopped = True
        for timer in (self._disk_timer, self._flush_timer, *(each.timer for each in self._starts.values())):
            if timer is not None:
                timer.cancel()

    @property
    def flushing(self) -> frozenset[str]:
        """Paths of the log directories in which a flush is under way that producers may wait for."""
        return frozenset(path for path in self._flushing if path is not None)

    def run(self, task: DiskTask) -> Deferred[None]:
        """Runs a task on an I/O thread and finishes it here; completes in any case, `finish` sees to errors.

        One that a disk refused for a lack of descriptors or memory is due again with the next `tick`.
        """
        done: Deferred[None] = Deferred()

        def finish(running: Deferred[None]) -> None:
            error = outcome_of(task, running)
            try:
                task.finish(error)
            except Exception:
                # What waits for the task goes on; the directory too, as far as `finish` came.
                logger.exception("disk_task_not_finished: task=%s", task)
            _tell(self.on_task_done)
            if error is None and self._logs.maintenance.has_truncations:
                # The checkpoint files may have been in use when that was asked for.
                self.wake()
            done.complete(None)
            for starts in self._starts.values():
                starts.write()

        self._shell.in_pool(blocking_half(task)).on_complete(finish)
        return done

    def wake(self) -> None:
        """Logs have something to flush or to remove: looks at it soon."""
        if not self._flush_scheduled and not self._stopped:
            self._flush_scheduled = True
            self._shell.soon(self._flush)

    def _flush(self) -> None:
        """Flushes all logs that ask for it, as one group in each log directory; requests that arrive meanwhile join the
        next."""
        self._flush_scheduled = False
        if self._stopped:
            return
        for truncation in self._logs.maintenance.truncation_tasks():
            # Flushes have waited for it.
            self.run(truncation).on_complete(self._flush_if_wanted)
        for task in self._logs.producer_maintenance.tasks(self._clock.monotonic_ms()):
            self.run(task)
        tasks = self._logs.maintenance.flush_tasks(but=self._flushing)
        for task in tasks:
            self._flushing[task.log_dir] = self._flushing.get(task.log_dir, 0) + 1
        began_ms = self._clock.monotonic_ms()
        for task in tasks:
            self.run(task).on_complete(functools.partial(self._flush_done, task.log_dir, began_ms))

    def _flush_done(self, log_dir: str | None, began_ms: int, _: Deferred[None]) -> None:
        self.flush_times.observe((self._clock.monotonic_ms() - began_ms) * 1000)
        self._flushing[log_dir] -= 1
        if not self._flushing[log_dir]:
            del self._flushing[log_dir]
        self._flush_if_wanted(_)

    def _flush_if_wanted(self, _: Deferred[None]) -> None:
        if any(each.flush_requests and each.path not in self._flushing for each in self._logs.directories):
            self.wake()

    def _flush_by(self, due_ms: int) -> None:
        """A log wants a flush by the monotonic time `due_ms`: because of flush.ms, or since one has failed."""
        if self._flush_timer is not None:
            if self._flush_due_ms <= due_ms:
                return
            self._flush_timer.cancel()
        if not self._stopped:
            self._flush_due_ms = due_ms
            delay_ms = max(due_ms - self._clock.monotonic_ms(), FLUSH_DELAY_MS_MIN)
            self._flush_timer = self._shell.after(delay_ms, self._flush_overdue)

    def _flush_overdue(self) -> None:
        self._flush_timer = None
        for task in self._logs.maintenance.overdue_flush_tasks(self._clock.monotonic_ms()):
            self.run(task)
        next_ms = self._logs.maintenance.next_flush_ms()
        if next_ms is not None:
            self._flush_by(next_ms)

    def check_ahead(self, log: Log) -> None:
        """Has an I/O thread check what a consumer will want next, while it is sent what it asked for."""
        if log in self._checking_ahead or self._stopped:
            return
        self._checking_ahead.add(log)

        def checked(done: Deferred[None]) -> None:
            self._checking_ahead.discard(log)
            try:
                done.result()
            except OSError as error:
                # The next read there meets it again, and judges the device.
                logger.info("not checked ahead: partition=%s error=%s", log.topic_partition, error)
                return
            if log.ahead is not None:
                # The consumer has come on meanwhile: it finds the next check under way, and begins none of its own.
                self.check_ahead(log)

        self._shell.in_pool(InDirectories((log.owner.path,), log.check_ahead)).on_complete(checked)

    def starts_durable(self, directories: Iterable[str]) -> Deferred[None]:
        """Completes when the first offsets of all logs in these directories (paths), as they are now, are written down:
        no crash moves one back. Other directories are not waited for: their disks may hang.

        A directory that fails meanwhile is offline, which is for the caller to see.
        """
        return gather([self._starts[path].durable() for path in dict.fromkeys(directories)]).then(lambda _: None)

    def folders_durable(self, changed: Collection[LogDirectory] = ()) -> Deferred[None]:
        """Completes when the folders that were made, renamed or removed so far are durable; in the directories
        `changed` too if an earlier sync of them is under way.

        After FOLDERS_WAIT_MS it completes in any case, and until a sync that was late then has ended, no other is
        begun or waited for in that directory. What is not durable the directories say: `created`, `put_away`. One that
        fails meanwhile is offline, which is for the caller to see.
        """
        durable: Deferred[None] = Deferred()
        late = {path for path, count in self._late_syncs.items() if count}
        under_way = list(self._logs.maintenance.durability_tasks(changed, but=late))

        def ended(task: DiskTask, _: Deferred[None]) -> None:
            under_way.remove(task)
            if durable.done:
                self._late_syncs[task.log_dir or ""] -= 1
            elif all_begun and not under_way:
                timer.cancel()
                durable.complete(None)

        def over() -> None:
            paths = [task.log_dir or "" for task in under_way]
            logger.warning("folders_not_durable_in_time: log_dirs=%s", ",".join(paths))
            self._late_syncs.update(paths)
            durable.complete(None)

        if not under_way:
            durable.complete(None)
            return durable
        all_begun = False
        timer = self._shell.after(FOLDERS_WAIT_MS, over)
        for task in list(under_way):
            self.run(task).on_complete(functools.partial(ended, task))
        all_begun = True
        if not under_way:
            timer.cancel()
            durable.complete(None)
        return durable

    def tick(self) -> None:
        """Does what is due for the disk, and comes back when more is, not within a second."""
        if self._stopped:
            return
        now_ms = self._clock.monotonic_ms()
        for task in self._logs.maintenance.due_tasks(now_ms):
            self.run(task)
        _tell(self.on_tick)
        delay_ms = max(self._logs.maintenance.next_due_ms() - self._clock.monotonic_ms(), DISK_TICK_MS_MIN)
        self._disk_timer = self._shell.after(delay_ms, self.tick)


class _Starts:
    """The first offsets of one directory's logs, on their way into its checkpoint."""

    def __init__(self, directory: LogDirectory, scheduler: DiskScheduler, logs: LogManager, shell: Shell) -> None:
        self._directory = directory
        self._scheduler = scheduler
        self._maintenance = logs.maintenance
        self._shell = shell
        self._waiting: list[Deferred[None]] = []
        """Completed once they are written down."""
        self.timer: Timer | None = None
        """Set while the disk is to have time to find descriptors or memory for checkpoints again."""

    def durable(self) -> Deferred[None]:
        """Completes once they are written down as they are now, or the directory is offline."""
        durable: Deferred[None] = Deferred()
        self._waiting.append(durable)
        self.write()
        return durable

    def write(self) -> None:
        """Writes the checkpoints for the callers that wait for them; what is being written just now may be older."""
        is_busy = self._directory.is_checkpointing and self._directory.failure is None
        if not self._waiting or is_busy or self.timer is not None:
            return
        waiting, self._waiting = self._waiting, []

        def written(_: Deferred[None]) -> None:
            if self._directory.checkpoints_are_behind and self._directory.failure is None:
                # Without descriptors or memory; nothing is durable yet.
                self._waiting = waiting + self._waiting
                self.timer = self._shell.after(STARTS_RETRY_MS, self._again)
                return
            for durable in waiting:
                durable.complete(None)

        task = self._maintenance.checkpoint_task(self._directory)
        (Deferred.of(None) if task is None else self._scheduler.run(task)).on_complete(written)

    def _again(self) -> None:
        self.timer = None
        self.write()


def _tell(listeners: Iterable[Callable[[], object]]) -> None:
    """Calls each of the listeners, whatever becomes of the others."""
    for tell in listeners:
        try:
            tell()
        except Exception:  # A listener's fault stops no flush, and no other listener: the log tells of it.
            logger.exception("disk_listener_failed: listener=%s", tell)


def outcome_of(task: DiskTask, running: Deferred[None]) -> OSError | None:
    """What `task.finish` is to be told once `task.run` has ended; anything that no disk raises is logged."""
    try:
        running.result()
    except Exception as error:
        log_unexpected(task, error)
        return as_os_error(error)
    return None
