"""One partition's log from its creation to a clean stop, with all that writes on the way; to be cut off anywhere.

    create, many times (append, roll, flush, checkpoint, retention, removal of files, new epoch, new start), close

The scenario keeps a `Ledger` of what it was promised. After a crash the log is opened again and must keep the promises:
what was flushed survives a power cut, what was appended survives a kill, and what is left is a beginning of what was
appended, with epochs, indexes and producers that a full scan confirms.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import ClassVar, Final

from sim.checks.log_checks import Batch, check_log
from sim.invariants import require
from sim.world.clock import EPOCH_MS, ManualClock
from sim.world.disk import Fault, FaultPlan, Operation, ProcessDeath, SimulatedDisk
from sim.world.randomness import SeededRandom
from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import TopicId, TopicPartition
from tidelog.records.batch import Codec, build_batch, patch
from tidelog.records.record import Record
from tidelog.storage.errors import NoLogDirectory
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_manager import LogManager
from tidelog.storage.log_manager_settings import LogManagerSettings
from tidelog.storage.tasks import run_now

PARTITION: Final = TopicPartition("topicone", 0)
TOPIC_ID: Final = TopicId(bytes(range(16)))
CONFIG: Final = LogConfig(
    segment_bytes=900,
    segment_index_bytes=128,
    index_interval_bytes=150,
    retention_bytes=2_500,
    file_delete_delay_ms=1_000,
)
"""Small enough that a few appends roll, fill an index and outgrow retention."""
ROUNDS: Final = 12
PRODUCER_ID: Final = 4000


@dataclass(slots=True)
class Ledger:
    """What the log has promised so far."""

    values: dict[int, tuple[int, bytes | None, bytes | None]] = field(default_factory=dict)
    """[offset] -> timestamp, key, value of every record whose append was begun."""
    appended: int = 0
    """Offsets below it were appended: a kill must not lose them."""
    flushed: int = 0
    """Offsets below it were flushed: a power cut must not lose them."""
    start: int = 0
    """The log's start as last seen; what lies before may be gone."""
    start_bound: int = 0
    """Where the log may begin at most: while retention is at work, anywhere up to the high watermark."""
    start_durable: int = 0
    """The log's start as last written to its checkpoint: it must not go back further."""
    created: bool = False
    """The log's creation was made durable."""
    sequence: int = 0
    """Of the producer's next record."""
    epoch: int = 0

    def shrink(self, end: int) -> None:
        """Recovery has cut the log to end at `end`: what lay beyond may be written anew."""
        self.values = {offset: value for offset, value in self.values.items() if offset < end}
        self.appended = end


class LogScenario:
    """A disk, and the processes that follow one another on it."""

    config: ClassVar[LogConfig] = CONFIG
    settings: ClassVar[LogManagerSettings] = LogManagerSettings()
    log_dirs: ClassVar[tuple[str, ...]] = ("/data",)

    def __init__(self, seed: int | str) -> None:
        self.random = SeededRandom(seed, "log scenario")
        self.clock = ManualClock()
        self.disk = SimulatedDisk(self.random.stream("disk"), self.clock.wall_ms)
        self.ledger = Ledger()
        self._starts = 0

    def start(self) -> LogManager:
        """A process opens the directory: a broker's start, recovery included. Each draws from a stream of its own."""
        self._starts += 1
        manager = LogManager(
            disk=self.disk.mount(),
            clock=self.clock,
            log_dirs=list(self.log_dirs),
            broker_id=0,
            cluster_id="simulated",
            default_config=self.config,
            settings=self.settings,
            random=self.random.stream(f"manager {self._starts}"),
        )
        manager.open()
        return manager

    def run(self, rounds: int = ROUNDS) -> None:
        """The scenario, as far as the disk lets it go."""
        manager = self.start()
        log = self.create(manager)
        for number in range(rounds):
            self.round(manager, log, number)
        manager.close()
        if not log.is_offline:
            self.ledger.flushed = log.log_end_offset

    def create(self, manager: LogManager) -> Log:
        log = manager.create(PARTITION, TOPIC_ID)
        task = manager.maintenance.durability_task()
        if task is not None:
            run_now(task)
        self.ledger.created = True
        return log

    def round(self, manager: LogManager, log: Log, number: int) -> None:
        """A few appends, and what falls due."""
        ledger = self.ledger
        for _ in range(3):
            self.append(log)
        log.update_high_watermark(log.log_end_offset)
        if number % 3 == 1:
            task = log.flush_task()
            if task is not None:
                run_now(task)
        for due in manager.maintenance.flush_tasks():
            run_now(due)
        ledger.flushed = max(ledger.flushed, log.flushed_offset)
        if number % 4 == 2:
            ledger.epoch += 1
            log.assign_epoch(ledger.epoch)
        ledger.start_bound = log.high_watermark
        if number % 4 == 3:
            log.advance_start(min(log.log_start_offset + 2, log.high_watermark))
        if number % 2:
            run_now(manager.maintenance.retention_task())
        ledger.start = log.log_start_offset
        for due in manager.maintenance.checkpoint_tasks():
            run_now(due)
        if not log.is_offline:
            ledger.start_durable = log.log_start_offset
        self.clock.advance(700)
        manager.maintenance.run_due(self.clock.monotonic_ms())
        ledger.flushed = max(ledger.flushed, log.flushed_offset)
        ledger.start = log.log_start_offset
        if not log.is_offline:
            ledger.start_bound = log.log_start_offset

    def append(self, log: Log) -> None:
        """One batch of an idempotent producer, of one to three records."""
        ledger, random = self.ledger, self.random
        base = log.log_end_offset
        records = [
            Record(
                base + index,
                EPOCH_MS + self.clock.now_ms + random.below(500),
                None if random.chance(0.2) else b"key-%d" % random.below(5),
                b"value-%d-" % (base + index) + b"x" * random.below(60),
            )
            for index in range(1 + random.below(3))
        ]
        for record in records:
            ledger.values[record.offset] = (record.timestamp, record.key, record.value)
        data = build_batch(
            records,
            codec=Codec(random.below(5)),
            producer_id=PRODUCER_ID,
            producer_epoch=0,
            base_sequence=ledger.sequence,
        )
        sent = bytearray(data)
        patch(sent, 0, base_offset=0, leader_epoch=-1)
        info = log.append(sent, leader_epoch=ledger.epoch, now_ms=self.clock.wall_ms())
        require(2, (info.first_offset, info.duplicate) == (base, False), f"{log}: appended at {info}, {base} expected")
        ledger.sequence += len(records)
        ledger.appended = log.log_end_offset

    def crash_at(self, number: int, *, power_cut: bool, done: int = 0) -> bool:
        """Runs until the change of that number, where the process dies; false if the run came to its end.

        `done` is how much of the operation still happens: bytes of a write, 0 or 1 for others.
        """

        self.disk.fault = _at(number, ProcessDeath("killed"), done)
        return self._run_into_fault(power_cut)

    def fail_at(self, number: int, error_number: int, *, power_cut: bool, done: int = 0) -> bool:
        """As `crash_at`, but the disk reports an error; the process sees its directory offline, and is then killed."""
        self.disk.fault = _at(number, OSError(error_number, os.strerror(error_number)), done)
        return self._run_into_fault(power_cut)

    def _run_into_fault(self, power_cut: bool) -> bool:
        try:
            self.run()
        except (ProcessDeath, KafkaError, NoLogDirectory):
            return True
        finally:
            self.disk.fault = None
            self.disk.kill()
            if power_cut:
                self.disk.power_cut()
        return False

    def crash_recovery_at(self, number: int, *, power_cut: bool) -> bool:
        """Starts again and dies at the change of that number; false if the start came to its end before."""
        self.disk.operations = 0
        self.disk.fault = _at(number, ProcessDeath("killed"), 0)
        try:
            self.start()
        except ProcessDeath:
            return True
        finally:
            self.disk.fault = None
            self.disk.kill()
            if power_cut:
                self.disk.power_cut()
        return False

    def check_recovery(self, *, power_cut: bool) -> None:
        """Starts again after a crash, checks every promise, and goes on as if nothing had been."""
        manager = self.start()
        log = manager.get(PARTITION)
        ledger = self.ledger
        survives = ledger.flushed if power_cut else ledger.appended
        if log is None:
            require(1, not (ledger.created or survives), f"the log is gone, {survives} records were promised")
            log = self.create(manager)
        self._check_kept(log, check_log(log), survives)
        ledger.shrink(log.log_end_offset)
        # The producer asks again from where the log stands, as after a bounce of its connection.
        entry = log.producers.entries.get(PRODUCER_ID)
        ledger.sequence = 0 if entry is None else entry.last_sequence + 1
        ledger.epoch = max(ledger.epoch, log.epochs.latest) + 1
        log.update_high_watermark(log.log_end_offset)
        for number in range(2):
            self.round(manager, log, number)
        self._check_kept(log, check_log(log), ledger.appended)
        manager.close()

    def _check_kept(self, log: Log, batches: list[Batch], survives: int) -> None:
        ledger = self.ledger
        require(1, log.log_end_offset >= survives, f"{log} ends before {survives}, which was promised")
        bound = ledger.start_bound
        require(1, log.log_start_offset <= bound, f"{log} begins after {bound}, which no retention asked for")
        require(
            6,
            log.log_start_offset >= ledger.start_durable,
            f"{log} begins before {ledger.start_durable}, where its checkpoint said that it begins",
        )
        found = {
            record.offset: (record.timestamp, record.key, record.value)
            for batch in batches
            for record in batch.records
            if record.offset >= log.log_start_offset
        }
        for offset in range(max(log.log_start_offset, ledger.start), log.log_end_offset):
            require(1, offset in found, f"{log}: offset {offset} is missing")
        for offset, value in found.items():
            require(2, ledger.values.get(offset) == value, f"{log}: offset {offset} shows what was not written there")


def _at(number: int, error: BaseException, done: int) -> FaultPlan:
    def plan(operation: Operation) -> Fault | None:
        return Fault(error, done) if operation.number == number and operation.kind != "read" else None

    return plan


def count_changes(seed: int | str, kind: type[LogScenario] = LogScenario) -> int:
    """How many changes of the disk the scenario makes from beginning to end: as many places to crash."""
    scenario = kind(seed)
    scenario.run()
    return scenario.disk.operations
