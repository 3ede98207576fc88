"""What the sink refuses, in words that name the topic, the partition and the row's reason."""

from collections.abc import Iterable

from pyspark_tidelog.errors import SourceError
from tidelog.model.errors import TidelogError
from tidelog.model.identifiers import TopicPartition


class SinkError(SourceError):
    """Anything that the sink raises by itself."""


class RowRefused(SinkError):
    """A row that cannot be written: nothing of its batch is visible to readers of committed records."""

    def __init__(self, problem: str, *, row: int, topic: str | None = None, partition: int | None = None) -> None:
        """`row` counts from 0 within the rows of its task."""
        where = "" if topic is None else f" for topic '{topic}'" + ("" if partition is None else f"-{partition}")
        super().__init__(f"row {row} of the task{where} cannot be written: {problem}")
        self.row = row
        self.topic = topic
        self.partition = partition


class WriteStopped(SinkError):
    """The batch was not written: nothing of it is visible. What to do is in the message."""


class NotWritten(SinkError):
    """The cluster did not take rows, for as long as a task or the copy waits. With exactly-once nothing is visible."""


def not_written(places: Iterable[TopicPartition], error: TidelogError) -> NotWritten:
    """`error`, with the partitions that were to take batches."""
    return NotWritten(f"rows were not written to {', '.join(sorted(map(str, places)))}: {error}")
