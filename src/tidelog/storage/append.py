"""From the bytes of a producer or a leader to batches that may be written: checked, given offsets, patched in place.

Per batch this is constant work in Python; the bytes are only touched by C (checksum, and compression where the topic
asks for another codec than the producer's).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import NO_LEADER_EPOCH
from tidelog.records.batch import (
    BatchHeader,
    InvalidBatch,
    TimestampType,
    check_crc,
    iterate_headers,
    patch,
    read_header,
    read_records,
    recompress,
    set_max_timestamp,
    stamp_log_append_time,
    validate,
)
from tidelog.records.control import ControlRecordType, control_type, decode_end_txn_marker
from tidelog.storage.log_config import LONG_MAX, LogConfig
from tidelog.storage.offset_index import NO_TIMESTAMP
from tidelog.storage.producer_state import AppendOrigin

if TYPE_CHECKING:
    from tidelog.model.identifiers import TopicPartition
    from tidelog.records.control import EndTxnMarker


POSITIONS_KEPT: Final = 32
"""Places of recent batches remembered, so that readers at the end of the log need no index."""
DECOMPRESSED_RATIO_MAX: Final = 32
"""A compressed batch that must be opened, or compressed anew, may grow to so many times max.message.bytes."""
_DECOMPRESSED_MIN: Final = 16 << 20
"""Bytes that it may grow to in any case: honest batches of topics whose max.message.bytes is small."""


class AppendInfo(NamedTuple):
    """What became of an append."""

    first_offset: int
    """-1 when nothing was there to append."""
    last_offset: int
    max_timestamp: int
    """Largest timestamp of the batches, milliseconds since 1970; -1 if they have none."""
    log_append_time_ms: int
    """-1 where the topic keeps the producers' timestamps; of a duplicate, the timestamp remembered with it."""
    log_start_offset: int
    duplicate: bool
    """Whether the batch had been appended before; then the offsets are those of the first time."""
    records_count: int
    size: int
    """Bytes written."""
    rolled: bool = False
    """Whether a new segment was begun."""


class Prepared(NamedTuple):
    """Batches ready to be written."""

    data: bytes | bytearray | memoryview
    batches: list[tuple[int, BatchHeader]]
    """Position in `data`, and header with final offsets."""
    max_timestamp: int


def writable(data: bytes | bytearray | memoryview) -> bytearray | memoryview:
    """`data` itself where it may be patched in place, a copy otherwise."""
    if isinstance(data, bytearray):
        return data
    if isinstance(data, memoryview) and not data.readonly:
        return data
    return bytearray(data)


def client_batches(
    buffer: bytearray | memoryview,
    topic_partition: TopicPartition,
    config: LogConfig,
    *,
    now_ms: int,
    origin: AppendOrigin,
) -> tuple[list[tuple[int, BatchHeader]], list[int]]:
    """The whole batches in `buffer`, each of them good to append, and the greatest timestamp of each one's records;
    offsets are still the producer's. Raises `KafkaError`."""
    batches = list(iterate_headers(buffer))
    if not batches:
        raise InvalidBatch(
            ErrorCode.CORRUPT_MESSAGE, f"no whole record batch in the {len(buffer)} bytes for {topic_partition}"
        )
    from_client = origin is AppendOrigin.CLIENT
    before_max: int | None = config.message_timestamp_before_max_ms
    after_max: int | None = config.message_timestamp_after_max_ms
    size_max = decompressed_size_max(config)
    # No header tells of a missing key, nor of the oldest record.
    is_opened = from_client and (config.compacted or before_max != LONG_MAX)
    timestamps = []
    for position, header in batches:
        if from_client and header.base_offset != 0:
            # The leader gives offsets. As in Kafka, nothing else about the batch is judged before this.
            raise InvalidBatch(
                ErrorCode.INVALID_RECORD,
                f"The baseOffset of the record batch in the append to {topic_partition} should be 0, but it is"
                f" {header.base_offset}",
            )
        if header.size > config.max_message_bytes:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"The record batch size in the append to {topic_partition} is {header.size} bytes which"
                f" exceeds the maximum configured value of {config.max_message_bytes}.",
            )
        timestamp = validate(
            buffer,
            position,
            header,
            now_ms=now_ms,
            from_client=from_client,
            timestamp_type=config.message_timestamp_type,
            timestamp_before_max_ms=None if before_max == LONG_MAX else before_max,
            timestamp_after_max_ms=None if after_max == LONG_MAX else after_max,
            keys_required=from_client and config.compacted,
            decompressed_size_max=size_max if is_opened else None,
            refused_size_max=size_max,
            topic_partition=topic_partition,
        )
        timestamps.append(timestamp)
    return batches, timestamps


def decompressed_size_max(config: LogConfig) -> int:
    """Bytes that a batch may grow to while it is judged: an append runs on the loop, and must not stall it."""
    return max(DECOMPRESSED_RATIO_MAX * config.max_message_bytes, _DECOMPRESSED_MIN)


def assign_offsets(
    buffer: bytearray | memoryview,
    batches: list[tuple[int, BatchHeader]],
    timestamps: list[int],
    topic_partition: TopicPartition,
    config: LogConfig,
    *,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
) -> Prepared:
    """Gives the batches their offsets and epoch, and what the topic says on timestamps and compression.

    `timestamps` are the greatest of each one's records: retention goes by what the header says, and a client may have
    left that out.
    """
    stamp = config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    target = config.compression_type
    if target is not None and any(header.attributes & 7 != target and not header.is_control for _, header in batches):
        parts = []
        level, size_max = config.compression_level(target), decompressed_size_max(config)
        for position, header in batches:
            if header.attributes & 7 != target and not header.is_control:
                part = recompress(buffer, position, header, target, level, size_max=size_max)
                if len(part) > config.max_message_bytes:
                    raise KafkaError(
                        ErrorCode.MESSAGE_TOO_LARGE,
                        f"Message batch size is {len(part)} bytes in append to partition {topic_partition}"
                        f" once compressed by"
                        f" {target.name}, which exceeds the maximum configured size of {config.max_message_bytes}.",
                    )
                parts.append(part)
            else:
                parts.append(bytes(buffer[position : position + header.size]))
        buffer = bytearray().join(parts)
        batches = list(iterate_headers(buffer))
    final: list[tuple[int, BatchHeader]] = []
    max_timestamp = NO_TIMESTAMP
    for (position, header), timestamp in zip(batches, timestamps, strict=True):
        if stamp:
            stamp_log_append_time(buffer, position, header, now_ms)
            header = read_header(buffer, position)
        elif header.max_timestamp != timestamp:
            set_max_timestamp(buffer, position, header, timestamp)
            header = read_header(buffer, position)
        patch(buffer, position, base_offset=next_offset, leader_epoch=leader_epoch)
        header = BatchHeader._make((next_offset, header[1], leader_epoch, *header[3:]))
        next_offset += header.last_offset_delta + 1
        max_timestamp = max(max_timestamp, header.max_timestamp)
        final.append((position, header))
    last_position, last = final[-1]
    end = last_position + last.size
    data = buffer if end == len(buffer) else memoryview(buffer)[:end]
    if end > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"Message batch size is {end} bytes in append to partition {topic_partition}, which exceeds the maximum"
            f" configured segment size of {config.segment_bytes}.",
        )
    return Prepared(data, final, max_timestamp)


def follower_batches(
    data: bytes | bytearray | memoryview,
    topic_partition: TopicPartition,
    *,
    next_offset: int,
    latest_epoch: int = NO_LEADER_EPOCH,
    leader_epoch: int | None = None,
) -> Prepared | None:
    """The whole batches that a leader of `leader_epoch` sent, checked but kept as they are; None if there is none.

    A batch cut short at the end is left for the next fetch. `KafkaError` CORRUPT_MESSAGE for broken bytes, offsets that
    go back, and epochs below `latest_epoch`, that of the last record, or above the leader's.
    """
    batches = list(iterate_headers(data))
    if not batches:
        return None
    max_timestamp = NO_TIMESTAMP
    for position, header in batches:
        check_crc(data, position, header)
        # Gaps are what compaction has left, and stay when the topic is compacted no more.
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            raise InvalidBatch(
                ErrorCode.CORRUPT_MESSAGE,
                f"Out of order offsets found in append to {topic_partition}: a batch of {header.base_offset} to"
                f" {header.last_offset} where {next_offset} is next",
            )
        epoch = header.partition_leader_epoch
        if epoch < latest_epoch or (leader_epoch is not None and epoch > leader_epoch):
            raise InvalidBatch(
                ErrorCode.CORRUPT_MESSAGE,
                f"Batch of {header.base_offset} to {header.last_offset} sent for {topic_partition} has the leader epoch"
                f" {epoch}, after records of epoch {latest_epoch}, from a leader of epoch {leader_epoch}",
            )
        latest_epoch = epoch
        next_offset = header.next_offset
        max_timestamp = max(max_timestamp, header.max_timestamp)
    last_position, last = batches[-1]
    end = last_position + last.size
    return Prepared(data if end == len(data) else memoryview(data)[:end], batches, max_timestamp)


def end_of_transaction(
    data: bytes | bytearray | memoryview, position: int, header: BatchHeader
) -> tuple[EndTxnMarker, int] | None:
    """The marker in a control batch, and its timestamp; None for other control records."""
    records = read_records(data, position)
    if not records:
        return None  # Compaction has removed the marker; the batch stays for its producer's sake.
    if control_type(records[0].key) not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        return None
    return decode_end_txn_marker(records[0]), records[0].timestamp
