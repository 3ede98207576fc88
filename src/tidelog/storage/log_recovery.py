"""Recovery of a log: segments are scanned from the recovery point on, what is torn is cut, the rest agrees with itself.

What lies below the recovery point was durable before, and is trusted, but for segments whose index files are damaged.
Indexes are written anew, leader epochs and producers' state brought up to date. What follows a segment that had to be
cut is removed; where valid batches follow a cut, the records in between are lost here (`lost_records`), and what is
removed is kept aside.

An empty segment that begins below the end of the one before it is no part of the log: a roll that failed half-way has
left it, in former versions, and what was appended afterwards lies in the segment before. It goes, whatever follows it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.model.identifiers import NO_LEADER_EPOCH, LeaderEpoch, Offset
from tidelog.records.batch import HEADER_SIZE
from tidelog.records.epochs import EpochCache
from tidelog.storage.damage import find_continuation, keep_aside, keep_segments_aside
from tidelog.storage.lost_records import note_loss
from tidelog.storage.producer_recovery import apply_batch, discard_snapshot, load_producers_before
from tidelog.storage.retention import discard
from tidelog.storage.segment import EPOCH_STEP_MAX

if TYPE_CHECKING:
    from collections.abc import Set

    from tidelog.ports.disk import File
    from tidelog.records.batch import BatchHeader
    from tidelog.storage.log import Log
    from tidelog.storage.segment import Segment
    from tidelog.storage.transaction_index import AbortedTransaction

logger = logging.getLogger(__name__)


def recover_log(
    log: Log,
    damaged: set[Segment],
    recovery_point: int,
    now_ms: int,
    *,
    clean: bool,
    epochs_lost: bool,
    durable: int = 0,
    holes: Set[Segment] = frozenset(),
    same_boot: bool = False,
    writes_again: bool = False,
) -> None:
    """Scans the segments that need it, oldest first; what follows a segment that had to be cut is removed.

    `durable` is up to where no power cut can have taken anything, where that is above `recovery_point`. What follows
    segments of `holes` stays. `same_boot`: the machine has been up since the last owner of the files ended, so that
    nothing that a truncation removed has come back. `writes_again`: what was not flushed may be in the page cache
    alone, and count as written there.
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
            cut = recover_segment(
                log,
                segment,
                note_epochs=unflushed or epochs_lost,
                latest_epoch=latest_epoch,
                epoch_step_max=0 if same_boot else EPOCH_STEP_MAX,
                behind=None if is_last or not unflushed else segments[index + 1].first_valid_batch(),
                writes_again=writes_again and unflushed,
            )
            if not unflushed:
                # No flush comes to it, and the next start trusts its indexes.
                segment.fsync(indexes=True)
            previous = segment
        elif epochs_lost:
            for found in segment.headers(0):
                note_epoch(log.epochs, found.header)
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
            _remove_segments(log, segment, removed, recovery_point, was_cut=cut > 0)
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


def _remove_segments(log: Log, last: Segment, removed: list[Segment], recovery_point: int, *, was_cut: bool) -> None:
    """Takes away the segments behind `last`, where the log ends now; those that go on from there are kept aside.

    A log whose last file is whole and ends at the recovery point, with other files behind it, was being truncated
    there: these were on their way out.
    """
    end = last.next_offset()
    if was_cut or end != recovery_point or log.damage is not None:
        lost_end = _continuation(last, removed)
        if lost_end is not None:
            note_loss(log, end, _last_epoch(last), lost_end)
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


def recover_segment(
    log: Log,
    segment: Segment,
    *,
    note_epochs: bool,
    latest_epoch: int = NO_LEADER_EPOCH,
    epoch_step_max: int = EPOCH_STEP_MAX,
    behind: BatchHeader | None = None,
    writes_again: bool = False,
) -> int:
    """Scans a segment, with the producers' state from before it, and cuts its torn end; gives the bytes cut.

    A batch of an older epoch than the one before it (`latest_epoch` for the first) ends the segment as a torn one does:
    a truncation has removed it, and a power cut has brought it back. `behind` is the first valid batch of the next
    segment, by which the last one of this segment is judged. `writes_again`: whatever is kept is written once more,
    over itself, for the next flush to find.
    """
    size = segment.size
    aborted: list[AbortedTransaction] = []

    def before_cut(file: File, position: int, size: int, next_offset: int, epoch: int) -> None:
        lost_end = find_continuation(
            file,
            position,
            size,
            base_offset=segment.base_offset,
            next_offset=next_offset,
            latest_epoch=epoch,
            behind=behind,
        )
        if lost_end is None and behind is not None and behind.partition_leader_epoch >= epoch:
            lost_end = Offset(behind.next_offset) if behind.base_offset >= next_offset else None
        if lost_end is not None:
            note_loss(log, next_offset, epoch, lost_end)
            keep_aside(log.folder, file, position, size, next_offset)

    known = EpochCache(log.epochs.entries)  # As they are before the scan changes them.
    may_have_gaps = log.config.compacted or log.cleaned_offset is not None
    counts = log.folder.environment.counts
    batches = segment.recover(
        latest_epoch,
        before_cut,
        known_epochs=known,
        epoch_step_max=epoch_step_max,
        may_have_gaps=may_have_gaps,
        behind=behind,
    )
    for found, data in batches:
        header = found.header
        if writes_again:
            with segment.log_file as file:
                file.pwrite(data, found.position)
        if note_epochs:
            note_epoch(log.epochs, header)
        aborted += apply_batch(log.producers, header, data)
        counts.recovered_bytes += header.size
    # At once: a crash in the middle of this must not leave a segment below the recovery point with half of them.
    segment.transaction_index.replace(aborted, writes_again=writes_again)
    cut = size - segment.size
    if cut:
        counts.recovery_cut_bytes += cut
        logger.info("torn_tail_cut: log=%s base_offset=%d bytes=%d", log.topic_partition, segment.base_offset, cut)
    return cut


def note_epoch(epochs: EpochCache, header: BatchHeader) -> None:
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
