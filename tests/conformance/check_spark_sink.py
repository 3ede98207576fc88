"""What Java's consumer of committed records sees of the Spark sink: a batch's rows once, nothing of one that died."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from pyspark_tidelog.sink import copying
from pyspark_tidelog.sink.copying import commit_micro_batch
from pyspark_tidelog.sink.options import parse_sink_options
from pyspark_tidelog.sink.staged import StagedWrite
from pyspark_tidelog.sink.task import stage
from tests.conformance.check_kafka_tools import TOOLS, run
from tidelog.client import admin
from tidelog.client.blocking import BlockingCluster
from tidelog.testing import Cluster


def test_javas_consumer_sees_each_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losing attempts, a driver that dies before its commit, its successor, and a batch that is repeated."""
    with Cluster() as cluster, BlockingCluster(cluster.bootstrap) as client:
        client.run(admin.create_topics(client.routing, [admin.NewTopic("answers", 3, 1)]))
        options = parse_sink_options(
            {"kafka.bootstrap.servers": cluster.bootstrap, "topic": "answers", "kafka.compression.type": "zstd"}
        )

        def attempt(batch: int) -> StagedWrite:
            values = pa.array([f"{batch}-{row}".encode() for row in range(500)])
            rows = pa.RecordBatch.from_arrays([values, values], ["key", "value"])
            return stage(options, ("key", "value"), [rows], query="q", batch=batch, is_query=True)

        class Killed(BaseException):
            """As SIGKILL."""

        def killed(*arguments: object, **named: object) -> None:
            raise Killed

        for batch in range(3):
            attempt(batch)
            dying = attempt(batch)
            with monkeypatch.context() as patch:
                patch.setattr(copying, "end_transaction", killed)
                with pytest.raises(Killed):
                    commit_micro_batch(options, [dying], batch)
            for _ in range(2):
                commit_micro_batch(options, [attempt(batch)], batch)
        text = run(
            f"{TOOLS}.consumer.ConsoleConsumer",
            *("--bootstrap-server", cluster.bootstrap, "--topic", "answers", "--from-beginning"),
            *("--timeout-ms", "8000", "--consumer-property", "isolation.level=read_committed"),
        )
        seen = Counter(line for line in text.splitlines() if line[:1].isdigit() and "-" in line)
        assert seen == {f"{batch}-{row}": 1 for batch in range(3) for row in range(500)}
