"""The compiled append against the general one: the same batches leave the same files, state, answers and refusals."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.amount import examples
from tests.unit.storage.support import NOW_MS, TP, FaultyMemoryDisk, StandingClock, batch, open_manager

from tidelog.model.errors import KafkaError
from tidelog.records.batch import Codec, TimestampType
from tidelog.records.checksum import crc32c
from tidelog.storage import log as log_module
from tidelog.storage.log import Log
from tidelog.storage.log_config import LONG_MAX, LogConfig
from tidelog.storage.ordinary import append_ordinary

pytestmark = pytest.mark.skipif(
    append_ordinary is None,
    reason="the compiled append was not built (it needs a C compiler): there is nothing to compare",
)

CONFIG = LogConfig(segment_bytes=4_000, index_interval_bytes=150, segment_index_bytes=96, max_message_bytes=900)


class Sent(NamedTuple):
    """One batch of a client, as it is made anew for each of the two logs."""

    count: int = 1
    size: int = 20
    codec: Codec = Codec.NONE
    producer: int = -1
    epoch: int = 0
    step: int = 1
    """What its first sequence is ahead of the producer's last; 1 for the next one, 0 and less repeat or go back."""
    time_ms: int = 0
    """Its timestamp less the clock."""
    flaw: tuple[str, int, int] | None = None
    """A field of the header that is not as it should be: where, and its bits; the checksum is right."""
    damage: int | None = None
    """The byte that is damaged."""
    offset: int = 0
    """Bytes before it in the buffer that it is sent in."""


FLAWS = (
    ("base offset", 7, 1),
    ("length", 8, 1),
    ("magic", 16, 3),
    ("crc", 17, 1),
    ("timestamp type", 22, 8),
    ("transactional", 22, 16),
    ("control", 22, 32),
    ("delete horizon", 22, 64),
    ("unknown codec", 22, 6),
    ("last offset delta", 26, 1),
    ("base sequence", 53, 128),
    ("producer epoch", 51, 128),
    ("records count", 60, 2),
    ("negative count", 57, 128),
    ("max timestamp", 35, 1),
)

SENT = st.builds(
    Sent,
    count=st.sampled_from([1, 1, 1, 2, 5]),
    size=st.sampled_from([0, 1, 20, 100, 300, 1_000]),
    codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD]),
    producer=st.sampled_from([-1, -1, 7, 7, 7, 8]),
    epoch=st.sampled_from([0, 0, 0, 0, 1]),
    step=st.sampled_from([1, 1, 1, 1, 1, 0, -2, 5]),
    time_ms=st.sampled_from([0, 0, 0, 5, -1_000, -(10**9), 10**9, -NOW_MS - 1]),
    flaw=st.one_of(st.none(), st.none(), st.none(), st.none(), st.sampled_from(FLAWS)),
    damage=st.one_of(st.none(), st.none(), st.none(), st.integers(0, 100)),
    offset=st.sampled_from([0, 0, 3]),
)
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"flush_messages": 3},
    {"compression_type": Codec.LZ4},
    {"message_timestamp_type": TimestampType.LOG_APPEND_TIME},
    {"message_timestamp_before_max_ms": 10_000},
    {"message_timestamp_after_max_ms": LONG_MAX},
    {"cleanup_policy": frozenset({"compact"})},
    {"segment_ms": 500, "segment_jitter_ms": 100},
    {"max_message_bytes": 200},
)
STEPS = st.one_of(
    SENT,
    SENT,
    SENT,
    SENT,
    st.sampled_from(SETTINGS),
    st.tuples(st.just("epoch"), st.integers(0, 2)),
    st.tuples(st.just("later"), st.sampled_from([1, 600, 5_000])),
    st.tuples(st.just("truncate"), st.integers(0, 6)),
    st.tuples(st.just("flush"), st.just(0)),
    st.tuples(st.just("restart"), st.just(0)),
    st.tuples(st.just("roll"), st.just(0)),
    st.tuples(st.just("refuse"), st.integers(1, 3)),
)


class Side:
    """One log on a disk of its own."""

    def __init__(self, append: Callable[..., Any] | None) -> None:
        self._append = append
        self.disk = FaultyMemoryDisk()
        self.clock = StandingClock()
        self.manager = open_manager("/logs", disk=self.disk, clock=self.clock, config=CONFIG)
        self.log: Log = self.manager.create(TP, None)
        self.leader_epoch = 0
        self.log.assign_epoch(0)

    def step(self, step: Any) -> Any:
        """What came of it, as the other side's is to be."""
        try:
            return self._take(step)
        except KafkaError as error:
            return error.code, str(error)

    def _take(self, step: Any) -> Any:
        if isinstance(step, Sent):
            return self._send(step)
        if isinstance(step, dict):
            return self.log.set_config(replace(CONFIG, **step))
        kind, amount = step
        if kind == "epoch":
            self.leader_epoch += amount
        elif kind == "later":
            self.clock.now_ms += amount
        elif kind == "truncate":
            self.log.truncate_to(max(self.log.log_start_offset, self.log.log_end_offset - amount))
        elif kind == "flush":
            self.manager.maintenance.run_due(self.clock.monotonic_ms())
        elif kind == "roll":
            self.log.roll(self.clock.now_ms)
        elif kind == "refuse":
            self._refuse(amount)
        else:
            self.manager.close()
            self.manager = open_manager("/logs", disk=self.disk, clock=self.clock, config=CONFIG)
            found = self.manager.get(TP)
            assert found is not None
            self.log = found
        return None

    def _refuse(self, amount: int) -> None:
        """The next writes find no space; such a log directory stays online."""
        left = amount

        def fault(operation: str, path: str) -> OSError | None:
            nonlocal left
            if operation == "pwrite" and path.endswith(".log") and left:
                left -= 1
                return OSError(errno.ENOSPC, "full", path)
            return None

        self.disk.fault = fault

    def _send(self, sent: Sent) -> Any:
        entry = self.log.producers.entries.get(sent.producer)
        sequence = -1
        if sent.producer >= 0:
            sequence = max(0, (entry.last_sequence if entry is not None else -1) + sent.step)
        data = batch(
            *[bytes(sent.size)] * sent.count,
            timestamp=self.clock.now_ms + sent.time_ms,
            codec=sent.codec,
            producer_id=sent.producer,
            producer_epoch=sent.epoch if sent.producer >= 0 else -1,
            base_sequence=sequence,
        )
        if sent.flaw is not None:
            _, place, bits = sent.flaw
            data[place] ^= bits
            if place != 17:
                data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4, "big")
        if sent.damage is not None:
            data[sent.damage % len(data)] ^= 1
        view = memoryview(bytearray(sent.offset) + data)[sent.offset :]
        log_module.append_ordinary = self._append
        try:
            info = self.log.append(view, leader_epoch=self.leader_epoch, now_ms=self.clock.now_ms)
            return info, bytes(view)
        except KafkaError as error:
            return error.code, str(error), bytes(view)
        finally:
            log_module.append_ordinary = append_ordinary

    def state(self) -> dict[str, Any]:
        """All that an append may change."""
        log, segment = self.log, self.log.active
        return {
            "ends": (log.log_start_offset, log.log_end_offset, log.high_watermark, log.flushed_offset),
            "epochs": log.epochs.entries,
            "positions": list((log._positions or {}).items()),
            "segments": [(each.base_offset, each.size) for each in log.segments],
            "unflushed": (log.unflushed_since_ms, log._is_changed),
            "producers": {id: str(entry) for id, entry in log.producers.entries.items()},
            "unstable": (log.producers.first_unstable_offset, dict(log.producers._open)),
            "active": {
                name: getattr(segment, name)
                for name in (
                    "size",
                    "first_timestamp",
                    "max_timestamp",
                    "max_timestamp_offset",
                    "bytes_since_index_entry",
                    "_is_torn",
                    "_is_unfinished",
                    "_preallocated",
                    "_timestamp_known",
                )
            },
            "held": (log.folder.environment.pool.held_count, log.folder.environment.pool.open_count),
            "offline": log.is_offline,
            "operations": self.disk.operations,
            "files": {path: bytes(content) for path, content in self.disk.files.items()},
        }


@settings(max_examples=examples(600))
@given(steps=st.lists(STEPS, min_size=1, max_size=25))
def test_both_appends_do_the_same(steps: list[Any]) -> None:
    """Whatever is sent, and whatever the log's settings and state, nobody can tell which append has done it."""
    compiled, general = Side(append_ordinary), Side(None)
    for step in [Sent(), *steps]:
        assert compiled.step(step) == general.step(step)
        assert compiled.state() == general.state()
    compiled.manager.abandon()
    general.manager.abandon()


NOT_ORDINARY: tuple[Sent, ...] = (
    *(Sent(producer=7, flaw=flaw) for flaw in FLAWS),
    *(Sent(producer=7, step=step) for step in (0, -1, -2, 2, 5)),
    *(Sent(producer=7, count=2, step=step) for step in (0, -1, 2)),
    Sent(producer=7, epoch=1),
    Sent(producer=8, step=4),
    Sent(damage=80),
    Sent(time_ms=10**9),
    Sent(count=2, codec=Codec.ZSTD, time_ms=10**9),
    Sent(size=1_000),
)


@pytest.mark.parametrize("sent", NOT_ORDINARY)
def test_what_is_not_ordinary_is_judged_as_ever(sent: Sent) -> None:
    """Each way in which a batch may be wrong, or its producer, has the general append's answer."""
    compiled, general = Side(append_ordinary), Side(None)
    for step in [*[Sent(producer=7)] * 7, sent, Sent(producer=7)]:
        assert compiled.step(step) == general.step(step)
        assert compiled.state() == general.state()
    compiled.manager.abandon()
    general.manager.abandon()


def test_a_write_that_fails_leaves_the_batch_as_it_came() -> None:
    """The log's directory fails with the same words, and the buffer may be judged again."""
    compiled, general = Side(append_ordinary), Side(None)
    for step in [Sent(producer=7), Sent(producer=7), ("refuse", 1), Sent(producer=7, count=2), Sent()]:
        assert compiled.step(step) == general.step(step)
        assert compiled.state() == general.state()
    assert compiled.log.is_offline
    compiled.manager.abandon()
    general.manager.abandon()


@pytest.mark.parametrize("sent", [Sent(), Sent(count=5), Sent(codec=Codec.ZSTD), Sent(producer=7), Sent(size=300)])
def test_what_is_ordinary_is_appended_by_the_compiled_one(sent: Sent) -> None:
    """A batch like most, of a producer that is known, does not come by the general path."""
    assert append_ordinary is not None
    taken = []

    def noted(*arguments: Any) -> Any:
        taken.append(append_ordinary(*arguments))
        return taken[-1]

    side = Side(noted)
    for _ in range(8):
        side.step(sent)
    assert [info is not None for info in taken[2:]] == [True] * (len(taken) - 2)
    side.manager.abandon()
