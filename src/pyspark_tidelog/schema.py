"""The DataFrame's columns: the official connector's, as Spark types and as the Arrow types that Spark takes them in.

Spark compares Arrow schemas exactly: no large_binary, no dictionary, microseconds in UTC, columns in order.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_SPARK_TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}

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


def spark_schema(columns: Sequence[str]) -> StructType:
    """The schema of a DataFrame with these columns, in this order; all nullable, as the connector's are."""
    return StructType([StructField(name, _SPARK_TYPES[name]) for name in columns])


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The schema of the Arrow batches that Spark accepts for `spark_schema(columns)`."""
    return pa.schema([pa.field(name, _ARROW_TYPES[name]) for name in columns])
