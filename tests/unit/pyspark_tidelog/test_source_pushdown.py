"""Spark hands filters over to the source."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import pytest
from tests.amount import thorough
from tests.unit.pyspark_tidelog.spark_fixtures import BASE_TIMESTAMP, Broker

from pyspark_tidelog.spark_versions import PYSPARK_VERSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.row("R38")]


@thorough
@pytest.mark.spark
@pytest.mark.skipif(PYSPARK_VERSION.startswith("4.0."), reason="PySpark 4.0 hands over no filters")
def test_spark_hands_filters_over(spark: SparkSession, broker: Broker) -> None:
    """Where it is told to; without that the same rows come, of more tasks."""
    topic = broker.topic(3)
    for partition in range(3):
        broker.produce(topic, [b"%d" % number for number in range(10)], partition=partition)
    frame = spark.read.format("tidelog").options(**broker.options(topic)).load()
    moment = datetime.datetime.fromtimestamp(BASE_TIMESTAMP / 1000 + 7, datetime.UTC)
    asked = {
        "partition = 1": (10, 1),
        "partition in (0, 2) and offset between 3 and 5": (6, 2),
        "offset >= 10": (0, 0),
        f"timestamp >= timestamp '{moment:%Y-%m-%d %H:%M:%S}Z' and partition <> 2": (6, 2),
        f"timestamp < timestamp '{moment:%Y-%m-%d %H:%M:%S}Z'": (21, 3),
        "value = cast('4' as binary)": (3, 3),
    }
    for enabled in ("false", "true"):
        spark.conf.set("spark.sql.python.filterPushdown.enabled", enabled)
        try:
            for condition, (rows, tasks) in asked.items():
                chosen = frame.where(condition)
                assert len(chosen.collect()) == rows, condition
                # Spark makes one empty task of none.
                assert chosen.rdd.getNumPartitions() == (max(tasks, 1) if enabled == "true" else 3), condition
        finally:
            spark.conf.unset("spark.sql.python.filterPushdown.enabled")
