"""Hashes of keys, by which records of one key meet in one partition. Clients must agree, so these are what others use.

A hash gives a number from 0 on, and the partition is that number modulo the topic's partitions, available or not.
Kafka's own producers, and those that follow them, use murmur2; librdkafka's default is CRC-32; sarama's is FNV-1a.
"""

import struct
import zlib
from collections.abc import Callable
from typing import Final

_MULTIPLIER: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
_FNV_OFFSET: Final = 0x811C9DC5
_FNV_PRIME: Final = 0x01000193
_MASK_32: Final = 0xFFFFFFFF
_MASK_31: Final = 0x7FFFFFFF

KeyHash = Callable[[bytes], int]


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


def murmur2_hash(key: bytes) -> int:
    """What Kafka's producers make of `murmur2`."""
    return to_positive(murmur2(key))


def crc32_hash(key: bytes) -> int:
    """zlib's CRC-32, unsigned: librdkafka's `consistent`."""
    return zlib.crc32(key)


def fnv1a_hash(key: bytes) -> int:
    """32-bit FNV-1a as sarama takes it: read as a signed number, of which the absolute value counts."""
    result = _FNV_OFFSET
    for byte in key:
        result = ((result ^ byte) * _FNV_PRIME) & _MASK_32
    return result if result <= _MASK_31 else (1 << 32) - result


def partition_for_key(key: bytes, partitions_count: int) -> int:
    """The partition of a keyed record among 0 .. `partitions_count` - 1, by murmur2."""
    return murmur2_hash(key) % partitions_count
