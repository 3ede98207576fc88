"""Which producer may end a transaction, and whether the request was answered before.

A producer that got no answer asks again, to the same coordinator or to its successor. Before transaction.version 2
every transaction of a producer has the same epoch, and a repeated EndTxn is known by the state alone. From version 2
on each end raises the epoch, so that the epoch tells the repetition (one lower than the present) from the end of the
next transaction (the present one): KIP-890.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidelog.coordinator.transactions.events import EndTransaction
from tidelog.coordinator.transactions.states import TransactionState
from tidelog.coordinator.transactions.transaction import BUMPING_VERSION, LAST_USABLE_EPOCH, Transaction
from tidelog.model.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class EndJudgement:
    """What is to become of an EndTxn."""

    error: ErrorCode = ErrorCode.NONE
    """CONCURRENT_TRANSACTIONS: it is being done."""
    is_done: bool = False
    """Without an error: the very same was asked before, and is done."""
    raises_epoch: bool = False


_GO_ON: Final = EndJudgement()
_GO_ON_RAISING: Final = EndJudgement(raises_epoch=True)
_DONE: Final = EndJudgement(is_done=True)
_UNDER_WAY: Final = EndJudgement(ErrorCode.CONCURRENT_TRANSACTIONS)
_INVALID: Final = EndJudgement(ErrorCode.INVALID_TXN_STATE)
_FENCED: Final = EndJudgement(ErrorCode.PRODUCER_FENCED)
_UNKNOWN_PRODUCER: Final = EndJudgement(ErrorCode.INVALID_PRODUCER_ID_MAPPING)

_PREPARED: Final = {True: TransactionState.PREPARE_COMMIT, False: TransactionState.PREPARE_ABORT}
_COMPLETE: Final = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}


def judge_end(transaction: Transaction, event: EndTransaction) -> EndJudgement:
    """What the state of the transactional id says to `event`."""
    if event.version >= BUMPING_VERSION:
        return _judge_with_epochs(transaction, event)
    return _judge_by_state(transaction, event)


def _judge_by_state(transaction: Transaction, event: EndTransaction) -> EndJudgement:
    if transaction.producer_id != event.producer_id:
        return _UNKNOWN_PRODUCER
    if transaction.producer_epoch != event.producer_epoch:
        return _FENCED
    state = transaction.state
    if state is TransactionState.ONGOING:
        return _GO_ON
    if state is _COMPLETE[event.committed]:
        return _DONE
    # One that wants the opposite of what is being done learns so from the outcome, or here.
    return _UNDER_WAY if state is _PREPARED[event.committed] else _INVALID


def _judge_with_epochs(transaction: Transaction, event: EndTransaction) -> EndJudgement:
    state, epoch = transaction.state, event.producer_epoch
    if state.is_prepared:
        # Under any id: a producer whose id was used up may have the next one already.
        return _UNDER_WAY
    # Only an end by which the epoch rose can be repeated with the epoch before.
    is_complete = transaction.bumps_epochs and state in _COMPLETE.values()
    repeats_last = (
        is_complete
        and transaction.previous_producer_id == event.producer_id
        and epoch == LAST_USABLE_EPOCH
        and transaction.producer_epoch == 0
    )
    if transaction.producer_id != event.producer_id:
        if not repeats_last:
            return _UNKNOWN_PRODUCER
    elif not repeats_last:
        repeats_last = is_complete and transaction.producer_epoch == epoch + 1
        if not repeats_last and transaction.producer_epoch != epoch:
            return _FENCED
    if repeats_last:
        return _DONE if state is _COMPLETE[event.committed] else _INVALID
    if state is TransactionState.ONGOING:
        return _GO_ON_RAISING
    # Nothing was begun: there is nothing to commit, but a producer may abort what it meant to begin.
    return _INVALID if event.committed else _GO_ON_RAISING
