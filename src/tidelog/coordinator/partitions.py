"""Which partition of an internal topic a group or a transactional id belongs to; its leader is the coordinator."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

REMEMBERED_LENGTH_MAX: Final = 128
"""Characters of a key whose hash is kept: any client may ask about any key, and long ones must not fill the memory."""


def java_hash(text: str) -> int:
    """Java's String.hashCode: 31-fold sums over UTF-16 code units, in 32 bits, signed."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(data), 2):
        value = (31 * value + (data[position] << 8 | data[position + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


_remembered_hash = lru_cache(maxsize=1 << 15)(java_hash)


def partition_for(key: str, partitions: int) -> int:
    """The partition of `key` among `partitions`, as every Kafka release computes it."""
    value = _remembered_hash(key) if len(key) <= REMEMBERED_LENGTH_MAX else java_hash(key)
    # Kafka's Utils.abs: the one number without a positive counterpart counts as 0.
    return 0 if value == -(1 << 31) else abs(value) % partitions
