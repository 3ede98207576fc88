"""Files of a table, without Spark."""

from __future__ import annotations

import datetime
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from tests.unit.pyspark_tidelog.spark_fixtures import Broker

from pyspark_tidelog.offsets import OffsetRange
from pyspark_tidelog.options import parse_options
from tidelog.model.topics import MAX_TOPIC_NAME_LENGTH
from tidelog.pipeline import delta
from tidelog.pipeline.errors import TableMismatch, UnparsableRecord
from tidelog.pipeline.json_values import NAME_SHOWN_MAX, NEW_FIELDS_MAX, parse_values
from tidelog.pipeline.parquet import RangeWriter, RowShaper, write_range
from tidelog.pipeline.reading import read_delta
from tidelog.pipeline.shape import BadRecords, TableShape, ValueFormat, json_shape, raw_shape, text_shape


def test_timestamps_beyond_pythons_years_have_no_bounds(tmp_path: Path) -> None:
    """Microseconds where milliseconds belong are in the year 55,840, which Parquet holds and Python does not: the rows
    are written, and the statistics leave the column's bounds out."""
    shape = raw_shape()
    row = {"key": None, "value": b"v", "partition": 0, "offset": 7, "timestamp": 1_700_000_000_000_000_000}
    columns = [pa.array([row[field.name]]).cast(field.type) for field in shape.schema]
    writer = RangeWriter(str(tmp_path), shape, OffsetRange("t", 0, 7, 8))
    writer.add(pa.RecordBatch.from_arrays(columns, schema=shape.schema))
    written = writer.finish()
    statistics = json.loads(written.statistics)
    assert statistics["numRecords"] == 1
    assert statistics["minValues"] == {"partition": 0, "offset": 7}
    assert pq.read_table(tmp_path / written.path, columns=["offset"]).to_pylist() == [{"offset": 7}]


@pytest.fixture
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process is five hours behind UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_new_york")
def test_bounds_of_times_without_a_zone_are_those_of_the_rows(tmp_path: Path) -> None:
    """Whatever the zone of the machine that writes: readers pass over files whose bounds exclude what they look for."""
    noon = datetime.datetime(2020, 1, 1, 12, 0, 0, 123_456)  # TIMESTAMP_NTZ has no zone.
    schema = pa.schema([("local", pa.timestamp("us")), ("at", pa.timestamp("us", "UTC"))])
    table = delta.open_table(str(tmp_path), schema, description="")
    writer = RangeWriter(str(tmp_path), TableShape(ValueFormat.JSON, schema), OffsetRange("t", 0, 0, 1, "id"))
    writer.add(pa.RecordBatch.from_pylist([{"local": noon, "at": noon.replace(tzinfo=datetime.UTC)}], schema=schema))
    written = writer.finish()
    assert json.loads(written.statistics)["minValues"] == {
        "local": "2020-01-01T12:00:00.123",
        "at": "2020-01-01T12:00:00.123Z",
    }
    assert delta.commit_batch(table, "q", 0, [written], 0, {})
    rows = DeltaTable(str(tmp_path)).to_pyarrow_dataset()
    assert rows.to_table(filter=pc.field("local") == pa.scalar(noon, pa.timestamp("us"))).num_rows == 1


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
def test_what_is_no_number_is_beyond_every_bound(tmp_path: Path, kind: pa.DataType) -> None:
    """Spark sorts NaN behind all numbers, and Parquet's bounds leave it out: a file with one has no upper bound."""
    schema = pa.schema([("a", kind), ("b", kind)])
    writer = RangeWriter(str(tmp_path), TableShape(ValueFormat.JSON, schema), OffsetRange("t", 0, 0, 3, "id"))
    for a in (1.0, math.nan, 2.0):
        writer.add(pa.RecordBatch.from_pylist([{"a": a, "b": None if math.isnan(a) else a}], schema=schema))
    statistics = json.loads(writer.finish().statistics)
    assert statistics["minValues"] == {"a": 1.0, "b": 1.0}
    assert statistics["maxValues"] == {"b": 2.0}


@pytest.mark.parametrize(
    ("kind", "field"),
    [(pa.string(), "soon"), (pa.float64(), 1.7e9), (pa.bool_(), True), (pa.struct([("s", pa.int64())]), {"s": 1})],
    ids=str,
)
def test_fields_of_values_have_any_type_whatever_their_name(tmp_path: Path, kind: pa.DataType, field: Any) -> None:
    """In a table of JSON values `timestamp` and `offset` are fields like others."""
    row = {"timestamp": field, "offset": field, "_offset": 5}
    schema = pa.schema([("timestamp", kind), ("offset", kind), ("_offset", pa.int64())])
    writer = RangeWriter(str(tmp_path), TableShape(ValueFormat.JSON, schema), OffsetRange("t", 0, 0, 1, "id"))
    writer.add(pa.RecordBatch.from_pylist([row], schema=schema))
    assert pq.read_table(tmp_path / writer.finish().path).to_pylist() == [row]


def test_a_topic_of_a_long_name_becomes_files(tmp_path: Path) -> None:
    """Topics have up to 249 characters, and names of files 255 bytes in all."""
    shape = raw_shape(["offset"])
    writer = RangeWriter(str(tmp_path), shape, OffsetRange("t" * MAX_TOPIC_NAME_LENGTH, 0, 7, 8))
    writer.add(pa.RecordBatch.from_pylist([{"offset": 7}], schema=shape.schema))
    assert pq.read_table(tmp_path / writer.finish().path).to_pylist() == [{"offset": 7}]


def test_text_is_told_from_other_bytes_also_where_the_table_has_no_value(broker: Broker, tmp_path: Path) -> None:
    """Values are looked at in each table of text, and are in none that has no such column."""
    topic = broker.topic()
    broker.produce(topic, [b"x", b"y"])
    options = parse_options(broker.options(topic), streaming=True)
    written = write_range(options, OffsetRange(topic, 0, 0, 2), str(tmp_path), text_shape(["offset", "key"]))
    rows = pq.read_table(tmp_path / written.path).to_pylist()
    assert rows == [{"offset": 0, "key": b"k0"}, {"offset": 1, "key": b"k1"}]


class Reader:
    """Spark's, for files that there are."""

    def __init__(self) -> None:
        self.read = self

    def schema(self, schema: Any) -> Reader:
        return self

    def parquet(self, *files: str) -> int:
        return sum(pq.read_metadata(file).num_rows for file in files)


@pytest.mark.parametrize("name", ["a b", "x#1", "é"])
def test_a_table_is_read_whatever_its_folder_is_called(tmp_path: Path, name: str) -> None:
    """delta-rs gives the names of files as parts of URIs, and Spark takes them as paths."""
    path, shape = str(tmp_path / name), raw_shape(["offset"])
    table = delta.open_table(path, shape.schema, description="")
    writer = RangeWriter(path, shape, OffsetRange("t", 0, 7, 8, "id"))
    writer.add(pa.RecordBatch.from_pylist([{"offset": 7}], schema=shape.schema))
    assert delta.commit_batch(table, "q", 0, [writer.finish()], 0, {})
    spark: Any = Reader()
    assert read_delta(spark, path) == 1


def test_rows_that_no_column_takes_leave_no_file(tmp_path: Path) -> None:
    """What is wrong with them is told: nulls for a column without, of a schema that the user has given."""
    schema = pa.schema([("b", pa.int32()), pa.field("a", pa.int32(), nullable=False)])
    writer = RangeWriter(str(tmp_path), TableShape(ValueFormat.JSON, schema), OffsetRange("t", 0, 0, 1, "id"))
    writer.add(parse_values(pa.array([b'{"b": 1}'], pa.binary()), schema)[0])
    with pytest.raises(pa.ArrowInvalid, match="non-nullable"):
        writer.finish()
    writer.abandon()
    assert list(tmp_path.iterdir()) == []


def shaped(shape: TableShape, values: list[bytes | None]) -> pa.RecordBatch:
    """The rows of a JSON table that has no other columns than those of its values."""
    shaper = RowShaper(shape, OffsetRange("t", 0, 0, len(values), "id"))
    batch = pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], ["value"])
    return shaper.rows(batch, pa.array(range(len(values)), pa.int64()))


REQUIRED = pa.field("a", pa.int64(), nullable=False)


@pytest.mark.parametrize(
    ("field", "good", "bad", "what"),
    [
        (REQUIRED, b'{"a": 1}', b'{"b": 1}', "a is missing"),
        (REQUIRED, b'{"a": 1}', b'{"a": null}', "a is missing"),
        (REQUIRED, b'{"a": 1}', None, "a is missing"),
        (pa.field("s", pa.struct([REQUIRED])), b'{"s": {"a": 1}}', b'{"s": {}}', r"s\.a is missing"),
        (pa.field("s", pa.list_(pa.struct([REQUIRED]))), b'{"s": [{"a": 1}]}', b'{"s": [{"a": 1}, {}]}', r"s\.a is"),
        (pa.field("s", pa.struct([REQUIRED])), b'{"s": null}', b'{"s": {}}', r"s\.a is missing"),
    ],
    ids=["absent", "null", "tombstone", "within a struct", "within a list", "beside a null struct"],
)
def test_a_value_without_a_field_that_its_column_requires_is_bad(
    tmp_path: Path, field: pa.Field, good: bytes, bad: bytes | None, what: str
) -> None:
    """It is named with its offset, as other values that the columns do not take."""
    shape = json_shape(pa.schema([field]), columns=[field.name])
    writer = RangeWriter(str(tmp_path), shape, OffsetRange("t", 0, 0, 1, "id"))
    writer.add(shaped(shape, [good]))
    assert writer.finish().rows == 1
    with pytest.raises(UnparsableRecord, match=f"t-0, offset 1: not json: {what}.*NOT NULL"):
        shaped(shape, [good, bad])


def test_bad_records_are_kept_where_their_columns_can_be_null(tmp_path: Path) -> None:
    """A column that is NOT NULL has no row for them, which is said before the job begins."""
    with pytest.raises(TableMismatch, match=r"column a is NOT NULL.*cannot be kept"):
        json_shape(pa.schema([REQUIRED]), bad_records=BadRecords.KEEP)
    shape = json_shape(pa.schema([pa.field("s", pa.struct([REQUIRED]))]), ["s"], BadRecords.KEEP)
    rows = shaped(shape, [b'{"s": {}}', b'{"s": {"a": 1}}'])
    reason = "s.a is missing or null, and its column is NOT NULL"
    assert rows.to_pylist() == [
        {"s": None, "_unparsed": b'{"s": {}}', "_reason": reason},
        {"s": {"a": 1}, "_unparsed": None, "_reason": None},
    ]
    writer = RangeWriter(str(tmp_path), shape, OffsetRange("t", 0, 0, 2, "id"))
    writer.add(rows)
    assert writer.finish().rows == 2


def test_few_of_many_new_fields_are_told(broker: Broker, tmp_path: Path) -> None:
    """Values whose fields are named by keys have new ones in each record; each batch's commit would have them all."""
    topic = broker.topic()
    broker.produce(
        topic, [json.dumps({"a": 1, **{f"key-{row}-{n}": 1 for n in range(20)}}).encode() for row in range(9)]
    )
    broker.produce(topic, [json.dumps({"long" * 1000: 1}).encode()])
    shape = json_shape(pa.schema([("a", pa.int64())]), ["a"], tells_new=True)
    options = parse_options(broker.options(topic), streaming=True)
    told = write_range(options, OffsetRange(topic, 0, 0, 9), str(tmp_path), shape).new_fields
    assert len(told) == NEW_FIELDS_MAX
    assert told[0] == "key-0-0"
    (long,) = write_range(options, OffsetRange(topic, 0, 9, 10), str(tmp_path), shape).new_fields
    assert long == ("long" * 1000)[:NAME_SHOWN_MAX] + "..."
