"""Appending: offsets, what is refused, what is rewritten, and that the disk may fail."""

from __future__ import annotations

import errno
import resource
from pathlib import Path

import pytest
from tests.unit.storage.support import NOW_MS, TP, FaultyDisk, batch, fill, marker, open_log, open_manager, read_all

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.ports.real import SystemFile
from tidelog.records.batch import (
    Codec,
    TimestampType,
    check_crc,
    iterate_headers,
    patch,
    read_header,
    read_records,
    set_max_timestamp,
)
from tidelog.storage.log import AppendOrigin
from tidelog.storage.log_config import LogConfig
from tidelog.storage.ordinary import append_ordinary


def test_batches_get_consecutive_offsets_and_the_leader_epoch(tmp_path: Path) -> None:
    """The first offset of each append is the end of the one before."""
    _, log = open_log(tmp_path)
    first = log.append(batch(b"a", b"b"), leader_epoch=7, now_ms=NOW_MS)
    second = log.append(batch(b"c"), leader_epoch=7, now_ms=NOW_MS)
    assert (first.first_offset, first.last_offset, second.first_offset, log.log_end_offset) == (0, 1, 2, 3)
    assert [record.value for record in read_all(log)] == [b"a", b"b", b"c"]
    data = log.read(0, 1 << 20, up_to_offset=3).ranges[0].read()
    assert read_header(data).partition_leader_epoch == 7
    assert log.epochs.entries == [(7, 0)]


def test_bytes_are_written_as_they_came(tmp_path: Path) -> None:
    """Only base offset and leader epoch differ from what the producer sent, and they are patched in place."""
    _, log = open_log(tmp_path)
    fill(log, 3)
    sent = batch(b"x", b"y", codec=Codec.LZ4)
    before = bytes(sent)
    log.append(sent, leader_epoch=4, now_ms=NOW_MS)
    stored = log.read(3, 1 << 20, up_to_offset=5).ranges[0].read()
    assert stored == sent
    assert stored[16:] == before[16:]
    assert (stored[:8], stored[12:16]) == ((3).to_bytes(8, "big"), (4).to_bytes(4, "big"))


def test_read_only_bytes_are_copied(tmp_path: Path) -> None:
    """A caller's immutable buffer is left alone."""
    _, log = open_log(tmp_path)
    fill(log, 1)
    sent = bytes(batch(b"x"))
    log.append(memoryview(sent), leader_epoch=1, now_ms=NOW_MS)
    assert read_header(sent).base_offset == 0
    assert log.log_end_offset == 2


@pytest.mark.parametrize("stamp", list(TimestampType))
@pytest.mark.parametrize("target", [None, Codec.LZ4])
def test_refused_bytes_are_what_they_were(tmp_path: Path, stamp: TimestampType, target: Codec | None) -> None:
    """A refusal that comes after offsets were given takes them, and the log's time, back: the request is judged again,
    and the second answer is the first one."""
    _, log = open_log(tmp_path, config=LogConfig(message_timestamp_type=stamp, compression_type=target))
    fill(log, 3)
    session = {"producer_id": 9, "producer_epoch": 1}
    log.append(batch(b"x", base_sequence=0, **session), leader_epoch=4, now_ms=NOW_MS)
    sent = batch(b"y", base_sequence=7, **session)
    before = bytes(sent)
    for _ in range(2):
        with pytest.raises(KafkaError) as refused:
            log.append(sent, leader_epoch=4, now_ms=NOW_MS)
        assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert sent == before


@pytest.mark.parametrize("is_large", [False, True])
def test_a_producer_gives_no_offsets(tmp_path: Path, is_large: bool) -> None:
    """INVALID_RECORD in Kafka's words, before anything else is judged; coordinators of this broker may."""
    _, log = open_log(tmp_path, config=LogConfig(max_message_bytes=200))
    sent = batch(b"x" * 500 if is_large else b"x")
    patch(sent, 0, base_offset=5, leader_epoch=-1)
    words = "The baseOffset of the record batch in the append to topicone-0 should be 0, but it is 5"
    with pytest.raises(KafkaError, match=words) as refused:
        log.append(sent, leader_epoch=0, now_ms=NOW_MS)
    assert refused.value.code is ErrorCode.INVALID_RECORD
    assert log.log_end_offset == 0
    if not is_large:
        assert log.append(sent, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR).first_offset == 0


def test_a_batch_above_max_message_bytes_is_refused(tmp_path: Path) -> None:
    """MESSAGE_TOO_LARGE in Kafka's words, and nothing is appended."""
    _, log = open_log(tmp_path, config=LogConfig(max_message_bytes=200))
    with pytest.raises(KafkaError, match="exceeds the maximum configured value of 200") as refused:
        log.append(batch(b"x" * 500), leader_epoch=0, now_ms=NOW_MS)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert (log.log_end_offset, log.size) == (0, 0)


def test_batches_above_the_segment_size_are_refused(tmp_path: Path) -> None:
    """RECORD_LIST_TOO_LARGE: they would fit into no segment."""
    _, log = open_log(tmp_path, config=LogConfig(segment_bytes=300))
    with pytest.raises(KafkaError) as refused:
        log.append(batch(b"x" * 500), leader_epoch=0, now_ms=NOW_MS)
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize("position", [20, 60, 80])
def test_a_corrupt_batch_is_refused(tmp_path: Path, position: int) -> None:
    """A bit flipped on the way shows in the checksum."""
    _, log = open_log(tmp_path)
    broken = batch(b"value of some length")
    broken[position] ^= 1
    with pytest.raises(KafkaError) as refused:
        log.append(broken, leader_epoch=0, now_ms=NOW_MS)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert log.log_end_offset == 0


@pytest.mark.parametrize("shift", [-10_001, 10_001])
def test_timestamps_out_of_range_are_refused(tmp_path: Path, shift: int) -> None:
    """INVALID_TIMESTAMP past message.timestamp.before.max.ms and after.max.ms; the bound itself is allowed."""
    config = LogConfig(message_timestamp_before_max_ms=10_000, message_timestamp_after_max_ms=10_000)
    _, log = open_log(tmp_path, config=config)
    with pytest.raises(KafkaError) as refused:
        log.append(batch(b"x", timestamp=NOW_MS + shift), leader_epoch=0, now_ms=NOW_MS)
    assert refused.value.code is ErrorCode.INVALID_TIMESTAMP
    log.append(batch(b"x", timestamp=NOW_MS + (10_000 if shift > 0 else -10_000)), leader_epoch=0, now_ms=NOW_MS)


@pytest.mark.parametrize("told", [-1, 0, NOW_MS + 10**15])
@pytest.mark.parametrize("config", [LogConfig(), LogConfig(compression_type=Codec.LZ4)])
def test_the_records_tell_a_batchs_greatest_timestamp(tmp_path: Path, told: int, config: LogConfig) -> None:
    """Whatever its header says, as in Kafka: retention goes by it, and so does a search for a time."""
    _, log = open_log(tmp_path, config=config)
    log.assign_epoch(0)
    for _ in range(2):
        sent = batch(b"x", b"y")
        set_max_timestamp(sent, 0, read_header(sent), told)
        info = log.append(sent, leader_epoch=0, now_ms=NOW_MS)
        assert info.max_timestamp == NOW_MS + 1
    log.update_high_watermark(4)
    data = log.read(0, 1 << 20, up_to_offset=4).ranges[0].read()
    for position, header in iterate_headers(data):
        assert header.max_timestamp == NOW_MS + 1
        check_crc(data, position, header)
    assert log.offset_for_timestamp(NOW_MS, up_to_offset=4) == (NOW_MS, 0, 0)
    assert log.delete_old_segments(NOW_MS + 1000) == 0
    assert log.delete_old_segments(NOW_MS + config.retention_ms + 2) == 1


def test_a_compacted_topic_needs_keys(tmp_path: Path) -> None:
    """INVALID_RECORD, compressed or not; the topic is accepted though nothing is compacted yet."""
    _, log = open_log(tmp_path, config=LogConfig(cleanup_policy=frozenset({"compact"})))
    for codec in (Codec.NONE, Codec.ZSTD):
        with pytest.raises(KafkaError) as refused:
            log.append(batch(b"x", key=None, codec=codec), leader_epoch=0, now_ms=NOW_MS)
        assert refused.value.code is ErrorCode.INVALID_RECORD
    assert log.append(batch(b"x"), leader_epoch=0, now_ms=NOW_MS).first_offset == 0


def test_log_append_time_replaces_the_producers(tmp_path: Path) -> None:
    """All records of the batch get the time of appending, under a valid checksum."""
    _, log = open_log(tmp_path, config=LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME))
    info = log.append(batch(b"x", b"y", timestamp=5), leader_epoch=0, now_ms=NOW_MS)
    assert info.log_append_time_ms == info.max_timestamp == NOW_MS
    data = log.read(0, 1 << 20, up_to_offset=2).ranges[0].read()
    check_crc(data, 0, read_header(data))
    assert [record.timestamp for record in read_records(data)] == [NOW_MS, NOW_MS]


@pytest.mark.row("R37")
@pytest.mark.parametrize("target", list(Codec))
@pytest.mark.parametrize("source", list(Codec))
def test_a_topics_compression_wins(tmp_path: Path, source: Codec, target: Codec) -> None:
    """Batches of any codec are stored with compression.type's, their records unchanged."""
    _, log = open_log(tmp_path, config=LogConfig(compression_type=target))
    fill(log, 1)
    sent = batch(b"one" * 50, None, b"three", codec=source, producer_id=9, producer_epoch=1, base_sequence=0)
    log.append(sent, leader_epoch=2, now_ms=NOW_MS)
    data = log.read(1, 1 << 20, up_to_offset=4).ranges[0].read()
    header = read_header(data)
    check_crc(data, 0, header)
    assert (header.codec, header.base_offset, header.producer_id) == (target, 1, 9)
    assert [(record.offset, record.value) for record in read_records(data)] == [
        (1, b"one" * 50),
        (2, None),
        (3, b"three"),
    ]


@pytest.mark.row("R37")
@pytest.mark.parametrize("codec", list(Codec))
def test_the_producers_compression_is_kept(tmp_path: Path, codec: Codec) -> None:
    """compression.type=producer stores what was sent."""
    _, log = open_log(tmp_path)
    log.append(batch(b"one" * 50, codec=codec), leader_epoch=0, now_ms=NOW_MS)
    assert read_header(log.read(0, 1 << 20, up_to_offset=1).ranges[0].read()).codec is codec


def test_a_follower_keeps_the_leaders_bytes(tmp_path: Path) -> None:
    """Offsets and epochs are the leader's, gaps included; a batch cut short is left for the next fetch."""
    _, leader = open_log(tmp_path / "leader")
    fill(leader, 5, leader_epoch=3)
    data = leader.read(0, 1 << 20, up_to_offset=5).ranges[0].read()
    _, follower = open_log(tmp_path / "follower")
    info = follower.append_as_follower(data[:-1])
    assert (info.first_offset, info.last_offset) == (0, 3)
    follower.append_as_follower(data[len(data) // 5 * 4 :])
    assert (tmp_path / "follower/topicone-0/00000000000000000000.log").read_bytes() == data
    assert follower.epochs.entries == [(3, 0)]
    with pytest.raises(KafkaError) as refused:
        follower.append_as_follower(data)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


def test_clients_write_no_control_batches_but_coordinators_do(tmp_path: Path) -> None:
    """A control batch from a client could end another's transaction."""
    _, log = open_log(tmp_path)
    control = marker(1, commit=True)
    with pytest.raises(KafkaError) as refused:
        log.append(bytearray(control), leader_epoch=0, now_ms=NOW_MS)
    assert refused.value.code is ErrorCode.INVALID_RECORD
    log.append(control, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    assert log.log_end_offset == 1


@pytest.mark.row("R03")
def test_a_full_disk_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    """ENOSPC half-way through a write: the torn bytes go, the directory goes offline, a restart finds all the rest."""
    disk = FaultyDisk()
    failed: list[str] = []
    manager, log = open_log(tmp_path, disk=disk, on_directory_failure=failed.append)
    fill(log, 10)
    disk.fail("pwrite", ".log", errno.ENOSPC)
    with pytest.raises(KafkaError, match="No space left") as refused:
        fill(log, 1)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (tmp_path / "topicone-0/00000000000000000000.log").stat().st_size == log.size
    assert failed == [str(tmp_path)] == manager.offline_directories
    assert manager.has_failed
    with pytest.raises(KafkaError) as offline:
        log.read(0, 100, up_to_offset=10)
    assert offline.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert disk.open_files == set()
    manager.abandon()
    again = open_manager(tmp_path).get(TP)
    assert again is not None
    assert [record.offset for record in read_all(again)] == list(range(10))


def test_a_write_that_comes_short_is_taken_back(tmp_path: Path) -> None:
    """A file may grow by half a batch only: that half is gone, and nothing else."""
    _, log = open_log(tmp_path)
    fill(log, 10)
    path, size = tmp_path / "topicone-0/00000000000000000000.log", log.size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 30, hard))
    try:
        with pytest.raises(KafkaError, match="File too large"):
            fill(log, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.stat().st_size == log.size == size


@pytest.mark.skipif(append_ordinary is None, reason="the compiled append was not built (it needs a C compiler)")
def test_a_small_batch_is_written_by_its_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the file itself would write is not asked of it."""
    manager, log = open_log(tmp_path)
    fill(log, 1)
    with monkeypatch.context() as patched:
        patched.setattr(SystemFile, "pwrite", None)
        fill(log, 9)
    manager.close()
    again = open_manager(tmp_path).get(TP)
    assert again is not None
    assert [record.offset for record in read_all(again)] == list(range(10))


@pytest.mark.parametrize(
    ("operation", "file"),
    [
        ("open", "05.log"),
        ("open", "05.index"),
        ("truncate", "05.timeindex"),
        ("pwrite", "05.snapshot"),
        ("pwrite", ".index"),
    ],
)
def test_a_full_disk_in_the_middle_of_a_roll_loses_nothing(tmp_path: Path, operation: str, file: str) -> None:
    """Whatever file of the new segment, or index of the old one, finds no space: with space, the log goes on."""
    disk = FaultyDisk()
    size = len(batch(b"." * 100))
    config = LogConfig(segment_bytes=5 * size, index_interval_bytes=size)
    manager, log = open_log(tmp_path, disk=disk, config=config)
    fill(log, 5)
    disk.fail(operation, file, errno.ENOSPC)
    with pytest.raises(KafkaError, match="No space left") as refused:
        fill(log, 1)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert manager.offline_directories == [str(tmp_path)]
    manager.abandon()
    again = open_manager(tmp_path, config=config).get(TP)
    assert again is not None
    fill(again, 3)
    assert [record.offset for record in read_all(again)] == list(range(8))


def test_too_many_open_files_is_no_failure_of_the_directory(tmp_path: Path) -> None:
    """EMFILE refuses the append, says what to do, and the log serves on."""
    disk = FaultyDisk()
    manager, log = open_log(tmp_path, disk=disk)
    fill(log, 1)
    log.release_files()
    disk.fail("open", ".log", errno.EMFILE)
    with pytest.raises(KafkaError, match="ulimit -n"):
        fill(log, 1)
    disk.fault = lambda _operation, _path: None
    fill(log, 1)
    assert manager.offline_directories == []
    assert log.log_end_offset == 2
