"""The compiled read of a log (`_read.pyx`); None where it was not built: `ReadableLog.read` does it all itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tidelog.storage.log_reader import ReadResult

    read_ordinary: Callable[[Any, int, int, int, bool, bool], ReadResult | None] | None
    """`read_ordinary(log, offset, max_bytes, up_to_offset, min_one_batch, checked)`: `read` of the `ReadableLog`, with
    `blocking=False`, if nothing is out of the ordinary; None: nothing has changed. Errors as `ReadableLog.read`."""
else:
    try:
        from tidelog.storage._read import read_ordinary
    except ImportError:
        read_ordinary = None
