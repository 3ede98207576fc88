"""What the Spark source reads from a broker's files is what it would get from the broker.

Each example lets producers write in and out of transactions, rolls, deletes, compacts, and then reads a range from the
files. In the second test all of that goes on while they are read: reader and writer take turns at every operation on
the disk, in an order that a seed draws. What the files lack comes from the log, as it would from a broker.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.amount import examples
from tests.property.test_transactions_in_log import CONFIG, Life, Model, Transaction
from tests.unit.storage.support import NOW_MS, TOPIC_ID, TP, FaultyMemoryDisk, StandingClock, batch, open_manager

from pyspark_tidelog.segments.directories import folders_of, log_directories
from pyspark_tidelog.segments.pieces import Missing, Piece, read_parts
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.ports.disk import File
from tidelog.records.batch import iterate_headers, read_records
from tidelog.records.compression import Codec
from tidelog.storage.cleaner.settings import CleanerSettings
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_manager import LogManager
from tidelog.storage.log_manager_settings import LogManagerSettings
from tidelog.storage.tasks import run_now
from tidelog.storage.verification import ONGOING

COMPACTED = LogConfig(
    segment_bytes=900,
    segment_index_bytes=240,
    index_interval_bytes=150,
    retention_ms=-1,
    file_delete_delay_ms=0,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.01,
    delete_retention_ms=0,
)
SETTINGS = LogManagerSettings(cleaner=CleanerSettings(io_buffer_bytes=600, slice_bytes=1, dedupe_buffer_bytes=24 * 64))

Step = tuple[str, int, int]
Row = tuple[int, bytes]

STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["data", "data", "data", "commit", "abort"]), st.integers(0, 3), st.integers(1, 4)),
        st.tuples(st.sampled_from(["plain", "plain", "watermark", "watermark"]), st.just(0), st.integers(1, 9)),
        st.tuples(st.sampled_from(["roll", "start", "maintain", "clean"]), st.just(0), st.integers(1, 12)),
    ),
    min_size=10,
    max_size=60,
)


class WrittenLog(Life):
    """A log that is written to, and a model of what was written."""

    def __init__(self, config: LogConfig) -> None:
        self.config = config
        self.clock = StandingClock()
        self.watched = FaultyMemoryDisk()
        self.manager, self.log = self._open()
        self.model = Model()
        self.sequences = {}

    def _open(self) -> tuple[LogManager, Log]:
        manager = open_manager("/data", disk=self.watched, config=self.config, clock=self.clock, settings=SETTINGS)
        manager.keep_properties()
        return manager, manager.get(TP) or manager.create(TP, TOPIC_ID)

    def do(self, kind: str, producer: int, number: int) -> None:
        if kind == "maintain":
            self.checkpoint()
            self.log.delete_old_segments(self.clock.now_ms)
            self.clock.now_ms += 60_000
            self.manager.maintenance.run_due(self.clock.monotonic_ms())
        elif kind == "clean":
            self.manager.cleaner.run_due()
        else:
            super().do(kind, producer, number)

    def checkpoint(self) -> None:
        for task in self.manager.maintenance.checkpoint_tasks():
            run_now(task)

    def _append(self, values: list[bytes], producer: int | None) -> None:
        """As in `Life`, with keys of which compaction finds some again, and now and then compressed."""
        model = self.model
        transaction, guard = None, None
        fields: dict[str, Any] = {"codec": Codec.GZIP if model.end % 5 == 0 else Codec.NONE}
        if producer is not None:
            sequence = self.sequences.get(producer, 0)
            fields |= {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence, "transactional": True}
            guard = self.log.producers.begin_verification(producer, 0, sequence, NOW_MS, bumps_epochs=False)
            transaction = model.open(producer)
            if guard is not ONGOING:
                transaction = Transaction(producer, model.end)
                model.transactions.append(transaction)
            self.sequences[producer] = sequence + len(values)
        key = b"key-%d" % (model.end % 3)
        self.log.append(batch(*values, timestamp=NOW_MS, key=key, **fields), leader_epoch=0, now_ms=NOW_MS, guard=guard)
        for index, value in enumerate(values):
            model.values[model.end + index] = (value, transaction)
        model.append(len(values))

    def by_broker(self, start: int, end: int, *, committed: bool) -> list[Row]:
        """What a client that tolerates losses gets of a range."""
        start = max(start, self.log.log_start_offset)
        if committed:
            return [row for row in self.read(start) if row[0] < end]
        return [row for row in self._uncommitted(start, end) if start <= row[0] < end]

    def _uncommitted(self, start: int, end: int) -> Iterator[Row]:
        position = start
        while position < end:
            try:
                result = self.log.read(position, 400, up_to_offset=self.log.high_watermark)
            except KafkaError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                return
            data = b"".join(part.read() for part in result.ranges)
            for part in result.ranges:
                part.release()
            if not data:
                return
            for at, header in iterate_headers(data):
                if not header.is_control:
                    yield from ((each.offset, each.value or b"") for each in read_records(data, at))
                position = header.next_offset


def rows_of(piece: Piece) -> list[Row]:
    return [
        (record.offset, record.value or b"")
        for position, header in iterate_headers(piece.records)
        if not header.is_control
        and not (piece.aborted is not None and piece.aborted.skips(piece.records, position, header))
        for record in read_records(piece.records, position)
        if piece.start <= record.offset < piece.end
    ]


def by_files(life: WrittenLog, disk: Any, start: int, end: int, *, committed: bool) -> tuple[list[Row], int]:
    """A range from the files, with what these lack from the log; how many rows the files had."""
    folders = folders_of(disk, log_directories(disk, ["/data"]), TP)
    rows: list[Row] = []
    of_files = 0
    position = start
    for part in read_parts(disk, folders, start, end, committed=committed):
        assert part.start == position < part.end, "the parts of a range follow each other"
        position = part.end
        if isinstance(part, Missing):
            rows += life.by_broker(part.start, part.end, committed=committed)
        else:
            found = rows_of(part)
            of_files += len(found)
            rows += found
    assert position == end or start == end
    return rows, of_files


def end_of(life: WrittenLog, *, committed: bool) -> int:
    return int(life.log.last_stable_offset if committed else life.log.high_watermark)


@pytest.mark.parametrize("config", [CONFIG, COMPACTED], ids=["deleted", "compacted"])
@given(steps=STEPS, committed=st.booleans(), data=st.data())
@settings(max_examples=examples(400), deadline=None)
def test_files_have_what_the_broker_gives(
    config: LogConfig, steps: list[Step], committed: bool, data: st.DataObject
) -> None:
    """Of any range, equal rows; and once the high watermark is on disk, all of them from the files."""
    life = WrittenLog(config)
    for kind, producer, number in steps:
        life.do(kind, producer, number)
    end = end_of(life, committed=committed)
    start = data.draw(st.integers(life.log.log_start_offset, end), label="read from")
    until = data.draw(st.integers(start, end), label="read to")
    expected = life.by_broker(start, until, committed=committed)
    assert by_files(life, life.watched, start, until, committed=committed)[0] == expected
    life.checkpoint()
    found, of_files = by_files(life, life.watched, start, until, committed=committed)
    assert found == expected
    if config is CONFIG:
        assert of_files == len(expected)
    life.manager.abandon()


class Turns:
    """Two threads of which one runs at a time; they change over where a seed says so."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._turn = threading.Condition()
        self._reads = False
        self._is_over = False

    def writer_passes(self, _operation: str, _path: str) -> None:
        """The writer is about to do something to the disk: the reader may come first."""
        if not self._is_over and self._random.random() < 0.3:
            self._give(reads=True)

    def reader_passes(self) -> None:
        if self._random.random() < 0.5:
            self._give(reads=False)

    def _give(self, *, reads: bool) -> None:
        with self._turn:
            self._reads = reads
            self._turn.notify_all()
            assert self._turn.wait_for(lambda: self._reads is not reads or self._is_over, timeout=60)

    def read(self, work: Callable[[], None]) -> threading.Thread:
        """A thread that works when it is its turn."""

        def run() -> None:
            with self._turn:
                assert self._turn.wait_for(lambda: self._reads or self._is_over, timeout=60)
            try:
                work()
            finally:
                with self._turn:
                    self._is_over, self._reads = True, False
                    self._turn.notify_all()

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def writer_is_done(self) -> None:
        with self._turn:
            self._is_over = True
            self._turn.notify_all()


class ReadersDisk:
    """What a reader sees of the disk; every look is a chance for the writer."""

    def __init__(self, life: WrittenLog, turns: Turns) -> None:
        self._disk = life.watched
        self._turns = turns

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        self._turns.reader_passes()
        assert (create, read_only) == (False, True), "a reader writes nothing"
        return ReadersFile(super(FaultyMemoryDisk, self._disk).open(path), self._turns)  # type: ignore[return-value]

    def read(self, path: str) -> bytes:
        self._turns.reader_passes()
        file = super(FaultyMemoryDisk, self._disk).open(path)
        return file.pread(file.size(), 0)

    def list(self, path: str) -> Sequence[str]:
        self._turns.reader_passes()
        return self._disk.list(path)

    def exists(self, path: str) -> bool:
        self._turns.reader_passes()
        return self._disk.exists(path)


class ReadersFile:
    def __init__(self, file: File, turns: Turns) -> None:
        self._file = file
        self._turns = turns
        self.path = file.path

    def size(self) -> int:
        return self._file.size()

    def pread(self, size: int, offset: int) -> bytes:
        self._turns.reader_passes()
        return self._file.pread(size, offset)

    def close(self) -> None:
        self._file.close()


@pytest.mark.parametrize("config", [CONFIG, COMPACTED], ids=["deleted", "compacted"])
@given(before=STEPS, beside=STEPS, committed=st.booleans(), seed=st.integers(0, 2**32))
@settings(max_examples=examples(400), deadline=None)
def test_a_reader_beside_a_writer_misses_nothing(
    config: LogConfig, before: list[Step], beside: list[Step], committed: bool, seed: int
) -> None:
    """Whatever is written, rolled, deleted or compacted while it reads: no record that was not committed, none twice,
    and each that is still there in the end."""
    life = WrittenLog(config)
    for kind, producer, number in before:
        life.do(kind, producer, number)
    life.checkpoint()
    start, end = int(life.log.log_start_offset), end_of(life, committed=committed)
    turns = Turns(seed)
    rows: list[Row] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            rows.extend(by_files(life, ReadersDisk(life, turns), start, end, committed=committed)[0])
        except BaseException as error:  # Shown by the other thread.
            failed.append(error)

    thread = turns.read(work)
    life.watched.fault = lambda operation, path: turns.writer_passes(operation, path)
    for kind, producer, number in beside:
        life.do(kind, producer, number)
        turns.writer_passes(kind, "")
    turns.writer_is_done()
    thread.join(60)
    life.watched.fault = lambda _operation, _path: None
    if failed:
        raise failed[0]
    offsets = [offset for offset, _ in rows]
    assert offsets == sorted(set(offsets))
    assert all(start <= offset < end for offset in offsets)
    for offset, value in rows:
        known, transaction = life.model.values[offset]
        assert value == known
        assert not committed or transaction is None or transaction.committed
    left = life.by_broker(start, end, committed=committed)
    assert set(left) <= set(rows)
    life.manager.abandon()
