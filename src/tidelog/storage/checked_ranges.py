"""What checks have found in a segment: batches that are rotten, ranges that are sound, and a check that is under way.

The segment remembers it (`segment_lookups`); `integrity` checks.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

NOTHING_ROTTEN: Final[dict[int, int]] = {}
"""Of nearly all segments, which share it; never changed."""


class Verified(NamedTuple):
    """A range of a segment in which every batch was sound."""

    start: int
    end: int
    """Positions in the file; a batch begins at `start`, and one ends at `end`."""
    next_offset: int | None
    """The offset behind the batch that ends at `end`."""
    version: int
    """`File.version` before it was read."""
    until_ms: int
    """Monotonic time up to which it is trusted."""


class CheckUnderWay:
    """A check ahead of a segment's readers: a thread that needs part of its range waits for it, and checks nothing
    twice."""

    __slots__ = ("_is_over", "_progress", "end", "start")

    def __init__(self, start: int, end: int) -> None:
        """Of the batches between two positions of the file; the last one may reach beyond `end`."""
        self.start = start
        self.end = end
        self._is_over = False
        self._progress = threading.Condition()

    def advanced(self, *, is_over: bool = False) -> None:
        """More is known of the range, or no more will be."""
        with self._progress:
            self._is_over = self._is_over or is_over
            self._progress.notify_all()

    def wait_until(self, is_enough: Callable[[], bool]) -> None:
        """Returns when what is known `is_enough`, or the check is over. Blocks for as long as the device takes."""
        with self._progress:
            self._progress.wait_for(lambda: self._is_over or is_enough())
