"""The aborted transactions of one segment: asked by every fetch of committed records, and written now and then."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from tests.unit.storage.support import NOW_MS, batch, marker, open_log

from tidelog.ports.disk import File
from tidelog.ports.real import SystemDisk
from tidelog.storage.errors import CorruptFile
from tidelog.storage.file_pool import FilePool
from tidelog.storage.log_config import LogConfig
from tidelog.storage.producer_state import AppendOrigin
from tidelog.storage.segment import Segment
from tidelog.storage.transaction_index import ENTRY_SIZE, AbortedTransaction, TransactionIndex

ABORTED = AbortedTransaction(producer_id=7, first_offset=2, last_offset=4, last_stable_offset=5)


class LookedAtDisk(SystemDisk):
    """Counts the files read, and lets something happen between a look and its answer."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.meanwhile: Callable[[], None] | None = None

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        self.reads += read_only
        try:
            return super().open(path, create=create, read_only=read_only)
        finally:
            if self.meanwhile is not None:
                meanwhile, self.meanwhile = self.meanwhile, None
                meanwhile()


def test_a_file_that_is_not_there_is_looked_for_once(tmp_path: Path) -> None:
    """Until a transaction is aborted."""
    disk = LookedAtDisk()
    index = TransactionIndex(disk, f"{tmp_path}/00.txnindex")
    assert [index.collect(0, 10) for _ in range(3)] == [([], False)] * 3
    assert disk.reads == 1
    index.append(ABORTED)
    assert index.entries() == [ABORTED]


def test_a_file_made_during_a_look_is_found_by_the_next(tmp_path: Path) -> None:
    """A reader in another thread, which saw nothing, must not hide what was written meanwhile."""
    disk = LookedAtDisk()
    index = TransactionIndex(disk, f"{tmp_path}/00.txnindex")
    disk.meanwhile = lambda: index.append(ABORTED)
    assert index.collect(0, 10) == ([], False)
    assert index.entries() == [ABORTED]


def test_a_segment_has_one_index_that_follows_its_name(tmp_path: Path) -> None:
    """Its files are renamed before they go; a reader that is still at it finds what it found before."""
    pool = FilePool(SystemDisk(), 16)
    segment = Segment.create(pool, str(tmp_path), 0, LogConfig(), now_ms=0)
    index = segment.transaction_index
    assert index.entries() == []
    segment.transaction_index.append(ABORTED)
    segment.rename(".deleted")
    assert index.entries() == [ABORTED]
    pool.close()


@pytest.mark.parametrize("count", [1, 119, 120, 121, 1000])
def test_those_of_a_range_are_found_by_bisection(tmp_path: Path, count: int) -> None:
    """Of a long file, exactly those whose marker is not before the range and whose records begin before its end."""
    index = TransactionIndex(SystemDisk(), f"{tmp_path}/00.txnindex")
    entries = [AbortedTransaction(number, 10 * number, 10 * number + 5, 10 * number + 6) for number in range(count)]
    index.rewrite(entries)
    for start, end in [(0, 1), (5, 6), (6, 7), (6, 21), (10 * count - 5, 10 * count), (0, 10 * count), (300, 2000)]:
        wanted = [entry for entry in entries if entry.last_offset >= start and entry.first_offset < end]
        found, complete = index.collect(start, end)
        assert found == wanted
        ended = [entry for entry in entries if entry.last_offset >= start]
        assert complete == any(entry.last_stable_offset >= end for entry in ended)


@pytest.mark.parametrize("kept", [0, 1, 600, 900])
def test_those_that_are_cut_away_beside_a_reader_are_not_found(tmp_path: Path, kept: int) -> None:
    """The loop truncates the log between a reader's look at the file's size and its first read, in another thread."""
    path = tmp_path / "00.txnindex"
    index = TransactionIndex(SystemDisk(), str(path))
    entries = [AbortedTransaction(number, 10 * number, 10 * number + 5, 10 * number + 6) for number in range(1000)]
    index.rewrite(entries)
    file = SystemDisk().open(str(path))
    found = index._ended_from(cast(File, _CutOnceLookedAt(file, kept)), 5000, blocking=True)
    assert list(found) == entries[500:kept]
    file.close()


class _CutOnceLookedAt:
    """A file of 1000 entries that is cut to so many when its size has been asked for."""

    def __init__(self, file: File, kept: int) -> None:
        self._file = file
        self._kept = kept

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def size(self) -> int:
        size = self._file.size()
        self._file.truncate(self._kept * ENTRY_SIZE)
        return size


def test_damage_is_named(tmp_path: Path) -> None:
    """An entry of an unknown version is `CorruptFile` with the file's name."""
    path = tmp_path / "00.txnindex"
    path.write_bytes(b"\7" * 34)
    with pytest.raises(CorruptFile, match=re.escape(str(path))):
        TransactionIndex(SystemDisk(), str(path)).collect(0, 1)


@pytest.mark.parametrize("byte", [0, 1, 2, 10, 18, 26])
def test_entries_that_cannot_be_the_segments_are_found_again(tmp_path: Path, byte: int) -> None:
    """No checksum covers them. At the next start, a clean one too, the segment is scanned: they are written anew."""
    manager, log = open_log(tmp_path)
    for sequence in range(3):
        data = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True)
        log.append(data, leader_epoch=0, now_ms=NOW_MS)
        log.append(marker(7, commit=False), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    known = log.aborted_transactions(0, 6)
    assert len(known) == 3
    path = Path(log.active.transaction_index.path)
    manager.close()
    content = bytearray(path.read_bytes())
    content[34 + byte] ^= 0x80
    path.write_bytes(content)
    _, again = open_log(tmp_path)
    assert again.aborted_transactions(0, 6) == known
    assert again.log_end_offset == 6
