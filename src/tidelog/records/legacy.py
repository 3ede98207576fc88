"""Message sets of Kafka before 0.11 (magic 0 and 1), for tools that look into old segments; brokers refuse them.

    offset int64 | size int32 | CRC-32 uint32 | magic int8 | attributes int8 | [magic 1: timestamp int64]
    | key length int32, key | value length int32, value

A message stands alone, or wraps a compressed message set as its value. A wrapper's offset is that of its last message;
inside, magic 0 keeps absolute offsets and magic 1 keeps offsets from 0, which the wrapper's makes absolute.
"""

from binascii import crc32
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from tidelog.model.errors import ErrorCode
from tidelog.ports.disk import Bytes
from tidelog.records.compression import DECOMPRESSED_SIZE_MAX, Codec, check_codec, compress, decompress
from tidelog.records.errors import CorruptData, InvalidBatch
from tidelog.records.record import NO_TIMESTAMP, Record

_PREFIX: Final = Struct(">qiIbb")
_TIMESTAMP: Final = Struct(">q")
_LENGTH: Final = Struct(">i")
_ENTRY: Final = 12
"""Bytes of offset and size, which the size does not count."""
_CHECKED: Final = 16
"""Where the checksum's range begins: at the magic."""
_SIZE_MIN: Final = (14, 22)
"""The least size of a message, by magic."""
MESSAGE_SIZE_MIN: Final = _ENTRY + _SIZE_MIN[0]
"""Bytes of the smallest message in a log: magic 0, neither key nor value."""
_LOG_APPEND_TIME: Final = 0x08
_LZ4_DESCRIPTOR: Final = slice(4, 6)


class LegacyMessage(NamedTuple):
    """One outer message, with the records that it is or wraps."""

    magic: int
    size: int
    """Bytes, offset and size field included."""
    crc: int
    codec: Codec
    is_log_append_time: bool
    """Only magic 1 can say so."""
    timestamp: int
    """The greatest of its records; -1 with magic 0."""
    records: Sequence[Record]

    @property
    def base_offset(self) -> int:
        return self.records[0].offset

    @property
    def last_offset(self) -> int:
        return self.records[-1].offset


def read_messages(
    buffer: Bytes, position: int = 0, *, size_max: int = DECOMPRESSED_SIZE_MAX
) -> Iterator[LegacyMessage]:
    """The outer messages from `position` on; one that is cut short at the end is left out.

    `InvalidBatch` (CORRUPT_MESSAGE) for a checksum that does not match, `CorruptData` for what cannot be read.
    """
    view = memoryview(buffer).cast("B")
    while len(view) - position >= _PREFIX.size:
        size = _ENTRY + _PREFIX.unpack_from(view, position)[1]
        if position + size > len(view):
            return
        yield _read_message(view[position : position + max(size, _PREFIX.size)], size_max)
        position += size


def _read_message(view: memoryview, size_max: int) -> LegacyMessage:
    offset, size, stored, magic, attributes = _PREFIX.unpack_from(view)
    if magic not in (0, 1):
        raise CorruptData(f"a message of format {magic} where 0 or 1 is expected")
    if size < _SIZE_MIN[magic]:
        raise InvalidBatch(
            ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (record size {size} is less than {_SIZE_MIN[magic]})"
        )
    computed = crc32(view[_CHECKED:])
    if computed != stored:
        raise InvalidBatch(
            ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {stored}, computed crc = {computed})"
        )
    timestamp = NO_TIMESTAMP
    position = _PREFIX.size
    if magic == 1:
        (timestamp,) = _TIMESTAMP.unpack_from(view, position)
        position += _TIMESTAMP.size
    key, position = _read_nullable(view, position)
    value, position = _read_nullable(view, position)
    if position != len(view):
        raise CorruptData(f"{len(view) - position} bytes are left within the message")
    codec = check_codec(attributes)
    stamped = magic == 1 and attributes & _LOG_APPEND_TIME != 0
    records = [Record(offset, timestamp, key, value)]
    if codec is not Codec.NONE:
        if value is None:
            raise CorruptData(f"a message compressed by {codec.codec_name} without a value")
        records = _unwrap(value, magic, codec, offset, timestamp if stamped else None, size_max)
    return LegacyMessage(magic, _ENTRY + size, stored, codec, stamped, timestamp, records)


def _unwrap(value: bytes, magic: int, codec: Codec, last_offset: int, stamp: int | None, size_max: int) -> list[Record]:
    if codec is Codec.LZ4 and magic == 0:
        value = _with_lz4_checksum(value)
    records: list[Record] = []
    inside = decompress(codec, value, size_max=size_max)
    for message in read_messages(inside, size_max=size_max):
        if message.codec is not Codec.NONE:
            raise CorruptData("a compressed message within a compressed message")
        records += message.records
    if not records:
        raise CorruptData("a compressed message without messages inside")
    shift = last_offset - records[-1].offset if magic == 1 else 0
    return [
        record._replace(offset=record.offset + shift, timestamp=record.timestamp if stamp is None else stamp)
        for record in records
    ]


def _with_lz4_checksum(value: bytes) -> bytes:
    """Old Java clients computed the frame header's checksum over the wrong bytes; this puts the right one there."""
    return value[:6] + bytes((_xxh32_short(value[_LZ4_DESCRIPTOR]) >> 8 & 0xFF,)) + value[7:]


def _xxh32_short(data: bytes) -> int:
    """xxHash32, seed 0, of fewer than 4 bytes."""
    mask = 0xFFFFFFFF
    value = 374761393 + len(data) & mask
    for byte in data:
        value = value + byte * 374761393 & mask
        value = (value << 11 | value >> 21) & mask
        value = value * 2654435761 & mask
    value = (value ^ value >> 15) * 2246822519 & mask
    value = (value ^ value >> 13) * 3266489917 & mask
    return value ^ value >> 16


def _read_nullable(view: memoryview, position: int) -> tuple[bytes | None, int]:
    if position + _LENGTH.size > len(view):
        raise CorruptData("the length of a field is cut short")
    (length,) = _LENGTH.unpack_from(view, position)
    position += _LENGTH.size
    if length < 0:
        return None, position
    if length > len(view) - position:
        raise CorruptData(f"a field of {length} bytes where {len(view) - position} remain")
    return bytes(view[position : position + length]), position + length


def build_messages(
    records: Iterable[Record], *, magic: int, codec: Codec = Codec.NONE, log_append_time: int | None = None
) -> bytes:
    """A message set as an old client or broker would have written it; for tests of what reads and refuses it.

    With `log_append_time` (magic 1 only, milliseconds) all records have that timestamp. Headers are not kept.
    """
    records = list(records)
    stamp = 0 if log_append_time is None else _LOG_APPEND_TIME
    if log_append_time is not None:
        records = [record._replace(timestamp=log_append_time) for record in records]
    if codec is Codec.NONE:
        return b"".join(_message(record, magic, stamp) for record in records)
    base = records[0].offset if magic == 1 else 0
    inside = b"".join(_message(record._replace(offset=record.offset - base), magic, 0) for record in records)
    wrapper = Record(records[-1].offset, max(record.timestamp for record in records), None, compress(codec, inside))
    return _message(wrapper, magic, stamp | codec)


def _message(record: Record, magic: int, attributes: int) -> bytes:
    body = bytes((magic, attributes))
    if magic == 1:
        body += _TIMESTAMP.pack(record.timestamp)
    for content in (record.key, record.value):
        body += _LENGTH.pack(-1) if content is None else _LENGTH.pack(len(content)) + content
    return _PREFIX.pack(record.offset, len(body) + 4, crc32(body), 0, 0)[:_CHECKED] + body
