"""What the writers do without Spark: rows where there is no Arrow writer, and messages that do not fit."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql import Row
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from pyspark_tidelog import DefaultSource
from pyspark_tidelog.errors import OptionError, SourceError
from pyspark_tidelog.sink.errors import SinkError, WriteStopped
from pyspark_tidelog.sink.options import parse_sink_options
from pyspark_tidelog.sink.staged import StagedWrite
from pyspark_tidelog.sink.writers import TidelogBatchWriter, Written, _arrow_batches, _staged

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
SCHEMA = StructType(
    [
        StructField("key", StringType()),
        StructField("value", BinaryType()),
        StructField("headers", ArrayType(HEADER)),
        StructField("partition", IntegerType()),
    ]
)


def test_rows_become_arrow_batches() -> None:
    """As Spark 4.0 hands them over: bytearrays, nested rows, nulls."""
    rows = [
        Row(key="k", value=bytearray(b"v"), headers=[Row(key="h", value=bytearray(b"x"))], partition=3),
        Row(key=None, value=None, headers=None, partition=None),
    ]
    (batch,) = _arrow_batches(iter(rows), SCHEMA)
    assert batch.to_pylist() == [
        {"key": "k", "value": b"v", "headers": [{"key": "h", "value": b"x"}], "partition": 3},
        {"key": None, "value": None, "headers": None, "partition": None},
    ]
    assert list(_arrow_batches(iter(()), SCHEMA)) == []


def test_a_task_that_does_not_report_stops_the_commit() -> None:
    """Its rows would be missing."""
    write = StagedWrite("q", 0, "private", (), b"", 0)
    assert _staged([Written(0, write)]) == [write]
    with pytest.raises(WriteStopped, match="1 of 2 tasks"):
        _staged([Written(0, write), None])


def test_a_batch_writer_keeps_its_job_when_it_travels() -> None:
    """Tasks and the commit must name the same private topic; two writes never do."""
    options = parse_sink_options({"kafka.bootstrap.servers": "h:1", "topic": "t"})
    writer = TidelogBatchWriter(options, ("value",))
    assert pickle.loads(pickle.dumps(writer))._job == writer._job
    assert TidelogBatchWriter(options, ("value",))._job != writer._job


def source(**options: str) -> DefaultSource:
    return DefaultSource(CaseInsensitiveDict({"kafka.bootstrap.servers": "h:1"} | options))


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def test_what_cannot_be_written_is_refused_before_a_task_starts() -> None:
    """Columns, options and modes, of both kinds of writes."""
    for make in (source(topic="t").writer, source(topic="t").streamWriter):
        with pytest.raises(SinkError, match="no column value"):
            make(schema(id=LongType()), False)
        with pytest.raises(SinkError, match="column value is bigint; it must be binary or string"):
            make(schema(value=LongType()), False)
    for make in (source().writer, source().streamWriter):
        with pytest.raises(OptionError, match="option topic is missing"):
            make(schema(value=StringType()), False)
    with pytest.raises(SourceError, match="cannot be overwritten"):
        source(topic="t").writer(schema(value=StringType()), True)
    assert source(topic="t").streamWriter(schema(value=StringType()), True) is not None, "complete mode appends"
