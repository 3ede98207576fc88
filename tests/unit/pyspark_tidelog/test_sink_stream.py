"""`writeStream.format("tidelog")` against a broker: each micro-batch once, whatever is repeated."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.unit.pyspark_tidelog.spark_fixtures import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def run(spark: SparkSession, broker: Broker, source: str, checkpoint: Path, *columns: str, **options: str) -> None:
    """One query from its checkpoint until all that is there is written."""
    rows = spark.readStream.format("tidelog").options(**broker.options(source, startingOffsets="earliest")).load()
    query = (
        rows.selectExpr(*columns)
        .writeStream.format("tidelog")
        .options(**{"kafka.bootstrap.servers": broker.bootstrap, "stagingPartitions": "2"} | options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()


def committed(spark: SparkSession, broker: Broker, topic: str) -> list[str]:
    broker.settle(topic)
    options = broker.options(topic, **{"kafka.isolation.level": "read_committed"})
    return sorted(bytes(row.value).decode() for row in spark.read.format("tidelog").options(**options).load().collect())


def test_a_micro_batch_that_spark_repeats_is_skipped(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """A driver killed after the sink's commit and before Spark's runs the batch again, with the same number."""
    source, target = broker.topic(2), broker.topic(3)
    checkpoint = tmp_path / "checkpoint"
    broker.produce(source, [b"a", b"b"])
    run(spark, broker, source, checkpoint, "value", topic=target)
    broker.produce(source, [b"c"], partition=1)
    run(spark, broker, source, checkpoint, "value", topic=target)
    assert committed(spark, broker, target) == ["a", "b", "c"]
    for commit in (checkpoint / "commits").glob("*1*"):
        commit.unlink()
    run(spark, broker, source, checkpoint, "value", topic=target)
    assert committed(spark, broker, target) == ["a", "b", "c"]
    broker.produce(source, [b"d"])
    run(spark, broker, source, checkpoint, "value", topic=target)
    assert committed(spark, broker, target) == ["a", "b", "c", "d"]


def test_a_batch_that_fails_is_absent_and_written_by_the_restart(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """A topic that is missing: the error names it; once it is there the same batch is written, once."""
    source, target = broker.topic(1), broker.topic(1)
    missing = f"{target}-later"
    broker.produce(source, [b"one", b"two"])
    columns = ("value", f"if(offset = 0, '{target}', '{missing}') as topic")
    with pytest.raises(Exception, match=rf"for topic '{missing}' cannot be written: the topic does not exist"):
        run(spark, broker, source, tmp_path / "checkpoint", *columns)
    assert committed(spark, broker, target) == []
    broker.topic(1, missing)
    run(spark, broker, source, tmp_path / "checkpoint", *columns)
    assert committed(spark, broker, target) == ["one"]
    assert committed(spark, broker, missing) == ["two"]


def test_a_checkpoint_that_was_put_back_stops_the_query(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """The private topic knows better; nothing is written."""
    source, target = broker.topic(1), broker.topic(1)
    checkpoint = tmp_path / "checkpoint"
    for value in (b"a", b"b", b"c"):
        broker.produce(source, [value])
        run(spark, broker, source, checkpoint, "value", topic=target)
    for folder in ("commits", "offsets"):
        for number in ("1", "2"):
            for file in (checkpoint / folder).glob(f"*{number}*"):
                file.unlink()
    with pytest.raises(Exception, match=r"is at batch 1, but .* says that batch 2 was the last one written"):
        run(spark, broker, source, checkpoint, "value", topic=target)
    assert committed(spark, broker, target) == ["a", "b", "c"]
