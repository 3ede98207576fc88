"""A closed segment that ends before the next one begins, as one that was cut short after a kill: nobody is taken past
what is missing, and another replica's batches are put there."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.storage.support import NOW_MS, TP, StandingClock, batch, fill, open_log, open_manager, read_all
from tests.unit.storage.test_scrub import found, run, scrub_of

from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_manager import LogManager
from tidelog.storage.repair import find_damages, fit, write
from tidelog.storage.rot import RottenBatch
from tidelog.storage.tasks import run_now

SIZE = len(batch(b"." * 100))
CONFIG = LogConfig(segment_bytes=5 * SIZE, index_interval_bytes=SIZE, segment_index_bytes=1200)
END = 14
CUTS = [4 * SIZE, 2 * SIZE, 2 * SIZE + 40, 2 * SIZE + 80, SIZE, 10, 0]


def path_of(directory: Path, base_offset: int) -> Path:
    return directory / str(TP) / f"{base_offset:020d}.log"


def cut(
    directory: Path, size: int, base_offset: int = 5, config: LogConfig = CONFIG
) -> tuple[LogManager, Log, StandingClock]:
    """A log of three segments whose second one was cut after a kill, below the recovery point; started again."""
    manager, log = open_log(directory, config=config)
    fill(log, END)
    log.update_high_watermark(END)
    task = log.flush_task()
    assert task is not None
    run_now(task)
    for checkpoint in manager.maintenance.checkpoint_tasks():
        run_now(checkpoint)
    manager.abandon()
    path = path_of(directory, base_offset)
    path.write_bytes(path.read_bytes()[:size])
    # Of an empty file the indexes tell the start; here it is to be read.
    if not size:
        for suffix in (".index", ".timeindex"):
            path.with_suffix(suffix).write_bytes(b"")
    clock = StandingClock()
    manager = open_manager(directory, config=config, clock=clock)
    found_log = manager.get(TP)
    assert found_log is not None
    return manager, found_log, clock


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("base_offset", [0, 5])
def test_readers_are_not_taken_past_a_cut(tmp_path: Path, size: int, base_offset: int) -> None:
    """What is left is served, what is missing is refused and found, what follows is served."""
    manager, log, _ = cut(tmp_path, size, base_offset)
    left = base_offset + size // SIZE
    for offset in range(base_offset, END):
        if left <= offset < base_offset + 5:
            with pytest.raises(RottenBatch):
                log.read(offset, 1 << 20, up_to_offset=END)
        else:
            assert read_all(log, offset, up_to=left if offset < left else END)[0].offset == offset
    assert [rot.base_offset for rot in found(manager)] == [base_offset]


@pytest.mark.parametrize("size", CUTS)
def test_the_scrub_finds_a_cut(tmp_path: Path, size: int) -> None:
    """Without any reader."""
    manager, _, clock = cut(tmp_path, size)
    run(scrub_of(manager, clock))
    assert [rot.base_offset for rot in found(manager)] == [5]


def mended(log: Log, content: bytes, at_once: int) -> None:
    """Repairs the second segment with another replica's bytes, so many batches at a time."""
    segment = log.segments[1]
    for _ in range(10):
        check = log.segment_check(segment)
        assert check is not None
        damages = find_damages(segment, check)
        if not damages:
            return
        (damage,) = damages
        start = (damage.next_offset - 5) * SIZE
        patch = fit(segment, check, log, damage, content[start : start + at_once * SIZE])
        assert patch is not None
        assert write(segment, patch)
    raise AssertionError("not mended")


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("at_once", [1, 2, 9])
def test_what_is_missing_is_put_behind_what_is_left(tmp_path: Path, size: int, at_once: int) -> None:
    """Up to where the next segment begins, and no further; the indexes know it then."""
    _, log = open_log(tmp_path / "peer", config=LogConfig())
    fill(log, END)
    content = Path(log.active.log_file.path).read_bytes()
    _, log, _ = cut(tmp_path / "cut", size)
    mended(log, content[5 * SIZE :], at_once)
    assert path_of(tmp_path / "cut", 5).read_bytes() == content[5 * SIZE : 10 * SIZE]
    log.segments[1].index_anew()
    assert [record.offset for record in read_all(log)] == list(range(END))
    for offset in range(END):
        found = log.offset_for_timestamp(NOW_MS + offset, up_to_offset=END)
        assert found is not None
        assert found[1] == offset


def test_bytes_behind_the_next_segments_beginning_do_not_fit(tmp_path: Path) -> None:
    """Another replica may have nothing there either."""
    _, log = open_log(tmp_path / "peer", config=LogConfig())
    fill(log, END)
    content = Path(log.active.log_file.path).read_bytes()
    _, log, _ = cut(tmp_path / "cut", 2 * SIZE)
    segment = log.segments[1]
    check = log.segment_check(segment)
    assert check is not None
    (damage,) = find_damages(segment, check)
    assert damage[:3] == (2 * SIZE, 2 * SIZE, 7)
    assert fit(segment, check, log, damage, content[10 * SIZE :]) is None
    assert fit(segment, check, log, damage, content[8 * SIZE :]) is None, "nor does what leaves a gap before it"


def test_compaction_may_leave_gaps_at_the_ends(tmp_path: Path) -> None:
    """Readers go on in the next segment, and nothing is found."""
    manager, log, clock = cut(tmp_path, 2 * SIZE)
    log.set_config(LogConfig(segment_bytes=5 * SIZE, cleanup_policy=frozenset({"compact"})))
    assert [record.offset for record in read_all(log, 7)] == [10, 11, 12, 13]
    run(scrub_of(manager, clock))
    assert found(manager) == []


def test_a_hole_that_is_noted_is_passed_by(tmp_path: Path) -> None:
    """The replica is copied anew from another one, or is the only one; see tests/unit/storage/test_sizes_at_stop.py."""
    manager, _, clock = cut(tmp_path, 0)
    path_of(tmp_path, 0).write_bytes(b"")
    manager.abandon()
    manager = open_manager(tmp_path, config=CONFIG, clock=clock)
    again = manager.get(TP)
    assert again is not None
    assert again.damage is not None
    assert [record.offset for record in read_all(again)] == [10, 11, 12, 13]
