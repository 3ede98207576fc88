"""A histogram of durations that costs little to observe: log-scale buckets of whole microseconds.

Eight buckets an octave, so that a quantile is at most an eighth above the truth:

    0 1 ... 7 | 8 9 ... 15 | 16 18 ... 30 | 32 36 ... 60 | ...

Buckets only grow. Quantiles are those of the last minutes: `roll`, called once a minute, remembers what the buckets
were, and a quantile is taken of what has come since the oldest that is remembered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

OCTAVES: Final = 36
"""The last bucket holds all from 2^36 us (19 hours) on."""
BUCKETS: Final = (OCTAVES - 1) * 8
LARGEST: Final = (1 << OCTAVES) - 1
"""Microseconds; longer ones count as this."""
WINDOWS: Final = 5
"""Calls of `roll` after which an observation counts for quantiles no more."""


class Histogram:
    """Durations. `observe` is the hot path; all else is for readers."""

    __slots__ = ("_marks", "buckets", "sum")

    def __init__(self) -> None:
        self.buckets = [0] * BUCKETS
        """How many durations fell into each bucket, ever."""
        self.sum = 0
        """Microseconds of all durations together."""
        self._marks: deque[list[int] | None] = deque([None], WINDOWS)
        """What the buckets were at the last calls of `roll`, oldest first; None: nothing had been observed."""

    def observe(self, duration: int, weight: int = 1) -> None:
        """Counts a duration of so many microseconds, `weight` times; one below zero counts as zero."""
        if duration < 8:
            if duration < 0:
                duration = 0
            self.buckets[duration] += weight
        else:
            if duration > LARGEST:
                duration = LARGEST
            shift = duration.bit_length() - 4
            self.buckets[(shift << 3) + (duration >> shift)] += weight
        self.sum += duration * weight

    @property
    def count(self) -> int:
        """How many durations were observed."""
        return sum(self.buckets)

    def below(self, octave: int) -> int:
        """How many durations were shorter than 2^octave microseconds; `octave` is from 3 to OCTAVES."""
        return sum(self.buckets[: _first_of(octave)])

    def roll(self) -> None:
        """A window of time has passed: what is WINDOWS windows old counts for quantiles no more."""
        self._marks.append(self.buckets.copy() if self.sum or self.buckets[0] else None)

    def plus(self, other: Histogram) -> Histogram:
        """A histogram of what both have observed; `roll` of both was called at the same times."""
        both = Histogram()
        both.buckets = _sum(self.buckets, other.buckets)
        both.sum = self.sum + other.sum
        both._marks = deque(
            (
                _sum(*pair) if None not in pair else pair[0] or pair[1]
                for pair in zip(self._marks, other._marks, strict=True)
            ),
            WINDOWS,
        )
        return both

    def as_zeros(self) -> Histogram:
        """A histogram of as many durations of zero, at the same times."""
        zeros = Histogram()
        zeros.buckets[0] = self.count
        zeros._marks = deque((None if mark is None else _zeros(sum(mark)) for mark in self._marks), WINDOWS)
        return zeros

    def quantiles(self, wanted: Sequence[float]) -> list[int] | None:
        """Microseconds that these shares of the last windows' durations did not exceed; None where there was none.

        `wanted` ascends. Each is the upper end of its bucket.
        """
        mark = self._marks[0]
        recent = (
            self.buckets if mark is None else [now - before for now, before in zip(self.buckets, mark, strict=True)]
        )
        total = sum(recent)
        if not total:
            return None
        found: list[int] = []
        seen = index = 0
        for share in wanted:
            rank = max(share * total, 1)
            while seen + recent[index] < rank:
                seen += recent[index]
                index += 1
            found.append(_upper_end(index))
        return found


def _sum(ones: list[int] | None, others: list[int] | None) -> list[int]:
    return [one + other for one, other in zip(ones or (), others or (), strict=True)]


def _zeros(count: int) -> list[int]:
    return [count] + [0] * (BUCKETS - 1)


def _first_of(octave: int) -> int:
    """The bucket that begins at 2^octave microseconds."""
    return (octave - 2) * 8


def _upper_end(index: int) -> int:
    """The longest duration of a bucket."""
    if index < 16:
        return index
    shift, step = divmod(index, 8)
    shift -= 1
    return ((step + 8 + 1) << shift) - 1
