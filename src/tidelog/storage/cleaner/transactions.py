"""Transactions as a cleaning meets them, batch by batch: whose data were aborted, and which markers have outlived them.

Nothing past the last stable offset is cleaned, so every transaction has ended. Data of aborted ones go at once. A
marker stays for as long as a batch of its transaction does, and then until its delete horizon, so that a reader that
began before sees the end of what it has read.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from tidelog.records.batch import read_records
from tidelog.records.control import ControlRecordType, control_type

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.records.batch import BatchHeader
    from tidelog.storage.transaction_index import AbortedTransaction


class CleanedTransactions:
    """State that goes from batch to batch, and from one segment to the next."""

    __slots__ = ("_aborted", "_committed", "_expected", "kept")

    def __init__(self) -> None:
        self._expected: list[tuple[int, AbortedTransaction]] = []
        """Heap of aborted transactions by their first offset, of which no batch was met yet."""
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        """[producer id] -> its aborted transaction, and whether a batch of it was met"""
        self._committed: set[int] = set()
        """Producers with a batch of a transaction that was committed and whose marker is still to come."""
        self.kept: list[AbortedTransaction] = []
        """Those whose marker stays because of their batches: entries of the cleaned segment's index."""

    def expect(self, aborted: Iterable[AbortedTransaction]) -> None:
        """These touch the segment that is read next."""
        for transaction in aborted:
            heappush(self._expected, (transaction.first_offset, transaction))

    def _begin_up_to(self, offset: int) -> None:
        while self._expected and self._expected[0][0] <= offset:
            transaction = heappop(self._expected)[1]
            self._aborted.setdefault(transaction.producer_id, (transaction, False))

    def batch_is_aborted(self, header: BatchHeader) -> bool:
        """Whether a data batch belongs to an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        found = self._aborted.get(header.producer_id)
        if found is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = (found[0], True)
        return True

    def marker_is_superfluous(self, header: BatchHeader, batch: bytes | memoryview) -> bool:
        """Whether no batch of the transaction that a control batch ends is left. `InvalidBatch` for a malformed one."""
        self._begin_up_to(header.last_offset)
        records = read_records(batch)
        if not records:
            return True
        match control_type(records[0].key):
            case ControlRecordType.ABORT:
                transaction, was_met = self._aborted.pop(header.producer_id, (None, False))
                if transaction is None or not was_met:
                    return True
                self.kept.append(transaction)
                return False
            case ControlRecordType.COMMIT:
                was_met = header.producer_id in self._committed
                self._committed.discard(header.producer_id)
                return not was_met
            case _:
                return False
