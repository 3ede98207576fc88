"""The compiled appends of ordinary batches: clients' (`_append.pyx`) and a leader's (`_append_followed.pyx`).

None where they were not built: `Log` does it all itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.storage.append import AppendInfo
    from tidelog.storage.truncation import TruncatableLog

    append_ordinary: Callable[[TruncatableLog, bytearray | memoryview, int, int, int, int], AppendInfo | None] | None
    """`append_ordinary(log, data, start, size, leader_epoch, now_ms)`: appends the client's batch at `start`, if it is
    good and nothing is out of the ordinary; None: nothing has changed. `KafkaError` as `Log.append`."""
    append_followed: Callable[[TruncatableLog, bytes | bytearray | memoryview, int, int], AppendInfo | None] | None
    """`append_followed(log, data, leader_epoch, now_ms)`: appends what a leader of that epoch has sent, if nothing is
    out of the ordinary; None: nothing has changed. `KafkaError` as `Log.append_as_follower`."""
else:
    try:
        from tidelog.storage._append import append_ordinary
        from tidelog.storage._append_followed import append_followed
    except ImportError:
        append_ordinary = append_followed = None
