"""A log against a list: whatever is appended, cut, rolled, deleted and reopened, it holds what the list holds."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.amount import examples
from tests.unit.storage.support import NOW_MS, TP, StandingClock, batch, open_manager, read_all

from tidelog.records.batch import Codec, iterate_headers
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_manager import LogManager
from tidelog.storage.segment import Segment

CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=150, retention_ms=-1, file_delete_delay_ms=0)


class LogMachine(RuleBasedStateMachine):
    """The model is a list of batches: base offset, values, leader epoch."""

    manager: LogManager
    log: Log

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="tidelog-log-"))
        self.batches: list[tuple[int, list[bytes], int]] = []
        self.start = 0
        self.epoch = 0
        self.clock = StandingClock()

    @initialize()
    def create(self) -> None:
        self._open()
        self.log = self.manager.create(TP, None)

    def _open(self) -> None:
        self.manager = open_manager(self.root, clock=self.clock, config=CONFIG)
        found = self.manager.get(TP)
        if found is not None:
            self.log = found

    @property
    def end(self) -> int:
        if not self.batches:
            return self.model_end
        base, values, _ = self.batches[-1]
        return base + len(values)

    model_end = 0

    @rule(
        values=st.lists(st.binary(max_size=200), min_size=1, max_size=5),
        codec=st.sampled_from(list(Codec)),
        newer=st.booleans(),
        count=st.integers(1, 4),
    )
    def append(self, values: list[bytes], codec: Codec, newer: bool, count: int) -> None:
        self.epoch += newer
        for _ in range(count):
            offset = self.end
            info = self.log.append(
                batch(*values, timestamp=NOW_MS + offset, codec=codec), leader_epoch=self.epoch, now_ms=NOW_MS
            )
            assert info.first_offset == offset
            self.batches.append((offset, values, self.epoch))

    @precondition(lambda self: any(base >= self.start for base, _, _ in self.batches))
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        """To where a batch begins, as epochs and followers ask for it."""
        offset = data.draw(st.sampled_from([base for base, _, _ in self.batches if base >= self.start]))
        assert self.log.truncate_to(offset)
        self.batches = [one for one in self.batches if one[0] < offset]
        self.model_end = offset

    @rule(fraction=st.floats(0, 1))
    def delete_records(self, fraction: float) -> None:
        offset = self.start + round((self.end - self.start) * fraction)
        self.log.update_high_watermark(self.end)
        self.log.advance_start(offset)
        self.start = max(self.start, offset)
        self.log.delete_old_segments(NOW_MS)

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    @rule()
    def flush(self) -> None:
        self.manager.maintenance.run_due(self.clock.monotonic_ms())

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self.manager.maintenance.run_due(self.clock.monotonic_ms() + 10**7)  # The start offset is in its checkpoint.
        self.manager.close() if clean else self.manager.abandon()
        self._open()

    @precondition(lambda self: bool(self.batches) and self.log.active.size > 0)
    @rule(cut=st.integers(1, 400))
    def tear(self, cut: int) -> None:
        """A crash that leaves only a part of what was written last, above the recovery point."""
        self.manager.maintenance.run_due(self.clock.monotonic_ms() + 10**7)
        self.manager.abandon()
        active = self.log.active
        size = max(0, active.size - cut)
        os.truncate(self.root / "topicone-0" / f"{active.base_offset:020d}.log", size)
        position = 0
        last = self.log.active.base_offset
        lost = [one for one in self.batches if one[0] >= last]
        data = (self.root / "topicone-0" / f"{active.base_offset:020d}.log").read_bytes()
        survivors = {header.base_offset for _, header in iterate_headers(data, position)}
        self.batches = [one for one in self.batches if one not in lost or one[0] in survivors]
        self.model_end = max(self.start, last)
        self._open()
        if self.log.log_end_offset == self.log.log_start_offset:
            self.batches, self.model_end = [], self.log.log_end_offset

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, max(self.end, self.start))
        wanted = [
            (base + index, value)
            for base, values, _ in self.batches
            for index, value in enumerate(values)
            if base + index >= self.start
        ]
        assert [(record.offset, record.value) for record in read_all(log)] == wanted
        epochs = [entry.epoch for entry in log.epochs.entries]
        assert epochs == sorted(set(epochs))
        for base, values, epoch in self.batches:
            if base >= self.start:
                assert log.epochs.epoch_for_offset(base) == epoch, (base, values)

    @invariant()
    def index_points_at_batches(self) -> None:
        if not hasattr(self, "log"):
            return
        for segment in self.log.segments:
            places = {position: header.last_offset for position, header in segment.headers(0)}
            for offset, position in segment.offset_index.entries():
                assert places[position] == offset

    def teardown(self) -> None:
        if hasattr(self, "manager"):
            self.manager.abandon()
        shutil.rmtree(self.root)


TestLog = LogMachine.TestCase
TestLog.settings = settings(
    max_examples=60, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.mark.row("R32")
@given(
    sizes=st.lists(st.integers(1, 400), min_size=1, max_size=60),
    shifts=st.lists(st.integers(-500, 500), min_size=60, max_size=60),
    interval=st.integers(1, 1000),
)
@settings(max_examples=examples(600), deadline=None)
def test_the_index_equals_a_rebuild_by_scan(sizes: list[int], shifts: list[int], interval: int) -> None:
    """Appending one at a time and indexing the whole segment anew give the same bytes."""
    config = LogConfig(index_interval_bytes=interval)
    with tempfile.TemporaryDirectory() as root:
        manager = open_manager(Path(root), config=config)
        log = manager.create(TP, None)
        for size, shift in zip(sizes, shifts, strict=False):
            log.append(batch(b"." * size, timestamp=NOW_MS + shift), leader_epoch=0, now_ms=NOW_MS)
        manager.close()
        folder = Path(root) / "topicone-0"
        written = {path.name: path.read_bytes() for path in folder.glob("*index")}
        segment = Segment(
            manager.pool, str(folder), 0, config, size=(folder / f"{0:020d}.log").stat().st_size, created_ms=0
        )
        segment.rebuild_indexes()
        segment.close()
        assert {path.name: path.read_bytes() for path in folder.glob("*index")} == written
