"""Two logs that take the same steps, each on a disk of its own, and the batches that they are sent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import hypothesis.strategies as st
from tests.unit.storage.support import NOW_MS, TP, FaultyMemoryDisk, StandingClock, batch, open_manager

from tidelog.model.errors import KafkaError
from tidelog.records.batch import Codec
from tidelog.records.checksum import crc32c
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig

CONFIG = LogConfig(segment_bytes=4_000, index_interval_bytes=150, segment_index_bytes=96, max_message_bytes=900)


@dataclass(frozen=True, slots=True)
class Flaw:
    """A field of a batch's header that is not as it should be. The checksum is right, unless it is that field."""

    name: str
    place: int
    bits: int

    def put_into(self, data: bytearray) -> None:
        data[self.place] ^= self.bits
        if self.name != "crc":
            data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4, "big")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One batch, as it is made anew for each of the two logs."""

    count: int = 1
    size: int = 20
    codec: Codec = Codec.NONE
    producer: int = -1
    epoch: int = 0
    step: int = 1
    """What its first sequence is ahead of the producer's last; 1 for the next one, 0 and less repeat or go back."""
    time_ms: int = 0
    """Its timestamp less the clock."""
    flaw: Flaw | None = None
    damage: int | None = None
    """The byte that is damaged."""

    def sequence(self, last: int) -> int:
        """Its first one, behind the producer's last; -1 without a producer."""
        return max(0, last + self.step) if self.producer >= 0 else -1

    def make(self, now_ms: int, sequence: int) -> bytearray:
        """The batch, sound but for its base offset and leader epoch."""
        return batch(
            *[bytes(self.size)] * self.count,
            timestamp=now_ms + self.time_ms,
            codec=self.codec,
            producer_id=self.producer,
            producer_epoch=self.epoch if self.producer >= 0 else -1,
            base_sequence=sequence,
        )

    def spoil(self, data: bytearray) -> None:
        """Puts its flaw and its damage into what was made of it."""
        if self.flaw is not None:
            self.flaw.put_into(data)
        if self.damage is not None:
            data[self.damage % len(data)] ^= 1


FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "count": st.sampled_from([1, 1, 1, 2, 5]),
    "size": st.sampled_from([0, 1, 20, 100, 300, 1_000]),
    "codec": st.sampled_from([Codec.NONE, Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD]),
    "producer": st.sampled_from([-1, -1, 7, 7, 7, 8]),
    "epoch": st.sampled_from([0, 0, 0, 0, 1]),
    "step": st.sampled_from([1, 1, 1, 1, 1, 0, -2, 5]),
    "time_ms": st.sampled_from([0, 0, 0, 5, -1_000, -(10**9), 10**9, -NOW_MS - 1]),
    "damage": st.one_of(*[st.none()] * 6, st.integers(0, 100)),
}
"""Of batches of which most are ordinary; each test adds flaws that its log may be sent."""

REFUSAL: st.SearchStrategy[Any] = st.tuples(st.just("refuse"), st.integers(1, 3))
HAPPENINGS: tuple[st.SearchStrategy[Any], ...] = (
    st.tuples(st.just("epoch"), st.integers(0, 2)),
    st.tuples(st.just("later"), st.sampled_from([1, 600, 5_000])),
    st.tuples(st.just("truncate"), st.integers(0, 6)),
    st.tuples(st.just("flush"), st.just(0)),
    st.tuples(st.just("restart"), st.just(0)),
    st.tuples(st.just("roll"), st.just(0)),
    REFUSAL,
)
"""Steps of a log beside what it is sent."""


class Side:
    """One log on a disk of its own. Subclasses append to it in their way, by steps of their own."""

    def __init__(self) -> None:
        self.disk = FaultyMemoryDisk()
        self.clock = StandingClock()
        self.manager = open_manager("/logs", disk=self.disk, clock=self.clock, config=CONFIG)
        self.log: Log = self.manager.create(TP, None)
        self.leader_epoch = 0
        self.log.assign_epoch(0)

    def step(self, step: Any) -> Any:
        """What came of it, as the other side's is to be."""
        try:
            return self.take(step)
        except KafkaError as error:
            return error.code, str(error)

    def take(self, step: Any) -> Any:
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
            self.disk.refuse_batches(amount)
        else:
            self.manager.close()
            self.manager = open_manager("/logs", disk=self.disk, clock=self.clock, config=CONFIG)
            found = self.manager.get(TP)
            assert found is not None
            self.log = found
        return None

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


def step_both(compiled: Side, general: Side, steps: list[Any]) -> None:
    """Takes each step on both sides: outcome and state are the same."""
    for step in steps:
        assert compiled.step(step) == general.step(step)
        assert compiled.state() == general.state()
    compiled.manager.abandon()
    general.manager.abandon()
