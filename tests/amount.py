"""How much a test tries: a part in `make test`, all of it in `make thorough`, which CI runs, and in `make nightly`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pytest
from hypothesis import settings

thorough: Final = pytest.mark.thorough
"""For what takes seconds of CPU time where a sibling shows the same in little: `make test` leaves it out."""


def examples(count: int) -> int:
    """How many examples a property draws: `count` where there is time, a tenth of it in `make test`."""
    return count // 10 if settings.get_current_profile_name() == "tidelog" else count


def daily(kept: int, values: Iterable[Any]) -> list[Any]:
    """The parameters of a test, of which `make test` takes the first `kept`; a tuple is for several names."""
    return [
        value if place < kept else pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=thorough)
        for place, value in enumerate(values)
    ]
