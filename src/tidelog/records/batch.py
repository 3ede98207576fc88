"""Record batches, format v2 (KIP-98): the unit that producers send, logs store and consumers fetch.

    0  base offset int64        16 magic int8 = 2              27 base timestamp int64     51 producer epoch int16
    8  length int32             17 CRC32C uint32, of 21..end   35 max timestamp int64      53 base sequence int32
    12 leader epoch int32       21 attributes int16            43 producer id int64        57 record count int32
                                23 last offset delta int32                                 61 records

`length` counts from byte 12. The checksum leaves out base offset and leader epoch, which the leader patches into the
bytes as they came. Everything here that runs once a batch is constant work in Python: the header is unpacked by one
call into a tuple, the checksum and the walk over records are C.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final

from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicPartition
from tidelog.ports.disk import Bytes
from tidelog.records import implementation
from tidelog.records.batch_header import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    SIZE_PREFIX,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    TimestampType,
)
from tidelog.records.checksum import crc32c
from tidelog.records.compression import DECOMPRESSED_SIZE_MAX, Codec, check_codec, compress, decompress
from tidelog.records.errors import CorruptData, DecompressionBomb, InvalidBatch
from tidelog.records.implementation import scan_records
from tidelog.records.record import NO_TIMESTAMP, Header, Record, decode_records, encode_records
from tidelog.records.record_errors import RecordRules, may_be_out_of_range

__all__ = [
    "HEADER_SIZE",
    "BatchHeader",
    "Codec",
    "CorruptData",
    "DecompressionBomb",
    "Header",
    "InvalidBatch",
    "Record",
    "TimestampType",
    "assemble",
    "build_batch",
    "build_empty_batch",
    "check_crc",
    "find_timestamp",
    "iterate_headers",
    "patch",
    "read_header",
    "read_records",
    "recompress",
    "records_section",
    "restore",
    "seal",
    "set_max_timestamp",
    "stamp_log_append_time",
    "validate",
]

MAGIC: Final = 2
MAGIC_POSITION: Final = 16
"""Where every format, old ones too, keeps its number."""
CRC_POSITION: Final = 17
CRC_START: Final = 21
"""First byte under the checksum."""

_OFFSET_DELTA_END: Final = 1 << 31
"""No record's offset delta is as large."""
_HEADER: Final = Struct(">qiibIhiqqqhii")
_CHECKED: Final = Struct(">hiqqqhii")
"""What the checksum covers of the header."""
_BASE_OFFSET: Final = Struct(">q")
_LEADER_EPOCH: Final = Struct(">i")
_CRC: Final = Struct(">I")
_ATTRIBUTES: Final = Struct(">h")
_TIMESTAMP: Final = Struct(">q")
assert _HEADER.size == HEADER_SIZE


def first_base_offset(data: bytes | bytearray | memoryview) -> int:
    """Base offset of the batch with which `data` begins; -1 where there are fewer bytes than that takes."""
    return int(_BASE_OFFSET.unpack_from(data)[0]) if len(data) >= _BASE_OFFSET.size else -1


def read_header(buffer: Bytes, position: int = 0) -> BatchHeader:
    """The header of the batch at `position`.

    Only what keeps a reader from going astray is checked: the magic, and a length that holds at least a header.
    `InvalidBatch`: UNSUPPORTED_FOR_MESSAGE_FORMAT for the message sets of old clients, CORRUPT_MESSAGE otherwise.
    """
    if len(buffer) - position < HEADER_SIZE or buffer[position + MAGIC_POSITION] != MAGIC:
        raise _no_header(buffer, position)
    header = BatchHeader._make(_HEADER.unpack_from(buffer, position))
    if header.length < HEADER_SIZE - SIZE_PREFIX:
        raise _too_small(header)
    return header


def iterate_headers(buffer: Bytes, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """Each whole batch between `position` and `end` (None: the end of `buffer`), with where it begins.

    A batch that is cut short at the end is left out, as a fetch may end with one; `read_header`'s errors otherwise.
    """
    if end is None:
        end = len(buffer)
    while end - position >= HEADER_SIZE:
        if buffer[position + MAGIC_POSITION] != MAGIC:
            raise _no_header(buffer, position)
        header = BatchHeader._make(_HEADER.unpack_from(buffer, position))
        if header.length < HEADER_SIZE - SIZE_PREFIX:
            raise _too_small(header)
        following = position + header.length + SIZE_PREFIX
        if following > end:
            return
        yield position, header
        position = following
    if end - position > MAGIC_POSITION and buffer[position + MAGIC_POSITION] < MAGIC:
        raise _no_header(buffer, position)


def check_crc(buffer: Bytes, position: int, header: BatchHeader) -> None:
    """`InvalidBatch` (CORRUPT_MESSAGE) when the stored checksum is not that of the bytes, or bytes are missing."""
    end = position + header.length + SIZE_PREFIX
    if end > len(buffer):
        raise InvalidBatch(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch is cut short: {len(buffer) - position} of {header.size} bytes are there",
        )
    computed = crc32c(memoryview(buffer)[position + CRC_START : end])
    if computed != header.crc:
        raise InvalidBatch(
            ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {header.crc}, computed crc = {computed})"
        )


def validate(
    buffer: Bytes,
    position: int,
    header: BatchHeader,
    *,
    now_ms: int,
    from_client: bool = True,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    timestamp_before_max_ms: int | None = None,
    timestamp_after_max_ms: int | None = None,
    keys_required: bool = False,
    decompressed_size_max: int | None = None,
    refused_size_max: int = DECOMPRESSED_SIZE_MAX,
    topic_partition: TopicPartition | None = None,
) -> int:
    """Checks a batch before it is appended; raises `InvalidBatch`, whose code is the answer to the producer.

    Gives the greatest timestamp of its records, -1 where none has one; of records that are not looked at what the
    header says.

    Always: bytes all there, checksum, codec, offsets and count that agree (constant work in Python). A client's batch
    moreover may be no control batch, and of an idempotent producer must have a sequence. Then its records: an
    uncompressed batch's are walked over in C for their shape, their consecutive offsets, their timestamps and
    (`keys_required`, for compacted topics) their keys. A compressed batch is opened for the same only where
    `decompressed_size_max` (bytes) is given or `keys_required` is set: Kafka always opens it, which costs more than
    all the rest of an append; without it the header's own timestamps are judged, and a reader finds what is wrong
    inside. A batch whose header is out of range is opened, up to `refused_size_max` bytes, to find the records at
    fault: `InvalidBatch.record_errors` names each record that has no key, or a timestamp out of range.

    `timestamp_type` is the topic's; with LOG_APPEND_TIME timestamps are not judged. The bounds are
    `message.timestamp.before.max.ms` and `message.timestamp.after.max.ms`, None for none. Messages name
    `topic_partition`.
    """
    check_crc(buffer, position, header)
    codec = check_codec(header.attributes)
    if header.last_offset_delta < 0 or header.records_count < 0 or header.last_offset_delta < header.records_count - 1:
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD,
            f"a batch of {header.records_count} records cannot span {header.last_offset_delta + 1} offsets",
        )
    if not from_client:
        return header.max_timestamp
    _check_client_header(header)
    judge_time = timestamp_type is TimestampType.CREATE_TIME
    lowest = now_ms - timestamp_before_max_ms if judge_time and timestamp_before_max_ms is not None else None
    highest = now_ms + timestamp_after_max_ms if judge_time and timestamp_after_max_ms is not None else None
    if codec is not Codec.NONE and not keys_required and decompressed_size_max is None:
        if may_be_out_of_range(header.base_timestamp, header.max_timestamp, lowest, highest):
            section = records_section(buffer, position, header, size_max=refused_size_max)
            RecordRules(lowest, highest, keys_required, topic_partition).check(section, header)
            _check_max_timestamp(header, highest)
        return header.max_timestamp
    if codec is Codec.NONE:
        section = memoryview(buffer)[position + HEADER_SIZE : position + header.size]
    else:
        section = records_section(buffer, position, header, size_max=decompressed_size_max or DECOMPRESSED_SIZE_MAX)
    earliest, latest, null_keys = scan_records(section, header.records_count, header.base_timestamp)
    if (keys_required and null_keys) or may_be_out_of_range(earliest, latest, lowest, highest):
        RecordRules(lowest, highest, keys_required, topic_partition).check(section, header)
    return max(latest, NO_TIMESTAMP)


def _check_max_timestamp(header: BatchHeader, highest: int | None) -> None:
    """What the time index would say of a compressed batch whose records are in order."""
    if highest is not None and header.max_timestamp > highest:
        raise InvalidBatch(
            ErrorCode.INVALID_TIMESTAMP,
            f"The batch's greatest timestamp {header.max_timestamp} is none of its records', and out of range:"
            f" {highest} at most",
        )


def _check_client_header(header: BatchHeader) -> None:
    if header.is_control:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, "Clients are not allowed to write control records")
    if header.records_count < 1:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, f"Invalid reported count for record batch: {header.records_count}")
    if header.last_offset_delta != header.records_count - 1:
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD,
            f"Inconsistent batch offset range [{header.base_offset}, {header.last_offset}] and count of records"
            f" {header.records_count}",
        )
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD,
            f"Invalid sequence number {header.base_sequence} (epoch {header.producer_epoch}) in record batch with"
            f" producerId {header.producer_id}",
        )
    if header.attributes & TIMESTAMP_TYPE_BIT:
        raise InvalidBatch(
            ErrorCode.INVALID_TIMESTAMP,
            "Producer should not set timestamp type to LogAppendTime: it is the topic's setting",
        )


def patch(buffer: bytearray | memoryview, position: int, *, base_offset: int, leader_epoch: int) -> None:
    """Writes what only the leader knows into a batch; the checksum does not cover it."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + SIZE_PREFIX, leader_epoch)


def restore(buffer: bytearray | memoryview, position: int, header: BatchHeader) -> None:
    """Writes a whole header, so that a batch is again what it was before `patch` and `stamp_log_append_time`."""
    _HEADER.pack_into(buffer, position, *header)


def stamp_log_append_time(buffer: bytearray | memoryview, position: int, header: BatchHeader, timestamp: int) -> None:
    """Sets log append time: all records of the batch now have `timestamp` (milliseconds); the checksum is renewed."""
    _ATTRIBUTES.pack_into(buffer, position + CRC_START, header.attributes | TIMESTAMP_TYPE_BIT)
    _TIMESTAMP.pack_into(buffer, position + 35, timestamp)
    _renew_crc(buffer, position, header.size)


def set_max_timestamp(buffer: bytearray | memoryview, position: int, header: BatchHeader, timestamp: int) -> None:
    """Writes the greatest timestamp of the records (milliseconds) into the header; the checksum is renewed."""
    _TIMESTAMP.pack_into(buffer, position + 35, timestamp)
    _renew_crc(buffer, position, header.size)


def _renew_crc(buffer: bytearray | memoryview, position: int, size: int) -> None:
    _CRC.pack_into(buffer, position + CRC_POSITION, crc32c(memoryview(buffer)[position + CRC_START : position + size]))


def records_section(
    buffer: Bytes, position: int, header: BatchHeader, *, size_max: int = DECOMPRESSED_SIZE_MAX
) -> bytes | bytearray | memoryview:
    """The records of a batch, decompressed; a view without a copy where they were not compressed.

    `DecompressionBomb` past `size_max` bytes; `CorruptData` if the codec cannot read them.
    """
    section = memoryview(buffer)[position + HEADER_SIZE : position + header.size]
    codec = check_codec(header.attributes)
    if codec is Codec.NONE:
        return section
    if header.records_count == 0 and not section:
        return section  # Compaction leaves batches without records, whatever their codec was.
    return decompress(codec, section, size_max=size_max)


def read_records(buffer: Bytes, position: int = 0, *, size_max: int = DECOMPRESSED_SIZE_MAX) -> list[Record]:
    """The records of the batch at `position`, whose checksum the caller has to check (`check_crc`).

    For control data and tools; for many records use `tidelog.records.columns`. Raises `InvalidBatch`.
    """
    header = read_header(buffer, position)
    if position + header.size > len(buffer):
        raise InvalidBatch(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch is cut short: {len(buffer) - position} of {header.size} bytes are there",
        )
    section = records_section(buffer, position, header, size_max=size_max)
    stamp = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    return list(decode_records(section, header.records_count, header.base_offset, header.base_timestamp, stamp))


def find_timestamp(
    buffer: Bytes, timestamp: int, start_offset: int, *, size_max: int = DECOMPRESSED_SIZE_MAX
) -> tuple[int, int] | None:
    """Timestamp and offset of the first record of the batch in `buffer` that is as late as `timestamp`, at
    `start_offset` or behind; None if there is none. The checksum is the caller's affair. Raises `InvalidBatch`.
    """
    header = read_header(buffer)
    section = records_section(buffer, 0, header, size_max=size_max)
    stamp = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    offset_delta = min(max(start_offset - header.base_offset, 0), _OFFSET_DELTA_END)
    found = implementation.find_timestamp(
        section, header.records_count, header.base_timestamp, stamp, timestamp, offset_delta
    )
    return None if found is None else (found[1], header.base_offset + found[0])


def read_pairs(
    buffer: Bytes, position: int, header: BatchHeader, *, size_max: int = DECOMPRESSED_SIZE_MAX
) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset less the batch's base offset, key and value of each record of a batch, whose checksum is the caller's
    affair: what is wanted of many small batches at once. Raises `InvalidBatch`.
    """
    section = records_section(buffer, position, header, size_max=size_max)
    return implementation.read_pairs(section, header.records_count, header.last_offset_delta)


def recompress(
    buffer: Bytes,
    position: int,
    header: BatchHeader,
    codec: Codec,
    level: int | None = None,
    *,
    size_max: int = DECOMPRESSED_SIZE_MAX,
) -> bytes:
    """The batch with its records compressed by another codec, all else as it was; no record is decoded.

    `DecompressionBomb` when they take more than `size_max` bytes; `CorruptData` if their codec cannot read them.
    """
    section = records_section(buffer, position, header, size_max=size_max)
    attributes = header.attributes & ~7 | codec
    return assemble(header._replace(attributes=attributes), compress(codec, section, level))


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int | None = None,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    partition_leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time: int | None = None,
    delete_horizon_ms: int | None = None,
    last_offset: int | None = None,
) -> bytes:
    """A batch of `records`, which must be in order of offset and at least one (see `build_empty_batch`).

    `base_offset` is the first record's offset if None; `last_offset` may lie past the last record's (compaction).
    `log_append_time` (milliseconds) makes it a batch of that timestamp type; `level` is the codec's.
    """
    records = list(records)
    if not records:
        raise ValueError("a batch needs a record; compaction's empty batches are built by build_empty_batch")
    base_offset = records[0].offset if base_offset is None else base_offset
    last_offset = records[-1].offset if last_offset is None else last_offset
    base_timestamp = records[0].timestamp if delete_horizon_ms is None else delete_horizon_ms
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        partition_leader_epoch=partition_leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=_attributes(
            codec, transactional, control, log_append_time is not None, delete_horizon_ms is not None
        ),
        last_offset_delta=last_offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp for record in records) if log_append_time is None else log_append_time,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=len(records),
    )
    return assemble(header, compress(codec, encode_records(records, base_offset, base_timestamp), level))


def wrap_records(body: bytes, count: int, *, timestamp: int, codec: Codec = Codec.NONE) -> bytes:
    """A batch whose record section is there: `count` records at offsets 0, 1, ..., all of the batch's `timestamp`."""
    header = BatchHeader(
        base_offset=0,
        length=0,
        partition_leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=int(codec),
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=count,
    )
    return assemble(header, compress(codec, body))


def build_empty_batch(
    *,
    base_offset: int,
    last_offset: int,
    timestamp: int,
    partition_leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """What compaction leaves of a producer's last batch when all its records went, so that its sequence is
    remembered.
    """
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        partition_leader_epoch=partition_leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=_attributes(
            Codec.NONE, transactional, control, timestamp_type is TimestampType.LOG_APPEND_TIME, delete_horizon=False
        ),
        last_offset_delta=last_offset - base_offset,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=0,
    )
    return assemble(header, b"")


def _attributes(codec: Codec, transactional: bool, control: bool, log_append_time: bool, delete_horizon: bool) -> int:
    return (
        codec
        | (TIMESTAMP_TYPE_BIT if log_append_time else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
        | (DELETE_HORIZON_BIT if delete_horizon else 0)
    )


def assemble(header: BatchHeader, section: Bytes) -> bytes:
    """The bytes of a batch, with length and checksum as they must be, whatever `header` says of them."""
    return b"".join((_sealed_header(header, section), section))


def seal(buffer: bytearray | memoryview, header: BatchHeader) -> None:
    """As `assemble`, in place: `buffer` holds the records behind HEADER_SIZE bytes of room."""
    buffer[:HEADER_SIZE] = _sealed_header(header, memoryview(buffer)[HEADER_SIZE:])


def _sealed_header(header: BatchHeader, section: Bytes) -> bytes:
    return _HEADER.pack(
        header.base_offset,
        HEADER_SIZE - SIZE_PREFIX + len(section),
        header.partition_leader_epoch,
        header.magic,
        crc32c(section, crc32c(_CHECKED.pack(*header[5:]))),
        *header[5:],
    )


def _no_header(buffer: Bytes, position: int) -> InvalidBatch:
    remaining = len(buffer) - position
    if remaining <= MAGIC_POSITION:
        return InvalidBatch(
            ErrorCode.CORRUPT_MESSAGE, f"the header of a batch is cut short after {max(remaining, 0)} bytes"
        )
    magic = buffer[position + MAGIC_POSITION]
    if magic < MAGIC:
        return InvalidBatch(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"message format {magic} of clients before Kafka 0.11 is not supported; send record batches (format 2)",
        )
    if magic > MAGIC:
        return InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"a batch of unknown format {magic}; format 2 is expected")
    return InvalidBatch(
        ErrorCode.CORRUPT_MESSAGE, f"the header of a batch is cut short: {remaining} of {HEADER_SIZE} bytes are there"
    )


def _too_small(header: BatchHeader) -> InvalidBatch:
    return InvalidBatch(
        ErrorCode.CORRUPT_MESSAGE,
        f"Record batch is corrupted (the size {header.size} is smaller than the minimum"
        f" allowed overhead {HEADER_SIZE})",
    )
