"""Filters on topic, partition, offset and timestamp become ranges of offsets, and never lose a record."""

from __future__ import annotations

import datetime
import pickle
from typing import Any

import pytest
from tests.unit.pyspark_tidelog.spark_fixtures import BASE_TIMESTAMP, Broker

from pyspark_tidelog.batch import TidelogBatchReader
from pyspark_tidelog.filters import push
from pyspark_tidelog.offsets import OffsetRange
from pyspark_tidelog.options import parse_options

datasource = pytest.importorskip("pyspark.sql.datasource")
if not hasattr(datasource, "EqualTo"):
    pytest.skip("PySpark 4.0 hands over no filters", allow_module_level=True)

from pyspark.sql.datasource import (  # noqa: E402  # PySpark 4.0 has none of them.
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

pytestmark = [pytest.mark.row("R38")]

RANGES = [OffsetRange("t", 0, 10, 20), OffsetRange("t", 1, 0, 100), OffsetRange("u", 0, 50, 60)]


def left(*filters: Any) -> list[str]:
    return [str(each) for each in push(filters).narrowed(RANGES, {})]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (EqualTo(("partition",), 1), ["t-1 [0, 100)"]),
        (Not(EqualTo(("partition",), 1)), ["t-0 [10, 20)", "u-0 [50, 60)"]),
        (In(("partition",), (1, 7)), ["t-1 [0, 100)"]),
        (Not(In(("partition",), (0,))), ["t-1 [0, 100)"]),
        (GreaterThan(("partition",), 0), ["t-1 [0, 100)"]),
        (LessThanOrEqual(("partition",), -1), []),
        (EqualNullSafe(("topic",), "u"), ["u-0 [50, 60)"]),
        (StringStartsWith(("topic",), "t"), ["t-0 [10, 20)", "t-1 [0, 100)"]),
        (IsNotNull(("offset",)), ["t-0 [10, 20)", "t-1 [0, 100)", "u-0 [50, 60)"]),
        (EqualTo(("offset",), 15), ["t-0 [15, 16)", "t-1 [15, 16)"]),
        (GreaterThan(("offset",), 18), ["t-0 [19, 20)", "t-1 [19, 100)", "u-0 [50, 60)"]),
        (GreaterThanOrEqual(("offset",), 55), ["t-1 [55, 100)", "u-0 [55, 60)"]),
        (LessThan(("offset",), 11), ["t-0 [10, 11)", "t-1 [0, 11)"]),
        (LessThanOrEqual(("offset",), 0), ["t-1 [0, 1)"]),
        (LessThan(("offset",), -5), []),
    ],
)
def test_a_filter_is_a_range(given: Any, expected: list[str]) -> None:
    """Spark need not look at these again."""
    assert left(given) == expected
    assert list(push([given]).rest) == []


def test_filters_hold_together() -> None:
    both = (GreaterThan(("offset",), 4), LessThan(("offset",), 15), EqualTo(("partition",), 0))
    assert left(*both) == ["t-0 [10, 15)"]
    assert left(GreaterThan(("offset",), 30), LessThan(("offset",), 31)) == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (In(("offset",), (12, 18)), ["t-0 [12, 19)", "t-1 [12, 19)"]),
        (Not(EqualTo(("offset",), 12)), [str(each) for each in RANGES]),
        (EqualTo(("value",), b"x"), [str(each) for each in RANGES]),
        (EqualTo(("headers", "key"), "x"), [str(each) for each in RANGES]),
        (Not(IsNotNull(("partition",))), [str(each) for each in RANGES]),
        (In(("partition",), (None, 1)), [str(each) for each in RANGES]),
    ],
)
def test_what_is_no_range_is_left_to_spark(given: Any, expected: list[str]) -> None:
    assert left(given) == expected
    assert list(push([given]).rest) == [given]


def test_a_timestamp_says_where_a_read_begins() -> None:
    """In whole milliseconds from the microseconds of Spark, never too late; and never where it ends."""
    noon = datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC)
    noon_ms = int(noon.timestamp() * 1000)
    later = noon + datetime.timedelta(microseconds=1)

    def since(given: Any) -> int | None:
        assert list(push([given]).rest) == [given]
        return push([given]).since_ms

    assert since(GreaterThanOrEqual(("timestamp",), noon)) == noon_ms
    assert since(GreaterThanOrEqual(("timestamp",), later)) == noon_ms + 1
    assert since(GreaterThan(("timestamp",), noon)) == noon_ms + 1
    assert since(GreaterThan(("timestamp",), later)) == noon_ms + 1
    assert since(EqualTo(("timestamp",), noon)) == noon_ms
    assert since(In(("timestamp",), (later, noon))) == noon_ms
    assert since(LessThan(("timestamp",), noon)) is None
    assert since(Not(EqualTo(("timestamp",), noon))) is None
    assert since(GreaterThan(("timestamp",), noon.replace(tzinfo=None))) is None
    assert since(GreaterThan(("timestamp",), noon.replace(year=1969))) is None
    pushed = push([GreaterThan(("timestamp",), noon)])
    found = {each.topic_partition: offset for each, offset in zip(RANGES, (12, -1, 7), strict=True)}
    assert [str(each) for each in pushed.narrowed(RANGES, found)] == ["t-0 [12, 20)", "u-0 [50, 60)"]


def test_a_reader_takes_filters_as_sparks_worker_gives_them(broker: Broker) -> None:
    """Planned with what it was handed; a copy reads. To Spark's check, where filters are not handed over, the method
    looks like the base's."""
    topic = broker.topic(3)
    for partition in range(3):
        broker.produce(topic, [b"%d" % number for number in range(10)], partition=partition)

    def reader() -> Any:
        return TidelogBatchReader(parse_options(broker.options(topic), streaming=False))

    base: Any = datasource.DataSourceReader
    assert getattr(reader().pushFilters, "__func__", None) is base.pushFilters
    moment = datetime.datetime.fromtimestamp(BASE_TIMESTAMP / 1000 + 7, datetime.UTC)
    filters = [Not(EqualTo(("partition",), 2)), GreaterThanOrEqual(("timestamp",), moment), LessThan(("offset",), 9)]
    chosen = reader()
    assert list(chosen.pushFilters(filters)) == [filters[1]]
    tasks = chosen.partitions()
    assert [str(each.value) for each in tasks] == [f"{topic}-0 [7, 9)", f"{topic}-1 [7, 9)"]
    in_task = pickle.loads(pickle.dumps(chosen))
    rows = [offset for each in tasks for batch in in_task.read(each) for offset in batch.column("offset").to_pylist()]
    assert rows == [7, 8, 7, 8]
    nothing = reader()
    nothing.pushFilters([GreaterThan(("timestamp",), moment + datetime.timedelta(days=1))])
    assert nothing.partitions() == []
    assert len(reader().partitions()) == 3
