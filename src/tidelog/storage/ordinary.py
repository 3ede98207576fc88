"""The compiled append of an ordinary batch (`_append.pyx`); None where it was not built: `Log` does it all itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.storage.append import AppendInfo
    from tidelog.storage.truncation import TruncatableLog

    append_ordinary: Callable[[TruncatableLog, bytearray | memoryview, int, int, int, int], AppendInfo | None] | None
    """`append_ordinary(log, data, start, size, leader_epoch, now_ms)`: appends the client's batch at `start`, if it is
    good and nothing is out of the ordinary; None: nothing has changed. `KafkaError` as `Log.append`."""
else:
    try:
        from tidelog.storage._append import append_ordinary
    except ImportError:
        append_ordinary = None
