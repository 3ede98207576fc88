"""Reading by offset and by timestamp."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.unit.storage.support import (
    NOW_MS,
    TOPIC_ID,
    TP,
    FaultyDisk,
    batch,
    fill,
    open_log,
    open_manager,
    read_all,
    records_of,
)

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.ports.disk import File
from tidelog.records.batch import Codec
from tidelog.storage import segment_lookups
from tidelog.storage.errors import WouldBlock
from tidelog.storage.file_pool import UnheldFile
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_manager_settings import LogManagerSettings
from tidelog.storage.readable_log import SEGMENTS_ASKED_MAX

SIZE = len(batch(b"." * 100))
MAX_TIMESTAMP_AT = 35
"""Where a batch's header has its greatest timestamp, eight bytes."""


def test_a_read_begins_with_the_batch_that_holds_the_offset(tmp_path: Path) -> None:
    """Clients skip what is before; the batch is not cut."""
    _, log = open_log(tmp_path)
    log.append(batch(b"a", b"b", b"c"), leader_epoch=0, now_ms=NOW_MS)
    log.append(batch(b"d"), leader_epoch=0, now_ms=NOW_MS)
    result = log.read(1, 1 << 20, up_to_offset=4)
    assert [record.offset for record in records_of(result.ranges[0].read())] == [0, 1, 2, 3]


def test_a_read_stays_below_its_bound(tmp_path: Path) -> None:
    """The high watermark is the end of a batch; nothing at or past it is given."""
    _, log = open_log(tmp_path, config=LogConfig(segment_bytes=4 * SIZE))
    fill(log, 10)
    for bound in range(11):
        assert [record.offset for record in read_all(log, up_to=bound)] == list(range(bound))
    assert log.read(5, 100, up_to_offset=5).ranges == []
    assert log.read(7, 100, up_to_offset=5).ranges == []


def read_beside(path: Path, number: int, beside: Callable[[Log], object], up_to_offset: int) -> tuple[Log, list[int]]:
    """The log and the offsets read from 15 on, of 20, by an I/O thread; the loop does `beside` before its pread of that
    number, counted from 1."""
    disk = FaultyDisk()
    config = LogConfig(index_interval_bytes=3 * SIZE)
    manager, log = open_log(path, disk=disk, config=config)
    fill(log, 20)
    manager.close()
    log = open_manager(path, disk=disk, config=config).create(TP, None)
    left = number

    def happens(happening: str, _path: str) -> None:
        nonlocal left
        left -= happening == "pread"
        if happening == "pread" and left == 0:
            beside(log)

    disk.fault = happens
    result = log.read(15, 1 << 20, up_to_offset=up_to_offset)
    assert left <= 0, "a read of a log that was just opened has fewer steps: ask for fewer"
    data = b"".join(part.read() for part in result.ranges)
    for part in result.ranges:
        part.release()
    return log, [record.offset for record in records_of(data)]


STEPS = [(number, bound) for bound, reads in ((20, 6), (18, 5)) for number in range(1, reads + 1)]
"""Each read of the disk in a read of the log below that bound, and the bound."""


@pytest.mark.parametrize(("number", "bound"), STEPS)
def test_a_read_stays_below_its_bound_while_the_log_grows_beside_it(tmp_path: Path, number: int, bound: int) -> None:
    """At every read of the disk by an I/O thread the loop may append."""
    _, found = read_beside(tmp_path, number, lambda log: fill(log, 2), bound)
    assert found == list(range(15, bound))


@pytest.mark.parametrize("cut_to", [1, 8, 15])
@pytest.mark.parametrize(("number", "bound"), STEPS)
def test_a_truncation_beside_a_read_is_no_rot(
    tmp_path: Path, number: int, cut_to: int, bound: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The read ends, with fewer records or an error that has the client ask again; the log has no rot, and an index
    that became shorter between two steps of a lookup is not written anew by that thread."""
    logs: list[Log] = []

    def cut(log: Log) -> None:
        logs.append(log)
        log.truncate_to(cut_to)

    with suppress(KafkaError):
        read_beside(tmp_path, number, cut, bound)
    assert logs
    assert not logs[0].rot
    assert "index_rebuilt" not in caplog.text


def test_max_bytes_cuts_but_never_the_first_batch(tmp_path: Path) -> None:
    """As in Kafka the last batch may be cut short; a first one above the limit comes whole, or not at all."""
    _, log = open_log(tmp_path)
    fill(log, 3)
    assert log.read(0, SIZE + 10, up_to_offset=3).size == SIZE + 10
    assert log.read(0, 1, up_to_offset=3).size == SIZE
    refused = log.read(0, 1, up_to_offset=3, min_one_batch=False)
    assert (refused.ranges, refused.size, refused.first_batch_size) == ([], 0, SIZE)


@pytest.mark.parametrize("offset", [-1, 4, 11])
def test_an_offset_out_of_range_is_told(tmp_path: Path, offset: int) -> None:
    """Below the log's start or past its end; the end itself is a question that has no answer yet."""
    _, log = open_log(tmp_path)
    fill(log, 10)
    log.update_high_watermark(10)
    log.advance_start(5)
    with pytest.raises(KafkaError) as refused:
        log.read(offset, 100, up_to_offset=10)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(10, 100, up_to_offset=10).ranges == []


@pytest.mark.parametrize(("codec", "count"), [(Codec.ZSTD, 3), (Codec.NONE, 20_000)])
def test_a_time_is_looked_for_in_another_thread_where_that_takes_long(tmp_path: Path, codec: Codec, count: int) -> None:
    """Also in the page cache: a small batch of a client's may decompress to millions of records."""
    _, log = open_log(tmp_path)
    log.append(batch(*[b""] * count, codec=codec), leader_epoch=0, now_ms=NOW_MS + count)
    for timestamp in (NOW_MS + 2, -3):
        with pytest.raises(WouldBlock):
            log.offset_for_timestamp(timestamp, up_to_offset=count, blocking=False)
    assert log.offset_for_timestamp(NOW_MS + 2, up_to_offset=count) == (NOW_MS + 2, 2, 0)
    assert log.offset_for_timestamp(-3, up_to_offset=count) == (NOW_MS + count - 1, count - 1, 0)


def test_a_time_is_found_without_the_records_behind_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a batch of many records none is made an object for that."""
    _, log = open_log(tmp_path)
    log.append(batch(*[b""] * 100), leader_epoch=0, now_ms=NOW_MS)
    monkeypatch.setattr("tidelog.records.batch.decode_records", None)
    for timestamp in (NOW_MS, NOW_MS + 50):
        assert log.offset_for_timestamp(timestamp, up_to_offset=100) == (timestamp, timestamp - NOW_MS, 0)


def test_a_cold_read_says_so_and_works_when_it_may_wait(tmp_path: Path) -> None:
    """`blocking=False` never touches the device: neither for the index nor for the log."""
    disk = FaultyDisk()
    config = LogConfig(segment_bytes=20 * SIZE, index_interval_bytes=100)
    manager, log = open_log(tmp_path, disk=disk, config=config)
    fill(log, 100)
    manager.close()
    log = open_manager(tmp_path, disk=disk, config=config).create(TP, None)
    disk.is_cold = True
    before = disk.count("pread")
    with pytest.raises(WouldBlock):
        log.read(30, 1000, up_to_offset=100, blocking=False)
    with pytest.raises(WouldBlock):
        log.offset_for_timestamp(NOW_MS + 30, up_to_offset=100, blocking=False)
    assert disk.count("pread") - before <= 2, "only the last entries of the indexes, to know how long they are"
    result = log.read(30, 1000, up_to_offset=100, blocking=True)
    assert records_of(result.ranges[0].read())[0].offset == 30


def test_a_range_outlives_its_segment(tmp_path: Path) -> None:
    """Retention may delete a segment while its last bytes are on their way out."""
    manager, log = open_log(
        tmp_path, config=LogConfig(segment_bytes=2 * SIZE, retention_bytes=SIZE, file_delete_delay_ms=0)
    )
    fill(log, 9)
    log.update_high_watermark(9)
    result = log.read(0, 1 << 20, up_to_offset=9)
    assert log.delete_old_segments(NOW_MS) > 0
    manager.maintenance.run_due(0)
    assert not (tmp_path / "topicone-0/00000000000000000000.log.deleted").exists()
    assert [record.offset for record in records_of(result.ranges[0].read())] == [0, 1]
    result.ranges[0].release()


def test_a_timestamp_finds_the_first_record_that_is_as_late(tmp_path: Path) -> None:
    """Also with records out of order, and inside compressed batches; below the bound only."""
    _, log = open_log(tmp_path, config=LogConfig(segment_bytes=4 * SIZE, index_interval_bytes=1))
    for first in (0, 50, 20, 90, 60):
        log.append(batch(b"a", b"b", timestamp=NOW_MS + first), leader_epoch=2, now_ms=NOW_MS)
    wanted = {0: 0, 1: 1, 2: 2, 51: 3, 52: 6, 91: 7}
    for ahead, offset in wanted.items():
        found = log.offset_for_timestamp(NOW_MS + ahead, up_to_offset=10)
        assert found is not None
        assert found[1:] == (offset, 2)
    assert log.offset_for_timestamp(NOW_MS + 92, up_to_offset=10) is None
    assert log.offset_for_timestamp(NOW_MS + 52, up_to_offset=6) is None


def test_a_timestamp_is_found_among_many_segments(tmp_path: Path) -> None:
    """Of so many that they are not asked one by one, with times out of order; also when the log has grown, or was cut,
    since a time was last looked for, and its first segments are gone."""
    chance = random.Random(7)
    size = len(batch(b"." * 10))
    _, log = open_log(tmp_path, config=LogConfig(segment_bytes=size))
    times: list[int] = []

    def grow(count: int) -> None:
        for _ in range(count):
            times.append(NOW_MS + len(times) + chance.choice((0, 0, 300, -300)))
            log.append(batch(b"." * 10, timestamp=times[-1]), leader_epoch=2, now_ms=NOW_MS)

    def check() -> None:
        kept = list(enumerate(times))[log.log_start_offset :]
        for wanted in {*times[::7], min(times), max(times), max(times) + 1}:
            found = log.offset_for_timestamp(wanted, up_to_offset=len(times))
            first = next(((time, offset, 2) for offset, time in kept if time >= wanted), None)
            assert found == first

    grow(100)
    assert len(log.segments) > 2 * SEGMENTS_ASKED_MAX
    check()
    grow(20)
    check()
    log.truncate_to(80)
    del times[80:]
    check()
    grow(5)
    check()
    log.update_high_watermark(len(times))
    log.advance_start(20)
    check()


@pytest.mark.parametrize("number", range(1, 5))
@pytest.mark.parametrize("beside", ["append", "truncation"])
def test_the_greatest_timestamp_is_not_that_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: str, number: int
) -> None:
    """After a truncation it is looked for anew. While an I/O thread does so, just after its read of that number, the
    loop appends or truncates: what the thread goes on to find is the greatest no longer."""
    _, log = open_log(tmp_path, config=LogConfig(index_interval_bytes=3 * SIZE))
    fill(log, 20)
    log.truncate_to(15)
    left = number
    read_of_segment = segment_lookups._read

    def read(file: File, size: int, position: int, *, blocking: bool) -> bytes:
        nonlocal left
        data = read_of_segment(file, size, position, blocking=blocking)
        left -= 1
        if left == 0:
            if beside == "append":
                fill(log, 3)
            else:
                log.truncate_to(10)
        return data

    monkeypatch.setattr(segment_lookups, "_read", read)
    with suppress(KafkaError):
        log.offset_for_timestamp(NOW_MS, up_to_offset=20)
    assert left <= 0
    last = log.log_end_offset - 1
    assert last == {"append": 17, "truncation": 9}[beside]
    assert log.offset_for_timestamp(-3, up_to_offset=20) == (NOW_MS + last, last, 0)
    assert log.offset_for_timestamp(NOW_MS + last, up_to_offset=20) == (NOW_MS + last, last, 0)


def test_the_special_timestamps(tmp_path: Path) -> None:
    """Earliest, latest and the greatest timestamp of ListOffsets, with their leader epochs."""
    _, log = open_log(tmp_path)
    assert log.offset_for_timestamp(-3, up_to_offset=0) is None
    log.append(batch(b"a", b"b", timestamp=NOW_MS + 500), leader_epoch=1, now_ms=NOW_MS)
    log.append(batch(b"c"), leader_epoch=3, now_ms=NOW_MS)
    assert log.offset_for_timestamp(-1, up_to_offset=3) == (-1, 3, 3)
    assert log.offset_for_timestamp(-2, up_to_offset=3) == (-1, 0, 1)
    assert log.offset_for_timestamp(-4, up_to_offset=3) == (-1, 0, 1)
    assert log.offset_for_timestamp(-3, up_to_offset=3) == (NOW_MS + 501, 1, 1)


def test_of_equal_greatest_timestamps_the_first_is_found(tmp_path: Path) -> None:
    """KIP-734 asks for one offset: the first, also after the log was opened again."""
    manager, log = open_log(tmp_path)
    for extra in (0, 500, 500, 100):
        log.append(batch(b"a", timestamp=NOW_MS + extra), leader_epoch=0, now_ms=NOW_MS)
    assert log.offset_for_timestamp(-3, up_to_offset=4) == (NOW_MS + 500, 1, 0)
    manager.abandon()
    _, again = open_log(tmp_path)
    assert again.offset_for_timestamp(-3, up_to_offset=4) == (NOW_MS + 500, 1, 0)


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("bit", [0, 1, 4, 12])
def test_a_misread_header_is_no_timestamp(tmp_path: Path, bit: int, is_cut: bool) -> None:
    """A batch is read again, with its checksum, before its timestamp is remembered: retention goes by that.

    In a closed segment one that is later than the time index says; in one that was just truncated every one.
    """
    disk = FaultyDisk()
    config = LogConfig(index_interval_bytes=3 * SIZE, segment_bytes=12 * SIZE)
    manager, log = open_log(tmp_path, disk=disk, config=config)
    fill(log, 14)
    manager.close()
    manager = open_manager(tmp_path, disk=disk, config=config)
    log = manager.create(TP, None)
    newest = 11
    if is_cut:
        newest = 9
        log.truncate_to(newest + 1)
    path = tmp_path / str(TP) / f"{0:020d}.log"
    sound = path.read_bytes()
    misread = bytearray(sound)
    position = newest * SIZE + MAX_TIMESTAMP_AT + 8 - 1 - bit // 8
    misread[position] ^= 1 << bit % 8
    reads = 0

    def flip_first(happening: str, name: str) -> None:
        nonlocal reads
        if happening == "pread" and name.endswith(".log"):
            reads += 1
            path.write_bytes(misread if reads == 1 else sound)

    disk.fault = flip_first
    segment = log.segments[0]
    assert segment.max_timestamp_so_far() == (NOW_MS + newest, newest)
    assert reads
    assert segment.find_max_timestamp() == (NOW_MS + newest, newest, 0)


def test_epochs_know_where_they_end(tmp_path: Path) -> None:
    """OffsetForLeaderEpoch."""
    _, log = open_log(tmp_path)
    fill(log, 3, leader_epoch=0)
    fill(log, 4, leader_epoch=2)
    assert [log.end_offset_for_epoch(epoch) for epoch in (0, 1, 2, 3)] == [(0, 3), (0, 3), (2, 7), (-1, -1)]


def test_answers_that_wait_do_not_hold_all_files(tmp_path: Path) -> None:
    """Half of the pool at most; what is read beyond that is opened when it is sent, and closed again."""
    disk = FaultyDisk()
    manager = open_manager(tmp_path, disk=disk, settings=LogManagerSettings(open_files_max=8))
    logs = [manager.create(TopicPartition("t", partition), TOPIC_ID) for partition in range(40)]
    for log in logs:
        fill(log, 3)
    results = [log.read(0, 1 << 20, up_to_offset=3) for log in logs]
    assert len(disk.open_files) <= 8
    held = [not isinstance(result.ranges[0].file, UnheldFile) for result in results]
    assert held == [True] * 4 + [False] * 36
    for result, log in zip(results, logs, strict=True):
        values = [record.value for record in records_of(result.ranges[0].read())]
        assert [value[:1] for value in values if value is not None] == [b"0", b"1", b"2"], log.topic_partition
    assert len(disk.open_files) <= 8
    for result in results:
        result.ranges[0].release()
    assert manager.pool.held_count == 0
    assert not isinstance(logs[0].read(0, 1 << 20, up_to_offset=3).ranges[0].file, UnheldFile)
