"""A walk of a group coordinator's offsets: it finds nothing where nothing is wrong, and what is forgotten."""

from __future__ import annotations

import pytest
from sim.invariants import InvariantBrokenError
from sim.scenarios.offsets import OffsetsWalk

from tidelog.coordinator.groups.offset_store import OffsetStore


def test_walks_of_offsets_find_nothing() -> None:
    """In what the product does."""
    _walk(20)


def test_walks_of_offsets_find_an_end_that_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what it commits nor what it frees."""
    monkeypatch.setattr(OffsetStore, "transaction_ended", lambda self, producer_id, *, committed: None)
    with pytest.raises(InvariantBrokenError):
        _walk(5)


def _walk(count: int) -> None:
    for seed in range(1, count + 1):
        OffsetsWalk(seed).run()
