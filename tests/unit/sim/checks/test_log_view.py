"""A log as its bytes say: what is read anew follows every change of the files, and nothing else is."""

from __future__ import annotations

import pytest
from sim.checks.log_view import LogView
from sim.world.disk import Mount, SimulatedDisk
from sim.world.randomness import SeededRandom
from tests.unit.storage.support import batch

from tidelog.records.batch import patch

FOLDER = "/data/topicone-0"


def a_batch(offset: int) -> bytes:
    """Of one record."""
    data = batch(b"value")
    patch(data, 0, base_offset=offset, leader_epoch=0)
    return bytes(data)


SIZE = len(a_batch(0))


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(SeededRandom(1), lambda: 0)


@pytest.fixture
def mount(disk: SimulatedDisk) -> Mount:
    mount = disk.mount()
    mount.make_directories(FOLDER)
    return mount


def append(mount: Mount, base_offset: int, *offsets: int) -> None:
    file = mount.open(f"{FOLDER}/{base_offset:020d}.log", create=True)
    for offset in offsets:
        file.pwrite(a_batch(offset), file.size())


def seen(view: LogView) -> tuple[list[int], list[int]]:
    """Offsets of batches that are new, and of all of them."""
    new = [each.base_offset for _, each in view.refresh()]
    assert [each.base_offset for each in view.batches()] == sorted(view.by_offset)
    return new, sorted(view.by_offset)


def test_what_is_appended_and_rolled_is_read_once(disk: SimulatedDisk, mount: Mount) -> None:
    view = LogView(disk, FOLDER)
    assert seen(view) == ([], [])
    append(mount, 0, 0, 1)
    assert seen(view) == ([0, 1], [0, 1])
    assert seen(view) == ([], [0, 1])
    append(mount, 0, 2)
    append(mount, 3, 3)
    assert seen(view) == ([2, 3], [0, 1, 2, 3])
    assert (view.start, view.end) == (0, 4)


def test_what_is_cut_and_written_anew_is_read_again(disk: SimulatedDisk, mount: Mount) -> None:
    """Also where the file is as long as it was."""
    view = LogView(disk, FOLDER)
    append(mount, 0, 0, 1, 2)
    seen(view)
    mount.open(f"{FOLDER}/{0:020d}.log").truncate(SIZE)
    assert seen(view) == ([0], [0])
    append(mount, 0, 1, 2)
    mount.open(f"{FOLDER}/{0:020d}.log").truncate(SIZE)
    append(mount, 0, 1, 2)
    assert seen(view)[1] == [0, 1, 2]


def test_what_is_renamed_or_deleted_is_gone(disk: SimulatedDisk, mount: Mount) -> None:
    """As retention does it, and a power cut."""
    view = LogView(disk, FOLDER)
    append(mount, 0, 0, 1)
    mount.sync_file_system("/")
    append(mount, 2, 2)
    seen(view)
    first = f"{FOLDER}/{0:020d}.log"
    mount.rename(first, f"{first}.deleted")
    assert seen(view) == ([], [2])
    mount.unlink(f"{first}.deleted")
    assert seen(view) == ([], [2])
    disk.power_cut()
    there = [path for path in disk.paths(FOLDER) if path.endswith(".log")]
    assert [f"{FOLDER}/{name}" for name in disk.files(FOLDER, ".log")] == there
    assert (0 in seen(view)[1]) == (first in there)


@pytest.mark.parametrize(
    ("segments", "whole"),
    [
        ({0: [0, 1], 2: [2]}, [0, 1, 2]),
        ({0: [0], 2: [2]}, [0]),
        ({0: [], 2: [2]}, []),
        ({5: [5], 6: [6]}, [5, 6]),
        ({5: [4, 5]}, [4, 5]),
        ({}, []),
    ],
)
def test_the_whole_part_ends_at_the_first_gap(
    disk: SimulatedDisk, mount: Mount, segments: dict[int, list[int]], whole: list[int]
) -> None:
    """Also at one in the front, where a power cut has left a newer segment alone."""
    for base_offset, offsets in segments.items():
        append(mount, base_offset, *offsets)
    view = LogView(disk, FOLDER)
    view.refresh()
    assert [each.base_offset for each in view.whole_part()] == whole
