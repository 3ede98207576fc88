"""Single records of format v2: what a record holds, and its bytes inside a batch, one at a time in Python.

    length varint | attributes int8 (unused) | timestamp delta varlong | offset delta varint
    | key length varint, key | value length varint, value | header count varint, [key length, key, value length,
    value]...

Deltas are against the batch's base. Bulk work (millions of records) belongs to `tidelog.records.columns`.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from tidelog.ports.disk import Bytes
from tidelog.records.errors import CorruptData
from tidelog.records.varint import VarintError, decode_varint, decode_varlong, encode_varint, encode_varlong

Header: TypeAlias = tuple[str, bytes | None]
"""A record header: a key, which may repeat within a record, and a value."""

NO_TIMESTAMP: Final = -1
RECORD_SIZE_MIN: Final = 7
"""Bytes of a record without key, value and headers: seven fields of one byte."""
HEADER_SIZE_MIN: Final = 2
"""Bytes of a header with an empty key and no value."""


class Record(NamedTuple):
    """One record, independent of the batch that it came from."""

    offset: int
    timestamp: int
    """Milliseconds since 1970; of the batch where the topic keeps the time of appending; -1 where the writer gave
    none.
    """
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()


def encode_records(records: Iterable[Record], base_offset: int, base_timestamp: int) -> bytes:
    """The uncompressed record section of a batch."""
    parts: list[bytes] = []
    for record in records:
        body = bytearray(b"\x00")
        body += encode_varlong(record.timestamp - base_timestamp)
        body += encode_varint(record.offset - base_offset)
        for content in (record.key, record.value):
            _encode_nullable(body, content)
        body += encode_varint(len(record.headers))
        for key, value in record.headers:
            _encode_nullable(body, key.encode())
            _encode_nullable(body, value)
        parts.append(encode_varint(len(body)))
        parts.append(bytes(body))
    return b"".join(parts)


class Fields(NamedTuple):
    """A record as it stands in a batch: deltas, and header keys as bytes."""

    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]
    headers_size: int
    """Bytes that the headers take, their lengths included, their count not."""


def decode_records(
    data: Bytes, count: int, base_offset: int, base_timestamp: int, log_append_time: int | None = None
) -> Iterator[Record]:
    """The `count` records in the uncompressed record section `data`; `CorruptData` if they are not there, or not alone.

    `log_append_time`, where not None, is the timestamp of every record.
    """
    for fields in decode_fields(data, count):
        yield Record(
            wrap_int64(base_offset + fields.offset_delta),
            wrap_int64(base_timestamp + fields.timestamp_delta) if log_append_time is None else log_append_time,
            fields.key,
            fields.value,
            tuple((name.decode(errors="replace"), content) for name, content in fields.headers),
        )


def decode_fields(data: Bytes, count: int) -> Iterator[Fields]:
    """As `decode_records`, before deltas are added to a base."""
    view = memoryview(data).cast("B")
    position = 0
    for index in range(count):
        try:
            fields, position = _decode_one(view, position)
        except VarintError as error:
            raise CorruptData(f"record {index} of {count}: {error}") from error
        except CorruptData as error:
            raise CorruptData(f"record {index} of {count}: {error.message}") from error
        yield fields
    if position != len(view):
        raise CorruptData(f"{len(view) - position} bytes are left after the {count} records of the batch")


def wrap_int64(value: int) -> int:
    """`value` as 64-bit arithmetic gives it: sums of hostile deltas wrap, as they do in Java."""
    return ((value + 0x8000000000000000) & 0xFFFFFFFFFFFFFFFF) - 0x8000000000000000


def _encode_nullable(body: bytearray, content: bytes | None) -> None:
    if content is None:
        body += b"\x01"  # -1
    else:
        body += encode_varint(len(content))
        body += content


def _decode_one(view: memoryview, position: int) -> tuple[Fields, int]:
    length, position = decode_varint(view, position)
    end = position + length
    if length < 1 or end > len(view):
        raise CorruptData(f"a length of {length} bytes where {len(view) - position} remain")
    view = view[:end]
    timestamp_delta, position = decode_varlong(view, position + 1)
    offset_delta, position = decode_varint(view, position)
    key, position = _decode_nullable(view, position)
    value, position = _decode_nullable(view, position)
    header_count, position = decode_varint(view, position)
    headers_size = end - position
    if header_count < 0 or header_count > headers_size // HEADER_SIZE_MIN:
        raise CorruptData(f"{header_count} headers in {headers_size} bytes")
    headers: list[tuple[bytes, bytes | None]] = []
    for _ in range(header_count):
        name, position = _decode_nullable(view, position)
        if name is None:
            raise CorruptData("a header without a key")
        content, position = _decode_nullable(view, position)
        headers.append((name, content))
    if position != end:
        raise CorruptData(f"{end - position} bytes are left within the record")
    return Fields(timestamp_delta, offset_delta, key, value, headers, headers_size), end


def _decode_nullable(view: memoryview, position: int) -> tuple[bytes | None, int]:
    length, position = decode_varint(view, position)
    if length < 0:
        return None, position
    end = position + length
    if end > len(view):
        raise CorruptData(f"a field of {length} bytes where {len(view) - position} remain")
    return bytes(view[position:end]), end
