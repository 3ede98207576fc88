"""What readers of committed records get is what was committed, whatever happens to the log meanwhile.

Each example lets some producers write in and out of transactions, ends these in any order, moves the high watermark as
slowly as followers do, rolls, deletes and cuts, stops the log cleanly or not, and compares with a list that knows all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings
from tests.amount import examples
from tests.unit.storage.support import NOW_MS, TOPIC_ID, TP, MemoryDisk, batch, marker, open_manager

from tidelog.model.errors import KafkaError
from tidelog.records.aborted_transactions import AbortedTransactions
from tidelog.records.batch import iterate_headers, read_records
from tidelog.storage.log import AppendOrigin, Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_manager import LogManager
from tidelog.storage.tasks import run_now
from tidelog.storage.verification import ONGOING

CONFIG = LogConfig(
    segment_bytes=900,
    segment_index_bytes=240,
    index_interval_bytes=150,
    retention_ms=-1,
    file_delete_delay_ms=0,
)

Step = tuple[str, int, int]
"""What happens, to which producer, and a number that goes with it."""

STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["data", "data", "data", "commit", "abort"]), st.integers(0, 3), st.integers(1, 4)),
        st.tuples(st.sampled_from(["plain", "watermark", "watermark"]), st.just(0), st.integers(1, 6)),
        st.tuples(st.sampled_from(["roll", "stop", "crash", "start", "cut"]), st.just(0), st.integers(1, 12)),
    ),
    min_size=1,
    max_size=60,
)


@dataclass
class Transaction:
    producer: int
    first: int
    end: int | None = None
    """Offset of its marker."""
    committed: bool = False


@dataclass
class Model:
    """All that was written, and what became of it."""

    values: dict[int, tuple[bytes, Transaction | None]] = field(default_factory=dict)
    """[offset] -> value, and the transaction that it belongs to"""
    transactions: list[Transaction] = field(default_factory=list)
    bounds: list[int] = field(default_factory=lambda: [0])
    """Where batches end: the only places for a high watermark."""
    end: int = 0
    high_watermark: int = 0
    start: int = 0

    def open(self, producer: int) -> Transaction | None:
        return next((each for each in self.transactions if each.producer == producer and each.end is None), None)

    def stable(self) -> int:
        unstable = [each.first for each in self.transactions if each.end is None or each.end >= self.high_watermark]
        return max(min([self.high_watermark, *unstable]), self.start)

    def committed(self, offset: int) -> list[tuple[int, bytes]]:
        """What a reader from `offset` on is to get."""
        return [
            (at, value)
            for at, (value, transaction) in sorted(self.values.items())
            if offset <= at < self.stable() and (transaction is None or transaction.committed)
        ]

    def append(self, count: int) -> None:
        self.end += count
        self.bounds.append(self.end)

    def cut(self, offset: int) -> None:
        self.bounds = [bound for bound in self.bounds if bound <= offset]
        self.values = {at: value for at, value in self.values.items() if at < offset}
        self.transactions = [each for each in self.transactions if each.first < offset]
        for each in self.transactions:
            if each.end is not None and each.end >= offset:
                each.end, each.committed = None, False
        self.end = offset


class Life:
    """A log and its model."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.manager, self.log = self._open()
        self.model = Model()
        self.sequences: dict[int, int] = {}

    def _open(self) -> tuple[LogManager, Log]:
        manager = open_manager("/data", disk=self.disk, config=CONFIG)
        return manager, manager.get(TP) or manager.create(TP, TOPIC_ID)

    def do(self, kind: str, producer: int, number: int) -> None:
        model, log = self.model, self.log
        if kind == "data":
            self._append([b"%d" % (model.end + index) for index in range(number)], producer)
        elif kind == "plain":
            self._append([b"%d" % (model.end + index) for index in range(number)], None)
        elif kind in ("commit", "abort"):
            control = marker(producer, commit=kind == "commit")
            log.append(control, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
            transaction = model.open(producer)
            if transaction is not None:
                transaction.end, transaction.committed = model.end, kind == "commit"
            model.append(1)
        elif kind == "watermark":
            ahead = [bound for bound in model.bounds if bound >= model.high_watermark]
            model.high_watermark = ahead[min(number, len(ahead) - 1)]
            log.update_high_watermark(model.high_watermark)
        elif kind == "roll":
            log.roll(NOW_MS)
        elif kind == "start":
            model.start = max(model.start, min(model.high_watermark, model.start + number))
            log.advance_start(model.start)
        elif kind == "cut":
            self._cut(max(model.high_watermark, model.end - number))
        else:
            self._restart(clean=kind == "stop")

    def _append(self, values: list[bytes], producer: int | None) -> None:
        model = self.model
        transaction = None
        fields: dict[str, Any] = {}
        if producer is not None:
            sequence = self.sequences.get(producer, 0)
            fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence, "transactional": True}
            guard = self.log.producers.begin_verification(producer, 0, sequence, NOW_MS, bumps_epochs=False)
            transaction = model.open(producer)
            assert (guard is ONGOING) == (transaction is not None)
            if transaction is None:
                transaction = Transaction(producer, model.end)
                model.transactions.append(transaction)
            self.sequences[producer] = sequence + len(values)
        else:
            guard = None
        self.log.append(batch(*values, timestamp=NOW_MS, **fields), leader_epoch=0, now_ms=NOW_MS, guard=guard)
        for index, value in enumerate(values):
            model.values[model.end + index] = (value, transaction)
        model.append(len(values))

    def _cut(self, offset: int) -> None:
        """A batch goes as a whole."""
        try:
            self.log.announce_truncation(offset)
            self.log.truncate_to(offset)
        except KafkaError as error:
            raise AssertionError(error) from error
        while self.log.truncation_is_pending:
            for task in self.manager.maintenance.truncation_tasks():
                run_now(task)
        self.model.cut(self.log.log_end_offset)
        assert self.model.end in self.model.bounds
        self._look_at_producers()

    def _restart(self, *, clean: bool) -> None:
        for task in self.manager.maintenance.checkpoint_tasks():
            run_now(task)
        self.manager.close() if clean else self.manager.abandon()
        self.manager, self.log = self._open()
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.model.start, self.model.end)
        self._look_at_producers()

    def _look_at_producers(self) -> None:
        """They may have been rebuilt from what is left of the log: what was deleted is not known any more."""
        for producer in range(4):
            entry = self.log.producers.entries.get(producer)
            self.sequences[producer] = 0 if entry is None or not entry.batches else entry.last_sequence + 1
            opened = self.model.open(producer)
            if opened is not None and opened.first < self.model.start:
                first = -1 if entry is None else entry.transaction_first_offset
                if first < 0:
                    self.model.transactions.remove(opened)
                else:
                    opened.first = first

    def check(self, offset: int) -> None:
        log, model = self.log, self.model
        assert log.high_watermark == model.high_watermark
        assert log.last_stable_offset == model.stable()
        assert self.read(offset) == model.committed(offset)

    def read(self, offset: int) -> list[tuple[int, bytes]]:
        """As a client reads: a little at a time, each time with the list of what is to be dropped in it."""
        found: list[tuple[int, bytes]] = []
        position, limit = offset, self.log.last_stable_offset
        while position < limit:
            result = self.log.read(position, 250, up_to_offset=limit)
            aborted = self.log.aborted_in(position, result, up_to_offset=limit)
            data = b"".join(part.read() for part in result.ranges)
            for part in result.ranges:
                part.release()
            skipping = AbortedTransactions([(each.producer_id, each.first_offset) for each in aborted])
            before = position
            for at, header in iterate_headers(data):
                skipped = skipping.skips(data, at, header)
                if not skipped and not header.is_control:
                    found += [
                        (record.offset, record.value or b"")
                        for record in read_records(data, at)
                        if record.offset >= offset
                    ]
                position = header.next_offset
            assert position > before, "a read of committed records does not stand still below the last stable offset"
        return found


@given(steps=STEPS, data=st.data())
@settings(max_examples=examples(600), deadline=None)
def test_committed_reads_are_what_was_committed(steps: list[Step], data: st.DataObject) -> None:
    """After every step, from any offset: the last stable offset, the records, and no more of them."""
    life = Life()
    for kind, producer, number in steps:
        life.do(kind, producer, number)
        life.check(data.draw(st.integers(life.model.start, life.model.end), label="read from"))
    life.manager.abandon()
