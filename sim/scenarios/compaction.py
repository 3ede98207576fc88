"""A compacted log, cleaned after each round; to be cut off anywhere, in the middle of a cleaning above all.

    as `LogScenario`, with few keys, tombstones, and transactions that end either way, or not yet; then the cleaner runs
    until nothing is due

Whatever a crash leaves: what is gone was superseded by a record that is there or was so itself, was aborted, or was a
tombstone or a marker that had outlived its time; and nothing is gone from where the cleaner has no business.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar, Final

from sim.checks.log_checks import Batch
from sim.invariants import require
from sim.scenarios.log import LogScenario
from sim.world.clock import EPOCH_MS
from sim.world.randomness import SeededRandom
from tidelog.records.batch import Codec, build_batch, patch, read_records
from tidelog.records.control import ControlRecordType, EndTxnMarker, build_end_txn_batch
from tidelog.records.record import Record
from tidelog.storage.cleaner.settings import CleanerSettings
from tidelog.storage.log import AppendOrigin, Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_manager import LogManager
from tidelog.storage.log_manager_settings import LogManagerSettings
from tidelog.storage.tasks import run_now

DELETE_RETENTION_MS: Final = 4_000
"""Almost six rounds."""
PLAIN_PRODUCER: Final = 4000
TRANSACTIONAL: Final = range(5000, 5002)
CHANGES: Final = 900
"""Of the disk that a scenario makes, about."""


@dataclass(frozen=True, slots=True)
class Written:
    """What the log was given at an offset."""

    key: bytes | None
    value: bytes | None
    at_ms: int
    producer_id: int
    """Of a transaction; -1: of none."""
    marker: ControlRecordType | None = None


class CompactionScenario(LogScenario):
    """A disk, and the processes that follow one another on it."""

    config: ClassVar[LogConfig] = LogConfig(
        cleanup_policy=frozenset({"compact"}),
        segment_bytes=700,
        segment_index_bytes=128,
        index_interval_bytes=150,
        file_delete_delay_ms=1_000,
        delete_retention_ms=DELETE_RETENTION_MS,
        min_cleanable_dirty_ratio=0.01,
    )
    settings: ClassVar[LogManagerSettings] = LogManagerSettings(
        cleaner=CleanerSettings(dedupe_buffer_bytes=24 * 16, io_buffer_bytes=500, slice_bytes=300)
    )

    def __init__(self, seed: int | str) -> None:
        super().__init__(seed)
        self.written: dict[int, Written] = {}
        self.cleanable = 0
        """Nothing at or past it may ever have been cleaned."""

    def round(self, manager: LogManager, log: Log, number: int) -> None:
        super().round(manager, log, number)
        for task in manager.maintenance.flush_tasks():
            run_now(task)
        self.cleanable = max(self.cleanable, min(log.last_stable_offset, log.active.base_offset))
        manager.cleaner.run_due()
        for task in manager.maintenance.checkpoint_tasks():
            run_now(task)
        require(14, not manager.cleaner.uncleanable, f"{manager.cleaner.uncleanable}")
        if log.is_offline:
            log.folder.check_online()

    def append(self, log: Log) -> None:
        """A batch of one to three records of a producer, in a transaction or not, or the end of a transaction."""
        random = self.random
        if random.chance(0.5):
            self._append_records(log, PLAIN_PRODUCER, transactional=False)
            return
        producer_id = TRANSACTIONAL[random.below(len(TRANSACTIONAL))]
        entry = log.producers.entries.get(producer_id)
        if entry is not None and entry.transaction_first_offset >= 0 and random.chance(0.6):
            self._append_marker(log, producer_id)
        else:
            self._append_records(log, producer_id, transactional=True)

    def _append_records(self, log: Log, producer_id: int, *, transactional: bool) -> None:
        random, base = self.random, log.log_end_offset
        entry = log.producers.entries.get(producer_id)
        records = [
            Record(
                base + index,
                EPOCH_MS + self.clock.now_ms + random.below(500),
                b"key-%d" % random.below(6),
                None if random.chance(0.2) else b"value-%d-" % (base + index) + b"x" * random.below(60),
            )
            for index in range(1 + random.below(3))
        ]
        data = build_batch(
            records,
            codec=Codec(random.below(5)),
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0 if entry is None else entry.last_sequence + 1,
            transactional=transactional,
        )
        for record in records:
            self.written[record.offset] = Written(
                record.key, record.value, self.clock.wall_ms(), producer_id if transactional else -1
            )
        self._append(log, data, AppendOrigin.CLIENT)

    def _append_marker(self, log: Log, producer_id: int) -> None:
        kind = ControlRecordType.COMMIT if self.random.chance(0.5) else ControlRecordType.ABORT
        base, now_ms = log.log_end_offset, self.clock.wall_ms()
        data = build_end_txn_batch(
            EndTxnMarker(kind, 0), timestamp=now_ms, producer_id=producer_id, producer_epoch=0, base_offset=base
        )
        self.written[base] = Written(None, b"", now_ms, producer_id, kind)
        self._append(log, data, AppendOrigin.COORDINATOR)

    def _append(self, log: Log, data: bytes, origin: AppendOrigin) -> None:
        base, ledger = log.log_end_offset, self.ledger
        for record in read_records(data):
            ledger.values[record.offset] = (record.timestamp, record.key, record.value)
        sent = bytearray(data)
        patch(sent, 0, base_offset=0, leader_epoch=-1)
        info = log.append(sent, leader_epoch=ledger.epoch, now_ms=self.clock.wall_ms(), origin=origin)
        require(2, (info.first_offset, info.duplicate) == (base, False), f"{log}: appended at {info}, {base} expected")
        ledger.appended = log.log_end_offset

    def _check_kept(self, log: Log, batches: list[Batch], survives: int) -> None:
        ledger = self.ledger
        require(1, log.log_end_offset >= survives, f"{log} ends before {survives}, which was promised")
        require(1, log.log_start_offset <= ledger.start_bound, f"{log} begins after {ledger.start_bound}")
        require(6, log.log_start_offset >= ledger.start_durable, f"{log} begins before {ledger.start_durable}")
        self.written = {offset: each for offset, each in self.written.items() if offset < log.log_end_offset}
        found = {
            record.offset: (record.timestamp, record.key, record.value) for batch in batches for record in batch.records
        }
        for offset, value in found.items():
            require(2, ledger.values.get(offset) == value, f"{log}: offset {offset} shows what was not written there")
        for offset in range(max(log.log_start_offset, ledger.start), log.log_end_offset):
            if offset not in found:
                self._check_gone(log, offset, found.keys())
        aborted = {
            offset
            for transaction in log.aborted_transactions(log.log_start_offset, log.log_end_offset)
            for offset in found
            if self.written[offset].producer_id == transaction.producer_id
            and transaction.first_offset <= offset < transaction.last_offset
        }
        for offset in found:
            begun = min(self._data_of(self.written[offset].producer_id, offset), default=offset)
            if begun >= log.log_start_offset and self.written[offset].marker is None:
                is_aborted = self._end_of(offset) is ControlRecordType.ABORT
                require(10, is_aborted == (offset in aborted), f"{log}: offset {offset} was aborted: {is_aborted}")

    def _end_of(self, offset: int) -> ControlRecordType | None:
        """How the transaction ended in which a record was written; None: not yet, or it was in none."""
        producer_id = self.written[offset].producer_id
        if producer_id < 0:
            return None
        ends = (
            self.written[later].marker
            for later in sorted(self.written)
            if later > offset and self.written[later].producer_id == producer_id
        )
        return next((end for end in ends if end is not None), None)

    def _check_gone(self, log: Log, offset: int, found: Collection[int]) -> None:
        """A record may be gone; `found` are the offsets that are there."""
        written = self.written[offset]
        age_ms = self.clock.wall_ms() - written.at_ms
        require(14, offset < self.cleanable, f"{log}: offset {offset} is gone, cleanable was {self.cleanable}")
        if written.marker is not None:
            data = self._data_of(written.producer_id, offset)
            require(14, not any(each in found for each in data), f"{log}: the marker at {offset} went before its data")
            require(14, age_ms >= DELETE_RETENTION_MS, f"{log}: the marker at {offset} went after {age_ms} ms")
            return
        if self._end_of(offset) is ControlRecordType.ABORT:
            return
        superseded = any(
            later > offset
            and each.key == written.key
            and each.marker is None
            and later < self.cleanable
            and self._end_of(later) is not ControlRecordType.ABORT
            for later, each in self.written.items()
        )
        outlived = written.value is None and age_ms >= DELETE_RETENTION_MS
        require(14, superseded or outlived, f"{log}: offset {offset}, the last of {written.key!r}, is gone")

    def _data_of(self, producer_id: int, end: int) -> list[int]:
        """Where the records of a producer's transaction are that ends, or would end, at `end`."""
        data: list[int] = []
        for offset in range(end - 1, -1, -1):
            each = self.written.get(offset)
            if each is None or each.producer_id != producer_id:
                continue
            if each.marker is not None:
                break
            data.append(offset)
        return data


def compact_beside(seed: int) -> None:
    """A run's own scenario, cut off at some change of its disk, or at its end; then what is kept is looked at."""
    random = SeededRandom(seed, "compaction beside")
    scenario = CompactionScenario(f"beside {seed}")
    scenario.crash_at(1 + random.below(CHANGES), power_cut=random.chance(0.5))
    scenario.check_recovery(power_cut=True)
