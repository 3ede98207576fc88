"""The steps of a truncation, what waits for them, and what recovery makes of what a power cut has left."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from sim.world.disk import SimulatedDisk
from sim.world.randomness import SeededRandom
from tests.unit.storage.support import (
    NOW_MS,
    TOPIC_ID,
    TP,
    FaultyDisk,
    StandingClock,
    batch,
    fill,
    marker,
    open_log,
    open_manager,
    read_all,
)

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.records.batch import patch
from tidelog.storage import truncation
from tidelog.storage.file_names import BOOT_ID, RECOVERY_POINT_CHECKPOINT
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_manager import LogManager
from tidelog.storage.producer_state import AppendOrigin
from tidelog.storage.tasks import run_now

SIZE = len(batch(b"." * 100))
CONFIG = LogConfig(segment_bytes=5 * SIZE, index_interval_bytes=SIZE, segment_index_bytes=1200)


def settle(manager: LogManager) -> None:
    for task in manager.maintenance.truncation_tasks():
        run_now(task)


def sent(offset: int, epoch: int, value: bytes = b"sent", count: int = 1) -> bytearray:
    """A batch as a leader sends it."""
    made = batch(*[value] * count)
    patch(made, 0, base_offset=offset, leader_epoch=epoch)
    return made


def recovery_point(folder: Path) -> int:
    return int((folder / RECOVERY_POINT_CHECKPOINT).read_text().split()[-1])


def test_the_recovery_point_goes_down_before_the_log_is_cut(tmp_path: Path) -> None:
    """In its file, too: a crash at any moment of the cut must find a recovery that looks at all of it."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 12)
    task = log.flush_task()
    assert task is not None
    run_now(task)
    manager.maintenance.run_due(10**7)
    assert recovery_point(tmp_path) == 11, "The index of the active segment is not durable."
    log.announce_truncation(7)
    assert log.truncation_is_pending
    assert log.log_end_offset == 12, "It is only announced."
    settle(manager)
    assert not log.truncation_is_pending
    assert recovery_point(tmp_path) == 7


def test_the_recovery_point_stays_below_the_end_of_an_active_segment_that_was_cut(tmp_path: Path) -> None:
    """The log may roll there, and what that adds to the segment's time index is not durable yet."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 9)
    run_now(log.flush_task())
    log.announce_truncation(7)
    log.truncate_to(7)
    settle(manager)
    assert recovery_point(tmp_path) == 6
    assert log.recovery_point == 6


def test_no_flush_ends_before_the_cut_is_durable(tmp_path: Path) -> None:
    """What is appended behind it would otherwise count as durable while the cut is not; then flushes go on."""
    config = LogConfig(segment_bytes=5 * SIZE, index_interval_bytes=SIZE, segment_index_bytes=1200, flush_messages=1)
    disk = FaultyDisk()
    manager, log = open_log(tmp_path, config=config, disk=disk)
    fill(log, 12)
    manager.maintenance.run_due(0)
    log.truncate_to(7)
    fill(log, 1)
    assert log.flush_task() is None
    assert log.flushed_offset == 7
    disk.operations.clear()
    settle(manager)
    assert ("fsync", log.active.path(".log")) in disk.operations
    assert ("fsync_directory", log.directory) in disk.operations
    for task in manager.maintenance.flush_tasks():
        run_now(task)
    assert log.flushed_offset == 8


def test_a_flush_from_before_the_cut_says_nothing(tmp_path: Path) -> None:
    """It may end later, and its files may be gone: neither moves the recovery point, nor is it the disk's failure."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 12)
    flush = log.flush_task()
    assert flush is not None
    log.truncate_fully(100)
    run_now(flush)
    settle(manager)
    assert not log.is_offline
    assert log.flushed_offset == 100


def test_a_truncation_that_is_cut_again_settles_once(tmp_path: Path) -> None:
    """The first task comes too late to say that the second cut is durable."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 12)
    log.truncate_to(9)
    (first,) = manager.maintenance.truncation_tasks()
    first.run()
    log.truncate_to(4)
    first.finish(None)
    assert log.truncation_is_pending
    settle(manager)
    assert not log.truncation_is_pending


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("offset", [7, 5])
def test_a_log_is_cut_though_an_index_is_damaged(tmp_path: Path, suffix: str, offset: int) -> None:
    """What cuts a follower's log expects no other refusal than the disk's. The index is written anew."""
    _, log = open_log(tmp_path, config=CONFIG)
    fill(log, 12)
    index = tmp_path / "topicone-0" / f"{5:020d}{suffix}"
    index.write_bytes(index.read_bytes() + bytes(5))
    assert log.truncate_to(offset)
    assert [record.offset for record in read_all(log)] == list(range(offset))
    fill(log, 6)
    log.roll(NOW_MS)
    assert [record.offset for record in read_all(log)] == list(range(offset + 6))
    assert log.offset_for_timestamp(NOW_MS + 6, up_to_offset=log.log_end_offset) == (NOW_MS + 6, 6, 0)


@pytest.mark.parametrize("damage", [lambda content: b"\7" + content[1:], lambda content: content + b"torn"])
@pytest.mark.parametrize(("offset", "kept"), [(6, 3), (4, 2), (3, 1), (0, 0)])
def test_a_log_is_cut_though_a_transaction_index_is_damaged(
    tmp_path: Path, damage: Callable[[bytes], bytes], offset: int, kept: int
) -> None:
    """The entries of the markers that stay stay, as they are, for the scrub to mend; those of the others go."""
    _, log = open_log(tmp_path)
    for sequence in range(4):
        data = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True)
        log.append(data, leader_epoch=0, now_ms=NOW_MS)
        log.append(marker(7, commit=False), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    index = Path(log.active.transaction_index.path)
    content = index.read_bytes()
    index.write_bytes(damage(content))
    assert log.truncate_to(offset)
    assert log.log_end_offset == offset
    assert index.read_bytes() == damage(content)[: 34 * kept]


def lose_power(log: Log, manager: LogManager, came_back: dict[Path, bytes]) -> Log:
    """The machine loses its power, and some files are as they were before."""
    manager.abandon()
    (Path(log.owner.path) / BOOT_ID).write_text("of the boot before\n")
    for path, content in came_back.items():
        path.write_bytes(content)
    again = open_manager(log.directory.rpartition("/")[0], config=CONFIG).get(TP)
    assert again is not None
    return again


def test_a_removed_segment_that_comes_back_is_removed_again(tmp_path: Path) -> None:
    """Its records overlap with those that came instead: the newer ones are kept."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 8, leader_epoch=1)
    old = Path(log.active.path(".log"))
    content = old.read_bytes()[: log.active.size]
    assert log.active.base_offset == 5
    log.truncate_to(3)
    log.append(batch(*[b"x"] * 4), leader_epoch=2, now_ms=NOW_MS)
    again = lose_power(log, manager, {old: content})
    assert again.log_end_offset == 7
    assert [record.value for record in read_all(again, 3)] == [b"x"] * 4


def test_an_old_epoch_behind_a_newer_one_ends_the_log(tmp_path: Path) -> None:
    """A page of the old tail that came back behind a new batch of the same size is nothing that a leader wrote."""
    manager, log = open_log(tmp_path, config=CONFIG)
    for offset in range(4):
        log.append_as_follower(sent(offset, 1))
    path = Path(log.active.path(".log"))
    content = path.read_bytes()[: log.active.size]
    log.truncate_to(2)
    log.append_as_follower(sent(2, 2, b"SENT"))
    new = path.read_bytes()[: log.active.size]
    again = lose_power(log, manager, {path: new + content[len(new) :]})
    assert again.log_end_offset == 3
    assert again.epochs.entries == [(1, 0), (2, 2)]


def test_so_does_a_segment_of_an_old_epoch(tmp_path: Path) -> None:
    """That comes back just where the new records end."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 8, leader_epoch=1)
    old = Path(log.active.path(".log"))
    content = old.read_bytes()[: log.active.size]
    log.truncate_to(3)
    log.append(batch(b"x", b"x"), leader_epoch=2, now_ms=NOW_MS)
    again = lose_power(log, manager, {old: content})
    assert again.log_end_offset == 5
    assert again.epochs.latest == 2


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (sent(3, 3), "where 4 is next"),
        (sent(4, 1), "after records of epoch 2"),
        (sent(4, 7), "from a leader of epoch 6"),
    ],
)
def test_what_no_leader_can_have_sent_is_refused(tmp_path: Path, made: bytearray, why: str) -> None:
    """Repetitions, epochs that go back or are of the future: CORRUPT_MESSAGE, and nothing is appended."""
    _, log = open_log(tmp_path, config=CONFIG)
    for offset in range(4):
        log.append_as_follower(sent(offset, 2), leader_epoch=6)
    with pytest.raises(KafkaError, match=why) as refused:
        log.append_as_follower(made, leader_epoch=6)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert log.log_end_offset == 4


def test_gaps_are_taken_as_they_come(tmp_path: Path) -> None:
    """The leader's log was compacted, perhaps before its policy was changed; between files a gap shows as none."""
    _, log = open_log(tmp_path, config=CONFIG)
    log.append_as_follower(sent(0, 2), leader_epoch=6)
    log.append_as_follower(sent(5, 2), leader_epoch=6)
    log.roll(0)
    log.append_as_follower(sent(9, 2), leader_epoch=6)
    assert log.log_end_offset == 10
    assert log.segments[-1].base_offset == 6


def test_a_log_may_begin_inside_a_batch(tmp_path: Path) -> None:
    """As the leader's does after DeleteRecords: the batch is kept whole, its first records are not shown."""
    manager, log = open_log(tmp_path, config=CONFIG)
    log.truncate_fully(12)
    settle(manager)
    log.append_as_follower(sent(10, 1, count=5), leader_epoch=1)
    assert (log.log_start_offset, log.log_end_offset) == (12, 15)
    assert [record.offset for record in read_all(log)] == [12, 13, 14]
    settle(manager)
    manager.abandon()
    again = open_manager(tmp_path, config=CONFIG).get(TP)
    assert again is not None
    assert (again.log_start_offset, again.log_end_offset) == (12, 15)
    assert os.path.exists(f"{again.directory}/{10:020d}.log")


def test_a_segment_that_is_closed_after_a_cut_is_flushed_with_its_indexes(tmp_path: Path) -> None:
    """Also where the cut has removed the closed segment that was to be flushed first: recovery would not read the one
    before again, and miss what its index of aborted transactions had in memory only."""
    manager, log = open_log(tmp_path, config=CONFIG)
    while len(log.segments) < 2:
        fill(log, 1)
    first = log.flush_task()
    assert first is not None
    run_now(first)
    while len(log.segments) < 4:
        fill(log, 1)
    log.truncate_to(3)
    settle(manager)
    (cut,) = log.segments
    while len(log.segments) < 2:
        fill(log, 1)
    assert log.recovery_point <= cut.base_offset, "Its indexes are not durable yet."
    task = log.flush_task()
    assert task is not None
    run_now(task)
    assert log.recovery_point == log.log_end_offset - 1


@pytest.mark.parametrize("is_settled", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_a_roll_behind_a_cut_and_a_power_cut(seed: int, is_settled: bool) -> None:
    """A leader appends before the cut is durable, and rolls: no batch that was cut off comes back before a new one."""
    clock = StandingClock()
    disk = SimulatedDisk(SeededRandom(seed, "d"), clock.wall_ms)
    mount = disk.mount()
    manager = open_manager("/d", disk=mount, clock=clock, config=CONFIG)
    log = manager.create(TP, TOPIC_ID)
    fill(log, 5, leader_epoch=1)
    for task in [*manager.maintenance.durability_tasks(), log.flush_task()]:
        assert task is not None
        run_now(task)
    mount.sync_file_system("/d")
    log.announce_truncation(3)
    settle(manager)
    log.truncate_to(3)
    for _ in range(4):
        log.append(batch(b"x" * 100), leader_epoch=2, now_ms=NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 5]
    if is_settled:
        settle(manager)
    else:
        # As an operating system may do by itself.
        disk.write_back(log.active.path(".log"))
        mount.fsync_directory(log.directory)
    manager.abandon()
    disk.power_cut()
    again = open_manager("/d", disk=disk.mount(), clock=clock, config=CONFIG).get(TP)
    assert again is not None
    is_new = [record.value == b"x" * 100 for record in read_all(again)[3:]]
    assert all(is_new) or not any(is_new)


def test_a_segment_that_goes_beside_the_last_step_leaves_it_to_be_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was to be read for the producers' state: nothing is flushed, and no follower goes on, before the cut is
    settled."""
    monkeypatch.setattr(truncation, "REBUILT_AT_ONCE_MAX", -1)
    disk = FaultyDisk()
    config = LogConfig(segment_bytes=5 * SIZE, file_delete_delay_ms=0)
    manager, log = open_log(tmp_path, disk=disk, config=config)
    for sequence in range(12):
        log.append(
            batch(b"." * 100, producer_id=7, producer_epoch=0, base_sequence=sequence), leader_epoch=0, now_ms=NOW_MS
        )
    log.truncate_to(11)
    log.update_high_watermark(11)
    (directory,) = manager.directories
    (task,) = manager.maintenance.truncation_tasks()

    def retention(operation: str, _path: str) -> None:
        if operation == "list" and log.advance_start(5):
            assert log.delete_old_segments(NOW_MS) == 1
            for unlink, _ in directory.pending_deletions:
                unlink()

    disk.fault = retention
    run_now(task)
    assert log.log_start_offset == 5
    assert log.truncation_is_pending
    settle(manager)
    assert not log.truncation_is_pending
    assert not log.producers.is_behind
    assert manager.online_directories
