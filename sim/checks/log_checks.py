"""A partition's log against a full scan of itself: what recovery has rebuilt must be what the bytes say.

All is read through the log's own interface; nothing here keeps a copy of storage's logic beyond adding up what a scan
finds.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from sim.invariants import broken, require
from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import MAX_TIMESTAMP, Offset
from tidelog.model.topics import INTERNAL_TOPICS
from tidelog.records.batch import BatchHeader, check_crc, iterate_headers, read_header, read_records
from tidelog.records.control import ControlRecordType, control_type
from tidelog.records.errors import InvalidBatch
from tidelog.records.record import Record
from tidelog.storage.log import Log
from tidelog.storage.segment_order import floor_index

BATCHES_KEPT: Final = 8192
"""Some runs' worth."""


class Batch(NamedTuple):
    """A batch as it was read."""

    header: BatchHeader
    records: list[Record]
    data: bytes


def read_batches(log: Log, start: int | None = None, end: int | None = None) -> list[Batch]:
    """All batches from the log's start (or `start`) to its end (or `end`), checksums verified (invariant 11)."""
    offset = log.log_start_offset if start is None else start
    end = log.log_end_offset if end is None else end
    found: list[Batch] = []
    while offset < end:
        result = log.read(offset, 1 << 20, up_to_offset=end)
        data = b"".join(part.read() for part in result.ranges)
        for part in result.ranges:
            part.release()
        before = offset
        try:
            batches = split_batches(data)
        except InvalidBatch as error:
            require(11, False, f"{log}, read at {offset}: {error}")
            break
        for batch in batches:
            if batch.header.last_offset >= offset:
                found.append(batch)
                offset = batch.header.next_offset
        if offset == before:
            break  # A gap at the end, as compaction leaves it.
    return found


def split_batches(data: bytes) -> list[Batch]:
    """The whole batches in what was served; InvalidBatch when a checksum fails."""
    return [_batch(data[position : position + header.size]) for position, header in iterate_headers(data)]


@lru_cache(maxsize=BATCHES_KEPT)
def _batch(data: bytes) -> Batch:
    """Of its bytes alone; not to be changed, as it is seen again on each replica, and in each look at a log."""
    header = read_header(data)
    check_crc(data, 0, header)
    return Batch(header, read_records(data), data)


def check_log(log: Log) -> list[Batch]:
    """All checks that one log allows, without its replicas (`sim/invariants.py`); returns its batches."""
    check_bounds(log)
    batches = read_batches(log)
    check_shape(log, batches)
    check_epochs(log, batches)
    check_producers(log, batches)
    check_transactions(log, batches)
    check_indexes(log, batches)
    check_greatest_timestamp(log, batches)
    return batches


def check_bounds(log: Log) -> None:
    """Invariant 6 (`sim/invariants.py`), as far as a single moment shows it."""
    bounds = (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset)
    require(6, list(bounds) == sorted(bounds), f"{log}: start, stable, high watermark, end are {bounds}")
    require(6, log.flushed_offset <= log.log_end_offset, f"{log}: flushed to {log.flushed_offset}, past its end")


def check_shape(log: Log, batches: list[Batch]) -> None:
    """Invariant 3: offsets rise within and between batches, epochs never fall."""
    previous_offset, previous_epoch = -1, -1
    for header, records, _ in batches:
        for record in records:
            if record.offset <= previous_offset:
                broken(3, f"{log}: offset {record.offset} follows {previous_offset}")
            previous_offset = record.offset
        if header.partition_leader_epoch < previous_epoch:
            epoch = header.partition_leader_epoch
            broken(3, f"{log}: epoch {epoch} at {header.base_offset} follows {previous_epoch}")
        previous_offset = max(previous_offset, header.last_offset)
        previous_epoch = header.partition_leader_epoch
    require(3, previous_offset < log.log_end_offset, f"{log}: offset {previous_offset} lies past its end")


def check_epochs(log: Log, batches: list[Batch]) -> None:
    """Invariant 3: the epoch cache has an entry for each change of epoch in the batches, and contradicts none."""
    first = next(iter(log.epochs.entries), None)
    for header, _, _ in batches:
        if (
            first is not None
            and header.base_offset < first.start_offset
            and header.partition_leader_epoch == first.epoch
        ):
            # The log's start was higher once, and a crash has taken that back; its epochs begin there.
            continue
        cached = log.epochs.epoch_for_offset(Offset(max(header.base_offset, log.log_start_offset)))
        if cached != header.partition_leader_epoch:
            broken(
                3,
                f"{log}: the batch at {header.base_offset} is of epoch {header.partition_leader_epoch}, the cache says"
                f" {cached} ({log.epochs})",
            )
    latest = log.epochs.latest_entry
    require(
        3,
        latest is None or latest.start_offset <= log.log_end_offset,
        f"{log}: epoch entry {latest} lies past the log's end",
    )


def check_producers(log: Log, batches: list[Batch]) -> None:
    """Invariant 3: what is remembered of each producer is what its last batch in the log says."""
    last: dict[int, tuple[int, int]] = {}
    for header, _, _ in batches:
        if header.producer_id < 0:
            continue
        if not header.is_control:
            last[header.producer_id] = (header.producer_epoch, header.last_sequence)
        elif header.producer_id in last and last[header.producer_id][0] != header.producer_epoch:
            # A marker that bumps the epoch: sequences begin anew.
            last[header.producer_id] = (header.producer_epoch, -1)
    for producer_id, expected in last.items():
        entry = log.producers.entries.get(producer_id)
        remembered = None if entry is None else (entry.producer_epoch, entry.last_sequence)
        if log.config.compacted and remembered is not None and remembered > expected:
            continue  # A crash has taken a later batch, for which compaction had let this producer's last one go.
        require(3, remembered == expected, f"{log}: producer {producer_id} is at {expected}, remembered {remembered}")


def check_transactions(log: Log, batches: list[Batch]) -> None:
    """Invariant 3: which transactions are open, and which were aborted, as far as the log still has their beginning."""
    start = log.log_start_offset
    opened: dict[int, int] = {}
    aborted: list[tuple[int, int, int]] = []
    markers: set[tuple[int, int]] = set()
    for header, records, _ in batches:
        if header.is_control and records:
            first = opened.pop(header.producer_id, -1)
            if control_type(records[0].key) is not ControlRecordType.ABORT:
                continue
            markers.add((header.producer_id, header.base_offset))
            if first >= 0:
                aborted.append((header.producer_id, first, header.base_offset))
        elif header.is_transactional:
            opened.setdefault(header.producer_id, header.base_offset)
    remembered = {
        entry.producer_id: entry.transaction_first_offset
        for entry in log.producers.entries.values()
        if entry.transaction_first_offset >= start
    }
    expected = {producer_id: first for producer_id, first in opened.items() if first >= start}
    # Of a transaction that began before the log its first record here is no beginning.
    for entry in log.producers.entries.values():
        if 0 <= entry.transaction_first_offset < start:
            expected.pop(entry.producer_id, None)
    require(3, remembered == expected, f"{log}: open transactions begin at {expected}, remembered {remembered}")
    begun = [entry.transaction_first_offset for entry in log.producers.entries.values()]
    undecided = min((offset for offset in begun if offset >= 0), default=None)
    found = log.producers.first_undecided_offset
    require(3, found == undecided, f"{log}: the first open transaction begins at {undecided}, readers stop at {found}")
    # A log that is opened without its topic's settings does not say of itself that it is compacted.
    if log.config.compacted or log.topic_partition.topic in INTERNAL_TOPICS:
        # What was aborted is gone, and with it where it began; then its marker, and what tells of it.
        left = {(each[0], each[2]) for each in aborted if each[1] >= start}
        listed_ends = {(each[0], each[2]) for each in log.aborted_transactions(start, log.log_end_offset)}
        require(3, left <= listed_ends <= markers, f"{log}: aborted were {sorted(left)}, the index has {listed_ends}")
        return
    listed = {tuple(each[:3]) for each in log.aborted_transactions(start, log.log_end_offset)}
    begun_before = {(each[0], each[2]) for each in listed if each[1] < start}
    known = {each for each in aborted if each[1] >= start and (each[0], each[2]) not in begun_before}
    told = {each for each in listed if each[1] >= start}
    require(3, told == known, f"{log}: aborted were {sorted(known)}, the index has {sorted(told)}")


def check_indexes(log: Log, batches: list[Batch]) -> None:
    """Invariant 3: each batch is found by its offsets, and each timestamp at the first record that is as late.

    An index entry has the last offset of a batch, so that one which sends any other offset elsewhere does so with that;
    a position that is remembered is one of a first offset.
    """
    for header, _, data in batches:
        segment = log.segments[floor_index(log.segments, header.last_offset)]
        batch = segment.find(header.last_offset)
        if batch is None or batch.header != header:
            broken(3, f"{log}: looking up {header.last_offset} does not give the batch at {header.base_offset}")
        if log.is_recent(header.base_offset) and header.base_offset >= log.log_start_offset:
            result = log.read(header.base_offset, 1, up_to_offset=header.next_offset)
            served = b"".join(part.read() for part in result.ranges)
            for part in result.ranges:
                part.release()
            if served != data:
                broken(3, f"{log}: reading {header.base_offset} does not give the batch that begins there")
    records = [record for batch in batches for record in batch.records if record.offset >= log.log_start_offset]
    for timestamp in sorted({record.timestamp for record in records})[:: max(len(records) // 8, 1)]:
        expected = next(record.offset for record in records if record.timestamp >= timestamp)
        try:
            found = log.offset_for_timestamp(timestamp, up_to_offset=log.log_end_offset)
        except KafkaError as error:
            require(3, False, f"{log}: looking up timestamp {timestamp}: {error}")
            continue
        require(
            3,
            found is not None and found[1] == expected,
            f"{log}: timestamp {timestamp} is first reached at {expected}, found {found}",
        )


def check_greatest_timestamp(log: Log, batches: list[Batch]) -> None:
    """Invariant 3: the first record with the greatest timestamp is found as such (KIP-734); retention goes by it."""
    if log.log_start_offset > log.segments[0].base_offset:
        return  # Records before the start lie in the segment, too, and count as long as it does.
    records = [record for batch in batches for record in batch.records]
    greatest = max((record.timestamp for record in records), default=-1)
    expected = next((record.offset for record in records if record.timestamp == greatest), None)
    try:
        found = log.offset_for_timestamp(MAX_TIMESTAMP, up_to_offset=log.log_end_offset)
    except KafkaError as error:
        require(3, False, f"{log}: looking for the greatest timestamp: {error}")
        return
    told = None if found is None else (found[0], found[1])
    is_right = told == (None if expected is None else (greatest, expected))
    require(3, is_right, f"{log}: the greatest timestamp, {greatest}, is first at {expected}, found {told}")
