"""Logs that have lost records: how recovery knows, what it keeps aside, and what is no loss."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.storage.support import NOW_MS, TP, FaultyDisk, batch, fill, names, open_log, open_manager, read_all

from tidelog.storage.damage import DAMAGE_FILE, KEPT_FILES_MAX
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_manager import LogManager
from tidelog.storage.tasks import DiskTask, run_now

SIZE = len(batch(b"." * 100))
CONFIG = LogConfig(segment_bytes=5 * SIZE, index_interval_bytes=SIZE, segment_index_bytes=1200)
ONE_SEGMENT = LogConfig()


def crashed(path: Path, batches: int, *, high_watermark: int = 0, config: LogConfig = ONE_SEGMENT) -> Path:
    """The folder of a log with so many batches of leader epoch 3, whose broker was killed."""
    manager, log = open_log(path, config=config)
    fill(log, batches, leader_epoch=3)
    log.update_high_watermark(high_watermark)
    for task in manager.maintenance.checkpoint_tasks(recovery=False):
        run_now(task)
    manager.abandon()
    return Path(log.directory)


def reopened(path: Path, **options: object) -> tuple[LogManager, Log]:
    options.setdefault("config", ONE_SEGMENT)
    manager = open_manager(path, **options)  # type: ignore[arg-type]
    log = manager.get(TP)
    assert log is not None
    return manager, log


def flip(path: Path, position: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << bit
    path.write_bytes(content)


def segment(folder: Path, base_offset: int = 0) -> Path:
    return folder / f"{base_offset:020d}.log"


def not_none(task: DiskTask | None) -> DiskTask:
    assert task is not None
    return task


def known(log: Log) -> tuple[int, int, int] | None:
    return None if log.damage is None else (log.damage.log_end, log.damage.leader_epoch, log.damage.lost_end)


@pytest.mark.parametrize(
    ("position", "bit"),
    [
        (70, 0),  # A record: the checksum fails.
        (16, 0),  # The magic.
        (8, 6),  # The length, far beyond the file.
        (11, 3),  # The length, a little longer.
        (11, 7),  # The length, shorter.
        (15, 1),  # The leader epoch, which no checksum covers: lower than before.
        (12, 0),  # The leader epoch: higher than any that was given.
        (15, 2),  # The leader epoch: higher by a little, as after an election.
        (15, 7),
        (7, 2),  # The base offset: lower than before.
        (4, 0),  # The base offset: higher, with the batches behind it going back.
        (1, 0),  # The base offset: out of the segment.
    ],
)
def test_a_flipped_bit_with_valid_batches_behind_it_is_a_loss(tmp_path: Path, position: int, bit: int) -> None:
    """Whatever field it hits: the log ends before it, and knows where what it has lost ended."""
    folder = crashed(tmp_path, 20)
    before = segment(folder).read_bytes()
    flip(segment(folder), 7 * SIZE + position, bit)
    rotten = segment(folder).read_bytes()
    manager, log = reopened(tmp_path)
    assert log.log_end_offset == 7
    assert known(log) == (7, 3, 20)
    assert segment(folder).read_bytes() == before[: 7 * SIZE]
    assert (folder / f"{7:020d}.log.cut").read_bytes() == rotten[7 * SIZE :]
    manager.close()
    _, again = reopened(tmp_path)
    assert known(again) == (7, 3, 20), "a clean stop forgets nothing"


def test_a_leader_epoch_that_began_later_is_a_loss(tmp_path: Path) -> None:
    """The flipped epoch is one that the log knows, but not there."""
    manager, log = open_log(tmp_path, config=ONE_SEGMENT)
    fill(log, 10, leader_epoch=1)
    fill(log, 10, leader_epoch=3)
    task = log.flush_task()
    assert task is not None
    run_now(task)
    manager.abandon()
    flip(segment(Path(log.directory)), 7 * SIZE + 15, 1)
    _, log = reopened(tmp_path)
    assert known(log) == (7, 1, 20)
    assert [entry.epoch for entry in log.epochs.entries] == [1]


@pytest.mark.parametrize(("position", "bit"), [(12, 0), (15, 2), (15, 7), (4, 0), (7, 2), (7, 5)])
@pytest.mark.parametrize("following", [9, 1])
def test_the_last_batch_of_a_segment_is_compared_with_the_next_one(
    tmp_path: Path, position: int, bit: int, following: int
) -> None:
    """Its leader epoch is higher, or its base offset is another: the batch behind it stands in the next file."""
    folder = crashed(tmp_path, 5 + following, config=CONFIG)
    flip(segment(folder), 4 * SIZE + position, bit)
    _, log = reopened(tmp_path, config=CONFIG)
    assert known(log) == (4, 3, 10 if following > 5 else 6), "at least up to there"
    assert [entry.epoch for entry in log.epochs.entries] == [3]
    assert (folder / f"{5:020d}.log.cut").stat().st_size == min(following, 5) * SIZE


def test_the_last_batch_of_a_segment_may_begin_an_epoch(tmp_path: Path) -> None:
    """The next segment goes on with it; one of an older epoch, which a truncation had removed, says nothing."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 4, leader_epoch=3)
    fill(log, 6, leader_epoch=70)
    manager.abandon()
    _, log = reopened(tmp_path, config=CONFIG)
    assert (log.log_end_offset, log.damage) == (10, None)


def test_the_cut_is_told_with_its_place_offset_and_bytes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A WARNING for what is kept aside and one for the loss; the cut itself is told as any other."""
    folder = crashed(tmp_path, 20, high_watermark=18)
    flip(segment(folder), 7 * SIZE + 70)
    with caplog.at_level(logging.INFO):
        reopened(tmp_path)
    path = folder / f"{7:020d}.log.cut"
    assert f"cut_kept_aside: log={TP} offset=7 bytes={13 * SIZE} kept={13 * SIZE} path={path}" in caplog.text
    assert f"torn_tail_cut: log={TP} base_offset=0 bytes={13 * SIZE}" in caplog.text
    assert f"log_lost_records: log={TP} log_end=7 lost_end=20 high_watermark=18" in caplog.text


@pytest.mark.parametrize("torn", [1, SIZE // 2, SIZE, SIZE + 1])
def test_a_torn_tail_is_no_loss(tmp_path: Path, torn: int) -> None:
    """Nothing valid follows it: it was not acknowledged by this log's flush, and nobody says that it was committed."""
    folder = crashed(tmp_path, 9, high_watermark=7)
    os.truncate(segment(folder), 9 * SIZE - torn)
    _, log = reopened(tmp_path)
    assert log.log_end_offset < 9
    assert log.damage is None
    assert [path.name for path in folder.iterdir() if ".cut" in path.name or path.name == DAMAGE_FILE] == []


def test_the_last_batch_is_missed_by_the_high_watermark_alone(tmp_path: Path) -> None:
    """Nothing follows it; committed it was."""
    folder = crashed(tmp_path, 9, high_watermark=9)
    flip(segment(folder), 8 * SIZE + 70)
    _, log = reopened(tmp_path)
    assert known(log) == (8, 3, 9)


def test_batches_that_a_power_cut_brought_back_are_no_loss(tmp_path: Path) -> None:
    """Behind a truncation, of older epochs than what was appended and flushed after it: they were cut on purpose."""
    manager, log = open_log(tmp_path, config=ONE_SEGMENT)
    fill(log, 9, leader_epoch=3)
    removed = segment(Path(log.directory)).read_bytes()[6 * SIZE :]
    log.truncate_to(5)
    for task in manager.maintenance.truncation_tasks():
        run_now(task)
    fill(log, 1, leader_epoch=7)
    task = log.flush_task()
    assert task is not None
    run_now(task)
    manager.abandon()
    with segment(Path(log.directory)).open("ab") as file:
        file.write(removed)
    _, log = reopened(tmp_path)
    assert log.log_end_offset == 6
    assert log.damage is None


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [Path.unlink, empty, lambda path: os.truncate(path, 2 * SIZE)])
def test_a_segment_that_is_missing_or_short_is_a_loss(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    """In the middle: the files behind it are kept aside; and at the end, by the high watermark."""
    folder = crashed(tmp_path, 14, high_watermark=14, config=CONFIG)
    harm(segment(folder, 5))
    manager, log = reopened(tmp_path, config=CONFIG)
    end = log.log_end_offset
    assert end in (5, 7)
    assert known(log) == (end, 3, 14)
    assert log.damage is not None
    assert not log.damage.has_hole, "the missing tail alone is to be fetched"
    assert (folder / f"{10:020d}.log.cut").stat().st_size == 4 * SIZE
    assert [record.offset for record in read_all(log)] == list(range(end))
    manager.close()


@pytest.mark.parametrize("harm", [Path.unlink, empty])
def test_a_durable_segment_that_is_gone_after_a_kill_is_a_hole(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    """Its index tells of it. Readers would be taken past what it held."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 14, leader_epoch=3)
    task = log.flush_task()
    assert task is not None
    run_now(task)
    for checkpoint in manager.maintenance.checkpoint_tasks():
        run_now(checkpoint)
    manager.abandon()
    harm(segment(Path(log.directory), 5))
    manager, log = reopened(tmp_path, config=CONFIG)
    assert log.damage is not None
    assert log.damage.has_hole
    assert log.log_end_offset == 14


@pytest.mark.parametrize("batches", [14, 5])
@pytest.mark.parametrize("harm", [Path.unlink, empty])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_first_segment_that_is_gone_after_a_kill_is_a_loss(
    tmp_path: Path, batches: int, harm: Callable[[Path], None], suffix: str
) -> None:
    """Either of its indexes tells of it, whatever was flushed: the log began before what is left of it."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, batches, leader_epoch=3)
    log.roll(NOW_MS)
    manager.abandon()
    harm(segment(Path(log.directory), 0))
    (Path(log.directory) / f"{0:020d}{suffix}").unlink()
    manager, log = reopened(tmp_path, config=CONFIG)
    assert log.damage is not None
    assert log.damage.has_hole
    assert log.damage.lost_end == batches
    manager.close()
    _, log = reopened(tmp_path, config=CONFIG)
    assert log.damage is not None, "until another replica has filled it"


@pytest.mark.parametrize("base_offset", [0, 5])
def test_an_index_that_tells_of_a_loss_stays_until_that_is_noted(tmp_path: Path, base_offset: int) -> None:
    """A start that ends before it has noted the loss takes nothing away by which the next one knows of it."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 14, leader_epoch=3)
    run_now(not_none(log.flush_task()))
    for checkpoint in manager.maintenance.checkpoint_tasks():
        run_now(checkpoint)
    manager.abandon()
    segment(Path(log.directory), base_offset).unlink()
    disk = FaultyDisk()
    disk.fail("open", DAMAGE_FILE)
    other = tmp_path.parent / f"{tmp_path.name}-other"
    manager = open_manager(tmp_path, other, disk=disk, config=CONFIG)
    assert manager.offline_directories == [str(tmp_path)]
    manager.abandon()
    _, log = reopened(tmp_path, config=CONFIG)
    assert log.damage is not None
    assert log.damage.has_hole
    assert names(Path(log.directory), [f"{base_offset:020d}.index", f"{base_offset:020d}.timeindex"]) == []


@pytest.mark.parametrize("removed", [[".log.deleted"], [".log.deleted", ".index", ".timeindex"]])
def test_an_index_that_retention_has_left_is_no_hole(tmp_path: Path, removed: list[str]) -> None:
    """A kill came between the names of one segment; the checkpoint does not have the new start yet. Nor does it matter
    where a kill of the start behind it comes: the .log file goes last."""
    folder = crashed(tmp_path, 14, config=CONFIG)
    segment(folder, 0).rename(folder / f"{0:020d}.log.deleted")
    disk = FaultyDisk()
    disk.fail("unlink", f"{0:020d}.log.deleted")
    open_manager(tmp_path, tmp_path.parent / f"{tmp_path.name}-other", disk=disk, config=CONFIG).abandon()
    assert names(folder, [".deleted"]) == [f"{0:020d}.log.deleted"]
    for suffix in removed:
        (folder / f"{0:020d}{suffix}").unlink(missing_ok=True)
    _, log = reopened(tmp_path, config=CONFIG)
    assert log.damage is None
    assert log.log_start_offset == 5


def test_a_segment_that_was_about_to_be_made_is_no_hole(tmp_path: Path) -> None:
    """Its indexes come first, with zeros for their entries: the log was to begin anew, before what it has."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 14)
    log.update_high_watermark(14)
    log.advance_start(5)
    log.delete_old_segments(NOW_MS)
    manager.abandon()
    for suffix in (".index", ".timeindex"):
        (Path(log.directory) / f"{2:020d}{suffix}").write_bytes(bytes(1200))
    _, log = reopened(tmp_path, config=CONFIG)
    assert (log.damage, log.log_start_offset) == (None, 5)


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_whose_files_are_gone_is_a_loss(tmp_path: Path, clean: bool) -> None:
    """Even where the stop was clean: the high watermark says what there was."""
    manager, log = open_log(tmp_path, config=ONE_SEGMENT)
    fill(log, 5)
    log.update_high_watermark(5)
    if clean:
        manager.close()
    else:
        for task in manager.maintenance.checkpoint_tasks():
            run_now(task)
        manager.abandon()
    segment(Path(log.directory)).unlink()
    _, log = reopened(tmp_path)
    assert known(log) == (0, -1, 5)


def test_a_log_that_has_fetched_again_is_whole_at_the_next_start(tmp_path: Path) -> None:
    """Its log goes as far as what was lost; also where its broker did not live to hear that it is in sync."""
    folder = crashed(tmp_path, 9, high_watermark=9)
    flip(segment(folder), 4 * SIZE + 70)
    manager, log = reopened(tmp_path)
    assert known(log) == (4, 3, 9)
    fill(log, 3, leader_epoch=4)
    manager.abandon()
    manager, log = reopened(tmp_path)
    assert known(log) == (7, 4, 9), "not yet"
    fill(log, 2, leader_epoch=4)
    manager.abandon()
    _, log = reopened(tmp_path)
    assert log.damage is None
    assert not (folder / DAMAGE_FILE).exists()


def test_what_is_whole_is_forgotten(tmp_path: Path) -> None:
    """The file goes with it; what was kept aside stays."""
    folder = crashed(tmp_path, 9, high_watermark=9)
    flip(segment(folder), 4 * SIZE + 70)
    manager, log = reopened(tmp_path)
    log.is_whole()
    manager.close()
    assert not (folder / DAMAGE_FILE).exists()
    _, log = reopened(tmp_path)
    assert log.damage is None
    assert (folder / f"{4:020d}.log.cut").exists()


def test_a_damage_file_that_cannot_be_read_is_ignored(tmp_path: Path) -> None:
    """It is told; the high watermark still speaks."""
    folder = crashed(tmp_path, 9, high_watermark=9)
    (folder / DAMAGE_FILE).write_bytes(b"\0" * 10)
    _, log = reopened(tmp_path)
    assert log.damage is None


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EMFILE])
def test_a_copy_that_fails_keeps_no_broker_from_starting(tmp_path: Path, code: int) -> None:
    """The cut must happen; that the replica is damaged is known all the same."""
    folder = crashed(tmp_path, 9, high_watermark=9)
    flip(segment(folder), 4 * SIZE + 70)
    disk = FaultyDisk()
    disk.fail("pwrite", ".cut", code)
    _, log = reopened(tmp_path, disk=disk)
    assert known(log) == (4, 3, 9)


def test_a_disk_that_cannot_note_the_loss_is_offline(tmp_path: Path) -> None:
    """Cut without that, the next start would know of nothing: nothing was cut."""
    folder = crashed(tmp_path, 9)
    flip(segment(folder), 4 * SIZE + 70)
    rotten = segment(folder).read_bytes()
    disk = FaultyDisk()
    disk.fail("fsync", DAMAGE_FILE)
    other = tmp_path.parent / f"{tmp_path.name}-other"
    manager = open_manager(tmp_path, other, disk=disk, config=ONE_SEGMENT)
    assert manager.offline_directories == [str(tmp_path)]
    manager.abandon()
    assert segment(folder).read_bytes() == rotten
    _, log = reopened(tmp_path)
    assert known(log) == (4, 3, 9)


def test_cut_bytes_are_kept_up_to_a_number_of_files(tmp_path: Path) -> None:
    """Of several cuts at one offset each has its own; those of the lowest offsets go."""
    for _ in range(KEPT_FILES_MAX + 2):
        folder = crashed(tmp_path, 4)
        flip(segment(folder), SIZE + 70)
        reopened(tmp_path)[0].abandon()
    kept = [path.name for path in folder.iterdir() if ".cut" in path.name]
    assert len(kept) == KEPT_FILES_MAX
    assert open_manager(tmp_path).get(TP) is not None


def test_a_log_that_is_cut_below_the_high_watermark_on_purpose_has_lost_nothing(tmp_path: Path) -> None:
    """After an unclean election elsewhere: the checkpoint goes down before the log does."""
    manager, log = open_log(tmp_path, config=ONE_SEGMENT)
    fill(log, 9)
    log.update_high_watermark(9)
    for task in manager.maintenance.checkpoint_tasks():
        run_now(task)
    log.announce_truncation(4)
    assert log.high_watermark == 9, "readers see no high watermark that goes back before the log does"
    for task in manager.maintenance.truncation_tasks():
        run_now(task)
    log.truncate_to(4)
    manager.abandon()
    _, log = reopened(tmp_path)
    assert log.log_end_offset == 4
    assert log.damage is None


def test_a_topic_that_was_made_again_is_not_measured_by_the_old_one(tmp_path: Path) -> None:
    """The deleted log's high watermark leaves the checkpoint before the new log is made."""
    manager, log = open_log(tmp_path, config=ONE_SEGMENT)
    fill(log, 9)
    log.update_high_watermark(9)
    for task in manager.maintenance.checkpoint_tasks():
        run_now(task)
    manager.delete(TP)
    manager.create(TP, None)
    manager.abandon()
    _, log = reopened(tmp_path)
    assert (log.log_end_offset, log.damage) == (0, None)
