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

import atexit
import datetime
import json
import logging
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructType

from pyspark_tidelog.batch import RangePartition
from pyspark_tidelog.offsets import OffsetRange
from pyspark_tidelog.options import EARLIEST, SourceOptions, parse_options
from pyspark_tidelog.planning import (
    Partitions,
    high_watermarks,
    latest_offsets,
    open_cluster,
    required_partitions,
    starting_offsets,
)
from pyspark_tidelog.progress import PUBLISHED_AGAIN_S, Progress
from pyspark_tidelog.reading import read_columns
from pyspark_tidelog.stream import TidelogStreamReader
from tidelog.client.blocking import BlockingCluster
from tidelog.client.errors import ClientError
from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.pipeline import delta
from tidelog.pipeline.errors import PipelineError, TableMismatch
from tidelog.pipeline.history import Contradiction, find_contradiction, rewind, rewinds
from tidelog.pipeline.json_values import infer_schema
from tidelog.pipeline.parquet import MANIFEST_DDL, from_manifest, manifest, remove_files, write_range
from tidelog.pipeline.session import Place, check_not_connect
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
from tidelog.records.columns import Column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

logger: Final = logging.getLogger(__name__)

SAMPLE_RECORDS: Final = 1_000
"""Records a partition that columns are inferred from."""
TRIGGER_INTERVAL_S_DEFAULT: Final = 10.0
"""Between two batches of a continuous run: each makes a file a partition, and small files make slow tables."""
STOP_PATIENCE_S: Final = 30.0
"""How long a stop waits for the batch under way; a batch given up would be taken again by the next run."""
CHECKPOINTS: Final = "_checkpoints"
"""Folder inside the table, which Delta's readers and vacuum pass over because of its underscore."""
_SOURCE: Final = "tidelog_table_files"
_SHAPE_OPTION: Final = "table.shape"
_PATH_OPTION: Final = "table.path"


@dataclass(frozen=True, slots=True)
class TableJob:
    """Which topic becomes which table, and how."""

    bootstrap: str
    topic: str
    path: str
    """A local path, or a URI that both pyarrow and delta-rs can write (s3://..., abfss://..., gs://...)."""
    value: ValueFormat = ValueFormat.RAW
    columns: tuple[str, ...] | None = None
    """The table's columns; None for all that the format gives."""
    value_schema: pa.Schema | None = None
    """Columns of JSON values; None: those of the table if there is one, else inferred from a sample."""
    bad_records: BadRecords = BadRecords.FAIL
    starting_offsets: str = "earliest"
    """Where a new table begins: earliest, latest or the source's JSON. A table that has rows goes on where it
    stands."""
    once: bool = False
    """Take what there is now and end, instead of running until stopped."""
    trigger_interval_s: float = TRIGGER_INTERVAL_S_DEFAULT
    offsets_max_per_trigger: int | None = None
    group: str | None = None
    """Consumer group that progress is published to; None for `tidelog-table-<topic>`."""
    checkpoint: str | None = None
    """A folder on a file system that Spark has. None: inside a local table; for a table elsewhere a temporary one of
    this machine, since the table itself knows where the next run goes on."""
    source_options: Mapping[str, str] = field(default_factory=dict)
    """Further options of format("tidelog"), failOnDataLoss and minPartitions for example."""

    @property
    def progress_group(self) -> str:
        return self.group or f"tidelog-table-{self.topic}"

    @property
    def table_path(self) -> str:
        """Absolute, since tasks may run elsewhere."""
        return self.path if "://" in self.path else os.path.abspath(self.path)

    def checkpoint_after(self, rewinds: int) -> str:
        """Where Spark keeps its place; another one after each rewind, since a checkpoint can't be set back.

        One of a table that is not local is made here, and removed with this process.
        """
        place = self.checkpoint
        if place is None and "://" in self.path:
            place = tempfile.mkdtemp(prefix="tidelog-checkpoint-")
            atexit.register(shutil.rmtree, place, ignore_errors=True)
            return f"file://{place}"
        place = place or f"{self.table_path}/{CHECKPOINTS}/{self.topic}"
        return place if not rewinds else f"{place.rstrip('/')}-rewound-{rewinds}"


@dataclass(frozen=True, slots=True)
class BatchDone:
    """A batch that is in the table."""

    topic: str
    batch: int
    rows: int
    record_bytes: int
    """Bytes of the decoded columns."""
    file_bytes: int
    files: int
    version: int
    """Of the table, after the batch."""
    replayed: bool
    """The table had it already; the files were removed again."""
    offsets: Mapping[TopicPartition, int]
    """The next offset of each partition that the batch touched."""
    seconds: float
    new_fields: tuple[str, ...] = ()
    """Fields of JSON values that the table has no column for: what they hold is not in the table."""
    behind: int | None = None
    """Offsets between the table and the ends of the partitions after the batch, counted as `kafka-consumer-groups`
    counts lag; None where no broker said."""
    freshness_s: float | None = None
    """Seconds since the timestamp of the newest record of the batch; None where the table has no timestamps."""


class TableFiles(DataSource):
    """The streaming source whose tasks write a table's files and yield what they wrote; registered by `start_table`."""

    @classmethod
    def name(cls) -> str:
        return _SOURCE

    def schema(self) -> str:
        return MANIFEST_DDL

    def streamReader(self, schema: StructType) -> "TableFilesReader":  # noqa: N802  # Spark's name.
        given = {name: value for name, value in self.options.items() if not name.lower().startswith("table.")}
        shape = TableShape.from_text(self.options[_SHAPE_OPTION])
        return TableFilesReader(parse_options(given, streaming=True), self.options[_PATH_OPTION], shape)


class TableFilesReader(TidelogStreamReader):
    """Plans as the source does; a task writes its range instead of handing it on."""

    def __init__(self, options: SourceOptions, table_path: str, shape: TableShape) -> None:
        super().__init__(options)
        self._table_path = table_path
        self._shape = shape

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"table_path": self._table_path, "shape": self._shape.to_text()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(  # type: ignore[misc]  # A copy starts as a new one.
            state["options"], state["table_path"], TableShape.from_text(state["shape"])
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One row: what was written of the range."""
        if not isinstance(partition, RangePartition):
            return iter(())
        return manifest(write_range(self._options, partition.value, self._table_path, self._shape))


class TableCommitter:
    """The driver's part: one Delta commit a batch. Called by Spark, one batch at a time."""

    def __init__(
        self,
        job: TableJob,
        table: DeltaTable,
        shape: TableShape,
        cluster: BlockingCluster,
        starts: Mapping[TopicPartition, int],
        on_batch: Callable[[BatchDone], None] | None,
    ) -> None:
        """`table` is one whose history was checked up to its version; it goes on at `starts`."""
        self._places = dict(starts)
        self._job = job
        self._table = table
        self._checked = table.version()
        self._apps: dict[TopicPartition, str] = {}
        self._shape = shape
        self._cluster = cluster
        self._progress = Progress(job.progress_group)
        self._one_at_a_time = threading.Lock()
        self._on_batch = on_batch
        self.failure: Exception | None = None
        """What went wrong in here: Spark wraps it into text."""

    def __call__(self, frame: "DataFrame", batch: int) -> None:
        try:
            self._commit(frame, batch)
        except Exception as error:
            self.failure = error
            raise

    def close(self) -> None:
        """Closes the connections, once the query has ended."""
        self.show_progress(at_once=True)
        self._cluster.close()

    def show_progress(self, ends: Mapping[TopicPartition, int] | None = None, *, at_once: bool = False) -> None:
        """Publishes `ends`, and what could not be published before. Batches are committed on a thread of Spark's."""
        with self._one_at_a_time:
            self._progress.reached(ends or {})
            self._progress.publish(self._cluster, at_once=at_once)

    def _behind(self, ends: Mapping[TopicPartition, int]) -> int | None:
        self._places |= ends
        with self._one_at_a_time:
            try:
                last = high_watermarks(self._cluster, list(self._places))
            except (KafkaError, ClientError) as error:
                logger.warning("lag not known: topic=%s reason=%s", self._job.topic, error)
                return None
        return sum(max(0, last[each] - place) for each, place in self._places.items())

    def _check_history(self, written: Sequence[delta.WrittenRange]) -> None:
        """Stops before the batch where another writer's RESTORE took away what the progress counts."""
        topic = self._job.topic
        for each in written:
            partition = each.offsets.topic_partition
            self._apps[partition] = delta.progress_id(topic, partition.partition, each.offsets.topic_id)
        found = find_contradiction(self._table, self._apps, topic, self._checked)
        if found is not None:
            remove_files(self._job.table_path, [each.path for each in written if each.path])
            raise TableMismatch(found.explain(topic, self._job.path))
        self._checked = self._table.version()

    def _commit(self, frame: "DataFrame", batch: int) -> None:
        started = time.monotonic()
        query = _query_id(frame)
        table = self._table
        table.update_incremental()
        # Reading writes the files. Whether it was a replay, Spark's last batch again, shows in the offsets.
        written = [from_manifest(row) for row in frame.collect()]
        self._check_history(written)
        replayed = bool(written) and not delta.commit_batch(table, query, batch, written, self._checked)
        if replayed:
            remove_files(self._job.table_path, [each.path for each in written if each.path])
        ends: dict[TopicPartition, int] = {}
        for each in written:
            partition = each.offsets.topic_partition
            ends[partition] = max(ends.get(partition, 0), each.offsets.end)
        self.show_progress(ends)
        if self._on_batch is not None:
            self._on_batch(
                BatchDone(
                    topic=self._job.topic,
                    batch=batch,
                    rows=0 if replayed else sum(each.rows for each in written),
                    record_bytes=sum(each.record_bytes for each in written),
                    file_bytes=0 if replayed else sum(each.size for each in written),
                    files=0 if replayed else sum(1 for each in written if each.path),
                    version=table.version(),
                    replayed=replayed,
                    offsets=ends,
                    seconds=time.monotonic() - started,
                    behind=self._behind(ends),
                    freshness_s=_freshness_s(written),
                    new_fields=tuple(sorted({name for each in written for name in each.new_fields})),
                )
            )


def _freshness_s(written: Sequence[delta.WrittenRange]) -> float | None:
    newest = [
        datetime.datetime.fromisoformat(found)
        for each in written
        for name in ("timestamp", "_timestamp")
        if (found := json.loads(each.statistics).get("maxValues", {}).get(name))
    ]
    return None if not newest else time.time() - max(newest).timestamp()


def _query_id(frame: "DataFrame") -> str:
    """The id that Spark keeps in the checkpoint, for people who read the table's history."""
    return frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or ""


@dataclass(frozen=True, slots=True)
class TableRun:
    """A job under way."""

    job: TableJob
    query: "StreamingQuery"
    committer: TableCommitter
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
                self.committer.show_progress()
        except Exception as error:
            self.committer.close()
            if (explained := self._explained(error)) is None:
                raise
            raise explained from error
        if ended:
            self.committer.close()
        return ended

    def stop(self) -> None:
        """Ends a continuous job, after the batch under way if that is done within `STOP_PATIENCE_S`."""
        deadline = time.monotonic() + STOP_PATIENCE_S
        while self.query.isActive and self.query.status["isTriggerActive"] and time.monotonic() < deadline:
            self.query.awaitTermination(0.05)  # type: ignore[arg-type]  # Spark takes floats.
        self.query.stop()
        self.committer.close()

    def _explained(self, error: Exception) -> PipelineError | None:
        """What ended the job in this project's words; None where it is an error of another making."""
        failure = self.committer.failure
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
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        check_not_connect(Place.CONNECT)
    options = _source_options(job)
    parsed = parse_options(options, streaming=True)
    cluster = open_cluster(parsed)
    try:
        return _begin(spark, job, options, parsed, cluster, on_batch)
    except BaseException:
        cluster.close()
        raise


def rewind_table(job: TableJob) -> Contradiction | None:
    """Sets the progress of a table that was restored back to what it holds; None where nothing was wrong.

    Raises `TableMismatch` where that cannot be done, or there is no table; `KafkaError` or `ClientError` where the
    cluster does not say which partitions there are.
    """
    parsed = parse_options(_source_options(job), streaming=True)
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
    committer = TableCommitter(job, table, shape, cluster, starts, on_batch)
    committer.show_progress(stands)
    checkpoint = job.checkpoint_after(rewinds(table, job.topic))
    query = _start_query(spark, job, options, shape, committer, checkpoint)
    backlog = sum(max(0, end - starts.get(each, 0)) for each, end in ends.items())
    return TableRun(job, query, committer, shape, backlog)


def _start_query(
    spark: "SparkSession",
    job: TableJob,
    options: Mapping[str, str],
    shape: TableShape,
    committer: TableCommitter,
    checkpoint: str,
) -> "StreamingQuery":
    spark.dataSource.register(TableFiles)
    reader = spark.readStream.format(_SOURCE).options(**options)
    frame = reader.option(_SHAPE_OPTION, shape.to_text()).option(_PATH_OPTION, job.table_path).load()
    writer = frame.writeStream.foreachBatch(committer).option("checkpointLocation", checkpoint)
    writer = writer.queryName(f"tidelog table {job.topic} {Path(job.path).name}")
    if job.once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{max(0, round(job.trigger_interval_s * 1000))} milliseconds").start()


def _source_options(job: TableJob) -> dict[str, str]:
    """The source's options of a job: what the user gave, whatever its case, with the job's own on top."""
    own = {"kafka.bootstrap.servers": job.bootstrap, "subscribe": job.topic}
    if job.offsets_max_per_trigger is not None:
        own["maxOffsetsPerTrigger"] = str(job.offsets_max_per_trigger)
    # A table is for good: it takes no record of a transaction that was aborted, or still may be.
    defaults = {"startingOffsets": job.starting_offsets, "kafka.isolation.level": "read_committed"}
    settled = {name.lower() for name in own}
    given = {name: value for name, value in job.source_options.items() if name.lower() not in settled}
    known = {name.lower() for name in given}
    return given | own | {name: value for name, value in defaults.items() if name.lower() not in known}


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
