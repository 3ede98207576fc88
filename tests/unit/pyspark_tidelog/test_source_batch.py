"""`spark.read.format("tidelog")` against a broker: every record once, where the options say, in the connector's
form."""

from __future__ import annotations

import datetime
import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.pyspark_tidelog.spark_fixtures import BASE_TIMESTAMP, Broker

from pyspark_tidelog.errors import DataLoss, OptionError, UnknownTopic
from pyspark_tidelog.options import parse_options
from pyspark_tidelog.planning import open_cluster, plan_batch
from tidelog.records.compression import Codec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.row("R38")]


def read(spark: SparkSession, broker: Broker, topic: str, **options: str) -> DataFrame:
    return spark.read.format("tidelog").options(**broker.options(topic, **options)).load()


def values(frame: DataFrame) -> list[bytes | None]:
    rows = frame.select("partition", "offset", "value").collect()
    return [None if row.value is None else bytes(row.value) for row in sorted(rows, key=lambda row: row[:2])]


def plan(broker: Broker, topic: str, **options: str) -> list[tuple[int, int, int]]:
    """What a batch read would read, without Spark: (partition, start, end)."""
    parsed = parse_options(broker.options(topic, **options), streaming=False)
    with open_cluster(parsed) as cluster:
        return [(each.partition, each.start, each.end) for each in plan_batch(cluster, parsed)]


def test_a_schema_of_the_users_own_chooses_columns(spark: SparkSession, broker: Broker) -> None:
    """In its order; Spark does not tell a Python source which columns a query uses."""
    topic = broker.topic()
    broker.produce(topic, [b"a", b"b"])
    reader = spark.read.format("tidelog").options(**broker.options(topic)).schema("offset bigint, value binary")
    assert [(row.offset, bytes(row.value)) for row in reader.load().collect()] == [(0, b"a"), (1, b"b")]


def test_records_come_out_as_they_went_in(spark: SparkSession, broker: Broker) -> None:
    """All columns, headers too: null keys and values, repeated and null headers, every codec, several partitions."""
    topic = broker.topic(2)
    rows: list[Any] = [
        (b"k", b"v", (("h", b"1"), ("h", None))),
        (None, b"", ()),
        (b"", None, (("ü", b"\xff"),)),
    ]
    for codec in Codec:
        broker.produce_records(topic, rows, partition=codec % 2, codec=codec)
    found = read(spark, broker, topic, includeHeaders="true").collect()
    assert len(found) == 15
    found.sort(key=lambda row: (row.partition, row.offset))
    for index, row in enumerate(row for row in found if row.partition == 0):
        key, value, headers = rows[index % 3]
        assert (row.key, row.value) == (key, value)
        # Null, and no empty list, where there are none: so the connector has it.
        assert (None if row.headers is None else [tuple(header) for header in row.headers]) == (list(headers) or None)
        assert (row.topic, row.offset, row.timestampType) == (topic, index, 0)
        expected = datetime.datetime.fromtimestamp(BASE_TIMESTAMP / 1000 + index % 3)
        assert row.timestamp == expected


def test_schema_is_the_connectors(spark: SparkSession, broker: Broker) -> None:
    """Same names, types and order as spark-sql-kafka-0-10."""
    frame = read(spark, broker, broker.topic(), includeHeaders="true")
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    assert frame.count() == 0


def test_columns_prune(spark: SparkSession, broker: Broker) -> None:
    """Only the columns asked for are decoded, in the order asked for."""
    topic = broker.topic()
    broker.produce(topic, [b"a", b"b"])
    frame = read(spark, broker, topic, columns="offset,value")
    assert frame.columns == ["offset", "value"]
    assert [tuple(row) for row in frame.collect()] == [(0, b"a"), (1, b"b")]


def test_tasks_share_a_partition(spark: SparkSession, broker: Broker) -> None:
    """minPartitions and maxRecordsPerPartition cut ranges, in the middle of batches too, and no record is lost."""
    topic = broker.topic()
    broker.produce(topic, [b"%d" % index for index in range(100)])
    frame = read(spark, broker, topic, minPartitions="7")
    assert frame.rdd.getNumPartitions() == 7
    assert values(frame) == [b"%d" % index for index in range(100)]
    assert read(spark, broker, topic, maxRecordsPerPartition="30").rdd.getNumPartitions() == 4


def test_offsets_bound_a_read(broker: Broker) -> None:
    """Starting and ending offsets by partition; -2 and -1 are the ends; empty ranges make no task."""
    topic = broker.topic(2)
    broker.produce(topic, [b"x"] * 10)
    broker.produce(topic, [b"y"] * 5, partition=1)
    start = json.dumps({topic: {"0": 3, "1": -2}})
    end = json.dumps({topic: {"0": 8, "1": -1}})
    assert plan(broker, topic, startingOffsets=start, endingOffsets=end) == [(0, 3, 8), (1, 0, 5)]
    assert plan(broker, topic, startingOffsets=json.dumps({topic: {"0": 10, "1": 4}})) == [(1, 4, 5)]


def test_timestamps_bound_a_read(broker: Broker) -> None:
    """The first record at or after the timestamp; none: an error, or the end if the strategy says so."""
    topic = broker.topic()
    broker.produce(topic, [b"x"] * 10)
    at = str(BASE_TIMESTAMP + 2500)
    late = str(BASE_TIMESTAMP + 10**9)
    assert plan(broker, topic, startingTimestamp=at) == [(0, 3, 10)]
    assert plan(broker, topic, endingTimestamp=at) == [(0, 0, 3)]
    each = json.dumps({topic: {"0": BASE_TIMESTAMP + 4000}})
    assert plan(broker, topic, startingOffsetsByTimestamp=each) == [(0, 4, 10)]
    assert plan(broker, topic, endingTimestamp=late) == [(0, 0, 10)]
    with pytest.raises(OptionError, match=r"is after the last record of .*set startingOffsetsByTimestampStrategy"):
        plan(broker, topic, startingTimestamp=late)
    assert plan(broker, topic, startingTimestamp=late, startingOffsetsByTimestampStrategy="latest") == []


def test_offsets_must_fit_the_partitions(broker: Broker) -> None:
    """Too few, too many, or the end before the start: each says which partition."""
    topic = broker.topic(2)
    broker.produce(topic, [b"x"] * 10)
    with pytest.raises(OptionError, match=f"it lacks {topic}-1"):
        plan(broker, topic, startingOffsets=json.dumps({topic: {"0": 0}}))
    with pytest.raises(OptionError, match="names other-0, which subscribe"):
        plan(broker, topic, startingOffsets=json.dumps({topic: {"0": 0, "1": 0}, "other": {"0": 1}}))
    with pytest.raises(OptionError, match=r"ends .* at offset 2, before startingOffsets starts it at 5"):
        plan(
            broker,
            topic,
            startingOffsets=json.dumps({topic: {"0": 5, "1": 0}}),
            endingOffsets=json.dumps({topic: {"0": 2, "1": 0}}),
        )


def test_offsets_that_are_gone(broker: Broker) -> None:
    """What retention took is an error that says what is there and what to do; or the read starts at what is left."""
    topic = broker.topic()
    broker.produce(topic, [b"x"] * 10)
    broker.forget(topic, 0, 4)
    wanted = json.dumps({topic: {"0": 1}})
    with pytest.raises(DataLoss, match=r"says offset 1 .* offsets from 4 to 10.*set failOnDataLoss to false"):
        plan(broker, topic, startingOffsets=wanted)
    assert plan(broker, topic, startingOffsets=wanted, failOnDataLoss="false") == [(0, 4, 10)]
    assert plan(broker, topic) == [(0, 4, 10)]


def test_topics_that_do_not_exist(spark: SparkSession, broker: Broker) -> None:
    """A missing topic is named, in Spark's error too; a missing partition of `assign` likewise."""
    there = broker.topic()
    with pytest.raises(UnknownTopic, match="there is no topic no-such-topic"):
        plan(broker, f"{there},no-such-topic")
    options = {"kafka.bootstrap.servers": broker.bootstrap, "assign": json.dumps({there: [0, 5]})}
    parsed = parse_options(options, streaming=False)
    with open_cluster(parsed) as cluster, pytest.raises(UnknownTopic, match=f"do not exist: {there}-5"):
        plan_batch(cluster, parsed)
    with pytest.raises(Exception, match="there is no topic no-such-topic"):
        read(spark, broker, "no-such-topic").collect()


def test_pattern_and_assignment(broker: Broker) -> None:
    """A pattern takes topics whose whole name it matches; an assignment only its partitions."""
    name = broker.topic()
    broker.topic(name=f"{name}-more")
    broker.produce(name, [b"x"])
    broker.produce(f"{name}-more", [b"x"])
    servers = {"kafka.bootstrap.servers": broker.bootstrap}
    with open_cluster(parse_options(servers | {"subscribe": name}, streaming=False)) as cluster:
        for pattern, expected in ((name, [name]), (f"{name}.*", [name, f"{name}-more"]), (name[:-1], [])):
            ranges = plan_batch(cluster, parse_options(servers | {"subscribePattern": pattern}, streaming=False))
            assert [each.topic for each in ranges] == expected
        assigned = parse_options(servers | {"assign": json.dumps({name: [0]})}, streaming=False)
        assert [each.topic_partition for each in plan_batch(cluster, assigned)] == [(name, 0)]


def test_a_pattern_leaves_out_the_private_topics_of_the_sink(broker: Broker) -> None:
    """Unless it begins as their names do: they hold what attempts at a write have staged."""
    name = broker.topic()
    private = broker.topic(name=f"tidelog-sink-{name}")
    for each in (name, private):
        broker.produce(each, [b"x"])
    servers = {"kafka.bootstrap.servers": broker.bootstrap}
    with open_cluster(parse_options(servers | {"subscribe": name}, streaming=False)) as cluster:
        for pattern, expected in ((f".*{name}", [name]), (f"tidelog-sink-.*{name}", [private])):
            ranges = plan_batch(cluster, parse_options(servers | {"subscribePattern": pattern}, streaming=False))
            assert [each.topic for each in ranges] == expected


def test_wrong_options_are_told_by_load(spark: SparkSession, broker: Broker) -> None:
    """Not by the first action, which may be far from the mistake."""
    with pytest.raises(Exception, match="option failOnDataLoss is 'perhaps'; it can be true or false"):
        read(spark, broker, "t", failOnDataLoss="perhaps")
