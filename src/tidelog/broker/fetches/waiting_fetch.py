"""A consumer's fetch that has too little to give yet: an operation of the purgatory, until there is more.

It is completed when records come up to `min_bytes`, when a partition is no more what it was, and at its deadline. Where
it takes a look at the device to say how many bytes there are, an I/O thread reads them, and the fetch waits on if they
are too few.
`handlers/fetch.py` and `handlers/_fetch_ordinary.py` have one each, and read when it is completed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.deferred import Deferred
from tidelog.model.errors import KafkaError
from tidelog.storage.errors import WouldBlock

if TYPE_CHECKING:
    from typing import Any

    from tidelog.broker.fetches.fetch_sessions import FetchPartition
    from tidelog.broker.replicas.purgatory import Entry, Purgatory
    from tidelog.broker.replicas.replica import Replica
    from tidelog.replication.leader import PartitionLeader
    from tidelog.storage.log_reader import ReadResult


class Looked(NamedTuple):
    """A partition that may have more later, and the leadership and its epoch at which it was looked at."""

    wanted: FetchPartition
    replica: Replica
    leader: PartitionLeader | None
    leader_epoch: int
    limit: int
    """The offset below which it was read then."""
    size: int
    """Bytes that were read."""


class WaitingFetch(ABC):
    """What is common to both ways."""

    __slots__ = ("_bytes_min", "_committed_only", "_entry", "_looked", "_purgatory", "answer")

    def __init__(self, purgatory: Purgatory, bytes_min: int, committed_only: bool) -> None:
        self._purgatory = purgatory
        self._bytes_min = bytes_min
        self._committed_only = committed_only
        self._looked: list[Looked] = []
        """What is waited for."""
        self._entry: Entry | None = None
        """In the purgatory."""
        self.answer: Deferred[Any] = Deferred()

    @abstractmethod
    def complete_with_read(self) -> bool:
        """Reads, and completes `answer` with what there is, now or when an I/O thread has read it; true."""

    @abstractmethod
    def read_cold(self) -> None:
        """Has an I/O thread read; completes `answer` then if that is enough, and waits on if not."""

    def wait_for(self, looked: list[Looked], timeout_ms: int) -> None:
        """Waits until any of these has more."""
        self._looked = looked
        keys = dict.fromkeys(each.replica for each in looked)
        entry = self._purgatory.wait(self, keys, timeout_ms)
        if entry is not None:
            self._entry = entry
            self.answer.on_abandoned = self._wait_no_longer

    def _wait_no_longer(self) -> None:
        if self._entry is not None:
            self._purgatory.cancel(self._entry)
            self._entry = None  # It points back at the request.

    # The purgatory's side.

    def try_complete(self) -> bool:
        size = 0
        for wanted, replica, leader, leader_epoch, limit_before, size_before in self._looked:
            if (
                replica.leader is not leader
                or replica.leader_epoch != leader_epoch
                or replica.removed
                or replica.log.is_offline
            ):
                return self.complete_with_read()
            limit = limit_of(replica, self._committed_only)
            offset = wanted.fetch_offset
            if limit > offset:
                if self._bytes_min <= 1:
                    return self.complete_with_read()
                try:
                    size += self._available(replica, wanted, limit)
                except WouldBlock:
                    if limit != limit_before:
                        self._entry = None
                        self.read_cold()
                        return True
                    # Nothing has come since it was read.
                    size += size_before
                if size >= self._bytes_min:
                    return self.complete_with_read()
            elif offset < replica.log.log_start_offset:
                return self.complete_with_read()
        return False

    def expire(self) -> None:
        self.complete_with_read()

    def _available(self, replica: Replica, wanted: FetchPartition, limit: int) -> int:
        """Bytes that a read would give. `WouldBlock`."""
        try:
            result = replica.log.read(
                wanted.fetch_offset, wanted.max_bytes, up_to_offset=limit, blocking=False, checked=False
            )
        except KafkaError:
            return self._bytes_min
        release(result)
        return result.size


def limit_of(replica: Replica, committed_only: bool) -> int:
    """The offset below which a consumer may read, of committed transactions only or of all."""
    return replica.last_stable_offset if committed_only else replica.high_watermark


def release(result: ReadResult) -> None:
    """Gives up what was read."""
    for file_range in result.ranges:
        file_range.release()
