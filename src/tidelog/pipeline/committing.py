"""The driver's part of a table job: one Delta commit a batch, and what is told of it.

Spark calls a `TableCommitter` in the driver's process; with Spark Connect that is the server's (`connect`).
"""

import datetime
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from deltalake import DeltaTable

from pyspark_tidelog.options import EARLIEST, parse_options
from pyspark_tidelog.planning import earliest_offsets, high_watermarks
from pyspark_tidelog.progress import Progress
from tidelog.client.blocking import BlockingCluster
from tidelog.client.errors import ClientError
from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.pipeline import delta
from tidelog.pipeline.errors import TableMismatch
from tidelog.pipeline.history import find_contradiction, known_topic_id, last_batch
from tidelog.pipeline.job import TableJob, source_options
from tidelog.pipeline.json_values import told_fields
from tidelog.pipeline.parquet import from_manifest, remove_files
from tidelog.pipeline.shape import ValueFormat

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger: Final = logging.getLogger(__name__)


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


class Attendant(Protocol):
    """What looks after a job where it was started."""

    @property
    def failure(self) -> Exception | None:
        """What went wrong in the commits, where that is known here: Spark wraps it into text."""
        ...

    def show_progress(self, *, at_once: bool = False) -> None:
        """Tells what has not been told yet."""
        ...

    def close(self) -> None:
        """Once the query has ended."""
        ...


class TableCommitter:
    """The driver's part: one Delta commit a batch. Called by Spark, one batch at a time."""

    def __init__(
        self,
        job: TableJob,
        table: DeltaTable,
        cluster: BlockingCluster,
        starts: Mapping[TopicPartition, int],
        on_batch: Callable[[BatchDone], None] | None,
        *,
        checked: int | None = None,
        run: str | None = None,
    ) -> None:
        """It goes on at `starts`. `checked`: the version up to which the table's history was checked, None for all;
        `run`: what the table's history calls the job, None for Spark's id of the query."""
        self._places = dict(starts)
        self._job = job
        self._table = table
        self._columns = delta.table_schema(table)
        self._last = delta.last_commit(table)
        self._checked = table.version() if checked is None else checked
        self._run = run
        self._apps: dict[TopicPartition, str] = {}
        self._cluster = cluster
        self._progress = Progress(job.progress_group)
        self._one_at_a_time = threading.Lock()
        self._on_batch = on_batch
        self.failure: Exception | None = None
        """What went wrong in here: Spark wraps it into text."""

    def __call__(self, frame: "DataFrame", batch: int) -> None:
        started = time.monotonic()
        try:
            self.refresh()
            written = collected(frame)
        except Exception as error:
            self.failure = error
            raise
        self.take(frame, batch, written, started)

    def refresh(self) -> None:
        """Before the tasks of a batch write: what others commit from here on is a conflict."""
        self._last = delta.refresh(self._table, self._last)

    def take(self, frame: "DataFrame", batch: int, written: Sequence[delta.WrittenRange], started: float) -> None:
        """Commits what the tasks of a batch wrote for this table; `started`: when the batch did (monotonic)."""
        try:
            self._commit(frame, batch, self._with_topic_id(written), started)
        except Exception as error:
            self.failure = error
            raise

    def close(self) -> None:
        """Closes the connections, once the query has ended."""
        self.show_progress(at_once=True)
        self._cluster.close()

    def reached(self, ends: Mapping[TopicPartition, int]) -> None:
        """Publishes `ends`."""
        with self._one_at_a_time:
            self._progress.reached(ends)
            self._progress.publish(self._cluster)

    def show_progress(self, *, at_once: bool = False) -> None:
        """Publishes what could not be published before. Batches are committed on a thread of Spark's."""
        with self._one_at_a_time:
            self._progress.publish(self._cluster, at_once=at_once)

    def _behind(self, ends: Mapping[TopicPartition, int]) -> int | None:
        self._places |= ends
        with self._one_at_a_time:
            return offsets_behind(self._cluster, self._places)

    def _with_topic_id(self, written: Sequence[delta.WrittenRange]) -> list[delta.WrittenRange]:
        """What was written of a topic whose id no broker told is of the one that the table knows."""
        if all(each.offsets.topic_id for each in written):
            return list(written)
        known = known_topic_id(self._table, self._job.topic, "")
        return [
            replace(each, offsets=replace(each.offsets, topic_id=each.offsets.topic_id or known)) for each in written
        ]

    def _check_history(self, written: Sequence[delta.WrittenRange]) -> None:
        """Stops before the batch where another writer's RESTORE took away what the progress counts."""
        topic = self._job.topic
        if not written:
            return
        # A RESTORE is looked at once: also for partitions that have no records in this batch.
        for each in written:
            partitions = {each.offsets.topic_partition, *self._places}
            self._apps |= delta.progress_ids(partitions, each.offsets.topic_id)
        found = find_contradiction(self._table, self._apps, topic, self._checked)
        if found is not None:
            remove_files(self._job.table_path, [each.path for each in written if each.path])
            raise TableMismatch(found.explain(topic, self._job.path))
        self._checked = self._table.version()

    def _check_beginning(self, written: Sequence[delta.WrittenRange]) -> None:
        """Stops before the first batch of a new table that begins behind where the job does.

        Its checkpoint is then one that another table has left; one inside the table goes with the table.
        """
        job, table = self._job, self._table
        if job.checkpoint is None or any(table.transaction_version(each) is not None for each in self._apps.values()):
            return
        if last_batch(table, job.topic) is not None:
            return
        begins: dict[TopicPartition, int] = {}
        for each in written:
            partition = each.offsets.topic_partition
            begins[partition] = min(begins.get(partition, each.offsets.start), each.offsets.start)
        for partition, first in self._first_offsets(list(begins)).items():
            if begins[partition] > first:
                remove_files(job.table_path, [each.path for each in written if each.path])
                raise TableMismatch(
                    f"{table.table_uri} has no records of {job.topic}, but the batch begins at offset"
                    f" {begins[partition]} of {partition}, not at {first}: the checkpoint is of another table. Remove"
                    " the checkpoint, and the table takes all"
                )

    def _first_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Where the job begins in those of the partitions of which that is known: retention moves the earliest offset
        up only, and the latest one is another at each look."""
        options = parse_options(source_options(self._job), streaming=True)
        starting = options.starting
        if starting.by_timestamp:
            return {}
        at = {each: starting.each.get(each, starting.everywhere) for each in partitions}
        earliest = tuple(each for each, offset in at.items() if offset == EARLIEST)
        given = {each: offset for each, offset in at.items() if offset is not None and offset >= 0}
        return given | earliest_offsets(self._cluster, options, earliest)

    def _commit(self, frame: "DataFrame", batch: int, written: Sequence[delta.WrittenRange], started: float) -> None:
        query = _query_id(frame) if self._run is None else self._run
        table = self._table
        # The tasks write columns of the job's start, whatever others make of the table meanwhile.
        delta.check_takes(table, self._columns)
        self._check_history(written)
        self._check_beginning(written)
        newest = newest_s(written, self._job.value)
        report = _report(written, time.monotonic() - started, newest)
        # Whether it was a replay, Spark's last batch again, shows in the offsets.
        replayed = bool(written) and not delta.commit_batch(table, query, batch, written, self._checked, report)
        if replayed:
            remove_files(self._job.table_path, [each.path for each in written if each.path])
        ends: dict[TopicPartition, int] = {}
        for each in written:
            partition = each.offsets.topic_partition
            ends[partition] = max(ends.get(partition, 0), each.offsets.end)
        self.reached(ends)
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
                    freshness_s=None if newest is None else time.time() - newest,
                    new_fields=told_fields(name for each in written for name in each.new_fields),
                )
            )


def collected(frame: "DataFrame") -> list[delta.WrittenRange]:
    """What the tasks of a batch wrote: reading is what has them write."""
    return [from_manifest(row) for row in frame.collect()]


def offsets_behind(cluster: BlockingCluster, places: Mapping[TopicPartition, int]) -> int | None:
    """Offsets between `places` and the ends of the partitions; None where no broker says."""
    try:
        last = high_watermarks(cluster, list(places))
    except (KafkaError, ClientError) as error:
        topics = ",".join(sorted({each.topic for each in places}))
        logger.warning("lag not known: topic=%s reason=%s", topics, error)
        return None
    return sum(max(0, last[each] - place) for each, place in places.items())


def newest_s(written: Sequence[delta.WrittenRange], value: ValueFormat) -> float | None:
    """The timestamp of the newest record, in seconds since 1970; None where the table has no timestamps."""
    # A field of JSON values may be called timestamp, too.
    name = "_timestamp" if value is ValueFormat.JSON else "timestamp"
    newest = [
        datetime.datetime.fromisoformat(found)
        for each in written
        if (found := json.loads(each.statistics).get("maxValues", {}).get(name))
    ]
    return max(newest).timestamp() if newest else None


def _report(written: Sequence[delta.WrittenRange], seconds: float, newest: float | None) -> dict[str, Any]:
    """What the table's history says of a batch."""
    return {
        "rows": sum(each.rows for each in written),
        "record_bytes": sum(each.record_bytes for each in written),
        "file_bytes": sum(each.size for each in written),
        "files": sum(1 for each in written if each.path),
        "seconds": round(seconds, 3),
        "new_fields": told_fields(name for each in written for name in each.new_fields),
        "newest_s": newest,
    }


def _query_id(frame: "DataFrame") -> str:
    """The id that Spark keeps in the checkpoint, for people who read the table's history."""
    return frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or ""
