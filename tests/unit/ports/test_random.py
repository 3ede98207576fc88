"""Random numbers of the system."""

from __future__ import annotations

import os

import pytest

from tidelog.ports.real import SystemRandom


@pytest.mark.parametrize("bound", [1, 2, 3, 255, 256, 257, 1 << 16, 1 << 40])
def test_a_number_is_below_its_bound(bound: int) -> None:
    """For bounds around whole bytes, too."""
    assert all(0 <= SystemRandom().below(bound) < bound for _ in range(100))


def test_a_number_that_is_too_large_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below 3 two bits are drawn, of which 3 is no number; no remainder makes small numbers likelier."""
    drawn = iter([b"\xff", b"\xc0", b"\x80"])
    monkeypatch.setattr(os, "urandom", lambda size: next(drawn))
    assert SystemRandom().below(3) == 2
    assert list(drawn) == []
