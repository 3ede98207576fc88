"""What a coordinator of transactions is asked, what it answers, and what it wants of partitions' leaders.

Each request carries a request id, by which its reply is found, and the wall time where it changes something. The shell
has authorized, and checked whatever needs no state: empty ids, timeouts, partitions that do not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tidelog.coordinator.result import Result
from tidelog.coordinator.state_machine import Remaining, TimePassed
from tidelog.coordinator.transactions.states import TransactionState
from tidelog.coordinator.transactions.transaction import NO_PRODUCER_EPOCH, OLD_VERSION, Transaction
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import NO_PRODUCER_ID, ProducerEpoch, ProducerId, TopicPartition
from tidelog.model.values import value

NO_HOLD: Final = 0


@value
class InitProducer:
    """InitProducerId with a transactional id. Answered by ProducerIdentity or NeedsProducerId."""

    request_id: int
    transactional_id: str
    timeout_ms: int
    wall_ms: int
    expected: tuple[ProducerId, ProducerEpoch] | None = None
    """The producer's id and epoch so far (KIP-360)."""
    fresh_producer_id: ProducerId = NO_PRODUCER_ID
    """An unused id, for the case that one is needed."""
    hold_ms: int = NO_HOLD
    """How long to wait for the end of a transaction before CONCURRENT_TRANSACTIONS is answered."""


@value
class AddPartitions:
    """AddPartitionsToTxn and AddOffsetsToTxn. Answered by Outcome."""

    request_id: int
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    partitions: Sequence[TopicPartition]
    wall_ms: int
    version: int = OLD_VERSION
    """transaction.version of the client."""
    hold_ms: int = NO_HOLD


@value
class VerifyPartitions:
    """A leader asks whether partitions belong to the transaction (KIP-890). Answered by Verdict. Changes nothing."""

    request_id: int
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    partitions: Sequence[TopicPartition]


@value
class EndTransaction:
    """EndTxn. Answered by ProducerIdentity or NeedsProducerId."""

    request_id: int
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    committed: bool
    wall_ms: int
    version: int = OLD_VERSION
    fresh_producer_id: ProducerId = NO_PRODUCER_ID
    hold_ms: int = NO_HOLD


@value
class MarkersWritten:
    """Partitions have the marker of a prepared transaction, or cannot have it any more. No reply."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    partitions: Collection[TopicPartition]
    wall_ms: int


@value
class AbortOverdue:
    """Ongoing transactions that have taken too long are to be aborted. Answered by Remaining: how many are left."""

    request_id: int
    wall_ms: int


@value
class ForgetIdle:
    """Transactional ids that were not used for so long are to be forgotten. Answered as AbortOverdue."""

    request_id: int
    wall_ms: int
    expiration_ms: int
    """transactional.id.expiration.ms"""


@value
class DescribeTransaction:
    """Answered by Description. Changes nothing."""

    request_id: int
    transactional_id: str


@value
class ListTransactions:
    """Answered by a Listing. Changes nothing."""

    request_id: int
    wall_ms: int
    states: Collection[TransactionState] | None = None
    """None: all."""
    producer_ids: Collection[ProducerId] | None = None
    longer_than_ms: int = -1
    """Only transactions that began longer ago; negative: all."""
    matches: Callable[[str], object] | None = None
    """Something true for the transactional ids that are wanted; None: all."""


@value
class ProducerIdentity:
    """The producer's id and epoch from now on; none where there is an error."""

    error: ErrorCode = ErrorCode.NONE
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH


@value
class NeedsProducerId:
    """Nothing was done: ask again with a fresh producer id."""


@value
class Outcome:
    """One error for all partitions: they join together or not at all."""

    error: ErrorCode


@value
class Verdict:
    """An error for each partition, in the order of the question."""

    errors: Sequence[tuple[TopicPartition, ErrorCode]]


@value
class Description:
    """None for a transactional id that is not known."""

    transaction: Transaction | None


@value
class Listing:
    """(transactional id, its state), in the order in which they became known."""

    transactions: Sequence[tuple[str, Transaction]]


@value
class WriteMarkers:
    """The end of a transaction, to be told the leaders of its partitions; MarkersWritten comes back."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    committed: bool
    partitions: tuple[TopicPartition, ...]
    """Sorted."""
    version: int
    """transaction.version of the transaction; 2: the epoch is higher than that of its records."""


Event: TypeAlias = (
    InitProducer
    | AddPartitions
    | VerifyPartitions
    | EndTransaction
    | MarkersWritten
    | AbortOverdue
    | ForgetIdle
    | DescribeTransaction
    | ListTransactions
    | TimePassed
)
Reply: TypeAlias = ProducerIdentity | NeedsProducerId | Outcome | Verdict | Description | Listing | Remaining


@dataclass(slots=True)
class TransactionResult(Result["object", Reply]):
    """A result that also has markers to write: once its records, and all before them, are committed."""

    sends: list[WriteMarkers] = field(default_factory=list)
