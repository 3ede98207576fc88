"""The kernel's columns as Arrow record batches, without a copy: Arrow wraps the buffers that the kernel filled.

Spark compares Arrow schemas exactly: no large_binary, no dictionary, microseconds in UTC, columns in order.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from tidelog.records.columns import BinaryColumn, Column, Columns, HeadersColumn

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_ARROW_TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", HEADER)),
}

MICROSECONDS: Final = 1000
"""The `timestamp_scale` that `record_batch` expects: Kafka has milliseconds, Spark microseconds."""

_DECODED: Final = {
    "key": Column.KEY,
    "value": Column.VALUE,
    "offset": Column.OFFSET,
    "timestamp": Column.TIMESTAMP,
    "timestampType": Column.TIMESTAMP_TYPE,
    "headers": Column.HEADERS,
}


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The schema of the Arrow batches that Spark accepts for `spark_schema(columns)`."""
    return pa.schema([pa.field(name, _ARROW_TYPES[name]) for name in columns])


def decoded_columns(names: Sequence[str]) -> Column:
    """What the kernel must decode for these columns; topic and partition are known without it."""
    wanted = Column(0)
    for name in names:
        wanted |= _DECODED.get(name, Column(0))
    return wanted


class RecordBatches:
    """Makes record batches of one partition's records: holds the schema and the columns that never change."""

    def __init__(self, names: Sequence[str], topic: str, partition: int) -> None:
        self._names = tuple(names)
        self._schema = arrow_schema(names)
        self._topic = topic.encode()
        self._partition = partition
        self._constants: dict[str, pa.Array] = {}

    def batch(self, columns: Columns) -> pa.RecordBatch:
        """The rows of `columns`, whose timestamps are microseconds; keeps its buffers alive."""
        arrays = [self._array(name, columns) for name in self._names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, name: str, columns: Columns) -> pa.Array:
        rows = columns.rows
        match name:
            case "key":
                return _binary(pa.binary(), columns.key, rows)
            case "value":
                return _binary(pa.binary(), columns.value, rows)
            case "offset":
                return _fixed(pa.int64(), columns.offset, rows)
            case "timestamp":
                return _fixed(TIMESTAMP, columns.timestamp, rows)
            case "timestampType":
                return _fixed(pa.int32(), columns.timestamp_type, rows)
            case "headers":
                return _headers(columns.headers, rows)
            case _:
                return self._constant(name, rows)

    def _constant(self, name: str, rows: int) -> pa.Array:
        """Topic or partition: the same value in every row, made once for the largest batch and sliced."""
        known = self._constants.get(name)
        if known is None or len(known) < rows:
            if name == "topic":
                known = pa.repeat(pa.scalar(self._topic.decode(), pa.string()), rows)
            else:
                known = pa.repeat(pa.scalar(self._partition, pa.int32()), rows)
            self._constants[name] = known
        return known if len(known) == rows else known.slice(0, rows)


def _fixed(kind: pa.DataType, data: bytearray | None, rows: int) -> pa.Array:
    assert data is not None, "the kernel was not asked for this column"
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(data)])


def _binary(kind: pa.DataType, column: BinaryColumn | None, rows: int) -> pa.Array:
    assert column is not None, "the kernel was not asked for this column"
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    data = pa.py_buffer(column.data if column.data is not None else b"")
    return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(column.offsets), data], column.null_count)


def _headers(column: HeadersColumn | None, rows: int) -> pa.Array:
    """Null where a record has none, as in the connector."""
    import pyarrow.compute as pc  # Most tasks read no headers, and it takes time to load.

    assert column is not None, "the kernel was not asked for this column"
    count = int.from_bytes(memoryview(column.offsets).cast("B")[rows * 4 : rows * 4 + 4], "little") if rows else 0
    keys = _binary(pa.string(), column.keys, count)
    values = _binary(pa.binary(), column.values, count)
    structs = pa.StructArray.from_arrays([keys, values], fields=list(HEADER))
    offsets = pa.Array.from_buffers(pa.int32(), rows + 1, [None, pa.py_buffer(column.offsets)])
    absent = pc.equal(offsets[1:], offsets[:-1])
    return pa.ListArray.from_arrays(offsets, structs, type=_ARROW_TYPES["headers"], mask=absent)
