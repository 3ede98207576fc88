"""A DataFrame's rows as the sink sees them: which columns there are, and chunks of them as Arrow arrays.

The columns are the connector's: value, and where they are there key, headers, topic and partition; others count for
nothing, so that what was read from a topic can be written to another one as it is.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.sink.errors import RowRefused, SinkError
from tidelog.records.columns import BinaryColumn, HeadersColumn

COLUMNS: Final = ("key", "value", "headers", "topic", "partition")
_TYPES: Final = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
ROW_OVERHEAD: Final = 24
"""Bytes of a record beside key, value and headers, at most but for the lengths of headers."""


def check_schema(fields: Iterable[tuple[str, str]], topic: str | None) -> tuple[str, ...]:
    """The columns that are written, in the DataFrame's order. `fields` are (name, Spark's simple type name).

    SinkError where value is missing or a type is wrong, OptionError where nothing says the topic.
    """
    found: dict[str, str] = {}
    for name, kind in fields:
        if name not in COLUMNS:
            continue
        if name in found:
            raise SinkError(f"the DataFrame has two columns {name}")
        if kind not in _TYPES[name]:
            raise SinkError(f"column {name} is {kind}; it must be {' or '.join(_TYPES[name])}")
        found[name] = kind
    if "value" not in found:
        raise SinkError("the DataFrame has no column value; it is what records hold: binary or string")
    if topic is None and "topic" not in found:
        raise OptionError("topic", "is missing: set it, or give the DataFrame a column topic")
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows, in their order. A column that the DataFrame has not is None."""

    rows: int
    value: pa.Array
    key: pa.Array | None
    headers: pa.Array | None
    topic: pa.Array | None
    partition: pa.Array | None
    first_row: int
    """Number of the first row among the task's."""

    def take(self, order: Any) -> "Chunk":
        """What is encoded of these rows, in another order; `order` is an array of positions."""
        positions = pa.array(order)
        return Chunk(
            len(positions),
            self.value.take(positions),
            None if self.key is None else self.key.take(positions),
            None if self.headers is None else self.headers.take(positions),
            topic=None,
            partition=None,
            first_row=self.first_row,
        )

    def sizes(self) -> Any:
        """Bytes of each row as a record, about, as a numpy array of int64."""
        total = _lengths(self.value) + ROW_OVERHEAD
        if self.key is not None:
            total = total + _lengths(self.key)
        if self.headers is not None:
            entries, rows = self.headers.flatten(), pc.list_parent_indices(self.headers).to_numpy()
            of_headers = _lengths(entries.field(0)) + _lengths(entries.field(1))
            total = total + np.bincount(rows, weights=of_headers, minlength=self.rows).astype("int64")
        return total


def chunks(batches: Iterable[pa.RecordBatch], columns: tuple[str, ...], bytes_min: int) -> Iterator[Chunk]:
    """Spark's Arrow batches gathered until they have `bytes_min` bytes, so that small ones make no small batches."""
    gathered: list[pa.RecordBatch] = []
    size = first_row = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        gathered.append(batch.select(list(columns)))
        size += gathered[-1].nbytes
        if size >= bytes_min:
            chunk = _chunk(gathered, first_row)
            yield chunk
            first_row += chunk.rows
            gathered, size = [], 0
    if gathered:
        yield _chunk(gathered, first_row)


def _chunk(batches: list[pa.RecordBatch], first_row: int) -> Chunk:
    table = pa.Table.from_batches(batches)
    arrays = {name: _whole(table.column(name)) for name in table.column_names}
    _check_headers(arrays.get("headers"), first_row)
    return Chunk(
        table.num_rows,
        arrays["value"],
        arrays.get("key"),
        arrays.get("headers"),
        arrays.get("topic"),
        arrays.get("partition"),
        first_row,
    )


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _check_headers(headers: pa.Array | None, first_row: int) -> None:
    if headers is None:
        return
    entries = headers.flatten()
    if not entries.null_count and not entries.field(0).null_count:
        return
    for row, value in enumerate(headers.to_pylist()):
        if any(entry is None or entry["key"] is None for entry in value or ()):
            raise RowRefused("a header has no key", row=first_row + row)


def _lengths(array: pa.Array) -> Any:
    return pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False).astype("int64")


def binary_column(array: pa.Array | None) -> BinaryColumn | None:
    """An Arrow array of binary or strings, of either width, as the kernel takes it, without a copy."""
    if array is None:
        return None
    validity, offsets, data = array.buffers()
    large = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    return BinaryColumn(offsets, data, validity, array.null_count, array.offset, large)


def headers_column(array: pa.Array | None) -> HeadersColumn | None:
    """An Arrow array of lists of headers as the kernel takes it; null lists are empty ones."""
    if array is None or array.null_count == len(array):
        return None
    if array.null_count:
        # `take` leaves nothing in the place of a null list.
        array = array.take(pa.array(range(len(array))))
    entries = array.values
    keys, values = binary_column(entries.field(0)), binary_column(entries.field(1))
    assert keys is not None
    assert values is not None
    return HeadersColumn(array.buffers()[1], keys, values, array.offset)
