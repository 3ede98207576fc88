"""What `__transaction_state` says of one transactional id, and how it changes: one function a transition."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from tidelog.coordinator.transactions.states import TransactionState
from tidelog.model.identifiers import NO_PRODUCER_ID, ProducerEpoch, ProducerId, TopicPartition

NO_PRODUCER_EPOCH: Final = ProducerEpoch(-1)
NOT_STARTED: Final = -1
EPOCH_MAX: Final = 0x7FFF
LAST_USABLE_EPOCH: Final = EPOCH_MAX - 1
"""The highest epoch that a producer is given; the one above is kept for fencing it."""
BUMPING_VERSION: Final = 2
"""The transaction.version from which every transaction has an epoch of its own (KIP-890)."""
OLD_VERSION: Final = 0


@dataclass(frozen=True, slots=True)
class Transaction:
    """The state of one transactional id: that of its present transaction, or of the last one."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    timeout_ms: int
    """How long a transaction may take from its first partition on."""
    state: TransactionState
    updated_ms: int
    """Wall time of the last change, from which transactional.id.expiration.ms counts."""
    partitions: frozenset[TopicPartition] = frozenset()
    """Partitions with records of the transaction. While it is prepared: all of them, written to or not yet."""
    started_ms: int = NOT_STARTED
    """Wall time of the first partition; of the last transaction in the Complete states."""
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    """The id before the present one, whose epochs were used up."""
    next_producer_id: ProducerId = NO_PRODUCER_ID
    """The id that comes in force when the prepared transaction is complete; the producer knows it already."""
    client_version: int = OLD_VERSION
    """The transaction.version by which the last step was made. 2: its epoch was raised at the end."""

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no epoch left to give."""
        return self.producer_epoch >= LAST_USABLE_EPOCH

    @property
    def due_ms(self) -> int:
        """Wall time after which an ongoing transaction is aborted."""
        return self.started_ms + self.timeout_ms

    @property
    def bumps_epochs(self) -> bool:
        return self.client_version >= BUMPING_VERSION


def first_of(producer_id: ProducerId, timeout_ms: int, wall_ms: int) -> Transaction:
    """A transactional id that was not known."""
    return Transaction(producer_id, ProducerEpoch(0), timeout_ms, TransactionState.EMPTY, wall_ms)


def reinitialized(transaction: Transaction, *, raise_epoch: bool, timeout_ms: int, wall_ms: int) -> Transaction:
    """A producer begins anew, with the next epoch or, repeating its question, with the same."""
    epoch = transaction.producer_epoch + 1 if raise_epoch else transaction.producer_epoch
    return _emptied(transaction, transaction.producer_id, ProducerEpoch(epoch), timeout_ms, wall_ms)


def rotated(transaction: Transaction, producer_id: ProducerId, timeout_ms: int, wall_ms: int) -> Transaction:
    """A producer begins anew with another id, because the former one has no epochs left."""
    emptied = _emptied(transaction, producer_id, ProducerEpoch(0), timeout_ms, wall_ms)
    return replace(emptied, previous_producer_id=transaction.producer_id)


def _emptied(
    transaction: Transaction, producer_id: ProducerId, epoch: ProducerEpoch, timeout_ms: int, wall_ms: int
) -> Transaction:
    return Transaction(
        producer_id,
        epoch,
        timeout_ms,
        TransactionState.EMPTY,
        wall_ms,
        previous_producer_id=transaction.previous_producer_id,
    )


def extended(transaction: Transaction, partitions: Iterable[TopicPartition], version: int, wall_ms: int) -> Transaction:
    """Partitions join; the first ones begin a transaction."""
    is_ongoing = transaction.state is TransactionState.ONGOING
    return replace(
        transaction,
        state=TransactionState.ONGOING,
        partitions=transaction.partitions.union(partitions),
        started_ms=transaction.started_ms if is_ongoing else wall_ms,
        updated_ms=wall_ms,
        client_version=version,
    )


def prepared(
    transaction: Transaction, committed: bool, version: int, next_producer_id: ProducerId, wall_ms: int
) -> Transaction:
    """The end is decided. From version 2 on with the next epoch, which distinguishes the transaction from the next
    one."""
    epoch = transaction.producer_epoch + 1 if version >= BUMPING_VERSION else transaction.producer_epoch
    started_ms = transaction.started_ms if transaction.state is TransactionState.ONGOING else wall_ms
    return replace(
        transaction,
        producer_epoch=ProducerEpoch(epoch),
        state=TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT,
        started_ms=started_ms,
        updated_ms=wall_ms,
        next_producer_id=next_producer_id,
        client_version=version,
    )


def fenced(transaction: Transaction, wall_ms: int) -> Transaction:
    """The coordinator itself aborts an ongoing transaction, of a producer that is superseded or has taken too long.

    The epoch rises by two: had it risen by one, the producer's own EndTxn would look like one that is repeated, whose
    answer brings the new epoch. Where only one is left the abort is written as of an old version, in which nothing
    but the very epoch is accepted.
    """
    two_left = transaction.producer_epoch + 2 <= EPOCH_MAX
    return replace(
        transaction,
        producer_epoch=ProducerEpoch(min(transaction.producer_epoch + (2 if two_left else 1), EPOCH_MAX)),
        state=TransactionState.PREPARE_ABORT,
        updated_ms=wall_ms,
        next_producer_id=NO_PRODUCER_ID,
        client_version=BUMPING_VERSION if two_left else OLD_VERSION,
    )


def completed(transaction: Transaction, wall_ms: int) -> Transaction:
    """All markers of a prepared transaction are written."""
    is_commit = transaction.state is TransactionState.PREPARE_COMMIT
    done = replace(
        transaction,
        state=TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
        partitions=frozenset(),
        updated_ms=wall_ms,
    )
    if transaction.next_producer_id == NO_PRODUCER_ID:
        return done
    return replace(
        done,
        producer_id=transaction.next_producer_id,
        producer_epoch=ProducerEpoch(0),
        previous_producer_id=transaction.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )
