"""A share partition against a model of one entry a record: states, locks, counts, what is stored, the start offset."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amount import examples

from tidelog.model.errors import KafkaError
from tidelog.sharing.partition import Acknowledgement, ReadBatch, SharePartition
from tidelog.sharing.records import RecordState, StateBatch, combine
from tidelog.sharing.runs import Change
from tidelog.sharing.settings import ShareSettings

LOCK_MS = 100
LIMIT = 3
LOCKS_MAX = 12
MEMBERS = ("a", "b", "c")


@dataclass
class Known:
    """What the model knows of a record."""

    state: RecordState = RecordState.AVAILABLE
    count: int = 0
    member: str = ""
    deadline_ms: int = 0
    is_under_way: bool = False


class Model:
    """A share partition beside its model; changes are written or fail, in any order."""

    def __init__(self) -> None:
        self.settings = ShareSettings(
            record_lock_duration_ms=LOCK_MS, delivery_count_limit=LIMIT, partition_max_record_locks=LOCKS_MAX
        )
        self.partition = SharePartition(0, (), self.settings)
        self.records: dict[int, Known] = {}
        self.stored: dict[int, tuple[int, RecordState]] = {}
        self.under_way: list[tuple[Change, dict[int, Known]]] = []
        self.log = [ReadBatch(n * 4, n * 4 + 3) for n in range(12)]
        self.log[3] = self.log[3]._replace(is_deliverable=False)
        del self.log[6]
        self.now_ms = 0

    def acquire(self, member: str, records_max: int, is_strict: bool) -> None:
        offset = self.partition.next_fetch_offset
        can = self.partition.can_acquire(48)
        batches = [batch for batch in self.log if batch.last_offset >= offset]
        before = self.partition.records_in_flight
        got = self.partition.acquire(self.now_ms, member, batches, records_max, is_strict=is_strict, batch_size=4)
        count = sum(each.last_offset - each.first_offset + 1 for each in got)
        assert can or not got
        assert count <= records_max + (0 if is_strict else 3)
        assert before >= LOCKS_MAX or self.partition.records_in_flight < LOCKS_MAX + 4
        for first, last, delivery_count in got:
            for each in range(first, last + 1):
                known = self.records.setdefault(each, Known())
                assert any(
                    batch.first_offset <= each <= batch.last_offset for batch in self.log if batch.is_deliverable
                )
                assert known.state is RecordState.AVAILABLE, "a record is delivered to one member at a time"
                assert not known.is_under_way
                assert known.count + 1 == delivery_count <= LIMIT
                self.records[each] = Known(RecordState.ACQUIRED, delivery_count, member, self.now_ms + LOCK_MS)

    def acknowledge(self, member: str, first: int, types: list[int]) -> None:
        last = first + len(types) - 1
        held = [self.records.get(each) for each in range(max(first, self.partition.start_offset), last + 1)]
        may = all(
            known is not None
            and known.state is RecordState.ACQUIRED
            and not known.is_under_way
            and known.member == member
            for known in held
        )
        try:
            change = self.partition.acknowledge(self.now_ms, member, [Acknowledgement(first, last, types)])
        except KafkaError:
            assert not may
            return
        assert may
        former: dict[int, Known] = {}
        for offset, kind in enumerate(types, first):
            if offset < self.partition.start_offset:
                continue
            known = self.records[offset]
            if kind == 4:
                known.deadline_ms = self.now_ms + LOCK_MS
                continue
            state = {
                0: RecordState.ARCHIVED,
                1: RecordState.ACKNOWLEDGED,
                2: RecordState.AVAILABLE,
                3: RecordState.ARCHIVED,
            }[kind]
            self._begin(offset, state, former)
        self._expect(change, former)

    def end_locks(self, member: str | None) -> None:
        """By time, or because the member's session has ended."""
        former: dict[int, Known] = {}
        for offset, known in self.records.items():
            is_over = known.deadline_ms <= self.now_ms if member is None else known.member == member
            if known.state is RecordState.ACQUIRED and not known.is_under_way and is_over:
                # A session that ends takes the delivery back.
                self._begin(offset, RecordState.AVAILABLE, former, takes_back=member is not None)
        partition = self.partition
        change = partition.time_passed(self.now_ms) if member is None else partition.release(member)
        self._expect(change, former)
        if member is None:
            due_ms = partition.next_due_ms
            assert due_ms is None or due_ms > self.now_ms

    def _begin(self, offset: int, state: RecordState, former: dict[int, Known], *, takes_back: bool = False) -> None:
        known = self.records[offset]
        former[offset] = Known(known.state, known.count, known.member, known.deadline_ms)
        known.count -= takes_back
        if state is RecordState.AVAILABLE and known.count >= LIMIT:
            state = RecordState.ARCHIVED
        known.state, known.is_under_way = state, True

    def _expect(self, change: Change, former: dict[int, Known]) -> None:
        told = {
            offset: (batch.delivery_count, batch.state)
            for batch in change.batches()
            for offset in range(batch.first_offset, batch.last_offset + 1)
        }
        assert told == {offset: (self.records[offset].count, self.records[offset].state) for offset in former}
        if former:
            self.under_way.append((change, former))

    def settle(self, which: int, is_written: bool) -> None:
        if not self.under_way:
            return
        change, former = self.under_way.pop(which % len(self.under_way))
        batches = change.batches()
        if is_written:
            for batch in batches:
                for offset in range(batch.first_offset, batch.last_offset + 1):
                    self.stored[offset] = (batch.delivery_count, RecordState(batch.state))
            self.partition.written(change)
        else:
            self.partition.failed(self.now_ms, change)
        for offset, known in former.items():
            if offset not in self.records:
                continue
            if is_written:
                self.records[offset].is_under_way = False
            else:
                self.records[offset] = known

    def log_start_moved(self, offset: int) -> None:
        self.partition.start_moved(offset)
        self.log = [batch for batch in self.log if batch.last_offset >= offset]

    def check(self) -> None:
        partition = self.partition
        self.records = {offset: known for offset, known in self.records.items() if offset >= partition.start_offset}
        runs = partition.runs
        expected = partition.start_offset
        locked = complete = 0
        for run in runs:
            assert run.first == expected
            assert run.last >= run.first
            expected = run.last + 1
            locked += 0 if run.state.is_terminal else run.length
            complete += run.length if run.state.is_terminal else 0
            for offset in range(run.first, run.last + 1):
                known = self.records.get(offset)
                if known is None:
                    # A gap, or a batch that is not delivered.
                    assert run.state is RecordState.ARCHIVED or run.delivery_count == 0
                    continue
                assert (run.state, run.delivery_count) == (known.state, known.count)
                assert (run.change is not None) == known.is_under_way
                if run.is_locked:
                    assert (run.member, run.deadline_ms) == (known.member, known.deadline_ms)
                    assert partition.next_due_ms is not None
                    assert partition.next_due_ms <= max(run.deadline_ms, self.now_ms)
        assert expected == partition.end_offset
        assert (locked, complete) == (partition.records_in_flight, partition.delivery_complete_count)
        assert not runs or not runs[0].state.is_terminal or runs[0].change is not None
        available = [run.first for run in runs if run.is_available]
        assert partition.next_fetch_offset == (available[0] if available else partition.end_offset)

    def reload(self) -> None:
        """The leader moves: what was stored is all that its successor knows."""
        stored = [
            StateBatch(offset, offset, int(state), count) for offset, (count, state) in sorted(self.stored.items())
        ]
        start = self.partition.start_offset
        self.partition = SharePartition(start, combine((), stored, start), self.settings)
        self.under_way = []
        self.records = {
            offset: Known(state, count)
            for offset, (count, state) in self.stored.items()
            if offset >= self.partition.start_offset
        }


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("acquire"), st.sampled_from(MEMBERS), st.integers(1, 9), st.booleans()),
        st.tuples(
            st.just("acknowledge"),
            st.sampled_from(MEMBERS),
            st.integers(0, 12),
            st.lists(st.integers(0, 4), min_size=1, max_size=8),
        ),
        st.tuples(st.just("settle"), st.integers(0, 9), st.booleans()),
        st.tuples(st.just("release"), st.sampled_from(MEMBERS)),
        st.tuples(st.just("time"), st.integers(1, 120)),
        st.tuples(st.just("start"), st.integers(0, 40)),
        st.tuples(st.just("reload")),
    ),
    min_size=8,
    max_size=60,
)


@settings(max_examples=examples(4000), deadline=None)
@given(STEPS)
def test_a_partition_does_what_its_records_one_by_one_would(steps: list[tuple[object, ...]]) -> None:
    model = Model()
    for what, *arguments in steps:
        match what:
            case "acquire":
                model.acquire(*arguments)  # type: ignore[arg-type]
            case "acknowledge":
                model.acknowledge(*arguments)  # type: ignore[arg-type]
            case "settle":
                model.settle(*arguments)  # type: ignore[arg-type]
            case "release":
                model.end_locks(*arguments)  # type: ignore[arg-type]
            case "time":
                model.now_ms += arguments[0]  # type: ignore[operator]
                model.end_locks(None)
            case "start":
                model.log_start_moved(*arguments)  # type: ignore[arg-type]
            case _:
                model.reload()
        model.check()


BATCHES = st.lists(
    st.builds(
        lambda first, length, state, count: StateBatch(first, first + length, state, count),
        st.integers(0, 20),
        st.integers(0, 8),
        st.sampled_from([0, 2, 4]),
        st.integers(0, 4),
    ),
    max_size=6,
)


@settings(max_examples=examples(300), deadline=None)
@given(BATCHES, BATCHES, st.integers(0, 15))
def test_combined_batches_say_the_highest_of_each_offset(
    known: list[StateBatch], told: list[StateBatch], start: int
) -> None:
    best: dict[int, tuple[int, int]] = {}
    for batch in (*known, *told):
        for offset in range(max(batch.first_offset, start), batch.last_offset + 1):
            best[offset] = max(best.get(offset, (-1, -1)), batch.rank)
    combined = combine(known, told, start)
    assert {
        offset: batch.rank for batch in combined for offset in range(batch.first_offset, batch.last_offset + 1)
    } == best
    for before, after in itertools.pairwise(combined):
        assert before.last_offset < after.first_offset
        assert before.last_offset + 1 < after.first_offset or before.rank != after.rank
