"""Transaction indexes that are damaged: the scrub compares them with the markers, and writes them anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.storage.support import NOW_MS, TP, StandingClock, batch, fill, marker, open_log, open_manager
from tests.unit.storage.test_scrub import run, scrub_of

from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_manager import LogManager
from tidelog.storage.producer_state import AppendOrigin
from tidelog.storage.transaction_index import ENTRY_SIZE
from tidelog.storage.transaction_scan import find_unreadable_index, mend_transaction_index, scan_of

CONFIG = LogConfig(index_interval_bytes=200)


def append(log: Log, data: bytearray, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
    log.append(data, leader_epoch=0, now_ms=NOW_MS, origin=origin)


class Transactions:
    """Producers that write to one log, each its own transactions."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._sequences: dict[int, int] = {}

    def write(self, producer_id: int) -> None:
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + 1
        fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        append(self.log, batch(b"." * 60, transactional=True, **fields))

    def end(self, producer_id: int, *, commit: bool) -> None:
        append(self.log, marker(producer_id, commit=commit), AppendOrigin.COORDINATOR)


def filled(path: Path, clock: StandingClock) -> tuple[LogManager, Log]:
    """Two closed segments and an active one: one transaction spans the first two, others are interleaved."""
    manager, log = open_log(path, clock=clock, config=CONFIG)
    transactions = Transactions(log)
    for producer_id in (1, 2, 3):
        transactions.write(producer_id)
    fill(log, 3)
    transactions.end(2, commit=False)
    transactions.end(3, commit=True)
    transactions.end(3, commit=False)  # Of a transaction that has nothing here.
    log.roll(NOW_MS)
    transactions.write(2)
    transactions.write(1)
    transactions.end(1, commit=False)
    transactions.end(2, commit=False)
    log.roll(NOW_MS)
    transactions.write(4)
    transactions.end(4, commit=False)
    transactions.write(1)
    log.update_high_watermark(log.log_end_offset)
    return manager, log


def index_of(log: Log, number: int) -> Path:
    return Path(log.segments[number].transaction_index.path)


def remove(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(position: int, bit: int = 0) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[position] ^= 1 << bit
        path.write_bytes(content)

    return damage


def double(path: Path) -> None:
    """An entry of a transaction that never was, in front."""
    content = path.read_bytes()
    path.write_bytes(content[:2] + (9).to_bytes(8, "big") + bytes(8) + (3).to_bytes(8, "big") + bytes(8) + content)


DAMAGES = [
    remove,
    empty,
    flip(9),  # The producer id.
    flip(17),  # The first offset.
    flip(25, 2),  # The last offset.
    flip(33),  # The last stable offset.
    double,
]


def test_what_is_right_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Over all segments, one into which a transaction reaches, and the active one."""
    clock = StandingClock()
    manager, log = filled(tmp_path, clock)
    told = log.aborted_transactions(0, log.log_end_offset)
    assert [each[:3] for each in told] == [(2, 1, 6), (1, 0, 11), (2, 9, 12), (4, 13, 14)]
    run(scrub_of(manager, clock))
    assert "transaction_index" not in caplog.text
    assert log.aborted_transactions(0, log.log_end_offset) == told


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("damage", DAMAGES)
def test_the_scrub_mends_a_damaged_index(
    tmp_path: Path, number: int, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """After a clean stop, where no segment is scanned: the readers are told all aborted transactions again."""
    clock = StandingClock()
    manager, log = filled(tmp_path, clock)
    told = log.aborted_transactions(0, log.log_end_offset)
    content = index_of(log, number).read_bytes()
    assert len(content) % ENTRY_SIZE == 0
    path = index_of(log, number)
    manager.close()
    manager = open_manager(tmp_path, clock=clock, config=CONFIG)
    damage(path)
    found = manager.get(TP)
    assert found is not None
    assert found.aborted_transactions(0, found.log_end_offset) != told
    scrub = scrub_of(manager, clock)
    run(scrub)
    assert f"transaction_index_rebuilt: path={path}" in caplog.text
    assert found.aborted_transactions(0, found.log_end_offset) == told
    assert path.read_bytes() == content


@pytest.mark.parametrize("damage", [flip(9), flip(0)])
def test_what_is_appended_during_the_scan_stays(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    """The scan of the active segment ends below a marker that comes before it is over. So it does where an entry cannot
    be one, and no reader can read the file before it is mended."""
    clock = StandingClock()
    manager, log = filled(tmp_path, clock)
    told = log.aborted_transactions(0, log.log_end_offset)
    damage(index_of(log, 2))
    scrub = scrub_of(manager, clock)
    run(scrub, 2)
    task = scrub.next_task(1000)
    assert task is not None
    task.run()
    append(log, marker(1, commit=False), AppendOrigin.COORDINATOR)
    task.finish(None)
    assert log.aborted_transactions(0, log.log_end_offset) == [*told, (1, 15, 16, 17)]


def test_a_beginning_that_retention_took_is_known_from_the_snapshot(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The segment is gone; without its snapshot, too, nothing is compared."""
    clock = StandingClock()
    manager, log = filled(tmp_path, clock)
    log.advance_start(9)
    manager.maintenance.run_due(0)  # What closed segments have left to sync.
    log.delete_old_segments(NOW_MS)
    told = log.aborted_transactions(0, log.log_end_offset)
    index = index_of(log, 0)
    index.unlink()
    run(scrub_of(manager, clock))
    assert log.aborted_transactions(0, log.log_end_offset) == told
    index.unlink()
    caplog.clear()
    for snapshot in Path(log.directory).glob("*.snapshot"):
        snapshot.unlink()
    clock.now_ms += 2_000_000
    run(scrub_of(manager, clock))
    assert "transaction_index" not in caplog.text


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("damage", [flip(0), lambda path: path.write_bytes(path.read_bytes() + b"torn")])
def test_what_an_unreadable_index_should_hold(tmp_path: Path, number: int, damage: Callable[[Path], None]) -> None:
    """The batches tell; without those before them, or a snapshot, nothing is known. One that can be read is left."""
    manager, log = filled(tmp_path, StandingClock())
    segment, path = log.segments[number], index_of(log, number)
    content = path.read_bytes()
    assert find_unreadable_index(segment, scan_of(log, segment)) is None
    damage(path)
    found = find_unreadable_index(segment, scan_of(log, segment))
    assert found is not None
    assert found.flaws is not None
    mend_transaction_index(log, segment, found.flaws)
    assert path.read_bytes() == content
    if number == 1:
        log.advance_start(9)
        manager.maintenance.run_due(0)  # As above.
        log.delete_old_segments(NOW_MS)
        for snapshot in Path(log.directory).glob("*.snapshot"):
            snapshot.unlink()
        damage(path)
        found = find_unreadable_index(segment, scan_of(log, segment))
        assert found is not None
        assert found.flaws is None
    manager.close()


def test_a_cut_during_the_scan_ends_the_comparison(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What was read before it may be gone: the next pass compares."""
    clock = StandingClock()
    manager, log = open_log(tmp_path, clock=clock, config=CONFIG)
    transactions = Transactions(log)
    transactions.write(1)
    transactions.end(1, commit=False)
    fill(log, 2)
    empty(index_of(log, 0))
    task = scrub_of(manager, clock).next_task(1000)
    assert task is not None
    task.run()
    log.truncate_to(1)
    task.finish(None)
    assert "transaction_index" not in caplog.text
    assert log.aborted_transactions(0, log.log_end_offset) == []
