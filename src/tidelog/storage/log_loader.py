"""Opening a partition's folder: what a crash or a compaction left behind is put in order, then the log is loaded.

    clean stop      sizes of files are compared with those at the stop; only the last batches are read, to know where
                    the log ends
    otherwise       segments from the recovery point on are scanned (`log_recovery`): checksums checked, the torn tail
                    cut, indexes written anew, producers' state brought up from the last snapshot before

What lies below the recovery point was durable before, and is trusted, but for an index that is missing or has an
impossible size, and a transaction index whose entries cannot be the segment's. An aborted transaction that lacks its
index entry is found where a segment is scanned, nowhere else.

Where recovery has to cut a log although valid batches follow, the records in between are lost here: the log is damaged
(`damage`), which the controller is told before the broker registers, so that another replica leads. The same holds
after a kill without a reboot where the indexes of a segment, in the middle of the log or before what is left of it,
have lost their .log file: whatever removes a segment renames that file first, and keeps it until the indexes are gone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import Offset
from tidelog.records.epochs import CheckpointError, EpochCache
from tidelog.storage.checkpoints import decode_partition_metadata
from tidelog.storage.damage import read_damage
from tidelog.storage.errors import CorruptFile
from tidelog.storage.file_names import (
    INDEX,
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    PARTITION_METADATA,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    parse_segment_file,
    segment_file,
)
from tidelog.storage.log import Log
from tidelog.storage.log_recovery import recover_log
from tidelog.storage.lost_records import note_holes
from tidelog.storage.offset_index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE
from tidelog.storage.producer_recovery import rebuild_producers, remove_snapshots, snapshot_offsets, snapshot_path
from tidelog.storage.segment import Segment
from tidelog.storage.swap_files import finish_swaps
from tidelog.storage.torn_retention import finish_torn_retention
from tidelog.storage.transaction_index import ENTRY_SIZE as TRANSACTION_ENTRY_SIZE

if TYPE_CHECKING:
    from tidelog.model.identifiers import TopicId
    from tidelog.ports.disk import Disk
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
    same_boot: bool = False,
    writes_again: bool = False,
) -> Log:
    """Loads the log in `folder`; recovers it unless its last owner stopped cleanly.

    `cleaned_offset` is how far compaction had come; None for a log that it never saw. `sizes_at_stop` are the bytes of
    each segment at the clean stop, by base offset, where they are known. `same_boot`: the machine has been up since the
    last owner ended. `writes_again`: the disk had failed by then, and recovery writes again what it reads.

    OSError where the disk refuses. Damage in the files is repaired, at the cost of what cannot be read any more.
    """
    environment, directory, topic_partition = folder.environment, folder.path, folder.topic_partition
    disk = environment.disk
    now_ms = environment.clock.wall_ms()
    if not clean and not same_boot and not config.compacted and cleaned_offset is None:
        finish_torn_retention(disk, directory, recovery_point)
    finish_swaps(disk, directory, environment, config)
    segments, damaged, emptied, orphans = _open_segments(directory, config, environment, now_ms)
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
    if segments and same_boot and not clean and not config.compacted and log.cleaned_offset is None:
        # No power cut has kept one change of a name and lost another: an index without batches tells of a lost segment.
        # Above the recovery point the scan finds it, and cuts what follows, unless it was the first.
        durable = max((each.base_offset for each in segments if each.base_offset <= recovery_point), default=0)
        sizes_at_stop = {base: 1 for base in emptied if base < durable or base <= segments[0].base_offset}
    shortened = note_holes(log, sizes_at_stop, log_start_offset) if log.segments else set()
    # After that: they may be all that tells of a loss.
    for path in orphans:
        logger.warning("orphaned_index_removed: path=%s", path)
        disk.unlink(path)
    is_as_stopped, durable_to = clean, recovery_point
    try:
        recover_log(
            log,
            damaged | shortened,
            recovery_point,
            now_ms,
            clean=clean,
            epochs_lost=epochs is None,
            holes=shortened,
            same_boot=same_boot,
            writes_again=writes_again,
        )
        end = log.segments[-1].next_offset() if log.segments else log_start_offset
        if log.segments:
            log.segments[-1].check_indexes()
    except (KafkaError, CorruptFile) as error:
        # The log was said to be clean and is not: nothing in its files is taken on trust.
        logger.warning("log_damaged: log=%s reason=%s", topic_partition, error)
        is_as_stopped, durable_to = False, 0
        recover_log(
            log,
            set(log.segments),
            0,
            now_ms,
            clean=False,
            epochs_lost=True,
            durable=recovery_point,
            writes_again=writes_again,
        )
        end = log.segments[-1].next_offset() if log.segments else log_start_offset
    if not log.segments:
        log.segments = [Segment.create(environment.pool, directory, log_start_offset, config, now_ms=now_ms)]
    log.loaded(end, end if is_as_stopped else min(durable_to, end), epochs_file, clean=is_as_stopped)
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


def _open_segments(
    directory: str, config: LogConfig, environment: LogEnvironment, now_ms: int
) -> tuple[list[Segment], set[Segment], list[int], list[str]]:
    """The segments in the folder; those of them whose indexes are missing or have an impossible size; the base offsets
    at which an index has entries and no .log file has batches; the paths of indexes without a .log file."""
    disk = environment.disk
    names: dict[int, set[str]] = {}
    for name in disk.list(directory):
        parsed = parse_segment_file(name)
        if parsed is not None and not parsed[2] and parsed[1] != SNAPSHOT:
            names.setdefault(parsed[0], set()).add(parsed[1])
    segments: list[Segment] = []
    damaged: set[Segment] = set()
    emptied: list[int] = []
    orphans: list[str] = []
    for offset in sorted(names):
        suffixes = names[offset]
        if LOG not in suffixes:
            if _has_entries(disk, directory, offset, suffixes):
                emptied.append(offset)
            orphans += [f"{directory}/{segment_file(offset, each)}" for each in _INDEX_SIZES if each in suffixes]
            continue
        size = disk.stat(f"{directory}/{offset:020d}{LOG}").size
        segment = Segment(environment.pool, directory, offset, config, size=size, created_ms=now_ms)
        segments.append(segment)
        # They are made before the first batch is appended: an empty segment that has neither lacks nothing.
        segment.has_index_files = bool(size) or not suffixes.isdisjoint((INDEX, TIME_INDEX))
        for suffix, entry_size in _INDEX_SIZES.items():
            if suffix in suffixes:
                index_size = disk.stat(segment.path(suffix)).size
                if index_size % entry_size or (index_size and not size):
                    damaged.add(segment)
            elif suffix != TRANSACTION_INDEX and segment.has_index_files:
                damaged.add(segment)
                disk.open(segment.path(suffix), create=True).close()
    emptied += [
        each.base_offset
        for each in segments[:-1]
        if not each.size and _has_entries(disk, directory, each.base_offset, names[each.base_offset])
    ]
    for index, segment in enumerate(segments):
        end = segments[index + 1].base_offset if index + 1 < len(segments) else None
        if TRANSACTION_INDEX in names[segment.base_offset] and not _may_be_true(segment, end):
            damaged.add(segment)
    return segments, damaged, emptied, orphans


def _has_entries(disk: Disk, directory: str, base_offset: int, suffixes: set[str]) -> bool:
    """Whether one of the indexes of a segment without batches has entries; zeros are room for them."""
    for suffix in suffixes.intersection((INDEX, TIME_INDEX)):
        file = disk.open(f"{directory}/{segment_file(base_offset, suffix)}", read_only=True)
        try:
            if any(file.pread(_INDEX_SIZES[suffix], 0)):
                return True
        finally:
            file.close()
    return False


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
