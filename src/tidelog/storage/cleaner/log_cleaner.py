"""All compacted logs of a broker, cleaned one after the other, the dirtiest first.

    look for a log that is due --> flush it --> clean it, a slice at a time --> look again
            |  none                                 too fast: wait         |  failed
            +--> rest for log.cleaner.backoff.ms <-------------------------+

These are `DiskTask`s; the broker asks for the `next_task`, one at a time. Each waits for one log directory at most: a
task that does not end is `set_aside`, and its directory's logs are left out until it has ended.

A log whose files cannot be cleaned is left alone for an hour, and its reason told once; an I/O error takes its
directory offline, as any other does.
Where there is no room, no descriptor or no memory for a cleaning, nothing is broken: it comes back to it later.

The flush, and a checkpoint of the recovery point, come first because a cleaning must not rest on what a power cut may
take: a record that supersedes others, the marker that ended a transaction. And because recovery takes gaps above the
recovery point for losses. The checkpoint says of a log's first cleaning that there was one before it replaces anything.
"""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import Offset
from tidelog.storage.cleaner.choice import cleanable_offsets, filthiest, goes_by_time, log_to_clean, warm
from tidelog.storage.cleaner.errors import Uncleanable
from tidelog.storage.cleaner.report import CleanerReport
from tidelog.storage.cleaner.settings import CleanerSettings
from tidelog.storage.disk_errors import as_os_error
from tidelog.storage.errors import CorruptFile
from tidelog.storage.file_names import CLEANER_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from tidelog.storage.tasks import SimpleTask

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.model.identifiers import TopicPartition
    from tidelog.ports.clock import Clock
    from tidelog.ports.random import Random
    from tidelog.storage.cleaner.choice import LogToClean
    from tidelog.storage.cleaner.cleaning import Cleaning
    from tidelog.storage.log import Log
    from tidelog.storage.tasks import DiskTask

logger = logging.getLogger(__name__)

_SEED_SIZE: Final = 16
_WAIT_MS: Final = 50
"""Until the next look, while another task flushes the log, or writes the checkpoints."""
BUSY_MS_MAX: Final = 30_000
"""For how long the cleaner waits for others that write checkpoints in a directory, which then counts as one that hangs;
it looks there again after as long."""
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_POSTPONED_MS: Final = 300_000
"""Retention may make room meanwhile; more attempts would be work for nothing."""
LEFT_ALONE_MS: Final = 3_600_000
"""Until a log is tried again that could not be cleaned: it may have been mended, or copied anew, by other replicas."""


class _Found(NamedTuple):
    """A log that is to be flushed and then cleaned."""

    to_clean: LogToClean
    end: int
    """Where the log ended when it was found: what the cleaning rests on lies below."""
    point: int
    """Where its recovery point is when that is durable: one below the end, or where its active segment begins
    (`Durability.recovery_point`)."""
    truncations: int
    """How often it had been cut by then."""
    found_ms: int
    """When it was found, monotonic."""


class _LeftAlone(NamedTuple):
    """A log that could not be cleaned."""

    log: Log
    reason: str
    until_ms: int
    """Monotonic time of the next attempt."""


class _Step(NamedTuple):
    """A task, and what is done instead of its `finish` once it has been set aside."""

    task: DiskTask
    end_late: Callable[[OSError | None], None]


class LogCleaner:
    """Owned by the thread that owns the logs."""

    def __init__(
        self,
        clock: Clock,
        random: Random | None,
        logs: Mapping[TopicPartition, Log],
        settings: CleanerSettings,
        *,
        is_moving: Callable[[TopicPartition], bool],
        offset_written: Callable[[str, TopicPartition], int | None],
        checkpoint_task: Callable[[TopicPartition], DiskTask | None],
    ) -> None:
        """`logs` are the broker's, as they are at any time. Without `random` the key maps' digests can be guessed.

        `is_moving`: a log is being copied to another directory, and has to stay as it is meanwhile. `offset_written` is
        what a checkpoint file has of a log, if anything; `checkpoint_task` writes these files anew, and is None where
        others are at it.
        """
        self.settings = settings
        """May be replaced; a cleaning under way goes on with those it began with, but for the throttle."""
        self.cleanings = 0
        """Counts those that came to their end."""
        self.report = CleanerReport()
        """What the last look and the last cleaning have found."""
        self._clock = clock
        self._random = random
        self._logs = logs
        self._is_moving = is_moving
        self._offset_written = offset_written
        self._checkpoint_task = checkpoint_task
        self._found: _Found | None = None
        """The log to be cleaned next, once it is durable."""
        self._uncleanable: dict[TopicPartition, _LeftAlone] = {}
        self._postponed: dict[TopicPartition, tuple[Log, int]] = {}
        """Logs for which there was no room, and the monotonic time of the next attempt."""
        self._cleaning: Cleaning | None = None
        self._cleaning_began_ms = 0
        self._is_stopped = False
        self._step: _Step | None = None
        """What is under way."""
        self._hung: set[str] = set()
        """Log directories with a task that was set aside and has not ended."""
        self._busy_until: dict[str, int] = {}
        """[log directory] -> monotonic time until which its logs are left out, as others did not come to an end."""
        self._candidates_now: list[tuple[Log, Offset | None]] = []
        """The logs of the look that is under way, with how far they are cleaned."""
        self._unread: list[str] = []
        """Log directories in which that look has still to read."""
        self._next_ms = clock.monotonic_ms() + settings.backoff_ms
        """Monotonic time of the next look for a log, or of the next slice."""

    @property
    def next_due_ms(self) -> int | None:
        """Monotonic time at which `next_task` has something; None while a task is under way, or nothing ever is."""
        if self._step is not None or self._is_stopped:
            return None
        if self._cleaning is None and self._found is None and not self.settings.enabled:
            return None
        return self._next_ms

    @property
    def uncleanable(self) -> dict[TopicPartition, str]:
        """The logs that could not be cleaned, and why."""
        return {partition: each.reason for partition, each in self._uncleanable.items() if self._is_ours(each.log)}

    def settings_changed(self, settings: CleanerSettings) -> None:
        """Takes new settings."""
        is_resting = self._cleaning is None and self._found is None
        if settings.backoff_ms < self.settings.backoff_ms and is_resting:
            self._next_ms = min(self._next_ms, self._clock.monotonic_ms() + settings.backoff_ms)
        self.settings = settings

    def next_task(self) -> DiskTask | None:
        """What is to be done now; None while the last task has not been finished, and where nothing is due."""
        due_ms = self.next_due_ms
        if due_ms is None or self._clock.monotonic_ms() < due_ms:
            return None
        step = self._flush() if self._found is not None else None
        if self._found is None and step is None:
            step = self._look() if self._cleaning is None else self._slice(self._cleaning)
        if step is None:
            return None
        self._step = begun = step

        def finish(error: OSError | None) -> None:
            if self._step is begun:
                self._step = None
                begun.task.finish(error)
            else:
                self._hung.discard(begun.task.log_dir or "")
                begun.end_late(error)

        return SimpleTask(f"cleaner: {begun.task}", begun.task.run, finish, begun.task.log_dir)

    def set_aside(self) -> bool:
        """The task under way does not end, for its directory hangs: goes on with the logs in other directories. False
        where there is none, or one that waits for no directory.

        It is still to be finished, once it ends: then the directory's logs are looked at again.
        """
        directory = None if self._step is None else self._step.task.log_dir
        if directory is None:
            return False
        self._step = self._found = self._cleaning = None
        self._hung.add(directory)
        self._next_ms = self._clock.monotonic_ms()
        return True

    def stop(self) -> None:
        """Begins nothing more, and gives up what is under way; a slice that runs just now when it is finished."""
        self._is_stopped = True
        self._found = None
        if self._cleaning is not None and self._step is None:
            self._give_up(self._cleaning)

    def run_due(self) -> int:
        """Looks for logs and cleans them, in this thread, until none is due: for tests and tools. Gives how many."""
        before = self.cleanings
        self._next_ms = self._clock.monotonic_ms()
        while (task := self.next_task()) is not None:
            error: OSError | None = None
            try:
                task.run()
            except OSError as caught:
                error = caught
            task.finish(error)
            if self._cleaning is not None or self._found is not None or self._unread:
                self._next_ms = self._clock.monotonic_ms()
        return self.cleanings - before

    # Looking for a log.

    def _candidates(self) -> list[Log]:
        for partition in [each for each, alone in self._uncleanable.items() if not self._is_ours(alone.log)]:
            del self._uncleanable[partition]
        for partition in [each for each, (log, _) in self._postponed.items() if not self._is_ours(log)]:
            del self._postponed[partition]
        now_ms = self._clock.monotonic_ms()
        waiting = {partition for partition, (_, until_ms) in self._postponed.items() if until_ms > now_ms}
        waiting |= {partition for partition, alone in self._uncleanable.items() if alone.until_ms > now_ms}
        return [
            log
            for partition, log in self._logs.items()
            if log.config.compacted
            and len(log.segments) > 1
            and partition not in waiting
            and not self._is_kept_from(log)
        ]

    def _is_ours(self, log: Log) -> bool:
        return self._logs.get(log.topic_partition) is log

    def _is_kept_from(self, log: Log) -> bool:
        """Whether the log is not to be cleaned at the moment."""
        return (
            not self._is_ours(log)
            or log.is_offline
            or log.folder.is_deleted
            or not log.config.compacted
            or log.producers.is_behind
            or log.truncation_is_pending
            or self._is_moving(log.topic_partition)
            or log.owner.path in self._hung
            or self._busy_until.get(log.owner.path, 0) > self._clock.monotonic_ms()
        )

    def _look(self) -> _Step:
        """Reads what is to be known of the logs, one directory after the other; then chooses one."""
        if not self._unread:
            self._candidates_now = [(log, log.cleaned_offset) for log in self._candidates()]
            by_time = [log.owner.path for log, _ in self._candidates_now if goes_by_time(log)]
            self._unread = list(dict.fromkeys(by_time))
        directory = self._unread.pop(0) if self._unread else None
        read = [(log, cleaned) for log, cleaned in self._candidates_now if log.owner.path == directory]

        def run() -> None:
            for log, cleaned in read:
                try:
                    if goes_by_time(log):
                        warm(log, cleaned)
                except (OSError, KafkaError, CorruptFile) as error:
                    # It shows again, and is dealt with, in the owner's thread.
                    logger.debug("cleaner_look_failed: log=%s error=%s", log.topic_partition, error)

        def finish(_: OSError | None) -> None:
            if not self._unread:
                self._choose()

        return _Step(SimpleTask("look for a log to clean", run, finish, directory), lambda _: None)

    def _choose(self) -> None:
        """All that the look was to read is known, but for what hangs."""
        now_ms, monotonic_ms = self._clock.wall_ms(), self._clock.monotonic_ms()
        logs, self._candidates_now = self._candidates_now, []
        judged = [each for log, _ in logs if (each := self._judge(log, now_ms)) is not None]
        self.report.looked(judged, monotonic_ms)
        found = filthiest(judged)
        if found is None or not self.settings.enabled:
            self._next_ms = monotonic_ms + self.settings.backoff_ms
            return
        log = found.log
        end = log.log_end_offset
        point = max(log.active.base_offset, end - 1)
        self._found = _Found(found, end, point, log.durability.truncations, monotonic_ms)

    def _judge(self, log: Log, now_ms: int) -> LogToClean | None:
        if self._is_kept_from(log):
            return None
        try:
            offsets = cleanable_offsets(log, log.cleaned_offset, now_ms)
            return log_to_clean(log, offsets, now_ms)
        except (KafkaError, CorruptFile) as error:
            self._leave_alone(log, error)
        except OSError as error:
            log.folder.fail(error, "cleaning")
        return None

    # Cleaning it.

    def _flush(self) -> _Step | None:
        """What makes the log durable that was found, and known as one that is cleaned; None when nothing is left to do,
        or others are at it."""
        assert self._found is not None
        to_clean, end, point, truncations, found_ms = self._found
        log, now_ms = to_clean.log, self._clock.monotonic_ms()
        if self._is_kept_from(log) or log.durability.truncations != truncations:
            self._found = None
            return None
        if log.cleaned_offset is None:
            # It may have gaps from the first replacement on. A later start is to know that whatever the settings are by
            # then: it would take the segments that were replaced for ones that retention was removing.
            log.cleaned_offset = Offset(to_clean.first_dirty_offset)
            log.mark_changed()
        if log.flushed_offset < end or log.recovery_point < point:
            task = self._flush_task(log)
        elif not self._is_written_down(log, point):
            task = self._checkpoint_task(log.topic_partition)
        else:
            self._found = None
            seed = bytes(_SEED_SIZE) if self._random is None else self._random.token(_SEED_SIZE)
            # Most brokers at rest have no log to clean: it is loaded when the first one is due.
            from tidelog.storage.cleaner.cleaning import Cleaning

            self._cleaning = Cleaning(to_clean, self.settings, seed=seed, now_ms=self._clock.wall_ms())
            self._cleaning_began_ms = now_ms
            return self._slice(self._cleaning)
        if task is not None:
            return _Step(task, task.finish)
        self._next_ms = now_ms + _WAIT_MS
        if now_ms - found_ms >= BUSY_MS_MAX:
            logger.warning("cleaner_waits_no_longer: log=%s", log.topic_partition)
            self._busy_until[log.owner.path] = now_ms + BUSY_MS_MAX
            self._found = None
        return None

    def _is_written_down(self, log: Log, point: int) -> bool:
        """Whether the checkpoints have a recovery point that high, and the log as one that is cleaned."""
        recovery_point = self._offset_written(RECOVERY_POINT_CHECKPOINT, log.topic_partition) or 0
        is_known = self._offset_written(CLEANER_CHECKPOINT, log.topic_partition) is not None
        return recovery_point >= point and is_known

    def _flush_task(self, log: Log) -> DiskTask | None:
        try:
            return log.flush_task()
        except KafkaError as refused:
            logger.debug("cleaner_flush_refused: log=%s reason=%s", log.topic_partition, refused)
            return None

    def _slice(self, cleaning: Cleaning) -> _Step:
        rate = self.settings.io_bytes_per_second_max
        began_ms = self._clock.monotonic_ms()
        bytes_max = max(min(self.settings.slice_bytes, int(min(rate, 1e12) * 0.3)), 1)
        failed: list[Exception] = []
        done = 0

        def run() -> None:
            nonlocal done
            try:
                done = cleaning.run_slice(bytes_max)
            except Exception as error:
                # It is raised again on the loop's thread, which may touch the log: `_finish_slice`.
                failed.append(error)

        def finish(_: OSError | None) -> None:
            self._next_ms = began_ms + int(done * 1000 / rate) if rate > 0 else began_ms + 1000
            self._finish_slice(cleaning, failed[0] if failed else None)

        def end_late(_: OSError | None) -> None:
            if failed and isinstance(failed[0], OSError):
                self._disk_failed(cleaning, failed[0])
            self._remove_written(cleaning)

        task = SimpleTask(f"clean {cleaning.log.topic_partition}", run, finish, cleaning.log.owner.path)
        return _Step(task, end_late)

    def _finish_slice(self, cleaning: Cleaning, failed: Exception | None) -> None:
        log = cleaning.log
        if cleaning.is_stale or self._is_stopped or self._is_kept_from(log):
            logger.info("cleaning_given_up: log=%s", log.topic_partition)
            self._give_up(cleaning)
            return
        try:
            if failed is not None:
                raise failed
            cleaning.finish_slice()
        except (OSError, MemoryError) as error:
            self._disk_failed(cleaning, as_os_error(error))
            self._give_up(cleaning)
        except Exception as error:
            # What one log's bytes bring about must not stop the cleaning of the others.
            self._leave_alone(log, error)
            self._give_up(cleaning)
        else:
            if cleaning.is_over:
                self._cleaning = None
                self._postponed.pop(log.topic_partition, None)
                self._uncleanable.pop(log.topic_partition, None)
                self.cleanings += 1
                counts = cleaning.counts
                self.report.cleaned(counts, self._clock.monotonic_ms() - self._cleaning_began_ms)
                logger.info(
                    "log_cleaned: log=%s to=%d records=%d kept=%d bytes=%d written=%d",
                    log.topic_partition,
                    cleaning.cleaned_to,
                    counts.records_read,
                    counts.records_written,
                    counts.bytes_read,
                    counts.bytes_written,
                )

    def _give_up(self, cleaning: Cleaning) -> None:
        self._cleaning = None
        self._next_ms = self._clock.monotonic_ms() + self.settings.backoff_ms
        self._remove_written(cleaning)

    def _remove_written(self, cleaning: Cleaning) -> None:
        try:
            cleaning.give_up()
        except OSError as error:
            cleaning.log.folder.fail(error, "giving up the cleaning of")

    def _disk_failed(self, cleaning: Cleaning, error: OSError) -> None:
        """Takes the directory offline, unless it was only that there is no room for the files that were being written.

        Those are not needed. Kafka takes the directory offline all the same; then nothing can be appended, either.
        """
        log = cleaning.log
        if not (error.errno in _NO_ROOM and cleaning.is_writing):
            log.folder.fail(error, "cleaning")
        if not log.is_offline and not isinstance(error, FileNotFoundError):
            is_known = log.topic_partition in self._postponed
            self._postponed[log.topic_partition] = (log, self._clock.monotonic_ms() + _POSTPONED_MS)
            logger.log(
                logging.DEBUG if is_known else logging.WARNING,
                "cleaning_postponed log=%s error=%s again_after_ms=%d",
                log.topic_partition,
                error,
                _POSTPONED_MS,
            )

    def _leave_alone(self, log: Log, error: Exception) -> None:
        reason = str(error) or type(error).__name__
        known = self._uncleanable.get(log.topic_partition)
        is_told = known is not None and known.log is log and known.reason == reason
        until_ms = self._clock.monotonic_ms() + LEFT_ALONE_MS
        self._uncleanable[log.topic_partition] = _LeftAlone(log, reason, until_ms)
        logger.log(
            logging.DEBUG if is_told else logging.WARNING,
            "log_uncleanable: log=%s reason=%s",
            log.topic_partition,
            reason,
            exc_info=_trace(error),
        )


def _trace(error: Exception) -> Exception | None:
    """What is no damage in a file is a mistake of ours, which shows itself with its trace."""
    return None if isinstance(error, (KafkaError, CorruptFile, Uncleanable)) else error
