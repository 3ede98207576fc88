"""The kernels' twin in plain Python: same functions, same results, same errors, some hundred times slower.

It serves where no C compiler was there to build them, and says what is wrong with what they refused. The property tests
hold the two equal.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from tidelog.model.errors import ErrorCode
from tidelog.ports.disk import Bytes
from tidelog.records.errors import CorruptData, InvalidBatch
from tidelog.records.record import NO_TIMESTAMP, RECORD_SIZE_MIN, Fields, decode_fields, wrap_int64
from tidelog.records.varint import VarintError, decode_varint, decode_varlong, encode_varint, encode_varlong

if TYPE_CHECKING:
    from tidelog.records.epochs import EpochEntry

RowT = TypeVar("RowT")

NAME: Final = "pure"

OFFSET: Final = 1
TIMESTAMP: Final = 2
TIMESTAMP_TYPE: Final = 4
KEY: Final = 8
VALUE: Final = 16
HEADERS: Final = 32
"""Bits of a column mask; see `tidelog.records.columns.Column`."""

DONE: Final = 0
"""The section has been read to its end."""
LIMIT: Final = 1
"""The next record would have gone past a limit."""
END: Final = 2
"""The next record lies at or past the end offset."""

RECORD_BODY_MAX: Final = 0x7FFFFFFF - 64
"""Bytes of a record that a batch can hold, its length being 32 bits too."""

BinaryBuffers: TypeAlias = tuple[bytearray, bytearray, bytearray | None, int]
"""Offsets (int32), data, validity bitmap (None where nothing is null) and the number of nulls."""
Buffers: TypeAlias = tuple[
    bytearray | None,
    bytearray | None,
    bytearray | None,
    BinaryBuffers | None,
    BinaryBuffers | None,
    tuple[bytearray, BinaryBuffers, BinaryBuffers] | None,
]
"""Of offsets, timestamps (int64), timestamp types (int32), keys, values, headers (list offsets, keys, values); None
where not asked for.
"""


def scan_records(section: Bytes, count: int, base_timestamp: int) -> tuple[int, int, int]:
    """Walks over an uncompressed record section without keeping anything.

    Gives the least and the greatest timestamp and the number of null keys. `CorruptData` when there are not exactly
    `count` well-formed records, or their offsets do not follow one another from the batch's base.
    """
    earliest = latest = null_keys = 0
    for index, fields in enumerate(decode_fields(section, count)):
        if fields.offset_delta != index:
            raise CorruptData(f"record {index} of {count}: an offset delta of {fields.offset_delta}, {index} expected")
        timestamp = wrap_int64(base_timestamp + fields.timestamp_delta)
        if index == 0:
            earliest = latest = timestamp
        earliest = min(earliest, timestamp)
        latest = max(latest, timestamp)
        null_keys += fields.key is None
    return earliest, latest, null_keys


def find_faults(
    section: Bytes,
    count: int,
    base_timestamp: int,
    lowest: int,
    highest: int,
    keys_required: bool,
    named_max: int,
) -> tuple[list[tuple[int, int, int, bool]], int, int]:
    """The records of an uncompressed section that lack a key where `keys_required`, or have a timestamp (-1: none)
    outside `lowest` .. `highest`.

    Gives index, offset delta, timestamp and whether it lacks a key, of the first `named_max` of them, and how many lack
    a key and how many others are out of range. `CorruptData` when there are not exactly `count` well-formed records.
    """
    named: list[tuple[int, int, int, bool]] = []
    null_keys = out_of_range = 0
    for index, fields in enumerate(decode_fields(section, count)):
        timestamp = wrap_int64(base_timestamp + fields.timestamp_delta)
        is_null = keys_required and fields.key is None
        if is_null:
            null_keys += 1
        elif timestamp != NO_TIMESTAMP and not lowest <= timestamp <= highest:
            out_of_range += 1
        else:
            continue
        if len(named) < named_max:
            named.append((index, fields.offset_delta, timestamp, is_null))
    return named, null_keys, out_of_range


def read_pairs(section: Bytes, count: int, last_offset_delta: int) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset delta, key and value of each record of an uncompressed section: what coordinators load.

    `CorruptData` when there are not exactly `count` well-formed records with ascending offsets.
    """
    if count > len(section) // RECORD_SIZE_MIN:
        explain(section, count, last_offset_delta)
    return [
        (fields.offset_delta, fields.key, fields.value) for fields in ordered_fields(section, count, last_offset_delta)
    ]


def find_timestamp(
    section: Bytes,
    count: int,
    base_timestamp: int,
    log_append_time: int | None,
    timestamp: int,
    offset_delta: int,
) -> tuple[int, int] | None:
    """Offset delta and timestamp of the first of the `count` records of an uncompressed section that has at least this
    offset delta and is as late as `timestamp`; None if there is none.

    `log_append_time`, where not None, is the timestamp of every record. `CorruptData` where the records up to there are
    malformed.
    """
    for fields in decode_fields(section, count):
        found = wrap_int64(base_timestamp + fields.timestamp_delta) if log_append_time is None else log_append_time
        if found >= timestamp and fields.offset_delta >= offset_delta:
            return fields.offset_delta, found
    return None


def find_record(section: Bytes, count: int, offset_delta: int) -> tuple[int, int]:
    """Which of the `count` records of an uncompressed section is the first with at least this offset delta, and where
    in the section it begins.

    The records before it must be well-formed; `CorruptData` where they are not, or there is none such.
    """
    view = memoryview(section).cast("B")
    position = 0
    for index in range(count):
        try:
            length, start = decode_varint(view, position)
            _, following = decode_varlong(view, start + 1)
            delta, _ = decode_varint(view, following)
        except VarintError:
            break
        if length < 1 or start + length > len(view):
            break
        if delta >= offset_delta:
            return index, position
        position = start + length
    raise CorruptData(f"no record of {count} has an offset delta of {offset_delta} or more")


def explain(section: Bytes, count: int, last_offset_delta: int) -> None:
    """Raises the `CorruptData` that says what is wrong with a section, if something is."""
    for _ in ordered_fields(section, count, last_offset_delta):
        pass


def ordered_fields(section: Bytes, count: int, last_offset_delta: int) -> Iterator[Fields]:
    """A reader that resumes by offset relies on offsets that rise and stay within their batch."""
    previous = -1
    for index, fields in enumerate(decode_fields(section, count)):
        if not previous < fields.offset_delta <= last_offset_delta:
            raise CorruptData(
                f"record {index} of {count}: an offset delta of {fields.offset_delta} after {previous},"
                f" in a batch that ends at {last_offset_delta}"
            )
        previous = fields.offset_delta
        yield fields


class _Binary:
    __slots__ = ("data", "offsets", "present")

    def __init__(self) -> None:
        self.offsets = array("i", [0])
        self.data = bytearray()
        self.present: list[bool] = []

    def append(self, content: bytes | None) -> None:
        self.present.append(content is not None)
        self.data += content or b""
        self.offsets.append(len(self.data))

    def rollback(self, rows: int) -> None:
        del self.present[rows:]
        del self.offsets[rows + 1 :]
        del self.data[self.offsets[-1] :]

    def finish(self) -> BinaryBuffers:
        nulls = self.present.count(False)
        validity = None
        if nulls:
            validity = bytearray((len(self.present) + 7) // 8)
            for row, present in enumerate(self.present):
                validity[row >> 3] |= present << (row & 7)
        return bytearray(self.offsets), self.data, validity, nulls


class ColumnBuilder:
    """Gathers records of one batch after another into buffers laid out as Arrow arrays."""

    def __init__(self, columns: int, timestamp_scale: int) -> None:
        """`columns` is a mask; timestamps are multiplied by `timestamp_scale` (1: milliseconds, 1000: microseconds)."""
        self.columns = columns
        self.rows = 0
        self.bytes = 0
        """Of keys, values and headers taken so far, as far as their columns are asked for."""
        self._timestamp_scale = timestamp_scale
        self._offsets = array("q")
        self._timestamps = array("q")
        self._types = array("i")
        self._keys = _Binary()
        self._values = _Binary()
        self._header_offsets = array("i", [0])
        self._header_keys = _Binary()
        self._header_values = _Binary()

    def append(
        self,
        section: Bytes,
        count: int,
        base_offset: int,
        last_offset_delta: int,
        base_timestamp: int,
        log_append_time: int | None,
        timestamp_type: int,
        start_offset: int,
        end_offset: int,
        rows_max: int,
        bytes_max: int,
    ) -> tuple[int, int]:
        """Takes the records of an uncompressed section whose offsets lie in start_offset .. end_offset - 1.

        `rows_max` and `bytes_max` bound the builder's totals; the first row is taken whatever its size. Gives DONE,
        LIMIT or END, and with LIMIT the offset of the record that did not fit. `CorruptData` when the part of the
        section that was read is malformed, and `InvalidBatch` (INVALID_TIMESTAMP) when a timestamp that is asked for is
        too large to be multiplied; what was taken from it before is still there then (see `rollback`).
        """
        if count > len(section) // RECORD_SIZE_MIN:
            explain(section, count, last_offset_delta)
        for fields in ordered_fields(section, count, last_offset_delta):
            offset = wrap_int64(base_offset + fields.offset_delta)
            if offset < start_offset:
                continue
            if offset >= end_offset:
                return END, 0
            size = 0
            if self.columns & KEY:
                size += len(fields.key or b"")
            if self.columns & VALUE:
                size += len(fields.value or b"")
            if self.columns & HEADERS:
                size += fields.headers_size
            if self.rows >= rows_max or (self.rows > 0 and size > bytes_max - self.bytes):
                return LIMIT, offset
            timestamp = (
                wrap_int64(base_timestamp + fields.timestamp_delta) if log_append_time is None else log_append_time
            )
            self._append_row(offset, timestamp, timestamp_type, fields)
            self.bytes += size
            self.rows += 1
        return DONE, 0

    def _append_row(self, offset: int, timestamp: int, timestamp_type: int, fields: Fields) -> None:
        if self.columns & OFFSET:
            self._offsets.append(offset)
        if self.columns & TIMESTAMP:
            scaled = timestamp * self._timestamp_scale
            if scaled != wrap_int64(scaled):
                raise InvalidBatch(
                    ErrorCode.INVALID_TIMESTAMP,
                    f"the record at offset {offset} has the timestamp {timestamp} ms: {self._timestamp_scale} times as"
                    " much does not fit into 64 bits",
                )
            self._timestamps.append(scaled)
        if self.columns & TIMESTAMP_TYPE:
            self._types.append(timestamp_type)
        if self.columns & KEY:
            self._keys.append(fields.key)
        if self.columns & VALUE:
            self._values.append(fields.value)
        if self.columns & HEADERS:
            for name, content in fields.headers:
                self._header_keys.append(name.decode(errors="replace").encode())
                self._header_values.append(content)
            self._header_offsets.append(len(self._header_keys.present))

    def mark(self) -> tuple[int, int]:
        """What `rollback` takes to undo everything appended from here on."""
        return self.rows, self.bytes

    def rollback(self, mark: tuple[int, int]) -> None:
        self.rows, self.bytes = mark
        for fixed in (self._offsets, self._timestamps, self._types):
            del fixed[self.rows :]
        self._keys.rollback(self.rows)
        self._values.rollback(self.rows)
        del self._header_offsets[self.rows + 1 :]
        self._header_keys.rollback(self._header_offsets[-1])
        self._header_values.rollback(self._header_offsets[-1])

    def finish(self) -> Buffers:
        """The buffers; the builder is spent."""
        columns = self.columns
        headers = (bytearray(self._header_offsets), self._header_keys.finish(), self._header_values.finish())
        return (
            bytearray(self._offsets) if columns & OFFSET else None,
            bytearray(self._timestamps) if columns & TIMESTAMP else None,
            bytearray(self._types) if columns & TIMESTAMP_TYPE else None,
            self._keys.finish() if columns & KEY else None,
            self._values.finish() if columns & VALUE else None,
            headers if columns & HEADERS else None,
        )


class RowBuilder(ColumnBuilder, Generic[RowT]):
    """Gathers records as objects: of `kind`, a named tuple of topic, partition, offset, timestamp in milliseconds,
    timestamp type, key, value and headers. Of the last three `columns` says which are wanted; others are None and ().
    """

    def __init__(self, columns: int, kind: Callable[..., RowT], topic: str, partition: int) -> None:
        super().__init__(columns, 1)
        self._kind = kind
        self._topic = topic
        self._partition = partition
        self.records: list[RowT] = []

    def _append_row(self, offset: int, timestamp: int, timestamp_type: int, fields: Fields) -> None:
        headers = [(name.decode(errors="replace"), content) for name, content in fields.headers]
        self.records.append(
            self._kind(
                self._topic,
                self._partition,
                offset,
                timestamp,
                timestamp_type,
                fields.key if self.columns & KEY else None,
                fields.value if self.columns & VALUE else None,
                headers if headers and self.columns & HEADERS else (),
            )
        )

    def rollback(self, mark: tuple[int, int]) -> None:
        self.rows, self.bytes = mark
        del self.records[self.rows :]


class BinarySource:
    """A column of byte strings to read from: `rows` rows from index `first` of Arrow buffers.

    Offsets are 32-bit, or 64-bit where `large`. ValueError when the buffers do not hold what they should.
    """

    def __init__(
        self, offsets: Bytes, data: Bytes | None, validity: Bytes | None, first: int, large: bool, rows: int
    ) -> None:
        self.first = first
        self.rows = rows
        self._data = memoryview(data if data is not None else b"").cast("B")
        self._validity = validity
        self._offsets = memoryview(b"").cast("q")
        if rows == 0:
            return
        width = 8 if large else 4
        size = len(memoryview(offsets).cast("B"))
        if first < 0 or size // width < first + rows + 1:
            raise ValueError(f"{size} bytes of offsets do not hold rows {first} to {first + rows}")
        self._offsets = memoryview(offsets).cast("B")[: size // width * width].cast("q" if large else "i")
        if self._offsets[first] < 0:
            raise ValueError(f"the offsets of row {first} are not ascending")
        for index in range(first, first + rows):
            if self._offsets[index + 1] < self._offsets[index]:
                raise ValueError(f"the offsets of row {index} are not ascending")
        if self._offsets[first + rows] > len(self._data):
            raise ValueError(f"the offsets reach byte {self._offsets[first + rows]}, past the data's end")
        if validity is not None and len(validity) * 8 < first + rows:
            raise ValueError(f"{len(validity)} bytes of validity do not hold rows {first} to {first + rows}")

    def get(self, row: int) -> memoryview | None:
        """The content of a row, None for null."""
        index = self.first + row
        if self._validity is not None and not self._validity[index >> 3] >> (index & 7) & 1:
            return None
        return self._data[self._offsets[index] : self._offsets[index + 1]]


def encode_section(
    prefix: int,
    row: int,
    end_row: int,
    bytes_max: int,
    timestamps: memoryview,
    timestamp_scale: int,
    keys: BinarySource | None,
    values: BinarySource | None,
    list_offsets: memoryview | None,
    list_first: int,
    header_keys: BinarySource | None,
    header_values: BinarySource | None,
) -> tuple[bytearray, int, int, int]:
    """The record section of one batch from rows `row` .. `end_row` - 1, as many as fit `bytes_max`, at least one.

    `prefix` bytes are left free before it. Timestamps (int64) are divided by `timestamp_scale`, rounding down. Headers
    of row r are rows list_offsets[list_first + r] .. list_offsets[list_first + r + 1] - 1 of their columns. Gives the
    bytes, the next row, the base and the greatest timestamp. ValueError for a header without a key, and for a row too
    large.
    """
    output = bytearray(prefix)
    first_row = row
    base = latest = 0
    while row < end_row:
        timestamp = timestamps[row] // timestamp_scale
        if row == first_row:
            base = latest = timestamp
        body = bytearray(b"\x00")
        body += encode_varlong(wrap_int64(timestamp - base))
        body += encode_varint(row - first_row)
        _write_field(body, keys.get(row) if keys is not None else None)
        _write_field(body, values.get(row) if values is not None else None)
        if list_offsets is None or header_keys is None or header_values is None:
            body += encode_varint(0)
        else:
            header_from, header_to = list_offsets[list_first + row], list_offsets[list_first + row + 1]
            if not 0 <= header_from <= header_to <= header_keys.rows or header_to > header_values.rows:
                raise ValueError(f"row {row} has headers {header_from} to {header_to} of {header_keys.rows}")
            body += encode_varint(header_to - header_from)
            for header in range(header_from, header_to):
                name = header_keys.get(header)
                if name is None:
                    raise ValueError(f"row {row} has a header without a key")
                _write_field(body, name)
                _write_field(body, header_values.get(header))
        if len(body) > RECORD_BODY_MAX:
            raise ValueError(f"row {row} takes {len(body)} bytes, more than a record can")
        length = encode_varint(len(body))
        if row > first_row and len(output) - prefix + len(length) + len(body) > bytes_max:
            break
        output += length
        output += body
        latest = max(latest, timestamp)
        row += 1
    return output, row, base, latest


def _write_field(body: bytearray, content: memoryview | None) -> None:
    if content is None:
        body += b"\x01"  # -1
    else:
        body += encode_varint(len(content))
        body += content


# Whether stored batches are what was written.


def sound_prefix(
    buffer: Bytes, next_offset: int | None, epochs: Sequence["EpochEntry"]
) -> tuple[int, int | None, int, int | None, bool]:
    """How far the batches in `buffer` are certainly sound, for `integrity.check_batches` to go on from there: the
    position, the offset behind the last batch, where that one begins, the offset behind the one before it, and whether
    there is a gap between the two. Here not at all: `check_batches` is plain Python itself.
    """
    return 0, next_offset, 0, next_offset, False
