"""What the cleaner has found and done lately, for metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.storage.cleaner.choice import LogToClean
    from tidelog.storage.cleaner.rewriting import Counts


class CleanerReport:
    """Of the last look at all logs, and of the last cleaning that came to its end. Written by the logs' owner."""

    __slots__ = (
        "bytes_read",
        "bytes_written",
        "cleanable_bytes",
        "delay_ms_max",
        "dirty_ratio_max",
        "duration_ms",
        "last_bytes_read",
        "last_bytes_written",
        "looked_ms",
    )

    def __init__(self) -> None:
        self.looked_ms: int | None = None
        """Monotonic time of the last look; None: there was none yet."""
        self.dirty_ratio_max = 0.0
        """The largest share of what is dirty, of those logs that could be cleaned; 0 to 1."""
        self.delay_ms_max = 0
        """By how much the oldest dirty segment is past `max.compaction.lag.ms`."""
        self.cleanable_bytes = 0
        """Of segments with dirty records that could be cleaned, all logs together."""
        self.duration_ms = 0
        """Of the last cleaning."""
        self.last_bytes_read = 0
        self.last_bytes_written = 0
        """By the last cleaning."""
        self.bytes_read = 0
        self.bytes_written = 0
        """By all cleanings since the start."""

    def looked(self, judged: Sequence[LogToClean], now_ms: int) -> None:
        """The cleaner has judged all logs that may be cleaned."""
        self.looked_ms = now_ms
        self.dirty_ratio_max = max((each.cleanable_ratio for each in judged), default=0.0)
        self.delay_ms_max = max((each.delay_ms for each in judged), default=0)
        self.cleanable_bytes = sum(each.cleanable_bytes for each in judged)

    def cleaned(self, counts: Counts, duration_ms: int) -> None:
        """A cleaning has come to its end."""
        self.duration_ms = duration_ms
        self.last_bytes_read, self.last_bytes_written = counts.bytes_read, counts.bytes_written
        self.bytes_read += counts.bytes_read
        self.bytes_written += counts.bytes_written
