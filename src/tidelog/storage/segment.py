"""One segment of a log: the batches from its base offset on, in one file, with the indexes that find them.

Here is what changes a segment: appends, truncation, recovery; `segment_lookups` has what is asked of it, and
`segment_files` its files. A segment does not know what lies before or after it: when to roll, what to keep, and the
recovery of the whole are decided by the log.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tidelog.model.identifiers import NO_LEADER_EPOCH, Offset
from tidelog.records.batch import BatchHeader
from tidelog.records.compaction import index_batches
from tidelog.storage.batch_scan import contradicts_next, valid_batches
from tidelog.storage.checked_ranges import NOTHING_ROTTEN
from tidelog.storage.offset_index import (
    NO_TIMESTAMP,
    RELATIVE_OFFSET_MAX,
)
from tidelog.storage.segment_lookups import FoundBatch, SegmentLookups

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.ports.disk import File
    from tidelog.records.epochs import EpochCache
    from tidelog.storage.file_pool import FilePool
    from tidelog.storage.log_config import LogConfig

    BeforeCut = Callable[[File, int, int, int, int], None]

logger = logging.getLogger(__name__)

EPOCH_STEP_MAX: Final = 255
"""By how much a leader epoch rises from one batch to the next after a power cut, unless the checkpoint has the epoch
there: an election raises it by one or two, and what a truncation has removed may have come back behind the batch."""


class Segment(SegmentLookups):
    """A .log file and its indexes. Not thread safe, but for lookups beside one appender."""

    __slots__ = ()

    @classmethod
    def create(
        cls,
        pool: FilePool,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        now_ms: int,
        with_indexes: bool = False,
    ) -> Segment:
        """Creates the files of an empty segment; nothing is synced. OSError, and then some of them may be there.

        `with_indexes`: it is about to be appended to; the first segment of a log may stay empty for long.
        """
        segment = cls(pool, directory, base_offset, config, size=0, created_ms=now_ms)
        segment.has_index_files = False
        try:
            if with_indexes:
                segment.preallocate_indexes()
            segment.create_log_file()
        except OSError:
            segment.release_files()
            raise
        return segment

    # Appending.

    def check_indexes(self) -> None:
        """Makes sure that both can be appended to; one that cannot be what it says is written anew."""
        if self.size:
            self._load_max_timestamp(blocking=True)
            self._repaired(lambda: (self.offset_index.tail(), self.time_index.tail()))

    def preallocate_indexes(self) -> None:
        """Makes the index files as long as they may become, as those of an active segment are."""
        if not self._preallocated:
            indexes = self.offset_index, self.time_index  # Where there are no files yet, they know that they are empty.
            self.make_index_files()
            for index in indexes:
                index.tail()  # Counted before the zeros come.
                index.preallocate()
            self._preallocated = True

    def append(self, data: bytes | bytearray | memoryview, batches: list[tuple[int, BatchHeader]]) -> None:
        """Appends whole batches; `batches` are their positions in `data`, and headers with final offsets and
        timestamps.

        OSError if the disk refuses: nothing was appended. Bytes that could not be taken back lie behind `size`, where
        no read goes, and are removed before the next append.
        """
        position = self.size
        interval = self.config.index_interval_bytes
        # All that may fail comes before the bytes, or is the bytes.
        if not self._timestamp_known:
            self._load_max_timestamp(blocking=True)
        if not self.has_index_files or self.bytes_since_index_entry + len(data) > interval:
            self._prepare_indexes()
        with self.log_file as file:
            if self._is_torn:
                file.truncate(position)
                self._is_torn = False
            try:
                file.pwrite(data, position)
            except OSError:
                self._take_back(file)
                raise
        for _, header in batches:
            last_offset = header.base_offset + header.last_offset_delta
            if header.max_timestamp > self.max_timestamp and header.records_count:
                self.max_timestamp = header.max_timestamp
                self.max_timestamp_offset = last_offset
            if self.bytes_since_index_entry > interval:
                self._add_index_entry(last_offset, position)
                self.bytes_since_index_entry = 0
            size = header.length + 12
            position += size
            self.bytes_since_index_entry += size
        self._is_unfinished = True
        if self.first_timestamp is None and self.size == 0:
            self.first_timestamp = batches[0][1].max_timestamp
        self.size = position

    def _load_index_ends(self) -> None:
        self.offset_index.prepare()
        self.time_index.prepare()

    def _take_back(self, file: File) -> None:
        """Removes what a failed write has left behind the end, now or before the next append."""
        self._is_torn = True
        if self.config.preallocate:
            return
        try:
            if file.size() > self.size:
                file.truncate(self.size)
            self._is_torn = False
        except OSError as error:
            logger.warning("torn_write_left: path=%s size=%d error=%s", file.path, self.size, error)

    def _prepare_indexes(self) -> None:
        """Makes room for entries, so that adding them touches memory alone."""
        self._repaired(self._load_index_ends)
        if not self._preallocated:
            self.preallocate_indexes()

    def append_indexed(self, data: bytes | bytearray) -> None:
        """As `append`, of batches that need no looking at one by one: what compaction writes. OSError."""
        with self.log_file as file:
            file.pwrite(data, self.size)
        entries, self.bytes_since_index_entry, self.max_timestamp, self.max_timestamp_offset = index_batches(
            data,
            self.size,
            self.config.index_interval_bytes,
            self.bytes_since_index_entry,
            self.max_timestamp,
            self.max_timestamp_offset,
        )
        for last_offset, position, timestamp, timestamp_offset in entries:
            if not self.offset_index.is_full:
                self.offset_index.append(last_offset, position)
            if not self.time_index.is_full:
                self.time_index.maybe_append(timestamp, timestamp_offset)
        self._is_unfinished = True
        self.size += len(data)

    def _add_index_entry(self, last_offset: int, position: int) -> None:
        """A full index takes no more: the next append rolls, until then lookups scan a little further."""
        if not self.offset_index.is_full:
            self.offset_index.note(last_offset, position)
        if not self.time_index.is_full:
            self.time_index.note(self.max_timestamp, self.max_timestamp_offset)

    def should_roll(
        self, config: LogConfig, jitter_ms: int, size: int, max_timestamp: int, last_offset: int, now_ms: int
    ) -> bool:
        """Whether `size` bytes of batches that end with `last_offset` belong into a new segment."""
        if self.size > config.segment_bytes - size or last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if self.size > 0 and self.waited_ms(max_timestamp, now_ms) > config.roll_ms - jitter_ms:
            return True
        return self._repaired(lambda: self.offset_index.is_full or self.time_index.is_full)

    def waited_ms(self, max_timestamp: int, now_ms: int) -> int:
        """The age that `segment.ms` is compared with: by the records' own time if they have one, else since its
        creation."""
        first_timestamp = self.first_batch_timestamp()
        if first_timestamp >= 0:
            return max_timestamp - first_timestamp
        return now_ms - self.created_ms

    def become_inactive(self) -> None:
        """The last time entry is written, the indexes are trimmed: nothing will be appended any more."""
        self.make_index_files()
        self._repaired(self._finish_indexes)
        with self.log_file as file:
            if file.size() != self.size:
                file.truncate(self.size)
        self._is_torn = False
        self.offset_index.forget_tail()
        self.time_index.forget_tail()

    def first_valid_batch(self) -> BatchHeader | None:
        """The header of its first batch; None where there is none, or its checksum fails. OSError."""
        with self.log_file as file:
            return next((header for _, header, _ in valid_batches(file, self.size)), None)

    # Changing what is there.

    def truncate_to(self, offset: int, now_ms: int) -> FoundBatch | None:
        """Removes the batch that holds `offset` and what follows; gives the first batch removed, None if there is none.

        The segment may be appended to again, and its indexes go on as if what was removed had never been there.
        OSError: nothing was removed. Afterwards `transaction_index.cut` makes that file shorter, too.
        """
        self._cuts += 1
        try:
            return self._truncate_to(offset, now_ms)
        finally:
            self._cuts += 1

    def _truncate_to(self, offset: int, now_ms: int) -> FoundBatch | None:
        # Of a segment that is emptied nothing has to be readable.
        is_emptied = offset <= self.base_offset
        found = None if is_emptied else self.find(offset)
        position = 0 if is_emptied else None if found is None else found.position
        self.rotten, self.verified = NOTHING_ROTTEN, ()
        # Entries that are missing from the offset and the time index do no harm, those of what is no more would.
        self._cut_indexes(offset)
        transactions = 0 if is_emptied else self.transaction_index.size_below(offset)
        last_position = self.offset_index.last().position
        self._preallocated = False
        self._is_unfinished = True
        if position is not None:
            with self.log_file as file:
                file.truncate(position)
            self.size = position
            self._is_torn = False
        self.transaction_index.end_at(transactions)
        if self.size == 0:
            self.created_ms = now_ms
            self.first_timestamp = None
        self.bytes_since_index_entry = self.size - last_position
        if self.size == 0 or not self._timestamp_known or self.max_timestamp_offset >= offset:
            self._forget_timestamp()
        return found

    def _cut_indexes(self, offset: int) -> None:
        """Removes the entries of `offset` and later ones; an index that is damaged is written anew first."""
        indexes = self.offset_index, self.time_index
        if offset > self.base_offset:
            self._repaired(lambda: [index.truncate_to(offset) for index in indexes])
        elif self.has_index_files:
            for index in indexes:
                index.reset()

    def recover(
        self,
        latest_epoch: int = NO_LEADER_EPOCH,
        before_cut: BeforeCut | None = None,
        *,
        known_epochs: EpochCache | None = None,
        epoch_step_max: int = EPOCH_STEP_MAX,
        may_have_gaps: bool = True,
        behind: BatchHeader | None = None,
    ) -> Iterator[tuple[FoundBatch, memoryview]]:
        """Every valid batch with its bytes, checked, and indexed as it goes by; then cuts the file behind the last of
        them. A batch whose leader epoch is below `latest_epoch`, or below that of the one before it, is not valid.

        This is recovery: the indexes are reset first, and finished when the caller has taken the last batch. The
        transaction index is the caller's to replace. `before_cut` is told of the file, the position of the cut, the
        file's size, and the next offset and the latest epoch at the cut; what it raises leaves the file as it is.
        `known_epochs` are those of the checkpoint: a batch that rises by more than `epoch_step_max` above the epoch
        before it, to one that the checkpoint does not have there, is damaged if the batch behind it is of an older
        epoch; None to believe every one. `may_have_gaps`: whether compaction can have left gaps between offsets; else
        a batch behind one has a wrong offset, which no checksum covers. `behind` is the first valid batch of the next
        segment.
        """
        if self.size:
            self.make_index_files()
        if self.has_index_files:
            for index in (self.offset_index, self.time_index):
                index.reset()
        self._preallocated = False
        self.first_timestamp = None
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self._timestamp_known = True
        with self.log_file as file:
            size = file.size()
            valid, last_entry, next_offset = 0, 0, self.base_offset
            for position, header, data in valid_batches(file, size):
                if header.base_offset < next_offset or header.last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
                    break
                if header.partition_leader_epoch < latest_epoch:
                    break
                is_last = position + header.size >= size
                if header.base_offset > next_offset and is_last and not may_have_gaps:
                    break  # Further on a gap is believed: the log may have been compacted under other settings.
                epoch = header.partition_leader_epoch
                is_unknown = (
                    known_epochs is not None
                    and epoch > latest_epoch + epoch_step_max
                    and known_epochs.epoch_for_offset(Offset(header.base_offset)) != epoch
                )
                if header.base_offset > next_offset or is_unknown:
                    believed = latest_epoch if is_unknown else epoch
                    if contradicts_next(file, size, position, header, believed, behind):
                        break
                next_offset, latest_epoch = header.next_offset, header.partition_leader_epoch
                last_entry = self._index(position, header, last_entry)
                self.size = valid = position + header.size
                yield FoundBatch(position, header), data
            if before_cut is not None and valid != size:
                before_cut(file, valid, size, next_offset, latest_epoch)
            self.size = valid
            if valid != size:
                file.truncate(valid)
        self.bytes_since_index_entry = 0
        self._finish_indexes()

    def _index(self, position: int, header: BatchHeader, last_entry: int) -> int:
        """Indexes a batch as `append` would have; gives the position of the last entry."""
        if header.max_timestamp > self.max_timestamp and header.records_count:
            self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset
        if position - last_entry > self.config.index_interval_bytes:
            self.offset_index.append(header.last_offset, position)
            self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
            return position
        return last_entry

    def close(self) -> bool:
        """Finishes the indexes, as Kafka does, and closes the files; true if that changed a file."""
        changed = (self._preallocated or self._is_unfinished) and self._repaired(self._finish_indexes)
        if self.config.preallocate or self._is_torn:
            with self.log_file as file:
                if file.size() != self.size:
                    file.truncate(self.size)
                    changed = True
            self._is_torn = False
        self.release_files()
        return changed
