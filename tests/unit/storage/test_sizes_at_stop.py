"""Segments that lose bytes while the broker is stopped: a log that stopped cleanly knows what it had."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.unit.storage.support import TP, batch, fill, open_log, open_manager, read_all

from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_manager import LogManager

SIZE = len(batch(b"." * 100))
CONFIG = LogConfig(segment_bytes=5 * SIZE, index_interval_bytes=SIZE, segment_index_bytes=1200)
BATCHES = 23
EPOCH = 7


def stopped(path: Path) -> Path:
    """The folder of a log of five segments, from 0, 5, 10, 15 and 20, after a clean stop."""
    manager, log = open_log(path, config=CONFIG)
    fill(log, BATCHES)
    log.update_high_watermark(BATCHES)
    manager.close(EPOCH)
    return Path(log.directory)


def reopened(path: Path) -> tuple[LogManager, Log]:
    manager = open_manager(path, config=CONFIG)
    log = manager.get(TP)
    assert log is not None
    return manager, log


def segment(folder: Path, base_offset: int) -> Path:
    return folder / f"{base_offset:020d}.log"


def truncate(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


def test_a_clean_stop_is_no_loss(tmp_path: Path) -> None:
    stopped(tmp_path)
    _, log = reopened(tmp_path)
    assert log.damage is None
    assert len(read_all(log)) == BATCHES


@pytest.mark.parametrize("base_offset", [0, 5, 15])
@pytest.mark.parametrize(
    ("size", "left"),
    [(None, 0), (0, 0), (2 * SIZE, 2), (2 * SIZE + 40, 2)],
    ids=["gone", "empty", "cut at a batch", "cut inside a batch"],
)
def test_a_closed_segment_that_lost_bytes_is_a_hole(
    tmp_path: Path, base_offset: int, size: int | None, left: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The replica says so until it is whole again, also to the next start; the segments behind the hole stay."""
    folder = stopped(tmp_path)
    if size is None:
        segment(folder, base_offset).unlink()
    else:
        truncate(segment(folder, base_offset), size)
    with caplog.at_level(logging.ERROR):
        manager, log = reopened(tmp_path)
    assert f"segment_lost: log={TP} base_offset={base_offset}" in caplog.text
    assert log.log_end_offset == BATCHES
    assert log.damage is not None
    assert log.damage.has_hole
    assert (log.damage.log_end, log.damage.lost_end) == (BATCHES, BATCHES)
    lost = range(base_offset + left, base_offset + 5)
    assert [each.offset for each in read_all(log)] == [offset for offset in range(BATCHES) if offset not in lost]
    manager.close(EPOCH + 1)
    manager, log = reopened(tmp_path)
    assert log.damage is not None
    assert log.damage.has_hole
    log.is_whole()
    manager.close(EPOCH + 2)
    _, log = reopened(tmp_path)
    assert log.damage is None


def test_what_retention_took_is_no_hole(tmp_path: Path) -> None:
    """Segments that were there at the stop and lie below the log's start."""
    folder = stopped(tmp_path)
    (tmp_path / "log-start-offset-checkpoint").write_text(f"0\n1\n{TP.topic} {TP.partition} 10\n")
    segment(folder, 0).unlink()
    segment(folder, 5).unlink()
    _, log = reopened(tmp_path)
    assert log.damage is None


def test_the_sizes_of_another_stop_tell_nothing(tmp_path: Path) -> None:
    """Another version, which does not write them, was the last to stop: what it has deleted is no loss."""
    folder = stopped(tmp_path)
    (tmp_path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":8}')
    segment(folder, 0).unlink()
    _, log = reopened(tmp_path)
    assert log.damage is None


@pytest.mark.parametrize("content", [b"", b"\xff", b"1 7\n", b"0 7\nt 0 1\n", b"0 7\nt x 1 2\n", b"0 seven\n"])
def test_sizes_that_cannot_be_read_are_ignored(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    folder = stopped(tmp_path)
    (tmp_path / "segment-sizes").write_bytes(content)
    segment(folder, 0).unlink()
    _, log = reopened(tmp_path)
    assert log.damage is None
    assert "segment_sizes_ignored" in caplog.text
