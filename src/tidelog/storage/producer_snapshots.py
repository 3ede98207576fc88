"""Snapshot files of a partition's producers: recovery starts from the newest and scans what follows.

A snapshot (`<offset>.snapshot`, big-endian) holds the state as of that offset:

    int16 version = 1 | uint32 CRC32C of the rest | int32 count | 46 bytes a producer:
    int64 id | int16 epoch | int32 last sequence | int64 last offset | int32 offset delta | int64 timestamp
    | int32 coordinator epoch | int64 first offset of the open transaction, -1 without one
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from tidelog.records.checksum import crc32c
from tidelog.storage.errors import CorruptFile
from tidelog.storage.producer_entries import NO_SEQUENCE, ProducerBatch, ProducerEntry

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SNAPSHOT_HEADER: Final = Struct(">hIi")
_SNAPSHOT_ENTRY: Final = Struct(">qhiqiqiq")
_SNAPSHOT_VERSION: Final = 1
_CRC_START: Final = 6


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """The content of a snapshot file."""
    packed = []
    for entry in entries:
        batch = entry.batches[-1] if entry.batches else ProducerBatch(NO_SEQUENCE, -1, 0, -1)
        packed.append(
            _SNAPSHOT_ENTRY.pack(
                entry.producer_id,
                entry.producer_epoch,
                batch.last_sequence,
                batch.last_offset,
                batch.offset_delta,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.transaction_first_offset,
            )
        )
    content = bytearray(_SNAPSHOT_HEADER.pack(_SNAPSHOT_VERSION, 0, len(packed)) + b"".join(packed))
    content[2:6] = crc32c(memoryview(content)[_CRC_START:]).to_bytes(4, "big")
    return bytes(content)


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """The inverse; `CorruptFile` when `data` is no whole snapshot."""
    if len(data) < _SNAPSHOT_HEADER.size:
        raise CorruptFile(f"a snapshot of {len(data)} bytes is too short for its header")
    version, crc, count = _SNAPSHOT_HEADER.unpack_from(data)
    if version != _SNAPSHOT_VERSION:
        raise CorruptFile(f"Snapshot contained an unknown file version {version}")
    computed = crc32c(memoryview(data)[_CRC_START:])
    if computed != crc:
        raise CorruptFile(f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {crc}. Computed crc: {computed}")
    if count * _SNAPSHOT_ENTRY.size != len(data) - _SNAPSHOT_HEADER.size:
        raise CorruptFile(f"Snapshot announces {count} producers in {len(data) - _SNAPSHOT_HEADER.size} bytes")
    entries = []
    for fields in _SNAPSHOT_ENTRY.iter_unpack(memoryview(data)[_SNAPSHOT_HEADER.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, transaction = fields
        batches = (ProducerBatch(sequence, offset, delta, timestamp),) if offset >= 0 else ()
        entries.append(ProducerEntry(producer_id, epoch, coordinator_epoch, timestamp, transaction, batches))
    return entries


class PendingSnapshot:
    """The producers as of an offset, to be written later: encoding many thousands would hold the loop."""

    __slots__ = ("_entries", "content", "offset")

    def __init__(self, entries: Sequence[ProducerEntry], offset: int) -> None:
        self.offset = offset
        self._entries = entries
        self.content = b""
        """Of the file, once it is encoded."""

    def encode(self) -> None:
        """In any thread."""
        self.content = encode_snapshot(self._entries)
