"""Whether stored batches are what was written: their checksums, and the header fields that no checksum covers.

The checksum of a batch leaves out its base offset, length, leader epoch and magic. A wrong length makes the checksum
fail. The other three are judged by what is known of their neighbourhood:

    base offset     not below the end of the batch before, and not beyond the beginning of the one behind
    leader epoch    the one that began last at or before the base offset, by the leader epoch cache
    magic           2

A gap between two batches is what compaction leaves. So where a batch begins before the end of the one in front of it,
and that one began behind a gap, it is the one in front whose base offset is wrong.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.model.identifiers import NO_LEADER_EPOCH
from tidelog.records import implementation
from tidelog.records.batch import CRC_START, HEADER_SIZE, MAGIC
from tidelog.records.batch_header import SIZE_PREFIX
from tidelog.records.checksum import crc32c

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.ports.disk import Bytes
    from tidelog.records.epochs import EpochEntry

_FIELDS: Final = Struct(">qiibIhi")
"""Base offset, length, leader epoch, magic, checksum, attributes, last offset delta."""


class Soundness(NamedTuple):
    """What `check_batches` found."""

    end: int
    """Position behind the last batch that is sound."""
    next_offset: int | None
    """The offset behind that batch; what was handed in where there is none."""
    flaw: str | None
    """What is wrong with the batch at `end`; None where nothing is."""
    needed: int
    """Bytes of the batch at `end`, as its header has it, where the buffer ends before it, or before the header behind
    it, which is needed to judge it; else 0."""
    has_gap: bool = False
    """Whether that batch does not begin where the one before it ended."""


def check_batches(
    buffer: Bytes, *, next_offset: int | None, epochs: Sequence[EpochEntry], end_offset: int | None = None
) -> Soundness:
    """Checks the whole batches in `buffer`, which begins with one.

    `next_offset` is where the batch before them ended, None where that is not known. `epochs` are the log's, oldest
    first. `end_offset` is given where the file ends with the buffer: no offset reaches beyond it. Without it the last
    batch only counts as sound when the header behind it is in the buffer, or when it begins where it must.
    """
    view = memoryview(buffer)
    limit = len(view)
    # The compiled kernel comes as far as all is sound; what is not is judged here.
    prefix = implementation.sound_prefix(view, next_offset, epochs)
    position, next_offset, last_position, last_expected, is_behind_gap = prefix
    last: tuple[int, int | None] = (last_position, last_expected)
    """Where the last batch begins, and where the one before it ended."""
    entry, last_entry = -1, len(epochs) - 1
    next_entry_offset = epochs[0].start_offset if epochs else None
    while limit - position >= HEADER_SIZE:
        base, length, epoch, magic, crc, _, delta = _FIELDS.unpack_from(view, position)
        if magic != MAGIC:
            return Soundness(position, next_offset, f"has magic {magic}", 0)
        if length < HEADER_SIZE - SIZE_PREFIX:
            return Soundness(position, next_offset, f"has a length of {length}", 0)
        if next_offset is not None and base < next_offset:
            if is_behind_gap:
                return Soundness(*last, f"ends at offset {next_offset}, the next one begins at {base}", 0)
            return Soundness(position, next_offset, f"begins at offset {base}, the one before ends at {next_offset}", 0)
        while next_entry_offset is not None and next_entry_offset <= base:
            entry += 1
            next_entry_offset = epochs[entry + 1].start_offset if entry < last_entry else None
        if entry >= 0 and epoch != epochs[entry].epoch and epoch != NO_LEADER_EPOCH:
            known = epochs[entry].epoch
            return Soundness(position, next_offset, f"has the leader epoch {epoch}, the log {known}", 0)
        following = position + length + SIZE_PREFIX
        if following > limit:
            # Its base offset is all that the batch before it needs.
            has_gap = next_offset is not None and base > next_offset
            return Soundness(position, next_offset, None, following - position, has_gap)
        computed = crc32c(view[position + CRC_START : following])
        if computed != crc:
            return Soundness(position, next_offset, f"has the checksum {crc}, computed is {computed}", 0)
        last = (position, next_offset)
        is_behind_gap = next_offset is not None and base > next_offset
        next_offset, position = base + delta + 1, following
    if end_offset is not None:
        if next_offset is not None and next_offset > end_offset:
            return Soundness(*last, f"ends at offset {next_offset}, what follows begins at {end_offset}", 0)
        if position < limit:
            return Soundness(position, next_offset, f"is cut short: {limit - position} bytes are there", 0)
        return Soundness(position, next_offset, None, 0)
    if is_behind_gap:
        at, expected = last
        return Soundness(at, expected, None, position - at, True)
    return Soundness(position, next_offset, None, 0)
