"""A query's lag as its listener tells it is that of Kafka's own tool at the same moment, in all and by partition."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from pyspark_tidelog.lag import Lag, LagListener
from pyspark_tidelog.options import parse_options
from pyspark_tidelog.spark_versions import ReadMaxRows
from pyspark_tidelog.stream import TidelogStreamReader
from tests.conformance.check_kafka_tools import TOOLS, run
from tests.unit.pyspark_tidelog.spark_fixtures import Broker
from tidelog.testing import Cluster


def progress(start: Any, end: Any) -> Any:
    """As Spark tells of a batch."""
    source = SimpleNamespace(startOffset=json.dumps(start), endOffset=json.dumps(end))
    return SimpleNamespace(
        progress=SimpleNamespace(sources=[source], name="flights", id="id", batchId=0, numInputRows=0)
    )


def lags_by_tool(bootstrap: str, group: str) -> dict[int, int]:
    """[partition] -> LAG that `kafka-consumer-groups --describe` prints."""
    tool = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
    lines = run(tool, "--bootstrap-server", bootstrap, "--describe", "--group", group).splitlines()
    header = next(line.split() for line in lines if line.startswith("GROUP"))
    rows = [dict(zip(header, line.split(), strict=False)) for line in lines if line.startswith(group)]
    return {int(row["PARTITION"]): int(row["LAG"]) for row in rows}


def test_lag_is_what_kafkas_tool_prints() -> None:
    """After a first batch, after more records came, and when all was read; a transaction's marker counts in both."""
    from confluent_kafka import Producer

    with Cluster() as cluster:
        broker = Broker(cluster.bootstrap)
        topic = broker.topic(3)
        lags: list[Lag] = []
        listener = LagListener(cluster.bootstrap, lags.append)
        options = broker.options(topic, startingOffsets="earliest", progressGroup="query", maxOffsetsPerTrigger="8")
        reader = TidelogStreamReader(parse_options(options, streaming=True))
        for partition, count in enumerate((9, 5, 0)):
            if count:
                broker.produce(topic, [b"x"] * count, partition=partition)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "t"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, b"in a transaction", partition=1)
        producer.commit_transaction(30)
        broker.settle(topic)
        position = reader.initialOffset()
        for produced in (0, 7, 0):
            end = reader.latestOffset(position, ReadMaxRows(8))
            if produced:
                broker.produce(topic, [b"x"] * produced, partition=2)
            reader.commit(end)
            listener.onQueryProgress(progress(position, end))
            tool = lags_by_tool(cluster.bootstrap, "query")
            assert {each.partition: behind for each, behind in lags[-1].partitions.items()} == tool
            assert lags[-1].behind == sum(tool.values())
            position = end
        assert [lag.behind for lag in lags] == [8, 7, 0]
        reader.stop()
        listener.close()
        broker.client.close()
