"""The sparse indexes: what they hold, how they find, how their files look."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.unit.storage.support import NOW_MS, TP, FaultyDisk, batch, fill, open_log, open_manager, read_all

from tidelog.ports.disk import File
from tidelog.ports.real import SystemDisk
from tidelog.storage import offset_index as offset_index_module
from tidelog.storage.errors import CorruptIndex, WouldBlock
from tidelog.storage.file_names import INDEX, TIME_INDEX
from tidelog.storage.file_pool import FilePool
from tidelog.storage.log_config import LogConfig
from tidelog.storage.offset_index import OffsetIndex, TimeIndex

pytestmark = pytest.mark.row("R32")


def offset_index(path: Path, entries: int, *, base: int = 600) -> OffsetIndex:
    """Entries for each third offset, at positions 100 apart."""
    path.touch()
    index = OffsetIndex(FilePool(SystemDisk()).file(str(path)), base, size_max=1 << 20, count=0)
    for number in range(entries):
        index.append(base + 3 * number + 2, 100 * number + 100)
    return index


@pytest.mark.parametrize("entries", [0, 1, 63, 64, 65, 500, 1500])
@pytest.mark.parametrize("reopened", [False, True])
def test_a_lookup_gives_the_last_entry_at_or_before(tmp_path: Path, entries: int, reopened: bool) -> None:
    """In memory or in the file, for every offset; before the first entry it is the segment's start."""
    index = offset_index(tmp_path / "0.index", entries)
    if reopened:
        index.trim()
        index.forget_tail()
    for offset in range(600, 600 + 3 * entries + 5):
        number = min((offset - 602) // 3, entries - 1)
        wanted = (602 + 3 * number, 100 * number + 100) if offset >= 602 and entries else (600, 0)
        assert index.lookup(offset) == wanted


def reads_of(disk: FaultyDisk, question: Callable[[], object]) -> int:
    """How many reads of the disk it takes to answer a question."""
    before = disk.count("pread")
    question()
    return disk.count("pread") - before


def reopened_index(path: Path, disk: FaultyDisk, entries: int) -> OffsetIndex:
    """As `offset_index`, of a segment that was closed."""
    offset_index(path, entries).trim()
    return OffsetIndex(FilePool(disk).file(str(path)), 600, size_max=1 << 20)


def test_a_reader_that_goes_on_reads_no_index(tmp_path: Path) -> None:
    """The page that was found is kept: of 1,500 entries a search leaves 375, and the next 374 offsets ask nothing."""
    disk = FaultyDisk()
    index = reopened_index(tmp_path / "0.index", disk, 1500)
    assert reads_of(disk, lambda: index.lookup(602)) > 2
    assert reads_of(disk, lambda: [index.lookup(602 + 3 * number) for number in range(374)]) == 0
    assert reads_of(disk, lambda: index.lookup(602 + 3 * 375)) > 0


def test_what_is_kept_goes_when_the_file_is_closed(tmp_path: Path) -> None:
    """So what is kept of all indexes together is bounded by the files that may be open."""
    disk = FaultyDisk()
    index = reopened_index(tmp_path / "0.index", disk, 1500)
    index.lookup(602)
    index.close()
    assert reads_of(disk, lambda: index.lookup(602)) > 0


@pytest.mark.parametrize("is_closed", [False, True])
def test_what_was_cut_is_not_found_in_what_was_kept(tmp_path: Path, is_closed: bool) -> None:
    """A truncated index with new entries in the places of those that were kept."""
    index = reopened_index(tmp_path / "0.index", FaultyDisk(), 1500)
    assert index.lookup(902) == (902, 10_100)
    index.truncate_to(902)
    for number in range(100, 1500):
        index.append(602 + 3 * number, 7 * number)
    if is_closed:
        index.trim()
        index.forget_tail()
    assert index.lookup(901) == (899, 10_000)
    assert [index.lookup(602 + 3 * number).position for number in range(100, 1500)] == list(range(700, 10_500, 7))


def test_the_file_is_kafkas(tmp_path: Path) -> None:
    """8 bytes an entry, big-endian, offsets relative to the base."""
    index = offset_index(tmp_path / "0.index", 2)
    index.preallocate()
    assert (tmp_path / "0.index").stat().st_size == 1 << 20
    index.trim()
    assert (tmp_path / "0.index").read_bytes() == struct.pack(">iiii", 2, 100, 5, 200)
    times = TimeIndex(FilePool(SystemDisk()).file(str(tmp_path / "0.timeindex")), 600, size_max=1200, count=0)
    (tmp_path / "0.timeindex").touch()
    times.maybe_append(NOW_MS, 605)
    times.maybe_append(NOW_MS, 609)
    times.maybe_append(NOW_MS + 5, 611)
    times.trim()
    assert (tmp_path / "0.timeindex").read_bytes() == struct.pack(">qiqi", NOW_MS, 5, NOW_MS + 5, 11)
    assert [times.lookup(NOW_MS + ahead).offset for ahead in (-1, 0, 4, 5, 9)] == [600, 605, 605, 611, 611]


@pytest.mark.parametrize("entries", [10, 200, 1500])
def test_truncation_removes_what_is_at_or_past_the_offset(tmp_path: Path, entries: int) -> None:
    """An entry of the very offset goes."""
    for cut in (600, 602, 603, 605, 600 + 3 * entries, 600 + 3 * entries // 2):
        index = offset_index(tmp_path / f"{cut}.index", entries)
        index.truncate_to(cut)
        assert index.entries() == [(o, p) for o, p in offset_index(tmp_path / "all", entries).entries() if o < cut]
        index.append(cut + 1, 10**6)
        index.trim()
        index.forget_tail()
        assert index.lookup(cut + 1).position == 10**6


def test_an_unfinished_file_is_told(tmp_path: Path) -> None:
    """A size that is no multiple of the entries', or zeros at the end as preallocation leaves them."""
    for content in (b"\x00" * 7, b"\x00\x00\x00\x01\x00\x00\x00\x09" + b"\x00" * 8):
        path = tmp_path / f"{len(content)}.index"
        path.write_bytes(content)
        index = OffsetIndex(FilePool(SystemDisk()).file(str(path)), 0, size_max=80)
        with pytest.raises(CorruptIndex):
            index.lookup(5)


def test_a_cold_index_says_so(tmp_path: Path) -> None:
    """Without leave to block, a page that is not in memory is not waited for."""
    disk = FaultyDisk()
    path = tmp_path / "0.index"
    path.write_bytes(struct.pack(">ii", 1, 100))
    index = OffsetIndex(FilePool(disk).file(str(path)), 0, size_max=80)
    disk.is_cold = True
    with pytest.raises(WouldBlock):
        index.lookup(5, blocking=False)
    assert index.lookup(5).position == 100


@pytest.mark.parametrize("number", range(1, 6))
@pytest.mark.parametrize("cut", [602, 680, 720])
def test_an_index_cut_beside_a_lookup_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, cut: int
) -> None:
    """The loop truncates it just after the lookup's read of that number, counted from 1, in another thread: there is an
    answer, or the error that has the segment begin the lookup again."""
    index = offset_index(tmp_path / "0.index", 50)
    index.trim()
    index.forget_tail()
    left = number
    read_range = offset_index_module._read_range

    def read(file: File, size: int, offset: int, *, blocking: bool) -> bytes:
        nonlocal left
        data = read_range(file, size, offset, blocking=blocking)
        left -= 1
        if left == 0:
            index.truncate_to(cut)
        return data

    monkeypatch.setattr(offset_index_module, "_read_range", read)
    for lookup in (lambda: index.lookup(740), lambda: index.lookup_position(4000)):
        with suppress(CorruptIndex):
            lookup()


def test_an_entry_for_every_interval_of_bytes(tmp_path: Path) -> None:
    """After more than index.interval.bytes since the last entry, the next batch gets one."""
    size = len(batch(b"." * 100))
    _, log = open_log(tmp_path, config=LogConfig(index_interval_bytes=2 * size))
    fill(log, 10)
    assert log.active.offset_index.entries() == [(3, 3 * size), (6, 6 * size), (9, 9 * size)]
    assert log.active.time_index.entries() == [(NOW_MS + offset, offset) for offset in (3, 6, 9)]


def test_the_active_indexes_are_preallocated_and_trimmed(tmp_path: Path) -> None:
    """Whole entries of segment.index.bytes while active; just the entries after a roll or a clean stop."""
    config = LogConfig(segment_index_bytes=1000, index_interval_bytes=1, segment_bytes=500)
    manager, log = open_log(tmp_path, config=config)
    fill(log, 5)

    def sizes() -> list[tuple[int, int]]:
        return [
            (Path(segment.path(INDEX)).stat().st_size, Path(segment.path(TIME_INDEX)).stat().st_size)
            for segment in log.segments
        ]

    assert sizes() == [(8, 12), (8, 12), (1000, 996)]
    manager.close()
    assert sizes() == [(8, 12), (8, 12), (0, 12)]


def test_find_offset_600(tmp_path: Path) -> None:
    """Floor segment, floor index entry, then a scan of headers: never more than an interval of the log is read."""
    disk = FaultyDisk()
    config = LogConfig(segment_bytes=50_000, index_interval_bytes=1000)
    manager, log = open_log(tmp_path, disk=disk, config=config)
    fill(log, 2000)
    manager.close()
    log = open_manager(tmp_path, disk=disk, config=config).create(TP, None)
    for offset in (0, 600, 1234, 1999):
        assert read_all(log, offset, up_to=offset + 1)[0].value == f"{offset}".encode().ljust(100, b".")


def test_a_lost_or_damaged_index_is_written_anew(tmp_path: Path) -> None:
    """Missing, of an impossible size, full of zeros, or pointing elsewhere: reads find everything all the same."""
    config = LogConfig(segment_bytes=2000, index_interval_bytes=200)
    manager, log = open_log(tmp_path, config=config)
    fill(log, 100)
    manager.close()
    folder = tmp_path / "topicone-0"
    whole = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".index", ".timeindex")}
    damages = [None, b"123", bytes(24), struct.pack(">iiii", 2, 77, 4, 3), struct.pack(">ii", 3, 2**31 - 1)]
    for number, name in enumerate(sorted(whole)):
        damage = damages[number % len(damages)]
        if damage is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(damage)
    manager = open_manager(tmp_path, config=config)
    log = manager.create(TP, None)
    assert [record.offset for record in read_all(log)] == list(range(100))
    for offset in range(100):
        assert log.offset_for_timestamp(NOW_MS + offset, up_to_offset=100) == (NOW_MS + offset, offset, 0)
        assert read_all(log, offset, up_to=offset + 1)[0].offset == offset
    manager.close()
    assert {name: (folder / name).read_bytes() for name in whole if name.endswith(".index")} == {
        name: content for name, content in whole.items() if name.endswith(".index")
    }
