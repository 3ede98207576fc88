"""The scrub: reads through every segment from time to time, so that rot is found while other replicas can mend it.

    pass 1 over a directory: log by log, segment by segment, a slice at a time ... the end, said in the log ... pass 2

A slice is a task for an I/O thread. What is wrong is noted as a read would note it (`ReadableLog.found_rot`). The pace
is `log.scrub.max.bytes.per.second`, and at most one part in `REST` + 1 of the time is spent on slices: where the device
is busy they take longer, and so do the rests.

The transaction index of a segment, which no checksum covers, is compared with the segment's markers, and written anew
where it differs (`transaction_scan`). The time index is compared when it is used (`segment_lookups`).

Where a pass has come to stands in a small file of the directory, which neither Kafka nor older versions read: the
segment that it is in, when it began, and when the one before it ended.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final

from tidelog.ports.disk import replace_file
from tidelog.storage.log_config import LONG_MAX
from tidelog.storage.tasks import SimpleTask
from tidelog.storage.transaction_scan import compare_transactions, mend_transaction_index, transaction_scan

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tidelog.model.identifiers import TopicPartition
    from tidelog.ports.clock import Clock
    from tidelog.ports.disk import Disk
    from tidelog.storage.integrity import Checked
    from tidelog.storage.log import Log
    from tidelog.storage.log_directory import LogDirectory
    from tidelog.storage.segment import Segment
    from tidelog.storage.tasks import DiskTask
    from tidelog.storage.transaction_scan import IndexFlaws, TransactionScan

logger: Final = logging.getLogger(__name__)

SCRUB_CHECKPOINT: Final = "tidelog-scrub-checkpoint"
SLICE_BYTES: Final = 1 << 20
"""Bytes read by a task, and the rest of the last batch."""
REST: Final = 4
"""How many times as long as a slice took nothing is read after it, at least."""
REST_MS_MIN: Final = 5
CHECKPOINT_MS: Final = 60_000
"""Between two writings of where a pass is; a crash has it repeat that much."""
_VERSION: Final = 1


class DirectoryScrub:
    """Where the scrub is in one directory. Times are wall times in milliseconds."""

    def __init__(self, directory: LogDirectory) -> None:
        self.directory = directory
        self.began_ms: int | None = None
        """When the pass under way began; None between passes."""
        self.last_began_ms: int | None = None
        self.last_ended_ms: int | None = None
        """Of the last pass that came to its end; None where none did."""
        self.at: tuple[str, int, int] = ("", 0, 0)
        """Topic, partition and base offset of the segment that is being read, or comes next."""
        self.position = 0
        self.next_offset: int | None = None
        """What was read of that segment, and the offset behind it."""
        self.transactions: TransactionScan | None = None
        """Of what was read of that segment; None where its transaction index is not to be compared."""
        self.segments_read = self.bytes_read = self.rotten = 0
        """Of the pass under way, since the broker started."""
        self._segment: Segment | None = None
        """The one that is being read."""
        self._truncations = 0
        """The log's, when that was begun: behind a cut there may be other batches."""
        self._names: list[TopicPartition] | None = None
        """The logs still to be read, last first; None until the pass goes on in this process."""

    def restore(self, content: bytes) -> None:
        """Takes over what a checkpoint says; ValueError where it is none."""
        fields: dict[str, Any] = json.loads(content)
        if fields["version"] != _VERSION:
            raise ValueError(f"version {fields['version']!r}")
        topic, partition, base_offset = fields["at"]
        self.at = str(topic), int(partition), int(base_offset)
        self.began_ms, self.last_began_ms, self.last_ended_ms = (
            None if fields[name] is None else int(fields[name])
            for name in ("began_ms", "last_began_ms", "last_ended_ms")
        )

    def checkpoint(self) -> bytes:
        """What is to be written."""
        fields = {
            "version": _VERSION,
            "began_ms": self.began_ms,
            "at": self.at,
            "last_began_ms": self.last_began_ms,
            "last_ended_ms": self.last_ended_ms,
        }
        return (json.dumps(fields) + "\n").encode()

    def begin(self, now_ms: int) -> None:
        """A pass begins."""
        self.began_ms, self.at, self.position = now_ms, ("", 0, 0), 0
        self.segments_read = self.bytes_read = self.rotten = 0
        self._names = None

    def end(self, now_ms: int) -> None:
        """The pass has come to its end."""
        logger.info(
            "scrub_ended: directory=%s segments=%d bytes=%d rotten_segments=%d seconds=%d",
            self.directory.path,
            self.segments_read,
            self.bytes_read,
            self.rotten,
            (now_ms - (self.began_ms or now_ms)) // 1000,
        )
        self.last_began_ms, self.last_ended_ms, self.began_ms = self.began_ms, now_ms, None

    def next_segment(self) -> tuple[Log, Segment] | None:
        """The segment that is to be read now; None at the end of the pass."""
        topic, partition, base_offset = self.at
        names = self._names
        if names is None:
            begun = (topic, partition)
            names = self._names = sorted((each for each in self.directory.logs if each >= begun), reverse=True)
        while names:
            name = names[-1]
            log = self.directory.logs.get(name)
            first = base_offset if name == (topic, partition) else 0
            segments = [] if log is None else log.segments
            # An empty segment before others may have lost what it had.
            closed_or_filled = (each for each in segments if each.size or each is not segments[-1])
            segment = next((each for each in closed_or_filled if each.base_offset >= first), None)
            if log is not None and segment is not None:
                self._stand_at((*name, segment.base_offset), segment, log.truncations)
                return log, segment
            names.pop()
        return None

    def _stand_at(self, at: tuple[str, int, int], segment: Segment, truncations: int) -> None:
        if at != self.at or segment is not self._segment or truncations != self._truncations:
            # A compaction may have put another in its place.
            self.at, self.position, self._segment, self._truncations = at, 0, segment, truncations

    def leave_segment(self) -> None:
        """The rest of the segment is not to be read in this pass."""
        topic, partition, base_offset = self.at
        self.at, self.position = (topic, partition, base_offset + 1), 0
        self.segments_read += 1


class Scrub:
    """Of all directories of a broker; owned by the thread that owns the logs."""

    def __init__(self, disk: Disk, clock: Clock, directories: Sequence[LogDirectory]) -> None:
        self._disk = disk
        self._clock = clock
        self.directories = [DirectoryScrub(directory) for directory in directories]
        self._turn = 0
        self._checkpoint_due_ms = 0
        self.slice_bytes = 0
        """Read by the last slice."""

    def load(self) -> None:
        """Reads how far earlier passes came; one whose file cannot be read begins anew."""
        for scrub in self.directories:
            path = f"{scrub.directory.path}/{SCRUB_CHECKPOINT}"
            try:
                scrub.restore(self._disk.read(path))
            except FileNotFoundError:
                continue
            except (OSError, ValueError, KeyError, TypeError) as error:
                logger.warning("scrub_checkpoint_ignored: path=%s reason=%s", path, error)
        self._checkpoint_due_ms = self._clock.monotonic_ms() + CHECKPOINT_MS

    def next_task(self, interval_ms: int, *, but: Collection[str] = ()) -> DiskTask | None:
        """The next slice of a pass; None while none is due. A pass begins `interval_ms` after the last one began.

        Not in the log directories `but`, by their paths: a task must be finished before the next one is asked for in
        its directory.
        """
        for _ in self.directories:
            self._turn = (self._turn + 1) % len(self.directories)
            scrub = self.directories[self._turn]
            if scrub.directory.failure is None and scrub.directory.path not in but:
                task = self._task(scrub, interval_ms)
                if task is not None:
                    return task
        return None

    def due_ms(self, interval_ms: int, *, but: Collection[str] = ()) -> int:
        """Wall time at which the next pass begins, where none is under way; not in directories that are offline, nor in
        `but`."""
        online = [
            each for each in self.directories if each.directory.failure is None and each.directory.path not in but
        ]
        return min(
            ((each.last_began_ms or 0) + interval_ms for each in online), default=self._clock.wall_ms() + interval_ms
        )

    def _task(self, scrub: DirectoryScrub, interval_ms: int) -> DiskTask | None:
        now_ms = self._clock.wall_ms()
        if scrub.began_ms is None:
            if scrub.last_began_ms is not None and 0 <= now_ms - scrub.last_began_ms < interval_ms:
                return None
            scrub.begin(now_ms)
        found = scrub.next_segment()
        if found is None:
            scrub.end(now_ms)
            return self._checkpoint_task(scrub)
        if self._clock.monotonic_ms() >= self._checkpoint_due_ms:
            self._checkpoint_due_ms = self._clock.monotonic_ms() + CHECKPOINT_MS
            return self._checkpoint_task(scrub)
        return self._slice_task(scrub, *found)

    def _checkpoint_task(self, scrub: DirectoryScrub) -> DiskTask:
        path, content = f"{scrub.directory.path}/{SCRUB_CHECKPOINT}", scrub.checkpoint()

        def finish(error: OSError | None) -> None:
            if error is not None:
                # Where it only fails alone the next one is written in its time; a crash repeats a little more.
                scrub.directory.task_failed(error, "writing the scrub's checkpoint")

        def write() -> None:
            replace_file(self._disk, path, content)

        return SimpleTask("checkpoint of the scrub", write, finish, scrub.directory.path)

    def _slice_task(self, scrub: DirectoryScrub, log: Log, segment: Segment) -> DiskTask:
        check = log.segment_check(segment)
        start, next_offset = scrub.position, scrub.next_offset if scrub.position else segment.base_offset
        if not start:
            scrub.transactions = transaction_scan(log, segment)
        transactions, is_active, truncations = scrub.transactions, segment is log.active, log.truncations
        outcome: list[Checked] = []
        flaws: list[IndexFlaws] = []

        def run() -> None:
            if check is None or (start and start >= check.size) or segment.base_offset in log.rot:
                return
            checked = check.walk(start, next_offset, min(start + SLICE_BYTES, check.size))
            outcome.append(checked)
            if transactions is None or checked.flaw is not None or checked.next_offset is None:
                return
            with segment.log_file as file:
                transactions.take(file.pread(checked.end - start, start))
            if checked.end >= check.size:
                found = compare_transactions(segment, transactions, checked.next_offset if is_active else LONG_MAX)
                if found is not None:
                    flaws.append(found)

        def finish(error: OSError | None) -> None:
            if error is not None and not isinstance(error, FileNotFoundError):
                # A request that reads there judges the device; a sector that is not read takes no directory offline.
                logger.warning("scrub_stopped_at: path=%s position=%d error=%s", segment.path(".log"), start, error)
            self.slice_bytes = outcome[0].end - start if outcome else 0
            if not outcome or check is None:
                scrub.leave_segment()
                return
            (checked,) = outcome
            scrub.bytes_read += self.slice_bytes
            if log.truncations != truncations:
                # The log was cut beside the slice: the next one reads the segment again.
                return
            is_same = transactions is not None and log.truncations == transactions.truncations
            if flaws and is_same and log.segment_check(segment) is not None:
                mend_transaction_index(log, segment, flaws[0])
            if checked.flaw is not None:
                scrub.rotten += 1
                log.found_rot(segment.base_offset, checked.next_offset or segment.base_offset, checked.flaw)
            if checked.flaw is not None or checked.end >= check.size:
                scrub.leave_segment()
            else:
                scrub.position, scrub.next_offset = checked.end, checked.next_offset

        return SimpleTask(f"scrub of {log.topic_partition}", run, finish, log.owner.path)


def rest_ms(size: int, took_ms: int, bytes_per_second: int) -> int:
    """How long nothing is read after a slice of `size` bytes that took `took_ms`."""
    return max(size * 1000 // bytes_per_second - took_ms, REST * took_ms, REST_MS_MIN)
