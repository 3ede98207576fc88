"""`kafka.isolation.level`: what of transactions a batch and a stream read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.unit.pyspark_tidelog.spark_fixtures import Broker
from tests.unit.pyspark_tidelog.test_source_batch import plan, read, values

if TYPE_CHECKING:
    from confluent_kafka import Producer
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.row("R38")]

COMMITTED = {"kafka.isolation.level": "read_committed"}
TIMEOUT_S = 180.0


def transactional(broker: Broker, name: str) -> Producer:
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions(TIMEOUT_S)
    return producer


def send(producer: Producer, topic: str, *sent: str) -> None:
    """Records in partition 0, which the broker has when this returns."""
    for value in sent:
        producer.produce(topic, value, partition=0)
    producer.flush(TIMEOUT_S)


def write(broker: Broker, topic: str) -> None:
    """Two producers in turns: transactions of each that commit and abort, some of them at the same time."""
    one, two = transactional(broker, f"{topic}-1"), transactional(broker, f"{topic}-2")
    for number in range(6):
        one.begin_transaction()
        two.begin_transaction()
        for part in range(3):
            send(one, topic, f"1-{number}-{part}")
            send(two, topic, f"2-{number}-{part}")
        if number % 2:
            one.abort_transaction(TIMEOUT_S)
        else:
            one.commit_transaction(TIMEOUT_S)
        if number % 3:
            two.abort_transaction(TIMEOUT_S)
        else:
            two.commit_transaction(TIMEOUT_S)


KEPT = [
    f"{producer}-{number}-{part}".encode()
    for number in range(6)
    for part in range(3)
    for producer, lasts in ((1, number % 2 == 0), (2, number % 3 == 0))
    if lasts
]


@pytest.mark.parametrize("options", [{}, {"batchRows": "2"}, {"kafka.max.partition.fetch.bytes": "200"}])
def test_aborted_records_are_left_out(spark: SparkSession, broker: Broker, options: dict[str, str]) -> None:
    """Also where a slice or a fetch ends in the middle of a transaction; all are there for who wants them."""
    topic = broker.topic()
    write(broker, topic)
    assert values(read(spark, broker, topic, **COMMITTED, **options)) == KEPT
    assert len(values(read(spark, broker, topic, **options))) == 36


def test_a_batch_ends_before_an_open_transaction(spark: SparkSession, broker: Broker) -> None:
    """The last stable offset is the end of a committed read."""
    topic = broker.topic()
    broker.produce(topic, [b"before"])
    producer = transactional(broker, topic)
    producer.begin_transaction()
    send(producer, topic, "open")
    broker.produce(topic, [b"after"])
    assert plan(broker, topic, **COMMITTED) == [(0, 0, 1)]
    assert values(read(spark, broker, topic, **COMMITTED)) == [b"before"]
    assert values(read(spark, broker, topic)) == [b"before", b"open", b"after"]
    producer.commit_transaction(TIMEOUT_S)
    assert values(read(spark, broker, topic, **COMMITTED)) == [b"before", b"open", b"after"]


def test_a_stream_waits_for_the_end_of_a_transaction(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Each run takes what has been decided since, once, and nothing that was aborted."""
    topic = broker.topic()
    producer = transactional(broker, topic)

    def run() -> list[bytes]:
        stream = spark.readStream.format("tidelog").options(
            **broker.options(topic, startingOffsets="earliest", **COMMITTED)
        )
        query = (
            stream.load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("path", str(tmp_path / "out"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        rows = spark.read.parquet(str(tmp_path / "out")).orderBy("offset").collect()
        return [bytes(row.value) for row in rows]

    broker.produce(topic, [b"plain"])
    producer.begin_transaction()
    send(producer, topic, "first", "second")
    assert run() == [b"plain"]
    producer.abort_transaction(TIMEOUT_S)
    producer.begin_transaction()
    send(producer, topic, "third")
    assert run() == [b"plain"]
    producer.commit_transaction(TIMEOUT_S)
    assert run() == [b"plain", b"third"]
