"""What a broker tells of its logs: the start, bytes that were cut, flushes, the cleaner."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.harness import Broker
from tests.unit.broker.test_cleaning import clean, put, started
from tests.unit.metrics.test_page import parsed

from tidelog.broker.metrics.log_metrics import DiskRoom, collect_logs, collect_start
from tidelog.metrics.page import Page
from tidelog.storage.counts import LogCounts, StartProgress

CLEANER = "kafka_log_logcleaner"
NONE = ()


@pytest.fixture
def compacted(tmp_path: Path) -> Iterator[Broker]:
    """A broker with compacted topics."""
    one = started(tmp_path)
    yield one
    one.close()


def page_of(broker: Broker) -> dict[str, Any]:
    page = Page()
    for _ in collect_logs(page, broker.node, DiskRoom()):
        pass
    return parsed(page)


def test_the_cleaner_tells_what_it_has_found_and_done(compacted: Broker) -> None:
    """Zeros before it has looked; then the dirtiest log, when it looked, and what the last cleaning has kept."""
    before = page_of(compacted)
    assert before[f"{CLEANER}manager_time_since_last_run_ms"][NONE] == 0
    assert before[f"{CLEANER}manager_max_dirty_percent"][NONE] == 0
    assert before["tidelog_log_cleanings_total"][NONE] == 0
    put(compacted, "t", 100)
    compacted.node.cleaning.start()
    clean(compacted)
    after = page_of(compacted)
    assert after["tidelog_log_cleanings_total"][NONE] >= 1
    read, written = (after[f"tidelog_log_cleaner_{way}_bytes_total"][NONE] for way in ("read", "written"))
    assert read > written > 0
    assert 0 < after[f"{CLEANER}_cleaner_recopy_percent"][NONE] < 100
    assert 0 <= after[f"{CLEANER}manager_time_since_last_run_ms"][NONE] <= 30_000
    uncleanable = after[f"{CLEANER}manager_uncleanable_bytes"]
    assert set(uncleanable.values()) == {0}
    assert len(uncleanable) == len(compacted.logs.directories)


def test_a_log_that_cannot_be_cleaned_is_told_with_its_bytes(compacted: Broker) -> None:
    """Under the directory in which it lies."""
    put(compacted, "t", 100)
    log = compacted.replica("t").log
    first = Path(log.segments[0].log_file.path)
    content = bytearray(first.read_bytes())
    content[100] ^= 0xFF
    first.write_bytes(content)
    compacted.node.cleaning.start()
    clean(compacted)
    found = page_of(compacted)
    directory = ("logDirectory", log.owner.path)
    for name, value in (("partitions_count", 1), ("bytes", log.size)):
        of_directories = found[f"{CLEANER}manager_uncleanable_{name}"]
        assert {labels: each for labels, each in of_directories.items() if directory in labels and each}
        assert sum(of_directories.values()) == value


def test_flushes_and_cut_bytes_are_told(compacted: Broker) -> None:
    """Flushes as quantiles and as buckets, of the same durations."""
    put(compacted, "t", 3)
    compacted.node.disk_scheduler.flush_times.observe(5_000)
    compacted.logs.counts.truncated_bytes += 70
    compacted.logs.counts.recovery_cut_bytes += 7
    found = page_of(compacted)
    assert found["tidelog_flush_seconds_count"] == found["kafka_log_logflushstats_logflushrateandtimems_count"]
    assert found["tidelog_flush_seconds_bucket"][(("le", "0.016384"),)] >= 1
    assert found["tidelog_log_truncated_bytes_total"][NONE] == 70
    assert found["tidelog_log_recovery_cut_bytes_total"][NONE] == 7
    assert found["tidelog_log_recovered_bytes_total"][NONE] == 0
    cordoned = "kafka_log_logmanager_logdirectorycordoned"
    assert set(found[cordoned].values()) == {0}
    first, second = (directory.path for directory in compacted.logs.directories)
    compacted.logs.cordoned = (second,)
    by_path = {dict(labels)["logDirectory"]: value for labels, value in page_of(compacted)[cordoned].items()}
    assert by_path == {first: 0, second: 1}


def test_a_start_is_told_while_it_goes_on() -> None:
    """By directory: logs that are left, and bytes, of the log that is being read too."""
    counts = LogCounts()
    progress = StartProgress(counts)
    progress.directory_begins("/a", [100, 50])
    progress.log_begins("/a", 100)
    counts.recovered_bytes += 30
    page = Page()
    assert sum(1 for _ in collect_start(page, progress)) == 1
    found = parsed(page)
    assert found["kafka_log_logmanager_remaininglogstorecover"][(("dir", "/a"),)] == 2
    assert found["tidelog_recovery_bytes_left"][(("log_dir", "/a"),)] == 120
