"""Mending a rotten segment with the bytes of another replica.

Followers append batches as they came, so two replicas' files are equal where neither was compacted. The segment is
walked from its beginning (`find_damages`); another replica is asked for the batches from the offset that should follow;
and as many of them are written in place as it takes until the file goes on soundly behind them (`fit`). Where no number
of them fits, as after compactions that went differently, nothing is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.records.batch import iterate_headers
from tidelog.records.integrity import check_batches

if TYPE_CHECKING:
    from tidelog.ports.disk import Bytes
    from tidelog.storage.integrity import SegmentCheck
    from tidelog.storage.log import Log
    from tidelog.storage.segment import Segment


DAMAGES_MAX: Final = 64
"""Damages of a segment that are looked for at once; a file full of them is for an operator to replace."""


class Damage(NamedTuple):
    """A batch of a segment that is not what was written, or several where it cannot be told where the next begins."""

    position: int
    end: int
    """Where the next sound batch begins; the segment's size where there is none."""
    next_offset: int
    """Where the batch before it ended: what belongs there begins with this offset, or behind a gap."""
    flaw: str


class Patch(NamedTuple):
    """Bytes to be written in place."""

    position: int
    before: bytes
    """What the file has there now."""
    after: bytes
    last_offset: int


def find_damages(segment: Segment, check: SegmentCheck) -> list[Damage]:
    """What is rotten in a segment, in order, `DAMAGES_MAX` at most. In any thread. OSError."""
    damages: list[Damage] = []
    position, next_offset = 0, segment.base_offset
    while position < check.size and len(damages) < DAMAGES_MAX:
        checked = check.walk(position, next_offset, check.size)
        if checked.flaw is None:
            break
        if checked.next_offset is not None:
            next_offset = checked.next_offset
        position = check.following(checked.end, next_offset)
        damages.append(Damage(checked.end, position, next_offset, checked.flaw))
    return damages


def fit(segment: Segment, check: SegmentCheck, log: Log, damage: Damage, data: Bytes) -> Patch | None:
    """As few of the batches in `data` as mend the damage; None where none do. In any thread. OSError.

    `data` are another replica's, from `damage.next_offset` on; what is not sound there is not used.
    """
    sound = check_batches(data, next_offset=damage.next_offset, epochs=log.epochs.entries)
    for position, header in iterate_headers(data, 0, sound.end):
        size = position + header.size
        end = damage.position + size
        if end > check.size or header.next_offset > check.end_offset:
            break
        if check.is_sound(end, header.next_offset):
            with segment.log_file as file:
                before = file.pread(size, damage.position)
            return Patch(damage.position, before, bytes(memoryview(data)[:size]), header.last_offset)
    return None


def write(segment: Segment, patch: Patch) -> bool:
    """Writes it, in the thread that owns the log; false where the file has something else there by now. OSError.

    It is not synced.
    """
    end = patch.position + len(patch.after)
    if end > segment.size:
        return False
    with segment.log_file as file:
        if file.pread(len(patch.before), patch.position) != patch.before:
            return False
        file.pwrite(patch.after, patch.position)
    segment.verified = ()
    return True
