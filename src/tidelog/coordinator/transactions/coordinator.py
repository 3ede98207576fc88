"""The coordinator of the transactional ids that hash to one partition of `__transaction_state`.

    transactions   transactional id -> Transaction          as the log says: changed by `replay` alone
    unmarked       transactional id -> partitions            prepared transactions, and partitions without a marker yet
    held           request id -> its event                   requests that wait for the end of a transaction

A transaction's end has three steps: the decision is written (PrepareCommit, PrepareAbort), markers are written to its
partitions, and that this is done is written (CompleteCommit, CompleteAbort). The producer has its answer when the
decision is committed; what it asks next waits here until the markers are written, and so does a producer that takes
over. Kafka answers CONCURRENT_TRANSACTIONS instead, and its clients come again after a pause; here they are told that
only after `hold_ms`.

State that is in the log may run ahead of what is committed, for a later record is never committed without the earlier
ones. Markers go out when the decision is committed: until then another coordinator might decide otherwise. A
coordinator that finds prepared transactions in the log has all their markers written again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Final, assert_never

from tidelog.coordinator.state_machine import Remaining, StateMachine, TimePassed
from tidelog.coordinator.transactions.endings import judge_end
from tidelog.coordinator.transactions.events import (
    AbortOverdue,
    AddPartitions,
    DescribeTransaction,
    Description,
    EndTransaction,
    Event,
    ForgetIdle,
    InitProducer,
    Listing,
    ListTransactions,
    MarkersWritten,
    NeedsProducerId,
    Outcome,
    ProducerIdentity,
    Reply,
    TransactionResult,
    Verdict,
    VerifyPartitions,
    WriteMarkers,
)
from tidelog.coordinator.transactions.held import HeldRequests, Holdable
from tidelog.coordinator.transactions.records import record_of, transaction_of
from tidelog.coordinator.transactions.states import TransactionState
from tidelog.coordinator.transactions.transaction import (
    LAST_USABLE_EPOCH,
    Transaction,
    completed,
    extended,
    fenced,
    first_of,
    prepared,
    reinitialized,
    rotated,
)
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import NO_PRODUCER_ID, ProducerEpoch, ProducerId, TopicPartition
from tidelog.model.topics import TRANSACTION_STATE_TOPIC
from tidelog.protocol import messages

BATCH_MAX: Final = 200
"""Transactional ids whose state one look at the clock changes: they share a batch."""
RECORD_SIZE_MAX: Final = 512 << 10
"""Bytes of names and numbers of partitions in a transaction, and with the ids in such a batch. A transaction's records
must fit max.message.bytes for sure once it has begun, or it could not be ended."""


class TransactionCoordinator(StateMachine):
    """State of one partition. `handle` decides, `replay` alone changes what is in the log."""

    TOPIC: ClassVar[str] = TRANSACTION_STATE_TOPIC
    READS: ClassVar[frozenset[type]] = frozenset({DescribeTransaction, ListTransactions})
    DIVISIBLE: ClassVar[frozenset[type]] = frozenset({AbortOverdue, ForgetIdle})

    def __init__(self) -> None:
        self._transactions: dict[str, Transaction] = {}
        self._ongoing: dict[str, int] = {}
        """Transactional id -> wall time at which its transaction is overdue; as `_transactions` says."""
        self._unmarked: dict[str, set[TopicPartition]] = {}
        self._former_epochs: dict[str, ProducerEpoch] = {}
        """Transactional id -> the epoch that its producer gave up for the present one (KIP-360): the same question
        may come again. Kafka does not write it down either."""
        self._held = HeldRequests()

    # The shape of every coordinator.

    @property
    def next_due_ms(self) -> int | None:
        """When TimePassed is wanted; 0: at once."""
        return self._held.next_due_ms

    @property
    def has_released(self) -> bool:
        """Whether requests are held whose transaction has ended: TimePassed serves them."""
        return self._held.has_released

    def handle(self, now_ms: int, event: Event) -> TransactionResult:
        """What follows from `event`. `now_ms` is monotonic; wall times come with the events."""
        result = TransactionResult()
        match event:
            case InitProducer() | AddPartitions() | EndTransaction():
                self._serve(now_ms, event, result)
            case VerifyPartitions():
                result.replies.append((event.request_id, Verdict(self._verify(event))))
            case MarkersWritten():
                self._note_markers(event, result)
            case TimePassed():
                self._pass_time(now_ms, result)
            case AbortOverdue():
                self._abort_overdue(event, result)
            case ForgetIdle():
                self._forget_idle(event, result)
            case DescribeTransaction(request_id, transactional_id):
                result.replies.append((request_id, Description(self._as_told(transactional_id))))
            case ListTransactions():
                result.replies.append((event.request_id, Listing(self._list(event))))
            case _:
                assert_never(event)
        return result

    def replay(self, record: Any) -> None:
        """Brings one record in, while loading or after it was appended. MalformedRecord."""
        key: messages.TransactionLogKey = record.key
        transactional_id = key.transactional_id
        if record.value is None:
            self._transactions.pop(transactional_id, None)
            self._ongoing.pop(transactional_id, None)
            self._former_epochs.pop(transactional_id, None)
            return
        transaction = transaction_of(record.value)
        self._transactions[transactional_id] = transaction
        if transaction.state is TransactionState.ONGOING:
            self._ongoing[transactional_id] = transaction.due_ms
        else:
            self._ongoing.pop(transactional_id, None)

    def loaded(self, now_ms: int, wall_ms: int) -> TransactionResult:
        """Transactions that were prepared are completed from here on: what was read is committed by now."""
        result = TransactionResult()
        for name, transaction in self._transactions.items():
            if transaction.state.is_prepared:
                self._go_on(name, transaction, result)
        return result

    def too_large(self, event: Any) -> bool:
        """What came of `event` was not appended: for partitions that join, nothing else has changed."""
        return isinstance(event, AddPartitions)

    def transactions(self) -> list[Transaction]:
        """What is known of each transactional id, to be read only."""
        return list(self._transactions.values())

    def __len__(self) -> int:
        """Transactional ids known."""
        return len(self._transactions)

    def __eq__(self, other: object) -> bool:
        """Whether the same is in the log."""
        return isinstance(other, TransactionCoordinator) and self._transactions == other._transactions

    __hash__ = None  # type: ignore[assignment]  # It changes.

    # Requests that change a transaction.

    def _serve(self, now_ms: int, event: Holdable, result: TransactionResult) -> None:
        """Answers, or holds the event until the transaction it met has ended."""
        reply = self._decide(event, result)
        if reply is None and not self._held.hold(now_ms, event):
            reply = _concurrent(event)
        if reply is not None:
            result.replies.append((event.request_id, reply))

    def _decide(self, event: Holdable, result: TransactionResult) -> Reply | None:
        """The reply; None where the end of a transaction has to be awaited."""
        match event:
            case InitProducer():
                return self._initialize(event, result)
            case AddPartitions():
                return self._add(event, result)
            case EndTransaction():
                return self._end(event, result)
            case _:
                assert_never(event)

    def _initialize(self, event: InitProducer, result: TransactionResult) -> Reply | None:
        name, timeout_ms, wall_ms = event.transactional_id, event.timeout_ms, event.wall_ms
        transaction = self._transactions.get(name)
        if transaction is None:
            if event.fresh_producer_id == NO_PRODUCER_ID:
                return NeedsProducerId()
            return self._begin_anew(name, first_of(event.fresh_producer_id, timeout_ms, wall_ms), None, result)
        if transaction.state.is_prepared:
            return None
        expected = event.expected
        if expected is not None and not _may_be(transaction, *expected):
            return ProducerIdentity(ErrorCode.PRODUCER_FENCED)
        is_same = expected is None or expected == (transaction.producer_id, transaction.producer_epoch)
        if transaction.state is TransactionState.ONGOING:
            if not is_same:
                # One that was superseded must not end its successor's transaction. (Kafka's coordinator lets it.)
                return ProducerIdentity(ErrorCode.PRODUCER_FENCED)
            self._prepare(name, fenced(transaction, wall_ms), result)
            return None
        if is_same and transaction.is_exhausted:
            if event.fresh_producer_id == NO_PRODUCER_ID:
                return NeedsProducerId()
            begun = rotated(transaction, event.fresh_producer_id, timeout_ms, wall_ms)
        elif is_same or (expected is not None and expected[1] == self._former_epochs.get(name)):
            begun = reinitialized(transaction, raise_epoch=is_same, timeout_ms=timeout_ms, wall_ms=wall_ms)
        else:
            return ProducerIdentity(ErrorCode.PRODUCER_FENCED)
        former = expected[1] if expected is not None else None
        return self._begin_anew(name, begun, former, result)

    def _begin_anew(
        self, name: str, begun: Transaction, former: ProducerEpoch | None, result: TransactionResult
    ) -> Reply:
        if former is None:
            self._former_epochs.pop(name, None)
        else:
            self._former_epochs[name] = former
        result.writes.append(record_of(name, begun))
        return ProducerIdentity(ErrorCode.NONE, begun.producer_id, begun.producer_epoch)

    def _add(self, event: AddPartitions, result: TransactionResult) -> Reply | None:
        transaction = self._transactions.get(event.transactional_id)
        if transaction is None:
            return Outcome(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if transaction.state.is_prepared:
            # Before the producer is looked at: it may have the id already that is in force when this has ended.
            return None
        error = _fencing_error(transaction, event.producer_id, event.producer_epoch)
        if error is not ErrorCode.NONE:
            return Outcome(error)
        if transaction.state is TransactionState.ONGOING and transaction.partitions.issuperset(event.partitions):
            return Outcome(ErrorCode.NONE)
        extension = extended(transaction, event.partitions, event.version, event.wall_ms)
        if _size(extension) > RECORD_SIZE_MAX:
            # As Kafka says it, of a record that its log refuses.
            return Outcome(ErrorCode.UNKNOWN_SERVER_ERROR)
        result.writes.append(record_of(event.transactional_id, extension))
        return Outcome(ErrorCode.NONE)

    def _end(self, event: EndTransaction, result: TransactionResult) -> Reply | None:
        name = event.transactional_id
        transaction = self._transactions.get(name)
        if transaction is None:
            return ProducerIdentity(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        judgement = judge_end(transaction, event)
        match judgement.error:
            case ErrorCode.CONCURRENT_TRANSACTIONS:
                return None
            case ErrorCode.NONE if judgement.is_done:
                return ProducerIdentity(ErrorCode.NONE, transaction.producer_id, transaction.producer_epoch)
            case ErrorCode.NONE:
                pass
            case error:
                return ProducerIdentity(error)
        next_producer_id = NO_PRODUCER_ID
        if judgement.raises_epoch and transaction.is_exhausted:
            if event.fresh_producer_id == NO_PRODUCER_ID:
                return NeedsProducerId()
            next_producer_id = event.fresh_producer_id
        decision = prepared(transaction, event.committed, event.version, next_producer_id, event.wall_ms)
        self._prepare(name, decision, result)
        # As it will be when all is done: with the next producer id, where there is one.
        following = completed(decision, event.wall_ms)
        return ProducerIdentity(ErrorCode.NONE, following.producer_id, following.producer_epoch)

    def _verify(self, event: VerifyPartitions) -> list[tuple[TopicPartition, ErrorCode]]:
        transaction = self._transactions.get(event.transactional_id)
        if transaction is None:
            error = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        else:
            error = _fencing_error(transaction, event.producer_id, event.producer_epoch)
            if error is ErrorCode.NONE and transaction.state.is_prepared:
                error = ErrorCode.CONCURRENT_TRANSACTIONS
        members = transaction.partitions if transaction is not None else frozenset()
        return [
            (place, ErrorCode.TRANSACTION_ABORTABLE if error is ErrorCode.NONE and place not in members else error)
            for place in event.partitions
        ]

    # The end of a transaction.

    def _prepare(self, name: str, decision: Transaction, result: TransactionResult) -> None:
        """Writes that a transaction ends, and wants its markers."""
        self._former_epochs.pop(name, None)
        result.writes.append(record_of(name, decision))
        self._go_on(name, decision, result)
        if not decision.partitions:
            # The request that began this end by asking for something else is served in the next turn.
            self._held.release(name)

    def _go_on(self, name: str, decision: Transaction, result: TransactionResult) -> None:
        """A prepared transaction needs its markers, or none."""
        if decision.partitions:
            self._want_markers(name, decision, result)
        else:
            result.writes.append(record_of(name, completed(decision, decision.updated_ms)))

    def _want_markers(self, name: str, decision: Transaction, result: TransactionResult) -> None:
        self._unmarked[name] = set(decision.partitions)
        result.sends.append(
            WriteMarkers(
                name,
                decision.producer_id,
                decision.producer_epoch,
                decision.state is TransactionState.PREPARE_COMMIT,
                tuple(sorted(decision.partitions)),
                decision.client_version,
            )
        )

    def _note_markers(self, event: MarkersWritten, result: TransactionResult) -> None:
        name = event.transactional_id
        transaction, unmarked = self._transactions.get(name), self._unmarked.get(name)
        if transaction is None or unmarked is None:
            return
        if (transaction.producer_id, transaction.producer_epoch) != (event.producer_id, event.producer_epoch):
            return
        unmarked.difference_update(event.partitions)
        if unmarked:
            return
        del self._unmarked[name]
        result.writes.append(record_of(name, completed(transaction, event.wall_ms)))
        if self._held.first_of(name) is not None:
            self._held.release(name)

    def _abort_overdue(self, event: AbortOverdue, result: TransactionResult) -> None:
        overdue = [name for name, due_ms in self._ongoing.items() if due_ms < event.wall_ms]
        taken = self._one_batch(overdue)
        for name in taken:
            self._prepare(name, fenced(self._transactions[name], event.wall_ms), result)
        result.replies.append((event.request_id, Remaining(len(overdue) - len(taken))))

    def _forget_idle(self, event: ForgetIdle, result: TransactionResult) -> None:
        since_ms = event.wall_ms - event.expiration_ms
        idle = [
            name
            for name, transaction in self._transactions.items()
            if transaction.updated_ms <= since_ms
            and transaction.state is not TransactionState.ONGOING
            and not transaction.state.is_prepared
        ]
        taken = self._one_batch(idle)
        result.writes.extend(record_of(name, None) for name in taken)
        result.replies.append((event.request_id, Remaining(len(idle) - len(taken))))

    def _one_batch(self, names: list[str]) -> list[str]:
        """The first of `names`, as many as one batch holds; at least one."""
        size = 0
        for count, name in enumerate(names[:BATCH_MAX]):
            # An end without partitions is two records.
            size += _size(self._transactions[name]) + 2 * len(name.encode())
            if count and size > RECORD_SIZE_MAX:
                return names[:count]
        return names[:BATCH_MAX]

    # Requests that wait.

    def _pass_time(self, now_ms: int, result: TransactionResult) -> None:
        for event in self._held.take_due(now_ms):
            result.replies.append((event.request_id, _concurrent(event)))
        for name in self._held.take_released():
            self._serve_released(name, result)

    def _serve_released(self, name: str, result: TransactionResult) -> None:
        """Serves the first of those that waited; the others see what has become of that, in the next turn."""
        event = self._held.first_of(name)
        if event is None:
            return
        reply = self._decide(event, result)
        if reply is None:
            # It has begun to end another transaction, and waits on for that.
            return
        self._held.let_go(event)
        result.replies.append((event.request_id, reply))
        if self._held.first_of(name) is not None:
            self._held.release(name)

    # Questions.

    def _as_told(self, name: str) -> Transaction | None:
        """A transaction as DescribeTransactions tells of it: with the partitions that still wait for their end."""
        transaction, unmarked = self._transactions.get(name), self._unmarked.get(name)
        if transaction is None or unmarked is None:
            return transaction
        return replace(transaction, partitions=frozenset(unmarked))

    def _list(self, event: ListTransactions) -> list[tuple[str, Transaction]]:
        def wanted(name: str, transaction: Transaction) -> bool:
            if event.producer_ids is not None and transaction.producer_id not in event.producer_ids:
                return False
            if event.states is not None and transaction.state not in event.states:
                return False
            if event.longer_than_ms >= 0 and event.wall_ms - transaction.started_ms <= event.longer_than_ms:
                return False
            return event.matches is None or bool(event.matches(name))

        return [(name, transaction) for name, transaction in self._transactions.items() if wanted(name, transaction)]


def _may_be(transaction: Transaction, producer_id: ProducerId, epoch: ProducerEpoch) -> bool:
    """Whether a producer that names its former id can be the present one, or asks once more how its id was replaced."""
    if producer_id == transaction.producer_id:
        return True
    return producer_id == transaction.previous_producer_id and epoch >= LAST_USABLE_EPOCH


def _fencing_error(transaction: Transaction, producer_id: ProducerId, epoch: ProducerEpoch) -> ErrorCode:
    """NONE for the producer that the transactional id belongs to at present."""
    if producer_id != transaction.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE if epoch == transaction.producer_epoch else ErrorCode.PRODUCER_FENCED


def _concurrent(event: Holdable) -> Reply:
    if isinstance(event, AddPartitions):
        return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
    return ProducerIdentity(ErrorCode.CONCURRENT_TRANSACTIONS)


def _size(transaction: Transaction) -> int:
    """Bytes that a transaction's partitions take in a record, about."""
    partitions = transaction.partitions
    return 4 * len(partitions) + sum(len(topic) + 8 for topic in {place.topic for place in partitions})
