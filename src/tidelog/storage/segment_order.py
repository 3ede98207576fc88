"""Which of a log's segments an offset lies in; they are sorted by their base offsets."""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.storage.segment_files import SegmentFiles

_base_offset = attrgetter("base_offset")


def floor_index(segments: Sequence[SegmentFiles], offset: int) -> int:
    """Index of the one of a log's segments, oldest first, in which `offset` lies, or would."""
    if offset >= segments[-1].base_offset:
        return len(segments) - 1
    return max(bisect_right(segments, offset, key=_base_offset) - 1, 0)


def index_behind(segments: Sequence[SegmentFiles], base_offset: int) -> int:
    """Index of the first of a log's segments that begins above `base_offset`; how many there are where none does."""
    return bisect_right(segments, base_offset, key=_base_offset)
