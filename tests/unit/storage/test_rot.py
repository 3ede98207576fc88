"""Reads of logs whose files hold something else than was written: nothing rotten is handed out."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.storage.support import NOW_MS, StandingClock, batch, fill, open_log, read_all
from tests.waiting import until

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.records.batch import iterate_headers
from tidelog.records.integrity import Soundness
from tidelog.storage import integrity
from tidelog.storage.checked_ranges import CheckUnderWay
from tidelog.storage.errors import WouldBlock
from tidelog.storage.integrity import AHEAD_BYTES, INLINE_BYTES_MAX, TRUSTED_MS
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.repair import find_damages, fit, write
from tidelog.storage.rot import RottenBatch

BATCHES = 9
RECORDS = 2
END = BATCHES * RECORDS
PAYLOAD = b"." * 60
HEADER_BITS = [(byte, bit) for byte in range(21) for bit in (0, 2, 7)]
"""Base offset, length, leader epoch, magic and checksum."""


def filled(directory: Path, *, index_interval: int = 400, **options: object) -> tuple[Log, str, bytes]:
    """A log of batches of two records, from the sixth on of another leader epoch; its file and what is in it."""
    log = open_log(directory, config=LogConfig(index_interval_bytes=index_interval), **options)[1]
    for number in range(BATCHES):
        log.append(batch(PAYLOAD, b"%d" % number), leader_epoch=3 if number < 5 else 4, now_ms=NOW_MS)
    path = log.active.log_file.path
    return log, path, Path(path).read_bytes()


def starts(content: bytes) -> list[int]:
    return [position for position, _ in iterate_headers(content)]


def flip(path: str, position: int, bit: int = 0) -> None:
    """Turns one bit of a file over, as another process would."""
    descriptor = os.open(path, os.O_RDWR)
    (value,) = os.pread(descriptor, 1, position)
    os.pwrite(descriptor, bytes((value ^ 1 << bit,)), position)
    os.close(descriptor)


def read(log: Log, offset: int, max_bytes: int = 1 << 20, up_to: int = END) -> tuple[int, bytes]:
    """Position in the file, and the bytes."""
    result = log.read(offset, max_bytes, up_to_offset=up_to)
    try:
        return (result.ranges[0].position, result.ranges[0].read()) if result.ranges else (-1, b"")
    finally:
        for part in result.ranges:
            part.release()


def read_or_fail(log: Log, offset: int, max_bytes: int, up_to: int) -> tuple[int, bytes]:
    """As `read`; nothing where it refuses."""
    try:
        position, data = read(log, offset, max_bytes, up_to)
    except RottenBatch:
        return -1, b""
    assert data
    return position, data


def wait_until_writes_show(path: str) -> None:
    """Until another write to the file gets another time than the last one."""
    while time.time_ns() - os.stat(path).st_ctime_ns < 60_000_000:
        pass


def whole_batches(data: bytes) -> bytes:
    ends = [position + header.size for position, header in iterate_headers(data)]
    return data[: ends[-1]] if ends else b""


@pytest.mark.parametrize("rotten", [0, 4, 5, 8])
def test_no_flipped_bit_is_handed_out(tmp_path: Path, rotten: int) -> None:
    """Whatever bit of a batch's header flips: a read gives what was written, from the batch that was asked for on, or
    an error that clients ask again after; what lies before the batch can be read."""
    log, path, content = filled(tmp_path)
    positions = starts(content)
    for byte, bit in [*HEADER_BITS, (23, 0), (40, 3), (61, 5), (90, 1)]:
        flip(path, positions[rotten] + byte, bit)
        for number in range(BATCHES):
            for max_bytes, up_to in ((1 << 20, END), (1, END), (400, END), (1 << 20, END - RECORDS)):
                case = byte, bit, number, max_bytes, up_to
                if up_to <= number * RECORDS:
                    continue
                position, data = read_or_fail(log, number * RECORDS + 1, max_bytes, up_to)
                if not data:
                    assert number >= rotten, case
                    continue
                assert position == positions[number], case
                assert data == content[position : position + len(data)], case
                end = position + len(whole_batches(data))
                assert end <= positions[rotten] or position > positions[rotten], case
        flip(path, positions[rotten] + byte, bit)
        log.rot.clear()
    assert read(log, 0) == (0, content)


def test_damage_is_found_passed_by_and_mended(tmp_path: Path) -> None:
    """Each damage is told with where it begins and ends; what lies behind it can be read then. The bytes of another
    replica fit, and the file is what it was."""
    log, path, content = filled(tmp_path)
    positions = [*starts(content), len(content)]
    segment = log.active
    for rotten in (0, 4, 5, 8):
        for byte, bit in [*HEADER_BITS, (70, 2)]:
            case = rotten, byte, bit
            flip(path, positions[rotten] + byte, bit)
            check = log.segment_check(segment)
            assert check is not None
            (damage,) = find_damages(segment, check)
            assert damage[:3] == (positions[rotten], positions[rotten + 1], rotten * RECORDS), case
            segment.rotten = {damage.position: damage.end}
            for lost in range(RECORDS):
                with pytest.raises(RottenBatch):
                    read(log, rotten * RECORDS + lost)
            if rotten:
                assert read(log, 0) == (0, content[: damage.position]), case
                assert read(log, 0, up_to=END - 1) == (0, content[: damage.position]), case
            if rotten + 1 < BATCHES:
                assert read(log, (rotten + 1) * RECORDS) == (damage.end, content[damage.end :]), case
            patch = fit(segment, check, log, damage, content[positions[rotten] : positions[rotten] + 300])
            assert patch is not None, case
            assert write(segment, patch)
            segment.rotten = {}
            assert Path(path).read_bytes() == content, case
            log.rot.clear()


@pytest.mark.parametrize("index_interval", [1, 400, 1 << 20])
def test_rot_before_a_read_does_not_concern_it(tmp_path: Path, index_interval: int) -> None:
    """What no replica could mend is passed by, wherever the index has the read begin, and is itself never given."""
    for rotten in (0, 4, 7):
        log, path, content = filled(tmp_path / str(rotten), index_interval=index_interval)
        positions = starts(content)
        flip(path, positions[rotten] + 80)
        check = log.segment_check(log.active)
        assert check is not None
        log.forget_positions()
        wait_until_writes_show(path)
        log.active.rotten = {damage.position: damage.end for damage in find_damages(log.active, check)}
        for number in [*range(BATCHES), *range(BATCHES)]:
            if number == rotten:
                with pytest.raises(RottenBatch):
                    read(log, number * RECORDS)
            else:
                end = positions[rotten] if number < rotten else len(content)
                assert read(log, number * RECORDS) == (positions[number], content[positions[number] : end]), number
        log.release_files()


def test_only_what_fits_is_written(tmp_path: Path) -> None:
    """Not the batches of a replica that was compacted otherwise, nor rotten ones, nor into a file that changed."""
    log, path, content = filled(tmp_path)
    positions, segment = starts(content), log.active
    flip(path, positions[2] + 70)
    check = log.segment_check(segment)
    assert check is not None
    (damage,) = find_damages(segment, check)
    other = open_log(tmp_path / "other")[1]
    for number in range(BATCHES):
        other.append(batch(PAYLOAD + b"longer", b"%d" % number), leader_epoch=3, now_ms=NOW_MS)
    assert fit(segment, check, log, damage, read(other, 4)[1]) is None
    assert fit(segment, check, log, damage, Path(path).read_bytes()[positions[2] :]) is None
    assert fit(segment, check, log, damage, b"") is None
    patch = fit(segment, check, log, damage, content[positions[2] :])
    assert patch is not None
    assert patch.after == content[positions[2] : positions[3]]
    flip(path, positions[2] + 71)
    assert not write(segment, patch)


def test_a_range_is_checked_once_while_nothing_writes_to_the_file(tmp_path: Path) -> None:
    """Bytes that were checked are not read again for a while; another process's write has them checked again."""
    clock = StandingClock()
    log, path, content = filled(tmp_path, clock=clock)
    wait_until_writes_show(path)
    read(log, 0)
    (known,) = log.active.verified
    assert (known.start, known.end) == (0, len(content))
    for offset in range(END):
        read(log, offset)
    assert log.active.verified == (known,)
    clock.now_ms += TRUSTED_MS
    read(log, 0)
    assert log.active.verified[0].until_ms > known.until_ms
    flip(path, starts(content)[3] + 70)
    assert len(read(log, 0)[1]) == starts(content)[3]
    with pytest.raises(RottenBatch):
        read(log, 6)


def test_what_a_reader_will_want_is_checked_ahead(tmp_path: Path) -> None:
    """One that goes through a segment finds the next range checked, without an I/O thread; up to what is rotten."""
    log = open_log(tmp_path)[1]
    for _ in range(40):
        log.append(batch(b"." * (INLINE_BYTES_MAX - 500)), leader_epoch=0, now_ms=NOW_MS)
    path, size = log.active.log_file.path, log.active.size // 40
    flip(path, 39 * size + 80)
    wait_until_writes_show(path)
    log.read(0, 2 * size, up_to_offset=40)
    assert log.ahead is None
    log.read(2, 2 * size, up_to_offset=40)
    assert log.ahead == (log.active, 4 * size)
    log.check_ahead()
    assert log.ahead is None
    assert log.active.verified[0].end >= 4 * size + AHEAD_BYTES - size
    assert log.read(4, 8 * size, up_to_offset=40, blocking=False).size == 8 * size
    while (end := log.active.verified[0].end) < 39 * size:
        log.ahead = log.active, end
        log.check_ahead()
    log.ahead = log.active, 39 * size
    log.check_ahead()
    assert (log.active.verified[0].end, log.rot) == (39 * size, {})
    with pytest.raises(RottenBatch):
        log.read(39, size, up_to_offset=40)


@pytest.mark.parametrize("fails", [False, True])
def test_a_reader_waits_for_the_check_ahead_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """It reads nothing twice to check it; it goes on by itself where the other thread could not."""
    log = open_log(tmp_path)[1]
    for _ in range(40):
        log.append(batch(b"." * (INLINE_BYTES_MAX - 500)), leader_epoch=0, now_ms=NOW_MS)
    path, size = log.active.log_file.path, log.active.size // 40
    wait_until_writes_show(path)
    for offset in (0, 2):
        log.read(offset, 2 * size, up_to_offset=40)
    reads: list[str] = []
    """Names of the threads that check batches, each time that they read some."""
    reader_goes_on = threading.Event()
    check_batches, wait_until = integrity.check_batches, CheckUnderWay.wait_until

    def checking(*arguments: Any, **options: Any) -> Soundness:
        name = threading.current_thread().name
        reads.append(name)
        if name == "reader":
            reader_goes_on.set()
        elif reads.count("check") == 3:
            reader_goes_on.wait(60)
            if fails:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        return check_batches(*arguments, **options)

    def waiting(self: CheckUnderWay, is_enough: Callable[[], bool]) -> None:
        reader_goes_on.set()
        wait_until(self, is_enough)

    def check_ahead() -> None:
        with contextlib.suppress(OSError):
            log.check_ahead()

    monkeypatch.setattr(CheckUnderWay, "wait_until", waiting)
    monkeypatch.setattr(integrity, "check_batches", checking)
    sizes: list[int] = []
    check = threading.Thread(target=check_ahead, name="check")
    reader = threading.Thread(target=lambda: sizes.append(log.read(4, 20 * size, up_to_offset=40).size), name="reader")
    check.start()
    until(lambda: len(reads) == 3, "the check is under way")
    reader.start()
    reader.join()
    check.join()
    assert sizes == [20 * size]
    assert ("reader" in reads) is fails
    assert log.active.check_under_way is None


def test_a_last_batch_with_a_wrong_offset_is_not_recovered(tmp_path: Path) -> None:
    """After a crash nothing behind it says so; where compaction leaves no gaps, a gap does."""
    for policy, end in (("delete", END - RECORDS), ("compact", END - RECORDS + 32 + RECORDS)):
        config = LogConfig(cleanup_policy=(policy,))
        manager, log = open_log(tmp_path / policy, config=config)
        for number in range(BATCHES):
            log.append(batch(PAYLOAD, b"%d" % number), leader_epoch=3, now_ms=NOW_MS)
        path = log.active.log_file.path
        flip(path, starts(Path(path).read_bytes())[-1] + 7, 5)
        manager.abandon()
        assert open_log(tmp_path / policy, config=config)[1].log_end_offset == end


def test_a_large_range_is_checked_by_an_io_thread(tmp_path: Path) -> None:
    """The loop does not wait for the checksums of much: it asks again where it may."""
    log = open_log(tmp_path)[1]
    for _ in range(4):
        log.append(batch(b"." * (INLINE_BYTES_MAX // 2)), leader_epoch=0, now_ms=NOW_MS)
    with pytest.raises(WouldBlock):
        log.read(0, 1 << 20, up_to_offset=4, blocking=False)
    assert log.read(0, 100, up_to_offset=4, blocking=False).size > 100


def test_a_batch_that_is_alone_is_judged_by_the_log_end(tmp_path: Path) -> None:
    """Of the last batch of a log there is none behind it whose offset it could contradict."""
    log, path, content = filled(tmp_path)
    for bit in range(8):
        flip(path, starts(content)[-1] + 7, bit)
        with pytest.raises(RottenBatch):
            read(log, END - 1)
        flip(path, starts(content)[-1] + 7, bit)


def test_gaps_of_compaction_are_no_damage(tmp_path: Path) -> None:
    """A follower's log has the gaps of its leader's."""
    leader, _, content = filled(tmp_path / "leader")
    positions = starts(content)
    follower = open_log(tmp_path / "follower")[1]
    for number in (0, 2, 3, 7, 8):
        end = [*positions, len(content)][number + 1]
        follower.append_as_follower(content[positions[number] : end], leader_epoch=4)
    check = follower.segment_check(follower.active)
    assert check is not None
    assert find_damages(follower.active, check) == []
    for offset in range(END):
        assert len(read(follower, offset)[1]) > 0
    assert leader.log_end_offset == follower.log_end_offset


def test_what_no_replica_has_is_told_as_corrupt(tmp_path: Path) -> None:
    """Clients ask again while there is hope, and tell their users when there is none."""
    log, path, content = filled(tmp_path)
    flip(path, starts(content)[2] + 70)
    with pytest.raises(KafkaError) as refused:
        read(log, 4)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    log.rot[0].is_final = True
    with pytest.raises(KafkaError) as refused:
        read(log, 4)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert len(log.folder.environment.findings._found) == 1


def test_a_log_whose_first_batch_is_known_to_be_rotten_begins_anew(tmp_path: Path) -> None:
    """Nothing of it has to be readable for that."""
    _, log = open_log(tmp_path)
    fill(log, 5)
    log.active.rotten = {0: log.active.size}
    path = Path(log.active.path(".log"))
    data = bytearray(path.read_bytes())
    data[90] ^= 1
    path.write_bytes(data)
    log.truncate_fully(0)
    assert (log.log_end_offset, log.active.size) == (0, 0)
    fill(log, 2)
    assert [record.offset for record in read_all(log)] == [0, 1]
