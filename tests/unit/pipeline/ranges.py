"""Ranges of offsets for tests that commit without files."""

from __future__ import annotations

from pyspark_tidelog.offsets import OffsetRange
from tidelog.pipeline.delta import WrittenRange


def written_range(topic: str, start: int, end: int, topic_id: str = "id") -> WrittenRange:
    """Of partition 0, in a file that is not there."""
    return WrittenRange(OffsetRange(topic, 0, start, end, topic_id), "", 0, end - start, "{}", 0)
