"""Patterns that clients send: RE2's, whole texts, within limits."""

from __future__ import annotations

import pytest

from tidelog.coordinator.patterns import LENGTH_MAX, InvalidPattern, compile_pattern


def test_a_whole_text_has_to_match() -> None:
    """As Java's matches()."""
    matcher = compile_pattern("orders-[0-9]+|.*\\.audit")
    assert [text for text in ("orders-1", "orders-1x", "x.orders-1", "a.audit", "audit") if matcher(text)] == [
        "orders-1",
        "a.audit",
    ]


@pytest.mark.parametrize(
    "text", ["(", r"(a)\1", "(?=a)", "a{1001}", "x" * (LENGTH_MAX + 1), "\ud800", "(?:a?b?c?){500}"]
)
def test_what_is_none_or_too_large(text: str) -> None:
    """Refused with a reason."""
    with pytest.raises(InvalidPattern, match=r".+"):
        compile_pattern(text)


def test_what_hangs_others() -> None:
    """Python's own engine would not come back from this in a lifetime."""
    assert not compile_pattern("(a+)+$")("a" * 240 + "b")
