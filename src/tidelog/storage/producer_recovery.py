"""A log's producers on disk: their snapshots, and the way back from the newest of them, by the batches behind it."""

from __future__ import annotations

import logging
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from tidelog.model.errors import KafkaError
from tidelog.records.errors import InvalidBatch
from tidelog.storage.append import end_of_transaction
from tidelog.storage.errors import CorruptFile, CorruptIndex
from tidelog.storage.file_names import DELETED, SNAPSHOT, parse_segment_file, segment_file
from tidelog.storage.log_config import LONG_MAX
from tidelog.storage.producer_entries import BATCHES_KEPT, SEQUENCE_COUNT, ProducerBatch, ProducerEntry
from tidelog.storage.producer_limit import KEPT_MS
from tidelog.storage.producer_snapshots import PendingSnapshot, decode_snapshot, encode_snapshot
from tidelog.storage.producer_state import AppendOrigin, ProducerState, ProducerUpdate
from tidelog.storage.segment_order import floor_index

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog.records.batch import BatchHeader
    from tidelog.storage.log_folder import LogFolder
    from tidelog.storage.offset_index import IndexEntry
    from tidelog.storage.segment import Segment
    from tidelog.storage.transaction_index import AbortedTransaction

logger = logging.getLogger(__name__)

SNAPSHOT_AT_ONCE_MAX: Final = 2_000
"""Producers that a roll writes down at once: a millisecond."""
RECALLED_ENTRIES: Final = 16
"""Index entries before a snapshot's offset from which on batches are recalled: so many batches at least, or 64 KiB."""


# Snapshot files.


def snapshot_path(folder: LogFolder, offset: int) -> str:
    return f"{folder.path}/{segment_file(offset, SNAPSHOT)}"


def snapshot_offsets(folder: LogFolder) -> list[int]:
    """Offsets of the snapshot files, ascending."""
    parsed = map(parse_segment_file, folder.at_current_path(folder.disk.list))
    return sorted(found[0] for found in parsed if found is not None and found[1:] == (SNAPSHOT, ""))


def take_snapshot(folder: LogFolder, producers: ProducerState, offset: int | None = None) -> bool:
    """Writes the state as that of `offset` (None: `producers.map_end_offset`), unless there is such a snapshot already;
    true if it did.

    Nothing is synced.
    """
    if offset is None:
        offset = producers.map_end_offset
    if offset <= producers.snapshot_offset:
        return False
    _write_snapshot(folder, offset, encode_snapshot(producers.entries.values()))
    producers.snapshot_offset = offset
    return True


def take_snapshot_soon(folder: LogFolder, producers: ProducerState, offset: int) -> None:
    """As `take_snapshot` as of `offset`, the log's end; of many producers by a task (`ProducerMaintenance`)."""
    if len(producers.entries) <= SNAPSHOT_AT_ONCE_MAX:
        take_snapshot(folder, producers, offset)
        return
    producers.pending_snapshot = PendingSnapshot(tuple(producers.entries.values()), offset)


def write_pending(folder: LogFolder, producers: ProducerState, pending: PendingSnapshot) -> None:
    """Writes a snapshot that is encoded, unless there is a newer one; nothing is synced. OSError."""
    if pending.offset > producers.snapshot_offset:
        _write_snapshot(folder, pending.offset, pending.content)
        producers.snapshot_offset = pending.offset


def _write_snapshot(folder: LogFolder, offset: int, content: bytes) -> None:
    file = folder.disk.open(snapshot_path(folder, offset), create=True)
    try:
        file.pwrite(content, 0)
        if file.size() != len(content):
            file.truncate(len(content))
    finally:
        file.close()


def write_first_snapshot(folder: LogFolder, entries: Sequence[ProducerEntry], offset: int) -> None:
    """What a log that begins at `offset` is to know of producers of which it will have no batch; durable. OSError."""
    if entries:
        _write_snapshot(folder, offset, encode_snapshot(entries))
        folder.sync_file(segment_file(offset, SNAPSHOT))


def load_first_snapshot(
    folder: LogFolder, producers: ProducerState, entries: Sequence[ProducerEntry], offset: int
) -> None:
    """The state of a new log, after `write_first_snapshot`."""
    if not entries:
        return
    environment = folder.environment
    producers.load(entries, offset, environment.clock.wall_ms(), environment.producer_expiration_ms)
    producers.snapshot_offset = offset
    environment.producer_limit.added(len(producers.entries))


def _seen_now(folder: LogFolder, producers: ProducerState) -> ProducerState:
    """Producers that were read from files count as heard of just now: their clients may be about to send again."""
    now_ms = folder.environment.producer_limit.now_ms()
    for entry in producers.entries.values():
        entry.seen_ms = entry.seen_ms or now_ms
    return producers


def discard_snapshot(folder: LogFolder, offset: int, delay_ms: int) -> None:
    """Renames the snapshot of a segment that goes to `.deleted`, and has it removed after `delay_ms`."""
    disk, name = folder.disk, segment_file(offset, SNAPSHOT)
    try:
        disk.rename(folder.path_of(name), folder.path_of(name) + DELETED)
    except FileNotFoundError:
        return

    def unlink() -> None:
        # In an I/O thread; the folder may have gone with it.
        with suppress(FileNotFoundError):
            folder.at_current_path(lambda path: disk.unlink(f"{path}/{name}{DELETED}"))

    folder.owner.delete_later(unlink, delay_ms)


def remove_snapshots(folder: LogFolder, *, above: int = -1) -> None:
    """Removes those above an offset, the newest first, at once. OSError: older ones may be left."""
    for offset in reversed(snapshot_offsets(folder)):
        if offset > above:
            folder.disk.unlink(snapshot_path(folder, offset))


# Coming back.


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
            "producer_state_ignored: log=%s offset=%d reason=%s", producers.topic_partition, header.base_offset, error
        )
        return []
    aborted = producers.aborted_by(update) if update.completed else []
    producers.commit(update)
    return aborted


def rebuild_producers(
    folder: LogFolder,
    producers: ProducerState,
    segments: Sequence[Segment],
    *,
    log_start_offset: int,
    log_end_offset: int,
    now_ms: int,
    clean: bool = False,
    recovered_from: int | None = None,
) -> None:
    """Brings the state to the log's end, from the newest snapshot at or below it and the batches that follow.

    Snapshots are taken on the way at the last two segments, at those that were recovered, which begin above
    `recovered_from`, and at the end, as Kafka does, so that the next truncation needs no long scan. `clean` says that
    the log was closed cleanly: without any snapshot there are then no producers.
    """
    recovered = [] if recovered_from is None else [seg for seg in segments if seg.base_offset > recovered_from]
    marks = sorted({*(segment.base_offset for segment in (*segments[-2:], *recovered)), log_end_offset})
    had_none = producers.is_empty and producers.map_end_offset >= log_end_offset
    offsets = snapshot_offsets(folder)
    if clean and not offsets:
        producers.clear(log_end_offset)
        for mark in marks:
            producers.map_end_offset = mark
            take_snapshot(folder, producers)
        return
    load_snapshot(folder, producers, offsets, segments, log_start_offset, log_end_offset, now_ms)
    if log_end_offset > producers.map_end_offset and not had_none:
        for index, segment in enumerate(segments):
            following = segments[index + 1].base_offset if index + 1 < len(segments) else log_end_offset
            if following <= producers.map_end_offset:
                continue
            if segment.base_offset in marks and segment.base_offset >= producers.map_end_offset:
                producers.map_end_offset = segment.base_offset
                take_snapshot(folder, producers)
            _scan(producers, segment, producers.map_end_offset)
            producers.map_end_offset = following
    producers.map_end_offset = log_end_offset
    take_snapshot(folder, producers)
    folder.environment.producer_limit.added(len(_seen_now(folder, producers).entries))


def producers_at(
    folder: LogFolder,
    segments: Sequence[Segment],
    *,
    log_start_offset: int,
    log_end_offset: int,
    now_ms: int,
    snapshot_max: int | None = None,
) -> ProducerState:
    """The state at the log's end, in any thread: no file is written or removed. OSError if the disk refuses.

    From a snapshot at or below `snapshot_max`: snapshots do not tell of transactions that have ended, which are
    unstable until their markers are below the high watermark.
    """
    newest = log_end_offset if snapshot_max is None else min(log_end_offset, snapshot_max)
    offsets = snapshot_offsets(folder)
    producers = ProducerState(folder.topic_partition)
    _begin(producers, segments, log_start_offset)
    for offset in reversed(offsets):
        if offset <= newest and _load(folder, producers, offset, segments, now_ms):
            break
    for index, segment in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else log_end_offset
        if following > producers.map_end_offset:
            _scan(producers, segment, producers.map_end_offset)
            producers.map_end_offset = following
    producers.map_end_offset = log_end_offset
    if newest < log_end_offset:
        producers.snapshot_offset = max([log_start_offset, *(offset for offset in offsets if offset <= log_end_offset)])
    return _seen_now(folder, producers)


def load_producers_before(
    folder: LogFolder,
    producers: ProducerState,
    segments: Sequence[Segment],
    index: int,
    *,
    log_start_offset: int,
    now_ms: int,
) -> None:
    """The state as of the start of segment `index`; takes no snapshot and removes none."""
    base_offset = segments[index].base_offset
    offsets = [offset for offset in snapshot_offsets(folder) if offset <= base_offset]
    load_snapshot(folder, producers, offsets, segments, log_start_offset, base_offset, now_ms)
    for earlier, following in pairwise(segments[: index + 1]):
        if following.base_offset > producers.map_end_offset:
            _scan(producers, earlier, producers.map_end_offset)
    producers.map_end_offset = base_offset


def load_snapshot(
    folder: LogFolder,
    producers: ProducerState,
    offsets: list[int],
    segments: Sequence[Segment],
    log_start_offset: int,
    end: int,
    now_ms: int,
) -> None:
    """The state of the newest readable snapshot at or below `end`; later and unreadable ones are removed."""
    _begin(producers, segments, log_start_offset)
    for offset in reversed(offsets):
        if offset <= end and _load(folder, producers, offset, segments, now_ms):
            return
        folder.disk.unlink(snapshot_path(folder, offset))


def _begin(producers: ProducerState, segments: Sequence[Segment], log_start_offset: int) -> None:
    """Nothing is known: the segments tell, also by what lies before the log's start and is still there.

    A producer of which a marker is left, and the batch before it deleted, would be known without its sequence.
    """
    producers.clear(segments[0].base_offset if segments else log_start_offset)
    producers.snapshot_offset = log_start_offset


def _load(folder: LogFolder, producers: ProducerState, offset: int, segments: Sequence[Segment], now_ms: int) -> bool:
    """The state of a snapshot; false when the file is damaged."""
    name, path = segment_file(offset, SNAPSHOT), snapshot_path(folder, offset)
    try:
        entries = decode_snapshot(folder.at_current_path(lambda path: folder.disk.read(f"{path}/{name}")))
        written_ms = folder.at_current_path(lambda path: folder.disk.stat(f"{path}/{name}")).modified_ms
    except FileNotFoundError:
        return False  # Retention has taken it since the folder was listed.
    except CorruptFile as error:
        logger.warning("snapshot_ignored: path=%s reason=%s", path, error)
        return False
    # Those in a new snapshot may have been heard of just before, whatever their records' timestamps are.
    is_new = now_ms - written_ms < KEPT_MS
    producers.load(entries, offset, now_ms, LONG_MAX if is_new else folder.environment.producer_expiration_ms)
    producers.snapshot_offset = offset
    _recall_batches(producers, segments, offset)
    return True


def _recall_batches(producers: ProducerState, segments: Sequence[Segment], offset: int) -> None:
    """Gives producers the batches back that a snapshot as of `offset` leaves out.

    Kafka's format keeps each producer's last one. A client has up to five under way; when brokers stopped before they
    acknowledged them, it repeats them all. The earlier ones would then be out of order, and a producer of librdkafka
    gives itself up at that. They stand in the pages before `offset`, unless so much was sent behind them by others
    that no reader waits for them any more.
    """
    if not segments or not any(entry.batches for entry in producers.entries.values()):
        return
    recalled: dict[int, list[ProducerBatch]] = {}
    try:
        for header in _headers_before(segments, offset):
            entry = producers.entries.get(header.producer_id)
            if entry is not None and entry.producer_epoch == header.producer_epoch and not header.is_control:
                batch = ProducerBatch(
                    header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp
                )
                recalled.setdefault(header.producer_id, []).append(batch)
    except (CorruptIndex, InvalidBatch) as damage:
        # What is damaged is repaired when it is needed; here the snapshot alone will do.
        logger.warning("producers_not_recalled: log=%s reason=%s", producers.topic_partition, damage)
        return
    for producer_id, batches in recalled.items():
        entry = producers.entries[producer_id]
        if entry.batches and batches[-1].last_offset == entry.batches[-1].last_offset:
            entry.batches = _joined([*batches[-BATCHES_KEPT:-1], entry.batches[-1]])


def _joined(batches: list[ProducerBatch]) -> tuple[ProducerBatch, ...]:
    """The last of them whose sequence numbers follow one another: of others the headers, whose checksums are not
    looked at, are rotten, or batches are missing between them."""
    start = len(batches) - 1
    while start and (batches[start - 1].last_sequence + 1) % SEQUENCE_COUNT == batches[start].first_sequence:
        start -= 1
    return tuple(batches[start:])


def _headers_before(segments: Sequence[Segment], offset: int) -> Iterator[BatchHeader]:
    """The batches of the last pages before `offset`, in however many segments; CorruptIndex, InvalidBatch."""
    wanted = RECALLED_ENTRIES
    recalled: list[tuple[Segment, IndexEntry]] = []
    for segment in reversed(segments[: floor_index(segments, offset - 1) + 1]):
        start = segment.offset_index.lookup_earlier(offset - 1, wanted)
        recalled.append((segment, start))
        wanted -= max(segment.offset_index.count, 1)
        if start.position or wanted <= 0:
            break
    for segment, start in reversed(recalled):
        for position, header in segment.headers(start.position):
            if position == start.position and position and header.last_offset != start.offset:
                raise CorruptIndex(f"{segment.log_file.path}: the index has offset {start.offset} at {position}")
            if header.base_offset >= offset:
                return
            yield header


def _scan(producers: ProducerState, segment: Segment, start: int) -> None:
    """Applies the segment's batches from `start` on.

    A damaged batch, below the recovery point where recovery did not look, ends that: producers behind it are unknown
    and may begin anew, which is better than a broker that does not start.
    """
    try:
        first = segment.find(start) if start > segment.base_offset else None
        for found in segment.headers(0 if first is None else first.position):
            header = found.header
            if header.last_offset >= start and header.producer_id >= 0:
                apply_batch(producers, header, segment.batch_bytes(found) if header.is_control else None)
    except (KafkaError, CorruptFile) as damage:
        logger.warning("producers_incomplete: segment=%s reason=%s", segment.log_file.path, damage)
