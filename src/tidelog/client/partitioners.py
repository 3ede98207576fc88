"""Which partition a record goes to. Pure: random numbers come in as an argument.

A record with a key goes where every Kafka producer sends it, by murmur2 over all partitions. Records without a key
stay on one partition until a batch's worth of bytes went there, then on another one drawn at random, the emptier
queues more often (KIP-480, KIP-794): batches fill, and slow brokers get less.
"""

import bisect
import struct
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final

_MULTIPLIER: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
_MASK_32: Final = 0xFFFFFFFF
_MASK_31: Final = 0x7FFFFFFF

DrawInt = Callable[[], int]
"""Gives an integer of 31 bits or more, evenly distributed; its low 31 bits are used."""


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit MurmurHash2 of `data`, signed as Java's int."""
    length = len(data)
    words = length >> 2
    result = (_SEED ^ length) & _MASK_32
    for word in struct.unpack_from(f"<{words}I", data):
        mixed = (word * _MULTIPLIER) & _MASK_32
        mixed = ((mixed ^ (mixed >> 24)) * _MULTIPLIER) & _MASK_32
        result = ((result * _MULTIPLIER) & _MASK_32) ^ mixed
    tail = data[words << 2 :]
    if tail:
        result = ((result ^ int.from_bytes(tail, "little")) * _MULTIPLIER) & _MASK_32
    result = ((result ^ (result >> 13)) * _MULTIPLIER) & _MASK_32
    result ^= result >> 15
    return result - (1 << 32) if result > _MASK_31 else result


def to_positive(number: int) -> int:
    """The low 31 bits: how Kafka makes a hash non-negative (not the absolute value)."""
    return number & _MASK_31


def partition_for_key(key: bytes, partitions_count: int) -> int:
    """The partition of a keyed record among 0 .. `partitions_count` - 1, available or not."""
    return to_positive(murmur2(key)) % partitions_count


class StickyPartitioner:
    """Chooses for one topic's records without a key; one instance a topic and producer.

    The caller asks for `current()`, appends the record there, and reports the bytes by `appended`. `batch_size` is in
    bytes: after so many the partition may change, after twice as many it must.
    """

    def __init__(self, batch_size: int, draw: DrawInt) -> None:
        self._batch_size = max(1, batch_size)
        self._draw = draw
        self._current: int | None = None
        self._bytes = 0
        self._loads: tuple[list[int], list[int]] | None = None

    def current(self, available: Sequence[int], partitions_count: int) -> int:
        """The partition to append to; `available` are those with a leader, all count where there is none."""
        if self._current is None:
            self._current = self._next(available, partitions_count)
        return self._current

    def appended(self, size: int, *, enable_switch: bool, available: Sequence[int], partitions_count: int) -> None:
        """Counts `size` bytes on the current partition and moves on when it had its share.

        `enable_switch` False asks to fill the batch that is open first, so that no half-filled ones are left behind.
        """
        self._bytes += size
        if (self._bytes >= self._batch_size and enable_switch) or self._bytes >= 2 * self._batch_size:
            self._current = self._next(available, partitions_count)
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

    def _next(self, available: Sequence[int], partitions_count: int) -> int:
        draw = to_positive(self._draw())
        if self._loads is not None:
            cumulative, partitions = self._loads
            return partitions[bisect.bisect_right(cumulative, draw % cumulative[-1])]
        if available:
            return available[draw % len(available)]
        return draw % partitions_count
