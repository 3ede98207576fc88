"""Records that a log turns out to lack when it is loaded, noted durably (`damage`): another replica is to lead.

A closed segment may have fewer bytes than at the clean stop, or be missing; a log may end below its checkpointed high
watermark; recovery may have to cut bytes that valid batches follow.
"""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING

from tidelog.metadata.replica_marks import ReplicaDamage
from tidelog.model.identifiers import LeaderEpoch, Offset
from tidelog.storage.damage import remove_damage, write_damage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.storage.log import Log
    from tidelog.storage.segment import Segment

logger = logging.getLogger(__name__)


def note_loss(log: Log, end: int, leader_epoch: int, lost_end: int) -> None:
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
        note_loss(log, end, log.epochs.latest, high_watermark)
    if log.damage is not None:
        logger.warning(
            "log_lost_records: log=%s log_end=%d lost_end=%d high_watermark=%d: another replica in sync is to lead",
            log.topic_partition,
            end,
            log.damage.lost_end,
            high_watermark,
        )


def note_holes(log: Log, sizes_at_stop: Mapping[int, int], log_start_offset: int) -> set[Segment]:
    """The closed segments that have fewer bytes than at the clean stop. What these and missing ones held is a hole in
    the log, which is noted, durably: other replicas have the records. OSError.

    The end of a log is compared with its high watermark instead. After a kill `sizes_at_stop` has 1 byte for each
    segment of which only an index is left.
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
                "segment_lost: log=%s base_offset=%d bytes=%d bytes_at_stop=%d: its file was changed since the"
                " broker ended; the records are copied from another replica where there is one",
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
