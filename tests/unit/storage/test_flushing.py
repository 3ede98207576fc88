"""What becomes of a flush that did not happen."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.unit.storage.support import TP, FaultyDisk, StandingClock, fill, open_log, open_manager

from tidelog.model.identifiers import TopicPartition
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_directory import FLUSH_RETRY_MS
from tidelog.storage.log_manager import LogManager
from tidelog.storage.segment import Segment
from tidelog.storage.tasks import run_now

SCARCE = [errno.EMFILE, errno.ENFILE, errno.ENOMEM]


def run_due(manager: LogManager, clock: StandingClock) -> list[OSError]:
    """All tasks that are due, with the errors of those that failed."""
    errors = []
    for task in manager.maintenance.due_tasks(clock.monotonic_ms()):
        error = None
        try:
            task.run()
        except OSError as caught:
            error = caught
            errors.append(caught)
        task.finish(error)
    return errors


@pytest.mark.row("R36")
@pytest.mark.parametrize("code", SCARCE)
@pytest.mark.parametrize("config", [LogConfig(flush_messages=1), LogConfig(flush_ms=100)], ids=["messages", "ms"])
def test_a_flush_without_descriptors_or_memory_is_tried_again(tmp_path: Path, code: int, config: LogConfig) -> None:
    """The directory stays online, and a second later all is durable."""
    disk, clock = FaultyDisk(), StandingClock()
    manager, log = open_log(tmp_path, disk=disk, clock=clock, config=config)
    run_due(manager, clock)
    fill(log, 3)
    log.durability.file_created()  # As after a roll: the folder is to be synced too.
    clock.now_ms += 100
    disk.fail("fsync_directory", str(TP.topic), code)
    for _ in range(3):
        assert {error.errno for error in run_due(manager, clock)} == {code}
        assert manager.directories[0].failure is None
        assert log.flushed_offset < log.log_end_offset
        clock.now_ms += FLUSH_RETRY_MS
    disk.fault = lambda operation, path: None
    assert not run_due(manager, clock)
    assert log.flushed_offset == log.log_end_offset
    assert manager.maintenance.next_flush_ms() is None


@pytest.mark.parametrize("code", SCARCE)
def test_a_closed_segment_whose_flush_could_not_begin_is_flushed_later(
    tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Already the index entries, which are written before the task runs, may find no descriptor."""
    disk, clock = FaultyDisk(), StandingClock()
    manager, log = open_log(tmp_path, disk=disk, clock=clock, config=LogConfig(segment_bytes=200))
    run_due(manager, clock)
    refused = []

    def refuse(segment: Segment) -> None:
        refused.append(code)
        raise OSError(code, "refused")

    while len(log.segments) < 3:
        fill(log, 1)
    with monkeypatch.context() as patched:
        patched.setattr(Segment, "write_indexes", refuse)
        run_due(manager, clock)
    assert refused
    assert log.flushed_offset == 0
    clock.now_ms += FLUSH_RETRY_MS
    run_due(manager, clock)
    assert log.flushed_offset == log.active.base_offset


def test_a_flush_that_the_disk_refuses_is_not_tried_again(tmp_path: Path) -> None:
    """After a failed fsync nobody knows what is durable: the directory is offline."""
    disk, clock = FaultyDisk(), StandingClock()
    manager, log = open_log(tmp_path, disk=disk, clock=clock, config=LogConfig(flush_messages=1))
    run_due(manager, clock)
    fill(log, 1)
    disk.fail("fsync", ".log", errno.EIO)
    assert run_due(manager, clock)
    assert manager.directories[0].failure is not None
    disk.fault = lambda operation, path: None
    clock.now_ms += FLUSH_RETRY_MS
    assert manager.maintenance.overdue_flush_tasks(clock.monotonic_ms()) == []


def test_a_flush_that_takes_the_directory_offline_stops_no_other_directory(tmp_path: Path) -> None:
    """It comes before a log that is clean again, of which the directory has just forgotten that it had changed."""
    disk, clock = FaultyDisk(), StandingClock()
    config = LogConfig(flush_ms=100, index_interval_bytes=1)
    manager = open_manager(tmp_path / "a", tmp_path / "b", disk=disk, clock=clock, config=config)
    dirty, clean = (manager.create(TopicPartition(name, 0), None, None, str(tmp_path / "a")) for name in ("t", "u"))
    sound = manager.create(TopicPartition("v", 0), None, None, str(tmp_path / "b"))
    for log in (dirty, clean, sound):
        fill(log, 3)
    flush = clean.flush_task()
    assert flush is not None
    run_now(flush)
    clock.now_ms += 100
    disk.fail("pwrite", "t-0/00000000000000000000.index", errno.EIO)
    (task,) = manager.maintenance.overdue_flush_tasks(clock.monotonic_ms())
    assert "Flush(v-0 to 3)" in str(task)
    assert manager.online_directories == [str(tmp_path / "b")]


def test_a_directory_may_fail_while_its_changes_are_looked_through(tmp_path: Path) -> None:
    """A read in another thread takes it offline at any moment."""
    clock = StandingClock()
    manager, log = open_log(tmp_path, clock=clock)
    fill(log, 1)
    (directory,) = manager.directories
    directory.flush_failed(TP)
    changes, retries = iter(directory.changes), iter(directory.flush_retries)
    directory.failed(OSError(errno.EIO, "no"), "reading")
    assert (list(changes), list(retries)) == ([TP], [TP])
    assert manager.maintenance.overdue_flush_tasks(clock.monotonic_ms() + FLUSH_RETRY_MS) == []


def test_an_overdue_flush_that_could_not_begin_waits_for_its_next_attempt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It stays overdue: looked at as such, it would be tried a hundred times a second while descriptors are short."""
    disk, clock = FaultyDisk(), StandingClock()
    config = LogConfig(flush_ms=100, index_interval_bytes=1)
    manager, log = open_log(tmp_path, disk=disk, clock=clock, config=config)
    fill(log, 3)
    log.release_files()
    clock.now_ms += 100
    disk.fail("open", ".index", errno.EMFILE)
    assert manager.maintenance.overdue_flush_tasks(clock.monotonic_ms()) == []
    assert manager.maintenance.next_flush_ms() == clock.monotonic_ms() + FLUSH_RETRY_MS
    clock.now_ms += FLUSH_RETRY_MS - 1
    assert manager.maintenance.overdue_flush_tasks(clock.monotonic_ms()) == []
    clock.now_ms += 1
    assert manager.maintenance.overdue_flush_tasks(clock.monotonic_ms()) == []
    assert caplog.text.count("flush_refused") == 2
    disk.fault = lambda _operation, _path: None
    clock.now_ms += FLUSH_RETRY_MS
    for task in manager.maintenance.overdue_flush_tasks(clock.monotonic_ms()):
        run_now(task)
    assert log.flushed_offset == 3
    assert manager.maintenance.next_flush_ms() is None
