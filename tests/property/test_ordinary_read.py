"""The compiled read against the general one: of logs in the same state both give the same ranges and errors, and leave
the same behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.amount import examples
from tests.property.logs_side_by_side import HAPPENINGS, REFUSAL, Planned, Side, step_both

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.records.batch import Codec
from tidelog.storage import readable_log
from tidelog.storage.errors import WouldBlock
from tidelog.storage.integrity import TRUSTED_MS
from tidelog.storage.ordinary_read import read_ordinary

pytestmark = pytest.mark.skipif(
    read_ordinary is None,
    reason="the compiled read was not built (it needs a C compiler): there is nothing to compare",
)

PLACES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(Planned):
    """Batches that are appended."""

    gap: int = 0
    """Offsets left out before it, as compaction leaves them."""
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One read of the log."""

    place: int = 0
    """Of the offset: how far, in `PLACES`, on the way from one before the log's start to one behind its end."""
    max_bytes: int = 1 << 20
    hidden: int = 0
    """Offsets at the log's end that the reader may not see."""
    min_one_batch: bool = True
    checked: bool = True
    blocking: bool = False


ROOMY = {"segment_bytes": 1 << 20, "segment_index_bytes": 8_000}
"""Settings of a log whose batches all fit into one segment."""
WRITTEN = st.builds(
    Written,
    count=st.sampled_from([1, 1, 2, 5]),
    size=st.sampled_from([0, 1, 20, 100, 400, 9_000]),
    codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4]),
    gap=st.sampled_from([0] * 12 + [1, 40]),
    times=st.sampled_from([1, 1, 3, 12]),
)
READS = st.builds(
    Read,
    place=st.integers(0, PLACES),
    max_bytes=st.sampled_from([1 << 20, 1 << 20, 2_000, 300, 90, 61, 1, 0]),
    hidden=st.sampled_from([0, 0, 0, 0, 1, 3, 30]),
    min_one_batch=st.sampled_from([True, True, False]),
    checked=st.sampled_from([True, True, True, False]),
    blocking=st.sampled_from([False] * 5 + [True]),
)
STEPS = st.one_of(
    READS,
    READS,
    READS,
    READS,
    WRITTEN,
    WRITTEN,
    st.sampled_from([{}, ROOMY, {"cleanup_policy": frozenset({"compact"})}]),
    st.tuples(st.just("rot"), st.integers(0, 10_000)),
    st.tuples(st.just("start"), st.integers(0, 10)),
    st.tuples(st.just("cold"), st.sampled_from([0, 0, 1])),
    st.tuples(st.just("later"), st.just(TRUSTED_MS)),
    *(each for each in HAPPENINGS if each is not REFUSAL),  # A log that may not be written is read as any other.
)


class Reader(Side):
    """A log that is read."""

    def __init__(self, read: Callable[..., Any] | None, *, tells_versions: bool) -> None:
        super().__init__()
        self.disk.tells_versions = tells_versions
        self._read_ordinary = read

    def take(self, step: Any) -> Any:
        log = self.log
        if isinstance(step, Read):
            return self._read(step)
        if isinstance(step, Written):
            return [self._write(step) for _ in range(step.times)]
        if isinstance(step, dict):
            return super().take(step)
        kind, amount = step
        if kind == "rot":
            segment = log.segments[amount % len(log.segments)]
            content = self.disk.files.get(segment.log_file.path)
            if content and segment.size:
                content[amount % segment.size] ^= 1
        elif kind == "start":
            log.update_high_watermark(log.log_end_offset)
            log.advance_start(min(log.log_start_offset + amount, log.log_end_offset))
        elif kind == "cold":
            self.disk.is_cold = bool(amount)
        else:
            return super().take(step)
        return None

    def _write(self, written: Written) -> Any:
        data = written.make(self.clock.now_ms, -1)
        data[:8] = (self.log.log_end_offset + written.gap).to_bytes(8, "big")
        data[12:16] = self.leader_epoch.to_bytes(4, "big")
        return self.log.append_as_follower(memoryview(data), leader_epoch=self.leader_epoch, now_ms=self.clock.now_ms)

    def _read(self, read: Read) -> Any:
        log = self.log
        lowest, highest = log.log_start_offset - 1, log.log_end_offset + 1
        offset = lowest + (highest - lowest) * read.place // PLACES
        readable_log.read_ordinary = self._read_ordinary
        try:
            found = log.read(
                offset,
                read.max_bytes,
                up_to_offset=max(log.log_end_offset - read.hidden, 0),
                min_one_batch=read.min_one_batch,
                blocking=read.blocking,
                checked=read.checked,
            )
        except WouldBlock:
            return "would block"
        except KafkaError as error:
            return error.code, str(error)
        finally:
            readable_log.read_ordinary = read_ordinary
        segment = None if found.segment is None else found.segment.base_offset
        ranges = [(each.file.path, each.position, each.size) for each in found.ranges]
        held = log.folder.environment.pool.held_count
        for each in found.ranges:
            each.release()
        return ranges, found.size, found.first_batch_size, segment, held

    def state(self) -> dict[str, Any]:
        log, state = self.log, super().state()
        # The compiled read opens the log's file before its index.
        state["operations"] = [each for each in self.disk.operations if each[0] != "open"]
        state["held"] = log.folder.environment.pool.held_count
        state["ahead"] = None if log.ahead is None else (log.ahead[0].base_offset, log.ahead[1])
        state["checks"] = [(each.base_offset, each.verified, dict(each.rotten)) for each in log.segments]
        state["rot"] = {base_offset: (rot.offset, rot.flaw) for base_offset, rot in log.rot.items()}
        return state


def both(*, tells_versions: bool) -> tuple[Reader, Reader]:
    return Reader(read_ordinary, tells_versions=tells_versions), Reader(None, tells_versions=tells_versions)


@settings(max_examples=examples(1000))
@given(steps=st.lists(STEPS, min_size=1, max_size=30), tells_versions=st.booleans())
def test_both_reads_give_the_same(steps: list[Any], tells_versions: bool) -> None:
    """Whatever the log holds, and whatever became of its files: which read was used cannot be told."""
    step_both(*both(tells_versions=tells_versions), [Written(times=12), *steps])


SMALL = Written(times=40)
SEVERAL = Written(count=5, size=100, times=12)
LARGE = Written(size=9_000, count=2, times=6)
SPARSE = Written(count=2, gap=3, times=15)
SHAPES = [[SMALL], [SEVERAL], [ROOMY, LARGE], [ROOMY, LARGE, SMALL, LARGE], [SPARSE]]


@pytest.mark.parametrize("tells_versions", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_both_reads_give_the_same_from_each_offset(shape: list[Any], tells_versions: bool) -> None:
    """With a part of the log hidden, and without, and for every kind of bound: also where no batch is remembered."""
    compiled, general = both(tells_versions=tells_versions)
    for step in [*shape, ("restart", 0)]:
        assert compiled.step(step) == general.step(step)
    end = compiled.log.log_end_offset
    for offset in range(end + 1):
        for read in (
            Read(),
            Read(hidden=1 + offset % 7),
            Read(hidden=end // 2),
            Read(max_bytes=100),
            Read(max_bytes=100, min_one_batch=False),
            Read(max_bytes=20_000, checked=False),
        ):
            wanted = replace(read, place=place_of(offset, end))
            assert compiled.step(wanted) == general.step(wanted)
        assert compiled.state() == general.state()
    compiled.manager.abandon()
    general.manager.abandon()


def place_of(offset: int, end: int) -> int:
    """The least `place` of a read of `offset`, in a log from 0 to `end`."""
    return -(-PLACES * (offset + 1) // (end + 2))


@pytest.mark.parametrize(
    "happening", [("rot", 40), ("rot", 1_200), ("later", TRUSTED_MS), ("truncate", 6), ("start", 9), ("roll", 0)]
)
@pytest.mark.parametrize("shape", SHAPES)
def test_both_reads_know_what_has_become_of_a_log(shape: list[Any], happening: tuple[str, int]) -> None:
    """What was checked, or looked up, is not trusted for longer than it is true."""
    reads = [Read(place=PLACES * part // 5, max_bytes=10_000) for part in range(6)]
    checks = [replace(read, blocking=True) for read in reads]
    steps = [*shape, ("restart", 0), *checks, *reads, happening, *reads, SMALL, *reads, *checks, *reads]
    step_both(*both(tells_versions=True), steps)


@pytest.mark.parametrize("flag", ["is_released", "is_replaced", "is_deleted"])
def test_both_reads_refuse_what_is_no_more(flag: str) -> None:
    sides = both(tells_versions=True)
    for side in sides:
        side.step(SMALL)
        setattr(side.log.owner if flag == "is_released" else side.log.folder, flag, True)
    compiled, general = (side.step(Read(place=PLACES // 2)) for side in sides)
    assert compiled == general
    assert isinstance(compiled[0], ErrorCode)
    for side in sides:
        side.manager.abandon()


@pytest.mark.parametrize("shape", SHAPES[:-1])
@pytest.mark.parametrize("max_bytes", [1 << 20, 500, 61])
def test_what_is_ordinary_is_read_by_the_compiled_one(shape: list[Any], max_bytes: int) -> None:
    """From every offset, in the page cache and checked before: the general read is not needed."""
    assert read_ordinary is not None
    taken = []

    def counting(*arguments: Any) -> Any:
        taken.append(read_ordinary(*arguments))
        return taken[-1]

    reader = Reader(counting, tells_versions=True)
    for step in [*shape, ("restart", 0)]:
        reader.step(step)
    end = reader.log.log_end_offset
    for offset in range(end):
        reader.step(Read(place=place_of(offset, end), blocking=True))
        reader.step(Read(place=place_of(offset, end), max_bytes=max_bytes))
    assert len(taken) == end
    assert None not in taken
    reader.manager.abandon()
