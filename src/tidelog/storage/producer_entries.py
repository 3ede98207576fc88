"""What a partition remembers of one idempotent or transactional producer (KIP-98)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from tidelog.records.batch import BatchHeader

BATCHES_KEPT: Final = 5
"""As many as a client may have in flight on one connection (max.in.flight.requests.per.connection)."""
NO_SEQUENCE: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_COORDINATOR_EPOCH: Final = -1
SEQUENCE_COUNT: Final = 2**31


class ProducerBatch(NamedTuple):
    """What is remembered of one batch."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    """Last offset less first offset."""
    timestamp: int
    """Its largest timestamp."""

    @property
    def first_sequence(self) -> int:
        if self.last_sequence < 0:
            return NO_SEQUENCE
        return (self.last_sequence - self.offset_delta) % SEQUENCE_COUNT

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class ProducerEntry:
    """One producer's state in one partition."""

    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    """Of the coordinator that wrote the last marker."""
    last_timestamp: int = -1
    """Of its newest batch or marker: what expiry goes by."""
    transaction_first_offset: int = -1
    """Where its open transaction began; -1 without one."""
    batches: tuple[ProducerBatch, ...] = ()
    """Its last batches of this epoch, oldest first, at most `BATCHES_KEPT`."""
    seen_ms: int = 0
    """When this broker last heard of it, monotonic, in whole seconds."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def duplicate(self, header: BatchHeader) -> ProducerBatch | None:
        """The remembered batch that `header` repeats."""
        if header.producer_epoch != self.producer_epoch:
            return None
        first, last = header.base_sequence, header.last_sequence
        for batch in self.batches:
            if batch.last_sequence == last and batch.first_sequence == first:
                return batch
        return None

    def copy(self) -> ProducerEntry:
        return ProducerEntry(
            self.producer_id,
            self.producer_epoch,
            self.coordinator_epoch,
            self.last_timestamp,
            self.transaction_first_offset,
            self.batches,
            self.seen_ms,
        )


def is_expired(entry: ProducerEntry, now_ms: int, expiration_ms: int) -> bool:
    return entry.transaction_first_offset < 0 and now_ms - entry.last_timestamp >= expiration_ms
