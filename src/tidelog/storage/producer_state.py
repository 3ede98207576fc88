"""What a partition remembers of idempotent and transactional producers (KIP-98); in files, by `producer_snapshots`.

Of each producer: its epoch, the last five batches (so that a repeated one is answered as the first time and a gap is
refused), and where its open transaction began. Of the partition: which transactions are open, and which have ended
above the high watermark; the first offset of either is what a committed read must stay below.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.records.control import ControlRecordType, EndTxnMarker
from tidelog.storage.producer_entries import (
    BATCHES_KEPT,
    NO_PRODUCER_EPOCH,
    SEQUENCE_COUNT,
    ProducerBatch,
    ProducerEntry,
    is_expired,
)
from tidelog.storage.transaction_index import AbortedTransaction
from tidelog.storage.verification import ONGOING, VerificationGuard

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.model.identifiers import TopicPartition
    from tidelog.records.batch import BatchHeader
    from tidelog.storage.producer_snapshots import PendingSnapshot

EPOCHS_BUMPED_SINCE: Final = 2
"""The transaction.version since which each transaction has a producer epoch of its own (KIP-890)."""


class AppendOrigin(Enum):
    """Where a batch comes from: what is trusted differs."""

    CLIENT = "client"
    """A producer: everything is checked."""
    COORDINATOR = "coordinator"
    """A group or transaction coordinator in this broker: sequences are not checked, control batches are allowed."""
    REPLICATION = "replication"
    """The leader's own bytes: kept as they are."""


class CompletedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the marker."""
    is_aborted: bool


@dataclass(slots=True)
class ProducerUpdate:
    """What one append will change, held apart until the bytes are written."""

    entries: dict[int, ProducerEntry] = field(default_factory=dict)
    started: list[tuple[int, int]] = field(default_factory=list)
    """First offset and producer id of transactions that begin."""
    completed: list[CompletedTransaction] = field(default_factory=list)
    last_marker_offset: int = -1
    verified: list[int] = field(default_factory=list)
    """Producers with transactional batches and markers: what was asked for them is answered, or void."""


_NONE_ASKED: Final[dict[int, VerificationGuard]] = {}
_NONE_OPEN: Final[dict[int, int]] = {}
_NONE_UNREPLICATED: Final[dict[int, CompletedTransaction]] = {}


class ProducerState:
    """The producers of one partition."""

    __slots__ = (
        "_open",
        "_unreplicated",
        "entries",
        "first_unstable_offset",
        "is_behind",
        "last_marker_offset",
        "map_end_offset",
        "pending_snapshot",
        "snapshot_offset",
        "topic_partition",
        "verifications",
    )

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.entries: dict[int, ProducerEntry] = {}
        """[producer id] -> state"""
        self.map_end_offset = 0
        """The state is that of the log up to here."""
        self.is_behind = False
        """Whether a truncation has left the state to be rebuilt from the log's files: it knows what is not there any
        more."""
        self.snapshot_offset = 0
        """Offset of the newest snapshot file."""
        self.pending_snapshot: PendingSnapshot | None = None
        """A newer one that is being written."""
        self.last_marker_offset = -1
        """No marker of a transaction lies above: such a batch changes a producer and leaves no trace in its batches."""
        self.verifications = _NONE_ASKED
        """[producer id] -> what was asked of its coordinator, until the first batch of the transaction is here; a new
        mapping where one is added"""
        self.first_unstable_offset: int | None = None
        """Where the oldest transaction began that is open, or whose marker is not yet below the high watermark."""
        self._open = _NONE_OPEN
        """[first offset] -> producer id, of transactions that have not ended, ascending"""
        self._unreplicated = _NONE_UNREPLICATED
        """[first offset] -> transactions that ended at or above the high watermark"""

    # Appending.

    def begin_verification(
        self, producer_id: int, producer_epoch: int, sequence: int, now_ms: int, *, bumps_epochs: bool
    ) -> VerificationGuard:
        """The guard with which a transactional batch may be appended once the coordinator has confirmed it.

        `ONGOING` where nothing is to be asked, because the producer's transaction is open here.
        """
        if self.has_ongoing(producer_id, producer_epoch):
            return ONGOING
        guard = self.verifications.get(producer_id)
        if guard is None:
            guard = VerificationGuard(producer_epoch, sequence, now_ms, bumps_epochs=bumps_epochs)
            self.verifications = {**self.verifications, producer_id: guard}
        else:
            guard.also(producer_epoch, sequence)
        return guard

    def forget_verification(self, producer_id: int, guard: VerificationGuard) -> None:
        """Nothing will be appended by `guard`."""
        if self.verifications.get(producer_id) is guard:
            del self.verifications[producer_id]

    def has_ongoing(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction of that producer, in that epoch, is open here."""
        entry = self.entries.get(producer_id)
        return entry is not None and entry.transaction_first_offset >= 0 and entry.producer_epoch == producer_epoch

    def check_verified(self, header: BatchHeader, guard: VerificationGuard) -> None:
        """`KafkaError` INVALID_TXN_STATE for a batch whose transaction is neither open nor confirmed by `guard`."""
        if self.has_ongoing(header.producer_id, header.producer_epoch):
            return
        if guard is ONGOING or self.verifications.get(header.producer_id) is not guard:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction")

    def prepare(
        self,
        update: ProducerUpdate,
        header: BatchHeader,
        origin: AppendOrigin,
        marker: tuple[EndTxnMarker, int] | None = None,
        *,
        transaction_version: int = 0,
    ) -> None:
        """Checks a batch of a producer and notes in `update` what it changes; the header's offsets are final.

        `marker` is the content of a control batch that ends a transaction, with its timestamp, by the rules of
        `transaction_version`: from 2 on it has an epoch above that of the transaction. `KafkaError`:
        INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE, TRANSACTION_COORDINATOR_FENCED.
        """
        producer_id = header.producer_id
        entry = update.entries.get(producer_id)
        if entry is None:
            known = self.entries.get(producer_id)
            entry = known.copy() if known is not None else ProducerEntry(producer_id)
            update.entries[producer_id] = entry
        offset = header.base_offset
        if header.producer_epoch < entry.producer_epoch and origin is not AppendOrigin.REPLICATION:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {producer_id} at offset {offset} in {self.topic_partition} is"
                f" {header.producer_epoch}, which is smaller than the last seen epoch {entry.producer_epoch}",
            )
        if header.is_transactional and not self._is_for_later(header, marker, transaction_version):
            update.verified.append(producer_id)
        if marker is not None:
            if transaction_version >= EPOCHS_BUMPED_SINCE and entry.transaction_first_offset >= 0:
                _check_bumped(entry, header, self.topic_partition)
            self._prepare_marker(update, entry, header, origin, marker)
            return
        if header.is_control:
            return
        if origin is AppendOrigin.CLIENT:
            self._check_sequence(entry, header)
        _set_epoch(entry, header.producer_epoch)
        batch = ProducerBatch(header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp)
        entry.batches = (*entry.batches[-(BATCHES_KEPT - 1) :], batch)
        entry.last_timestamp = header.max_timestamp
        if header.is_transactional:
            if entry.transaction_first_offset < 0:
                entry.transaction_first_offset = offset
                update.started.append((offset, producer_id))
        elif entry.transaction_first_offset >= 0:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {producer_id} at offset {offset} in partition"
                f" {self.topic_partition}",
            )

    def _is_for_later(
        self, header: BatchHeader, marker: tuple[EndTxnMarker, int] | None, transaction_version: int
    ) -> bool:
        """Whether what is being asked is of a transaction after the one that the marker ends: that came late, or twice.

        From transaction.version 2 on a marker's epoch is the first that the producer may use after it.
        """
        if marker is None or transaction_version < EPOCHS_BUMPED_SINCE:
            return False
        guard = self.verifications.get(header.producer_id)
        return guard is not None and guard.producer_epoch >= header.producer_epoch

    def _prepare_marker(
        self,
        update: ProducerUpdate,
        entry: ProducerEntry,
        header: BatchHeader,
        origin: AppendOrigin,
        content: tuple[EndTxnMarker, int],
    ) -> None:
        marker, timestamp = content
        if marker.coordinator_epoch < entry.coordinator_epoch and origin is not AppendOrigin.REPLICATION:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Invalid coordinator epoch for producerId {entry.producer_id} at offset {header.base_offset}"
                f" in partition"
                f" {self.topic_partition}: {marker.coordinator_epoch} (zombie), {entry.coordinator_epoch} (current)",
            )
        if entry.transaction_first_offset >= 0:
            update.completed.append(
                CompletedTransaction(
                    entry.producer_id,
                    entry.transaction_first_offset,
                    header.base_offset,
                    marker.control_type is ControlRecordType.ABORT,
                )
            )
        _set_epoch(entry, header.producer_epoch)
        update.last_marker_offset = header.last_offset
        entry.transaction_first_offset = -1
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = timestamp

    def _check_sequence(self, entry: ProducerEntry, header: BatchHeader) -> None:
        first = header.base_sequence
        guard = self.verifications.get(entry.producer_id)
        if guard is not None and guard.producer_epoch == header.producer_epoch:
            # What came before it is still to be appended, or was refused: the batch alone would leave a gap.
            begins_late = guard.bumps_epochs and first != 0 and entry.producer_epoch == NO_PRODUCER_EPOCH
            if first > guard.lowest_sequence or begins_late:
                earliest = 0 if begins_late else guard.lowest_sequence
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Out of order sequence number for producer {entry.producer_id} at offset {header.base_offset}"
                    f" in partition {self.topic_partition}: {first} (incoming seq. number), {earliest} (earliest seen"
                    " sequence)",
                )
        if entry.producer_epoch == NO_PRODUCER_EPOCH:
            return  # Nothing is known of it any more: its records may have gone by retention, so any sequence is taken.
        if header.producer_epoch != entry.producer_epoch:
            if first != 0:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Invalid sequence number for new epoch of producer {entry.producer_id} at offset"
                    f" {header.base_offset} in"
                    f" partition {self.topic_partition}: {header.producer_epoch} (request epoch), {first}"
                    f" (seq. number), {entry.producer_epoch} (current producer epoch)",
                )
            return
        last = entry.last_sequence
        if first != (last + 1) % SEQUENCE_COUNT:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {entry.producer_id} at offset {header.base_offset}"
                f" in partition"
                f" {self.topic_partition}: {first} (incoming seq. number), {last} (current end sequence number)",
            )

    def aborted_by(self, update: ProducerUpdate) -> list[AbortedTransaction]:
        """The transactions that `update` will have aborted, each with the last stable offset once it has ended."""
        still_open = dict.fromkeys(self._open)
        still_open.update(dict.fromkeys(first_offset for first_offset, _ in update.started))
        aborted: list[AbortedTransaction] = []
        for transaction in update.completed:
            still_open.pop(transaction.first_offset, None)
            if transaction.is_aborted:
                # What the same append has started behind the marker was not open yet.
                behind = transaction.last_offset + 1
                stable_offset = min(next(iter(still_open), behind), behind)
                aborted.append(
                    AbortedTransaction(
                        transaction.producer_id, transaction.first_offset, transaction.last_offset, stable_offset
                    )
                )
        return aborted

    def commit(self, update: ProducerUpdate) -> None:
        """Takes over what `prepare` noted."""
        self.entries.update(update.entries)
        self.last_marker_offset = max(self.last_marker_offset, update.last_marker_offset)
        if self.verifications:
            for producer_id in update.verified:
                self.verifications.pop(producer_id, None)
        if update.started or update.completed:
            self._own_transactions()
            for first_offset, producer_id in update.started:
                self._open[first_offset] = producer_id
            for transaction in update.completed:
                self._open.pop(transaction.first_offset, None)
                self._unreplicated[transaction.first_offset] = transaction
            self._find_first_unstable()

    def _own_transactions(self) -> None:
        """Before transactions are noted: most partitions never see one, and share what says so."""
        if self._open is _NONE_OPEN:
            self._open, self._unreplicated = {}, {}

    # What readers may see.

    @property
    def first_undecided_offset(self) -> int | None:
        """Where the oldest transaction without a marker began."""
        return next(iter(self._open), None)

    def _find_first_unstable(self) -> None:
        first = next(iter(self._open), None)
        if self._unreplicated:
            ended = min(self._unreplicated)
            first = ended if first is None else min(first, ended)
        self.first_unstable_offset = first

    def replicated_to(self, high_watermark: int) -> None:
        """Markers below the high watermark are decided for readers too."""
        if self._unreplicated:
            for first_offset in [
                first for first, transaction in self._unreplicated.items() if transaction.last_offset < high_watermark
            ]:
                del self._unreplicated[first_offset]
            self._find_first_unstable()

    # Time.

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forgets producers without an open transaction that were silent for `expiration_ms`; gives how many."""
        silent = [entry.producer_id for entry in self.entries.values() if is_expired(entry, now_ms, expiration_ms)]
        for producer_id in silent:
            del self.entries[producer_id]
        self.expire_verifications(now_ms, expiration_ms)
        return len(silent)

    def expire_verifications(self, now_ms: int, expiration_ms: int) -> None:
        """Forgets what was asked of coordinators so long ago."""
        asked = [id for id, guard in self.verifications.items() if now_ms - guard.asked_ms >= expiration_ms]
        for producer_id in asked:
            del self.verifications[producer_id]

    # Rebuilding.

    @property
    def is_empty(self) -> bool:
        return not self.entries and not self._open

    def knows_nothing_from(self, offset: int) -> bool:
        """Whether no batch at `offset` or later has had a part in the state: then it is the state as of `offset`."""
        return self.last_marker_offset < offset and all(
            not entry.batches or entry.batches[-1].last_offset < offset for entry in self.entries.values()
        )

    def silent_since(self, offset: int) -> list[ProducerEntry]:
        """Copies of what is known of producers of which no batch or marker lies at `offset` or above."""
        return [
            entry.copy()
            for entry in self.entries.values()
            if (entry.batches[-1].last_offset if entry.batches else self.last_marker_offset) < offset
        ]

    def clear(self, offset: int) -> None:
        """As if the log began at `offset`."""
        self.last_marker_offset = -1
        self.entries.clear()
        self.verifications = _NONE_ASKED
        self._open, self._unreplicated = _NONE_OPEN, _NONE_UNREPLICATED
        self.first_unstable_offset = None
        self.pending_snapshot = None
        self.map_end_offset = offset
        self.is_behind = False

    def load(self, entries: Iterable[ProducerEntry], offset: int, now_ms: int, expiration_ms: int) -> None:
        """The state of a snapshot, less what has expired since."""
        self.clear(offset)
        for entry in sorted(entries, key=_transaction_first_offset):
            if not is_expired(entry, now_ms, expiration_ms):
                self.entries[entry.producer_id] = entry
                if entry.coordinator_epoch >= 0:
                    self.last_marker_offset = offset - 1  # At most: the snapshot does not say where.
                if entry.transaction_first_offset >= 0:
                    self._own_transactions()
                    self._open[entry.transaction_first_offset] = entry.producer_id
        self._find_first_unstable()


_transaction_first_offset = attrgetter("transaction_first_offset")


def _check_bumped(entry: ProducerEntry, header: BatchHeader, topic_partition: TopicPartition) -> None:
    """The marker of a transaction whose coordinator gives each one its own epoch has a later one than its batches.

    One of the same epoch is the end of the transaction before, come late; were there none open, it would repeat what is
    known, and do no harm.
    """
    if header.producer_epoch <= entry.producer_epoch:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"Epoch of producer {entry.producer_id} at offset {header.base_offset} in {topic_partition} is"
            f" {header.producer_epoch}, and the marker of its transaction must have one above {entry.producer_epoch}",
        )


def _set_epoch(entry: ProducerEntry, producer_epoch: int) -> None:
    """A new epoch begins with no batches."""
    if entry.producer_epoch != producer_epoch:
        entry.producer_epoch = producer_epoch
        entry.batches = ()
