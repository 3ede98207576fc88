"""Mending a rotten segment with the bytes of another replica.

Followers append batches as they came, so two replicas' files are equal where neither was compacted. The segment is
walked from its beginning (`find_damages`); another replica is asked for the batches from the offset that should follow;
and as many of them are written in place as it takes until the file goes on soundly behind them (`fit`). Where no number
of them fits, as after compactions that went differently, nothing is written.

Of a closed segment that was cut short, the missing end is a damage of no bytes, or of what is left of a batch. There as
many batches are written as came, up to where the next segment begins.
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


SIZE_MAX: Final = 2**31 - 1
"""Bytes of a segment, whose positions stand in 32 bits of its index."""
DAMAGES_MAX: Final = 64
"""Damages of a segment that are looked for at once; a file full of them is for an operator to replace."""


class Damage(NamedTuple):
    """A batch of a segment that is not what was written, or several where it cannot be told where the next begins."""

    position: int
    end: int
    """Where the next sound batch begins; the segment's size where there is none, also as `position`: there the end is
    missing."""
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
    if not check.size and check.is_missing_from(next_offset):
        return [Damage(0, 0, next_offset, "is missing: the segment is empty")]
    while position < check.size and len(damages) < DAMAGES_MAX:
        checked = check.walk(position, next_offset, check.size)
        if checked.flaw is None:
            break
        if checked.next_offset is not None:
            next_offset = checked.next_offset
        is_missing = checked.end >= check.size
        position = check.size if is_missing else check.following(checked.end, next_offset)
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
    return _missing_end(segment, check, damage, data, sound.end) if damage.end == check.size else None


def _missing_end(segment: Segment, check: SegmentCheck, damage: Damage, data: Bytes, end: int) -> Patch | None:
    """The batches in `data`, sound up to `end`, with which a segment goes on that was cut short; None where none do."""
    size, next_offset = 0, damage.next_offset
    for position, header in iterate_headers(data, 0, end):
        is_too_far = header.next_offset > check.end_offset or damage.position + position + header.size > SIZE_MAX
        if header.base_offset != next_offset or is_too_far:
            break
        size, next_offset = position + header.size, header.next_offset
    if not check.is_missing_from(damage.next_offset) or damage.position + size <= check.size:
        return None
    with segment.log_file as file:
        before = file.pread(check.size - damage.position, damage.position)
    return Patch(damage.position, before, bytes(memoryview(data)[:size]), next_offset - 1)


def write(segment: Segment, patch: Patch) -> bool:
    """Writes it, in the thread that owns the log; false where the file has something else there by now. OSError.

    It is not synced. The segment becomes longer by batches that were missing at its end: `Segment.index_anew` then.
    """
    end = patch.position + len(patch.after)
    if end > segment.size != patch.position + len(patch.before):
        return False
    with segment.log_file as file:
        if file.pread(len(patch.before), patch.position) != patch.before:
            return False
        file.pwrite(patch.after, patch.position)
    segment.size = max(segment.size, end)
    segment.verified = ()
    return True
