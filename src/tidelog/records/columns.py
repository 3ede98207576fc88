"""Batches to columns and back, in bulk: what Spark's source and sink, compaction and the dump tool run on.

Columns are plain buffers laid out as Arrow lays out its arrays, so that a caller with Arrow wraps them without a copy
(`pyarrow.Array.from_buffers`) and another one need not load it. The work per record is in `_column_builder` and
`_encoding` (C), or in their Python twin `_pure` where they were not built; here is the work per batch: headers,
checksums, decompression, what to skip.

    part = decode_columns(data, start_offset=120, rows_max=50_000)
    part = decode_columns(data, position=part.position, start_offset=part.next_offset, rows_max=50_000)
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntFlag
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from tidelog.ports.disk import Bytes
from tidelog.records import column_implementation, implementation
from tidelog.records.batch import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    TimestampType,
    assemble,
    check_crc,
    iterate_headers,
    records_section,
    seal,
)
from tidelog.records.batch_header import SIZE_PREFIX
from tidelog.records.compression import DECOMPRESSED_SIZE_MAX, Codec, compress
from tidelog.records.errors import InvalidBatch
from tidelog.records.record import wrap_int64

RowT = TypeVar("RowT")

COLUMN_BYTES_MAX: Final = 2**31 - 1
"""Offsets into a column's data are 32 bits: no call fills more."""
_INT64_MAX: Final = 2**63 - 1


class Column(IntFlag):
    """What to decode; what is not asked for is not copied."""

    OFFSET = 1
    TIMESTAMP = 2
    TIMESTAMP_TYPE = 4
    KEY = 8
    VALUE = 16
    HEADERS = 32


ALL: Final = Column.OFFSET | Column.TIMESTAMP | Column.TIMESTAMP_TYPE | Column.KEY | Column.VALUE | Column.HEADERS
WITHOUT_HEADERS: Final = ALL & ~Column.HEADERS


@dataclass(frozen=True, slots=True)
class BinaryColumn:
    """An Arrow array of binary, or of utf8."""

    offsets: Bytes
    """int32 (int64 where `large`), little-endian: one a row and one more."""
    data: Bytes | None
    validity: Bytes | None = None
    """Bitmap, least significant bit first, 1 for a value; None when nothing is null."""
    null_count: int = 0
    first: int = 0
    """Index of the first row in offsets and validity, for a slice of an Arrow array."""
    large: bool = False


@dataclass(frozen=True, slots=True)
class HeadersColumn:
    """An Arrow array of list<struct<key: utf8, value: binary>>; neither lists nor structs nor keys are null."""

    offsets: Bytes
    """int32, one a row and one more: into the rows of `keys` and `values`."""
    keys: BinaryColumn
    """Bytes that are no UTF-8 have become U+FFFD, as in Java."""
    values: BinaryColumn
    first: int = 0
    """Index of the first row in `offsets`."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Some records as columns, and where to go on. A column that was not asked for is None."""

    rows: int
    next_offset: int
    """First offset not yet dealt with: where `decode_columns` is to resume, past whatever was skipped."""
    position: int
    """Where in the data the batch begins that holds `next_offset`, or the data ends or is cut short."""
    offset: bytearray | None
    """int64."""
    timestamp: bytearray | None
    """int64, in the unit asked for."""
    timestamp_type: bytearray | None
    """int32: 0 create time, 1 log append time."""
    key: BinaryColumn | None
    value: BinaryColumn | None
    headers: HeadersColumn | None


class BatchFilter(Protocol):
    """Which batches a reader leaves out."""

    def skips(self, buffer: Bytes, position: int, header: BatchHeader) -> bool:
        """Whether the batch is left out; asked of each in order, control batches too."""
        ...


class OpenBatch:
    """The batch within which a slice has ended: its records from there on, checked and decompressed.

    It belongs to the slices of one piece of a log. A batch that takes many slices, as one of thousands of small records
    does, would otherwise be checked, decompressed and walked through from its beginning for each of them.
    """

    __slots__ = ("_header", "_offset", "count", "section")

    def __init__(self) -> None:
        self._header: BatchHeader | None = None
        self._offset = 0
        """Of the first record in `section`."""
        self.section: Bytes = b""
        """The records from there on."""
        self.count = 0
        """How many those are."""

    def is_that_of(self, header: BatchHeader, start_offset: int) -> bool:
        """Whether the records of this batch from `start_offset` on are at hand; its header and checksum name it."""
        return self._header == header and start_offset >= self._offset

    def stop(self, header: BatchHeader, section: Bytes, count: int, offset: int, place: tuple[int, ...]) -> None:
        """A slice has ended before the record at `offset`, which is one of the `count` in `section`.

        `place` is which of them, and where in the section it begins; empty where that is not known.
        """
        delta = wrap_int64(offset - header.base_offset)
        index, position = place or implementation.find_record(section, count, delta)
        self._header = header
        self._offset = offset
        self.section = memoryview(section)[position:]
        self.count = count - index


def decode_columns(
    data: Bytes,
    *,
    position: int = 0,
    start_offset: int = 0,
    end_offset: int | None = None,
    columns: Column = WITHOUT_HEADERS,
    rows_max: int = COLUMN_BYTES_MAX,
    bytes_max: int = COLUMN_BYTES_MAX,
    timestamp_scale: int = 1,
    aborted: BatchFilter | None = None,
    verify_crc: bool = True,
    decompressed_size_max: int = DECOMPRESSED_SIZE_MAX,
    opened: OpenBatch | None = None,
) -> Columns:
    """The records in `data` from `position` on whose offsets lie in start_offset .. end_offset - 1 (None: no end).

    Stops at the end of the data or a batch that is cut short, at `end_offset`, after `rows_max` rows or before
    `bytes_max` bytes of the columns asked for (the first row is taken whatever its size); `next_offset` and `position`
    say where to go on. Control batches are skipped, and those that `aborted` names. `timestamp_scale` is 1 for
    milliseconds, 1000 for microseconds. `opened`, given to slice after slice of the same data, keeps a batch that takes
    several slices from being checked and decompressed for each.

    `InvalidBatch` for a batch that is damaged, malformed or of an old format, or has a timestamp too large for
    `timestamp_scale`, when it is the first to be read; a later one ends the slice before it, so that what is good comes
    out first and the next call raises.
    """
    if rows_max < 1 or bytes_max < 1:
        raise ValueError(f"rows_max {rows_max} and bytes_max {bytes_max} must be at least 1")
    builder = column_implementation.ColumnBuilder(columns, timestamp_scale)
    next_offset, position = _read_batches(
        builder,
        data,
        position,
        start_offset,
        end_offset,
        rows_max,
        bytes_max,
        aborted,
        verify_crc,
        decompressed_size_max,
        opened,
    )
    return _finish(builder, next_offset, position)


class Rows(NamedTuple, Generic[RowT]):
    """Records as objects, in the order of offsets."""

    records: list[RowT]
    next_offset: int
    """The offset to go on at, as in `Columns`."""
    position: int


def decode_rows(
    data: Bytes,
    kind: Callable[..., RowT],
    topic: str,
    partition: int,
    *,
    position: int = 0,
    start_offset: int = 0,
    end_offset: int | None = None,
    columns: Column = ALL,
    rows_max: int = COLUMN_BYTES_MAX,
    bytes_max: int = COLUMN_BYTES_MAX,
    aborted: BatchFilter | None = None,
    opened: OpenBatch | None = None,
) -> Rows[RowT]:
    """As `decode_columns`, but each record is an object.

    `kind` is a named tuple of topic, partition, offset, timestamp in milliseconds, timestamp type, key, value and
    headers: a list of (name, content), or () where there are none. Key, value or headers that `columns` leaves out are
    None or ().
    """
    if rows_max < 1 or bytes_max < 1:
        raise ValueError(f"rows_max {rows_max} and bytes_max {bytes_max} must be at least 1")
    builder = column_implementation.RowBuilder(columns, kind, topic, partition)
    next_offset, position = _read_batches(
        builder,
        data,
        position,
        start_offset,
        end_offset,
        rows_max,
        bytes_max,
        aborted,
        verify_crc=True,
        decompressed_size_max=DECOMPRESSED_SIZE_MAX,
        opened=opened,
    )
    return Rows(builder.records, next_offset, position)


def _read_batches(
    builder: "column_implementation.ColumnBuilder | column_implementation.RowBuilder[Any]",
    data: Bytes,
    position: int,
    start_offset: int,
    end_offset: int | None,
    rows_max: int,
    bytes_max: int,
    aborted: BatchFilter | None,
    verify_crc: bool,
    decompressed_size_max: int,
    opened: OpenBatch | None,
) -> tuple[int, int]:
    """Has a builder take the records of batch after batch; the offset and the position to go on at."""
    end = _INT64_MAX if end_offset is None else max(end_offset, start_offset)
    next_offset = start_offset
    first_position = position
    mark = builder.mark()
    try:
        for found, header in iterate_headers(data, position):
            position = found
            mark = builder.mark()
            if header.last_offset < start_offset:
                position = found + header.length + SIZE_PREFIX
                continue
            if header.base_offset >= end:
                next_offset = end
                break
            is_open = opened is not None and opened.is_that_of(header, start_offset)
            if verify_crc and not is_open:
                check_crc(data, found, header)
            skipped = aborted is not None and aborted.skips(data, found, header)
            if not skipped and not header.is_control and header.records_count:
                if opened is not None and is_open:
                    section, count = opened.section, opened.count
                else:
                    section = records_section(data, found, header, size_max=decompressed_size_max)
                    count = header.records_count
                status, resume_offset, *place = _append(
                    builder, section, count, header, start_offset, end, rows_max, min(bytes_max, COLUMN_BYTES_MAX)
                )
                if status == implementation.LIMIT:
                    next_offset = resume_offset
                    if opened is not None:
                        opened.stop(header, section, count, resume_offset, tuple(place))
                    break
                if status == implementation.END:
                    next_offset = end
                    break
            position = found + header.length + SIZE_PREFIX
            next_offset = max(next_offset, header.next_offset)
            if next_offset >= end:
                next_offset = end
                break
    except InvalidBatch:
        if position == first_position:
            raise
        builder.rollback(mark)
    return next_offset, position


def _append(
    builder: "column_implementation.ColumnBuilder | column_implementation.RowBuilder[Any]",
    section: Bytes,
    count: int,
    header: BatchHeader,
    start_offset: int,
    end_offset: int,
    rows_max: int,
    bytes_max: int,
) -> tuple[int, ...]:
    stamped = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    return builder.append(
        section,
        count,
        header.base_offset,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp if stamped else None,
        int(stamped),
        start_offset,
        end_offset,
        rows_max,
        bytes_max,
    )


def _finish(builder: "column_implementation.ColumnBuilder", next_offset: int, position: int) -> Columns:
    rows = builder.rows
    offset, timestamp, timestamp_type, key, value, headers = builder.finish()
    return Columns(
        rows=rows,
        next_offset=next_offset,
        position=position,
        offset=offset,
        timestamp=timestamp,
        timestamp_type=timestamp_type,
        key=BinaryColumn(*key) if key is not None else None,
        value=BinaryColumn(*value) if value is not None else None,
        headers=HeadersColumn(headers[0], BinaryColumn(*headers[1]), BinaryColumn(*headers[2]))
        if headers is not None
        else None,
    )


BATCH_BYTES_MAX: Final = 1_000_000
"""Bytes of records, uncompressed, that `encode_columns` puts into a batch: under the default `max.message.bytes`."""


def encode_columns(
    *,
    rows: int,
    timestamp: Bytes,
    key: BinaryColumn | None = None,
    value: BinaryColumn | None = None,
    headers: HeadersColumn | None = None,
    timestamp_scale: int = 1,
    batch_bytes_max: int = BATCH_BYTES_MAX,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    base_offset: int = 0,
    partition_leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> list[bytes | bytearray]:
    """Rows 0 .. rows - 1 of the columns as batches, in order, each of at most `batch_bytes_max` bytes before
    compression.

    A row larger than that gets a batch of its own. `timestamp` holds int64 without nulls, divided by
    `timestamp_scale`; a column that is None is null in every row. Offsets count on from `base_offset` over all
    batches, sequences from `base_sequence`. ValueError when a buffer does not hold the rows, or a row is too large for
    any record.
    """
    timestamps = memoryview(timestamp).cast("B").cast("q")
    if len(timestamps) < rows:
        raise ValueError(f"{len(timestamps)} timestamps do not make {rows} rows")
    keys, values = _source(key, rows), _source(value, rows)
    lists, list_first, header_keys, header_values = _header_sources(headers, rows)
    attributes = codec | (0x10 if transactional else 0)
    batches: list[bytes | bytearray] = []
    row = 0
    while row < rows:
        output, next_row, base_timestamp, max_timestamp = column_implementation.encode_section(
            HEADER_SIZE,
            row,
            rows,
            min(batch_bytes_max, COLUMN_BYTES_MAX // 2),
            timestamps,
            timestamp_scale,
            keys,
            values,
            lists,
            list_first,
            header_keys,
            header_values,
        )
        header = BatchHeader(
            base_offset=base_offset + row,
            length=0,
            partition_leader_epoch=partition_leader_epoch,
            magic=MAGIC,
            crc=0,
            attributes=attributes,
            last_offset_delta=next_row - row - 1,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=(base_sequence + row) % 2**31 if base_sequence >= 0 else -1,
            records_count=next_row - row,
        )
        if codec is Codec.NONE:
            seal(output, header)
            batches.append(output)
        else:
            batches.append(assemble(header, compress(codec, memoryview(output)[HEADER_SIZE:], level)))
        row = next_row
    return batches


def _source(column: BinaryColumn | None, rows: int) -> "column_implementation.BinarySource | None":
    if column is None:
        return None
    return column_implementation.BinarySource(
        memoryview(column.offsets).cast("B"),
        memoryview(column.data).cast("B") if column.data is not None else None,
        memoryview(column.validity).cast("B") if column.validity is not None else None,
        column.first,
        column.large,
        rows,
    )


def _header_sources(
    headers: HeadersColumn | None, rows: int
) -> tuple[
    memoryview | None, int, "column_implementation.BinarySource | None", "column_implementation.BinarySource | None"
]:
    if headers is None or rows == 0:
        return None, 0, None, None
    lists = memoryview(headers.offsets).cast("B").cast("i")
    if headers.first < 0 or len(lists) < headers.first + rows + 1:
        raise ValueError(f"{len(lists)} list offsets do not hold rows {headers.first} to {headers.first + rows}")
    header_rows = max(lists[headers.first + rows], 0)
    return lists, headers.first, _source(headers.keys, header_rows), _source(headers.values, header_rows)
