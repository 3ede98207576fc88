"""Which batches of aborted transactions a read_committed reader leaves out."""

from collections.abc import Iterable

from tidelog.ports.disk import Bytes
from tidelog.records.batch import BatchHeader, read_records
from tidelog.records.control import ControlRecordType, control_type


class AbortedTransactions:
    """Which batches a read_committed reader must skip, from the list that came with a fetch response.

    It follows the batches in order and remembers which producers are inside an aborted transaction, so one object
    serves all slices of one response.
    """

    __slots__ = ("_active", "_pending")

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        """`aborted`: (producer id, first offset of the transaction) of each."""
        self._pending = sorted(aborted, key=lambda entry: entry[1], reverse=True)
        self._active: set[int] = set()

    def skips(self, buffer: Bytes, position: int, header: BatchHeader) -> bool:
        """Whether the batch belongs to an aborted transaction; to be asked for each batch in order, control batches
        too.
        """
        while self._pending and self._pending[-1][1] <= header.last_offset:
            self._active.add(self._pending.pop()[0])
        if header.producer_id not in self._active or not header.is_transactional:
            return False
        if header.is_control:
            records = read_records(buffer, position)
            if records and control_type(records[0].key) is ControlRecordType.ABORT:
                self._active.discard(header.producer_id)
            return False
        return True
