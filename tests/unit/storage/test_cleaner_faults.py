"""A cleaning in whose way something comes: a disk that fails, a log that is cut, shortened or deleted, a stop.

It is given up, nothing is lost, what it has written goes, and what the checkpoint says stays true.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from sim.world.disk import SimulatedDisk
from sim.world.randomness import SeededRandom
from tests.unit.storage.support import (
    NOW_MS,
    TOPIC_ID,
    TP,
    FaultyDisk,
    FaultyMemoryDisk,
    StandingClock,
    batch,
    names,
    open_manager,
    read_all,
)

from tidelog.model.identifiers import TopicId, TopicPartition
from tidelog.ports.disk import Disk
from tidelog.records.batch import Codec
from tidelog.storage.checkpoints import decode_offsets
from tidelog.storage.cleaner.log_cleaner import LEFT_ALONE_MS
from tidelog.storage.cleaner.settings import CleanerSettings
from tidelog.storage.file_names import CLEANER_CHECKPOINT, SWAP
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_manager import LogManager
from tidelog.storage.log_manager_settings import LogManagerSettings
from tidelog.storage.tasks import run_now

OTHER = TopicPartition("other", 0)
KEYS = 4
VALUE = bytes(200)
CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=900,
    segment_index_bytes=120,
    index_interval_bytes=100,
    min_cleanable_dirty_ratio=0.01,
    file_delete_delay_ms=1_000,
)
SETTINGS = LogManagerSettings(cleaner=CleanerSettings(io_buffer_bytes=600, slice_bytes=1, dedupe_buffer_bytes=24 * 64))
COUNT = 24
MARKED = (".cleaned", ".swap")
MEMORY = Path("/memory")

Written = dict[int, tuple[bytes, bytes]]


def put(log: Log, count: int) -> None:
    for _ in range(count):
        offset = log.log_end_offset
        log.append(batch(value(offset), key=key(offset)), leader_epoch=0, now_ms=NOW_MS)
    log.update_high_watermark(log.log_end_offset)


def key(offset: int) -> bytes:
    return b"key-%d" % (offset % KEYS)


def value(offset: int) -> bytes:
    return b"value-%d" % offset + VALUE


def opened(folder: Path, disk: Disk | None = None, clock: StandingClock | None = None) -> LogManager:
    return open_manager(folder / "one", folder / "two", disk=disk, clock=clock, config=CONFIG, settings=SETTINGS)


def begun(folder: Path, disk: Disk | None = None, clock: StandingClock | None = None) -> tuple[LogManager, Log]:
    """Two logs that are due, each in a directory of its own: the first one has more to clean."""
    manager = opened(folder, disk, clock)
    log = manager.create(TP, TOPIC_ID, log_dir=str(folder / "one"))
    put(log, COUNT)
    put(manager.create(OTHER, TopicId(bytes(15) + b"o"), log_dir=str(folder / "two")), COUNT)
    for task in manager.maintenance.checkpoint_tasks():
        run_now(task)
    return manager, log


def found_in(log: Log) -> Written:
    """[offset] -> key and value, of all that a reader gets."""
    return {record.offset: (record.key or b"", record.value or b"") for record in read_all(log)}


def check(log: Log, end: int = COUNT, start: int = 0) -> None:
    """Each record is where it was, or superseded; and once only below what counts as clean."""
    assert log.log_end_offset == end
    found = found_in(log)
    for offset, record in found.items():
        assert record == (key(offset), value(offset))
    last = {key(offset): offset for offset in range(start, end)}
    assert set(last.values()) <= found.keys()
    clean = [record[0] for offset, record in found.items() if offset < (log.cleaned_offset or 0)]
    assert len(clean) == len(set(clean))


def is_clean(log: Log) -> bool:
    return log.cleaned_offset is not None and log.cleaned_offset >= log.segments[-2].base_offset


def checkpointed(folder: Path) -> dict[str, int]:
    path = folder / CLEANER_CHECKPOINT
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    return {line.split()[0]: int(line.split()[2]) for line in lines}


def step(manager: LogManager) -> bool:
    """One task of the cleaner's; whether there was one."""
    manager.cleaner._next_ms = 0
    task = manager.cleaner.next_task()
    if task is None:
        return False
    run_now(task)
    return True


def in_the_middle(manager: LogManager, folder: Path) -> None:
    """Brings a cleaning to where it writes."""
    while not names(folder, (".log.cleaned",)):
        assert step(manager)


def finish(manager: LogManager) -> None:
    for _ in range(3):
        manager.cleaner.run_due()


def operations() -> list[tuple[str, str]]:
    """What a cleaning of the first log does, in its order."""
    disk = FaultyMemoryDisk()
    manager, log = begun(MEMORY, disk)
    disk.operations.clear()
    finish(manager)
    done = list(disk.operations)
    assert is_clean(log)
    check(log)
    return [(kind, path) for kind, path in done if path.startswith(f"{MEMORY}/one")]


def of_each_kind(done: list[tuple[str, str]]) -> list[int]:
    """The first and the last operation of each kind on each kind of file."""
    kinds = [(kind, path.rpartition("/")[2].partition(".")[2]) for kind, path in done]
    first = {kind: number for number, kind in reversed(list(enumerate(kinds)))}
    last = {kind: number for number, kind in enumerate(kinds)}
    return sorted({*first.values(), *last.values()})


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_a_disk_that_fails_in_any_phase(code: int, caplog: pytest.LogCaptureFixture) -> None:
    """Said once; the other log is cleaned; no record is lost, before the next start or after it."""
    done = operations()
    assert {"open", "pread", "pwrite", "preallocate", "truncate", "fsync", "rename", "fsync_directory"} <= {
        kind for kind, _ in done
    }
    postponed = 0
    for number in of_each_kind(done):
        kind, path = done[number]
        if kind == "pread" and code == errno.ENOSPC:
            continue
        disk = FaultyMemoryDisk()
        manager, log = begun(MEMORY, disk)
        caplog.clear()
        disk.fault = once(number, code)
        finish(manager)
        disk.fault = lambda _operation, _path: None
        hit = f"{number}: {kind} {path}"
        told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert len(told) == 1, (hit, told)
        other = manager.get(OTHER)
        assert other is not None
        assert is_clean(other), hit
        check(other)
        if log.is_offline:
            assert "log_directory_offline" in told[0]
            manager.abandon()
        else:
            postponed += 1
            assert (code, ".cleaned" in path) == (errno.ENOSPC, True), hit
            assert "cleaning_postponed" in told[0]
            check(log)
            assert not left(disk, log), hit
            manager.close()
        manager = opened(MEMORY, disk)
        again = manager.get(TP)
        assert again is not None
        assert not left(disk, again), hit
        check(again)
        finish(manager)
        assert is_clean(again), hit
        check(again)
        manager.close()
        assert decode_offsets(disk.read(f"{MEMORY}/one/{CLEANER_CHECKPOINT}")) == {TP: again.cleaned_offset}
    assert (postponed > 5) == (code == errno.ENOSPC)


def once(number: int, code: int) -> Callable[[str, str], OSError | None]:
    """Lets the operation of that number fail, of those in the first directory."""
    count = -1

    def fault(_: str, path: str) -> OSError | None:
        nonlocal count
        count += path.startswith(f"{MEMORY}/one")
        return OSError(code, os.strerror(code), path) if count == number and f"{MEMORY}/one" in path else None

    return fault


def left(disk: Disk, log: Log) -> list[str]:
    """Files of a cleaning that are not in place."""
    return [name for name in disk.list(log.directory) if name.endswith(MARKED)]


def test_a_log_without_room_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After minutes, not at once; it is told once, until it has been cleaned."""
    disk, clock = FaultyDisk(), StandingClock()
    manager, log = begun(tmp_path, disk, clock)
    disk.fail("pwrite", ".cleaned", errno.ENOSPC)
    disk.operations.clear()

    def attempts() -> int:
        return sum(kind == "pwrite" and "one" in path and ".cleaned" in path for kind, path in disk.operations)

    finish(manager)
    assert attempts() == 1
    clock.now_ms += 200_000
    finish(manager)
    assert attempts() == 1
    clock.now_ms += 200_000
    finish(manager)
    assert attempts() == 2
    # Each of the two logs.
    assert [record.levelname for record in caplog.records if "cleaning_postponed" in record.getMessage()] == [
        "WARNING",
        "WARNING",
    ]
    disk.fault = lambda _operation, _path: None
    clock.now_ms += 400_000
    finish(manager)
    assert is_clean(log)
    check(log)
    manager.close()


def test_too_few_descriptors_take_nothing_offline(tmp_path: Path) -> None:
    """The limit on open files is no matter of the disk's."""
    disk, clock = FaultyDisk(), StandingClock()
    manager, log = begun(tmp_path, disk, clock)
    disk.fail("open", ".cleaned", errno.EMFILE)
    finish(manager)
    assert not manager.offline_directories
    disk.fault = lambda _operation, _path: None
    clock.now_ms += 400_000
    finish(manager)
    assert is_clean(log)
    check(log)
    manager.close()


def test_a_lack_of_memory_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The map of keys takes 128 MiB: where they are missing the log is tried again, as where there is no room."""
    clock = StandingClock()
    manager, log = begun(tmp_path, clock=clock)

    def refuse(*_: object) -> None:
        raise MemoryError("no memory for a map of keys")

    monkeypatch.setattr("tidelog.storage.cleaner.cleaning.make_key_map", refuse)
    finish(manager)
    assert not manager.offline_directories
    assert not manager.cleaner.uncleanable
    monkeypatch.undo()
    clock.now_ms += 400_000
    finish(manager)
    assert is_clean(log)
    check(log)
    manager.close()


def test_a_log_that_is_cut_meanwhile(tmp_path: Path) -> None:
    """A follower is told to; the cleaning of what is left begins anew, and the checkpoint does not pass the cut."""
    manager, log = begun(tmp_path)
    finish(manager)
    before = log.cleaned_offset
    put(log, COUNT)
    in_the_middle(manager, Path(log.directory))
    cut = COUNT - 3
    log.announce_truncation(cut)
    assert log.cleaned_offset is not None
    assert log.cleaned_offset <= cut
    assert step(manager)
    assert not names(Path(log.directory), MARKED)
    log.truncate_to(cut)
    for task in manager.maintenance.truncation_tasks():
        run_now(task)
    assert checkpointed(tmp_path / "one")[TP.topic] <= min(cut, before or 0)
    assert log.log_end_offset == cut
    found = found_in(log)
    assert max(found) == cut - 1
    put(log, COUNT)
    finish(manager)
    assert is_clean(log)
    check(log, end=cut + COUNT, start=cut)
    manager.close()


def test_a_log_that_is_to_keep_younger_records_meanwhile(tmp_path: Path) -> None:
    """min.compaction.lag.ms was raised, and that acknowledged: nothing more goes by the former one."""
    manager, log = begun(tmp_path)
    in_the_middle(manager, Path(log.directory))
    log.set_config(replace(CONFIG, min_compaction_lag_ms=1_000_000))
    before = found_in(log)
    finish(manager)
    assert found_in(log) == before
    assert not names(Path(log.directory), MARKED)
    log.set_config(CONFIG)
    finish(manager)
    assert is_clean(log)
    check(log)
    manager.close()


@pytest.mark.parametrize("offset", [0, 3])
def test_a_log_that_begins_anew_meanwhile(tmp_path: Path, offset: int) -> None:
    """A follower whose leader's log begins elsewhere: all files go at once, also from under the cleaner."""
    manager, log = begun(tmp_path)
    in_the_middle(manager, Path(log.directory))
    log.truncate_fully(offset)
    assert step(manager)
    assert not names(Path(log.directory), MARKED)
    assert not manager.offline_directories
    for task in manager.maintenance.truncation_tasks():
        run_now(task)
    put(log, COUNT)
    finish(manager)
    assert not manager.cleaner.uncleanable
    assert is_clean(log)
    check(log, end=COUNT + offset, start=offset)
    manager.close()


def test_records_deleted_meanwhile(tmp_path: Path) -> None:
    """DeleteRecords, and retention takes the first of the segments that are being made one: what is left gets clean."""
    config = LogConfig(
        cleanup_policy=frozenset({"compact"}),
        segment_bytes=2_000,
        segment_index_bytes=120,
        index_interval_bytes=100,
        min_cleanable_dirty_ratio=0.01,
    )
    manager, log = begun(tmp_path)
    # Segments so small that several fit into one.
    log.set_config(config)
    in_the_middle(manager, Path(log.directory))
    second = log.segments[1].base_offset
    log.advance_start(second)
    run_now(manager.maintenance.retention_task())
    assert log.segments[0].base_offset == second
    finish(manager)
    assert not manager.offline_directories
    assert not manager.cleaner.uncleanable
    assert not names(Path(log.directory), MARKED)
    assert is_clean(log)
    check(log, start=second)
    below = [offset for offset in found_in(log) if offset < log.segments[-1].base_offset]
    assert len(below) <= KEYS, "What retention has left of the group is clean, too."
    manager.close()


def test_files_removed_from_under_a_slice(tmp_path: Path) -> None:
    """Retention's delay is over before the cleaner comes to a segment: no failure of the disk's."""
    manager, log = begun(tmp_path)
    while not step(manager) or manager.cleaner._cleaning is None:
        pass
    log.advance_start(log.active.base_offset)
    run_now(manager.maintenance.retention_task())
    manager.maintenance.run_due(10**7)
    manager.maintenance.run_due(2 * 10**7)
    finish(manager)
    assert not manager.offline_directories
    assert not names(Path(log.directory), MARKED)
    check(log, start=log.log_start_offset)
    other = manager.get(OTHER)
    assert other is not None
    assert is_clean(other)
    manager.close()


def test_a_deleted_log(tmp_path: Path) -> None:
    """Its name may be used again at once; nothing of the cleaning shows there, and the checkpoint forgets it."""
    manager, log = begun(tmp_path)
    finish(manager)
    put(log, COUNT)
    in_the_middle(manager, Path(log.directory))
    manager.delete(TP)
    for task in manager.maintenance.checkpoint_tasks():
        run_now(task)
    assert checkpointed(tmp_path / "one") == {}
    new = manager.create(TP, TopicId(bytes(15) + b"n"), log_dir=str(tmp_path / "one"))
    assert step(manager)
    assert new.cleaned_offset is None
    finish(manager)
    assert not names(Path(new.directory), MARKED)
    assert not manager.offline_directories
    manager.maintenance.run_due(10**7)
    manager.maintenance.run_due(2 * 10**7)
    assert [path.name for path in (tmp_path / "one").iterdir() if path.is_dir()] == [str(TP)]
    put(new, COUNT)
    finish(manager)
    assert is_clean(new)
    check(new)
    manager.close()


def test_a_stop_in_the_middle(tmp_path: Path) -> None:
    """Nothing half done is left behind, and the next start cleans the log."""
    manager, log = begun(tmp_path)
    in_the_middle(manager, Path(log.directory))
    manager.cleaner.stop()
    assert manager.cleaner.next_due_ms is None
    assert not names(Path(log.directory), MARKED)
    manager.close()
    manager = opened(tmp_path)
    again = manager.get(TP)
    assert again is not None
    check(again)
    finish(manager)
    assert is_clean(again)
    check(again)
    manager.close()


def test_a_stop_during_a_slice(tmp_path: Path) -> None:
    """The slice that runs just then is the last one."""
    manager, log = begun(tmp_path)
    in_the_middle(manager, Path(log.directory))
    manager.cleaner._next_ms = 0
    task = manager.cleaner.next_task()
    assert task is not None
    manager.cleaner.stop()
    assert names(Path(log.directory), MARKED)
    run_now(task)
    assert not names(Path(log.directory), MARKED)
    assert manager.cleaner.next_task() is None
    check(log)
    manager.close()


@pytest.mark.parametrize("last", [1, 2])
def test_a_cleaning_begins_when_all_up_to_the_end_is_durable(tmp_path: Path, last: int) -> None:
    """The last record of the log may be the marker that tells which records are to go, alone in its segment."""
    manager, log = begun(tmp_path)
    log.roll(NOW_MS)
    flushed = log.flush_task()
    assert flushed is not None
    for task in (flushed, *manager.maintenance.checkpoint_tasks()):
        run_now(task)
    put(log, last)
    while not names(Path(log.directory), MARKED):
        manager.cleaner._next_ms = 0
        due = manager.cleaner.next_task()
        assert due is not None
        run_now(due)
    assert log.flushed_offset == log.log_end_offset
    manager.close()


@pytest.mark.parametrize("seed", [72, 91, 92, 138, 150])
def test_a_roll_between_the_steps_of_a_replacement_and_a_power_cut(seed: int) -> None:
    """The roll does the other steps first. The disk keeps what was renamed since the last sync in any order: what was
    durable before stays. Seeds for which it did not, without the syncs between the steps.
    """
    clock = StandingClock()
    disk = SimulatedDisk(SeededRandom(seed, "d"), clock.wall_ms)
    disk.names_in_order = False
    mount = disk.mount()
    manager = open_manager("/d", disk=mount, clock=clock, config=CONFIG, settings=SETTINGS)
    log = manager.create(TP, TOPIC_ID)
    for offset in range(COUNT):
        # The first three keep their values.
        name = b"first-%d" % offset if offset < 3 else b"key-%d" % (offset % KEYS + 100)
        log.append(batch(value(offset), key=name), leader_epoch=0, now_ms=NOW_MS)
    log.update_high_watermark(log.log_end_offset)
    for task in [*manager.maintenance.durability_tasks(), *manager.maintenance.flush_tasks()]:
        run_now(task)
    run_now(log.flush_task())
    for task in manager.maintenance.checkpoint_tasks():
        run_now(task)
    mount.sync_file_system("/d")
    before = {record.key: record.value for record in read_all(log)}
    while not any(segment.mark == SWAP for segment in log.segments):
        manager.cleaner._next_ms = 0
        task = manager.cleaner.next_task()
        assert task is not None
        run_now(task)
    log.roll(NOW_MS)
    manager.abandon()
    disk.power_cut()
    manager = open_manager("/d", disk=disk.mount(), clock=clock, config=CONFIG, settings=SETTINGS)
    again = manager.get(TP)
    assert again is not None
    assert {record.key: record.value for record in read_all(again)} == before
    manager.abandon()


def test_a_power_cut_after_the_first_cleaning_and_another_policy(tmp_path: Path) -> None:
    """What was cleaned counts as cleaned from the first replacement on, also where the policy is `delete` by the next
    start: the files that the cleaned segment replaced are no gap of retention's, with which it would have to go."""
    disk, clock = FaultyMemoryDisk(), StandingClock()
    manager = open_manager(MEMORY, disk=disk, clock=clock, config=CONFIG, settings=SETTINGS)
    log = manager.create(TP, TOPIC_ID)
    for segment in ([b"a"], [b"k"], [b"k"], [b"k", b"l", b"m"], [b"n"]):
        for name in segment:
            log.append(batch(VALUE, key=name), leader_epoch=0, now_ms=NOW_MS)
        log.roll(NOW_MS)
    log.update_high_watermark(log.log_end_offset)
    run_now(log.flush_task())
    for task in manager.maintenance.checkpoint_tasks():
        run_now(task)
    assert manager.cleaner.run_due() == 1
    kept = [(record.offset, record.key) for record in read_all(log)]
    assert kept == [(0, b"a"), (3, b"k"), (4, b"l"), (5, b"m"), (6, b"n")]
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 7]
    manager.abandon()
    disk.boot = "second boot"
    manager = open_manager(MEMORY, disk=disk, clock=clock, settings=SETTINGS)
    again = manager.get(TP)
    assert again is not None
    assert [(record.offset, record.key) for record in read_all(again)] == kept
    assert not again.is_gapless


def test_what_an_append_has_let_in_is_cleaned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However large a batch is when it is decompressed: an append takes more where max.message.bytes is large."""
    monkeypatch.setattr("tidelog.storage.cleaner.cleaning.DECOMPRESSED_SIZE_MAX", 1 << 20)
    manager = open_manager(tmp_path, config=replace(CONFIG, segment_bytes=1 << 20))
    log = manager.create(TP, TOPIC_ID)
    log.append(batch(bytes(2 << 20), key=b"k", codec=Codec.ZSTD), leader_epoch=0, now_ms=NOW_MS)
    log.append(batch(VALUE, key=b"k"), leader_epoch=0, now_ms=NOW_MS)
    log.roll(NOW_MS)
    log.update_high_watermark(log.log_end_offset)
    finish(manager)
    assert not manager.cleaner.uncleanable
    assert [record.offset for record in read_all(log)] == [1]


def test_a_damaged_log_is_cleaned_once_it_is_mended(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By what other replicas have, say: it is tried again after a while, and told of once."""
    clock = StandingClock()
    manager, log = begun(tmp_path, clock=clock)
    path = Path(log.directory) / f"{0:020d}.log"
    sound = path.read_bytes()
    path.write_bytes(sound[:120] + bytes([sound[120] ^ 1]) + sound[121:])
    finish(manager)
    assert list(manager.cleaner.uncleanable) == [TP]
    clock.now_ms += LEFT_ALONE_MS
    finish(manager)
    assert list(manager.cleaner.uncleanable) == [TP]
    assert [each.levelname for each in caplog.records if "log_uncleanable" in each.getMessage()].count("WARNING") == 1
    path.write_bytes(sound)
    finish(manager)
    assert list(manager.cleaner.uncleanable) == [TP]
    clock.now_ms += LEFT_ALONE_MS
    finish(manager)
    assert is_clean(log)
    check(log)
    assert not manager.cleaner.uncleanable
    manager.close()
