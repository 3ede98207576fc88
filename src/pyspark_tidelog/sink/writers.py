"""The writers that Spark makes: one for a batch write, one for a query's micro-batches.

Writers travel pickled to the tasks and back to the driver's processes, and a query's is made anew for each commit:
they hold options, and what a job has of its own, only. Spark 4.0 has no Arrow writer for streams: rows come one by one.
"""

import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_tidelog.sink.errors import SinkError, WriteStopped
from pyspark_tidelog.sink.options import Delivery, SinkOptions
from pyspark_tidelog.sink.staged import StagedWrite
from pyspark_tidelog.worker_process import spare_collections

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Row

ROWS_OF_A_BATCH: Final = 10_000
"""Where Spark hands rows over one by one."""
_STREAM_ARROW_WRITER: Any = getattr(datasource, "DataSourceStreamArrowWriter", None)
_StreamWriter: Any = _STREAM_ARROW_WRITER or datasource.DataSourceStreamWriter


class Written(WriterCommitMessage):
    """What a task has done; `staged` None where it has appended to the topics itself."""

    def __init__(self, rows: int, staged: StagedWrite | None) -> None:
        self.rows = rows
        self.staged = staged


class TidelogBatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame; with exactly-once whole or not at all."""

    def __init__(self, options: SinkOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._job = f"batch-{time.time_ns() // 1_000_000:x}-{uuid.uuid4().hex}"

    def begin(self) -> None:
        """In the driver, before a task is started: makes the topic in which the tasks stage."""
        if self._options.delivery is Delivery.EXACTLY_ONCE:
            from pyspark_tidelog.sink.copying import begin_batch_job

            begin_batch_job(self._options, self._options.staging_prefix + self._job)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Written:
        """In a task."""
        return _write(self._options, self._columns, iterator, self._job, 0, is_query=False)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """In the driver, when all tasks are done."""
        if self._options.delivery is Delivery.EXACTLY_ONCE:
            from pyspark_tidelog.sink.copying import commit_batch_job

            commit_batch_job(self._options, _staged(messages))
            spare_collections()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """In the driver, when a task or the commit has failed."""
        if self._options.delivery is Delivery.EXACTLY_ONCE:
            from pyspark_tidelog.sink.copying import abort_batch_job

            abort_batch_job(self._options, self._options.staging_prefix + self._job)


class TidelogStreamWriter(_StreamWriter):  # type: ignore[misc]  # Which of Spark's classes it is depends on Spark.
    """Writes a query's micro-batches; with exactly-once each once, over failures and restarts from the checkpoint."""

    def __init__(self, options: SinkOptions, columns: tuple[str, ...], schema: StructType) -> None:
        self._options = options
        self._columns = columns
        self._schema = schema

    def write(self, iterator: "Iterator[pa.RecordBatch] | Iterator[Row]") -> Written:
        """In a task."""
        query, batch = _micro_batch()
        batches: Any = iterator
        if _STREAM_ARROW_WRITER is None:
            batches = _arrow_batches(batches, self._schema)
        return _write(self._options, self._columns, batches, query, batch, is_query=True)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's.
        """In the driver, when all tasks are done."""
        if self._options.delivery is Delivery.EXACTLY_ONCE:
            from pyspark_tidelog.sink.copying import commit_micro_batch

            commit_micro_batch(self._options, _staged(messages), batchId)
            spare_collections()

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's.
        """Nothing is to be taken back: what was staged is named by nothing, and goes with the next batch."""


def _write(
    options: SinkOptions,
    columns: tuple[str, ...],
    batches: "Iterable[pa.RecordBatch]",
    query: str,
    batch: int,
    *,
    is_query: bool,
) -> Written:
    from pyspark_tidelog.sink.task import append, stage

    if options.delivery is Delivery.AT_LEAST_ONCE:
        written = Written(append(options, columns, batches), None)
    else:
        staged = stage(options, columns, batches, query=query, batch=batch, is_query=is_query)
        written = Written(staged.rows, staged)
    spare_collections()
    return written


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[StagedWrite]:
    writes = [message.staged for message in messages if isinstance(message, Written) and message.staged is not None]
    if len(writes) != len(messages):
        raise WriteStopped(f"{len(messages) - len(writes)} of {len(messages)} tasks do not say what they have staged")
    return writes


def _micro_batch() -> tuple[str, int]:
    """The query's id, which its checkpoint keeps, and the number of the micro-batch."""
    from pyspark import TaskContext

    context = TaskContext.get()
    query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
    batch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    if query is None or batch is None:
        raise SinkError("Spark does not say which query and batch the task belongs to")
    return query, int(batch)


def _arrow_batches(rows: "Iterator[Row]", schema: StructType) -> "Iterator[pa.RecordBatch]":
    """Rows as Arrow batches, where Spark has no Arrow writer for streams."""
    import itertools

    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    arrow_schema = to_arrow_schema(schema)
    while taken := list(itertools.islice(rows, ROWS_OF_A_BATCH)):
        yield pa.RecordBatch.from_pylist([row.asDict(recursive=True) for row in taken], schema=arrow_schema)
