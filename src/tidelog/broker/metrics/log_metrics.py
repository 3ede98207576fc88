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
    size = page.family("tidelog_log_dir_size_bytes", "gauge", "Bytes of the logs in the directory.")
    free = page.family("tidelog_log_dir_free_bytes", "gauge", "Free room of the directory's file system.")
    total = page.family("tidelog_log_dir_total_bytes", "gauge", "Size of the directory's file system.")
    damaged = rotten = 0
    for directory in directories:
        labels = labels_text(logDirectory=directory.path, logdirectory=directory.path)
        own = labels_text(log_dir=directory.path)
        each.add(int(directory.failure is not None), labels)
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
    page.family(
        "kafka_log_logflushstats_logflushrateandtimems", "summary", "Milliseconds that flushes took."
    ).add_summary(node.disk_scheduler.flush_times)
    _add_cleaner(page, node)
    _add_scrub(page, node)
    yield


def _add_cleaner(page: Page, node: Node) -> None:
    cleaner = node.logs.cleaner
    page.family("tidelog_log_cleanings_total", "counter", "Cleanings of compacted logs.").add(cleaner.cleanings)
    uncleanable: Counter[str] = Counter()
    for topic_partition in cleaner.uncleanable:
        log = node.logs.get(topic_partition)
        if log is not None:
            uncleanable[log.owner.path] += 1
    family = page.family(
        "kafka_log_logcleanermanager_uncleanable_partitions_count", "gauge", "Compacted logs that cannot be cleaned."
    )
    for directory in node.logs.directories:
        path = directory.path
        family.add(uncleanable[path], labels_text(logDirectory=path, logdirectory=path))


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
