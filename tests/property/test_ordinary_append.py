"""The compiled append against the general one: the same batches leave the same files, state, answers and refusals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.amount import examples
from tests.property.logs_side_by_side import FIELDS, HAPPENINGS, Flaw, Planned, Side, step_both

from tidelog.model.errors import KafkaError
from tidelog.records.batch import Codec, TimestampType
from tidelog.storage import log as log_module
from tidelog.storage.log_config import LONG_MAX
from tidelog.storage.ordinary import append_ordinary

pytestmark = pytest.mark.skipif(
    append_ordinary is None,
    reason="the compiled append was not built (it needs a C compiler): there is nothing to compare",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent(Planned):
    """One batch of a client."""

    offset: int = 0
    """Bytes before it in the buffer that it is sent in."""


FLAWS = (
    Flaw("base offset", 7, 1),
    Flaw("length", 8, 1),
    Flaw("magic", 16, 3),
    Flaw("crc", 17, 1),
    Flaw("timestamp type", 22, 8),
    Flaw("transactional", 22, 16),
    Flaw("control", 22, 32),
    Flaw("delete horizon", 22, 64),
    Flaw("unknown codec", 22, 6),
    Flaw("last offset delta", 26, 1),
    Flaw("base sequence", 53, 128),
    Flaw("producer epoch", 51, 128),
    Flaw("records count", 60, 2),
    Flaw("negative count", 57, 128),
    Flaw("max timestamp", 35, 1),
)

SENT = st.builds(
    Sent,
    **FIELDS,
    flaw=st.one_of(*[st.none()] * 4, st.sampled_from(FLAWS)),
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
STEPS = st.one_of(SENT, SENT, SENT, SENT, st.sampled_from(SETTINGS), *HAPPENINGS)


class Leader(Side):
    """A log that clients send to."""

    def __init__(self, append: Callable[..., Any] | None) -> None:
        super().__init__()
        self._append = append

    def take(self, step: Any) -> Any:
        return self._send(step) if isinstance(step, Sent) else super().take(step)

    def _send(self, sent: Sent) -> Any:
        entry = self.log.producers.entries.get(sent.producer)
        data = sent.make(self.clock.now_ms, sent.sequence(-1 if entry is None else entry.last_sequence))
        sent.spoil(data)
        view = memoryview(bytearray(sent.offset) + data)[sent.offset :]
        log_module.append_ordinary = self._append
        try:
            info = self.log.append(view, leader_epoch=self.leader_epoch, now_ms=self.clock.now_ms)
            return info, bytes(view)
        except KafkaError as error:
            return error.code, str(error), bytes(view)
        finally:
            log_module.append_ordinary = append_ordinary


def both() -> tuple[Leader, Leader]:
    return Leader(append_ordinary), Leader(None)


@settings(max_examples=examples(600))
@given(steps=st.lists(STEPS, min_size=1, max_size=25))
def test_both_appends_do_the_same(steps: list[Any]) -> None:
    """Whatever is sent, and whatever the log's settings and state, which append has done it cannot be told."""
    step_both(*both(), [Sent(), *steps])


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
    step_both(*both(), [*[Sent(producer=7)] * 7, sent, Sent(producer=7)])


def test_a_write_that_fails_leaves_the_batch_as_it_came() -> None:
    """The log's directory fails with the same words, and the buffer may be judged again."""
    compiled, general = both()
    known = Sent(producer=7)
    step_both(compiled, general, [known, known, ("refuse", 1), Sent(producer=7, count=2), Sent()])
    assert compiled.log.is_offline


@pytest.mark.parametrize("sent", [Sent(), Sent(count=5), Sent(codec=Codec.ZSTD), Sent(producer=7), Sent(size=300)])
def test_what_is_ordinary_is_appended_by_the_compiled_one(sent: Sent) -> None:
    """A batch like most, of a producer that is known, does not come by the general path."""
    assert append_ordinary is not None
    taken = []

    def noted(*arguments: Any) -> Any:
        taken.append(append_ordinary(*arguments))
        return taken[-1]

    side = Leader(noted)
    for _ in range(8):
        side.step(sent)
    assert [info is not None for info in taken[2:]] == [True] * (len(taken) - 2)
    side.manager.abandon()
