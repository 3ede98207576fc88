"""When a log begins a new segment: by bytes, by time, by a full index, by relative offset."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.storage.support import NOW_MS, batch, fill, names, open_log, read_all

from tidelog.records.batch import patch
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig

pytestmark = pytest.mark.row("R33")


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_a_segment_never_grows_past_its_size(tmp_path: Path) -> None:
    """It rolls before the append that would not fit, and one that fits exactly is taken."""
    size = len(batch(b"." * 100))
    _, log = open_log(tmp_path, config=LogConfig(segment_bytes=3 * size))
    fill(log, 7)
    assert bases(log) == [0, 3, 6]
    assert [segment.size for segment in log.segments] == [3 * size, 3 * size, size]
    assert names(tmp_path / "topicone-0") == [f"{base:020d}.log" for base in (0, 3, 6)]
    assert len(read_all(log)) == 7


def test_a_segment_rolls_by_the_time_of_its_records(tmp_path: Path) -> None:
    """segment.ms counts from the first batch's timestamp to the new one's, whatever the clock says."""
    _, log = open_log(tmp_path, config=LogConfig(segment_ms=1000))
    for timestamp in (0, 1000, 1001, 5000):
        log.append(batch(b"x", timestamp=NOW_MS + timestamp), leader_epoch=0, now_ms=NOW_MS)
    assert bases(log) == [0, 2, 3]


def test_without_timestamps_a_segment_rolls_by_the_clock(tmp_path: Path) -> None:
    """Time since the segment was created."""
    _, log = open_log(tmp_path, config=LogConfig(segment_ms=1000))
    log.append(batch(b"x", timestamp=-1), leader_epoch=0, now_ms=NOW_MS)
    log.append(batch(b"x", timestamp=-1), leader_epoch=0, now_ms=NOW_MS + 1000)
    assert bases(log) == [0]
    log.append(batch(b"x", timestamp=-1), leader_epoch=0, now_ms=NOW_MS + 1001)
    assert bases(log) == [0, 2]


def test_the_jitter_brings_a_roll_forward(tmp_path: Path) -> None:
    """The test's random source draws the greatest jitter allowed."""
    _, log = open_log(tmp_path, config=LogConfig(segment_ms=1000, segment_jitter_ms=401))
    log.append(batch(b"x"), leader_epoch=0, now_ms=NOW_MS)
    log.append(batch(b"x", timestamp=NOW_MS + 600), leader_epoch=0, now_ms=NOW_MS)
    log.append(batch(b"x", timestamp=NOW_MS + 601), leader_epoch=0, now_ms=NOW_MS)
    assert bases(log) == [0, 2]


@pytest.mark.parametrize(("index_bytes", "entries"), [(48, 3), (80, 5)])
def test_a_full_index_rolls_the_segment(tmp_path: Path, index_bytes: int, entries: int) -> None:
    """segment.index.bytes holds so many 12-byte time entries, of which one is kept for the roll itself."""
    _, log = open_log(tmp_path, config=LogConfig(segment_index_bytes=index_bytes, index_interval_bytes=1))
    fill(log, 20)
    first = log.segments[0]
    assert len(first.time_index.entries()) <= entries + 1
    assert len(first.offset_index.entries()) == entries == log.segments[1].base_offset - 1
    assert [record.offset for record in read_all(log)] == list(range(20))


def test_an_index_without_room_for_an_entry_stops_nothing(tmp_path: Path) -> None:
    """A setting that makes every index full from the start rolls at every append."""
    _, log = open_log(tmp_path, config=LogConfig(segment_index_bytes=4, index_interval_bytes=1))
    fill(log, 5)
    assert bases(log) == [0, 1, 2, 3, 4]
    assert len(read_all(log)) == 5


def test_offsets_that_do_not_fit_the_index_roll_the_segment(tmp_path: Path) -> None:
    """Relative offsets are 31 bits: a follower's log with a gap as compaction leaves it."""
    _, log = open_log(tmp_path, config=LogConfig(index_interval_bytes=1, cleanup_policy=frozenset({"compact"})))
    for offset in (0, 2**31 - 1, 2**31):
        sent = batch(b"x")
        patch(sent, 0, base_offset=offset, leader_epoch=0)
        log.append_as_follower(sent)
    assert bases(log) == [0, 2**31]
    assert [record.offset for record in read_all(log)] == [0, 2**31 - 1, 2**31]


def test_a_roll_snapshots_the_producers(tmp_path: Path) -> None:
    """One snapshot at each segment's base, so that recovery can begin there."""
    _, log = open_log(tmp_path, config=LogConfig(segment_bytes=200))
    fill(log, 3)
    assert names(tmp_path / "topicone-0", [".snapshot"]) == [f"{base:020d}.snapshot" for base in bases(log)[1:]]


def test_a_roll_asks_for_a_flush_of_what_is_closed(tmp_path: Path) -> None:
    """The recovery point follows to the new segment's base, index and snapshot durable before."""
    manager, log = open_log(tmp_path, config=LogConfig(segment_bytes=200))
    fill(log, 3)
    manager.maintenance.run_due(0)
    assert log.flushed_offset == log.active.base_offset == 2


def test_damage_to_the_first_batch_does_not_stop_appends(tmp_path: Path) -> None:
    """Its timestamp is unknown then, as after some restarts: the segment rolls by the clock."""
    _, log = open_log(tmp_path)
    fill(log, 3)
    with (tmp_path / "topicone-0" / names(tmp_path / "topicone-0")[0]).open("r+b") as file:
        file.seek(16)
        file.write(b"\x63")
    log.segments[-1].first_timestamp = None
    fill(log, 1)
    assert log.log_end_offset == 4
