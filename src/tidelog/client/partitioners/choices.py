"""Where records go that no key sends anywhere. Pure: random numbers come in as an argument.

Sending each record elsewhere makes many small batches, so Kafka's producers stick to a partition: since 2.4 until a
batch is full (KIP-480), since 3.3 for a batch's worth of bytes, and then rather to a partition whose queue is short
(KIP-794): batches fill, and slow brokers get less.
"""

from __future__ import annotations

import bisect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from tidelog.client.partitioners.hashes import to_positive

DrawInt = Callable[[], int]
"""Gives an integer of 31 bits or more, evenly distributed; its low 31 bits are used."""


@dataclass(frozen=True, slots=True)
class Partitions:
    """A topic as a partitioner sees it: `count` partitions from 0 on, of which the `available` ones have a leader."""

    topic: str
    count: int
    available: Sequence[int]

    def number(self, number: int) -> int:
        """A partition by any number from 0 on: an available one if there are such, so that records don't wait."""
        return self.available[number % len(self.available)] if self.available else number % self.count


class Choice(ABC):
    """Chooses for one topic and producer."""

    @abstractmethod
    def choose(self, partitions: Partitions) -> int:
        """The next record's partition."""

    def new_batch(self, previous: int, partitions: Partitions) -> bool:
        """The record that is to go to `previous` begins a batch there; whether to `choose` again because of that."""
        return False

    def appended(self, size: int, partitions: Partitions) -> None:  # noqa: B027 - most choices don't count.
        """So many bytes went where `choose` said."""


class CountingChoice(Choice):
    """One after the other. Kafka's default before 2.4 began anywhere, its RoundRobinPartitioner begins at 0."""

    def __init__(self, start: int | DrawInt = 0) -> None:
        self._next = start

    def choose(self, partitions: Partitions) -> int:
        number = self._next if isinstance(self._next, int) else self._next()
        self._next = number + 1
        return partitions.number(to_positive(number))


class RandomChoice(Choice):
    """Anywhere."""

    def __init__(self, draw: DrawInt) -> None:
        self._draw = draw

    def choose(self, partitions: Partitions) -> int:
        return partitions.number(to_positive(self._draw()))


class StickyChoice(Choice):
    """One partition until a batch is begun there, then any other one that is available: 2.4 to 3.2 (KIP-480)."""

    def __init__(self, draw: DrawInt) -> None:
        self._draw = draw
        self._current: int | None = None

    def choose(self, partitions: Partitions) -> int:
        if self._current is None:
            self._current = self._other(partitions)
        return self._current

    def new_batch(self, previous: int, partitions: Partitions) -> bool:
        # A batch of records with keys, in a partition that is not this one, changes nothing.
        if self._current is None or self._current == previous:
            self._current = self._other(partitions)
        return True

    def _other(self, partitions: Partitions) -> int:
        if len(partitions.available) == 1:
            return partitions.available[0]
        while True:
            drawn = partitions.number(to_positive(self._draw()))
            if drawn != self._current or not partitions.available:
                return drawn


class WeightedChoice(Choice):
    """One partition for a batch's worth of bytes, then one of those with short queues: since 3.3 (KIP-794).

    `batch_size` is in bytes: after so many the partition may change, after twice as many it must.
    """

    def __init__(self, batch_size: int, draw: DrawInt) -> None:
        self._batch_size = max(1, batch_size)
        self._draw = draw
        self._current: int | None = None
        self._bytes = 0
        self._loads: tuple[list[int], list[int]] | None = None

    def choose(self, partitions: Partitions) -> int:
        if self._current is None:
            self._current = self._next(partitions)
        return self._current

    def appended(self, size: int, partitions: Partitions, *, enable_switch: bool = True) -> None:
        """Counts `size` bytes on the current partition and moves on when it had its share.

        `enable_switch` False asks to fill the batch that is open first, so that no half-filled ones are left behind.
        """
        self._bytes += size
        if (self._bytes >= self._batch_size and enable_switch) or self._bytes >= 2 * self._batch_size:
            self._current = self._next(partitions)
            self._bytes = 0

    def update_load(self, queue_sizes: Sequence[int], partitions: Sequence[int], partitions_count: int) -> int | None:
        """Takes the bytes or batches queued for each of `partitions`; the shorter queues are drawn more often.

        `partitions` are those that may be drawn at all, `partitions_count` is how many the topic has. Where all have
        equal queues, no table is kept and each available one is as likely. Returns the end of the range drawn from.
        """
        if len(queue_sizes) != len(partitions):
            raise ValueError(f"{len(queue_sizes)} queue sizes for {len(partitions)} partitions")
        all_equal = len(set(queue_sizes)) == 1 and len(partitions) == partitions_count
        if not queue_sizes or partitions_count < 2 or all_equal:
            self._loads = None
            return None
        ceiling = max(queue_sizes) + 1
        self._loads = list(accumulate(ceiling - size for size in queue_sizes)), list(partitions)
        return self._loads[0][-1]

    def _next(self, partitions: Partitions) -> int:
        draw = to_positive(self._draw())
        if self._loads is None:
            return partitions.number(draw)
        cumulative, drawn_from = self._loads
        return drawn_from[bisect.bisect_right(cumulative, draw % cumulative[-1])]
