"""Batches: what is built is what is read, and what is wrong is refused with the code that a producer understands."""

from struct import pack_into

import pytest

from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicPartition
from tidelog.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    TimestampType,
    build_batch,
    build_empty_batch,
    check_crc,
    iterate_headers,
    patch,
    read_header,
    read_records,
    recompress,
    seal,
    stamp_log_append_time,
    validate,
)
from tidelog.records.compression import Codec, compress
from tidelog.records.errors import CorruptData, DecompressionBomb, InvalidBatch, RecordError
from tidelog.records.first_record import first_timestamp
from tidelog.records.legacy import build_messages
from tidelog.records.record import Record, encode_records

RECORDS = [
    Record(0, 1000, b"a", b"one", (("trace", b"\x01"), ("trace", None))),
    Record(1, 1005, None, b"two"),
    Record(2, 990, b"c", None),
]
NOW = 10_000


def refusal(data: bytes | bytearray, **options: object) -> InvalidBatch:
    """The error with which `validate` refuses a batch."""
    arguments = {"now_ms": NOW, **options}
    with pytest.raises(InvalidBatch) as raised:
        validate(data, 0, read_header(data), **arguments)  # type: ignore[arg-type]
    return raised.value


def with_header(data: bytes, **changes: int) -> bytearray:
    """The batch with other header fields and a checksum that is right again."""
    buffer = bytearray(data)
    seal(buffer, read_header(data)._replace(**changes))
    return buffer


@pytest.mark.parametrize("codec", list(Codec))
def test_what_is_built_is_read(codec: Codec) -> None:
    """Every codec gives the records back, headers that repeat and nulls included."""
    data = build_batch(RECORDS, codec=codec, producer_id=7, producer_epoch=1, base_sequence=40, transactional=True)
    header = read_header(data)
    assert read_records(data) == RECORDS
    assert (header.size, header.codec, header.last_offset, header.last_sequence) == (len(data), codec, 2, 42)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1005)
    assert header.is_transactional
    assert not header.is_control
    validate(data, 0, header, now_ms=NOW, timestamp_before_max_ms=NOW, timestamp_after_max_ms=0)


def test_a_leader_patches_without_touching_the_checksum() -> None:
    """Base offset and leader epoch are outside the checksum, and all offsets follow the new base."""
    buffer = bytearray(b"??" + build_batch(RECORDS))
    patch(buffer, 2, base_offset=1 << 40, leader_epoch=9)
    header = read_header(buffer, 2)
    check_crc(buffer, 2, header)
    assert (header.base_offset, header.partition_leader_epoch) == (1 << 40, 9)
    assert [record.offset - (1 << 40) for record in read_records(buffer, 2)] == [0, 1, 2]


def test_log_append_time_replaces_every_timestamp() -> None:
    """The broker's stamp shows as the timestamp of all records, under a renewed checksum."""
    buffer = bytearray(build_batch(RECORDS, codec=Codec.GZIP))
    stamp_log_append_time(buffer, 0, read_header(buffer), 77_000)
    header = read_header(buffer)
    check_crc(buffer, 0, header)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert {record.timestamp for record in read_records(buffer)} == {77_000}


def test_recompression_keeps_everything_else() -> None:
    """A topic's own codec changes the bytes of the records' section and nothing that is read."""
    data = build_batch(RECORDS, codec=Codec.SNAPPY, base_offset=5000, last_offset=5009, partition_leader_epoch=3)
    other = recompress(data, 0, read_header(data), Codec.ZSTD, level=7)
    check_crc(other, 0, read_header(other))
    assert read_header(other).codec is Codec.ZSTD
    assert read_records(other) == read_records(data)
    assert read_header(other)._replace(length=0, crc=0, attributes=0) == read_header(data)._replace(
        length=0, crc=0, attributes=0
    )


def test_sequences_wrap() -> None:
    """After 2147483647 comes 0."""
    header = read_header(build_batch(RECORDS, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))
    assert header.last_sequence == 0
    assert read_header(build_batch(RECORDS)).last_sequence == -1


def test_an_empty_batch_keeps_its_place() -> None:
    """Compaction's batch without records spans the offsets and sequences that were."""
    data = build_empty_batch(base_offset=10, last_offset=19, timestamp=500, producer_id=1, base_sequence=100)
    header = read_header(data)
    assert (header.last_offset, header.last_sequence, header.records_count) == (19, 109, 0)
    assert read_records(data) == []
    with pytest.raises(ValueError, match="needs a record"):
        build_batch([])


def test_a_delete_horizon_is_the_base_of_the_timestamps() -> None:
    """With KIP-534's bit set the stored base timestamp is the horizon, and the records keep their own times."""
    header = read_header(data := build_batch(RECORDS, delete_horizon_ms=123_456))
    assert header.delete_horizon_ms == 123_456
    assert read_records(data) == RECORDS
    assert read_header(build_batch(RECORDS)).delete_horizon_ms is None


def test_headers_are_iterated_up_to_a_partial_tail() -> None:
    """Whole batches come with their positions; one that is cut short, wherever, is left out."""
    first, second = build_batch(RECORDS), build_batch(RECORDS[:1], base_offset=0)
    data = first + second
    for cut in range(len(first), len(data)):
        assert [position for position, _ in iterate_headers(data[:cut])] == [0]
    assert [(position, header.size) for position, header in iterate_headers(data)] == [
        (0, len(first)),
        (len(first), len(second)),
    ]
    assert [position for position, _ in iterate_headers(data, len(first))] == [len(first)]
    assert [position for position, _ in iterate_headers(data, 0, len(first))] == [0]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("value_size", [0, 100])
def test_old_message_sets_are_refused_with_their_own_code(magic: int, value_size: int) -> None:
    """Magic 0 and 1, short or long, are named as what they are."""
    data = build_messages([Record(0, 5, None, bytes(value_size))], magic=magic)
    for read in (read_header, lambda data: list(iterate_headers(data))):
        with pytest.raises(InvalidBatch, match=f"message format {magic}") as raised:
            read(data)
        assert raised.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


@pytest.mark.parametrize(
    ("position", "layout", "value"), [(16, "b", 3), (16, "b", -1), (8, ">i", 48), (8, ">i", -5), (8, ">i", 0)]
)
def test_a_header_that_leads_astray_is_corrupt(position: int, layout: str, value: int) -> None:
    """An unknown magic, and a length that does not hold a header (it would make a reader loop), are refused."""
    data = bytearray(build_batch(RECORDS))
    pack_into(layout, data, position, value)
    for read in (read_header, lambda data: list(iterate_headers(data))):
        with pytest.raises(InvalidBatch) as raised:
            read(data)
        assert raised.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_short_buffer_is_corrupt() -> None:
    """Fewer bytes than a header, or than the length says, are refused."""
    data = build_batch(RECORDS)
    for size in (0, 16, 17, HEADER_SIZE - 1):
        with pytest.raises(InvalidBatch, match="cut short"):
            read_header(data[:size])
    assert refusal(data[:-1]).code is ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(InvalidBatch, match="cut short"):
        read_records(data[:-1])


def test_any_changed_bit_under_the_checksum_is_found() -> None:
    """Flipping one bit of any byte from the attributes on is CORRUPT_MESSAGE, which producers retry."""
    data = build_batch(RECORDS)
    for index in range(17, len(data)):
        damaged = bytearray(data)
        damaged[index] ^= 4
        error = refusal(damaged)
        assert error.code is ErrorCode.CORRUPT_MESSAGE
        assert error.code.retriable


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"attributes": 0x20}, "Clients are not allowed to write control records"),
        ({"records_count": 0, "last_offset_delta": 0}, "Invalid reported count"),
        ({"last_offset_delta": 7}, "Inconsistent batch offset range"),
        ({"last_offset_delta": 1}, "cannot span"),
        ({"last_offset_delta": -1, "records_count": 0}, "cannot span"),
        ({"producer_id": 5, "producer_epoch": 0, "base_sequence": -1}, "Invalid sequence number"),
        ({"producer_id": 5, "producer_epoch": -1, "base_sequence": 0}, "Invalid sequence number"),
        ({"records_count": 4, "last_offset_delta": 3}, "record 3 of 4"),
        ({"records_count": 2, "last_offset_delta": 1}, "bytes are left after the 2 records"),
    ],
)
def test_a_header_that_contradicts_itself_is_an_invalid_record(changes: dict[str, int], words: str) -> None:
    """Count, offsets, sequence and kind must agree; the checksum being right, a retry would not help."""
    error = refusal(with_header(build_batch(RECORDS), **changes))
    assert error.code is ErrorCode.INVALID_RECORD
    assert words in str(error)


def test_an_unknown_codec_has_its_own_code() -> None:
    """Attribute bits 5 to 7 name no codec."""
    for bits in (5, 6, 7):
        error = refusal(with_header(build_batch(RECORDS), attributes=bits))
        assert error.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_timestamps_out_of_bounds_are_refused(codec: Codec) -> None:
    """Too old or too new is INVALID_TIMESTAMP; with log append time the producer's times do not matter."""
    records = [Record(0, NOW - 500, None, b""), Record(1, NOW + 500, None, b"")]
    data = build_batch(records, codec=codec)
    validate(data, 0, read_header(data), now_ms=NOW, timestamp_before_max_ms=500, timestamp_after_max_ms=500)
    assert refusal(data, timestamp_before_max_ms=499).code is ErrorCode.INVALID_TIMESTAMP
    assert refusal(data, timestamp_after_max_ms=499).code is ErrorCode.INVALID_TIMESTAMP
    validate(
        data, 0, read_header(data), now_ms=NOW, timestamp_after_max_ms=0, timestamp_type=TimestampType.LOG_APPEND_TIME
    )
    validate(data, 0, read_header(data), now_ms=NOW, timestamp_after_max_ms=0, from_client=False)


def test_a_record_without_a_timestamp_is_not_too_old() -> None:
    """-1 is "none given", not 1969."""
    data = build_batch([Record(0, -1, None, b"")])
    validate(data, 0, read_header(data), now_ms=NOW, timestamp_before_max_ms=0)


def test_a_client_may_not_stamp_for_the_broker() -> None:
    """Log append time in a produced batch is INVALID_TIMESTAMP; Kafka refuses it where the topic stamps, too."""
    assert refusal(build_batch(RECORDS, log_append_time=5)).code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_compacted_topics_need_keys(codec: Codec) -> None:
    """`keys_required` opens even a compressed batch, and names each record without a key (KIP-467)."""
    data = build_batch(RECORDS, codec=codec)
    validate(data, 0, read_header(data), now_ms=NOW)
    error = refusal(data, keys_required=True)
    assert error.code is ErrorCode.INVALID_RECORD
    assert error.record_errors == [RecordError(1, "Compacted topic cannot accept message without key")]
    assert "due to 1 record errors in total" in str(error)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_each_record_at_fault_is_named(codec: Codec) -> None:
    """A missing key goes before a wrong timestamp; one wrong timestamp makes the batch's error INVALID_TIMESTAMP."""
    times = [(NOW, None), (NOW - 6, b"k"), (NOW, b"k"), (NOW + 6, None), (NOW + 6, b"k"), (-1, b"k")]
    data = build_batch([Record(index, time, key, b"") for index, (time, key) in enumerate(times)], codec=codec)
    place = TopicPartition("t", 3)
    bounds = {"timestamp_before_max_ms": 5, "timestamp_after_max_ms": 5, "topic_partition": place}
    error = refusal(data, keys_required=True, **bounds)
    keyless = "Compacted topic cannot accept message without key in topic partition t-3"
    span = f"is out of range. The timestamp should be within [{NOW - 5}, {NOW + 5}]"
    assert (error.code, error.message) == (
        ErrorCode.INVALID_TIMESTAMP,
        "One or more records have been rejected due to invalid timestamp",
    )
    assert error.record_errors == [
        (0, keyless),
        (1, f"Timestamp {NOW - 6} of message with offset 1 {span}"),
        (3, keyless),
        (4, f"Timestamp {NOW + 6} of message with offset 4 {span}"),
    ]
    assert [index for index, _ in refusal(data, **bounds).record_errors] == [1, 3, 4]


def test_a_message_shows_three_errors_at_most() -> None:
    """However many records are at fault; each of them is named in `record_errors`."""
    data = build_batch([Record(index, NOW, None, b"") for index in range(5)])
    error = refusal(data, keys_required=True)
    assert len(error.record_errors) == 5
    assert str(error).count("RecordError(") == 3


def test_of_very_many_records_at_fault_the_first_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are counted; which records are at fault is found without an object for each record."""
    monkeypatch.setattr("tidelog.records.record_errors.NAMED_MAX", 2)
    monkeypatch.setattr("tidelog.records.record.Record", None)
    data = build_batch([Record(index, NOW, None, b"") for index in range(5)])
    error = refusal(data, keys_required=True)
    assert [index for index, _ in error.record_errors] == [0, 1]
    assert "due to 5 record errors in total" in str(error)
    data = build_batch([Record(index, NOW + 9 * (index == 4), None, b"") for index in range(5)])
    error = refusal(data, keys_required=True, timestamp_after_max_ms=5)
    assert (error.code, len(error.record_errors)) == (ErrorCode.INVALID_RECORD, 2)


def test_the_time_at_an_offset_is_found_without_the_other_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a batch, compressed too, none is made an object for that: a client's may have millions."""
    records = [Record(index, NOW + index, None, b"") for index in range(5)]
    monkeypatch.setattr("tidelog.records.batch.decode_records", None)
    for codec in (Codec.NONE, Codec.ZSTD):
        data = build_batch(records, codec=codec)
        assert first_timestamp(data, 3) == (NOW + 3, 5)
        assert first_timestamp(bytes(data) + bytes(data[:70]), 3) == (NOW + 3, 5)
        assert first_timestamp(data, 5) == (None, 5)


def test_a_record_without_a_timestamp_hides_none_that_is_too_old() -> None:
    """Though the least timestamp of the batch is -1."""
    data = build_batch([Record(0, -1, None, b""), Record(1, 5, None, b"")])
    assert [index for index, _ in refusal(data, timestamp_before_max_ms=9).record_errors] == [1]
    validate(data, 0, read_header(data), now_ms=NOW, timestamp_before_max_ms=NOW)


def test_a_compressed_header_that_lies_about_its_time() -> None:
    """The time index would believe it: refused, though no record is at fault; the base is no record's time."""
    data = build_batch([Record(0, NOW, None, b"")], codec=Codec.LZ4)
    error = refusal(with_header(data, max_timestamp=NOW + 6), timestamp_after_max_ms=5)
    assert (error.code, error.record_errors) == (ErrorCode.INVALID_TIMESTAMP, ())


def test_offsets_inside_must_follow_one_another() -> None:
    """A produced batch with a gap in its offset deltas is refused."""
    section = encode_records([Record(0, 0, None, b""), Record(2, 0, None, b""), Record(3, 0, None, b"")], 0, 0)
    buffer = bytearray(HEADER_SIZE) + section
    seal(buffer, read_header(build_batch(RECORDS)))
    assert "an offset delta of 2, 1 expected" in str(refusal(buffer))


def test_a_compressed_batch_is_opened_only_when_asked() -> None:
    """What is wrong inside stays unseen by default (documented), and is found with a bound for decompression."""
    section = compress(Codec.GZIP, b"no records at all")
    buffer = bytearray(HEADER_SIZE) + section
    seal(buffer, read_header(build_batch(RECORDS, codec=Codec.GZIP)))
    validate(buffer, 0, read_header(buffer), now_ms=NOW)
    assert isinstance(refusal(buffer, decompressed_size_max=1000), CorruptData)
    bomb = bytearray(HEADER_SIZE) + compress(Codec.GZIP, bytes(1_000_000))
    seal(bomb, read_header(build_batch(RECORDS, codec=Codec.GZIP)))
    assert isinstance(refusal(bomb, decompressed_size_max=1000), DecompressionBomb)


def test_control_batches_of_the_broker_itself_pass() -> None:
    """What does not come from a client may be a control batch, and may have gaps from compaction."""
    data = build_batch([Record(3, 0, b"\0\0\0\1", b"\0\0\0\0\0\0")], base_offset=0, last_offset=9, control=True)
    validate(data, 0, read_header(data), now_ms=NOW, from_client=False)


def test_header_fields_are_where_the_format_has_them() -> None:
    """A header written field by field is read field by field."""
    header = BatchHeader(1, 49, 2, 2, 0, 0x7B, 3, 4, 5, 6, 7, 8, 0)
    buffer = bytearray(HEADER_SIZE)
    seal(buffer, header)
    read = read_header(buffer)
    assert read == header._replace(crc=read.crc)
    assert (read.is_control, read.is_transactional, read.codec) == (True, True, Codec.LZ4)
