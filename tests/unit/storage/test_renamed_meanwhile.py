"""A log's folder is renamed, by the thread that owns the log, between any two operations of a task on its files.

The hook of the disk is the other thread's turn: it comes right before an operation. Each change is tried before each
operation of the task in turn.
"""

from __future__ import annotations

import errno
import functools
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.storage.support import NOW_MS, TP, FaultyDisk, batch, fill, marker, open_manager

from tidelog.storage.file_names import LEADER_EPOCH_CHECKPOINT, LOG, TRANSACTION_INDEX
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_manager import LogManager
from tidelog.storage.producer_state import AppendOrigin
from tidelog.storage.tasks import DiskTask, run_now

CONFIG = LogConfig(segment_bytes=1500)

Change = Callable[[LogManager, Log], None]


def opened(folder: Path, disk: FaultyDisk) -> tuple[LogManager, Log]:
    """Two directories, and a log of several segments in the first one whose epochs are to be written."""
    folder.mkdir()
    manager = open_manager(folder / "first", folder / "second", disk=disk, config=CONFIG)
    log = manager.create(TP, None, log_dir=f"{folder}/first")
    fill(log, 10)
    begun = batch(b"", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    log.append(begun, leader_epoch=0, now_ms=NOW_MS)
    log.append(marker(1, commit=False), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    fill(log, 20)
    return manager, log


def copied(manager: LogManager, log: Log) -> Log:
    """A copy in the second directory, with all that the log has."""
    copy = manager.futures.create(TP, manager.directories[1])
    for segment in log.segments:
        copy.append_as_follower(Path(segment.log_file.path).read_bytes()[: segment.size])
    return copy


def takes_its_place(manager: LogManager, _: Log) -> None:
    manager.futures.replace(TP)


def deleted(manager: LogManager, _: Log) -> None:
    manager.delete(TP)


def made_anew(manager: LogManager, log: Log) -> None:
    """Under the name of the one that was deleted, with a flush of its own just under way."""
    manager.delete(TP)
    new = manager.create(TP, None, log_dir=log.owner.path)
    (Path(new.directory) / f"{LEADER_EPOCH_CHECKPOINT}.tmp").write_bytes(b"the new log's")


def put_aside(manager: LogManager, _: Log) -> None:
    manager.mark_stray(TP)


def there_and_back(manager: LogManager, log: Log) -> None:
    """As a move that could not be made durable; the operation came in between, and finds nothing."""
    path = log.directory
    log.folder.rename(f"{path}-delete", log.replaced)
    log.folder.rename(path, log.reinstated)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def works(_operation: str, _path: str) -> OSError | None:
    return None


def at_any_time() -> bool:
    return True


def is_free(log: Log) -> bool:
    """Whether another thread may rename the log's folder now."""
    taken: list[bool] = []

    def take() -> None:
        taken.append(log.folder.name_lock.acquire(blocking=False))
        if taken[0]:
            log.folder.name_lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return taken[0]


def before_operation(
    number: int, change: Callable[[], None], may_come: Callable[[], bool] = at_any_time
) -> Callable[[str, str], OSError | None]:
    """A disk's hook: `change` comes before the operation of that number, or the first later one that lets it."""
    count = 0
    has_come = False

    def fault(_operation: str, _path: str) -> OSError | None:
        nonlocal count, has_come
        count += 1
        if count > number and not has_come and may_come():
            has_come = True
            try:
                change()
            except FileNotFoundError as error:
                return error
        return None

    return fault


BY_NAME = ("open", "rename", "fsync_directory")
"""Operations that find nothing where the folder has another name."""


def flush_of(log: Log) -> DiskTask:
    """Of all that it has; its files are closed before."""
    task = log.flush_task()
    assert task is not None
    for segment in log.segments:
        segment.forget_files()
    return task


def files(log: Log) -> list[str]:
    return sorted(os.listdir(log.directory))


@pytest.mark.parametrize("of_copy", [False, True], ids=["log", "copy"])
@pytest.mark.parametrize("change", [takes_its_place, deleted, made_anew, put_aside, there_and_back])
def test_a_flush_meets_a_change_of_its_folders_name(tmp_path: Path, change: Change, of_copy: bool) -> None:
    """It ends in the folder where the log's files are by then, and writes into no other log's."""
    disk = FaultyDisk()
    manager, log = opened(tmp_path / "as it is", disk)
    task = flush_of(copied(manager, log) if of_copy else log)
    before = len(disk.operations)
    run_now(task)
    operations = [kind for kind, _ in disk.operations[before:]]
    assert operations.count("open") >= 4
    manager.abandon()
    for number, kind in enumerate(operations):
        if change is there_and_back and kind not in BY_NAME:
            continue
        disk = FaultyDisk()
        manager, log = opened(tmp_path / str(number), disk)
        copy = copied(manager, log) if of_copy or change is takes_its_place else None
        flushed = copy if of_copy and copy is not None else log
        task = flush_of(flushed)
        # The lock is what keeps a name from being given to another log; the others are found out without it, too.
        may_come = functools.partial(is_free, log) if change is made_anew else at_any_time
        disk.fault = before_operation(number, functools.partial(change, manager, flushed), may_come)
        run_now(task)
        disk.fault = works
        assert manager.offline_directories == [], (number, kind)
        if not flushed.folder.is_deleted:
            assert flushed.flushed_offset == flushed.log_end_offset, (number, kind)
            assert LEADER_EPOCH_CHECKPOINT in files(flushed), (number, kind)
        if change is made_anew:
            new = manager.get(TP)
            assert new is not None
            assert LEADER_EPOCH_CHECKPOINT not in files(new), (number, kind)
            fill(new, 1)
            run_now(flush_of(new))
            assert manager.offline_directories == [], (number, kind)
        manager.abandon()


def test_names_change_one_after_the_other(tmp_path: Path) -> None:
    """While a task gives the checkpoint its name the folder keeps its own; while it syncs, a rename needs not wait."""
    disk = FaultyDisk()
    _, log = opened(tmp_path / "d", disk)
    free: dict[str, bool] = {}

    def look(operation: str, path: str) -> OSError | None:
        if LEADER_EPOCH_CHECKPOINT in path:
            free[operation] = is_free(log)
        return None

    task = log.flush_task()
    assert task is not None
    disk.fault = look
    task.run()
    assert free == {"open": False, "truncate": True, "pwrite": True, "fsync": True, "rename": False}


@pytest.mark.parametrize("operation", ["entries", "collect", "fsync"])
def test_aborted_transactions_are_found_after_a_change_that_was_taken_back(tmp_path: Path, operation: str) -> None:
    """That there is no such file is remembered: a look in between must not say so."""
    disk = FaultyDisk()
    manager, log = opened(tmp_path / "d", disk)
    segment = next(each for each in log.segments if os.path.exists(each.path(TRANSACTION_INDEX)))
    segment.forget_files()
    disk.fault = before_operation(0, lambda: there_and_back(manager, log))
    index = segment.transaction_index
    if operation == "entries":
        assert len(index.entries()) == 1
    elif operation == "collect":
        assert len(index.collect(0, 1000)[0]) == 1
    else:
        index.fsync()
        assert disk.count("fsync")
    assert len(index.entries()) == 1
    manager.abandon()


def test_a_reader_opens_no_file_of_a_log_made_anew(tmp_path: Path) -> None:
    """The path that it was about to open names the other log's file by then."""
    disk = FaultyDisk()
    manager, log = opened(tmp_path / "d", disk)
    for segment in log.segments:
        segment.forget_files()
    first = log.segments[0]
    content = Path(first.path(LOG)).read_bytes()
    disk.fault = before_operation(0, lambda: made_anew(manager, log))
    with first.log_file as file:
        assert file.pread(len(content), 0) == content
    manager.abandon()
