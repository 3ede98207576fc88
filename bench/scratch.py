"""A folder for what a benchmark builds, and for the data of its brokers."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Empty; gone afterwards, but for what a broker that was killed still writes."""
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-", ignore_cleanup_errors=True) as path:
        yield Path(path)
