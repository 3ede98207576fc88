"""Table jobs through Spark Connect, without a server: what it calls, and what the client hears of it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from tests.unit.pyspark_tidelog.spark_fixtures import Broker

from pyspark_tidelog.offsets import OffsetRange
from pyspark_tidelog.options import parse_options
from pyspark_tidelog.planning import open_cluster
from tidelog.model.identifiers import TopicPartition
from tidelog.pipeline import delta
from tidelog.pipeline.committing import BatchDone
from tidelog.pipeline.connect import RemoteCommitter, TableFollower
from tidelog.pipeline.errors import PipelineError, TableMismatch
from tidelog.pipeline.job import TableJob, source_options
from tidelog.pipeline.parquet import manifest, write_range
from tidelog.pipeline.shape import raw_shape
from tidelog.pipeline.table import start_table

pytestmark = [pytest.mark.row("R38")]


class Frame:
    """The DataFrame of a batch; its tasks write when it is collected."""

    def __init__(self, job: TableJob, *ranges: OffsetRange) -> None:
        self._job = job
        self._ranges = ranges

    def collect(self) -> list[dict[str, Any]]:
        options = parse_options(source_options(self._job), streaming=True)
        written = [write_range(options, each, self._job.table_path, raw_shape(None)) for each in self._ranges]
        return [row for each in written for batch in manifest(each) for row in batch.to_pylist()]


def test_a_client_hears_of_what_the_server_commits(broker: Broker, tmp_path: Path) -> None:
    """Of its own run only, once, and not of a batch that the table had already."""
    topic = broker.topic(2)
    broker.produce(topic, [b"x"] * 4)
    broker.produce(topic, [b"y"] * 3, partition=1)
    job = TableJob(broker.bootstrap, topic, str(tmp_path))
    table = delta.open_table(job.path, raw_shape(None).schema, description="")
    starts = {TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 0}
    cluster = open_cluster(parse_options(source_options(job), streaming=True))
    heard: list[BatchDone] = []
    follower = TableFollower("mine", table, cluster, starts, heard.append)
    server = pickle.loads(pickle.dumps(RemoteCommitter(job, "mine", starts, table.version())))
    server(Frame(job, OffsetRange(topic, 0, 0, 4), OffsetRange(topic, 1, 0, 1)), 0)
    follower.show_progress()
    server(Frame(job, OffsetRange(topic, 0, 0, 4), OffsetRange(topic, 1, 0, 1)), 0)
    other = RemoteCommitter(job, "another", starts, table.version())
    other(Frame(job, OffsetRange(topic, 1, 1, 2)), 7)
    server(Frame(job, OffsetRange(topic, 1, 2, 3)), 1)
    follower.close()
    told = [(each.batch, each.rows, each.files, each.version, dict(each.offsets), each.behind) for each in heard]
    assert told == [
        (0, 5, 2, 1, {(topic, 0): 4, (topic, 1): 1}, 2),
        (1, 1, 1, 3, {(topic, 1): 3}, 0),
    ]
    assert heard[0].freshness_s is not None
    files = DeltaTable(job.path, version=1).file_uris()
    assert heard[0].file_bytes == sum(Path(each.removeprefix("file://")).stat().st_size for each in files)
    assert broker.committed(job.progress_group, topic) == {0: 4, 1: 3}
    broker.produce(topic, [b"x"] * 4)
    with pytest.raises(TableMismatch, match="the batch begins at 6"):
        server(Frame(job, OffsetRange(topic, 0, 6, 8)), 2)
    server.close()
    other.close()


def test_a_table_elsewhere_needs_a_checkpoint() -> None:
    """A temporary folder of this machine is none of the server's."""
    session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(PipelineError, match="needs a checkpoint"):
        start_table(session, TableJob("127.0.0.1:1", "t", "s3://lake/t"))


def test_a_client_closes_its_connections_though_the_table_cannot_be_read(tmp_path: Path) -> None:
    """Just when the query ends: the error is told."""
    closed: list[bool] = []

    class Connections:
        def close(self) -> None:
            closed.append(True)

    cluster: Any = Connections()
    table = delta.open_table(str(tmp_path / "t"), raw_shape(None).schema, description="")
    follower = TableFollower("mine", table, cluster, {}, lambda batch: None)
    (tmp_path / "t" / "_delta_log" / f"{1:020}.json").write_text("{")
    with pytest.raises(DeltaError):
        follower.close()
    assert closed == [True]
