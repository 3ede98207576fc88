"""The offset and the time index of a new log are made before its first batch is appended, and not before."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.storage.support import NOW_MS, FaultyDisk, batch, fill, open_log, read_all

from tidelog.model.errors import KafkaError
from tidelog.records.batch import patch
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_manager import LogManager
from tidelog.storage.segment import Segment
from tidelog.storage.segment_lookups import FoundBatch

CONFIG = LogConfig(index_interval_bytes=200, segment_index_bytes=960)


def files(path: Path, base: int = 0) -> list[str]:
    """The suffixes of the files of a segment."""
    return sorted(file.suffix for file in (path / "topicone-0").glob(f"{base:020d}.*") if file.suffix != ".snapshot")


def sizes(path: Path, base: int = 0) -> tuple[int, int]:
    """Bytes of the offset and the time index."""
    folder = path / "topicone-0"
    return tuple((folder / f"{base:020d}{suffix}").stat().st_size for suffix in (".index", ".timeindex"))  # type: ignore[return-value]


def test_an_empty_log_has_no_indexes(tmp_path: Path) -> None:
    """They come with the first batch, as long as they may become, and the first entry is not behind zeros."""
    manager, log = open_log(tmp_path, config=CONFIG)
    assert files(tmp_path) == [".log"]
    log.append(batch(b"x"), leader_epoch=0, now_ms=NOW_MS)
    assert files(tmp_path) == [".index", ".log", ".timeindex"]
    assert sizes(tmp_path) == (960, 960)
    fill(log, 9)
    log.roll(NOW_MS)
    assert log.segments[0].offset_index.entries()
    assert sizes(tmp_path)[0] == 8 * len(log.segments[0].offset_index.entries())
    manager.close()


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_misses_no_indexes_of_an_empty_segment(
    tmp_path: Path, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither after a clean stop nor after a crash are they made, and the log is appended to as any other."""
    manager, log = open_log(tmp_path, config=CONFIG)
    if clean:
        manager.close(7)
    else:
        manager.abandon()
    with caplog.at_level(logging.INFO):
        manager, log = open_log(tmp_path, config=CONFIG)
    assert not [record for record in caplog.records if record.levelno > logging.INFO]
    assert files(tmp_path) == [".log"]
    assert (log.log_end_offset, log.damage) == (0, None)
    fill(log, 8)
    assert files(tmp_path) == [".index", ".log", ".timeindex"]
    assert len(read_all(log)) == 8
    manager.close(8)
    manager, log = open_log(tmp_path, config=CONFIG)
    assert len(read_all(log)) == 8
    manager.close(9)


def test_empty_indexes_that_are_there_are_used(tmp_path: Path) -> None:
    """Former versions, and Kafka, make them with the segment."""
    manager, _ = open_log(tmp_path, config=CONFIG)
    manager.close(7)
    for suffix in (".index", ".timeindex"):
        (tmp_path / "topicone-0" / f"{0:020d}{suffix}").write_bytes(b"")
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 8)
    log.roll(NOW_MS)
    assert sizes(tmp_path)[0] > 0
    assert len(read_all(log)) == 8
    manager.close(8)


@pytest.mark.parametrize("missing", [".index", ".timeindex"])
@pytest.mark.parametrize("clean", [True, False])
def test_indexes_of_batches_are_written_anew(tmp_path: Path, missing: str, clean: bool) -> None:
    """A segment with batches that lacks one is recovered, as ever."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 8)
    log.roll(NOW_MS)
    entries = log.segments[0].offset_index.entries()
    manager.close(7)
    if not clean:
        (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / "topicone-0" / f"{0:020d}{missing}").unlink()
    _, log = open_log(tmp_path, config=CONFIG)
    assert files(tmp_path) == [".index", ".log", ".timeindex"]
    assert log.segments[0].offset_index.entries() == entries
    assert len(read_all(log)) == 8


def test_a_log_that_is_emptied_before_its_first_entry(tmp_path: Path) -> None:
    """What was appended and cut leaves nothing that a later entry would stand behind."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 1)
    log.truncate_to(0)
    fill(log, 8)
    log.roll(NOW_MS)
    assert sizes(tmp_path)[0] == 8 * len(log.segments[0].offset_index.entries()) > 0
    assert len(read_all(log)) == 8
    manager.close(7)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_disk_that_refuses_an_index(tmp_path: Path, suffix: str) -> None:
    """The append fails, and nothing of it is in the log; for a lack of descriptors the next one is as good."""
    disk = FaultyDisk()
    _, log = open_log(tmp_path, config=CONFIG, disk=disk)
    disk.fail("open", suffix, code=24)
    with pytest.raises(KafkaError):
        log.append(batch(b"x"), leader_epoch=0, now_ms=NOW_MS)
    assert log.log_end_offset == 0
    disk.fault = lambda _operation, _path: None
    fill(log, 8)
    assert len(read_all(log)) == 8
    assert files(tmp_path) == [".index", ".log", ".timeindex"]


def test_indexes_without_a_log_go_in_the_same_order_each_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Python's order of a set of names differs from process to process; a simulated run is the same in each."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 4)
    manager.close(7)
    suffixes = [".index", ".timeindex", ".txnindex"]
    for suffix in suffixes:
        (tmp_path / "topicone-0" / f"{90:020d}{suffix}").touch()
    with caplog.at_level(logging.WARNING):
        manager, log = open_log(tmp_path, config=CONFIG)
    removed = [record.args[0] for record in caplog.records if record.msg.startswith("orphaned_index_removed")]  # type: ignore[index]
    assert [Path(str(path)).suffix for path in removed] == suffixes
    assert files(tmp_path, 90) == []
    manager.close(8)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("step", ["append", "follow", "retain"])
def test_a_log_goes_on_though_an_index_was_damaged_since_it_was_loaded(tmp_path: Path, suffix: str, step: str) -> None:
    """Those of an idle partition are looked at again with its next batch: they are written anew, and it is taken."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 9)
    manager.close(7)
    manager, log = open_log(tmp_path, config=CONFIG)
    index = tmp_path / "topicone-0" / f"{0:020d}{suffix}"
    index.write_bytes(index.read_bytes() + bytes(5))
    if step == "append":
        fill(log, 1)
    elif step == "follow":
        sent = batch(b"sent")
        patch(sent, 0, base_offset=9, leader_epoch=0)
        log.append_as_follower(sent)
    else:
        log.update_high_watermark(9)
        assert log.delete_old_segments(NOW_MS + CONFIG.retention_ms + 10) == 1
        assert (log.log_start_offset, log.log_end_offset) == (9, 9)
        return
    assert [record.offset for record in read_all(log)] == list(range(10))
    manager.close(8)


def test_a_log_that_is_cut_while_its_indexes_are_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a reader's thread, which has seen batches that are gone. What is appended next is earlier than those were."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 12, timestamp=NOW_MS + 50_000)
    segment, headers = log.active, Segment.headers
    is_cut = False

    def headers_and_a_cut(this: Segment, position: int, **options: Any) -> Iterator[FoundBatch]:
        nonlocal is_cut
        yield from headers(this, position, **options)
        if this is segment and not position and not is_cut:
            is_cut = True
            log.truncate_to(3)
            fill(log, 3)

    monkeypatch.setattr(Segment, "headers", headers_and_a_cut)
    segment.index_anew()
    monkeypatch.undo()
    assert is_cut
    assert segment.max_timestamp_so_far() == (NOW_MS + 50_002, 2)
    assert not [entry for entry in segment.time_index.entries() if entry.offset >= 6]
    assert not [entry for entry in segment.offset_index.entries() if entry.offset >= 6]
    assert [record.offset for record in read_all(log)] == list(range(6))
    greatest = log.offset_for_timestamp(-3, up_to_offset=log.log_end_offset)
    assert greatest is not None
    assert greatest[1] == 2
    manager.close(7)


def test_a_log_that_is_appended_to_while_its_indexes_are_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a reader's thread, which has not seen the latest record: it is found by its time, and not too old to stay."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 6)
    segment, headers = log.active, Segment.headers
    late_ms = NOW_MS + 50_000

    def headers_and_an_append(this: Segment, position: int, **options: Any) -> Iterator[FoundBatch]:
        yield from headers(this, position, **options)
        if this is segment and not position and log.log_end_offset == 6:
            log.append(batch(b"late", timestamp=late_ms), leader_epoch=0, now_ms=NOW_MS)

    monkeypatch.setattr(Segment, "headers", headers_and_an_append)
    segment.index_anew()
    monkeypatch.undo()
    assert segment.max_timestamp_so_far() == (late_ms, 6)
    found = log.offset_for_timestamp(late_ms, up_to_offset=log.log_end_offset)
    assert found is not None
    assert found[1] == 6
    log.update_high_watermark(log.log_end_offset)
    log.set_config(LogConfig(index_interval_bytes=200, segment_index_bytes=960, retention_ms=1000))
    assert log.delete_old_segments(late_ms + 1000) == 0
    manager.close(7)


def damaged_time_index(path: Path, damage: Callable[[bytes], bytes]) -> tuple[LogManager, Log]:
    """A log whose first segment is closed, with a late record in its middle and ascending ones around it, started again
    after a clean stop and a damage to that segment's time index."""
    manager, log = open_log(path, config=CONFIG)
    for number in range(12):
        timestamp = NOW_MS + (50_000 if number == 7 else number * 1000)
        log.append(batch(b"." * 100, timestamp=timestamp), leader_epoch=0, now_ms=NOW_MS)
    log.roll(NOW_MS)
    fill(log, 1)
    log.update_high_watermark(log.log_end_offset)
    manager.close(7)
    file = path / "topicone-0" / f"{0:020d}.timeindex"
    file.write_bytes(damage(file.read_bytes()))
    return open_log(path, config=CONFIG)


def last_entry(timestamp: int, offset: int) -> Callable[[bytes], bytes]:
    return lambda content: content[:-12] + timestamp.to_bytes(8, "big") + offset.to_bytes(4, "big")


def flipped(position: int, bit: int) -> Callable[[bytes], bytes]:
    """A bit of the file; a negative position counts from its end."""

    def flip(content: bytes) -> bytes:
        changed = bytearray(content)
        changed[position] ^= 1 << bit
        return bytes(changed)

    return flip


@pytest.mark.parametrize(
    "damage",
    [
        last_entry(NOW_MS + 1, 11),  # Early, and behind the latest record.
        last_entry(NOW_MS + 1, 7),
        last_entry(NOW_MS + 90_000, 7),
        last_entry(NOW_MS + 50_000, 11),
        last_entry(NOW_MS + 50_000, 4000),
        flipped(-5, 4),
        flipped(-1, 0),
        lambda content: content[:-12],
        lambda content: content[:12],
    ],
)
def test_retention_goes_by_the_records_not_by_a_damaged_time_index(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    """What the newest entry says is compared with its batch: neither is a segment deleted early, nor kept for ever."""
    manager, log = damaged_time_index(tmp_path, damage)
    config = LogConfig(index_interval_bytes=200, segment_index_bytes=960, retention_ms=1000)
    log.set_config(config)
    assert log.delete_old_segments(NOW_MS + 51_000) == 0
    assert log.segments[0].max_timestamp_so_far() == (NOW_MS + 50_000, 7)
    assert log.delete_old_segments(NOW_MS + 51_001) > 0
    manager.close(8)


@pytest.mark.parametrize("entry", range(4))
@pytest.mark.parametrize("bit", [3, 17, 40, 64, 66, 71, 90])
def test_offsets_for_timestamps_are_right_over_a_damaged_time_index(tmp_path: Path, entry: int, bit: int) -> None:
    """Whichever bit of an entry is flipped: an entry is compared with the batch that it names before it is used."""
    manager, log = damaged_time_index(tmp_path, flipped(12 * entry + 11 - bit // 8, bit % 8))
    for number in range(12):
        expected = min(number, 7)
        found = log.offset_for_timestamp(NOW_MS + number * 1000, up_to_offset=log.log_end_offset)
        assert found is not None
        assert found[1] == expected
    greatest = log.offset_for_timestamp(-3, up_to_offset=log.log_end_offset)
    assert greatest is not None
    assert greatest[:2] == (NOW_MS + 50_000, 7)
    manager.close(8)
