"""A partition's log as in `sim/scenarios/log.py`, with transactions that begin, end and stay open over crashes."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sim.invariants import require
from sim.scenarios.log import CONFIG, LogScenario
from sim.world.clock import EPOCH_MS
from tidelog.records.batch import build_batch, patch, read_records
from tidelog.records.control import ControlRecordType, EndTxnMarker, build_end_txn_batch
from tidelog.records.record import Record
from tidelog.storage.log import AppendOrigin, Log
from tidelog.storage.tasks import run_now

PRODUCERS: Final = range(4000, 4003)


class TransactionScenario(LogScenario):
    """Three producers, each in a transaction or out of one; coordinators end them in any order, or never."""

    def append(self, log: Log) -> None:
        """A batch of one to three records in a transaction, or the marker that ends one."""
        producer_id = PRODUCERS[self.random.below(len(PRODUCERS))]
        entry = log.producers.entries.get(producer_id)
        is_open = entry is not None and entry.transaction_first_offset >= 0
        base = log.log_end_offset
        if is_open and self.random.chance(0.4):
            kind = ControlRecordType.COMMIT if self.random.chance(0.5) else ControlRecordType.ABORT
            marker = EndTxnMarker(kind, 0)
            now_ms = self.clock.wall_ms()
            data = build_end_txn_batch(
                marker, timestamp=now_ms, producer_id=producer_id, producer_epoch=0, base_offset=base
            )
            origin = AppendOrigin.COORDINATOR
        else:
            records = [
                Record(base + index, EPOCH_MS + self.clock.now_ms, b"key", b"value-%d" % (base + index))
                for index in range(1 + self.random.below(3))
            ]
            sequence = 0 if entry is None else entry.last_sequence + 1
            data = build_batch(
                records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True
            )
            origin = AppendOrigin.CLIENT
        for record in read_records(data):
            self.ledger.values[record.offset] = (record.timestamp, record.key, record.value)
        sent = bytearray(data)
        patch(sent, 0, base_offset=0, leader_epoch=-1)
        info = log.append(sent, leader_epoch=self.ledger.epoch, now_ms=self.clock.wall_ms(), origin=origin)
        require(2, (info.first_offset, info.duplicate) == (base, False), f"{log}: appended at {info}, {base} expected")
        self.ledger.appended = log.log_end_offset


class FlushedTransactionScenario(TransactionScenario):
    """Each batch is flushed before the next: whenever a segment is closed, nothing of its batches is left to flush."""

    config = replace(CONFIG, flush_messages=1, retention_bytes=-1)

    def append(self, log: Log) -> None:
        super().append(log)
        task = log.flush_task()
        if task is not None:
            run_now(task)
        self.ledger.flushed = max(self.ledger.flushed, log.flushed_offset)
