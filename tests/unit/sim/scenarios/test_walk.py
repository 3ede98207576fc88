"""One log's walk: it finds nothing where nothing is wrong, and what a log forgets to take back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sim.invariants import InvariantBrokenError
from sim.scenarios.walk import LogWalk

from tidelog.model.errors import KafkaError
from tidelog.storage.flushing import Durability
from tidelog.storage.log import Log
from tidelog.storage.producer_state import ProducerState
from tidelog.storage.segment import Segment
from tidelog.storage.transaction_index import ENTRY_SIZE, TransactionIndex


def test_walks_find_nothing() -> None:
    """In what the product does."""
    _walk(8)


@pytest.mark.parametrize(
    ("owner", "name", "broken"),
    [
        (Log, "forget_positions", lambda self: None),
        (TransactionIndex, "size_below", lambda self, offset: ENTRY_SIZE * len(self.entries())),
        (ProducerState, "check_verified", lambda self, header, guard: None),
        (ProducerState, "silent_since", lambda self, offset: []),
        (Segment, "_forget_timestamp", lambda self: None),
        (Durability, "rolled", lambda self, closed: None),
    ],
)
def test_walks_find_what_is_not_taken_back(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, broken: Callable[..., Any]
) -> None:
    """Positions of removed batches, aborted transactions whose markers are gone, questions that a marker has closed;
    producers whose records are gone, as the log is moved; the greatest timestamp, of a removed record; indexes of a
    closed segment that are not flushed."""
    assert callable(getattr(owner, name))
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises((InvariantBrokenError, KafkaError)):
        _walk(20)


def _walk(count: int) -> None:
    for seed in range(1, count + 1):
        LogWalk(seed).run()
