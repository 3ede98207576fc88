"""Topic to Delta table, exactly once: the fused path.

    Spark's driver            plans offset ranges, a batch at a time, and writes them to the checkpoint first
      task, task, task        fetch their range, decode it, write it as Parquet (`parquet`), tell Spark one row a file
    driver                    commits those files to Delta in one atomic step that also moves the table's own
                              offsets (`delta`), then publishes progress to a consumer group

So record bytes never enter the JVM, and whatever is killed when, the next run finds either a batch that the table does
not have, whose ranges it takes again, or one that it has, which it leaves alone.

In terms of Spark this is a streaming query: its source is the topic, "read" by tasks that write files and yield what
they wrote, and its sink is `foreachBatch`. That needs one Python worker a task, where a source of ranges and a separate
sink would need two.
"""

import re
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from deltalake import DeltaTable

from pyspark_tidelog.offsets import OffsetRange
from pyspark_tidelog.options import EARLIEST, SourceOptions, parse_options
from pyspark_tidelog.planning import Partitions, latest_offsets, open_cluster, required_partitions, starting_offsets
from pyspark_tidelog.progress import PUBLISHED_AGAIN_S
from pyspark_tidelog.reading import read_columns
from tidelog.client.blocking import BlockingCluster
from tidelog.model.identifiers import TopicPartition
from tidelog.pipeline import delta
from tidelog.pipeline.committing import Attendant, BatchDone, TableCommitter
from tidelog.pipeline.connect import RemoteCommitter, TableFollower
from tidelog.pipeline.errors import PipelineError, TableMismatch
from tidelog.pipeline.history import Contradiction, find_contradiction, rewind, rewinds
from tidelog.pipeline.job import TableJob, source_options
from tidelog.pipeline.json_values import infer_schema
from tidelog.pipeline.shape import (
    METADATA,
    REASON,
    UNPARSED,
    BadRecords,
    TableShape,
    ValueFormat,
    json_shape,
    raw_shape,
    text_shape,
)
from tidelog.pipeline.table_files import PATH_OPTION, SHAPE_OPTION, TableFiles
from tidelog.records.columns import Column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["BatchDone", "TableJob", "TableRun", "rewind_table", "start_table"]

SAMPLE_RECORDS: Final = 1_000
"""Records a partition that columns are inferred from."""
STOP_PATIENCE_S: Final = 30.0
"""How long a stop waits for the batch under way; a batch given up would be taken again by the next run."""


@dataclass(frozen=True, slots=True)
class TableRun:
    """A job under way."""

    job: TableJob
    query: "StreamingQuery"
    attendant: Attendant
    shape: TableShape
    backlog: int
    """Offsets between where the table stood and the end of the topic, when the job started."""

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until the job has ended (True) or the time is over; raises what ended it, in its own words."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        ended = False
        try:
            while not ended and (deadline is None or time.monotonic() < deadline):
                left = PUBLISHED_AGAIN_S if deadline is None else deadline - time.monotonic()
                patience_s = max(0.001, min(left, PUBLISHED_AGAIN_S))
                ended = self.query.awaitTermination(patience_s) is not False  # type: ignore[arg-type]  # Spark takes floats.
                self.attendant.show_progress()
        except Exception as error:
            self.attendant.close()
            if (explained := self._explained(error)) is None:
                raise
            raise explained from error
        if ended:
            self.attendant.close()
        return ended

    def stop(self) -> None:
        """Ends a continuous job, after the batch under way if that is done within `STOP_PATIENCE_S`."""
        deadline = time.monotonic() + STOP_PATIENCE_S
        while self.query.isActive and self.query.status["isTriggerActive"] and time.monotonic() < deadline:
            self.query.awaitTermination(0.05)  # type: ignore[arg-type]  # Spark takes floats.
        self.query.stop()
        self.attendant.close()

    def _explained(self, error: Exception) -> PipelineError | None:
        """What ended the job in this project's words; None where it is an error of another making."""
        failure = self.attendant.failure
        if isinstance(failure, PipelineError):
            return failure
        reason = python_reason(str(failure or error))
        return PipelineError(reason) if reason is not None else None


def python_reason(text: str) -> str | None:
    """The message of this project's exception in what Spark makes of it; None where it is of another making."""
    names = r"(?:tidelog|pyspark_tidelog)\.[\w.]+\.(\w+)"
    found = re.findall(rf"^\s*(?:[\w.]+: )?{names}: (.+)$", text, re.MULTILINE)
    return found[-1][1].strip() if found else None


def start_table(
    spark: "SparkSession", job: TableJob, *, on_batch: Callable[[BatchDone], None] | None = None
) -> TableRun:
    """Starts a job; raises `SourceError`, `PipelineError`, `KafkaError` or `ClientError` where it cannot begin."""
    if is_connect(spark):
        job = replace(job, path=job.table_path)  # The server's working directory is another one.
        if job.checkpoint is None and "://" in job.path:
            raise PipelineError(
                f"a job through Spark Connect on a table at {job.path} needs a checkpoint (--checkpoint PATH), on a"
                " file system that Spark's server has"
            )
    options = source_options(job)
    parsed = parse_options(options, streaming=True)
    cluster = open_cluster(parsed)
    try:
        return _begin(spark, job, options, parsed, cluster, on_batch)
    except BaseException:
        cluster.close()
        raise


def is_connect(spark: "SparkSession") -> bool:
    """Whether Spark's driver is a server's."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def rewind_table(job: TableJob) -> Contradiction | None:
    """Sets the progress of a table that was restored back to what it holds; None where nothing was wrong.

    Raises `TableMismatch` where that cannot be done, or there is no table; `KafkaError` or `ClientError` where the
    cluster does not say which partitions there are.
    """
    parsed = parse_options(source_options(job), streaming=True)
    with open_cluster(parsed) as cluster:
        found = required_partitions(cluster, parsed)
    if not DeltaTable.is_deltatable(job.table_path):
        raise TableMismatch(f"there is no Delta table at {job.path}")
    apps = delta.progress_ids(found.partitions, found.topic_ids.get(job.topic, ""))
    return rewind(DeltaTable(job.table_path), apps, job.topic)


def _begin(
    spark: "SparkSession",
    job: TableJob,
    options: dict[str, str],
    parsed: SourceOptions,
    cluster: BlockingCluster,
    on_batch: Callable[[BatchDone], None] | None,
) -> TableRun:
    found = required_partitions(cluster, parsed)
    shape = _shape(job, parsed, cluster, found)
    table = delta.open_table(job.table_path, shape.schema, description=f"topic {job.topic}, by tidelog")
    topic_id = found.topic_ids.get(job.topic, "")
    contradiction = find_contradiction(table, delta.progress_ids(found.partitions, topic_id), job.topic)
    if contradiction is not None:
        raise TableMismatch(contradiction.explain(job.topic, job.path))
    stands = delta.next_offsets(table, found.partitions, topic_id)
    if stands:
        # Heeded by a query without a checkpoint only: it goes on where the table stands.
        options = {name: value for name, value in options.items() if not name.lower().startswith("starting")}
        options["startingOffsets"] = _offsets_json(found.partitions, stands)
    ends = latest_offsets(cluster, parsed, found.partitions)
    starts = stands or starting_offsets(cluster, parsed, found)
    attendant: TableFollower | TableCommitter
    commit: Callable[[DataFrame, int], None]
    if is_connect(spark):
        run = uuid.uuid4().hex
        attendant = TableFollower(run, table, cluster, starts, on_batch)
        commit = RemoteCommitter(job, run, starts, table.version())
    else:
        attendant = commit = TableCommitter(job, table, cluster, starts, on_batch)
        attendant.reached(stands)
    checkpoint = job.checkpoint_after(rewinds(table, job.topic))
    query = _start_query(spark, job, options, shape, commit, checkpoint)
    backlog = sum(max(0, end - starts.get(each, 0)) for each, end in ends.items())
    return TableRun(job, query, attendant, shape, backlog)


def _start_query(
    spark: "SparkSession",
    job: TableJob,
    options: Mapping[str, str],
    shape: TableShape,
    commit: "Callable[[DataFrame, int], None]",
    checkpoint: str,
) -> "StreamingQuery":
    spark.dataSource.register(TableFiles)
    reader = spark.readStream.format(TableFiles.name()).options(**options)
    frame = reader.option(SHAPE_OPTION, shape.to_text()).option(PATH_OPTION, job.table_path).load()
    writer = frame.writeStream.foreachBatch(commit).option("checkpointLocation", checkpoint)
    writer = writer.queryName(f"tidelog table {job.topic} {Path(job.path).name}")
    if job.once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{max(0, round(job.trigger_interval_s * 1000))} milliseconds").start()


def _offsets_json(partitions: tuple[TopicPartition, ...], stands: Mapping[TopicPartition, int]) -> str:
    offsets = ", ".join(f'"{each.partition}": {stands.get(each, EARLIEST)}' for each in partitions)
    return f'{{"{partitions[0].topic}": {{{offsets}}}}}'


def _shape(job: TableJob, options: SourceOptions, cluster: BlockingCluster, found: Partitions) -> TableShape:
    match job.value:
        case ValueFormat.RAW:
            if job.bad_records is BadRecords.KEEP:
                raise TableMismatch("raw values are never bad: bad records can be kept of text and json values only")
            return raw_shape(job.columns)
        case ValueFormat.TEXT:
            return text_shape(job.columns, job.bad_records)
        case ValueFormat.JSON:
            value_schema = _value_schema(job, options, cluster, found)
            return json_shape(value_schema, job.columns, job.bad_records, tells_new=_takes_all_fields(job))


def _takes_all_fields(job: TableJob) -> bool:
    """Whether nothing was chosen among the fields of JSON values, so that one without a column is missed."""
    return job.value_schema is None and job.columns is None


def _value_schema(job: TableJob, options: SourceOptions, cluster: BlockingCluster, found: Partitions) -> pa.Schema:
    if job.value_schema is not None:
        return job.value_schema
    if DeltaTable.is_deltatable(job.table_path):
        known = {*METADATA, UNPARSED, REASON}
        return pa.schema([each for each in delta.table_schema(DeltaTable(job.table_path)) if each.name not in known])
    return infer_schema(sample_values(cluster, options, found), skips_bad=job.bad_records is BadRecords.KEEP)


def sample_values(cluster: BlockingCluster, options: SourceOptions, found: Partitions) -> list[bytes | None]:
    """Values of the first `SAMPLE_RECORDS` offsets of each partition, from where the job starts."""
    starts = starting_offsets(cluster, options, found)
    ends = latest_offsets(cluster, options, found.partitions)
    values: list[bytes | None] = []
    for each in found.partitions:
        end = min(ends[each], starts[each] + SAMPLE_RECORDS)
        if starts[each] >= end:
            continue
        wanted = OffsetRange(each.topic, each.partition, starts[each], end, found.topic_ids.get(each.topic, ""))
        for columns in read_columns(cluster, options, wanted, Column.VALUE):
            if columns.value is None:
                continue
            buffers = [columns.value.validity, columns.value.offsets, columns.value.data or b""]
            wrapped = [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]
            values += pa.Array.from_buffers(pa.binary(), columns.rows, wrapped, columns.value.null_count).to_pylist()
    return values
