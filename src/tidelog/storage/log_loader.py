"""Opening a partition's folder: what a crash or a compaction left behind is put in order, then the log is loaded.

    clean stop      sizes of files are compared with those at the stop; only the last batches are read, to know where
                    the log ends
    otherwise       segments from the recovery point on are scanned: checksums checked, the torn tail cut, indexes
                    written anew, producers' state brought up from the last snapshot before

What lies below the recovery point was durable before, and is trusted, but for an index that is missing or has an
impossible size, and a transaction index whose entries cannot be the segment's. An aborted transaction that lacks its
index entry is found where a segment is scanned, nowhere else.

Where recovery has to cut a log although valid batches follow, the records in between are lost here: the log is damaged
(`damage`), which the controller is told before the broker registers, so that another replica leads.

An empty segment that begins below the end of the one before it is no part of the log: a roll that failed half-way has
left it, in former versions, and what was appended afterwards lies in the segment before. It goes, whatever follows it.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Set
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tidelog.metadata.replica_marks import ReplicaDamage
from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import NO_LEADER_EPOCH, LeaderEpoch, Offset
from tidelog.records.batch import HEADER_SIZE
from tidelog.records.epochs import CheckpointError, EpochCache
from tidelog.storage.checkpoints import decode_partition_metadata
from tidelog.storage.damage import (
    find_continuation,
    keep_aside,
    keep_segments_aside,
    read_damage,
    remove_damage,
    write_damage,
)
from tidelog.storage.errors import CorruptFile
from tidelog.storage.file_names import (
    CLEANED,
    DELETED,
    INDEX,
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    PARTITION_METADATA,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    parse_segment_file,
)
from tidelog.storage.log import Log
from tidelog.storage.offset_index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE
from tidelog.storage.producer_recovery import (
    apply_batch,
    discard_snapshot,
    load_producers_before,
    rebuild_producers,
    remove_snapshots,
    snapshot_offsets,
    snapshot_path,
)
from tidelog.storage.retention import discard
from tidelog.storage.segment import Segment
from tidelog.storage.transaction_index import ENTRY_SIZE as TRANSACTION_ENTRY_SIZE
from tidelog.storage.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.model.identifiers import TopicId
    from tidelog.ports.disk import Disk, File
    from tidelog.records.batch import BatchHeader
    from tidelog.storage.log_config import LogConfig
    from tidelog.storage.log_folder import LogEnvironment, LogFolder

logger = logging.getLogger(__name__)

_NOTHING_KNOWN: Final[Mapping[int, int]] = MappingProxyType({})
_INDEX_SIZES: Final = {
    INDEX: OFFSET_ENTRY_SIZE,
    TIME_INDEX: TIME_ENTRY_SIZE,
    TRANSACTION_INDEX: TRANSACTION_ENTRY_SIZE,
}


def load_log(
    folder: LogFolder,
    config: LogConfig,
    *,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    cleaned_offset: int | None = None,
    clean: bool = False,
    sizes_at_stop: Mapping[int, int] = _NOTHING_KNOWN,
) -> Log:
    """Loads the log in `folder`; recovers it unless its last owner stopped cleanly.

    `cleaned_offset` is how far compaction had come; None for a log that it never saw. `sizes_at_stop` are the bytes of
    each segment at the clean stop, by base offset, where they are known.

    OSError where the disk refuses. Damage in the files is repaired, at the cost of what cannot be read any more.
    """
    environment, directory, topic_partition = folder.environment, folder.path, folder.topic_partition
    disk = environment.disk
    now_ms = environment.clock.wall_ms()
    _finish_swaps(disk, directory, environment, config)
    segments, damaged = _open_segments(directory, config, environment, now_ms)
    epochs, epochs_file = _read_epochs(disk, directory)
    log = Log(
        folder,
        _read_topic_id(disk, directory),
        config,
        segments=segments,
        log_start_offset=max(log_start_offset, segments[0].base_offset if segments else 0),
        epochs=EpochCache() if epochs is None else epochs,
    )
    log.cleaned_offset = None if cleaned_offset is None else Offset(cleaned_offset)
    log.damage = read_damage(disk, directory)
    shortened = _note_holes(log, sizes_at_stop, log_start_offset) if log.segments else set()
    try:
        _recover(
            log, damaged | shortened, recovery_point, now_ms, clean=clean, epochs_lost=epochs is None, holes=shortened
        )
        end = log.segments[-1].next_offset() if log.segments else log_start_offset
        if log.segments:
            log.segments[-1].check_indexes()
    except (KafkaError, CorruptFile) as error:
        # The log was said to be clean and is not: nothing in its files is taken on trust.
        logger.warning("log_damaged: log=%s reason=%s", topic_partition, error)
        _recover(log, set(log.segments), 0, now_ms, clean=False, epochs_lost=True, durable=recovery_point)
        end = log.segments[-1].next_offset() if log.segments else log_start_offset
    if not log.segments:
        log.segments = [Segment.create(environment.pool, directory, log_start_offset, config, now_ms=now_ms)]
    log.loaded(end, end if clean else min(recovery_point, end), epochs_file)
    if end < log_start_offset:
        logger.warning(
            "log_emptied: log=%s end=%d start=%d: its segment files are missing", topic_partition, end, log_start_offset
        )
        log.truncate_fully(log_start_offset)
    _remove_stray_snapshots(log)
    if not clean:
        # Those above the recovery point may be of records that a truncation has removed; not the first segment's, which
        # knows the producers of what retention took.
        remove_snapshots(folder, above=max(recovery_point, log.segments[0].base_offset))
    rebuild_producers(
        folder,
        log.producers,
        log.segments,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        now_ms=now_ms,
        clean=clean,
        recovered_from=None if clean else recovery_point,
    )
    for segment in log.segments:
        segment.forget_files()
    return log


def _finish_swaps(disk: Disk, directory: str, environment: LogEnvironment, config: LogConfig) -> None:
    """Removes what was on its way out, and completes or undoes a compaction that a crash interrupted.

    `.cleaned` files were still being written: they go, and so do `.swap` files from the same place on, whose set is not
    complete. The `.swap` files that remain replace the segments whose offsets they cover. As in a replacement, what
    would be misunderstood without the names before it waits until those are durable.
    """
    files = [(name, parsed) for name in disk.list(directory) if (parsed := parse_segment_file(name)) is not None]
    first_cleaned = min((offset for _, (offset, _, marks) in files if marks.endswith(CLEANED)), default=None)
    swaps = [(name, offset) for name, (offset, _, marks) in files if marks.endswith(SWAP)]
    incomplete = [name for name, offset in swaps if first_cleaned is not None and offset >= first_cleaned]
    _unlink(disk, directory, incomplete)
    for name, (_, _, marks) in files:
        if marks.endswith((DELETED, CLEANED)):
            disk.unlink(f"{directory}/{name}")
    swaps = [(name, offset) for name, offset in swaps if name not in incomplete]
    if not swaps:
        return
    logs = [(name, offset) for name, offset in swaps if name.removesuffix(SWAP).endswith(LOG)]
    ranges = [_swap_range(environment, directory, name, offset, config) for name, offset in logs]
    if ranges:
        first, end = min(start for start, _ in ranges), max(end for _, end in ranges)
        replaced = [
            name
            for name, (offset, suffix, marks) in files
            if not marks and suffix != SNAPSHOT and first <= offset < end
        ]
        _unlink(disk, directory, replaced)
    for names in ([name for name, _ in logs], [name for name, offset in swaps if (name, offset) not in logs]):
        for name in names:
            disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")
        disk.fsync_directory(directory)


def _unlink(disk: Disk, directory: str, names: Sequence[str]) -> None:
    """Removes files, durably."""
    for name in names:
        disk.unlink(f"{directory}/{name}")
    if names:
        disk.fsync_directory(directory)


def _swap_range(
    environment: LogEnvironment, directory: str, name: str, offset: int, config: LogConfig
) -> tuple[int, int]:
    """The offsets that a compacted segment covers: from its base to after its last batch."""
    size = environment.disk.stat(f"{directory}/{name}").size
    segment = Segment(environment.pool, directory, offset, config, size=size, created_ms=0)
    segment.log_file.path = f"{directory}/{name}"
    end = offset
    try:
        for found in segment.headers(0):
            end = found.header.next_offset
    except KafkaError as error:
        logger.warning("swap_damaged: path=%s reason=%s", segment.log_file.path, error)
    finally:
        segment.log_file.close()
    return offset, max(end, offset + 1)


def _open_segments(
    directory: str, config: LogConfig, environment: LogEnvironment, now_ms: int
) -> tuple[list[Segment], set[Segment]]:
    """The segments in the folder, and those of them whose indexes are missing or have an impossible size."""
    disk = environment.disk
    names: dict[int, set[str]] = {}
    for name in disk.list(directory):
        parsed = parse_segment_file(name)
        if parsed is not None and not parsed[2] and parsed[1] != SNAPSHOT:
            names.setdefault(parsed[0], set()).add(parsed[1])
    segments: list[Segment] = []
    damaged: set[Segment] = set()
    for offset in sorted(names):
        suffixes = names[offset]
        if LOG not in suffixes:
            for suffix in suffixes & _INDEX_SIZES.keys():
                logger.warning("orphaned_index_removed: directory=%s offset=%d suffix=%s", directory, offset, suffix)
                disk.unlink(f"{directory}/{offset:020d}{suffix}")
            continue
        size = disk.stat(f"{directory}/{offset:020d}{LOG}").size
        segment = Segment(environment.pool, directory, offset, config, size=size, created_ms=now_ms)
        segments.append(segment)
        for suffix, entry_size in _INDEX_SIZES.items():
            if suffix not in suffixes:
                if suffix != TRANSACTION_INDEX:
                    damaged.add(segment)
                    disk.open(segment.path(suffix), create=True).close()
            else:
                index_size = disk.stat(segment.path(suffix)).size
                if index_size % entry_size or (index_size and not size):
                    damaged.add(segment)
    for index, segment in enumerate(segments):
        end = segments[index + 1].base_offset if index + 1 < len(segments) else None
        if TRANSACTION_INDEX in names[segment.base_offset] and not _may_be_true(segment, end):
            damaged.add(segment)
    return segments, damaged


def _note_holes(log: Log, sizes_at_stop: Mapping[int, int], log_start_offset: int) -> set[Segment]:
    """The closed segments that have fewer bytes than at the clean stop. What these and missing ones held is a hole in
    the log, which is noted, durably: other replicas have the records. OSError.

    The end of a log is compared with its high watermark instead.
    """
    present = {segment.base_offset: segment for segment in log.segments}
    ends = dict(itertools.pairwise(sorted({*sizes_at_stop, *present})))
    short: set[Segment] = set()
    holes = []
    for base, size in sizes_at_stop.items():
        segment = present.get(Offset(base))
        if size > (0 if segment is None else segment.size) and log_start_offset < ends.get(base, 0) <= max(present):
            holes.append(base)
            if segment is not None:
                short.add(segment)
            logger.error(
                "segment_lost: log=%s base_offset=%d bytes=%d bytes_at_stop=%d: its file was changed while the broker"
                " was stopped; the records are copied from another replica where there is one",
                log.topic_partition,
                base,
                0 if segment is None else segment.size,
                size,
            )
    if holes:
        end = Offset(log.segments[-1].next_offset())
        log.damage = ReplicaDamage(end, log.epochs.latest, end, has_hole=True)
        write_damage(log.folder.disk, log.folder.path, log.damage)
    return short


def _may_be_true(segment: Segment, end: int | None) -> bool:
    """Whether the entries of a transaction index can be those of its segment, which ends below `end` where that is
    known: no checksum covers them, and readers go by them."""
    try:
        entries = segment.transaction_index.entries()
    except CorruptFile as error:
        logger.warning("transaction_index_damaged: reason=%s", error)
        return False
    last = segment.base_offset - 1
    for entry in entries:
        is_in_order = last < entry.last_offset and 0 <= entry.first_offset <= entry.last_offset
        is_stable = 0 <= entry.last_stable_offset <= entry.last_offset + 1
        if not is_in_order or not is_stable or entry.producer_id < 0 or (end is not None and entry.last_offset >= end):
            logger.warning("transaction_index_damaged: path=%s entry=%s", segment.transaction_index.path, tuple(entry))
            return False
        last = entry.last_offset
    return True


def _recover(
    log: Log,
    damaged: set[Segment],
    recovery_point: int,
    now_ms: int,
    *,
    clean: bool,
    epochs_lost: bool,
    durable: int = 0,
    holes: Set[Segment] = frozenset(),
) -> None:
    """Scans the segments that need it, oldest first; what follows a segment that had to be cut is removed.

    `durable` is up to where no power cut can have taken anything, where that is above `recovery_point`. What follows
    segments of `holes` stays.
    """
    previous: Segment | None = None
    index = 0
    while index < len(log.segments):
        segments = log.segments
        segment = segments[index]
        is_last = index + 1 == len(segments)
        unflushed = not clean and (is_last or segments[index + 1].base_offset > recovery_point)
        cut = 0
        if unflushed or segment in damaged:
            latest_epoch: int = NO_LEADER_EPOCH
            if previous is not None and previous is segments[index - 1]:
                latest_epoch = _last_epoch(previous)
            else:
                load_producers_before(
                    log.folder, log.producers, segments, index, log_start_offset=log.log_start_offset, now_ms=now_ms
                )
            cut = recover_segment(log, segment, note_epochs=unflushed or epochs_lost, latest_epoch=latest_epoch)
            previous = segment
        elif epochs_lost:
            for found in segment.headers(0):
                _note_epoch(log.epochs, found.header)
        _remove_strays(log, index, damaged)
        ends_log = (cut and segment not in holes) or (
            unflushed
            and index + 1 < len(log.segments)
            and _does_not_follow(log, segment, log.segments[index + 1], durable)
        )
        if ends_log and index + 1 < len(log.segments):
            logger.warning(
                "segments_removed: log=%s after=%d cut_bytes=%d", log.topic_partition, segment.base_offset, cut
            )
            removed, log.segments = log.segments[index + 1 :], log.segments[: index + 1]
            log.folder.environment.counts.recovery_cut_bytes += sum(each.size for each in removed)
            _remove_segments(log, segment, removed, recovery_point)
            break
        index += 1


def _remove_strays(log: Log, index: int, damaged: set[Segment]) -> None:
    """Removes the empty segments behind that of `index` that begin below its end."""
    segment = log.segments[index]
    while index + 1 < len(log.segments):
        stray = log.segments[index + 1]
        may_be_empty = stray.size == 0 or stray in damaged or log.config.preallocate
        if not may_be_empty or not _is_empty(stray) or segment.next_offset() <= stray.base_offset:
            return
        logger.warning(
            "stray_segment_removed: log=%s base_offset=%d end_before=%d",
            log.topic_partition,
            stray.base_offset,
            segment.next_offset(),
        )
        # The snapshot of that offset stays true: it may be all that tells of producers.
        stray.unlink()
        log.segments = [*log.segments[: index + 1], *log.segments[index + 2 :]]


def _is_empty(segment: Segment) -> bool:
    """Whether there is nothing in the .log file, or only what preallocation has put there."""
    if segment.size < HEADER_SIZE:
        return True
    with segment.log_file as file:
        return not any(file.pread(HEADER_SIZE, 0))


def _remove_segments(log: Log, last: Segment, removed: list[Segment], recovery_point: int) -> None:
    """Takes away the segments behind `last`, where the log ends now; those that go on from there are kept aside.

    A log that ends at its recovery point, with other files behind it, was being truncated there: these were on their
    way out.
    """
    end = last.next_offset()
    if end != recovery_point or log.damage is not None:
        lost_end = _continuation(last, removed)
        if lost_end is not None:
            _lost(log, end, _last_epoch(last), lost_end)
            for segment in removed:
                discard_snapshot(log.folder, segment.base_offset, log.config.file_delete_delay_ms)
            removed = keep_segments_aside(log.folder, removed)
    for segment in removed[::-1]:
        discard(log.folder, segment, log.config.file_delete_delay_ms)


def _continuation(last: Segment, removed: list[Segment]) -> Offset | None:
    """Where the segments end that begin with a valid batch that can follow `last`, by its epoch; None without one."""
    latest_epoch = _last_epoch(last)
    for segment in removed:
        with segment.log_file as file:
            end = find_continuation(
                file,
                0,
                file.size(),
                base_offset=segment.base_offset,
                next_offset=segment.base_offset,
                latest_epoch=latest_epoch,
            )
        if end is not None:
            return max(end, Offset(removed[-1].base_offset))
    return None


def _lost(log: Log, end: int, leader_epoch: int, lost_end: int) -> None:
    """Notes that records from `end` to `lost_end` are lost here, durably, before anything is cut."""
    has_hole = False
    if log.damage is not None:
        lost_end = max(lost_end, log.damage.lost_end)
        has_hole = log.damage.has_hole
    log.damage = ReplicaDamage(Offset(end), LeaderEpoch(leader_epoch), Offset(lost_end), has_hole)
    write_damage(log.folder.disk, log.folder.path, log.damage)


def compare_with_high_watermark(log: Log, high_watermark: int) -> None:
    """Notes a loss where the log, just loaded, ends below its checkpointed high watermark; forgets one that is made up
    for. OSError.

    The checkpoint is a lower bound of what was committed: it goes down before a log is cut below it.
    """
    end = log.log_end_offset
    if log.damage is not None and end >= log.damage.lost_end and not log.damage.has_hole:
        # Its last owner has fetched again what was lost.
        log.damage = None
        remove_damage(log.folder.disk, log.folder.path)
    if log.damage is not None or end < high_watermark:
        _lost(log, end, log.epochs.latest, high_watermark)
    if log.damage is not None:
        logger.warning(
            "log_lost_records: log=%s log_end=%d lost_end=%d high_watermark=%d: another replica in sync is to lead",
            log.topic_partition,
            end,
            log.damage.lost_end,
            high_watermark,
        )


def _does_not_follow(log: Log, segment: Segment, following: Segment, durable: int) -> bool:
    """Whether the next file is of another time than unflushed `segment`, so that it must not be served.

    Batches are missing between the two: a power cut kept the next file, and not them. Or the two overlap: the next file
    was removed by a truncation, and has come back. Gaps that compaction has left mean nothing; our cleaner leaves none
    above the recovery point, Kafka's may. `cleaned_offset` does not yet tell of a cleaning that was interrupted.
    """
    end = segment.next_offset()
    if end < following.base_offset:
        return following.base_offset > max(durable, log.cleaned_offset or 0)
    return end > following.base_offset


def _last_epoch(segment: Segment) -> int:
    """The leader epoch of a segment's last batch."""
    last = segment.last_batch()
    return NO_LEADER_EPOCH if last is None else last.header.partition_leader_epoch


def recover_segment(log: Log, segment: Segment, *, note_epochs: bool, latest_epoch: int = NO_LEADER_EPOCH) -> int:
    """Scans a segment, with the producers' state from before it, and cuts its torn end; gives the bytes cut.

    A batch of an older epoch than the one before it (`latest_epoch` for the first) ends the segment as a torn one does:
    a truncation has removed it, and a power cut has brought it back.
    """
    size = segment.size
    aborted: list[AbortedTransaction] = []

    def before_cut(file: File, position: int, size: int, next_offset: int, epoch: int) -> None:
        lost_end = find_continuation(
            file, position, size, base_offset=segment.base_offset, next_offset=next_offset, latest_epoch=epoch
        )
        if lost_end is not None:
            _lost(log, next_offset, epoch, lost_end)
            keep_aside(log.folder, file, position, size, next_offset)

    known = {entry.epoch for entry in log.epochs.entries}
    may_have_gaps = log.config.compacted or log.cleaned_offset is not None
    counts = log.folder.environment.counts
    for found, data in segment.recover(latest_epoch, before_cut, known_epochs=known, may_have_gaps=may_have_gaps):
        header = found.header
        if note_epochs:
            _note_epoch(log.epochs, header)
        aborted += apply_batch(log.producers, header, data)
        counts.recovered_bytes += header.size
    # At once: a crash in the middle of this must not leave a segment below the recovery point with half of them.
    segment.transaction_index.replace(aborted)
    cut = size - segment.size
    if cut:
        counts.recovery_cut_bytes += cut
        logger.info("torn_tail_cut: log=%s base_offset=%d bytes=%d", log.topic_partition, segment.base_offset, cut)
    return cut


def _note_epoch(epochs: EpochCache, header: BatchHeader) -> None:
    """Makes the epochs agree with a batch; nothing changes where they do, as compaction may have taken those before.

    They differ where the checkpoint is older than the batch: it lacks the epoch, or knows one from before a truncation.
    """
    epoch = header.partition_leader_epoch
    known = epochs.epoch_for_offset(Offset(header.base_offset))
    if known > epoch >= 0:
        epochs.truncate_from_end(next(entry.start_offset for entry in epochs.entries if entry.epoch > epoch))
        known = epochs.latest
    if known < epoch:
        epochs.assign(LeaderEpoch(epoch), Offset(header.base_offset))


def _remove_stray_snapshots(log: Log) -> None:
    """Keeps the snapshots of segments, and the newest other one if it lies above the last segment."""
    bases = {segment.base_offset for segment in log.segments}
    stray = [offset for offset in snapshot_offsets(log.folder) if offset not in bases]
    if stray and stray[-1] > max(bases):
        stray.pop()
    for offset in stray:
        log.folder.disk.unlink(snapshot_path(log.folder, offset))


def _read_epochs(disk: Disk, directory: str) -> tuple[EpochCache | None, bytes | None]:
    """The checkpoint's epochs and content; no epochs where it is missing or unreadable: all batches must tell then.

    A follower that took an epoch for longer than it was would keep records that no leader has."""
    path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"
    content: bytes | None = None
    try:
        content = disk.read(path)
        return EpochCache.from_checkpoint_text(content.decode()), content
    except FileNotFoundError:
        return None, None
    except (CheckpointError, ValueError) as error:
        logger.warning("epoch_checkpoint_ignored: path=%s reason=%s", path, error)
        return None, content


def _read_topic_id(disk: Disk, directory: str) -> TopicId | None:
    """OSError or `CorruptFile` when there is an identity that cannot be read: serving another topic's records would
    be worse."""
    try:
        return decode_partition_metadata(disk.read(f"{directory}/{PARTITION_METADATA}"))
    except FileNotFoundError:
        return None
    except CorruptFile as error:
        raise CorruptFile(
            f"{directory}/{PARTITION_METADATA}: {error}; restore the file or move the folder away"
        ) from error
