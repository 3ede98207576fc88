"""Growth curves: what is said to grow faster than its cause."""

from __future__ import annotations

import pytest
from bench.growth.judging import exponent, grows_faster


@pytest.mark.parametrize(
    ("points", "power", "cause", "is_faster"),
    [
        ({10: 50.0, 100: 50.0, 1000: 50.0}, 0.0, 0, False),
        ({10: 1.0, 100: 10.0, 1000: 100.0}, 1.0, 1, False),
        ({10: 1.0, 100: 10.0, 1000: 100.0}, 1.0, 0, True),
        # What does not grow hides the rest at small sizes: the last step counts.
        ({10: 33.0, 100: 34.0, 1000: 40.0, 10_000: 4000.0}, 2.0, 1, True),
        # Sizes that lie close together count until they span enough.
        ({1: 1.0, 2: 2.0, 3: 3.0, 5: 5.0, 7: 7.0}, 1.0, 1, False),
        ({1: 1.0, 2: 4.0, 3: 9.0, 5: 25.0, 7: 49.0}, 2.0, 1, True),
    ],
)
def test_the_largest_sizes_count(points: dict[int, float], power: float, cause: float, is_faster: bool) -> None:
    """The exponent of the curve there, beside that of its cause."""
    assert exponent(points) == pytest.approx(power)
    assert grows_faster(points, cause) is is_faster


def test_one_size_says_nothing() -> None:
    """Nor does a figure that was never measured."""
    assert exponent({10: 1.0}) is None
    assert not grows_faster({}, 0)
