"""One log through all that replication, transactions and restarts do to it, compared with a full scan after each step.

    leader:   batches of transactional and other producers, verified or late, their markers, epochs, rolls
    follower: the same as they come from a leader; then the log is cut where another leader's parts from it
    between:  flushes, checkpoints, clean stops, kills

A cluster does each of these now and then; that the marker of an aborted transaction is cut off again, or that a batch
takes the place of a removed one whose position is remembered, is rare there. A walk takes a tenth of a second, so each
run has one beside its cluster. It draws from a stream of its own, and knows no promise but what `check_log` asks: what
a log remembers is what its bytes say.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sim.checks.live_logs import check_stable
from sim.checks.log_checks import check_log
from sim.invariants import require
from sim.scenarios.log import CONFIG, LogScenario
from sim.scenarios.transaction import PRODUCERS
from sim.world.clock import EPOCH_MS
from tidelog.model.errors import KafkaError
from tidelog.records.batch import build_batch, patch
from tidelog.records.control import ControlRecordType, EndTxnMarker, build_end_txn_batch
from tidelog.records.record import Record
from tidelog.storage.log import AppendOrigin
from tidelog.storage.tasks import run_now
from tidelog.storage.verification import ONGOING

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.checks.log_checks import Batch
    from tidelog.storage.log import Log
    from tidelog.storage.log_manager import LogManager
    from tidelog.storage.verification import VerificationGuard

STEPS: Final = 60
BESIDES: Final = 3900
"""An idempotent producer without transactions."""


class LogWalk(LogScenario):
    """See the module. `run` is the whole walk."""

    config = replace(CONFIG, retention_bytes=-1)

    def __init__(self, seed: int | str) -> None:
        super().__init__(f"walk {seed}")
        self._manager: LogManager = self.start()
        self._log: Log = self.create(self._manager)
        self._epoch = 0
        self._is_leader = True
        self._asked: dict[int, tuple[VerificationGuard, bool]] = {}
        """[producer] -> what its next transaction's first batch may be appended by, and whether a marker came since."""

    def run(self, rounds: int = STEPS) -> None:
        self._log.assign_epoch(self._epoch)
        weights: dict[Callable[[], None], int] = {
            self._write: 8, self._end: 4, self._commit: 3, self._ask: 3, self._write_verified: 3, self._cut: 2,
            self._lead: 1, self._flush: 1, self._checkpoint: 1, self._roll: 1, self._stop: 1, self._kill: 1,
        }  # fmt: skip
        steps = [step for step, weight in weights.items() for _ in range(weight)]
        for _ in range(rounds):
            steps[self.random.below(len(steps))]()
            self.clock.advance(50 + self.random.below(100))
            self._check()
        self._manager.close()

    def _check(self) -> list[Batch]:
        batches = check_log(self._log)
        check_stable(self._log, batches)
        return batches

    # Batches.

    def _write(self) -> None:
        """A batch of a producer, mostly within a transaction."""
        number = self.random.below(len(PRODUCERS) + 1)
        self._append(self._batch(BESIDES if number == len(PRODUCERS) else PRODUCERS[number]), AppendOrigin.CLIENT)

    def _batch(self, producer_id: int) -> bytes:
        """A producer's next one."""
        entry = self._log.producers.entries.get(producer_id)
        base = self._log.log_end_offset
        records = [
            Record(base + index, EPOCH_MS + self.clock.now_ms, b"key", b"x" * self.random.below(60))
            for index in range(1 + self.random.below(4))
        ]
        return build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0 if entry is None else entry.last_sequence + 1,
            transactional=producer_id != BESIDES,
        )

    def _ask(self) -> None:
        """A leader asks the coordinator whether a producer is in a transaction (KIP-890)."""
        producer_id = PRODUCERS[self.random.below(len(PRODUCERS))]
        if self._is_leader and producer_id not in self._asked:
            entry, now_ms = self._log.producers.entries.get(producer_id), self.clock.wall_ms()
            sequence = 0 if entry is None else entry.last_sequence + 1
            guard = self._log.producers.begin_verification(producer_id, 0, sequence, now_ms, bumps_epochs=False)
            if guard is not ONGOING:
                self._asked[producer_id] = guard, False

    def _write_verified(self) -> None:
        """The coordinator said yes, and the batch is appended: not where the transaction has ended meanwhile."""
        if not self._asked:
            return
        producer_id = list(self._asked)[self.random.below(len(self._asked))]
        guard, has_ended = self._asked.pop(producer_id)
        entry = self._log.producers.entries.get(producer_id)
        is_open = entry is not None and entry.transaction_first_offset >= 0
        sent = bytearray(self._batch(producer_id))
        patch(sent, 0, base_offset=0, leader_epoch=-1)
        try:
            self._log.append(sent, leader_epoch=self._epoch, now_ms=self.clock.wall_ms(), guard=guard)
        except KafkaError:
            return
        require(13, is_open or not has_ended, f"{self._log}: a batch of {producer_id} comes after its transaction")

    def _end(self) -> None:
        """A marker for some open transaction, or for one whose first batch is on its way."""
        entries = self._log.producers.entries.values()
        begun = [entry.producer_id for entry in entries if entry.transaction_first_offset >= 0]
        begun += [producer_id for producer_id in self._asked if producer_id not in begun]
        if begun:
            producer_id = begun[self.random.below(len(begun))]
            self._asked.update({each: (guard, True) for each, (guard, _) in self._asked.items() if each == producer_id})
            kind = ControlRecordType.COMMIT if self.random.chance(0.4) else ControlRecordType.ABORT
            data = build_end_txn_batch(
                EndTxnMarker(kind, 0),
                timestamp=self.clock.wall_ms(),
                producer_id=producer_id,
                producer_epoch=0,
                base_offset=self._log.log_end_offset,
            )
            self._append(data, AppendOrigin.COORDINATOR)

    def _append(self, data: bytes, origin: AppendOrigin) -> None:
        """As the leader does, which gives the offsets, or as a follower, which takes them."""
        log, sent = self._log, bytearray(data)
        if self._is_leader:
            patch(sent, 0, base_offset=0, leader_epoch=-1)
            log.append(sent, leader_epoch=self._epoch, now_ms=self.clock.wall_ms(), origin=origin)
        else:
            patch(sent, 0, base_offset=log.log_end_offset, leader_epoch=self._epoch)
            log.append_as_follower(sent, leader_epoch=self._epoch, now_ms=self.clock.wall_ms())

    # Replication.

    def _commit(self) -> None:
        """The high watermark goes on, to the end or a part of the way."""
        log = self._log
        missing = log.log_end_offset - log.high_watermark
        log.update_high_watermark(log.high_watermark + self.random.below(missing + 1))

    def _lead(self) -> None:
        """The replica is elected."""
        self._asked.clear()
        self._epoch += 1
        self._is_leader = True
        self._log.assign_epoch(self._epoch)

    def _cut(self) -> None:
        """Another replica is elected, and the log is cut where the two part: nowhere below what is committed."""
        log = self._log
        self._asked.clear()
        self._epoch += 1
        self._is_leader = False
        log.begin_following()
        starts = [header.base_offset for header, _, _ in check_log(log) if header.base_offset >= log.high_watermark]
        if not starts:
            return
        offset = starts[self.random.below(len(starts))]
        log.announce_truncation(offset)
        self._settle()
        log.truncate_to(offset)
        if self.random.chance(0.7):
            self._settle()

    def _settle(self) -> None:
        while self._log.truncation_is_pending:
            for task in self._manager.maintenance.truncation_tasks():
                run_now(task)

    # The disk, and the process.

    def _flush(self) -> None:
        task = self._log.flush_task()
        if task is not None:
            run_now(task)

    def _checkpoint(self) -> None:
        for task in self._manager.maintenance.checkpoint_tasks():
            run_now(task)

    def _roll(self) -> None:
        self._log.roll(self.clock.wall_ms())

    def _stop(self) -> None:
        """A clean stop, and a start."""
        self._settle()
        self._manager.close()
        self.disk.kill()
        self._start()

    def _kill(self) -> None:
        """The process dies, and the next one recovers what it has left."""
        self._settle()
        self._checkpoint()
        self.disk.kill()
        self._start()

    def _start(self) -> None:
        self._asked.clear()
        self._manager = self.start()
        log = self._manager.get(self._log.topic_partition)
        assert log is not None
        self._log = log
