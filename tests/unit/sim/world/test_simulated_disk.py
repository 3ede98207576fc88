"""The simulated disk keeps POSIX's promises and no more."""

from __future__ import annotations

import errno

import pytest
from sim.world.disk import Fault, Mount, Operation, ProcessDeath, SimulatedDisk
from sim.world.platter import PAGE
from sim.world.randomness import SeededRandom

from tidelog.ports.disk import replace_file


def disk(seed: int = 0, capacity: int | None = None) -> SimulatedDisk:
    return SimulatedDisk(SeededRandom(seed), lambda: 0, capacity=capacity)


def write(mount: Mount, path: str, data: bytes, *, fsync: bool = False) -> None:
    file = mount.open(path, create=True)
    file.pwrite(data, 0)
    if fsync:
        file.fsync()
    file.close()


def outcomes(scenario: str, *, seeds: int = 40) -> set[bytes | None]:
    """What a power cut makes of /d/f, over many seeds; None: the file is gone."""
    found: set[bytes | None] = set()
    for seed in range(seeds):
        device = disk(seed)
        mount = device.mount()
        mount.make_directories("/d")
        mount.sync_file_system("/")
        write(mount, "/d/f", b"old", fsync=True)
        if scenario != "name not synced":
            mount.fsync_directory("/d")
        if scenario == "rewritten":
            write(mount, "/d/f", b"new")
        if scenario == "replaced":
            replace_file(mount, "/d/f", b"new")
        if scenario == "renamed over":
            write(mount, "/d/g", b"new", fsync=True)
            mount.rename("/d/g", "/d/f")
        if scenario == "unlinked":
            mount.unlink("/d/f")
        device.power_cut()
        found.add(device.read("/d/f") if "/d/f" in device.paths() else None)
    return found


def test_a_file_is_torn_where_a_later_part_survives_alone() -> None:
    """A beginning, or nothing, of what was not synced is no tear."""
    seen = set()
    for seed in range(60):
        device = disk(seed)
        mount = device.mount()
        mount.make_directories("/d")
        mount.sync_file_system("/")
        data = bytes([1]) * PAGE + bytes([2]) * PAGE
        write(mount, "/d/f", b"", fsync=True)
        mount.fsync_directory("/d")
        write(mount, "/d/f", data)
        device.power_cut()
        is_torn = "/d/f" in device.torn
        assert is_torn is not data.startswith(device.read("/d/f"))
        seen.add(is_torn)
    assert seen == {True, False}


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        ("synced", {b"old"}),
        ("name not synced", {b"old", None}),
        ("rewritten", {b"old", b"new"}),
        ("replaced", {b"new"}),
        ("renamed over", {b"old", b"new"}),
        ("unlinked", {b"old", None}),
    ],
)
def test_a_power_cut_shows_every_possible_outcome(scenario: str, expected: set[bytes | None]) -> None:
    """Synced content and names stay; what was not synced may be there or not, and nothing else."""
    assert outcomes(scenario) == expected


def test_pages_may_be_torn() -> None:
    """Of a large write that was not synced, any pages may survive, whole or in part."""
    survivors = set()
    for seed in range(60):
        device = disk(seed)
        mount = device.mount()
        write(mount, "/f", b"o" * 3 * PAGE, fsync=True)
        mount.fsync_directory("/")
        write(mount, "/f", b"n" * 3 * PAGE)
        device.power_cut()
        content = device.read("/f")
        survivors.add(content.count(b"n") // 512)
    assert {0, 24} <= survivors
    assert any(count % 8 for count in survivors), "a page that survived in part"


def test_a_kill_keeps_the_page_cache() -> None:
    """What was written is there; the dead process can do nothing more, and its lock is free."""
    device = disk()
    mount = device.mount()
    mount.lock("/lock")
    write(mount, "/f", b"data")
    file = mount.open("/f")
    device.kill()
    for action in (lambda: mount.exists("/f"), lambda: file.pread(1, 0), lambda: file.pwrite(b"x", 0)):
        with pytest.raises(ProcessDeath):
            action()
    file.close()
    following = device.mount()
    assert following.read("/f") == b"data"
    following.lock("/lock")


def test_one_process_and_one_lock_at_a_time() -> None:
    """A second mount beside a living one is a mistake, a second lock is refused."""
    device = disk()
    mount = device.mount()
    with pytest.raises(RuntimeError, match="one process at a time"):
        device.mount()
    lock = mount.lock("/lock")
    with pytest.raises(BlockingIOError):
        mount.lock("/lock")
    lock.release()
    mount.lock("/lock")


def test_a_failed_fsync_forgets() -> None:
    """As on Linux: the second fsync succeeds, and the data is not on the platter."""
    device = disk()
    mount = device.mount()
    write(mount, "/f", b"", fsync=True)
    mount.fsync_directory("/")
    file = mount.open("/f")
    file.pwrite(b"data", 0)

    def plan(operation: Operation) -> Fault | None:
        device.fault = None
        return Fault(OSError(errno.EIO, "broken"))

    device.fault = plan
    with pytest.raises(OSError, match="broken"):
        file.fsync()
    file.fsync()
    assert mount.read("/f") == b"data"
    device.power_cut()
    assert device.read("/f") == bytes(4), "the size was synced, the page counted as clean"


def test_a_full_disk_takes_what_fits() -> None:
    """ENOSPC after the bytes that still had room; removing files makes room again."""
    device = disk(capacity=100)
    mount = device.mount()
    write(mount, "/a", bytes(60))
    file = mount.open("/b", create=True)
    with pytest.raises(OSError, match="No space") as raised:
        file.pwrite(bytes(60), 0)
    assert raised.value.errno == errno.ENOSPC
    assert mount.stat("/b").size == 40
    assert mount.space("/").usable == 0
    mount.unlink("/a")
    file.pwrite(bytes(60), 0)


def test_death_in_the_middle_of_a_write() -> None:
    """Whole pages of it may have happened; the process is dead whatever it catches."""
    device = disk()
    mount = device.mount()
    file = mount.open("/f", create=True)
    device.fault = lambda operation: Fault(ProcessDeath("now"), PAGE + 100)
    with pytest.raises(ProcessDeath):
        file.pwrite(b"x" * 3 * PAGE, 0)
    device.fault = None
    assert not mount.alive
    assert device.read("/f") == b"x" * PAGE


def test_a_flipped_bit() -> None:
    """Damage on the platter shows at the next read."""
    device = disk()
    write(device.mount(), "/f", b"\x00\x00", fsync=True)
    device.flip_bit("/f", 9)
    assert device.read("/f") == b"\x00\x02"


def test_names_behave_like_names() -> None:
    """Listing, renaming and removing raise what the operating system raises."""
    mount = disk().mount()
    mount.make_directories("/a/b")
    write(mount, "/a/f", b"")
    assert mount.list("/a") == ["b", "f"]
    assert mount.stat("/a").is_directory
    for action, code in (
        (lambda: mount.open("/none"), errno.ENOENT),
        (lambda: mount.open("/a"), errno.EISDIR),
        (lambda: mount.list("/a/f"), errno.ENOTDIR),
        (lambda: mount.remove_directory("/a"), errno.ENOTEMPTY),
        (lambda: mount.rename("/a/none", "/a/g"), errno.ENOENT),
        (lambda: mount.rename("/a/f", "/f"), errno.EXDEV),
        (lambda: mount.make_directories("/a/f/g"), errno.ENOTDIR),
        (lambda: mount.unlink("/a/none"), errno.ENOENT),
        (lambda: mount.open("/a/f", read_only=True).pwrite(b"x", 0), errno.EBADF),
    ):
        with pytest.raises(OSError) as raised:  # noqa: PT011 - the code is looked at below.
            action()
        assert raised.value.errno == code
    mount.rename("/a/f", "/a/g")
    mount.unlink("/a/g")
    mount.remove_directory("/a/b")
    assert mount.list("/a") == []


def test_probes_can_be_cold() -> None:
    """Pages that are not in memory, as often as asked for."""
    device = disk()
    mount = device.mount()
    write(mount, "/f", b"data")
    file = mount.open("/f")
    assert file.probe(4, 0) == b"data"
    device.cold_chance = 1.0
    assert file.probe(4, 0) is None
    assert file.pread(4, 0) == b"data"


def test_names_may_come_back_out_of_order() -> None:
    """Of two changes in a directory that was not synced, a power cut may keep the second one only, unless there is a
    journal.
    """

    def survivors(*, in_order: bool) -> set[tuple[str, ...]]:
        found = set()
        for seed in range(60):
            device = disk(seed)
            device.names_in_order = in_order
            mount = device.mount()
            write(mount, "/a", b"", fsync=True)
            write(mount, "/b", b"", fsync=True)
            device.power_cut()
            found.add(tuple(device.paths()))
        return found

    assert survivors(in_order=True) == {(), ("/a",), ("/a", "/b")}
    assert survivors(in_order=False) == {(), ("/a",), ("/b",), ("/a", "/b")}


@pytest.mark.parametrize("seed", range(4))
def test_rot_is_seen_by_the_process_only(seed: int) -> None:
    """A process reads another byte than it has written; who looks from outside sees what was written."""
    device = disk(seed)
    mount = device.mount()
    write(mount, "/d", b"abcd", fsync=True)
    mount.fsync_directory("/")
    device.rot("/d", 1, 0x01)
    assert mount.read("/d") == b"accd"
    assert device.files("/", "d")["d"].content == b"abcd"
    device.power_cut()
    mount = device.mount()
    assert mount.read("/d") == b"accd"
    device.rot("/d", 3, 0x02)
    found = device.files("/", "d")["d"]
    assert (mount.read("/d"), found.content, found.durable) == (b"accf", b"abcd", b"abcd")
    mount.open("/d").pwrite(b"xy", 0)
    mount.open("/d").pwrite(b"d", 3)
    assert mount.read("/d") == b"xycd"
    assert device.files("/", "d")["d"].content == b"xycd"
