"""Bytes that recovery and truncations take are counted, and a start tells how far it has come."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.unit.storage.support import TP, FaultyDisk, StandingClock, batch, fill, open_log, open_manager

from tidelog.storage.file_names import RECOVERY_POINT_CHECKPOINT
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_manager import LogManager, LogManagerSettings
from tidelog.storage.tasks import run_now

SIZE = len(batch(b"." * 100))
CONFIG = LogConfig(segment_bytes=5 * SIZE, index_interval_bytes=SIZE, segment_index_bytes=1200)


def test_truncated_bytes_are_those_that_went(tmp_path: Path) -> None:
    """Across segments, inside of one, and all of them; a truncation that cuts nothing counts nothing."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 12)
    assert not log.truncate_to(12)
    assert manager.counts.truncated_bytes == 0
    log.truncate_to(7)
    assert manager.counts.truncated_bytes == 5 * SIZE
    log.truncate_to(6)
    assert manager.counts.truncated_bytes == 6 * SIZE
    log.truncate_fully(100)
    assert manager.counts.truncated_bytes == 12 * SIZE


def test_recovery_counts_what_it_reads_and_what_it_cuts(tmp_path: Path) -> None:
    """A torn end, and the segments behind a damaged one; nothing after a clean stop."""
    manager, log = open_log(tmp_path, config=CONFIG)
    fill(log, 12)
    manager.abandon()
    last = tmp_path / f"{TP}" / f"{10:020d}.log"
    last.write_bytes(last.read_bytes()[:-3])
    again = open_manager(tmp_path, config=CONFIG)
    assert (again.counts.recovered_bytes, again.counts.recovery_cut_bytes) == (11 * SIZE, SIZE - 3)
    again.abandon()
    first = tmp_path / f"{TP}" / f"{0:020d}.log"
    content = bytearray(first.read_bytes())
    content[2 * SIZE + 70] ^= 1
    first.write_bytes(content)
    again = open_manager(tmp_path, config=CONFIG)
    assert (again.counts.recovered_bytes, again.counts.recovery_cut_bytes) == (2 * SIZE, 9 * SIZE)
    again.close()
    clean = open_manager(tmp_path, config=CONFIG)
    assert (clean.counts.recovered_bytes, clean.counts.recovery_cut_bytes) == (0, 0)


class Watched(FaultyDisk):
    """Notes the progress of a manager's start with each read of a segment."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = str(folder)
        self.manager: LogManager | None = None
        self.seen: list[tuple[int, int]] = []
        """Logs and bytes that were left."""

    def happens(self, operation: str, path: str) -> None:
        if self.manager is not None and operation == "pread" and path.endswith(".log"):
            progress = self.manager.progress
            self.seen.append((progress.logs_left[self._folder], progress.bytes_left(self._folder)))
        super().happens(operation, path)


def started(folder: Path, disk: FaultyDisk, *, measures: bool = True) -> LogManager:
    """A manager that opens the logs of a crash on `disk`."""
    manager = LogManager(
        disk=disk,
        clock=StandingClock(),
        log_dirs=[str(folder / "logs")],
        broker_id=0,
        cluster_id="cluster",
        default_config=CONFIG,
        settings=LogManagerSettings(),
    )
    manager.progress.measures_bytes = measures
    if isinstance(disk, Watched):
        disk.manager = manager
    manager.open()
    return manager


def test_a_start_tells_how_far_it_has_come(tmp_path: Path) -> None:
    """Logs and bytes go down while segments are read, to nothing; what was flushed is not read at all."""
    folder = tmp_path / "logs"
    manager, log = open_log(folder, config=CONFIG)
    other = manager.create(TP._replace(partition=1), None)
    fill(log, 12)
    fill(other, 3)
    run_now(log.flush_task())
    for task in manager.maintenance.checkpoint_tasks():
        run_now(task)
    assert f"{TP.topic} 0 11" in (folder / RECOVERY_POINT_CHECKPOINT).read_text()
    fill(log, 6)
    manager.abandon()
    disk = Watched(folder)
    again = started(tmp_path, disk)
    # Of the first log the segments from 10 on are not known to be durable: eight batches; the other one has three.
    assert max(disk.seen) == (2, 11 * SIZE)
    bytes_left: Sequence[int] = [size for _, size in disk.seen]
    assert list(bytes_left) == sorted(bytes_left, reverse=True)
    assert len(set(bytes_left)) >= 3
    assert (again.progress.logs_left, again.progress.bytes_left(str(folder))) == ({str(folder): 0}, 0)
    assert again.counts.recovered_bytes == 11 * SIZE
    again.abandon()
    unmeasured = started(tmp_path, FaultyDisk(), measures=False)
    assert unmeasured.progress.bytes_left(str(folder)) == 0


def test_a_directory_that_fails_has_nothing_left(tmp_path: Path) -> None:
    """It is offline: the start does not wait for it."""
    manager, log = open_log(tmp_path / "logs", config=CONFIG)
    fill(log, 3)
    manager.abandon()
    disk = FaultyDisk()
    disk.fail("pread", ".log")
    spare = tmp_path / "spare"
    again = open_manager(tmp_path / "logs", spare, config=CONFIG, disk=disk)
    assert again.offline_directories == [str(tmp_path / "logs")]
    assert again.progress.logs_left == {str(tmp_path / "logs"): 0, str(spare): 0}
