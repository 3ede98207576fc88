"""The first pass: the last offset of each key in the dirty part of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.records.batch import check_crc, read_header, records_section
from tidelog.records.compaction import DONE, FULL, KeyMap
from tidelog.storage.cleaner.choice import segments_between
from tidelog.storage.cleaner.reading import ChunkReader
from tidelog.storage.cleaner.transactions import CleanedTransactions
from tidelog.storage.log_reader import aborted_transactions

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from tidelog.storage.segment import Segment

SLOT_SIZE = 24
"""Bytes that a key takes in the map: its digest, and its offset."""


def make_key_map(buffer_bytes: int, load_factor: float, offsets: int, seed: bytes) -> KeyMap:
    """A map that takes at most `buffer_bytes`, and no more than `offsets` many records can need."""
    slots = max(buffer_bytes // SLOT_SIZE, 2)
    size_max = min(int(slots * load_factor), slots - 1, 0xFFFFFFF0)
    if offsets <= size_max:
        return KeyMap(min(slots, offsets + offsets // 2 + 2), offsets, seed)
    return KeyMap(slots, size_max, seed)


class KeyMapper:
    """Fills a map from the offsets start .. end - 1 of `segments`."""

    def __init__(
        self, segments: list[Segment], keys: KeyMap, start: int, end: int, chunk_bytes: int, decompressed_size_max: int
    ) -> None:
        """`decompressed_size_max` is in bytes, of one batch's records."""
        self._segments = segments
        self._keys = keys
        self._start = start
        self._end = end
        self._chunk_bytes = chunk_bytes
        self._decompressed_size_max = decompressed_size_max
        self._transactions = CleanedTransactions()
        self.latest_offset = -1
        """The map knows of everything up to here; -1: not even the first dirty batch had room."""

    def run(self) -> Iterator[int]:
        """Until the end, or until the map is full; gives bytes read and decompressed on the way.

        OSError, `InvalidBatch`, `CorruptFile`, `Uncleanable`.
        """
        start, end = self._start, self._end
        self._transactions.expect(aborted_transactions(self._segments, start, end, ended_from=start))
        dirty = segments_between(self._segments, start, end)
        for index, segment in enumerate(dirty):
            if (yield from self._map(segment)):
                return
            following = dirty[index + 1].base_offset if index + 1 < len(dirty) else end
            self.latest_offset = max(self.latest_offset, following - 1)

    def _map(self, segment: Segment) -> Generator[int, None, bool]:
        """True when the map is full."""
        first = segment.find(self._start) if self._start > segment.base_offset else None
        if first is None and self._start > segment.base_offset:
            return False
        reader = ChunkReader(segment, 0 if first is None else first.position, self._chunk_bytes)
        chunk = reader.read()
        while chunk:
            larger: bytes | None = chunk
            is_full = False
            while larger is not None:
                chunk = larger
                taken, is_full = self._map_chunk(chunk)
                larger = None if is_full else reader.took(chunk, taken)
            yield len(chunk)
            if is_full:
                return True
            chunk = reader.read()
        return False

    def _map_chunk(self, chunk: bytes) -> tuple[int, bool]:
        """How many bytes were taken, and whether the map is full."""
        position = 0
        while True:
            position, status, latest, _ = self._keys.add_batches(chunk, position, self._start)
            self.latest_offset = max(self.latest_offset, latest)
            if status == DONE:
                return position, False
            if status == FULL or not self._map_batch(chunk, position):
                return position, True
            position += read_header(chunk, position).size

    def _map_batch(self, chunk: bytes, position: int) -> bool:
        """A batch that the bulk left to us; false when the map is full."""
        header = read_header(chunk, position)
        check_crc(chunk, position, header)
        if header.is_control:
            batch = memoryview(chunk)[position : position + header.size]
            self._transactions.marker_is_superfluous(header, batch)
        elif not self._transactions.batch_is_aborted(header):
            section = records_section(chunk, position, header, size_max=self._decompressed_size_max)
            if not self._keys.add_section(
                section, header.records_count, header.base_offset, header.last_offset_delta, self._start
            ):
                return False
        if header.last_offset >= self._start:
            self.latest_offset = max(self.latest_offset, header.last_offset)
        return True
