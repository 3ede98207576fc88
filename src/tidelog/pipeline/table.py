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

import json
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from deltalake import DeltaTable

from pyspark_tidelog.offsets import OffsetRange
from pyspark_tidelog.options import EARLIEST, LATEST, OffsetsAt, SourceOptions, parse_options
from pyspark_tidelog.planning import Partitions, latest_offsets, open_cluster, required_partitions, starting_offsets
from pyspark_tidelog.progress import PUBLISHED_AGAIN_S
from pyspark_tidelog.reading import read_columns
from tidelog.client.blocking import BlockingCluster
from tidelog.model.identifiers import TopicPartition
from tidelog.pipeline import delta
from tidelog.pipeline.committing import Attendant, BatchDone, TableCommitter
from tidelog.pipeline.connect import RemoteCommitter, TableFollower
from tidelog.pipeline.errors import PipelineError, TableMismatch
from tidelog.pipeline.history import (
    Contradiction,
    check_topic,
    find_contradiction,
    forget_outdated,
    had_another_topic,
    known_topic_id,
    rewind,
    rewinds,
)
from tidelog.pipeline.job import TableJob, source_options
from tidelog.pipeline.json_values import can_be_parsed, infer_schema
from tidelog.pipeline.several import (
    Commit,
    SharedAttendant,
    SharedCommitter,
    check_alike,
    checkpoint_of_run,
)
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
from tidelog.pipeline.table_files import TABLES_OPTION, TableFiles, TablePlace, tables_text
from tidelog.records.columns import Column

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["BatchDone", "TableJob", "TableRun", "rewind_table", "start_table", "start_tables"]

FROM_BEGINNING: Final = OffsetsAt("startingOffsets", everywhere=EARLIEST)
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
        with self._ending():
            while not ended and (deadline is None or time.monotonic() < deadline):
                left = PUBLISHED_AGAIN_S if deadline is None else deadline - time.monotonic()
                patience_s = max(0.001, min(left, PUBLISHED_AGAIN_S))
                ended = self.query.awaitTermination(patience_s) is not False  # type: ignore[arg-type]  # Spark takes floats.
                self.attendant.show_progress()
        if ended:
            self.attendant.close()
        return ended

    def stop(self) -> None:
        """Ends a continuous job, after the batch under way if that is done within `STOP_PATIENCE_S`; raises as `wait`
        where that batch fails."""
        deadline = time.monotonic() + STOP_PATIENCE_S
        with self._ending():
            while self.query.isActive and self.query.status["isTriggerActive"] and time.monotonic() < deadline:
                self.query.awaitTermination(0.05)  # type: ignore[arg-type]  # Spark takes floats.
            self.query.stop()
        self.attendant.close()

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """Closes the connections after an error, and tells it in its own words."""
        try:
            yield
        except Exception as error:
            self.attendant.close()
            if (explained := self._explained(error)) is None:
                raise
            raise explained from error

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
    return start_tables(spark, [job], on_batch=on_batch)[0]


def start_tables(
    spark: "SparkSession", jobs: Sequence[TableJob], *, on_batch: Callable[[BatchDone], None] | None = None
) -> tuple[TableRun, ...]:
    """Starts jobs that share one query of Spark's (`several`): they end together, and what fails one ends all.

    Raises as `start_table`; `PipelineError` where one query can't do all of them.
    """
    check_alike(jobs)
    remote = is_connect(spark)
    if remote:
        jobs = [_for_server(each, shares=len(jobs) > 1) for each in jobs]
    with ExitStack() as undone:
        openings = [_open(each, undone) for each in jobs]
        several = len(openings) > 1
        runs = _start_several(spark, openings, on_batch) if several else (_start_one(spark, openings[0], on_batch),)
        undone.pop_all()
    return runs


def _for_server(job: TableJob, *, shares: bool) -> TableJob:
    """A job whose driver is another machine's."""
    if job.checkpoint is None and ("://" in job.path or shares):
        what = "of several tables" if shares else f"on a table at {job.path}"
        raise PipelineError(
            f"a job through Spark Connect {what} needs a checkpoint (--checkpoint PATH), on a file system that Spark's"
            " server has"
        )
    return replace(job, path=job.table_path)  # The server's working directory is another one.


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
    table = delta.opened(job.table_path)
    topic_id = known_topic_id(table, job.topic, found.topic_ids.get(job.topic, ""))
    return rewind(table, delta.progress_ids(found.partitions, topic_id), job.topic)


@dataclass(frozen=True, slots=True)
class _Opening:
    """A table and its topic as a run finds them."""

    job: TableJob
    options: SourceOptions
    cluster: BlockingCluster
    found: Partitions
    shape: TableShape
    table: DeltaTable
    stands: Mapping[TopicPartition, int]
    """The next offset of each partition that the table has taken something of, or stands at."""
    starts: Mapping[TopicPartition, int]
    """Where the run begins."""
    backlog: int

    @property
    def begins_at(self) -> Mapping[TopicPartition, int]:
        """Where a query without a checkpoint begins, as its options say it: the ends may move until Spark asks."""
        partitions, everywhere = self.found.partitions, self.options.starting.everywhere
        if self.stands:
            return {each: self.starts.get(each, EARLIEST) for each in partitions}
        if everywhere is None or self.options.starting.by_timestamp:
            return self.starts
        return dict.fromkeys(partitions, everywhere)


def _open(job: TableJob, undone: ExitStack) -> _Opening:
    """Looks at both; `undone` closes what it opens."""
    parsed = parse_options(source_options(job), streaming=True)
    cluster = open_cluster(parsed)
    undone.callback(cluster.close)
    found = required_partitions(cluster, parsed)
    shape = _shape(job, parsed, cluster, found)
    description = f"topic {job.topic}, by tidelog"
    table = delta.open_table(job.table_path, shape.schema, description=description, filled=shape.filled)
    topic_id = known_topic_id(table, job.topic, found.topic_ids.get(job.topic, ""))
    contradiction = find_contradiction(table, delta.progress_ids(found.partitions, topic_id), job.topic)
    if contradiction is not None:
        raise TableMismatch(contradiction.explain(job.topic, job.path))
    check_topic(table, job.topic, topic_id, fail_on_data_loss=parsed.fail_on_data_loss)
    stands = delta.next_offsets(table, found.partitions, topic_id)
    ends = latest_offsets(cluster, parsed, found.partitions)
    begins_elsewhere = parsed.starting != FROM_BEGINNING and len(stands) < len(found.partitions)
    if begins_elsewhere and had_another_topic(table, job.topic, topic_id):
        # Where to begin was said of that one: this one is taken from its beginning.
        parsed = replace(parsed, starting=FROM_BEGINNING)
    if not stands:
        stands = _settle_ends(table, cluster, parsed, found, topic_id)
    starts = _given_offsets(parsed, found) | stands if stands else starting_offsets(cluster, parsed, found)
    backlog = sum(max(0, end - starts.get(each, 0)) for each, end in ends.items())
    return _Opening(job, parsed, cluster, found, shape, table, stands, starts, backlog)


def _settle_ends(
    table: DeltaTable, cluster: BlockingCluster, options: SourceOptions, found: Partitions, topic_id: str
) -> dict[TopicPartition, int]:
    """Has a new table stand where partitions end that it is to begin at the end of; where that is.

    Another run would begin at another end otherwise: one that takes what there is, and ends, never has a record.
    """
    at = options.starting
    late = [] if at.by_timestamp else [each for each in found.partitions if at.each.get(each, at.everywhere) == LATEST]
    if not late:
        return {}
    offsets = starting_offsets(cluster, options, found)
    ends = {each: offsets[each] for each in late}
    delta.begin_at(table, ends, topic_id)
    return ends


def _given_offsets(options: SourceOptions, found: Partitions) -> dict[TopicPartition, int]:
    """What the options say in numbers: it holds for a partition of which the table has no record yet, too."""
    if options.starting.by_timestamp:
        return {}
    given = options.starting.each
    return {each: given[each] for each in found.partitions if given.get(each, EARLIEST) >= 0}


def _start_one(spark: "SparkSession", opening: _Opening, on_batch: Callable[[BatchDone], None] | None) -> TableRun:
    job = opening.job
    checkpoint = job.checkpoint_after(rewinds(opening.table, job.topic))
    if job.checkpoint is None and "://" not in job.path and not is_connect(spark):
        forget_outdated(Path(checkpoint), opening.table, job.topic)
    attendant, commit = _attended(spark, opening, uuid.uuid4().hex, on_batch)
    query = _start_query(spark, [opening], _options_of(opening), commit, checkpoint)
    return TableRun(job, query, attendant, opening.shape, opening.backlog)


def _options_of(opening: _Opening) -> dict[str, str]:
    """Where to begin is heeded by a query without a checkpoint only: it goes on where the table stands."""
    options = source_options(opening.job)
    if opening.stands:
        return _starting_at(options, opening.begins_at)
    if opening.options.starting == FROM_BEGINNING:
        return _without_start(options) | {"startingOffsets": "earliest"}
    return options


def _start_several(
    spark: "SparkSession", openings: Sequence[_Opening], on_batch: Callable[[BatchDone], None] | None
) -> tuple[TableRun, ...]:
    run = uuid.uuid4().hex
    attended = [_attended(spark, each, run, on_batch) for each in openings]
    commit = SharedCommitter({each.job.topic: mine for each, (_, mine) in zip(openings, attended, strict=True)})
    attendant = SharedAttendant([each for each, _ in attended])
    jobs = [each.job for each in openings]
    begins_at = {partition: offset for each in openings for partition, offset in each.begins_at.items()}
    options = _starting_at(source_options(jobs[0]), begins_at) | {"subscribe": ",".join(each.topic for each in jobs)}
    query = _start_query(spark, openings, options, commit, checkpoint_of_run(jobs, run))
    return tuple(TableRun(each.job, query, attendant, each.shape, each.backlog) for each in openings)


def _attended(
    spark: "SparkSession", opening: _Opening, run: str, on_batch: Callable[[BatchDone], None] | None
) -> tuple[Attendant, TableCommitter | RemoteCommitter]:
    """What looks after a table here, and what commits to it."""
    job, table, cluster, starts = opening.job, opening.table, opening.cluster, opening.starts
    if is_connect(spark):
        follower = TableFollower(run, table, cluster, starts, on_batch)
        return follower, RemoteCommitter(job, run, starts, table.version())
    committer = TableCommitter(job, table, cluster, starts, on_batch)
    committer.reached(opening.stands)
    return committer, committer


def _start_query(
    spark: "SparkSession",
    openings: Sequence[_Opening],
    options: Mapping[str, str],
    commit: Commit,
    checkpoint: str,
) -> "StreamingQuery":
    spark.dataSource.register(TableFiles)
    job = openings[0].job
    places = {each.job.topic: TablePlace(each.job.table_path, each.shape.to_text()) for each in openings}
    reader = spark.readStream.format(TableFiles.name()).options(**options)
    frame = reader.option(TABLES_OPTION, tables_text(places)).load()
    writer = frame.writeStream.foreachBatch(commit).option("checkpointLocation", checkpoint)
    others = f" and {len(openings) - 1} more" if len(openings) > 1 else ""
    writer = writer.queryName(f"tidelog table {job.topic} {Path(job.path).name}{others}")
    if job.once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{max(0, round(job.trigger_interval_s * 1000))} milliseconds").start()


def _starting_at(options: Mapping[str, str], places: Mapping[TopicPartition, int]) -> dict[str, str]:
    """The options of a query that starts there and nowhere else."""
    offsets: dict[str, dict[str, int]] = {}
    for each, offset in sorted(places.items()):
        offsets.setdefault(each.topic, {})[str(each.partition)] = offset
    return _without_start(options) | {"startingOffsets": json.dumps(offsets)}


def _without_start(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if not name.lower().startswith("starting")}


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
        if others := [each.name for each in job.value_schema if not can_be_parsed(each.type)]:
            raise TableMismatch(
                f"column {', '.join(others)} of the schema has maps, intervals, times of day, VARIANT, geography or a"
                " STRUCT without fields, which JSON values are not parsed into: give a STRUCT of the fields that you"
                " want, or STRING, or leave it out"
            )
        return job.value_schema
    if DeltaTable.is_deltatable(job.table_path):
        known = {*METADATA, UNPARSED, REASON}
        columns = delta.table_schema(delta.opened(job.table_path))
        return pa.schema([each for each in columns if each.name not in known and can_be_parsed(each.type)])
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
