"""After a failed fsync the page cache shows what the device may not have: a start does not take it for written."""

from __future__ import annotations

import errno

import pytest
from sim.world.disk import Fault, Operation, SimulatedDisk
from sim.world.randomness import SeededRandom
from tests.unit.storage.support import NOW_MS, batch, fill, marker, open_log

from tidelog.storage.file_names import DISK_FAILED, LOG, TRANSACTION_INDEX, segment_file
from tidelog.storage.log import AppendOrigin, Log
from tidelog.storage.tasks import run_now

DIRECTORY = "/data"
MARK = f"{DIRECTORY}/{DISK_FAILED}"


def flush(log: Log) -> None:
    task = log.flush_task()
    assert task is not None
    run_now(task)


def after_a_failure(disk: SimulatedDisk, suffix: str) -> Log:
    """A log whose directory went offline as a file with this suffix was synced; its broker was killed afterwards."""
    manager, log = open_log(DIRECTORY, disk=disk.mount())
    fill(log, 3)
    flush(log)
    log.append(
        batch(b"aborted", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True),
        leader_epoch=0,
        now_ms=NOW_MS,
    )
    log.append(marker(7, commit=False), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)

    def fault(operation: Operation) -> Fault | None:
        is_met = operation.kind == "fsync" and operation.path.endswith(suffix)
        return Fault(OSError(errno.EIO, "Input/output error", operation.path)) if is_met else None

    disk.fault = fault
    flush(log)
    assert manager.offline_directories == [DIRECTORY]
    disk.fault = None
    disk.kill()
    return log


@pytest.mark.parametrize("suffix", [LOG, TRANSACTION_INDEX])
def test_what_a_failed_fsync_may_have_dropped_is_written_again(suffix: str) -> None:
    """What counts as durable after the next flush is on the device."""
    disk = SimulatedDisk(SeededRandom(1), lambda: NOW_MS)
    end = after_a_failure(disk, suffix).log_end_offset
    _, log = open_log(DIRECTORY, disk=disk.mount())
    assert log.log_end_offset == end
    flush(log)
    assert log.flushed_offset == end
    path = f"{log.directory}/{segment_file(0, suffix)}"
    assert disk.durable(path) == disk.read(path) != b""


def test_the_mark_of_a_failure_goes_with_the_start_that_heeds_it() -> None:
    """And with the boot of the machine, which forgets the page cache."""
    disk = SimulatedDisk(SeededRandom(1), lambda: NOW_MS)
    after_a_failure(disk, LOG)
    assert disk.exists(MARK)
    manager, _ = open_log(DIRECTORY, disk=disk.mount())
    assert not disk.exists(MARK)
    manager.close()
    disk.kill()
    manager, _ = open_log(DIRECTORY, disk=disk.mount())
    writes = []
    disk.observer = lambda operation: writes.append(operation) if operation.path.endswith(LOG) else None
    manager.abandon()
    disk.kill()
    open_log(DIRECTORY, disk=disk.mount())
    assert not [each for each in writes if each.kind == "write"]


def test_a_failed_disk_need_not_take_the_mark() -> None:
    """It may refuse all writes by then."""
    disk = SimulatedDisk(SeededRandom(1), lambda: NOW_MS)
    manager, log = open_log(DIRECTORY, disk=disk.mount())
    fill(log, 3)
    disk.fault = lambda operation: Fault(OSError(errno.EROFS, "Read-only file system", operation.path))
    flush(log)
    assert manager.offline_directories == [DIRECTORY]
