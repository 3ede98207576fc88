"""`df.write.format("tidelog")` against a broker: whole or absent, each row once and where it belongs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.pyspark_tidelog.spark_fixtures import Broker

from tidelog.client import admin
from tidelog.client.partitioners import partition_for_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def write(frame: DataFrame, broker: Broker, **options: str) -> None:
    frame.write.format("tidelog").mode("append").options(
        **{"kafka.bootstrap.servers": broker.bootstrap, "stagingPartitions": "3"} | options
    ).save()


def committed(spark: SparkSession, broker: Broker, topic: str) -> list[Any]:
    """What a reader of committed records sees, by partition and offset."""
    broker.settle(topic)
    options = broker.options(topic, **{"kafka.isolation.level": "read_committed"})
    rows = spark.read.format("tidelog").options(includeHeaders="true", **options).load().collect()
    return sorted(rows, key=lambda row: (row.partition, row.offset))


def private_topics(broker: Broker) -> list[str]:
    found = broker.client.run(admin.list_topics(broker.client.routing))
    return [name for name in found if name.startswith("tidelog-sink-batch-")]


def test_rows_of_several_tasks_are_written_once(spark: SparkSession, broker: Broker) -> None:
    """All columns: strings, nulls, headers, a topic a row; partitions as Kafka's own by key; nothing is left behind."""
    first, second = broker.topic(3), broker.topic(2)
    frame = spark.range(0, 2000, numPartitions=3).selectExpr(
        "if(id % 7 = 0, null, cast(id as string)) as key",
        "if(id % 11 = 0, null, cast(concat('v', id) as binary)) as value",
        f"if(id % 2 = 0, '{first}', '{second}') as topic",
        "if(id % 5 = 0, array(named_struct('key', 'h', 'value', cast('x' as binary))), null) as headers",
        "if(id % 7 = 0, 1, null) as partition",
        "id as offset",
    )
    write(frame, broker, **{"kafka.compression.type": "lz4", "kafka.buffer.memory": "20000"})
    for topic, parity, count in ((first, 0, 3), (second, 1, 2)):
        rows = committed(spark, broker, topic)
        ids = [number for number in range(2000) if number % 2 == parity]
        assert len(rows) == len(ids)
        expected = [
            (
                None if number % 7 == 0 else str(number).encode(),
                None if number % 11 == 0 else f"v{number}".encode(),
                [("h", b"x")] if number % 5 == 0 else [],
                1 if number % 7 == 0 else partition_for_key(str(number).encode(), count),
            )
            for number in ids
        ]
        found = [(_bytes(row.key), _bytes(row.value), _headers(row.headers), row.partition) for row in rows]
        assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert private_topics(broker) == []


def test_a_write_of_which_a_task_fails_is_absent(spark: SparkSession, broker: Broker) -> None:
    """A row without a topic: the job fails and says which row, nothing is visible, nothing is left behind."""
    topic = broker.topic(2)
    frame = spark.range(0, 3000, numPartitions=2).selectExpr(
        "cast(id as string) as value", f"if(id = 2500, null, '{topic}') as topic"
    )
    with pytest.raises(Exception, match=r"row 1000 of the task cannot be written: its topic is null"):
        write(frame, broker)
    assert committed(spark, broker, topic) == []
    assert private_topics(broker) == []


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def _headers(headers: Any) -> list[tuple[str, bytes]]:
    return [(each.key, bytes(each.value)) for each in headers or ()]
