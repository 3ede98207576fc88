"""Table jobs through Spark Connect, whose driver is a server's process.

    client    starts the query, follows the table's history             `TableFollower`
    server    a Python worker beside the driver commits each batch      `RemoteCommitter`

The two share no memory: what is to be told of a batch is in the commit that made it.
"""

import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from deltalake import DeltaTable

from pyspark_tidelog.options import parse_options
from pyspark_tidelog.planning import open_cluster
from tidelog.client.blocking import BlockingCluster
from tidelog.model.identifiers import TopicPartition
from tidelog.pipeline import delta
from tidelog.pipeline.committing import BatchDone, TableCommitter, offsets_behind
from tidelog.pipeline.history import OFFSETS, QUERY
from tidelog.pipeline.job import TableJob, source_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LOOK_INTERVAL_S: Final = 1.0
"""Between two looks at the table's history: each is a listing of a folder, maybe in an object store."""


class RemoteCommitter:
    """What `foreachBatch` calls on the server. It travels pickled; connections are opened there, and kept."""

    def __init__(self, job: TableJob, run: str, starts: Mapping[TopicPartition, int], checked: int) -> None:
        """`checked`: the version up to which the table's history was checked."""
        self._job = job
        self._run = run
        self._starts = dict(starts)
        self._checked = checked
        self._committer: TableCommitter | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_committer": None}

    def __call__(self, frame: "DataFrame", batch: int) -> None:
        self.opened()(frame, batch)

    def opened(self) -> TableCommitter:
        """What commits, on the server."""
        if self._committer is None:
            self._committer = self._open()
        return self._committer

    def close(self) -> None:
        """Closes the connections. On a server they end with the worker, which is the query's."""
        if self._committer is not None:
            self._committer.close()

    def _open(self) -> TableCommitter:
        cluster = open_cluster(parse_options(source_options(self._job), streaming=True))
        table = delta.opened(self._job.table_path)
        return TableCommitter(self._job, table, cluster, self._starts, None, checked=self._checked, run=self._run)


class TableFollower:
    """Tells of a run's batches as they come into the table. A batch that the table had already is not told."""

    failure: Exception | None = None
    """What goes wrong on the server comes as text."""

    def __init__(
        self,
        run: str,
        table: DeltaTable,
        cluster: BlockingCluster,
        starts: Mapping[TopicPartition, int],
        on_batch: Callable[[BatchDone], None] | None,
    ) -> None:
        self._run = run
        self._table = table
        self._told = table.version()
        self._cluster = cluster
        self._places = dict(starts)
        self._on_batch = on_batch
        self._not_before = 0.0

    def show_progress(self, *, at_once: bool = False) -> None:
        """Tells of the commits since the last look."""
        if self._on_batch is None or (time.monotonic() < self._not_before and not at_once):
            return
        self._table.update_incremental()
        newer = self._table.version() - self._told
        for entry in reversed(self._table.history(newer) if newer > 0 else []):
            if entry.get(QUERY) == self._run:
                self._on_batch(self._done(entry))
            self._told = entry["version"]
        self._not_before = time.monotonic() + LOOK_INTERVAL_S

    def close(self) -> None:
        """Tells the rest, and closes the connections."""
        try:
            self.show_progress(at_once=True)
        finally:
            self._cluster.close()

    def _done(self, entry: Mapping[str, Any]) -> BatchDone:
        report = json.loads(entry[delta.REPORT])
        offsets: dict[TopicPartition, int] = {}
        for name, (_, end) in json.loads(entry[OFFSETS]).items():
            topic, _, number = name.rpartition("-")
            offsets[TopicPartition(topic, int(number))] = end
        self._places |= offsets
        newest_s = report["newest_s"]
        return BatchDone(
            topic=next(iter(offsets)).topic,
            batch=int(entry[delta.BATCH]),
            rows=report["rows"],
            record_bytes=report["record_bytes"],
            file_bytes=report["file_bytes"],
            files=report["files"],
            version=entry["version"],
            replayed=False,
            offsets=offsets,
            seconds=report["seconds"],
            new_fields=tuple(report["new_fields"]),
            behind=offsets_behind(self._cluster, self._places),
            freshness_s=None if newest_s is None else time.time() - newest_s,
        )
