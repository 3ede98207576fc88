"""The second pass: segments, a few at a time, into one without what is superseded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidelog.model.values import value
from tidelog.records.batch import assemble, check_crc, read_header, records_section
from tidelog.records.compaction import DONE, RecordFilter, emptied, filtered
from tidelog.records.compression import compress
from tidelog.records.record import decode_records, encode_records
from tidelog.storage.cleaner.reading import ChunkReader
from tidelog.storage.log_reader import aborted_transactions
from tidelog.storage.offset_index import RELATIVE_OFFSET_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.records.batch import BatchHeader
    from tidelog.storage.cleaner.transactions import CleanedTransactions
    from tidelog.storage.log_config import LogConfig
    from tidelog.storage.segment import Segment

GROUP_MAX: Final = 64
"""Segments that one takes the place of: a bound on the renames that the owner of the log makes at once."""


@value
class LastOfProducer:
    """What of a producer must stay, whatever else goes."""

    last_data_offset: int
    """Of its last batch: it holds the last sequence. -1 where a marker was the last that was heard of it."""
    producer_epoch: int
    """In that case its last marker stays, which has the epoch."""


@dataclass(slots=True)
class Counts:
    """What a cleaning has read and written."""

    records_read: int = 0
    records_written: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


def group_segments(segments: list[Segment], config: LogConfig, boundary_offset: int) -> list[list[Segment]]:
    """Neighbours that fit into one segment, by the size of their log and of their indexes, and by their offsets."""
    groups: list[list[Segment]] = []
    size = index_size = time_index_size = 0
    for index, segment in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else boundary_offset
        sizes = (segment.size, *segment.index_sizes())
        fits = (
            bool(groups)
            and len(groups[-1]) < GROUP_MAX
            and size + sizes[0] <= config.segment_bytes
            and index_size + sizes[1] <= config.segment_index_bytes
            and time_index_size + sizes[2] <= config.segment_index_bytes
            and (segment.size == 0 or following - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX)
        )
        if fits:
            groups[-1].append(segment)
            size, index_size, time_index_size = size + sizes[0], index_size + sizes[1], time_index_size + sizes[2]
        else:
            groups.append([segment])
            size, index_size, time_index_size = sizes
    return groups


class Rewriter:
    """Writes groups of segments anew, one after the other, in their order."""

    def __init__(
        self,
        segments: list[Segment],
        record_filter: RecordFilter,
        transactions: CleanedTransactions,
        *,
        producers: dict[int, LastOfProducer],
        upper_bound_offset: int,
        now_ms: int,
        delete_horizon_ms: int,
        chunk_bytes: int,
        decompressed_size_max: int,
    ) -> None:
        """`segments` are all of the log's; `upper_bound_offset` is where the cleaning ends; `decompressed_size_max` is
        in bytes, of one batch's records."""
        self._segments = segments
        self._filter = record_filter
        self._transactions = transactions
        self._producers = producers
        self._upper_bound_offset = upper_bound_offset
        self._now_ms = now_ms
        self._delete_horizon_ms = delete_horizon_ms
        self._chunk_bytes = chunk_bytes
        self._decompressed_size_max = decompressed_size_max
        self.counts = Counts()

    def run(self, group: list[Segment], cleaned: Segment) -> Iterator[int]:
        """Fills `cleaned` from the segments of `group`; gives bytes read and written on the way.

        OSError, `InvalidBatch`, `CorruptFile`, `Uncleanable`.
        """
        self._transactions.kept = []
        for index, segment in enumerate(group):
            end = group[index + 1].base_offset if index + 1 < len(group) else segment.next_offset()
            start = segment.base_offset
            self._transactions.expect(aborted_transactions(self._segments, start, end, ended_from=start))
            yield from self._rewrite(segment, cleaned)
        if self._transactions.kept:
            cleaned.transaction_index.rewrite(self._transactions.kept)
        cleaned.become_inactive()

    def _rewrite(self, segment: Segment, cleaned: Segment) -> Iterator[int]:
        reader = ChunkReader(segment, 0, self._chunk_bytes)
        chunk = reader.read()
        while chunk:
            before = reader.position
            output = bytearray()
            larger: bytes | None = chunk
            while larger is not None:
                chunk = larger
                larger = reader.took(chunk, self._rewrite_chunk(chunk, output))
            self.counts.bytes_read += reader.position - before
            if output:
                cleaned.append_indexed(output)
                self.counts.bytes_written += len(output)
            yield len(chunk) + len(output)
            chunk = reader.read()

    def _rewrite_chunk(self, chunk: bytes, output: bytearray) -> int:
        """How many bytes were dealt with."""
        position = 0
        while True:
            position, status, read, written = self._filter.batches(chunk, position, output)
            self.counts.records_read += read
            self.counts.records_written += written
            if status == DONE:
                return position
            position += self._rewrite_batch(chunk, position, output)

    def _rewrite_batch(self, chunk: bytes, position: int, output: bytearray) -> int:
        """A batch that the bulk left to us; gives its size."""
        header = read_header(chunk, position)
        check_crc(chunk, position, header)
        batch = memoryview(chunk)[position : position + header.size]
        if header.is_control:
            self._rewrite_marker(header, batch, output)
        else:
            self._rewrite_data(header, batch, output)
        return header.size

    def _rewrite_marker(self, header: BatchHeader, batch: memoryview, output: bytearray) -> None:
        is_superfluous = self._transactions.marker_is_superfluous(header, batch)
        horizon = header.delete_horizon_ms
        if is_superfluous and horizon is not None and horizon <= self._now_ms:
            if self._must_stay(header):
                self.counts.records_read += header.records_count
                output += emptied(header)
            return
        self.counts.records_read += header.records_count
        if header.records_count == 0:
            if self._must_stay(header):
                output += emptied(header)
            return
        self.counts.records_written += header.records_count
        if is_superfluous and horizon is None:
            self._write_marker_with_horizon(header, batch, output)
        else:
            output += batch

    def _write_marker_with_horizon(self, header: BatchHeader, batch: memoryview, output: bytearray) -> None:
        """The same records at the same times: only what their times count from changes."""
        section = records_section(batch, 0, header)
        shifted = _shift_timestamps(section, header, self._delete_horizon_ms)
        latest = header.max_timestamp
        new = filtered(header, header.records_count, self._delete_horizon_ms, latest)
        output += assemble(new, compress(header.codec, shifted))

    def _rewrite_data(self, header: BatchHeader, batch: memoryview, output: bytearray) -> None:
        if self._transactions.batch_is_aborted(header):
            if self._must_stay(header):
                self.counts.records_read += header.records_count
                output += emptied(header)
            return
        section = records_section(batch, 0, header, size_max=self._decompressed_size_max)
        kept, rewritten, horizon, latest = self._filter.section(
            section,
            header.records_count,
            header.base_offset,
            header.last_offset_delta,
            header.base_timestamp,
            header.delete_horizon_ms is not None,
        )
        self.counts.records_read += header.records_count
        self.counts.records_written += kept
        if kept == 0:
            if self._must_stay(header):
                output += emptied(header)
        elif rewritten is None:
            output += batch
        else:
            output += assemble(filtered(header, kept, horizon, latest), compress(header.codec, rewritten))

    def _must_stay(self, header: BatchHeader) -> bool:
        """Whether the batch, even an empty one, keeps a producer's last sequence or epoch, or the log's last offset."""
        if header.next_offset == self._upper_bound_offset:
            return True
        last = self._producers.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.last_data_offset >= 0:
            return header.last_offset == last.last_data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch


def _shift_timestamps(section: bytes | bytearray | memoryview, header: BatchHeader, base_timestamp: int) -> bytes:
    """A section's records with deltas that count from another base timestamp."""
    records = decode_records(section, header.records_count, header.base_offset, header.base_timestamp)
    return encode_records(records, header.base_offset, base_timestamp)
