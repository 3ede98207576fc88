"""Bringing a log's producer state to its end: from the newest snapshot, by the batches behind it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.model.errors import KafkaError
from tidelog.storage.append import end_of_transaction
from tidelog.storage.errors import CorruptFile
from tidelog.storage.producer_state import AppendOrigin, ProducerState, ProducerUpdate, decode_snapshot
from tidelog.storage.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from tidelog.records.batch import BatchHeader
    from tidelog.storage.log import Log
    from tidelog.storage.segment import Segment

logger = logging.getLogger(__name__)


def apply_batch(
    producers: ProducerState, header: BatchHeader, data: bytes | memoryview | None
) -> list[AbortedTransaction]:
    """Applies a stored batch; gives the transactions that it aborted. `data` is the batch's bytes if it is a control
    batch."""
    if header.producer_id < 0:
        return []
    update = ProducerUpdate()
    try:
        marker = end_of_transaction(data, 0, header) if header.is_control and data is not None else None
        producers.prepare(update, header, AppendOrigin.REPLICATION, marker)
    except KafkaError as error:
        # No append would have let it in, yet its checksum holds: the log goes on without what it says of its producer.
        logger.warning(
            "producer_state_ignored log=%s offset=%d reason=%s", producers.topic_partition, header.base_offset, error
        )
        return []
    ended = producers.commit(update)
    # What is in the log was judged when it was appended; those that ended are stable, as far as this log can tell.
    for transaction, _ in ended:
        producers.forget_unreplicated(transaction)
    return [
        AbortedTransaction(transaction.producer_id, transaction.first_offset, transaction.last_offset, stable_offset)
        for transaction, stable_offset in ended
        if transaction.is_aborted
    ]


def rebuild_producers(log: Log, now_ms: int, *, clean: bool = False) -> None:
    """Brings the producers' state to the log's end, from the newest snapshot at or below it and the batches that
    follow.

    Snapshots are taken on the way at the last two segments and at the end, as Kafka does, so that the next truncation
    needs no long scan. `clean` says that the log was closed cleanly: without any snapshot there are then no producers.
    """
    producers = log.producers
    end = log.log_end_offset
    marks = sorted({*(segment.base_offset for segment in log.segments[-2:]), end})
    had_none = producers.is_empty and producers.map_end_offset >= end
    offsets = log.snapshot_offsets()
    if clean and not offsets:
        producers.clear(end)
        for mark in marks:
            producers.map_end_offset = mark
            log.take_snapshot()
        producers.map_end_offset = end
        return
    load_snapshot(log, offsets, end, now_ms)
    if end > producers.map_end_offset and not had_none:
        _scan(log, marks)
    producers.map_end_offset = end
    log.take_snapshot()


def load_producers_before(log: Log, index: int, now_ms: int) -> None:
    """The producers' state as of the start of a segment; takes no snapshot and removes none."""
    producers, base_offset = log.producers, log.segments[index].base_offset
    load_snapshot(log, [offset for offset in log.snapshot_offsets() if offset <= base_offset], base_offset, now_ms)
    for earlier, following in zip(log.segments[:index], log.segments[1 : index + 1], strict=True):
        if following.base_offset > producers.map_end_offset:
            _scan_segment(producers, earlier, producers.map_end_offset)
    producers.map_end_offset = base_offset


def load_snapshot(log: Log, offsets: list[int], end: int, now_ms: int) -> None:
    """The state of the newest readable snapshot at or below `end`; later and unreadable ones are removed."""
    producers, environment = log.producers, log.environment
    producers.clear(log.log_start_offset)
    producers.snapshot_offset = log.log_start_offset
    for offset in reversed(offsets):
        path = log.snapshot_path(offset)
        if offset <= end:
            try:
                entries = decode_snapshot(environment.disk.read(path))
            except CorruptFile as error:
                logger.warning("snapshot_removed path=%s reason=%s", path, error)
            else:
                producers.load(entries, offset, now_ms, environment.producer_expiration_ms)
                producers.snapshot_offset = offset
                return
        environment.disk.unlink(path)


def _scan(log: Log, marks: list[int]) -> None:
    """Applies the batches from `map_end_offset` to the log's end."""
    producers, end = log.producers, log.log_end_offset
    segments = log.segments
    for index, segment in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else end
        if following <= producers.map_end_offset:
            continue
        if segment.base_offset in marks and segment.base_offset >= producers.map_end_offset:
            producers.map_end_offset = segment.base_offset
            log.take_snapshot()
        _scan_segment(producers, segment, producers.map_end_offset)
        producers.map_end_offset = following


def _scan_segment(producers: ProducerState, segment: Segment, start: int) -> None:
    first = segment.find(start) if start > segment.base_offset else None
    for found in segment.headers(0 if first is None else first.position):
        header = found.header
        if header.last_offset >= start and header.producer_id >= 0:
            apply_batch(producers, header, segment.batch_bytes(found) if header.is_control else None)
