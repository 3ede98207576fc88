"""Which partition a record goes to: by its key's hash, or by a choice where it has none; or as a user says.

A user's own is a function of (key, value, partitions), or an object that has such a method `partition` and perhaps
`new_batch`, as KIP-480 has it:

    def by_country(key: bytes | None, value: bytes | None, partitions: Partitions) -> int:
        return 0 if key == b"CN" else 1 + partition_for_key(key or b"", partitions.count - 1)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from tidelog.client.partitioners.choices import Choice, Partitions, WeightedChoice
from tidelog.client.partitioners.hashes import KeyHash


class Partitioner(Protocol):
    """Sends one producer's records of one topic to partitions."""

    def partition(self, key: bytes | None, value: bytes | None, partitions: Partitions) -> int:
        """Where this record goes, in 0 .. `partitions.count` - 1."""
        ...

    def new_batch(self, previous: int, partitions: Partitions) -> bool:
        """The record that is to go to `previous` begins a batch there; whether to ask again because of that."""
        ...

    def appended(self, key: bytes | None, size: int, partitions: Partitions) -> None:
        """A record of so many bytes went where `partition` said."""
        ...

    def update_load(self, queue_sizes: Sequence[int], partitions: Partitions) -> None:
        """So many batches wait for each of `partitions.available`."""
        ...


PartitionFunction: TypeAlias = Callable[[bytes | None, bytes | None, Partitions], int]


class HasPartition(Protocol):
    """A user's own with more than a function: state, or `new_batch(previous, partitions)`."""

    def partition(self, key: bytes | None, value: bytes | None, partitions: Partitions, /) -> int:
        """Where this record goes."""
        ...


Own: TypeAlias = HasPartition | PartitionFunction


@dataclass(slots=True)
class KeyPartitioner:
    """By the key where it has a hash, by `choice` elsewhere.

    `hash` None: keys count for nothing. A `choice` None: what has no key is hashed as the empty key, so that all of it
    meets in one partition. `hashes_empty` False: an empty key is none, as librdkafka's CRC-32 has it.
    """

    hash: KeyHash | None
    choice: Choice | None
    hashes_empty: bool = True

    def partition(self, key: bytes | None, value: bytes | None, partitions: Partitions) -> int:
        if self.choice is not None and not self._is_hashed(key):
            return self.choice.choose(partitions)
        assert self.hash is not None, "a partitioner has a hash or a choice"
        return self.hash(key or b"") % partitions.count

    def new_batch(self, previous: int, partitions: Partitions) -> bool:
        return self.choice is not None and self.choice.new_batch(previous, partitions)

    def appended(self, key: bytes | None, size: int, partitions: Partitions) -> None:
        if self.choice is not None and not self._is_hashed(key):
            self.choice.appended(size, partitions)

    def update_load(self, queue_sizes: Sequence[int], partitions: Partitions) -> None:
        if isinstance(self.choice, WeightedChoice):
            self.choice.update_load(queue_sizes, partitions.available, partitions.count)

    def _is_hashed(self, key: bytes | None) -> bool:
        return self.hash is not None and key is not None and (self.hashes_empty or key != b"")


class InvalidPartition(ValueError):
    """A user's own partitioner chose what is no partition of the topic."""


class OwnPartitioner:
    """A user's own, with what it leaves out."""

    def __init__(self, own: Own) -> None:
        self._partition: Any = getattr(own, "partition", own)
        self._new_batch: Any = getattr(own, "new_batch", None)

    def partition(self, key: bytes | None, value: bytes | None, partitions: Partitions) -> int:
        """What the user's says; InvalidPartition where the topic has no such."""
        chosen = self._partition(key, value, partitions)
        if not isinstance(chosen, int) or not 0 <= chosen < partitions.count:
            raise InvalidPartition(
                f"the partitioner chose {chosen!r} for topic '{partitions.topic}', which has partitions 0 to "
                f"{partitions.count - 1}"
            )
        return chosen

    def new_batch(self, previous: int, partitions: Partitions) -> bool:
        if self._new_batch is None:
            return False
        self._new_batch(previous, partitions)
        return True

    def appended(self, key: bytes | None, size: int, partitions: Partitions) -> None:
        """Bytes are nothing to a user's own."""

    def update_load(self, queue_sizes: Sequence[int], partitions: Partitions) -> None:
        """Nor are queues."""
