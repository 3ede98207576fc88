"""One log through all that replication, transactions and restarts do to it, compared with a full scan after each step.

    leader:   batches of transactional and other producers, verified or late, their markers, epochs, rolls
    follower: the same as they come from a leader; then the log is cut where another leader's parts from it
    between:  flushes, beside which the log grows and rolls, checkpoints, clean stops, kills, power cuts, deletions from
              the front, by clients or by retention, moves to another log directory

A cluster does each of these now and then; that the marker of an aborted transaction is cut off again, or that a batch
takes the place of a removed one whose position is remembered, is rare there. A walk takes a tenth of a second, so each
run has one beside its cluster. It draws from a stream of its own, and knows no promise but what `check_log` asks: what
a log remembers is what its bytes say.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sim.checks.flushes import check_indexes_durable
from sim.checks.live_logs import check_stable
from sim.checks.log_checks import check_log, read_batches
from sim.invariants import require
from sim.scenarios.log import CONFIG, LogScenario
from sim.scenarios.transaction import PRODUCERS
from sim.world.clock import EPOCH_MS
from tidelog.model.errors import KafkaError
from tidelog.records.batch import build_batch, iterate_headers, patch
from tidelog.records.control import ControlRecordType, EndTxnMarker, build_end_txn_batch
from tidelog.records.record import Record
from tidelog.storage.file_names import LOG
from tidelog.storage.log import AppendOrigin
from tidelog.storage.tasks import run_now
from tidelog.storage.verification import ONGOING

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.checks.log_checks import Batch
    from sim.world.randomness import SeededRandom
    from tidelog.storage.log import Log
    from tidelog.storage.log_manager import LogManager
    from tidelog.storage.verification import VerificationGuard

STEPS: Final = 60
BESIDES: Final = 3900
"""An idempotent producer without transactions."""
BESIDES_CHANCE: Final = 0.4
"""Of a record of it, at each step."""
NEW_EPOCH_CHANCE: Final = 0.25
"""Of its beginning a new producer epoch with it."""
OLDER_MS_MAX: Final = 400
"""By how much a record may be older than its time of arrival: more than a step takes."""
TRIM_CHANCE: Final = 0.04
RETAIN_CHANCE: Final = 0.06
MOVE_CHANCE: Final = 0.04
LOSE_POWER_CHANCE: Final = 0.03
SLOW_FLUSH_CHANCE: Final = 0.1
"""Of a flush at a step that takes so long that the log is appended to and rolled meanwhile."""
KNOWN_AGAIN: Final = 5
"""How many of a producer's last batches a leader knows: as many as Kafka's producers have under way."""


class LogWalk(LogScenario):
    """See the module. `run` is the whole walk."""

    config = replace(CONFIG, retention_bytes=-1)
    log_dirs = ("/data", "/data2")

    def __init__(self, seed: int | str) -> None:
        super().__init__(f"walk {seed}")
        self._manager: LogManager = self.start()
        self._log: Log = self.create(self._manager)
        self._epoch = 0
        self._is_leader = True
        self._asked: dict[int, tuple[VerificationGuard, bool]] = {}
        """[producer] -> what its next transaction's first batch may be appended by, and whether a marker came since."""
        self._sent: list[tuple[int, bytes]] = []
        """(offset, batch) of the last ones of `BESIDES`, since the log was cut, the process or its epoch began."""
        self._producer_epoch = 0
        """Of `BESIDES`."""
        self._stamps = self.random.stream("stamps")

    def run(self, rounds: int = STEPS) -> None:
        self._log.assign_epoch(self._epoch)
        weights: dict[Callable[[], None], int] = {
            self._write: 8, self._end: 4, self._commit: 3, self._ask: 3, self._write_verified: 3, self._cut: 2,
            self._lead: 1, self._flush: 1, self._checkpoint: 1, self._roll: 1, self._stop: 1, self._kill: 1,
        }  # fmt: skip
        steps = [step for step, weight in weights.items() for _ in range(weight)]
        again, besides = self.random.stream("sent again"), self.random.stream("besides")
        trims, moves = self.random.stream("trims"), self.random.stream("moves")
        flushes, power = self.random.stream("slow flushes"), self.random.stream("power")
        retention = self.random.stream("retention")
        for _ in range(rounds):
            steps[self.random.below(len(steps))]()
            self._send_again(again)
            self._write_besides(besides)
            if trims.chance(TRIM_CHANCE):
                self._trim(trims)
            if retention.chance(RETAIN_CHANCE):
                self._retain(retention)
            if moves.chance(MOVE_CHANCE):
                self._move()
            if flushes.chance(SLOW_FLUSH_CHANCE):
                self._flush_slowly(flushes)
            if power.chance(LOSE_POWER_CHANCE):
                self._lose_power()
            self.clock.advance(50 + self.random.below(100))
            self._check()
        self._manager.close()

    def _check(self) -> list[Batch]:
        batches = check_log(self._log)
        check_stable(self._log, batches)
        check_indexes_durable(self.disk, self._log)
        return batches

    # Batches.

    def _write(self) -> None:
        """A batch of a producer, mostly within a transaction."""
        number = self.random.below(len(PRODUCERS) + 1)
        self._send(BESIDES if number == len(PRODUCERS) else PRODUCERS[number], 1 + self.random.below(4))

    def _send(self, producer_id: int, records: int) -> None:
        offset, data = self._log.log_end_offset, self._batch(producer_id, records)
        self._append(data, AppendOrigin.CLIENT)
        if producer_id == BESIDES:
            self._sent = [*self._sent, (offset, data)][-KNOWN_AGAIN:]

    def _write_besides(self, random: SeededRandom) -> None:
        """A record of the producer without transactions. Now and then it gives up what it has sent, and begins a new
        epoch with sequence 0 (KIP-360): no batch of the former one is to be taken for it.
        """
        if random.chance(BESIDES_CHANCE):
            if random.chance(NEW_EPOCH_CHANCE):
                self._producer_epoch += 1
                self._sent.clear()
            self._send(BESIDES, 1)

    def _send_again(self, random: SeededRandom) -> None:
        """An answer was lost, now and then: a producer's last batches are known again, and stand where they stood."""
        if not self._sent or not self._is_leader or random.chance(0.8):
            return
        offset, sent = self._sent[random.below(len(self._sent))]
        end = self._log.log_end_offset
        data = bytearray(sent)
        patch(data, 0, base_offset=0, leader_epoch=-1)
        told = self._log.append(data, leader_epoch=self._epoch, now_ms=self.clock.wall_ms()).first_offset
        require(12, (told, self._log.log_end_offset) == (offset, end), f"{self._log}: {offset} sent again is at {told}")

    def _batch(self, producer_id: int, count: int) -> bytes:
        """A producer's next one. Records are not always younger than those before."""
        entry = self._log.producers.entries.get(producer_id)
        producer_epoch = self._producer_epoch if producer_id == BESIDES else 0
        goes_on = entry is not None and entry.producer_epoch == producer_epoch
        base = self._log.log_end_offset
        now_ms = EPOCH_MS + self.clock.now_ms
        timestamp = now_ms - self._stamps.below(OLDER_MS_MAX) if self._stamps.chance(0.3) else now_ms
        records = [Record(base + index, timestamp, b"key", b"x" * self.random.below(60)) for index in range(count)]
        return build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=entry.last_sequence + 1 if entry is not None and goes_on else 0,
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
        sent = bytearray(self._batch(producer_id, 1 + self.random.below(4)))
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
        end = log.log_end_offset
        if self._is_leader:
            patch(sent, 0, base_offset=0, leader_epoch=-1)
            info = log.append(sent, leader_epoch=self._epoch, now_ms=self.clock.wall_ms(), origin=origin)
        else:
            patch(sent, 0, base_offset=end, leader_epoch=self._epoch)
            info = log.append_as_follower(sent, leader_epoch=self._epoch, now_ms=self.clock.wall_ms())
        is_new = info.first_offset == end and not info.duplicate
        require(12, is_new, f"{log}: a batch of its own, which was to stand at {end}, counts as that at {info}")

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
        self._sent.clear()
        log.announce_truncation(offset)
        self._settle(self._log)
        log.truncate_to(offset)
        if self.random.chance(0.7):
            self._settle(self._log)

    def _settle(self, log: Log) -> None:
        while log.truncation_is_pending:
            for task in self._manager.maintenance.truncation_tasks():
                run_now(task)

    # The disk, and the process.

    def _flush(self) -> None:
        task = self._log.flush_task()
        if task is not None:
            run_now(task)

    def _flush_slowly(self, random: SeededRandom) -> None:
        """A flush, between whose work on the disk and whose end an I/O thread waits for its turn."""
        task = self._log.flush_task()
        if task is None:
            return
        if random.chance(0.5):
            self._write_or_end()
        task.run()
        self._write_or_end()
        if random.chance(0.5):
            self._roll()
        task.finish(None)

    def _write_or_end(self) -> None:
        """What an index of aborted transactions has to tell of, now and then."""
        self._end()
        self._write()

    def _checkpoint(self) -> None:
        for task in self._manager.maintenance.checkpoint_tasks():
            run_now(task)

    def _trim(self, random: SeededRandom) -> None:
        """Records are deleted from the front, up to some offset that is committed; what is known of producers stays."""
        log = self._log
        start = log.log_start_offset + random.below(log.high_watermark - log.log_start_offset + 1)
        log.advance_start(start)
        log.delete_old_segments(self.clock.wall_ms())
        require(6, log.log_start_offset == start, f"{log} begins at {log.log_start_offset}: {start} was asked for")

    def _retain(self, random: SeededRandom) -> None:
        """Retention by size or by age takes the oldest segments: all that it may, and none that is not committed."""
        log, now_ms = self._log, self.clock.wall_ms()
        self._settle(log)
        files = self.disk.files(log.directory, LOG)
        segments = [[header for _, header in iterate_headers(bytes(files[name].content))] for name in sorted(files)]
        left = sum(header.size for segment in segments for header in segment)
        by_size = random.chance(0.5)
        limit = random.below(left + 1) if by_size else random.below(OLDER_MS_MAX * 10)
        start: int = log.log_start_offset
        for segment in filter(None, segments):
            size, end = sum(header.size for header in segment), segment[-1].next_offset
            age_ms = now_ms - max(header.max_timestamp for header in segment)
            is_due = left - size >= limit if by_size else age_ms > limit
            if end > log.high_watermark or not (is_due or end <= log.log_start_offset):
                break
            left -= size
            start = max(start, end)
        limits = replace(self.config, retention_bytes=limit if by_size else -1, retention_ms=-1 if by_size else limit)
        self._manager.set_config(log.topic_partition, limits)
        log.delete_old_segments(now_ms)
        if log.log_start_offset != start and (task := log.flush_task()) is not None:
            run_now(task)  # Until then the snapshots of producers at closed segments' ends are not durable.
            log.delete_old_segments(now_ms)
        self._manager.set_config(log.topic_partition, self.config)
        told = f"{limit} bytes" if by_size else f"{limit} ms"
        require(6, log.log_start_offset == start, f"{log}: retention of {told} is to have it begin at {start}")

    def _move(self) -> None:
        """A copy in the other log directory takes the log's place (KIP-113), and knows the same of producers."""
        self._settle(self._log)
        log, futures = self._log, self._manager.futures
        known = _known(log)
        elsewhere = next(each for each in self._manager.directories if each is not log.owner)
        copy = futures.create(log.topic_partition, elsewhere)
        for _, _, data in read_batches(log):
            copy.append_as_follower(data)
        self._settle(copy)
        copy.update_high_watermark(max(log.high_watermark, copy.log_start_offset))
        if self._is_leader:
            copy.assign_epoch(self._epoch)
        for each in (log, copy):
            task = each.flush_task()
            if task is not None:
                run_now(task)
        self._log = futures.replace(log.topic_partition)
        found = _known(self._log)
        require(12, found == known, f"{self._log}: its producers are {found}, before it was moved they were {known}")
        self._asked.clear()
        # Of a producer whose records are gone the last batch is known.
        self._sent = self._sent[-1:]

    def _roll(self) -> None:
        self._log.roll(self.clock.wall_ms())

    def _stop(self) -> None:
        """A clean stop, and a start."""
        self._settle(self._log)
        self._manager.close()
        self.disk.kill()
        self._start()

    def _kill(self) -> None:
        """The process dies, and the next one recovers what it has left."""
        self._settle(self._log)
        self._checkpoint()
        self.disk.kill()
        self._start()

    def _lose_power(self) -> None:
        """What was not flushed may be gone, in whole or in part."""
        self._settle(self._log)
        self._checkpoint()
        start, flushed = self._log.log_start_offset, self._log.flushed_offset
        self.disk.kill()
        self.disk.power_cut()
        self._start()
        log = self._log
        require(1, log.log_end_offset >= flushed, f"{log} ends before {flushed}, which was flushed")
        require(6, log.log_start_offset >= min(start, log.log_end_offset), f"{log} begins before {start}")

    def _start(self) -> None:
        self._asked.clear()
        self._sent.clear()
        self._manager = self.start()
        log = self._manager.get(self._log.topic_partition)
        assert log is not None
        self._log = log


def _known(log: Log) -> dict[int, tuple[int, int, bool]]:
    """[producer with batches] -> its epoch, its last sequence, and whether it has a transaction open."""
    return {
        entry.producer_id: (entry.producer_epoch, entry.last_sequence, entry.transaction_first_offset >= 0)
        for entry in log.producers.entries.values()
        if entry.batches or entry.transaction_first_offset >= 0
    }
