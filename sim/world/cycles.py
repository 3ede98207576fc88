"""Python's search for cycles, which a run can do without: nearly all that it makes lives as long as it does."""

from __future__ import annotations

import contextlib
import gc
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

NEW_OBJECTS_MAX: Final = 100_000
"""Between two looks for cycles among them."""


@contextlib.contextmanager
def cycles_left() -> Iterator[None]:
    """While it lasts Python looks for cycles rarely, and not in what was there before."""
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS_MAX, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
