"""The transactions in a segment's batches, followed to know what its transaction index should say.

No checksum covers that index, and one without entries looks like one that needs none: readers of committed records
would get what was aborted. The scrub, which reads all batches, compares.
"""

from __future__ import annotations

import logging
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.model.identifiers import Offset
from tidelog.records.batch import HEADER_SIZE, read_header, read_records
from tidelog.records.batch_header import SIZE_PREFIX, TRANSACTIONAL_BIT
from tidelog.records.control import ControlRecordType, control_type
from tidelog.records.errors import InvalidBatch
from tidelog.storage.errors import CorruptFile
from tidelog.storage.producer_recovery import producers_at, snapshot_offsets
from tidelog.storage.segment_order import floor_index
from tidelog.storage.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.ports.disk import Bytes
    from tidelog.storage.log import Log
    from tidelog.storage.segment import Segment

logger = logging.getLogger(__name__)

_LENGTH: Final = Struct(">i")
_LENGTH_POSITION: Final = 8
_ATTRIBUTES_POSITION: Final = 22
"""Of their lower byte."""


class IndexFlaws(NamedTuple):
    """What is wrong in a transaction index, and what it should hold."""

    missing: int
    wrong: int
    entries: list[AbortedTransaction]
    end_offset: int
    """Markers behind it were not looked at."""


class TransactionScan:
    """Takes the batches of one segment, in order."""

    __slots__ = ("_is_loaded", "_load_open", "_open", "_unmatched", "aborted", "truncations")

    def __init__(self, load_open: Callable[[], dict[int, int] | None], truncations: int = 0) -> None:
        """`load_open` gives the first offsets of the transactions that are open where the segment begins, by producer
        id, or None where that is not known; it is called when the first transactional batch comes."""
        self.truncations = truncations
        """How often the log had been cut when the scan began: what was taken before a cut may not be there after it."""
        self._load_open = load_open
        self._is_loaded = False
        self._open: dict[int, int] | None = {}
        self._unmatched: set[tuple[int, int]] = set()
        """Producer id and offset of ABORT markers of which no transaction was known to be open."""
        self.aborted: list[AbortedTransaction] = []

    def take(self, data: Bytes) -> None:
        """Takes whole batches, which were found sound. What `load_open` raises: then nothing is known."""
        at = 0
        while at + HEADER_SIZE <= len(data):
            if data[at + _ATTRIBUTES_POSITION] & TRANSACTIONAL_BIT:
                self._take_transactional(data, at)
            at += SIZE_PREFIX + _LENGTH.unpack_from(data, at + _LENGTH_POSITION)[0]

    def _take_transactional(self, data: Bytes, at: int) -> None:
        if not self._is_loaded:
            self._open, self._is_loaded = None, True
            self._open = self._load_open()
        if self._open is None:
            return
        header = read_header(data, at)
        if not header.is_control:
            self._open.setdefault(header.producer_id, header.base_offset)
            return
        kind = _kind(data, at)
        if kind not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
            return
        first_offset = self._open.pop(header.producer_id, None)
        if kind is ControlRecordType.COMMIT:
            return
        if first_offset is None:
            self._unmatched.add((header.producer_id, header.last_offset))
            return
        stable_offset = min([*self._open.values(), header.next_offset])
        self.aborted.append(AbortedTransaction(header.producer_id, first_offset, header.last_offset, stable_offset))

    @property
    def is_known(self) -> bool:
        """Whether it is known what the index should say."""
        return self._open is not None

    def flaws(self, told: Sequence[AbortedTransaction], end_offset: int) -> IndexFlaws | None:
        """Compares with what an index says of markers below `end_offset`, up to where batches were taken; None where
        it says what it should, as far as that is known.

        An entry of a marker whose transaction is not known stays: only the index may know where that began.
        """
        if self._open is None:
            return None
        expected = {(each.producer_id, each.last_offset): each for each in self.aborted}
        told = [each for each in told if each.last_offset < end_offset]
        right = [each for each in told if expected.get((each.producer_id, each.last_offset)) == each]
        kept = [each for each in told if (each.producer_id, each.last_offset) in self._unmatched]
        wrong = len(told) - len(right) - len(kept)
        missing = len(set(self.aborted).difference(right))
        if not wrong and not missing:
            return None
        entries = sorted([*self.aborted, *kept], key=lambda each: each.last_offset)
        return IndexFlaws(missing, wrong, entries, end_offset)


def _kind(data: Bytes, at: int) -> ControlRecordType:
    """What a control batch says; UNKNOWN also for one that compaction has emptied, or that is malformed."""
    try:
        records = read_records(data, at)
        return control_type(records[0].key) if records else ControlRecordType.UNKNOWN
    except InvalidBatch:
        return ControlRecordType.UNKNOWN


def transaction_scan(log: Log, segment: Segment) -> TransactionScan | None:
    """Of the log's segment, from its beginning; None for one that was compacted, whose transactions are not whole."""
    return None if segment.base_offset < (log.cleaned_offset or 0) else scan_of(log, segment)


def scan_of(log: Log, segment: Segment) -> TransactionScan:
    """Of any of the log's segments, from its beginning. Of one that was compacted it finds what a start would find: a
    transaction may begin later than its index says, but no record of it lies before."""
    segments = log.segments[: floor_index(log.segments, segment.base_offset)]
    log_start_offset = log.log_start_offset

    def load_open() -> dict[int, int] | None:
        known_from = 0 if segments and segments[0].base_offset == 0 else min(snapshot_offsets(log.folder), default=None)
        if segment.base_offset and (known_from is None or known_from > segment.base_offset):
            return None
        producers = producers_at(
            log.folder,
            segments,
            log_start_offset=log_start_offset,
            log_end_offset=segment.base_offset,
            now_ms=log.folder.environment.clock.wall_ms(),
        )
        return {
            each.producer_id: each.transaction_first_offset
            for each in producers.entries.values()
            if each.transaction_first_offset >= 0
        }

    return TransactionScan(load_open, log.truncations)


def compare_transactions(segment: Segment, scan: TransactionScan, end_offset: int) -> IndexFlaws | None:
    """What is wrong in a segment's transaction index, after the scan of all batches below `end_offset`: of markers
    behind it nothing is known. In any thread. OSError."""
    index = segment.transaction_index
    try:
        return scan.flaws(index.entries(), end_offset)
    except CorruptFile as error:
        logger.warning("transaction_index_damaged: reason=%s", error)
    told = [each for each in index.entries_from(segment.base_offset) if each.last_offset < end_offset]
    flaws = scan.flaws(told, end_offset)
    return IndexFlaws(0, 0, told, end_offset) if flaws is None and scan.is_known else flaws


class UnreadableIndex(NamedTuple):
    """A segment whose transaction index cannot be read."""

    flaws: IndexFlaws | None
    """What it should hold; None where that is not known."""


def find_unreadable_index(segment: Segment, scan: TransactionScan) -> UnreadableIndex | None:
    """Looks through the segment's batches for what its transaction index should hold; None where that can be read. In
    any thread. OSError, InvalidBatch."""
    try:
        segment.transaction_index.entries()
    except CorruptFile:
        end_offset = segment.base_offset
        for found in segment.headers(0):
            if found.header.is_transactional:
                scan.take(segment.batch_bytes(found))
            end_offset = Offset(found.header.next_offset)
        return UnreadableIndex(compare_transactions(segment, scan, end_offset))
    return None


def mend_transaction_index(log: Log, segment: Segment, flaws: IndexFlaws) -> None:
    """Writes the entries that were found missing or wrong in a segment's transaction index; in the log's thread.

    Those of markers that were appended since stay. Where the disk refuses, the scrub finds the same again.
    """
    index = segment.transaction_index
    try:
        index.replace([*flaws.entries, *index.entries_from(flaws.end_offset)])
    except OSError as error:
        logger.warning("transaction_index_not_rebuilt: path=%s error=%s", index.path, error)
        log.folder.fail(error, "rebuilding a transaction index of")
        return
    logger.warning(
        "transaction_index_rebuilt: path=%s missing=%d wrong=%d: readers of committed records may have been given"
        " what was aborted, or not all that was committed",
        index.path,
        flaws.missing,
        flaws.wrong,
    )
