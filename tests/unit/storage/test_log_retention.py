"""What leaves a log at its start: by time, by size, by DeleteRecords; and how its files go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.storage.support import (
    NOW_MS,
    TP,
    FaultyDisk,
    StandingClock,
    batch,
    fill,
    names,
    open_log,
    open_manager,
    read_all,
)

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.storage.file_names import LOG, SNAPSHOT, segment_file
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.producer_recovery import SNAPSHOT_AT_ONCE_MAX
from tidelog.storage.tasks import run_now

pytestmark = pytest.mark.row("R34")

SIZE = len(batch(b"." * 100))
TWO_EACH = 2 * SIZE
"""Segments of two batches."""


def replicated(log: Log) -> Log:
    log.update_high_watermark(log.log_end_offset)
    return log


def test_segments_go_when_their_largest_timestamp_is_too_old(tmp_path: Path) -> None:
    """Exactly retention.ms is not too old; the oldest go first, and none behind one that stays."""
    _, log = open_log(tmp_path, config=LogConfig(segment_bytes=TWO_EACH, retention_ms=1000))
    fill(log, 8)
    replicated(log)
    assert log.delete_old_segments(NOW_MS + 3 + 1000) == 1
    assert log.log_start_offset == 2
    assert log.delete_old_segments(NOW_MS + 3 + 1001) == 1
    assert [record.offset for record in read_all(log)] == [4, 5, 6, 7]


def test_a_late_timestamp_keeps_a_segment_and_those_behind_it(tmp_path: Path) -> None:
    """It is the largest timestamp that counts, not the last."""
    _, log = open_log(tmp_path, config=LogConfig(segment_bytes=TWO_EACH, retention_ms=1000))
    for ahead in (900_000, 0, 0, 0, 0):
        log.append(batch(b"." * 100, timestamp=NOW_MS + ahead), leader_epoch=0, now_ms=NOW_MS)
    replicated(log)
    assert log.delete_old_segments(NOW_MS + 10_000) == 0


def test_the_active_segment_is_rolled_when_it_must_go_too(tmp_path: Path) -> None:
    """The log is then empty and goes on at its end."""
    _, log = open_log(tmp_path, config=LogConfig(retention_ms=1000))
    fill(log, 5)
    replicated(log)
    assert log.delete_old_segments(NOW_MS + 5000) == 1
    assert (log.log_start_offset, log.log_end_offset, log.size) == (5, 5, 0)
    assert [segment.base_offset for segment in log.segments] == [5]
    assert log.delete_old_segments(NOW_MS + 10**9) == 0, "an empty segment is no reason to roll again"
    fill(log, 1)
    assert [record.offset for record in read_all(log)] == [5]


@pytest.mark.parametrize("producers", [1, SNAPSHOT_AT_ONCE_MAX + 1])
def test_a_snapshot_of_producers_is_durable_before_their_batches_go(tmp_path: Path, producers: int) -> None:
    """Else a power cut could leave neither, and a batch that is sent again would stand in the log twice."""
    disk = FaultyDisk()
    manager, log = open_log(tmp_path, disk=disk, config=LogConfig(retention_ms=1000))
    for producer in range(producers):
        sent = batch(b"v", producer_id=producer, producer_epoch=0, base_sequence=0)
        log.append(sent, leader_epoch=0, now_ms=NOW_MS)
    replicated(log)
    disk.operations.clear()
    assert log.delete_old_segments(NOW_MS + 5000) == 0
    assert len(log.segments) == 2
    for _ in range(2):  # The flush that the roll asked for, and one that a snapshot of many producers asks for.
        manager.maintenance.run_due(0)
    assert log.delete_old_segments(NOW_MS + 5000) == 1
    happened = [(operation, Path(path).name) for operation, path in disk.operations]
    snapshot = segment_file(log.log_start_offset, SNAPSHOT)
    assert happened.index(("fsync", snapshot)) < happened.index(("rename", segment_file(0, LOG)))


@pytest.mark.parametrize(("retention", "removed"), [(5, 1), (6, 1), (7, 0), (1, 3)])
def test_size_keeps_at_least_its_bytes(tmp_path: Path, retention: int, removed: int) -> None:
    """A segment goes only if what remains is still retention.bytes or more; of eight batches, in segments of two."""
    config = LogConfig(segment_bytes=TWO_EACH, retention_bytes=retention * SIZE, retention_ms=-1)
    _, log = open_log(tmp_path, config=config)
    fill(log, 8)
    replicated(log)
    assert log.delete_old_segments(NOW_MS) == removed
    assert log.size == (8 - 2 * removed) * SIZE
    assert log.delete_old_segments(NOW_MS) == 0


def test_nothing_goes_past_the_high_watermark(tmp_path: Path) -> None:
    """What followers do not have yet, they must still be able to fetch."""
    _, log = open_log(tmp_path, config=LogConfig(segment_bytes=TWO_EACH, retention_ms=1))
    fill(log, 8)
    log.update_high_watermark(5)
    log.delete_old_segments(NOW_MS + 10**6)
    assert log.log_start_offset == 4


def test_compacted_topics_lose_nothing_by_time_or_size(tmp_path: Path) -> None:
    """cleanup.policy=compact; with compact,delete retention applies."""
    config = LogConfig(segment_bytes=TWO_EACH, retention_ms=1, retention_bytes=1, cleanup_policy=frozenset({"compact"}))
    manager, log = open_log(tmp_path, config=config)
    fill(log, 8)
    replicated(log)
    assert log.delete_old_segments(NOW_MS + 10**6) == 0
    both = LogConfig(segment_bytes=TWO_EACH, retention_ms=1, cleanup_policy=frozenset({"compact", "delete"}))
    manager.set_config(TP, both)
    assert log.delete_old_segments(NOW_MS + 10**6) == 4


def test_delete_records_hides_at_once_and_removes_whole_segments_later(tmp_path: Path) -> None:
    """The log starts in the middle of a segment; segments below go with the next retention, whatever the policy."""
    config = LogConfig(segment_bytes=TWO_EACH, cleanup_policy=frozenset({"compact"}))
    _, log = open_log(tmp_path, config=config)
    fill(log, 4, leader_epoch=1)
    fill(log, 4, leader_epoch=2)
    replicated(log)
    assert log.advance_start(5)
    assert not log.advance_start(3), "it never goes back"
    assert [record.offset for record in read_all(log)] == [5, 6, 7]
    assert log.epochs.entries == [(2, 5)]
    assert log.delete_old_segments(NOW_MS) == 2
    assert log.segments[0].base_offset == 4
    with pytest.raises(KafkaError) as refused:
        log.advance_start(9)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("clean", [True, False])
def test_the_start_survives_a_restart(tmp_path: Path, clean: bool) -> None:
    """In log-start-offset-checkpoint where no segment's name tells it."""
    manager, log = open_log(tmp_path, config=LogConfig(segment_bytes=TWO_EACH))
    fill(log, 8)
    replicated(log)
    log.advance_start(5)
    manager.maintenance.run_due(10**7)
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\ntopicone 0 5\n"
    manager.close() if clean else manager.abandon()
    again = open_manager(tmp_path).get(TP)
    assert again is not None
    assert (again.log_start_offset, again.log_end_offset) == (5, 8)


def test_an_announced_start_is_written_down_before_anybody_sees_it(tmp_path: Path) -> None:
    """So that no crash takes a first offset back that was shown; only what is committed may be announced."""
    manager, log = open_log(tmp_path, config=LogConfig(segment_bytes=TWO_EACH))
    fill(log, 8)
    replicated(log)
    log.announce_start(5)
    manager.maintenance.run_due(10**7)
    assert (log.log_start_offset, log.kept_start) == (0, 5)
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\ntopicone 0 5\n"
    log.announce_start(9)
    assert log.kept_start == 8
    manager.abandon()
    again = open_manager(tmp_path).get(TP)
    assert again is not None
    assert again.log_start_offset == 5


@pytest.mark.parametrize("before", ["announced", "advanced", "reopened"])
def test_a_start_among_records_that_are_cut_is_forgotten(tmp_path: Path, before: str) -> None:
    """After an unclean election the log goes on with other records, which nobody has asked to delete: a restart must
    not."""
    manager, log = open_log(tmp_path, config=LogConfig(segment_bytes=TWO_EACH))
    fill(log, 8)
    replicated(log)
    log.announce_start(6)
    if before != "announced":
        log.advance_start(6)
    if before == "reopened":
        manager.close()
        manager, log = open_log(tmp_path, config=LogConfig(segment_bytes=TWO_EACH))
    log.truncate_to(3)
    fill(log, 5)
    replicated(log)
    assert log.kept_start == 3
    manager.close()
    again = open_manager(tmp_path).get(TP)
    assert again is not None
    assert again.log_start_offset == 3


def test_files_wait_under_another_name(tmp_path: Path) -> None:
    """`.deleted` for file.delete.delay.ms, snapshots too; a restart removes them at once."""
    clock = StandingClock()
    config = LogConfig(segment_bytes=TWO_EACH, retention_ms=1, file_delete_delay_ms=1000)
    manager, log = open_log(tmp_path, clock=clock, config=config)
    fill(log, 5)
    replicated(log)
    log.delete_old_segments(NOW_MS + 10_000)
    folder = tmp_path / "topicone-0"
    gone = names(folder, [".deleted"])
    assert {name.split(".", 1)[1] for name in gone} == {
        "log.deleted", "index.deleted", "timeindex.deleted", "snapshot.deleted"
    }  # fmt: skip
    manager.maintenance.run_due(clock.monotonic_ms())
    assert names(folder, [".deleted"]) == gone
    manager.maintenance.run_due(clock.monotonic_ms() + 999)
    assert names(folder, [".deleted"]) == gone
    manager.maintenance.run_due(clock.monotonic_ms() + 1000)
    assert names(folder, [".deleted"]) == []
    fill(log, 3, timestamp=NOW_MS)
    replicated(log)
    log.delete_old_segments(NOW_MS + 10_000)
    assert names(folder, [".deleted"]) != []
    manager.abandon()
    open_manager(tmp_path)
    assert names(folder, [".deleted"]) == []


def test_the_manager_does_it_from_time_to_time(tmp_path: Path) -> None:
    """30 s after the start, then every retention_check_interval_ms."""
    clock = StandingClock()
    manager, log = open_log(tmp_path, clock=clock, config=LogConfig(segment_bytes=TWO_EACH, retention_ms=1))
    fill(log, 5)
    replicated(log)
    clock.now_ms += 29_999
    manager.maintenance.run_due(clock.monotonic_ms())
    assert log.log_start_offset == 0
    clock.now_ms += 1
    manager.maintenance.run_due(clock.monotonic_ms())
    assert log.log_start_offset == 5
    fill(log, 1)
    replicated(log)
    clock.now_ms += 299_999
    manager.maintenance.run_due(clock.monotonic_ms())
    assert log.log_start_offset == 5
    assert manager.maintenance.next_due_ms() <= clock.monotonic_ms() + 1
    clock.now_ms += 1
    manager.maintenance.run_due(clock.monotonic_ms())
    assert log.log_start_offset == 6


class Gate:
    """Settings that a test confirms."""

    def __init__(self) -> None:
        self.looks_left = 0
        """How often they count as current still."""
        self.waiting: list[Callable[[], None]] = []

    @property
    def are_current(self) -> bool:
        self.looks_left -= 1
        return self.looks_left >= 0

    def when_current(self, then: Callable[[], None]) -> None:
        self.waiting.append(then)


def test_nothing_goes_by_settings_that_are_not_known_to_be_those_of_today(tmp_path: Path) -> None:
    """A pass asks first, again where that is too long ago, and is put off where nothing is known."""
    manager, log = open_log(tmp_path, config=LogConfig(retention_ms=1))
    other = manager.create(TP._replace(partition=1), None, LogConfig(retention_ms=1))
    for each in (log, other):
        fill(each, 3)
        replicated(each)
    assert isinstance(manager._clock, StandingClock)
    manager._clock.now_ms += 10_000
    gate = manager.maintenance.settings_gate = Gate()
    task = manager.maintenance.retention_task()
    run_now(task)
    assert log.log_start_offset == 0
    gate.waiting.pop()()
    assert (log.log_start_offset, other.log_start_offset, gate.waiting) == (0, 0, [])
    run_now(manager.maintenance.retention_task())
    gate.looks_left = 2
    gate.waiting.pop()()
    assert (log.log_start_offset, other.log_start_offset) == (3, 0)
    gate.looks_left = 3
    gate.waiting.pop()()
    assert (log.log_start_offset, other.log_start_offset, gate.waiting) == (3, 3, [])
