"""Metrics of log directories and of what works on logs: room on disks, the cleaner, the scrub, damage."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tidelog.broker.shell import InDirectories
from tidelog.metrics.page import labels_text

if TYPE_CHECKING:
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node
    from tidelog.metrics.page import Page
    from tidelog.ports.disk import Space
    from tidelog.storage.counts import StartProgress
    from tidelog.storage.log_manager import LogManager

_LOGS_PER_STEP: Final = 200


class DiskRoom:
    """Free room on the file systems of the log directories, asked on I/O threads: a disk that hangs stalls no page."""

    def __init__(self) -> None:
        self.known: dict[str, Space] = {}
        """[log directory] -> what the last look has found."""
        self._looking: set[str] = set()

    def look(self, node: Node) -> None:
        """Asks for the room in each directory that works and is not being asked for; a later page has the answers."""
        for directory in node.logs.directories:
            path = directory.path
            if directory.failure is not None:
                self.known.pop(path, None)
            elif path not in self._looking:
                self._looking.add(path)
                asked = node.shell.in_pool(InDirectories((path,), functools.partial(node.disk.space, path)))
                asked.on_complete(functools.partial(self._found, path))

    def _found(self, path: str, found: Deferred[Space]) -> None:
        self._looking.discard(path)
        try:
            self.known[path] = found.result()
        except OSError:
            # The directory's own operations meet the error, and judge it.
            self.known.pop(path, None)


def collect_logs(page: Page, node: Node, room: DiskRoom) -> Iterator[None]:
    """Of log directories, and of all logs together."""
    room.look(node)
    directories = node.logs.directories
    offline = page.family("kafka_log_logmanager_offlinelogdirectorycount", "gauge", "Log directories that have failed.")
    offline.add(sum(directory.failure is not None for directory in directories))
    each = page.family("kafka_log_logmanager_logdirectoryoffline", "gauge", "1 where the log directory has failed.")
    cordoned = page.family("kafka_log_logmanager_logdirectorycordoned", "gauge", "1 where it gets no new replicas.")
    cordons = node.logs.cordoned
    size = page.family("tidelog_log_dir_size_bytes", "gauge", "Bytes of the logs in the directory.")
    free = page.family("tidelog_log_dir_free_bytes", "gauge", "Free room of the directory's file system.")
    total = page.family("tidelog_log_dir_total_bytes", "gauge", "Size of the directory's file system.")
    damaged = rotten = 0
    for directory in directories:
        labels = labels_text(logDirectory=directory.path, logdirectory=directory.path)
        own = labels_text(log_dir=directory.path)
        each.add(int(directory.failure is not None), labels)
        cordoned.add(int("*" in cordons or directory.path in cordons), labels)
        bytes_here = 0
        for index, log in enumerate(list(directory.logs.values())):
            if not index % _LOGS_PER_STEP:
                yield
            bytes_here += log.size
            damaged += log.damage is not None
            rotten += len(log.rot)
        size.add(bytes_here, own)
        known = room.known.get(directory.path)
        if known is not None:
            free.add(known.usable, own)
            total.add(known.total, own)
    page.family("tidelog_damaged_replicas", "gauge", "Replicas that have lost records and are not whole yet.").add(
        damaged
    )
    page.family("tidelog_rotten_segments", "gauge", "Segments with a batch that is damaged and not mended.").add(rotten)
    times = node.disk_scheduler.flush_times
    flushes = page.family("kafka_log_logflushstats_logflushrateandtimems", "summary", "Milliseconds that flushes took.")
    flushes.add_summary(times)
    seconds = page.family("tidelog_flush_seconds", "histogram", "Time of flushes, their wait for a thread included.")
    seconds.add_histogram(times)
    _add_counts(page, node.logs)
    _add_cleaner(page, node)
    _add_scrub(page, node)
    yield


def _add_counts(page: Page, logs: LogManager) -> None:
    counts = logs.counts
    for name, value, help in (
        ("recovered", counts.recovered_bytes, "Bytes that the start has read and checked, since the stop was unclean."),
        ("recovery_cut", counts.recovery_cut_bytes, "Bytes that the start has cut from logs: torn ends, and damage."),
        ("truncated", counts.truncated_bytes, "Bytes that followers have cut, since their leaders do not have them."),
    ):
        page.family(f"tidelog_log_{name}_bytes_total", "counter", help).add(value)


def collect_start(page: Page, progress: StartProgress) -> Iterator[None]:
    """How far the start has come with loading logs, by log directory."""
    logs_left = page.family("kafka_log_logmanager_remaininglogstorecover", "gauge", "Logs that are not loaded yet.")
    bytes_left = page.family("tidelog_recovery_bytes_left", "gauge", "Bytes that the start has still to recover.")
    for path, count in list(progress.logs_left.items()):
        logs_left.add(count, labels_text(dir=path))
        bytes_left.add(progress.bytes_left(path), labels_text(log_dir=path))
    yield


def _add_cleaner(page: Page, node: Node) -> None:
    cleaner = node.logs.cleaner
    report = cleaner.report
    page.family("tidelog_log_cleanings_total", "counter", "Cleanings of compacted logs.").add(cleaner.cleanings)
    for name, value, help in (
        ("read", report.bytes_read, "Bytes that cleanings have read to write logs anew."),
        ("written", report.bytes_written, "Bytes that cleanings have written."),
    ):
        page.family(f"tidelog_log_cleaner_{name}_bytes_total", "counter", help).add(value)
    page.family("tidelog_log_cleaner_dirty_bytes", "gauge", "Bytes of segments that a cleaning would go through.").add(
        report.cleanable_bytes
    )
    since_ms = 0 if report.looked_ms is None else node.clock.monotonic_ms() - report.looked_ms
    recopied = 100 * report.last_bytes_written // report.last_bytes_read if report.last_bytes_read else 0
    for name, value, help in (
        ("manager_max_dirty_percent", int(report.dirty_ratio_max * 100), "The largest share that is not cleaned yet."),
        ("manager_time_since_last_run_ms", since_ms, "Since the cleaner has last looked for logs; 0 before that."),
        ("_max_clean_time_secs", report.duration_ms // 1000, "What the last cleaning took."),
        ("_cleaner_recopy_percent", recopied, "What the last cleaning has kept of what it read."),
        ("_max_compaction_delay_secs", report.delay_ms_max // 1000, "Past max.compaction.lag.ms, the worst log."),
    ):
        page.family(f"kafka_log_logcleaner{name}", "gauge", help).add(value)
    _add_uncleanable(page, node)


def _add_uncleanable(page: Page, node: Node) -> None:
    partitions: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for topic_partition in node.logs.cleaner.uncleanable:
        log = node.logs.get(topic_partition)
        if log is not None:
            partitions[log.owner.path] += 1
            sizes[log.owner.path] += log.size
    prefix = "kafka_log_logcleanermanager_uncleanable_"
    count = page.family(f"{prefix}partitions_count", "gauge", "Compacted logs that cannot be cleaned.")
    size = page.family(f"{prefix}bytes", "gauge", "Bytes of those logs.")
    for directory in node.logs.directories:
        labels = labels_text(logDirectory=directory.path, logdirectory=directory.path)
        count.add(partitions[directory.path], labels)
        size.add(sizes[directory.path], labels)


def _add_scrub(page: Page, node: Node) -> None:
    bytes_read = page.family("tidelog_scrub_bytes", "gauge", "Bytes that this pass of the scrub has read.")
    rotten = page.family("tidelog_scrub_rotten_segments", "gauge", "Damaged segments that this pass has found.")
    ended = page.family(
        "tidelog_scrub_last_pass_timestamp_seconds", "gauge", "When the last whole pass ended, seconds since 1970."
    )
    for scrub in node.scrubbing.directories:
        labels = labels_text(log_dir=scrub.directory.path)
        bytes_read.add(scrub.bytes_read, labels)
        rotten.add(scrub.rotten, labels)
        if scrub.last_ended_ms is not None:
            ended.add(scrub.last_ended_ms / 1000, labels)
