"""The scrub: what it reads, how fast, where it goes on, and what it finds."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.unit.storage.support import NOW_MS, TP, FaultyDisk, StandingClock, batch, open_manager
from tests.unit.storage.test_rot import flip

from tidelog.model.identifiers import TopicPartition
from tidelog.ports.real import SystemDisk
from tidelog.storage import scrub as scrub_module
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_manager import LogManager
from tidelog.storage.rot import Rot
from tidelog.storage.scrub import CHECKPOINT_MS, REST, REST_MS_MIN, SCRUB_CHECKPOINT, Scrub, rest_ms
from tidelog.storage.segment import Segment
from tidelog.storage.tasks import run_now

INTERVAL_MS = 1_000_000
OTHER = TopicPartition("topictwo", 3)


def filled(directory: Path, clock: StandingClock) -> LogManager:
    """Two logs of three segments each."""
    manager = open_manager(directory, clock=clock)
    for name in (TP, OTHER):
        log = manager.create(name, None, LogConfig(segment_bytes=300))
        for _ in range(6):
            log.append(batch(b"." * 60), leader_epoch=0, now_ms=NOW_MS)
        assert len(log.segments) == 3
    return manager


def scrub_of(manager: LogManager, clock: StandingClock) -> Scrub:
    scrub = Scrub(SystemDisk(), clock, manager.directories)
    scrub.load()
    return scrub


def run(scrub: Scrub, slices: int = 100) -> list[str]:
    """Runs slices until none is due; what they were."""
    ran = []
    while len(ran) < slices and (task := scrub.next_task(INTERVAL_MS)) is not None:
        run_now(task)
        ran.append(repr(task))
    return ran


def found(manager: LogManager) -> list[Rot]:
    taken = []
    while (rot := manager.environment.findings.take()) is not None:
        taken.append(rot)
    return taken


def test_a_pass_reads_every_segment_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Closed ones and the active one; the next pass begins an interval after this one began."""
    caplog.set_level("INFO")
    clock = StandingClock()
    manager = filled(tmp_path, clock)
    scrub = scrub_of(manager, clock)
    assert len(run(scrub)) == 7
    size = sum(log.size for log in manager.logs())
    assert f"segments=6 bytes={size} rotten_segments=0" in caplog.text
    assert found(manager) == []
    clock.now_ms += INTERVAL_MS - 1
    assert run(scrub) == []
    assert scrub.due_ms(INTERVAL_MS) == clock.now_ms + 1
    clock.now_ms += 1
    assert run(scrub).count("DiskTask(scrub of topictwo-3)") == 3


def test_rot_is_found_once_where_nothing_reads(tmp_path: Path) -> None:
    """In whichever segment; the others are read nevertheless."""
    clock = StandingClock()
    manager = filled(tmp_path, clock)
    rotten = []
    for name, index in ((TP, 0), (OTHER, 1), (OTHER, 2)):
        log = manager.get(name)
        assert log is not None
        rotten.append((name, log.segments[index].base_offset))
        flip(log.segments[index].log_file.path, log.segments[index].size - 3)
    scrub = scrub_of(manager, clock)
    run(scrub)
    assert [(rot.topic_partition, rot.base_offset) for rot in found(manager)] == rotten
    clock.now_ms += INTERVAL_MS
    run(scrub)
    assert found(manager) == []


def test_a_restart_goes_on_with_the_segment_that_was_being_read(tmp_path: Path) -> None:
    """As the last checkpoint says, and when passes began is known; one that cannot be read begins anew."""
    clock = StandingClock()
    manager = filled(tmp_path, clock)
    scrub = scrub_of(manager, clock)
    assert len(run(scrub, 3)) == 3
    clock.now_ms += CHECKPOINT_MS
    assert run(scrub, 1) == ["DiskTask(checkpoint of the scrub)"]
    again = scrub_of(manager, clock)
    assert len(run(again)) == 3 + 1
    assert again.directories[0].last_began_ms == NOW_MS
    assert run(scrub_of(manager, clock)) == []
    (tmp_path / SCRUB_CHECKPOINT).write_bytes(b"{")
    assert len(run(scrub_of(manager, clock))) == 7


def test_the_pace_is_that_of_the_setting_and_of_the_device() -> None:
    """Bytes a second; less where slices take long."""
    assert rest_ms(1_000_000, 10, 1_000_000) == 990
    assert rest_ms(1_000_000, 300, 1_000_000) == REST * 300
    assert rest_ms(0, 0, 1) == REST_MS_MIN


def test_logs_and_segments_that_go_meanwhile_are_passed_by(tmp_path: Path) -> None:
    """A slice of a file that is gone is no reason to take the directory offline."""
    clock = StandingClock()
    manager = filled(tmp_path, clock)
    scrub = scrub_of(manager, clock)
    task = scrub.next_task(INTERVAL_MS)
    assert task is not None
    manager.delete(TP)
    run_now(task)
    assert len(run(scrub)) >= 4
    assert manager.online_directories
    assert found(manager) == []


def test_a_segment_that_another_has_replaced_is_read_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compaction comes between two slices: the position was one in the old file."""
    monkeypatch.setattr(scrub_module, "SLICE_BYTES", 100)
    clock = StandingClock()
    manager = filled(tmp_path, clock)
    log = manager.get(TP)
    assert log is not None
    scrub = scrub_of(manager, clock)
    assert len(run(scrub, 1)) == 1
    assert scrub.directories[0].position > 0
    old = log.segments[0]
    new = Segment(log.folder.environment.pool, log.directory, 0, log.config, size=old.size, created_ms=NOW_MS)
    log.segments = [new, *log.segments[1:]]
    assert scrub.next_task(INTERVAL_MS) is not None
    assert scrub.directories[0].position == 0


@pytest.mark.parametrize("is_beside", [False, True], ids=["between two slices", "beside a slice"])
def test_a_segment_that_is_cut_is_read_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_beside: bool
) -> None:
    """Other batches, of other sizes, stand at the place that the scrub had come to, or comes to: that is no rot."""
    monkeypatch.setattr(scrub_module, "SLICE_BYTES", 100)
    clock = StandingClock()
    manager = open_manager(tmp_path, clock=clock)
    log = manager.create(TP, None, LogConfig())
    for _ in range(6):
        log.append(batch(b"." * 60), leader_epoch=0, now_ms=NOW_MS)
    scrub = scrub_of(manager, clock)
    assert len(run(scrub, 1)) == 1
    assert scrub.directories[0].position > 0
    task = scrub.next_task(INTERVAL_MS) if is_beside else None
    log.truncate_to(0)
    for _ in range(6):
        log.append(batch(b"." * 75), leader_epoch=1, now_ms=NOW_MS)
    if task is not None:
        run_now(task)
    run(scrub)
    assert found(manager) == []
    assert scrub.directories[0].rotten == 0


def test_a_directory_that_is_offline_makes_no_pass_due(tmp_path: Path) -> None:
    """Its own would begin as soon as possible, for ever: the timer of the scrub would never rest."""
    clock = StandingClock()
    manager = open_manager(tmp_path / "a", tmp_path / "b", clock=clock)
    manager.directories[1].failed(OSError(errno.EIO, "no"), "reading")
    scrub = scrub_of(manager, clock)
    run(scrub)
    assert scrub.next_task(INTERVAL_MS) is None
    assert scrub.due_ms(INTERVAL_MS) == clock.now_ms + INTERVAL_MS
    manager.directories[0].failed(OSError(errno.EIO, "no"), "reading")
    assert scrub.due_ms(INTERVAL_MS) == clock.now_ms + INTERVAL_MS


def test_a_checkpoint_without_a_descriptor_leaves_the_directory_online(tmp_path: Path) -> None:
    """It was not written, and nothing is broken; what the device refuses still takes the directory offline."""
    clock, disk = StandingClock(), FaultyDisk()
    manager = filled(tmp_path, clock)
    scrub = Scrub(disk, clock, manager.directories)
    for code, online in ((errno.EMFILE, [str(tmp_path)]), (errno.EIO, [])):
        run(scrub, 2)
        clock.now_ms += CHECKPOINT_MS
        disk.fail("open", SCRUB_CHECKPOINT, code)
        assert run(scrub, 1) == ["DiskTask(checkpoint of the scrub)"]
        assert manager.online_directories == online
