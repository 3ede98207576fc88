"""What the demo says of the group that reads the flights follows from what the readers said."""

from __future__ import annotations

from tidelog.pipeline.demo.group import coverage
from tidelog.pipeline.demo.telling import sparkline


def test_every_record_was_read() -> None:
    """Whoever read it, in whatever order; some of them twice."""
    assert coverage([(0, 0, 10), (1, 0, 5), (0, 10, 20)], {0: 20, 1: 5}) == ([], 0)
    assert coverage([(0, 0, 10), (0, 5, 20)], {0: 20}) == ([], 5)
    assert coverage([(0, 0, 20), (0, 5, 8)], {0: 20}) == ([], 3)


def test_a_record_that_nobody_read() -> None:
    """In the middle, at the end, a whole partition."""
    for read, ends in (([(0, 0, 5), (0, 6, 10)], {0: 10}), ([(0, 0, 9)], {0: 10}), ([(0, 0, 10)], {0: 10, 1: 1})):
        faults, _ = coverage(read, ends)
        assert len(faults) == 1


def test_a_lag_in_blocks() -> None:
    """From nothing to the highest; the highest of each share is what is seen."""
    assert sparkline([0, 1, 4, 8], 8, 4) == " ▁▄█"
    assert sparkline([0, 0, 0, 8], 8, 2) == " █"
    assert sparkline([3], 24, 3) == "▁▁▁"
    assert sparkline([0, 0], 0, 3) == "   "
    assert sparkline([], 0, 2) == "  "
