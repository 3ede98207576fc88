"""The compiled append of a follower against the general one: the same answers of a leader leave the same files, state
and refusals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.amount import examples
from tests.property.logs_side_by_side import FIELDS, HAPPENINGS, Flaw, Planned, Side, step_both

from tidelog.model.errors import KafkaError
from tidelog.records.batch import Codec
from tidelog.storage import log as log_module
from tidelog.storage.ordinary import append_followed

pytestmark = pytest.mark.skipif(
    append_followed is None,
    reason="the compiled append was not built (it needs a C compiler): there is nothing to compare",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied(Planned):
    """One batch in what a leader sends."""

    gap: int = 0
    """Offsets between it and the record before it: compaction's work, or, where negative, damage."""
    older: int = 0
    """How many leader epochs it is older than the leader."""


class Answer(NamedTuple):
    """What a leader answers a fetch with."""

    batches: tuple[Copied, ...] = (Copied(),)
    cut: int = 0
    """Bytes that are missing at its end."""


LOG_APPEND_TIME = Flaw("timestamp type", 22, 8)
FLAWS = (
    Flaw("magic", 16, 1),
    LOG_APPEND_TIME,
    Flaw("transactional", 22, 16),
    Flaw("control", 22, 32),
    Flaw("unknown codec", 22, 6),
    Flaw("last offset delta", 26, 1),
    Flaw("records count", 60, 2),
    Flaw("base sequence", 53, 128),
)
COPIED = st.builds(
    Copied,
    **FIELDS,
    gap=st.sampled_from([0] * 8 + [1, -1]),
    older=st.sampled_from([0] * 8 + [1]),
    flaw=st.one_of(*[st.none()] * 6, st.sampled_from(FLAWS)),
)
ANSWERS = st.builds(
    Answer,
    batches=st.lists(COPIED, min_size=1, max_size=4).map(tuple),
    cut=st.sampled_from([0, 0, 0, 1, 15, 70]),
)
SETTINGS = st.sampled_from([{}, {"flush_messages": 3}, {"cleanup_policy": frozenset({"compact"})}, {"segment_ms": 500}])
STEPS = st.one_of(ANSWERS, ANSWERS, ANSWERS, ANSWERS, SETTINGS, *HAPPENINGS)


class Follower(Side):
    """A log that follows, on a disk of its own."""

    def __init__(self, append: Callable[..., Any] | None) -> None:
        super().__init__()
        self._append_followed = append

    def take(self, step: Any) -> Any:
        return self._copy(step) if isinstance(step, Answer) else super().take(step)

    def _copy(self, answer: Answer) -> Any:
        data = bytearray()
        offset = self.log.log_end_offset
        sequences: dict[int, int] = {}
        for copied in answer.batches:
            offset += copied.gap
            data += self._batch(copied, offset, sequences)
            offset += copied.count
        sent = bytes(data[: max(0, len(data) - answer.cut)])
        log_module.append_followed = self._append_followed
        try:
            return self.log.append_as_follower(
                memoryview(sent), leader_epoch=self.leader_epoch, now_ms=self.clock.now_ms
            )
        except KafkaError as error:
            return error.code, str(error)
        finally:
            log_module.append_followed = append_followed

    def _batch(self, copied: Copied, offset: int, sequences: dict[int, int]) -> bytearray:
        entry = self.log.producers.entries.get(copied.producer)
        sequence = copied.sequence(sequences.get(copied.producer, -1 if entry is None else entry.last_sequence))
        sequences[copied.producer] = sequence + copied.count - 1
        data = copied.make(self.clock.now_ms, sequence)
        data[:8] = max(0, offset).to_bytes(8, "big")
        data[12:16] = max(0, self.leader_epoch - copied.older).to_bytes(4, "big")
        copied.spoil(data)
        return data


def both() -> tuple[Follower, Follower]:
    return Follower(append_followed), Follower(None)


@settings(max_examples=examples(300))
@given(steps=st.lists(STEPS, min_size=1, max_size=20))
def test_both_appends_do_the_same(steps: list[Any]) -> None:
    """Whatever a leader sends, and whatever the log's settings and state: the appends cannot be told apart."""
    step_both(*both(), [Answer(), *steps])


ORDINARY = (
    Answer(),
    Answer((Copied(count=5), Copied(), Copied(size=300))),
    Answer((Copied(codec=Codec.LZ4), Copied(flaw=LOG_APPEND_TIME))),
    Answer((Copied(producer=7), Copied(producer=7, count=3))),
    Answer((Copied(), Copied(producer=7), Copied())),
    Answer((Copied(), Copied(), Copied()), cut=20),
)


@pytest.mark.parametrize("answer", ORDINARY)
def test_what_is_ordinary_is_appended_by_the_compiled_one(answer: Answer) -> None:
    """Batches like most, of a producer that is known, do not come by the general path."""
    assert append_followed is not None
    taken: list[Any] = []

    def noted(*arguments: Any) -> Any:
        taken.append(append_followed(*arguments))
        return taken[-1]

    step_both(Follower(noted), Follower(None), [Answer(), Answer((Copied(producer=7),)), answer, answer])
    assert [info is not None for info in taken[2:]] == [True, True]


def test_many_small_batches_are_one_write() -> None:
    """As a follower gets them that was busy for a moment; beyond a bound the general append goes through them."""
    roomy = {"segment_bytes": 1 << 20, "segment_index_bytes": 1 << 16}
    for count in (200, 300):
        compiled, general = both()
        for step in [roomy, Answer(), ("roll", 0), Answer(), Answer((Copied(size=0),) * count)]:
            assert compiled.step(step) == general.step(step)
        writes = [path for operation, path in compiled.disk.operations if operation == "pwrite" and ".log" in path]
        assert len(writes) == 3
        assert compiled.state() == general.state()
        compiled.manager.abandon()
        general.manager.abandon()
