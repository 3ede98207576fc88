"""Partitioners: which partition of a topic a record goes to. Pure: random numbers come in as an argument.

    name                keys by           records without a key
    default             murmur2           one partition for a batch's worth of bytes, short queues first (Kafka 3.3)
    sticky              murmur2           one partition for a batch (Kafka 2.4 to 3.2)
    counter             murmur2           one after the other, from anywhere (Kafka before 2.4)
    uniform_sticky      nothing           one partition for a batch, all records (Kafka 2.4's UniformStickyPartitioner)
    round_robin         nothing           one after the other, all records (Kafka's RoundRobinPartitioner)
    random              nothing           anywhere, all records

    consistent          CRC-32            as the empty key
    consistent_random   CRC-32            as default, the empty key too; what librdkafka does unless told otherwise
    murmur2             murmur2           as the empty key
    murmur2_random      murmur2           as default
    fnv1a               FNV-1a            as the empty key
    fnv1a_random        FNV-1a            as default; what sarama does

The lower six are librdkafka's names. A user's own is a function or an object: `partitioner`.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from tidelog.client.partitioners.choices import (
    Choice,
    CountingChoice,
    DrawInt,
    Partitions,
    RandomChoice,
    StickyChoice,
    WeightedChoice,
)
from tidelog.client.partitioners.hashes import (
    KeyHash,
    crc32_hash,
    fnv1a_hash,
    murmur2,
    murmur2_hash,
    partition_for_key,
    to_positive,
)
from tidelog.client.partitioners.partitioner import (
    InvalidPartition,
    KeyPartitioner,
    Own,
    OwnPartitioner,
    Partitioner,
)

__all__ = [
    "DEFAULT",
    "PARTITIONERS",
    "DrawInt",
    "InvalidPartition",
    "Own",
    "OwnPartitioner",
    "Partitioner",
    "Partitions",
    "crc32_hash",
    "fnv1a_hash",
    "murmur2",
    "partition_for_key",
    "partitioner_factory",
    "partitioner_named",
    "to_positive",
]

PartitionerFactory: TypeAlias = Callable[[int, DrawInt], Partitioner]
"""(bytes of a batch, random numbers) -> the partitioner of one topic."""

DEFAULT: Final = "default"


def _weighted(batch_size: int, draw: DrawInt) -> Choice:
    return WeightedChoice(batch_size, draw)


def _sticky(batch_size: int, draw: DrawInt) -> Choice:
    return StickyChoice(draw)


def _anywhere(batch_size: int, draw: DrawInt) -> Choice:
    return RandomChoice(draw)


def _from_anywhere(batch_size: int, draw: DrawInt) -> Choice:
    return CountingChoice(draw)


def _from_zero(batch_size: int, draw: DrawInt) -> Choice:
    return CountingChoice()


def _hashing(
    key_hash: KeyHash | None, choice: Callable[[int, DrawInt], Choice] | None, *, hashes_empty: bool = True
) -> PartitionerFactory:
    def make(batch_size: int, draw: DrawInt) -> Partitioner:
        return KeyPartitioner(key_hash, None if choice is None else choice(batch_size, draw), hashes_empty)

    return make


PARTITIONERS: Final[Mapping[str, PartitionerFactory]] = MappingProxyType(
    {
        DEFAULT: _hashing(murmur2_hash, _weighted),
        "sticky": _hashing(murmur2_hash, _sticky),
        "counter": _hashing(murmur2_hash, _from_anywhere),
        "uniform_sticky": _hashing(None, _sticky),
        "round_robin": _hashing(None, _from_zero),
        "random": _hashing(None, _anywhere),
        "consistent": _hashing(crc32_hash, None),
        "consistent_random": _hashing(crc32_hash, _weighted, hashes_empty=False),
        "murmur2": _hashing(murmur2_hash, None),
        "murmur2_random": _hashing(murmur2_hash, _weighted),
        "fnv1a": _hashing(fnv1a_hash, None),
        "fnv1a_random": _hashing(fnv1a_hash, _weighted),
    }
)


def partitioner_factory(wanted: str | Own) -> PartitionerFactory:
    """What makes partitioners of that name, or wraps a user's own, which then serves all topics."""
    if isinstance(wanted, str):
        return partitioner_named(wanted)
    own = OwnPartitioner(wanted)
    return lambda batch_size, draw: own


def partitioner_named(name: str) -> PartitionerFactory:
    """What makes partitioners of that name, one a topic and producer; ValueError says which names there are."""
    factory = PARTITIONERS.get(name)
    if factory is None:
        raise ValueError(f"there is no partitioner {name!r}: choose one of {', '.join(PARTITIONERS)}")
    return factory
