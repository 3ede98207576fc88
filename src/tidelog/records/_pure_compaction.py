"""The twin of `_compaction` in plain Python: same functions, same results, same errors, some hundred times slower."""

from hashlib import blake2b
from typing import Final

from tidelog.ports.disk import Bytes
from tidelog.records._pure import explain, ordered_fields
from tidelog.records.batch import (
    HEADER_SIZE,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    InvalidBatch,
    assemble,
    check_crc,
    iterate_headers,
    read_header,
)
from tidelog.records.batch_header import CONTROL_BIT, TRANSACTIONAL_BIT
from tidelog.records.record import NO_TIMESTAMP, RECORD_SIZE_MIN, Fields, wrap_int64
from tidelog.records.varint import encode_varint, encode_varlong

NAME: Final = "pure"

DONE: Final = 0
"""No whole batch is left."""
OTHER: Final = 1
"""The next batch is for the caller to look at: compressed, of a transaction, a control batch, or malformed."""
FULL: Final = 2
"""The map has no room for the next batch; some of its keys may be in."""

_NOT_PLAIN: Final = 0x37
"""Attributes of compressed and transactional batches, and of control batches."""
_DELETE_HORIZON: Final = 0x40
_LOG_APPEND_TIME: Final = 0x08
_DIGEST_SIZE: Final = 16


class KeyMap:
    """[digest of a key] -> the last offset at which it was seen, within bounds.

    A digest has 16 bytes and is made with a secret seed, so that two keys never have the same digest in practice, and
    no client can make any up.
    """

    def __init__(self, capacity: int, size_max: int, seed: bytes) -> None:
        """`size_max` keys fit into `capacity` slots, of which at least one stays free; a seed has 16 bytes."""
        if not 0 <= size_max < capacity < 0xFFFFFFFF or len(seed) != 16:
            raise ValueError(f"a map of {size_max} keys in {capacity} slots, with a seed of {len(seed)} bytes")
        self.capacity = capacity
        self.size_max = size_max
        self._seed = seed
        self._offsets: dict[bytes, int] = {}

    @property
    def size(self) -> int:
        """Keys in the map."""
        return len(self._offsets)

    def clear(self) -> None:
        self._offsets.clear()

    def get(self, key: bytes) -> int:
        """The key's last offset; -1 if it was not seen."""
        return self._offsets.get(self._digest(key), -1)

    def _digest(self, key: bytes) -> bytes:
        return blake2b(key, key=self._seed, digest_size=_DIGEST_SIZE).digest()

    def add_section(
        self, section: Bytes, count: int, base_offset: int, last_offset_delta: int, start_offset: int
    ) -> bool:
        """Takes the keys of an uncompressed section's records from `start_offset` on; false when the map is full.

        `CorruptData` for a malformed section.
        """
        if count > len(section) // RECORD_SIZE_MIN:
            explain(section, count, last_offset_delta)
        for fields in ordered_fields(section, count, last_offset_delta):
            offset = base_offset + fields.offset_delta
            if fields.key is None or offset < start_offset:
                continue
            if len(self._offsets) >= self.size_max:
                return False
            self._offsets[self._digest(fields.key)] = offset
        return True

    def add_batches(self, buffer: Bytes, position: int, start_offset: int) -> tuple[int, int, int, int]:
        """Takes the keys of the plain batches from `position` on.

        Gives the position of the first one not taken, why (DONE, OTHER, FULL), the last offset of those taken (-1 if
        none reaches `start_offset`), and their number of records.
        """
        latest_offset, records = -1, 0
        while True:
            header, status = _plain_batch(buffer, position)
            if header is None:
                return position, status, latest_offset, records
            try:
                section = memoryview(buffer)[position + HEADER_SIZE : position + header.size]
                if not self.add_section(
                    section, header.records_count, header.base_offset, header.last_offset_delta, start_offset
                ):
                    return position, FULL, latest_offset, records
            except InvalidBatch:
                return position, OTHER, latest_offset, records
            records += header.records_count
            if header.last_offset >= start_offset:
                latest_offset = header.last_offset
            position += header.size


def _plain_batch(buffer: Bytes, position: int) -> tuple[BatchHeader | None, int]:
    """The batch at `position`, or None and why it is not to be read here."""
    remaining = len(buffer) - position
    if remaining < HEADER_SIZE:
        return None, DONE if remaining <= MAGIC_POSITION or buffer[position + MAGIC_POSITION] == MAGIC else OTHER
    try:
        header = read_header(buffer, position)
        if header.size > remaining:
            return None, DONE
        if header.attributes & _NOT_PLAIN or header.base_offset < 0 or header.last_offset >= 2**63:
            return None, OTHER
        if header.last_offset_delta < 0 or header.records_count < 0:
            return None, OTHER
        check_crc(buffer, position, header)
    except InvalidBatch:
        return None, OTHER
    return header, DONE


class RecordFilter:
    """Which records stay, and batches without the others."""

    def __init__(
        self, keys: KeyMap, latest_offset: int, now_ms: int, delete_horizon_ms: int, last_offsets: frozenset[int]
    ) -> None:
        """Records above `latest_offset` stay, whatever the map says.

        A batch without a delete horizon in which a tombstone stays gets `delete_horizon_ms`; from its horizon on, by
        `now_ms`, tombstones go. A batch that ends with one of `last_offsets` stays as an empty one when all its records
        go.
        """
        self._keys = keys
        self._latest_offset = latest_offset
        self._now_ms = now_ms
        self._delete_horizon_ms = delete_horizon_ms
        self._last_offsets = last_offsets

    def section(
        self,
        section: Bytes,
        count: int,
        base_offset: int,
        last_offset_delta: int,
        base_timestamp: int,
        has_horizon: bool,
    ) -> tuple[int, bytearray | None, int | None, int]:
        """How many records of an uncompressed section stay, the section that they make (None where it is the same, or
        none stay), the delete horizon that its base timestamp becomes (None: it stays as it is), and their greatest
        timestamp.

        `has_horizon` says that the base timestamp is one already. `CorruptData` for a malformed section.
        """
        if count > len(section) // RECORD_SIZE_MIN:
            explain(section, count, last_offset_delta)
        drop_tombstones = has_horizon and self._now_ms >= base_timestamp
        kept = [
            fields
            for fields in ordered_fields(section, count, last_offset_delta)
            if self._stays(fields, base_offset + fields.offset_delta, drop_tombstones)
        ]
        latest = max((wrap_int64(base_timestamp + fields.timestamp_delta) for fields in kept), default=-1)
        horizon = None
        if not has_horizon and any(fields.value is None for fields in kept):
            horizon = self._delete_horizon_ms
        elif len(kept) in (0, count):
            return len(kept), None, None, max(latest, -1)
        shift = 0 if horizon is None else base_timestamp - horizon
        output = bytearray()
        for fields in kept:
            body = _body(fields, wrap_int64(fields.timestamp_delta + shift))
            output += encode_varint(len(body))
            output += body
        return len(kept), output, horizon, max(latest, -1)

    def _stays(self, fields: Fields, offset: int, drop_tombstones: bool) -> bool:
        if offset > self._latest_offset:
            return True
        if fields.key is None or (fields.value is None and drop_tombstones):
            return False
        return offset >= self._keys.get(fields.key)

    def batches(self, buffer: Bytes, position: int, output: bytearray) -> tuple[int, int, int, int]:
        """Appends to `output` what stays of the plain batches from `position` on.

        Gives the position of the first one not read, why (DONE, OTHER), and the numbers of records read and kept.
        """
        read, written = 0, 0
        while True:
            header, status = _plain_batch(buffer, position)
            if header is None:
                return position, status, read, written
            data = memoryview(buffer)[position : position + header.size]
            has_horizon = header.attributes & _DELETE_HORIZON != 0
            try:
                kept, section, horizon, latest = self.section(
                    data[HEADER_SIZE:],
                    header.records_count,
                    header.base_offset,
                    header.last_offset_delta,
                    header.base_timestamp,
                    has_horizon,
                )
            except InvalidBatch:
                return position, OTHER, read, written
            read += header.records_count
            written += kept
            position += header.size
            if kept == 0:
                if header.last_offset in self._last_offsets:
                    output += emptied(header)
            elif section is None:
                output += data
            else:
                output += assemble(filtered(header, kept, horizon, latest), section)


def filtered(header: BatchHeader, kept: int, delete_horizon_ms: int | None, latest: int) -> BatchHeader:
    """The header of a batch of which `kept` records stay; None: it gets no new delete horizon."""
    stamped = header.attributes & _LOG_APPEND_TIME
    renewed = delete_horizon_ms is not None
    return header._replace(
        attributes=header.attributes | (_DELETE_HORIZON if renewed else 0),
        base_timestamp=header.base_timestamp if delete_horizon_ms is None else delete_horizon_ms,
        max_timestamp=header.max_timestamp if stamped else latest,
        records_count=kept,
    )


def emptied(header: BatchHeader) -> bytes:
    """The batch without its records: what remembers a producer's last sequence, or a log's last offset."""
    attributes = header.attributes & (_LOG_APPEND_TIME | TRANSACTIONAL_BIT | CONTROL_BIT)
    return assemble(header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, records_count=0), b"")


def _body(fields: Fields, timestamp_delta: int) -> bytearray:
    body = bytearray(b"\x00")
    body += encode_varlong(timestamp_delta)
    body += encode_varint(fields.offset_delta)
    for content in (fields.key, fields.value):
        _write(body, content)
    body += encode_varint(len(fields.headers))
    for name, content in fields.headers:
        _write(body, name)
        _write(body, content)
    return body


def _write(body: bytearray, content: bytes | None) -> None:
    body += encode_varint(-1 if content is None else len(content))
    body += content or b""


def index_batches(
    buffer: Bytes, position: int, interval: int, bytes_since: int, max_timestamp: int, max_timestamp_offset: int
) -> tuple[list[tuple[int, int, int, int]], int, int, int]:
    """Index entries for whole batches that begin at `position` of a file: one where more than `interval` bytes lie
    behind the last.

    An entry is a batch's last offset, its position, the greatest timestamp up to it and the last offset of the batch
    that has that. Also gives the bytes behind the last entry, and the greatest timestamp with its offset; batches
    without records have no part in these.
    """
    entries: list[tuple[int, int, int, int]] = []
    for _, header in iterate_headers(buffer):
        if header.max_timestamp > max_timestamp and header.records_count:
            max_timestamp, max_timestamp_offset = header.max_timestamp, header.last_offset
        if bytes_since > interval:
            entries.append((header.last_offset, position, max_timestamp, max_timestamp_offset))
            bytes_since = 0
        bytes_since += header.size
        position += header.size
    return entries, bytes_since, max_timestamp, max_timestamp_offset
