"""What a log looks like after a crash, a clean stop, a truncation, an interrupted compaction."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.storage.support import (
    NOW_MS,
    TP,
    FaultyDisk,
    MemoryDisk,
    batch,
    fill,
    names,
    open_log,
    open_manager,
    read_all,
)

from tidelog.model.identifiers import LeaderEpoch, Offset
from tidelog.records.batch import patch
from tidelog.storage.checkpoints import decode_offsets
from tidelog.storage.dump import dump_lines
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.tasks import run_now

SIZE = len(batch(b"." * 100))
CONFIG = LogConfig(segment_bytes=5 * SIZE, index_interval_bytes=SIZE, segment_index_bytes=1200)


def reopened(path: Path, **options: object) -> Log:
    log = open_manager(path, config=CONFIG, **options).get(TP)  # type: ignore[arg-type]
    assert log is not None
    return log


def test_a_crash_loses_nothing_that_was_written(tmp_path: Path) -> None:
    """A killed process leaves the page cache: every record, epoch and index entry is found again."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 12, leader_epoch=1)
    fill(log, 11, leader_epoch=4)
    manager.abandon()
    again = reopened(tmp_path)
    assert [record.offset for record in read_all(again)] == list(range(23))
    assert again.epochs.entries == [(1, 0), (4, 12)]
    assert [segment.offset_index.entries() for segment in again.segments] == [
        segment.offset_index.entries() for segment in log.segments
    ]
    assert (again.flushed_offset, again.log_end_offset) == (0, 23)
    fill(again, 1, leader_epoch=4)
    assert again.log_end_offset == 24


def test_a_torn_tail_is_cut_at_any_byte() -> None:
    """Only the batch that the cut went through is lost."""
    whole = MemoryDisk()
    manager, log = open_log("/logs", disk=whole, config=CONFIG)
    fill(log, 9)
    manager.abandon()
    last = "/logs/topicone-0/00000000000000000005.log"
    for cut in range(1, 2 * SIZE + 1):
        disk = MemoryDisk()
        disk.directories = set(whole.directories)
        disk.files = {path: bytearray(content) for path, content in whole.files.items()}
        del disk.files[last][-cut:]
        again = open_manager("/logs", disk=disk, config=CONFIG).create(TP, None)
        lost = -(-cut // SIZE)
        assert again.log_end_offset == 9 - lost
        assert again.active.size == len(disk.files[last]) == (4 - lost) * SIZE


def test_zeros_behind_the_last_batch_are_cut(tmp_path: Path) -> None:
    """As preallocation, or a file system after a power cut, leaves them."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 3)
    manager.abandon()
    path = tmp_path / "topicone-0/00000000000000000000.log"
    os.truncate(path, 100_000)
    assert reopened(tmp_path).log_end_offset == 3
    assert path.stat().st_size == 3 * SIZE


def test_segments_behind_a_damaged_one_are_removed(tmp_path: Path) -> None:
    """Offsets must not have a hole: what follows is out of reach."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 14)
    manager.abandon()
    path = tmp_path / "topicone-0/00000000000000000005.log"
    content = bytearray(path.read_bytes())
    content[2 * SIZE + 70] ^= 1
    path.write_bytes(content)
    again = reopened(tmp_path)
    assert again.log_end_offset == 7
    assert [segment.base_offset for segment in again.segments] == [0, 5]


def test_damage_does_not_make_a_loss_of_what_compaction_has_left_out(tmp_path: Path) -> None:
    """All is scanned then; a gap between durable files, of a cleaning that was interrupted, is still none."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 1)
    log._roll(10, NOW_MS)
    for offset in (10, 11):
        data = batch(b"." * 100)
        patch(data, 0, base_offset=offset, leader_epoch=0)
        log.append_as_follower(data)
    manager.close()
    with (Path(log.directory) / f"{10:020d}.log").open("r+b") as file:
        file.seek(SIZE + 16)
        file.write(b"\7")  # No magic of the last batch.
    again = reopened(tmp_path)
    again.set_config(LogConfig(cleanup_policy=frozenset({"compact"})))
    assert [record.offset for record in read_all(again)] == [0, 10]
    assert again.log_end_offset == 11


def test_what_lies_below_the_recovery_point_is_not_read(tmp_path: Path) -> None:
    """Recovery takes as long as what was not flushed."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 23)
    manager.maintenance.run_due(0)
    manager.maintenance.run_due(10**7)
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\ntopicone 0 20\n"
    manager.abandon()
    disk = FaultyDisk()
    again = reopened(tmp_path, disk=disk)
    assert again.log_end_offset == 23
    read = {path for operation, path in disk.operations if operation == "pread" and path.endswith(".log")}
    assert {path.rpartition("/")[2] for path in read} == {"00000000000000000020.log"}


def test_after_a_clean_stop_nothing_is_scanned_nor_changed(tmp_path: Path) -> None:
    """`.kafka_cleanshutdown` says so, and is gone once the directory is in use again."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 23)
    manager.close()
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\ntopicone 0 23\n"
    before = {path.name: path.read_bytes() for path in (tmp_path / "topicone-0").iterdir()}
    disk = FaultyDisk()
    manager = open_manager(tmp_path, disk=disk, config=CONFIG)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert not [
        path for operation, path in disk.operations if operation in ("truncate", "pwrite") and "topicone" in path
    ]
    manager.close()
    assert {path.name: path.read_bytes() for path in (tmp_path / "topicone-0").iterdir()} == before


def test_a_crash_after_a_clean_start_needs_recovery_again(tmp_path: Path) -> None:
    """The mark of the clean stop is removed before anything is written."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 3)
    manager.close()
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 3)
    manager.abandon()
    os.truncate(tmp_path / "topicone-0/00000000000000000005.log", 10)
    assert reopened(tmp_path).log_end_offset == 5


def test_a_lost_epoch_checkpoint_is_found_in_the_batches(tmp_path: Path) -> None:
    """Missing or unreadable, also after a clean stop, if the segments are scanned."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 3, leader_epoch=1)
    fill(log, 3, leader_epoch=5)
    manager.abandon()
    (tmp_path / "topicone-0/leader-epoch-checkpoint").write_bytes(b"\xff\x00rubbish")
    assert reopened(tmp_path).epochs.entries == [(1, 0), (5, 3)]


@pytest.mark.parametrize("stop", ["clean", "killed"])
def test_a_lost_epoch_checkpoint_is_found_in_batches_that_need_no_scan(tmp_path: Path, stop: str) -> None:
    """What was flushed is not recovered, yet its epochs are asked for; they are soon written again."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 12, leader_epoch=1)
    fill(log, 11, leader_epoch=5)
    manager.maintenance.run_due(10**6)
    assert log.flushed_offset == 20
    for task in manager.maintenance.checkpoint_tasks():
        run_now(task)
    if stop == "clean":
        manager.close()
    else:
        manager.abandon()
    checkpoint = tmp_path / "topicone-0/leader-epoch-checkpoint"
    checkpoint.unlink()
    manager = open_manager(tmp_path, config=CONFIG)
    again = manager.get(TP)
    assert again is not None
    assert again.epochs.entries == [(1, 0), (5, 12)]
    manager.maintenance.run_due(10**6)
    assert checkpoint.read_text() == "0\n2\n1 0\n5 12\n"


def test_epochs_below_the_recovery_point_come_from_the_checkpoint_and_later_ones_from_batches(tmp_path: Path) -> None:
    """Killed after a flush, then more epochs: none is missing."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 3, leader_epoch=1)
    fill(log, 4, leader_epoch=2)
    manager.maintenance.run_due(0)
    assert log.flushed_offset == 5
    assert (tmp_path / "topicone-0/leader-epoch-checkpoint").read_text() == "0\n2\n1 0\n2 3\n"
    for task in manager.maintenance.checkpoint_tasks():
        run_now(task)
    fill(log, 2, leader_epoch=4)
    fill(log, 2, leader_epoch=9)
    manager.abandon()
    again = reopened(tmp_path)
    assert again.epochs.entries == [(1, 0), (2, 3), (4, 7), (9, 9)]


def test_epochs_from_before_a_truncation_are_not_believed(tmp_path: Path) -> None:
    """The checkpoint on disk still has an epoch whose records were cut; another leader's have taken their place."""
    manager, log = open_log(tmp_path)
    fill(log, 5, leader_epoch=1)
    fill(log, 5, leader_epoch=2)
    task = log.flush_task()
    assert task is not None
    run_now(task)
    log.truncate_to(3)
    fill(log, 4, leader_epoch=1)
    manager.abandon()
    again = reopened(tmp_path)
    assert again.epochs.entries == [(1, 0)]
    fill(again, 1, leader_epoch=3)
    assert again.epochs.entries == [(1, 0), (3, 7)]


@pytest.mark.parametrize("stop", ["clean", "killed"])
def test_an_epoch_without_records_may_be_forgotten(tmp_path: Path, stop: str) -> None:
    """A leader that wrote nothing: whatever is asked of the log once the next epoch has begun is answered the same."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 7, leader_epoch=1)
    log.assign_epoch(4)
    if stop == "clean":
        manager.close()
    else:
        manager.abandon()
    again = reopened(tmp_path)
    assert log.epochs.entries == [(1, 0), (4, 7)]
    assert again.epochs.entries == [(1, 0)]
    for replica in (log.epochs, again.epochs):
        replica.assign(LeaderEpoch(6), Offset(7))
    for epoch in range(8):
        assert again.end_offset_for_epoch(epoch) == log.epochs.end_offset_for(LeaderEpoch(epoch), Offset(7))


def test_a_log_without_its_segments_goes_on_at_its_start(tmp_path: Path) -> None:
    """Someone removed the files: offsets that were used are not used again."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 23)
    log.update_high_watermark(23)
    log.advance_start(22)
    manager.close()
    for name in names(tmp_path / "topicone-0"):
        (tmp_path / "topicone-0" / name).unlink()
    again = reopened(tmp_path)
    assert (again.log_start_offset, again.log_end_offset) == (22, 22)
    fill(again, 1)
    assert [record.offset for record in read_all(again)] == [22]


@pytest.mark.parametrize("offset", [0, 3, 5, 7, 10, 22])
def test_truncation_then_other_records(tmp_path: Path, offset: int) -> None:
    """At a segment's base and inside one; the recovery point and the epochs go back too, and a crash does not undo
    it."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 12, leader_epoch=1)
    fill(log, 11, leader_epoch=2)
    manager.maintenance.run_due(0)
    assert log.truncate_to(offset)
    assert not log.truncate_to(offset), "there is nothing more to remove"
    assert log.log_end_offset == offset
    assert log.flushed_offset <= offset
    assert log.epochs.entries == [entry for entry in ((1, 0), (2, 12)) if entry[1] < offset]
    for _ in range(4):
        log.append(batch(b"other"), leader_epoch=3, now_ms=NOW_MS)
    assert log.end_offset_for_epoch(3) == (3, offset + 4)
    manager.abandon()
    again = reopened(tmp_path)
    assert [record.offset for record in read_all(again)] == list(range(offset + 4))
    assert [record.value for record in read_all(again, offset)] == [b"other"] * 4


def test_truncation_keeps_whole_batches_only(tmp_path: Path) -> None:
    """An offset inside a batch takes the whole batch, and the log goes on where that began."""
    _, log = open_log(tmp_path, config=CONFIG)
    log.append(batch(b"a", b"b", b"c"), leader_epoch=0, now_ms=NOW_MS)
    log.truncate_to(1)
    assert log.size == 0
    assert log.log_end_offset == 0


def test_a_full_truncation_starts_elsewhere(tmp_path: Path) -> None:
    """A follower whose leader's log begins past its own end."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 12)
    log.truncate_fully(100)
    assert (log.log_start_offset, log.log_end_offset, log.flushed_offset, log.size) == (100, 100, 100, 0)
    fill(log, 2)
    manager.abandon()
    assert [record.offset for record in read_all(reopened(tmp_path))] == [100, 101]


def compacted(offsets: list[int]) -> bytes:
    """A segment as compaction writes it."""
    data = b""
    for offset in offsets:
        kept = batch(b"kept")
        patch(kept, 0, base_offset=offset, leader_epoch=0)
        data += bytes(kept)
    return data


@pytest.mark.row("R35")
def test_an_interrupted_compaction_is_undone(tmp_path: Path) -> None:
    """`.cleaned` files were still being written."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 12)
    manager.close()
    folder = tmp_path / "topicone-0"
    for suffix in ("log", "index", "timeindex"):
        (folder / f"00000000000000000000.{suffix}.cleaned").write_bytes(b"half")
    (folder / "00000000000000000005.log.swap").write_bytes(compacted([6]))
    again = reopened(tmp_path)
    assert [record.offset for record in read_all(again)] == list(range(12))
    assert names(folder, [".cleaned", ".swap"]) == []


@pytest.mark.row("R35")
def test_a_finished_compaction_is_put_in_place(tmp_path: Path) -> None:
    """`.swap` files replace the segments whose offsets they cover, also when some of those are gone already."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 12)
    manager.close()
    folder = tmp_path / "topicone-0"
    (folder / "00000000000000000000.log.swap").write_bytes(compacted([2, 4, 9]))
    for suffix in ("index", "timeindex"):
        (folder / f"00000000000000000000.{suffix}.swap").write_bytes(b"")
    (folder / "00000000000000000005.timeindex").unlink()
    again = reopened(tmp_path)
    assert [record.offset for record in read_all(again)] == [2, 4, 9, 10, 11]
    assert [segment.base_offset for segment in again.segments] == [0, 10]
    assert names(folder, [".swap"]) == []


def test_preallocated_segments_are_cut_to_their_batches(tmp_path: Path) -> None:
    """preallocate=true: the file has its full size while active, and only what was written afterwards."""
    config = LogConfig(segment_bytes=5 * SIZE, preallocate=True)
    manager, log = open_log(tmp_path, config=config)
    fill(log, 7)
    folder = tmp_path / "topicone-0"
    assert [(folder / name).stat().st_size for name in names(folder)] == [5 * SIZE, 5 * SIZE]
    manager.abandon()
    manager = open_manager(tmp_path, config=config)
    assert [(folder / name).stat().st_size for name in names(folder)] == [5 * SIZE, 2 * SIZE]
    assert manager.create(TP, None).log_end_offset == 7


@pytest.mark.row("R31")
def test_what_we_write_is_told_by_the_dump(tmp_path: Path) -> None:
    """File names of 20 digits, and a dump for each of them without a complaint."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 7)
    manager.close()
    folder = tmp_path / "topicone-0"
    assert {path.name for path in folder.iterdir()} == {
        "00000000000000000000.index", "00000000000000000000.log", "00000000000000000000.timeindex",
        "00000000000000000005.index", "00000000000000000005.log", "00000000000000000005.snapshot",
        "00000000000000000005.timeindex", "00000000000000000007.snapshot",
        "leader-epoch-checkpoint", "partition.metadata",
    }  # fmt: skip
    from tidelog.ports.real import SystemDisk

    lines = list(dump_lines(SystemDisk(), str(folder / "00000000000000000005.log")))
    assert lines[:2] == ["Dumping 00000000000000000005.log", "Log starting offset: 5"]
    assert lines[3].startswith(
        f"| offset: 5 CreateTime: {NOW_MS + 5} keySize: 1 valueSize: 100 sequence: -1 headerKeys: []"
    )
    assert len(lines) == 2 + 2 * 2


def test_records_of_1970_are_no_damage(tmp_path: Path) -> None:
    """Timestamp 0 at a segment's first offset is an index entry of zeros: the log rolls on after a clean start."""
    manager, log = open_log(tmp_path, config=CONFIG)
    log.append(batch(b"first", timestamp=0), leader_epoch=0, now_ms=NOW_MS)
    manager.close()
    again = reopened(tmp_path)
    for _ in range(20):
        again.append(batch(b"x" * 100, timestamp=0), leader_epoch=0, now_ms=NOW_MS)
    assert len(again.segments) > 1
    assert again.log_end_offset == 21
    assert again.segments[0].time_index.last().timestamp == 0


def test_a_cut_below_the_recovery_point_is_written_down_at_once(tmp_path: Path) -> None:
    """Damage costs the log what was durable: what is appended in its place is not, and no checkpoint may say so."""
    manager, log = open_log(tmp_path)
    fill(log, 6)
    for task in manager.maintenance.due_tasks(10**9):
        run_now(task)
    run_now(log.flush_task())
    for task in manager.maintenance.checkpoint_tasks():
        run_now(task)
    manager.abandon()
    path = tmp_path / "topicone-0" / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    checkpoint = tmp_path / "recovery-point-offset-checkpoint"
    assert decode_offsets(checkpoint.read_bytes())[TP] == 5
    manager, log = open_log(tmp_path)
    assert log.log_end_offset == 5
    assert decode_offsets(checkpoint.read_bytes())[TP] == 4
    manager.abandon()


def closed_where_it_was_flushed(tmp_path: Path) -> Path:
    """A log that was flushed and checkpointed, rolled just there, and whose broker was killed; gives its folder."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 5)
    task = log.flush_task()
    assert task is not None
    run_now(task)
    for task in manager.maintenance.checkpoint_tasks():
        run_now(task)
    fill(log, 2)
    assert [segment.base_offset for segment in log.segments] == [0, 5]
    manager.abandon()
    return Path(log.directory)


def test_a_segment_that_was_closed_where_it_was_flushed_is_read_again(tmp_path: Path) -> None:
    """A flush leaves out the indexes of the active segment: a power cut may have taken entries that no start misses."""
    folder = closed_where_it_was_flushed(tmp_path)
    indexes = [folder / f"{0:020d}{suffix}" for suffix in (".index", ".timeindex")]
    whole = [path.read_bytes() for path in indexes]
    assert all(len(content) > 12 for content in whole)
    for path in indexes:
        os.truncate(path, 0)
    manager, log = open_log(tmp_path, config=CONFIG)
    assert [path.read_bytes() for path in indexes] == whole
    assert log.recovery_point < 5, "They are not durable yet."
    task = log.flush_task()
    assert task is not None
    run_now(task)
    assert log.recovery_point == 6
    manager.close()


def test_rot_at_the_recovery_point_is_no_truncation(tmp_path: Path) -> None:
    """What follows the record that cannot be read any more is kept aside, and the replica is known to be damaged."""
    folder = closed_where_it_was_flushed(tmp_path)
    path = folder / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    checkpoint = tmp_path / "recovery-point-offset-checkpoint"
    assert decode_offsets(checkpoint.read_bytes())[TP] == 4
    manager, log = open_log(tmp_path, config=CONFIG)
    assert log.log_end_offset == 4
    assert log.damage is not None
    manager.close()


@pytest.mark.parametrize("clean", [False, True])
def test_an_index_that_is_written_anew_is_durable(tmp_path: Path, clean: bool) -> None:
    """It belongs to a segment that no flush comes to, and the next start trusts it."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 12)
    manager.maintenance.run_due(0)
    manager.maintenance.run_due(10**7)
    manager.close() if clean else manager.abandon()
    index = Path(log.directory) / f"{5:020d}.timeindex"
    index.unlink()
    disk = FaultyDisk()
    again = open_manager(tmp_path, config=CONFIG, disk=disk)
    assert index.stat().st_size
    assert ("fsync", str(index)) in disk.operations
    again.abandon()


def test_a_retention_that_a_power_cut_has_torn() -> None:
    """Of two segments that were renamed, the new name of the second alone reached the disk: the first goes as well."""
    disk = MemoryDisk()
    manager, log = open_log("/logs", disk=disk, config=CONFIG)
    fill(log, 18)
    run_now(log.flush_task())
    for task in manager.maintenance.checkpoint_tasks():
        run_now(task)
    manager.abandon()
    disk.rename("/logs/topicone-0/00000000000000000005.log", "/logs/topicone-0/00000000000000000005.log.deleted")
    disk.boot = "second boot"
    again = open_manager("/logs", disk=disk, config=CONFIG).create(TP, None)
    assert [record.offset for record in read_all(again)] == list(range(10, 18))
    assert (again.log_start_offset, again.damage) == (10, None)
    bases = {path.rpartition("/")[2][:20] for path in disk.files if path.endswith((".log", ".index", ".deleted"))}
    assert bases == {f"{segment.base_offset:020d}" for segment in again.segments}


def test_segments_that_were_truncated_and_fetched_again_are_no_torn_retention() -> None:
    """A follower rolls where it rolled before; the power cut has kept the name of the later new segment alone."""
    disk = MemoryDisk()
    manager, log = open_log("/logs", disk=disk, config=CONFIG)
    fill(log, 23)
    run_now(log.flush_task())
    for task in manager.maintenance.checkpoint_tasks():
        run_now(task)
    log.announce_truncation(10)
    log.truncate_to(10)
    for task in manager.maintenance.truncation_tasks():
        run_now(task)
    fill(log, 13)
    manager.abandon()
    folder = "/logs/topicone-0"
    assert f"{folder}/{15:020d}.log.deleted" in disk.files
    del disk.files[f"{folder}/{15:020d}.log"]
    disk.boot = "second boot"
    again = open_manager("/logs", disk=disk, config=CONFIG).create(TP, None)
    assert again.log_start_offset == 0
    assert [record.offset for record in read_all(again)] == list(range(15))


def test_a_segment_that_was_truncated_is_no_torn_retention() -> None:
    """What the log was given since was not flushed, and the power cut has left a gap: the segments before it stay."""
    disk = MemoryDisk()
    manager, log = open_log("/logs", disk=disk, config=CONFIG)
    fill(log, 13)
    manager.abandon()
    folder = "/logs/topicone-0"
    disk.files[f"{folder}/{5:020d}.log.deleted"] = bytearray(disk.files[f"{folder}/{5:020d}.log"])
    for suffix in (".log", ".index", ".timeindex"):
        disk.rename(f"{folder}/{10:020d}{suffix}", f"{folder}/{12:020d}{suffix}")
    del disk.files[f"{folder}/{5:020d}.log"]
    disk.boot = "second boot"
    again = open_manager("/logs", disk=disk, config=CONFIG).create(TP, None)
    assert [record.offset for record in read_all(again)] == list(range(5))
