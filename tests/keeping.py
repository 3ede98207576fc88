"""Records with timestamps of long ago, in clusters that last for longer than a moment."""

from __future__ import annotations

from typing import Final

KEEPING: Final[dict[str, object]] = {"log.initial.task.delay.ms": 24 * 3_600_000}
"""Half a minute after its start a broker looks for what is older than a week, and a slow machine's test still runs."""
