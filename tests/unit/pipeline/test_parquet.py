"""Files of a table, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_tidelog.offsets import OffsetRange
from tidelog.pipeline.parquet import RangeWriter
from tidelog.pipeline.shape import raw_shape


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
