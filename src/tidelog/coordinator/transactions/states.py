"""The states of a transactional id, as `__transaction_state` and DescribeTransactions name them."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class TransactionState(IntEnum):
    """Numbers are those of TransactionLogValue's status.

        Empty ──> Ongoing ──> PrepareCommit ──> CompleteCommit ──> Ongoing, Empty
                     └──────> PrepareAbort ───> CompleteAbort ───> Ongoing, Empty

    A transactional id is Empty after InitProducerId. Since KIP-890's second part a producer may abort what it never
    began, so that PrepareAbort also follows Empty and the two Complete ones.
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    """The commit is decided and cannot be undone; markers are being written."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    """Every partition has its marker."""
    COMPLETE_ABORT = 5
    DEAD = 6
    """Kafka's name for an id that is about to be forgotten. Kafka has it in memory only, tidelog never uses it."""
    PREPARE_EPOCH_FENCE = 7
    """Kafka's name for an epoch that is about to be fenced. Kafka has it in memory only, tidelog never uses it."""

    @property
    def label(self) -> str:
        """Kafka's name."""
        return _LABELS[self]

    @property
    def is_prepared(self) -> bool:
        """Whether the coordinator has decided the end and not completed it."""
        return self is TransactionState.PREPARE_COMMIT or self is TransactionState.PREPARE_ABORT


_LABELS: Final = {state: "".join(word.capitalize() for word in state.name.split("_")) for state in TransactionState}
LABELS: Final = frozenset(_LABELS.values())
"""The names that ListTransactions knows."""
WRITTEN: Final = frozenset(TransactionState) - {TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE}
"""The states that stand in records."""
