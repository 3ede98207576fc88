"""Log maintenance: the work on a broker's logs that waits for a disk.

    after changes      truncations are settled, rolled segments and `flush.messages` flushed, new folders synced
    from time to time  flushes by age, retention, checkpoints, expiry of producers, removal of files

It is handed out as `DiskTask`s, whose blocking half runs in any thread. `due_tasks` returns all that is due; a caller
that waits for one kind of work asks for that kind alone.
"""

from __future__ import annotations

import errno
import heapq
import logging
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Final

from tidelog.model.errors import KafkaError
from tidelog.storage.errors import CorruptFile
from tidelog.storage.log_config import LONG_MAX
from tidelog.storage.settings_gate import AlwaysCurrent
from tidelog.storage.tasks import DiskTask, SimpleTask, run_now

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Mapping, Sequence

    from tidelog.model.identifiers import TopicPartition
    from tidelog.ports.clock import Clock
    from tidelog.ports.disk import Disk
    from tidelog.storage.log import Log
    from tidelog.storage.log_directory import LogDirectory
    from tidelog.storage.log_manager_settings import LogManagerSettings
    from tidelog.storage.producer_maintenance import ProducerMaintenance
    from tidelog.storage.producer_state import ProducerState
    from tidelog.storage.segment import Segment
    from tidelog.storage.settings_gate import SettingsGate

logger = logging.getLogger(__name__)

REST_MS: Final = 500
"""After a disk has refused something for a lack of descriptors or memory: until it is asked again."""

RECOVERED_CHECKPOINT_MS: Final = 2_000
"""After a crash: until the recovery points are written down, and the segments that were just read through are flushed.
A broker that crashes again and again would otherwise read the same ones each time, and more of them."""


class LogMaintenance:
    """Maintains the logs in all log directories of a broker. Owned by the thread that owns the logs."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        directories: Sequence[LogDirectory],
        logs: Mapping[TopicPartition, Log],
        settings: LogManagerSettings,
        producers: ProducerMaintenance,
    ) -> None:
        """`logs` are those of all directories, as they are at any time."""
        self._disk = disk
        self._clock = clock
        self._directories = directories
        self._logs = logs
        self._settings = settings
        self._producers = producers
        self._deletions: list[tuple[int, int, LogDirectory, Callable[[], None]]] = []
        """Heap of monotonic time, tie-breaker, directory, and what to run."""
        self._sequence = count()
        self._next_retention_ms = 0
        self._next_checkpoint_ms = 0
        self._next_high_watermarks_ms = 0
        self._next_expiration_ms = 0
        self.settings_gate: SettingsGate = AlwaysCurrent()
        """Asked before retention deletes by the settings that logs have."""
        self._overdue: set[Log] = set()
        """Logs of which a flush by `flush.ms` is under way: what is appended meanwhile waits for the next one."""
        self._retaining: set[LogDirectory] = set()
        """Directories whose retention is under way."""

    def start(self) -> None:
        """The logs are loaded: what is done from time to time is due an interval from now."""
        now = self._clock.monotonic_ms()
        self._next_retention_ms = now + self._settings.initial_task_delay_ms
        checkpoint_ms = self._settings.flush_offset_checkpoint_interval_ms
        if self._flush_recovered():
            checkpoint_ms = min(checkpoint_ms, RECOVERED_CHECKPOINT_MS)
        self._next_checkpoint_ms = now + checkpoint_ms
        self._next_high_watermarks_ms = now + self._settings.high_watermark_checkpoint_interval_ms
        self._next_expiration_ms = now + self._settings.producer_expiration_check_interval_ms

    def _flush_recovered(self) -> bool:
        """Asks for flushes of closed segments above the recovery points: a start after a crash has recovered them."""
        found = False
        for directory in self._directories:
            for topic_partition, log in directory.logs.items():
                if log.recovery_point < log.active.base_offset:
                    directory.flush_wanted(topic_partition)
                    found = True
        return found

    def due_tasks(self, now_ms: int) -> list[DiskTask]:
        """Whatever is due at the monotonic time `now_ms`: flushes, retention, checkpoints, expiry, removal of files."""
        tasks = [*self.truncation_tasks(), *self.flush_tasks()]
        self._collect_deletions(now_ms)
        while self._deletions and self._deletions[0][0] <= now_ms:
            _, _, directory, unlink = heapq.heappop(self._deletions)
            if directory.failure is None:
                tasks.append(self._deletion(directory, unlink))
        tasks += self.overdue_flush_tasks(now_ms)
        if now_ms >= self._next_retention_ms:
            self._next_retention_ms = now_ms + self._settings.retention_check_interval_ms
            tasks += self.retention_tasks()
        recovery, high_watermarks = now_ms >= self._next_checkpoint_ms, now_ms >= self._next_high_watermarks_ms
        if recovery:
            self._next_checkpoint_ms = now_ms + self._settings.flush_offset_checkpoint_interval_ms
        if high_watermarks:
            self._next_high_watermarks_ms = now_ms + self._settings.high_watermark_checkpoint_interval_ms
        if recovery or high_watermarks:
            # By one task: a second one would find the first under way, with equal intervals each time.
            tasks += self.checkpoint_tasks(recovery=recovery, high_watermarks=high_watermarks)
        if recovery:
            tasks += self._epoch_tasks()
        if now_ms >= self._next_expiration_ms:
            self._next_expiration_ms = now_ms + self._settings.producer_expiration_check_interval_ms
            tasks.append(self._producers.look_task(now_ms))
        tasks += self._producers.tasks(now_ms)
        # Where a sync hangs another one would only wait behind it.
        return tasks + self.durability_tasks(but=[each.path for each in self._directories if each.syncs])

    def next_due_ms(self) -> int:
        """Monotonic time at which `due_tasks` is worth a call, as things stand.

        In a second where a log has `flush.ms`, for a caller that does not hear of `LogDirectory.on_flush_due`.
        """
        times = [
            self._next_retention_ms,
            self._next_checkpoint_ms,
            self._next_high_watermarks_ms,
            self._next_expiration_ms,
        ]
        producers_ms = self._producers.next_due_ms()
        if producers_ms is not None:
            times.append(producers_ms)
        now = self._clock.monotonic_ms()
        if self._deletions:
            times.append(self._deletions[0][0])
        for directory in self._directories:
            needs_sync = directory.needs_sync and not directory.syncs
            if directory.pending_deletions or directory.flush_requests or needs_sync or directory.truncations:
                return now
            if any(log.folder.unfinished for log in directory.changed_logs()):
                times.append(now + REST_MS)
            if directory.flush_retries or any(log.config.flush_ms != LONG_MAX for log in directory.logs.values()):
                times.append(now + 1000)
        return min(times)

    def run_due(self, now_ms: int) -> None:
        """`due_tasks`, in this thread: for tests and tools."""
        for task in self.due_tasks(now_ms):
            run_now(task)

    # Truncations and flushes.

    @property
    def has_truncations(self) -> bool:
        """Whether logs were cut, and no task is under way yet that makes it durable."""
        return any(directory.truncations for directory in self._directories if directory.failure is None)

    def truncation_tasks(self) -> list[DiskTask]:
        """Makes truncations durable, one task a directory, and rebuilds producers' state where that takes reading.

        A directory whose checkpoints are just being written has to wait: ask again when that task is done.
        """
        return [
            self._truncation_task(directory)
            for directory in self._directories
            if directory.truncations and directory.failure is None and not directory.is_checkpointing
        ]

    def _truncation_task(self, directory: LogDirectory) -> DiskTask:
        directory.is_checkpointing = True
        now_ms = self._clock.wall_ms()
        logs = directory.take_truncations()
        parts = [(log, log.truncation(), log.producers.is_behind) for log in logs]
        # A log that ends below its checkpointed high watermark has lost records: one that is cut there on purpose has
        # not, and its checkpoint goes down first.
        is_committed = any(log.kept_high_watermark < log.high_watermark for log in logs)
        writes = directory.checkpoint_writes(high_watermarks=is_committed)
        rebuilt: dict[Log, ProducerState] = {}
        gone: dict[Log, FileNotFoundError] = {}

        def run() -> None:
            for log, part, is_behind in parts:
                try:
                    part.run()
                    if is_behind:
                        rebuilt[log] = log.producers_at_end(now_ms)
                except FileNotFoundError as error:
                    gone[log] = error  # Perhaps the log has been deleted: that is seen in the owner's thread.
            directory.write_checkpoints(writes)

        def again(log: Log) -> None:
            if directory.failure is None and directory.logs.get(log.topic_partition) is log:
                directory.truncated(log.topic_partition)

        def finish(error: OSError | None) -> None:
            directory.is_checkpointing = False
            if error is not None:
                directory.not_written(writes)
                if directory.task_failed(error, "making a truncation durable"):
                    for log in logs:
                        again(log)
                return
            for log, part, _ in parts:
                if log in gone:
                    log.folder.fail(gone[log], "making a truncation durable of")
                    # Where only a segment has gone, by retention, the rest is still to be done.
                    again(log)
                    continue
                if not part.finish() or log.is_offline:
                    continue
                if log.producers.is_behind and log in rebuilt:
                    log.producers_rebuilt(rebuilt[log])
                log.truncation_is_durable()

        return SimpleTask(f"truncations in {directory.path}", run, finish, directory.path)

    def flush_tasks(self, *, but: Container[str | None] = ()) -> list[DiskTask]:
        """Flushes of the logs that rolled or have `flush.messages` unflushed records; cheap when there are none.

        Not in the directories `but`, by their paths.
        """
        tasks: list[DiskTask] = []
        for directory in self._directories:
            if directory.flush_requests and directory.path not in but:
                for log in directory.take_flush_requests():
                    # Up to the active segment after a roll, up to the end where the settings ask for it.
                    task = _flush(log, None if log.is_flush_due else log.active.base_offset)
                    if task is not None:
                        tasks.append(task)
        return tasks

    def overdue_flush_tasks(self, now_ms: int) -> list[DiskTask]:
        """Flushes by `flush.ms`, those that did not happen before, and the forgetting of logs that are clean again."""
        tasks: list[DiskTask] = []
        for directory in self._directories:
            for log in directory.take_flush_retries(now_ms):
                task = _flush(log, None if log.is_flush_due else log.active.base_offset)
                if task is not None:
                    tasks.append(task)
            for log in directory.changed_logs():
                if log.folder.unfinished:
                    _finish_steps(log)
                since, flush_ms = log.unflushed_since_ms, log.config.flush_ms
                if log.is_clean:
                    # The log before it may have taken the directory offline, which has forgotten all of them then.
                    directory.changes.pop(log.topic_partition, None)
                    log.settled()
                elif log.topic_partition in directory.flush_retries:
                    continue  # Overdue or not, it is tried again in a moment.
                elif log in self._overdue:
                    continue
                elif flush_ms != LONG_MAX and since is not None and now_ms - since >= flush_ms:
                    task = _flush(log)
                    if task is not None:
                        tasks.append(self._overdue_flush(log, task))
        return tasks

    def _overdue_flush(self, log: Log, task: DiskTask) -> DiskTask:
        self._overdue.add(log)

        def finish(error: OSError | None) -> None:
            self._overdue.discard(log)
            task.finish(error)
            if log.unflushed_since_ms is not None and log.config.flush_ms != LONG_MAX:
                log.folder.owner.flush_due(log.unflushed_since_ms + log.config.flush_ms)

        return SimpleTask(f"{task} by flush.ms", task.run, finish, task.log_dir)

    def next_flush_ms(self) -> int | None:
        """Monotonic time of the next of `overdue_flush_tasks`, as things stand; None where none is known."""
        due = [due_ms for directory in self._directories for due_ms in directory.flush_retries.values()]
        for directory in self._directories:
            due += [
                log.unflushed_since_ms + log.config.flush_ms
                for log in directory.changed_logs()
                if log.config.flush_ms != LONG_MAX
                and log.unflushed_since_ms is not None
                and log.topic_partition not in directory.flush_retries
                and log not in self._overdue
            ]
        return min(due, default=None)

    def _epoch_tasks(self) -> list[DiskTask]:
        """Writes the leader epochs of logs that are not flushed otherwise."""
        changed = [log for directory in self._directories for log in directory.changed_logs()]
        tasks = [_flush(log, log.flushed_offset) for log in changed if log.epochs_dirty]
        return [task for task in tasks if task is not None]

    # Checkpoints and new folders.

    def checkpoint_tasks(self, *, recovery: bool = True, high_watermarks: bool = True) -> list[DiskTask]:
        """Writes the checkpoint files that have changed."""
        tasks: list[DiskTask] = []
        for directory in self._directories:
            task = self.checkpoint_task(directory, recovery=recovery, high_watermarks=high_watermarks)
            if task is not None:
                tasks.append(task)
        return tasks

    def checkpoint_task(
        self, directory: LogDirectory, *, recovery: bool = True, high_watermarks: bool = False
    ) -> DiskTask | None:
        """Those of one directory; None where none has changed, or they are being written."""
        if directory.failure is not None or directory.is_checkpointing:
            return None
        writes = directory.checkpoint_writes(recovery=recovery, high_watermarks=high_watermarks)
        return self._write_task(directory, writes) if writes else None

    def _write_task(self, directory: LogDirectory, writes: list[tuple[str, bytes]]) -> DiskTask:
        directory.is_checkpointing = True

        def run() -> None:
            directory.write_checkpoints(writes)

        def finish(error: OSError | None) -> None:
            directory.is_checkpointing = False
            if error is not None:
                directory.not_written(writes)
                directory.task_failed(error, "writing checkpoints")

        return SimpleTask(f"checkpoints of {directory.path}", run, finish, directory.path)

    def durability_tasks(self, changed: Collection[LogDirectory] = (), *, but: Container[str] = ()) -> list[DiskTask]:
        """Makes the creations, renames and removals of folders so far durable, one task a directory.

        However many logs were created, the cost is bounded: one sync a directory from 17 on. Answer a CreateTopics
        once they have finished. `changed`: directories that are synced in any case; of what has changed in them an
        earlier task may be under way. Not in the directories `but`, by their paths.
        """
        return [
            self._durability_task(directory)
            for directory in self._directories
            if (directory.needs_sync or directory.created or directory in changed)
            and directory.failure is None
            and directory.path not in but
        ]

    def durability_task(self) -> DiskTask | None:
        """All of `durability_tasks` as one; None when there are none."""
        tasks = self.durability_tasks()
        if len(tasks) < 2:
            return tasks[0] if tasks else None
        errors: dict[DiskTask, OSError] = {}

        def run() -> None:
            for task in tasks:
                try:
                    task.run()
                except OSError as error:
                    errors[task] = error

        def finish(error: OSError | None) -> None:
            for task in tasks:
                task.finish(errors.get(task, error))

        return SimpleTask("sync new logs", run, finish)

    def _durability_task(self, directory: LogDirectory) -> DiskTask:
        created, up_to = list(directory.created), directory.folder_changes
        directory.needs_sync = False
        directory.syncs += 1

        def run() -> None:
            directory.sync_folders(created)

        def finish(error: OSError | None) -> None:
            directory.syncs -= 1
            if error is None:
                directory.changes_durable(up_to)
            elif directory.task_failed(error, "syncing new logs"):
                directory.needs_sync = True

        return SimpleTask(f"sync new logs in {directory.path}", run, finish, directory.path)

    # What goes.

    @property
    def is_retaining(self) -> bool:
        """Whether retention is under way in a directory."""
        return bool(self._retaining)

    def retention_tasks(self) -> list[DiskTask]:
        """Deletes old segments of all logs, one task a directory; none where the last one has not ended."""
        return [
            self._retention_task(directory)
            for directory in self._directories
            if directory.failure is None and directory not in self._retaining
        ]

    def retention_task(self) -> DiskTask:
        """All of `retention_tasks` as one."""
        tasks = self.retention_tasks()

        def run() -> None:
            for task in tasks:
                task.run()

        def finish(error: OSError | None) -> None:
            for task in tasks:
                task.finish(error)

        return SimpleTask("retention", run, finish)

    def _retention_task(self, directory: LogDirectory) -> DiskTask:
        """Largest timestamps are read ahead where they are not known yet."""
        self._retaining.add(directory)
        logs = [log for log in directory.logs.values() if self._logs.get(log.topic_partition) is log]
        waiting = deque(logs)
        closed = [segment for log in logs if log.config.deleted for segment in log.segments[:-1]]

        def run() -> None:
            for segment in closed:
                if not segment.mark:
                    _warm(segment)

        def finish(error: OSError | None) -> None:
            if error is not None:
                logger.warning("retention_read_failed: error=%s", error)
            self.settings_gate.when_current(delete)

        def delete() -> None:
            if not self.settings_gate.are_current:
                logger.warning(
                    "retention_put_off: reason='the store has not confirmed the settings' logs=%d", len(waiting)
                )
                waiting.clear()
            now = self._clock.wall_ms()
            while waiting and self.settings_gate.are_current:
                log = waiting.popleft()
                try:
                    if not log.folder.is_deleted and not log.is_offline:
                        log.delete_old_segments(now)
                except (KafkaError, CorruptFile) as refused:
                    logger.warning("retention_failed: log=%s reason=%s", log.topic_partition, refused)
            if waiting:
                self.settings_gate.when_current(delete)
            else:
                self._retaining.discard(directory)

        return SimpleTask(f"retention in {directory.path}", run, finish, directory.path)

    def _deletion(self, directory: LogDirectory, unlink: Callable[[], None]) -> DiskTask:
        def finish(error: OSError | None) -> None:
            if error is None or isinstance(error, FileNotFoundError):
                return
            # In a folder on its way out another thread may have written a file meanwhile (`remove_folder`).
            if error.errno == errno.ENOTEMPTY or directory.task_failed(error, "removing deleted files"):
                directory.delete_later(unlink, REST_MS)

        return SimpleTask("remove deleted files", unlink, finish, directory.path)

    def expire_producers(self) -> int:
        """Forgets producers that were silent for `producer.id.expiration.ms`, in this thread; gives how many."""
        before = self._producers_count()
        run_now(self._producers.look_task(self._clock.monotonic_ms()))
        return before - self._producers_count()

    def _producers_count(self) -> int:
        return sum(len(log.producers.entries) for log in self._logs.values())

    def _collect_deletions(self, now_ms: int) -> None:
        for directory in self._directories:
            if directory.pending_deletions:
                waiting, directory.pending_deletions = directory.pending_deletions, []
                for unlink, delay_ms in waiting:
                    heapq.heappush(self._deletions, (now_ms + delay_ms, next(self._sequence), directory, unlink))


def _flush(log: Log, up_to_offset: int | None = None) -> DiskTask | None:
    """As `Log.flush_task`; None also when that took the directory offline, of which the broker has been told."""
    try:
        return log.flush_task(up_to_offset)
    except KafkaError as refused:
        logger.warning("flush_refused: log=%s reason=%s", log.topic_partition, refused)
        return None


def _finish_steps(log: Log) -> None:
    """Does to files what a step over several of them could not do at once."""
    try:
        log.finish_steps()
    except KafkaError as refused:
        logger.debug("steps_unfinished: log=%s reason=%s", log.topic_partition, refused)


def _warm(segment: Segment) -> None:
    """Loads a closed segment's largest timestamp; damage shows again, and is handled, in the owner's thread."""
    try:
        segment.largest_timestamp()
    except (KafkaError, CorruptFile) as error:
        logger.warning("largest_timestamp_unknown: path=%s reason=%s", segment.log_file.path, error)
