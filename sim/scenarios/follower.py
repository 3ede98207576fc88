"""One follower's log: what the leader sent is appended, and cut again where another leader knows better.

    as `LogScenario`, but appends keep the leader's offsets and epochs, and every third round ends with a truncation: to
    somewhere in the log, to its very beginning, or to a new beginning beyond its end

A truncation that is not durable yet may be undone by a crash: then the old tail is there as a whole, or a beginning of
it. Once it is durable nothing of what was cut off may ever be seen again, and never may the two be mixed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from sim.checks.log_checks import Batch
from sim.invariants import require
from sim.scenarios.log import LogScenario
from sim.world.clock import EPOCH_MS
from tidelog.records.batch import Codec, build_batch, patch
from tidelog.records.record import Record
from tidelog.storage.log import Log
from tidelog.storage.log_manager import LogManager
from tidelog.storage.tasks import run_now

_PRODUCERS: Final = 3
_Values = dict[int, tuple[int, bytes | None, bytes | None]]


@dataclass(slots=True)
class Lineage:
    """What the log holds as one leader has it."""

    values: _Values
    begins: int
    """Where the records begin that no earlier lineage has."""
    starts: list[int] = field(default_factory=list)
    """Where its batches begin."""


class FollowerScenario(LogScenario):
    """A disk, and a follower's processes that follow one another on it."""

    def __init__(self, seed: int | str) -> None:
        super().__init__(seed)
        self.lineages = [Lineage({}, 0)]
        """Those that a crash may leave: the last one, and earlier ones whose end is not durable."""
        self.sequences: dict[int, int] = {}

    def create(self, manager: LogManager) -> Log:
        log = super().create(manager)
        log.begin_following()
        return log

    def round(self, manager: LogManager, log: Log, number: int) -> None:
        super().round(manager, log, number)
        if number % 3 == 2:
            self.truncate(manager, log)

    def append(self, log: Log) -> None:
        """One batch of the leader's, of one to three records, mostly of an idempotent producer."""
        ledger, random = self.ledger, self.random
        base = log.log_end_offset
        lineage = self.lineages[-1]
        records = [
            Record(
                base + index,
                EPOCH_MS + self.clock.now_ms + random.below(500),
                None,
                b"value-%d-%d-" % (base + index, ledger.epoch) + b"x" * random.below(60),
            )
            for index in range(1 + random.below(3))
        ]
        for record in records:
            lineage.values[record.offset] = (record.timestamp, record.key, record.value)
        lineage.starts.append(base)
        producer = random.below(_PRODUCERS + 1)
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + len(records)
        data = build_batch(
            records,
            codec=Codec(random.below(5)),
            producer_id=producer if producer < _PRODUCERS else -1,
            producer_epoch=0 if producer < _PRODUCERS else -1,
            base_sequence=sequence if producer < _PRODUCERS else -1,
        )
        sent = bytearray(data)
        patch(sent, 0, base_offset=base, leader_epoch=ledger.epoch)
        log.append_as_follower(sent, leader_epoch=ledger.epoch)
        ledger.appended = log.log_end_offset

    def truncate(self, manager: LogManager, log: Log) -> None:
        """A new leader, whose log parts from ours somewhere; then all that a fetcher does before it goes on."""
        ledger, random, old = self.ledger, self.random, self.lineages[-1]
        end: int = log.log_end_offset
        places = [start for start in old.starts if log.log_start_offset <= start < end]
        ledger.epoch += 1
        if random.chance(0.15):
            offset = end + 3
            log.announce_truncation(log.log_start_offset)
            self._settle(manager, log)
            self._part(offset, {})
            log.truncate_fully(offset)
        elif places:
            offset = places[0] if random.chance(0.2) else places[random.below(len(places))]
            log.announce_truncation(offset)
            self._settle(manager, log)
            self._part(offset, {one: value for one, value in old.values.items() if one < offset})
            log.truncate_to(offset)
        else:
            return
        if random.chance(0.3):
            # The follower becomes the leader before the cut is durable, and does not wait for it.
            self.append(log)
            self.append(log)
        self._settle(manager, log)
        if log.is_offline:
            return
        self.lineages = self.lineages[-1:]
        ledger.start = ledger.start_durable = ledger.start_bound = log.log_start_offset

    def _settle(self, manager: LogManager, log: Log) -> None:
        """What the disk has to do for a truncation."""
        while log.truncation_is_pending and not log.is_offline:
            for task in manager.maintenance.truncation_tasks():
                run_now(task)

    def _part(self, offset: int, values: _Values) -> None:
        """Nothing is promised any more from where the lineages part."""
        ledger, old = self.ledger, self.lineages[-1]
        self.lineages.append(Lineage(values, offset, [start for start in old.starts if start < offset]))
        ledger.flushed = 0 if offset > ledger.appended else min(ledger.flushed, offset)
        ledger.appended = 0 if offset > ledger.appended else min(ledger.appended, offset)
        ledger.start = ledger.start_durable = min(ledger.start, offset)
        ledger.start_bound = max(ledger.start_bound, offset)

    def _check_kept(self, log: Log, batches: list[Batch], survives: int) -> None:
        """The log is a beginning of a lineage that a crash may leave, and has what was promised."""
        require(1, log.log_end_offset >= survives, f"{log} ends before {survives}, which was promised")
        require(1, log.log_start_offset <= self.ledger.start_bound, f"{log} begins after {self.ledger.start_bound}")
        found = {
            record.offset: (record.timestamp, record.key, record.value)
            for batch in batches
            for record in batch.records
            if record.offset >= log.log_start_offset
        }
        require(1, len(found) == log.log_end_offset - log.log_start_offset, f"{log} has gaps: {sorted(found)}")
        fitting = [
            lineage
            for lineage in self.lineages
            if all(lineage.values.get(offset) == value for offset, value in found.items())
        ]
        require(2, bool(fitting), f"{log} mixes what two leaders wrote, or has what was cut off")
        self.lineages = fitting[-1:]
        lineage = self.lineages[0]
        lineage.values = {offset: value for offset, value in lineage.values.items() if offset < log.log_end_offset}
        lineage.starts = [header.base_offset for header, _, _ in batches]
        log.begin_following()
