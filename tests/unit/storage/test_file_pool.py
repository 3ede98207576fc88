"""Descriptors under a limit."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.unit.storage.support import FaultyDisk

from tidelog.ports.disk import FileRange
from tidelog.storage.file_pool import FilePool, PooledFile, UnheldFile


def pool_of(root: Path, count: int, capacity: int) -> tuple[FaultyDisk, FilePool, list[PooledFile]]:
    disk = FaultyDisk()
    pool = FilePool(disk, capacity)
    for number in range(count):
        (root / str(number)).write_bytes(f"{number}".encode())
    return disk, pool, [pool.file(str(root / str(number))) for number in range(count)]


def test_files_open_again_when_used(tmp_path: Path) -> None:
    """Whoever uses a file does not notice that it was closed."""
    disk, pool, files = pool_of(tmp_path, 20, 5)
    for _ in range(3):
        for number, pooled in enumerate(files):
            with pooled as file:
                assert file.pread(10, 0) == f"{number}".encode()
            assert len(disk.open_files) <= 5
    assert pool.open_count == 5


@pytest.mark.parametrize("way", ["close", "evicted", "give way"])
def test_what_is_kept_of_a_file_goes_with_its_descriptor(tmp_path: Path, way: str) -> None:
    """However that is closed; nothing is kept of a file that is closed already."""
    _, pool, files = pool_of(tmp_path, 3, 2)
    with files[0]:
        files[0].keep("contents")
    assert files[0].kept == "contents"
    if way == "close":
        files[0].close()
    elif way == "give way":
        pool.give_way()
    else:
        for pooled in files[1:]:
            with pooled:
                pass
    assert files[0].kept is None
    files[0].keep("contents")
    assert files[0].kept is None


def test_a_file_in_use_stays_open(tmp_path: Path) -> None:
    """Above the limit too; the next one that is free goes instead."""
    disk, _, files = pool_of(tmp_path, 10, 2)
    with files[0] as first, files[1], files[2]:
        for pooled in files[3:]:
            with pooled:
                pass
        assert first.pread(1, 0) == b"0"
        assert len(disk.open_files) >= 3
    with files[9]:
        assert len(disk.open_files) <= 4


def test_a_range_keeps_its_file_open(tmp_path: Path) -> None:
    """Until it is released, and closing the file meanwhile waits for that."""
    disk, pool, files = pool_of(tmp_path, 3, 1)
    with files[0] as file:
        part = FileRange(file, 0, 1, files[0])
    files[0].close()
    pool.close()
    assert part.read() == b"0"
    part.release()
    part.release()
    assert disk.open_files == set()


def test_a_full_table_of_descriptors_makes_room(tmp_path: Path) -> None:
    """EMFILE closes what is not in use, and tries once more."""
    disk, _, files = pool_of(tmp_path, 4, 100)
    for pooled in files[:3]:
        with pooled:
            pass

    def fault(operation: str, path: str) -> OSError | None:
        return OSError(errno.EMFILE, os.strerror(errno.EMFILE)) if operation == "open" and disk.open_files else None

    disk.fault = fault
    with files[3] as file:
        assert file.pread(1, 0) == b"3"
        with pytest.raises(OSError, match="Too many open files"), files[0]:
            pass


def test_an_absent_file_leaves_no_trace(tmp_path: Path) -> None:
    """A failed open does not count as open."""
    _, pool, _ = pool_of(tmp_path, 0, 5)
    for _ in range(10):
        with pytest.raises(FileNotFoundError), pool.file(str(tmp_path / "none")):
            pass
    assert pool.open_count == 0


def test_a_pool_half_of_which_is_in_use_is_crowded(tmp_path: Path) -> None:
    """Then what is read next should not be held; a file that is held already may be held once more."""
    _, pool, files = pool_of(tmp_path, 5, 4)
    with files[0], files[0]:
        assert not files[1].is_crowded
        with files[1]:
            assert pool.is_crowded
            assert files[2].is_crowded
            assert not files[1].is_crowded
        assert not files[2].is_crowded
    assert pool.held_count == 0


def test_an_unheld_file_is_open_only_while_it_is_read(tmp_path: Path) -> None:
    """It follows a rename, and says so when the file is gone."""
    disk, pool, files = pool_of(tmp_path, 2, 1)
    unheld = UnheldFile(files[0])
    assert unheld.pread(1, 0) == unheld.probe(1, 0) == b"0"
    assert unheld.fileno() is None
    with files[1]:
        pass
    assert len(disk.open_files) == 1
    (tmp_path / "0").rename(tmp_path / "moved")
    files[0].path = str(tmp_path / "moved")
    assert unheld.pread(1, 0) == b"0"
    pool.close()
    (tmp_path / "moved").unlink()
    with pytest.raises(FileNotFoundError):
        unheld.pread(1, 0)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_files_of_segments_give_way_to_what_must_be_opened(tmp_path: Path, code: int) -> None:
    """Creating a file, reading a small one, listing and syncing a folder find a descriptor, once for each."""
    disk, pool, files = pool_of(tmp_path, 4, 4)
    short = {"open", "fsync_directory", "sync_file_system", "list"}

    def fault(operation: str, path: str) -> OSError | None:
        return OSError(code, os.strerror(code), path) if operation in short and pool.open_count else None

    def fill() -> None:
        disk.fault = lambda operation, path: None
        for pooled in files:
            with pooled:
                pass
        assert pool.open_count == 4
        disk.fault = fault

    fill()
    pool.disk.open(str(tmp_path / "new"), create=True).close()
    fill()
    assert "new" in pool.disk.list(str(tmp_path))
    fill()
    pool.disk.fsync_directory(str(tmp_path))
    fill()
    pool.disk.sync_file_system(str(tmp_path))
    fill()
    with files[0], pytest.raises(OSError, match=os.strerror(code)):
        pool.disk.open(str(tmp_path / "another"), create=True)
    assert pool.open_count == 1, "what is in use stays open"


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.ENOMEM])
def test_other_errors_are_not_tried_again(tmp_path: Path, code: int) -> None:
    """Closing files would not help."""
    disk, pool, files = pool_of(tmp_path, 1, 4)
    with files[0]:
        pass
    disk.fail("fsync_directory", "", code)
    with pytest.raises(OSError, match=os.strerror(code)):
        pool.disk.fsync_directory(str(tmp_path))
    assert disk.count("fsync_directory") == 1
    assert pool.open_count == 1
