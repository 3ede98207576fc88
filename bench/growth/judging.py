"""How a figure grows with a size: the exponent of its curve, beside that of its cause."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import linear_regression
from typing import Final

SPAN: Final = 5
"""The largest sizes count, as many as span this factor: at small sizes what does not grow hides the rest."""
TOLERANCE: Final = 0.2
"""What an exponent may be above its cause's: 0.2 is 1.6 times as much for each ten times of the size. Other work on the
machine moves an exponent by 0.1."""
LEAST: Final = 1e-9


def exponent(points: Mapping[int, float]) -> float | None:
    """`b` of the line a * size ** b through the largest sizes; None for less than two."""
    taken = sorted((size, value) for size, value in points.items() if size > 0)
    if len(taken) < 2:
        return None
    while len(taken) > 2 and taken[1][0] * SPAN <= taken[-1][0]:
        del taken[0]
    sizes = [math.log(size) for size, _ in taken]
    values = [math.log(max(value, LEAST)) for _, value in taken]
    return linear_regression(sizes, values).slope


def grows_faster(points: Mapping[int, float], cause: float) -> bool:
    """Whether a curve rises faster than the size to the power of `cause`."""
    found = exponent(points)
    return found is not None and found > cause + TOLERANCE
