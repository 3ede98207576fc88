"""One operation of the disk fails in the middle of a step over several files: the step has happened, or it has not.

Each of these has lost records that were acknowledged, or shown ones that were aborted.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.storage.support import (
    NOW_MS,
    TP,
    FaultyDisk,
    batch,
    fill,
    marker,
    names,
    open_log,
    open_manager,
    read_all,
    records_of,
)

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_manager import LogManager
from tidelog.storage.producer_state import AppendOrigin
from tidelog.storage.tasks import DiskTask, run_now

CONFIG = LogConfig(segment_bytes=4000)
ALONE = [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN]


def once(operation: str, part_of_path: str, code: int) -> Callable[[str, str], OSError | None]:
    """Lets the first such operation fail."""
    hits: list[str] = []

    def fault(happening: str, path: str) -> OSError | None:
        if happening == operation and part_of_path in path and not hits:
            hits.append(path)
            return OSError(code, os.strerror(code), path)
        return None

    return fault


def always(operation: str, part_of_path: str, code: int) -> Callable[[str, str], OSError | None]:
    def fault(happening: str, path: str) -> OSError | None:
        found = happening == operation and part_of_path in path
        return OSError(code, os.strerror(code), path) if found else None

    return fault


def works(_operation: str, _path: str) -> OSError | None:
    return None


def stopped(manager: LogManager, log: Log, *, clean: bool) -> None:
    """A clean stop; or all is made durable, the recovery points are written, and the process is killed."""
    if clean:
        manager.close()
        return
    task = log.flush_task()
    if task is not None:
        run_now(task)
    manager.maintenance.run_due(10**9)
    manager.abandon()


def restarted(directory: Path, config: LogConfig = CONFIG) -> Log:
    log = open_manager(directory, config=config).get(TP)
    assert log is not None
    return log


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("code", ALONE, ids=errno.errorcode.get)
@pytest.mark.parametrize(
    ("operation", "file"),
    [
        ("open", "20.index"),
        ("preallocate", "20.index"),
        ("open", "20.timeindex"),
        ("truncate", "20.timeindex"),
        ("open", "20.log"),
        ("truncate", "20.log"),
        ("open", "20.snapshot"),
        ("pwrite", "20.snapshot"),
        ("truncate", "00.index"),
    ],
)
def test_a_roll_that_fails_leaves_no_segment(tmp_path: Path, operation: str, file: str, code: int, clean: bool) -> None:
    """What is appended afterwards to the old segment is there after a restart, at its offsets."""
    disk = FaultyDisk()
    manager, log = open_log(tmp_path, disk=disk, config=CONFIG)
    fill(log, 20)
    disk.fault = always(operation, file, code)
    with pytest.raises(KafkaError) as refused:
        log.append(batch(b"x" * 2500), leader_epoch=0, now_ms=NOW_MS)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert manager.offline_directories == []
    disk.fault = works
    for _ in range(5):
        log.append(batch(b"acknowledged"), leader_epoch=0, now_ms=NOW_MS)
    assert names(Path(log.directory)) == [f"{0:020d}.log"]
    log.update_high_watermark(log.log_end_offset)
    stopped(manager, log, clean=clean)
    again = restarted(tmp_path)
    assert [record.offset for record in read_all(again)] == list(range(25))
    assert again.append(batch(b"new"), leader_epoch=0, now_ms=NOW_MS).first_offset == 25


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("flushed", [True, False], ids=["flushed", "unflushed"])
@pytest.mark.parametrize("preallocate", [False, True], ids=["empty", "preallocated"])
@pytest.mark.parametrize("later", [5, 60], ids=["at the end", "in the middle"])
def test_an_empty_segment_that_a_former_version_has_left_goes(
    tmp_path: Path, clean: bool, flushed: bool, preallocate: bool, later: int
) -> None:
    """It lies below the end of the segment before it, and its indexes are not there, or half: no record is lost."""
    config = LogConfig(segment_bytes=4000, preallocate=preallocate)
    manager, log = open_log(tmp_path, config=config)
    fill(log, 20)
    stray = Path(log.directory) / f"{20:020d}.log"
    stray.write_bytes(bytes(4000 if preallocate else 0))
    (Path(log.directory) / f"{20:020d}.index").write_bytes(bytes(80))
    fill(log, later)
    log.update_high_watermark(log.log_end_offset)
    if clean or flushed:
        stopped(manager, log, clean=clean)
    else:
        manager.abandon()
    again = restarted(tmp_path, config)
    assert [record.offset for record in read_all(again)] == list(range(20 + later))
    assert not stray.exists()
    assert read_all(again, 22)[0].offset == 22
    fill(again, 1)
    assert again.log_end_offset == 21 + later


@pytest.mark.parametrize("code", ALONE, ids=errno.errorcode.get)
@pytest.mark.parametrize(
    ("operation", "file"),
    [("open", ".txnindex"), ("pwrite", ".txnindex"), ("truncate", ".txnindex"), ("open", ".log"), ("pwrite", ".log")],
)
def test_a_marker_and_its_index_entry_come_together(tmp_path: Path, operation: str, file: str, code: int) -> None:
    """Neither without the other; the coordinator's retry writes both, and only once."""
    disk = FaultyDisk()
    manager, log = open_log(tmp_path, disk=disk)
    for producer_id in (6, 7):
        data = batch(b"a", producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
        log.append(data, leader_epoch=0, now_ms=NOW_MS)
    log.append(marker(6, commit=False), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    log.release_files()
    disk.fault = always(operation, file, code)
    refusals = 0
    try:
        log.append(marker(7, commit=False), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    except KafkaError:
        refusals = 1
    disk.fault = works
    assert manager.offline_directories == []
    assert log.log_end_offset == 4 - refusals
    assert [each.producer_id for each in log.aborted_transactions(0, 10)] == [6, 7][: 2 - refusals]
    if refusals:
        log.append(marker(7, commit=False), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    log.update_high_watermark(log.log_end_offset)
    aborted = log.aborted_transactions(0, 10)
    assert [each[:3] for each in aborted] == [(6, 0, 2), (7, 1, 3)]
    assert log.last_stable_offset == 4
    manager.abandon()
    assert restarted(tmp_path).aborted_transactions(0, 10) == aborted
    assert refusals or operation == "truncate"


def test_a_marker_without_its_entry_is_found_where_recovery_scans(tmp_path: Path) -> None:
    """A former version has left one: the active segment is scanned after every crash."""
    manager, log = open_log(tmp_path)
    data = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    log.append(data, leader_epoch=0, now_ms=NOW_MS)
    log.append(marker(7, commit=False), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    log.update_high_watermark(2)
    manager.abandon()
    (Path(log.directory) / f"{0:020d}.txnindex").unlink()
    assert [each[:3] for each in restarted(tmp_path).aborted_transactions(0, 2)] == [(7, 0, 1)]


def test_a_scan_that_a_kill_interrupts_keeps_the_entries(tmp_path: Path) -> None:
    """A segment below the recovery point has lost an index, and is scanned; the next start does not scan it again."""
    config = LogConfig(segment_bytes=400)
    manager, log = open_log(tmp_path, config=config)
    data = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    log.append(data, leader_epoch=0, now_ms=NOW_MS)
    log.append(marker(7, commit=False), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    fill(log, 20)
    log.update_high_watermark(log.log_end_offset)
    aborted = log.aborted_transactions(0, 10)
    stopped(manager, log, clean=False)
    (Path(log.directory) / f"{0:020d}.timeindex").unlink()
    disk = FaultyDisk()
    disk.fault = once("pread", f"{0:020d}.log", errno.EIO)
    with pytest.raises(Exception, match="Input/output"):
        open_manager(tmp_path, disk=disk, config=config)
    assert restarted(tmp_path, config).aborted_transactions(0, 10) == aborted
    assert len(aborted) == 1


def test_a_log_that_begins_anew_while_it_is_read_is_no_broken_disk(tmp_path: Path) -> None:
    """A reader in another thread is about to open a file that is removed meanwhile: it asks again."""
    disk = FaultyDisk()
    manager, log = open_log(tmp_path, disk=disk, config=LogConfig(segment_bytes=1500))
    fill(log, 40)
    for segment in log.segments:
        segment.forget_files()
    hits: list[str] = []

    def begins_anew(operation: str, path: str) -> None:
        if operation == "open" and path.endswith(".log") and not hits:
            hits.append(path)
            log.truncate_fully(1000)

    disk.fault = begins_anew
    for result in (log.read(5, 1000, up_to_offset=40),):
        assert records_of(b"".join(part.read() for part in result.ranges))[0].offset == 5
    assert hits
    assert manager.offline_directories == []
    with pytest.raises(KafkaError) as refused:
        log.read(5, 1000, up_to_offset=40)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("is_removed", [False, True], ids=["renamed", "removed"])
def test_a_log_that_is_deleted_while_it_is_read_is_no_broken_disk(tmp_path: Path, is_removed: bool) -> None:
    """The file is opened by the name that it has now, or the reader is told that there is none any more."""
    disk = FaultyDisk()
    manager, log = open_log(tmp_path, disk=disk, config=LogConfig(segment_bytes=1500))
    fill(log, 40)
    for segment in log.segments:
        segment.forget_files()
    hits: list[str] = []

    def deleted(operation: str, path: str) -> None:
        if operation == "open" and path.endswith(".log") and not hits:
            hits.append(path)
            manager.delete(TP)
            if is_removed:
                manager.maintenance.run_due(0)
                manager.maintenance.run_due(10**9)

    disk.fault = deleted
    if is_removed:
        with pytest.raises(KafkaError) as refused:
            log.read(5, 1000, up_to_offset=40)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        assert log.read(5, 1000, up_to_offset=40).size
    assert hits
    assert manager.offline_directories == []


def test_a_file_that_is_really_gone_takes_the_directory_offline(tmp_path: Path) -> None:
    """Nobody has renamed it: that is damage."""
    manager, log = open_log(tmp_path, config=LogConfig(segment_bytes=1500))
    fill(log, 40)
    for segment in log.segments:
        segment.forget_files()
    (Path(log.directory) / f"{0:020d}.log").unlink()
    with pytest.raises(KafkaError):
        log.read(5, 1000, up_to_offset=40)
    assert manager.offline_directories == [str(tmp_path)]


@pytest.mark.parametrize("error", [RuntimeError("mistake"), MemoryError(), KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)])
@pytest.mark.parametrize("kind", ["truncation", "checkpoint", "flush", "sync", "removal"])
def test_an_exception_that_no_disk_raises_wedges_nothing(tmp_path: Path, error: Exception, kind: str) -> None:
    """The task is finished, the directory goes on, and what was to be done is done the next time."""
    disk = FaultyDisk()
    manager, log = open_log(tmp_path, disk=disk, config=CONFIG)
    maintenance, directory = manager.maintenance, manager.directories[0]
    fill(log, 30)
    log.update_high_watermark(log.log_end_offset)

    def raises(operation: str, path: str) -> None:
        if operation in ("open", "fsync", "fsync_directory", "unlink"):
            raise error

    def tasks() -> list[DiskTask]:
        if kind == "truncation":
            return maintenance.truncation_tasks()
        if kind == "checkpoint":
            return maintenance.checkpoint_tasks()
        if kind == "flush":
            return [task for task in [log.flush_task()] if task is not None]
        if kind == "sync":
            return maintenance.durability_tasks()
        return maintenance.due_tasks(10**9)

    if kind == "truncation":
        log.announce_truncation(20)
    elif kind == "removal":
        log.delete_old_segments(NOW_MS + 10**12)
        maintenance.run_due(0)
    disk.fault = raises  # type: ignore[assignment]
    found = tasks()
    assert found
    for task in found:
        run_now(task)
    disk.fault = works
    assert not directory.is_checkpointing
    assert directory.failure is None
    if kind == "removal":
        maintenance.run_due(0)
    for task in tasks():
        run_now(task)
    assert (log.truncation_is_pending, directory.failure) == (False, None)
    if kind == "removal":
        assert not [name for name in os.listdir(log.directory) if name.endswith(".deleted")]
    else:
        assert tasks() == []
