"""What may be asked of one partition's log: its bytes, offsets by time or epoch, aborted transactions, where it ends.

Reads and lookups may run in another thread, beside the one that owns the log and changes it (`Log`): they see the
segments as a list that is replaced, never changed. With `blocking=False` they raise `WouldBlock` when the bytes they
need are not in the page cache. `log_reader` finds things; an OSError is the end of the log's
directory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    LeaderEpoch,
    Offset,
)
from tidelog.records.epochs import EpochCache
from tidelog.records.errors import InvalidBatch
from tidelog.storage import log_reader
from tidelog.storage.errors import CorruptTransactionIndex
from tidelog.storage.integrity import SegmentCheck
from tidelog.storage.log_reader import EMPTY_READ, FoundRecord, ReadResult, read_batches
from tidelog.storage.ordinary_read import read_ordinary
from tidelog.storage.producer_state import ProducerState
from tidelog.storage.rot import Rot, RottenBatch
from tidelog.storage.segment_order import floor_index

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.model.identifiers import TopicId
    from tidelog.storage.log_config import LogConfig
    from tidelog.storage.log_folder import LogFolder, LogOwner
    from tidelog.storage.log_reader import RangeCheck
    from tidelog.storage.segment import Segment
    from tidelog.storage.transaction_index import AbortedTransaction

SEGMENTS_ASKED_MAX: Final = 32
"""Segments that are asked one by one for a time."""
_NO_POSITIONS: Final[dict[int, int]] = {}


class ReadableLog:
    """One partition's log as its readers see it; it is changed by `Log` alone."""

    __slots__ = (
        "_greatest_timestamps",
        "_positions",
        "ahead",
        "config",
        "epochs",
        "folder",
        "high_watermark",
        "log_end_offset",
        "log_start_offset",
        "producers",
        "rot",
        "segments",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        folder: LogFolder,
        topic_id: TopicId | None,
        config: LogConfig,
        *,
        segments: list[Segment],
        log_start_offset: int,
        epochs: EpochCache | None,
    ) -> None:
        self.folder = folder
        self.topic_partition = folder.topic_partition
        self.topic_id = topic_id
        """None for a log whose folder has no partition.metadata yet."""
        self.config = config
        self.segments = segments
        """Oldest first, at least one; replaced, never changed."""
        self.log_start_offset = Offset(log_start_offset)
        self.log_end_offset = Offset(log_start_offset)
        self.high_watermark = Offset(log_start_offset)
        """As last told by `Log.update_high_watermark`: what retention may reach."""
        self.epochs = EpochCache() if epochs is None else epochs
        self.producers = ProducerState(folder.topic_partition)
        self._positions: dict[int, int] | None = None
        """[first offset] -> position in the active segment, of recent batches; None where there are none yet."""
        self._greatest_timestamps: log_reader.GreatestTimestamps | None = None
        """Of the segments as they were when a time was last looked for; None where there are few."""
        self.ahead: tuple[Segment, int] | None = None
        """The segment and the position from which a reader will want more, as `check_ahead` takes them."""
        self.rot: dict[int, Rot] = {}
        """[base offset of a segment] -> what was found wrong in it, until it is repaired."""

    def __repr__(self) -> str:
        return f"Log({self.topic_partition}, {self.log_start_offset}..{self.log_end_offset}, {self.directory!r})"

    @property
    def directory(self) -> str:
        """Path of the partition's own folder."""
        return self.folder.path

    @property
    def owner(self) -> LogOwner:
        """The log directory in which the folder lies."""
        return self.folder.owner

    @property
    def active(self) -> Segment:
        """The segment that is appended to."""
        return self.segments[-1]

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        segments = self.segments
        return segments[0].size if len(segments) == 1 else sum(segment.size for segment in segments)

    @property
    def is_gapless(self) -> bool:
        """Whether each segment ends where the next one begins: compaction leaves gaps."""
        return not self.config.compacted

    @property
    def is_offline(self) -> bool:
        """Whether its directory has failed."""
        return self.folder.owner.failure is not None

    @property
    def last_stable_offset(self) -> Offset:
        """What committed reads stay below: the first open transaction, at most the high watermark."""
        # In this order: beside a reader a transaction may begin and the high watermark pass its first record.
        high_watermark = self.high_watermark
        unstable = self.producers.first_unstable_offset
        if unstable is None or unstable >= high_watermark:
            return high_watermark
        # What a transaction wrote before the log's start is gone for all.
        return Offset(max(unstable, self.log_start_offset))

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        up_to_offset: int,
        min_one_batch: bool = True,
        blocking: bool = True,
        checked: bool = True,
    ) -> ReadResult:
        """The bytes of the batches from the one that holds `offset` (it may begin before) to below `up_to_offset`.

        At most `max_bytes`, which may cut the last batch short as Kafka's fetches do; but the first batch is
        whole (`min_one_batch`), or nothing is given. From one segment at a time. `KafkaError` OFFSET_OUT_OF_RANGE;
        `WouldBlock` with `blocking=False`.

        Batches that are not what was written are not given: up to the first one, or `RottenBatch`. `checked=False` is
        for a caller that checks them itself, or does not hand them on.
        """
        if read_ordinary is not None and not blocking:
            found = read_ordinary(self, offset, max_bytes, up_to_offset, min_one_batch, checked)
            if found is not None:
                return found
        self.folder.check_online()
        if offset < self.log_start_offset or offset > self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Received request for offset {offset} for partition {self.topic_partition}, but we only have"
                f" log segments from offset {self.log_start_offset} to {self.log_end_offset}.",
            )
        if offset >= up_to_offset:
            return EMPTY_READ
        # Before the segments: a roll replaces those first, so that positions are never those of a later segment.
        recent = self._positions or _NO_POSITIONS
        check = self._range_check(offset, blocking) if checked else None
        segments = self.segments
        try:
            return read_batches(
                segments,
                recent,
                offset,
                max_bytes,
                up_to_offset=up_to_offset,
                log_end_offset=self.log_end_offset,
                min_one_batch=min_one_batch,
                blocking=blocking,
                check=check,
                is_gapless=self.is_gapless,
            )
        except InvalidBatch as error:
            segment = segments[floor_index(segments, offset)]
            raise RottenBatch(self.found_rot(segment.base_offset, offset, str(error)), offset) from error
        except OSError as error:
            raise self.folder.fail(error, "reading") from error

    def _range_check(self, offset: int, blocking: bool) -> RangeCheck:
        now_ms = self.folder.environment.clock.monotonic_ms()

        def check(segment: Segment, position: int, end: int, *, is_recent: bool, end_offset: int | None) -> int:
            known = self._segment_check(segment, end_offset, now_ms, segment.rotten)
            if position >= known.size:
                return position  # Truncated beside this read.
            end = min(end, known.size)
            sound, flaw = known.sound_end(position, end, offset=offset, is_recent=is_recent, blocking=blocking)
            if known.ahead is not None and known.ahead < known.size:
                self.ahead = segment, known.ahead
            if sound <= position:
                if segment.size < end:
                    return position  # Truncated beside this read: what is missing is not rot.
                raise RottenBatch(self.found_rot(segment.base_offset, offset, flaw or "is cut short"), offset)
            return sound

        return check

    def _segment_check(
        self, segment: Segment, end_offset: int | None, now_ms: int, rotten: Mapping[int, int]
    ) -> SegmentCheck:
        size = segment.size  # Before the log's end: an append beside us moves that later.
        must_reach_end = end_offset is not None and self.is_gapless
        if end_offset is None:
            end_offset = self.log_end_offset
        epochs = self.epochs.entries
        return SegmentCheck(
            segment,
            epochs,
            size=size,
            end_offset=end_offset,
            now_ms=now_ms,
            rotten=rotten,
            must_reach_end=must_reach_end,
        )

    def segment_check(self, segment: Segment) -> SegmentCheck | None:
        """What all batches of one of the log's segments are judged by; None where it is not the log's any more."""
        segments = self.segments
        index = floor_index(segments, segment.base_offset)
        if segments[index] is not segment:
            return None
        end_offset = segments[index + 1].base_offset if index + 1 < len(segments) else None
        return self._segment_check(segment, end_offset, self.folder.environment.clock.monotonic_ms(), {})

    def check_ahead(self) -> None:
        """Checks what the last reader will want next; in any thread. OSError."""
        wanted, self.ahead = self.ahead, None
        if wanted is not None:
            check = self.segment_check(wanted[0])
            if check is not None:
                check.check_ahead(wanted[1])

    def is_recent(self, offset: int) -> bool:
        """Whether a batch that begins with `offset` was appended just now."""
        return self._positions is not None and offset in self._positions

    def found_rot(self, base_offset: int, offset: int, flaw: str) -> Rot:
        """Notes that a segment is not as it was written, once, for the broker to have it repaired; in any thread."""
        known = self.rot.get(base_offset)
        if known is None:
            known = self.rot[base_offset] = Rot(self.topic_partition, self.rot, base_offset, offset, flaw)
            self.folder.environment.findings.add(known)
        return known

    def offset_for_timestamp(
        self, timestamp: int, *, up_to_offset: int, blocking: bool = True
    ) -> tuple[int, Offset, LeaderEpoch] | None:
        """Timestamp, offset and leader epoch of the first record that is as late as `timestamp`; None if there is none.

        Also answers ListOffsets' special timestamps: latest, which is `up_to_offset`; earliest; the greatest timestamp.
        Records at `up_to_offset` and later are not found. Reads from disk: `WouldBlock` with `blocking=False`.
        """
        self.folder.check_online()
        if timestamp == LATEST_TIMESTAMP:
            return -1, Offset(up_to_offset), self.epochs.latest
        if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            earliest = self.epochs.earliest_entry
            known = earliest is not None and earliest.start_offset <= self.log_start_offset
            return -1, self.log_start_offset, earliest.epoch if known and earliest is not None else LeaderEpoch(-1)
        if timestamp == MAX_TIMESTAMP:
            return self.max_timestamp_offset(up_to_offset=up_to_offset, blocking=blocking)
        try:
            segments = self.segments
            found = log_reader.first_as_late_as(
                segments,
                timestamp,
                from_offset=self.log_start_offset,
                blocking=blocking,
                first=self._index_of_first_as_late_as(segments, timestamp, blocking=blocking),
            )
        except OSError as error:
            raise self.folder.fail(error, "reading") from error
        return found if found is not None and found.offset < up_to_offset else None

    def _index_of_first_as_late_as(self, segments: list[Segment], timestamp: int, *, blocking: bool) -> int:
        """Index of the first segment that may have a record as late as `timestamp`."""
        if len(segments) <= SEGMENTS_ASKED_MAX:
            return 0
        known = self._greatest_timestamps
        if known is None or known.segments is not segments:
            known = self._greatest_timestamps = log_reader.GreatestTimestamps(segments, blocking=blocking)
        return known.index_of_first_as_late_as(timestamp)

    def max_timestamp_offset(self, *, up_to_offset: int, blocking: bool = True) -> FoundRecord | None:
        """The first record that has the greatest timestamp, as `offset_for_timestamp` gives it (KIP-734)."""
        self.folder.check_online()
        try:
            found = log_reader.latest_record(self.segments, blocking=blocking)
        except OSError as error:
            raise self.folder.fail(error, "reading") from error
        return found if found is not None and found.offset < up_to_offset else None

    def end_offset_for_epoch(self, epoch: int) -> tuple[LeaderEpoch, Offset]:
        """The largest known epoch not above `epoch`, and where it ends (OffsetForLeaderEpoch); (-1, -1) if unknown."""
        self.folder.check_online()
        return self.epochs.end_offset_for(LeaderEpoch(epoch), self.log_end_offset)

    def aborted_transactions(
        self, start_offset: int, end_offset: int, *, ended_from: int | None = None
    ) -> list[AbortedTransaction]:
        """The aborted transactions with records in start_offset .. end_offset - 1: what a committed read leaves out.

        One whose marker lies before `start_offset` is not among them: a reader drops a producer's records until it
        meets the marker. `ended_from` sets another bound for the markers. `CorruptFile`.
        """
        self.folder.check_online()
        bound = start_offset if ended_from is None else ended_from
        try:
            return log_reader.aborted_transactions(self.segments, start_offset, end_offset, ended_from=bound)
        except OSError as error:
            raise self.folder.fail(error, "reading") from error

    def may_have_aborted(self, offset: int) -> bool:
        """Whether a transaction that ended at `offset` or later may have been aborted: false where it is known that no
        segment has an index of such."""
        segments = self.segments
        return any(not segment.transaction_index.is_absent for segment in segments[floor_index(segments, offset) :])

    def aborted_in(
        self, offset: int, result: ReadResult, *, up_to_offset: int, blocking: bool = True
    ) -> list[AbortedTransaction]:
        """The aborted transactions that have records in what `read` from `offset` on gave; some more at its end.

        `RottenBatch` where an index of them is damaged: what was read must not be given without them. `WouldBlock` with
        `blocking=False`.
        """
        if not result.size:
            return []
        self.folder.check_online()
        segments = self.segments
        try:
            end = log_reader.end_of_read(segments, result, up_to_offset, blocking=blocking)
            return log_reader.aborted_transactions(segments, offset, end, ended_from=offset, blocking=blocking)
        except CorruptTransactionIndex as damage:
            flaw = f"lies in a segment whose aborted transactions are not known: {damage}"
            raise RottenBatch(self.found_rot(damage.base_offset, offset, flaw), offset) from damage
        except OSError as error:
            raise self.folder.fail(error, "reading") from error
