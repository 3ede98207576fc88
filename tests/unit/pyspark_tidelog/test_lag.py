"""The listener's lag is what remains in the topics after a batch."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.pyspark_tidelog.spark_fixtures import BASE_TIMESTAMP, Broker
from tests.waiting import until

from pyspark_tidelog import LagListener
from pyspark_tidelog.lag import Lag
from pyspark_tidelog.spark_versions import HAS_LIMITS
from tidelog.model.identifiers import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.row("R38")]


@pytest.fixture
def told(broker: Broker) -> Iterator[tuple[LagListener, list[Lag]]]:
    lags: list[Lag] = []
    listener = LagListener(broker.bootstrap, lags.append, wall_s=lambda: BASE_TIMESTAMP / 1000 + 60)
    yield listener, lags
    listener.close()


def event(start: Any, end: Any, rows: int = 0, name: str | None = "mine") -> Any:
    """As Spark tells of a batch: offsets are JSON texts."""
    source = SimpleNamespace(startOffset=json.dumps(start) if start else None, endOffset=json.dumps(end))
    other = SimpleNamespace(startOffset="17", endOffset="rate")
    fields = {"sources": [other, source], "name": name, "id": "its-id", "batchId": 3, "numInputRows": rows}
    return SimpleNamespace(progress=SimpleNamespace(**fields))


def test_lag_is_what_remains(broker: Broker, told: tuple[LagListener, list[Lag]]) -> None:
    """Offsets behind by partition, and the age of the newest record that was read: each is a second later."""
    listener, lags = told
    topic = broker.topic(3)
    broker.produce(topic, [b"x"] * 4)
    broker.produce(topic, [b"x"] * 6)
    broker.produce(topic, [b"x"] * 5, partition=1)
    listener.onQueryProgress(event({topic: {"0": 2}}, {topic: {"0": 4, "1": 0, "2": 0}}, rows=2))
    listener.onQueryProgress(event({topic: {"0": 4, "1": 0, "2": 0}}, {topic: {"0": 10, "1": 5, "2": 0}}, name=None))
    partitions = [TopicPartition(topic, number) for number in range(3)]
    first, second = lags
    assert (first.query, first.batch, first.rows, first.offsets, first.behind) == ("mine", 3, 2, 2, 11)
    assert [first.partitions[each] for each in partitions] == [6, 5, 0]
    assert first.freshness_s == pytest.approx(57)
    assert (second.query, second.offsets, second.behind) == ("its-id", 11, 0)
    assert second.freshness_s == pytest.approx(55)


def test_a_first_batch_begins_where_its_plan_says(broker: Broker, told: tuple[LagListener, list[Lag]]) -> None:
    listener, lags = told
    topic = broker.topic()
    broker.produce(topic, [b"x"] * 4)
    listener.onQueryProgress(event(None, {"@from": {topic: {"0": 3}}, topic: {"0": 4}}))
    listener.onQueryProgress(event({topic: {"0": 4}}, {topic: {"0": 4}}))
    assert [(lag.offsets, lag.behind, lag.freshness_s is None) for lag in lags] == [(1, 0, False), (0, 0, True)]


def test_queries_of_other_sources_are_passed_over(told: tuple[LagListener, list[Lag]]) -> None:
    listener, lags = told
    for offset in ("5", "rate", '{"a": 3}', "null"):
        source = SimpleNamespace(startOffset=None, endOffset=offset)
        listener.onQueryProgress(SimpleNamespace(progress=SimpleNamespace(sources=[source])))  # type: ignore[arg-type]
    assert lags == []


def test_a_cluster_that_cannot_be_asked_is_a_warning(
    broker: Broker, told: tuple[LagListener, list[Lag]], caplog: pytest.LogCaptureFixture
) -> None:
    listener, lags = told
    listener.onQueryProgress(event(None, {"absent-topic": {"0": 4}}))
    assert lags == []
    assert [each.msg.split(":")[0] for each in caplog.records if each.levelno == logging.WARNING] == [
        "query_lag_unknown"
    ]


def test_a_topic_that_is_gone_hides_no_others_lag(broker: Broker, told: tuple[LagListener, list[Lag]]) -> None:
    """A query that may go on without it keeps its place there, in each of its batches."""
    listener, lags = told
    topic, gone = broker.topic(), broker.topic()
    broker.produce(topic, [b"x"] * 4)
    broker.delete(gone)
    listener.onQueryProgress(event({topic: {"0": 1}, gone: {"0": 9}}, {topic: {"0": 3}, gone: {"0": 9}}))
    assert [(lag.offsets, lag.partitions) for lag in lags] == [(2, {(topic, 0): 1})]


@pytest.mark.spark
@pytest.mark.skipif(not HAS_LIMITS, reason="PySpark before 4.2 has no limits: there is one batch")
def test_spark_tells_the_listener_of_its_queries(
    spark: SparkSession, broker: Broker, told: tuple[LagListener, list[Lag]], tmp_path: Path
) -> None:
    """By name, batch by batch, with the rows that Spark counts; the first of two batches leaves some behind."""
    listener, lags = told
    topic = broker.topic(2)
    broker.produce(topic, [b"x"] * 6)
    broker.produce(topic, [b"x"] * 3, partition=1)
    spark.streams.addListener(listener)
    try:
        options = broker.options(topic, startingOffsets="earliest", maxOffsetsPerTrigger="6")
        rows = spark.readStream.format("tidelog").options(**options).load()
        writer = rows.writeStream.format("noop").queryName("watched").trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination()
        until(lambda: len(lags) >= 2, "two batches are told")
    finally:
        spark.streams.removeListener(listener)
    assert [(lag.query, lag.batch, lag.rows, lag.offsets, lag.behind) for lag in lags] == [
        ("watched", 0, 6, 6, 3),
        ("watched", 1, 3, 3, 0),
    ]
    assert lags[0].freshness_s is not None
