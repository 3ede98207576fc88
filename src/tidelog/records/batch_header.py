"""The header of a record batch v2, as a value; `batch` has its layout, reads and writes it."""

from enum import IntEnum
from typing import Final, NamedTuple

from tidelog.records.compression import Codec, check_codec

HEADER_SIZE: Final = 61
"""Bytes before the records."""
SIZE_PREFIX: Final = 12
"""Bytes that `length` does not count: base offset and the length itself."""
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40
_SEQUENCES: Final = 0x80000000
"""Sequences count from 0 to 2^31 - 1 and begin again at 0."""


class TimestampType(IntEnum):
    """Whether the producer or the broker set the timestamps of a batch: bit 3 of its attributes."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The fixed part of a batch, as stored."""

    base_offset: int
    length: int
    """Bytes after this field; see `size`."""
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    """Last offset less base offset; compaction does not change it, so it may exceed the last record's delta."""
    base_timestamp: int
    """What the records' deltas count from; with a delete horizon, that horizon."""
    max_timestamp: int
    """Greatest timestamp of the records; with log append time the timestamp of all of them."""
    producer_id: int
    producer_epoch: int
    base_sequence: int
    """Sequence of the first record, -1 where the producer is not idempotent."""
    records_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + SIZE_PREFIX

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """`InvalidBatch` (UNSUPPORTED_COMPRESSION_TYPE) if the bits name none."""
        return check_codec(self.attributes)

    @property
    def is_compressed(self) -> bool:
        return self.attributes & 7 != 0

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        """Whether the records are markers for the broker and clients, not for applications."""
        return self.attributes & CONTROL_BIT != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop the batch's tombstones and markers (KIP-534), milliseconds since 1970; None if
        unset.
        """
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, -1 where there are none; it wraps from 2147483647 to 0."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCES
