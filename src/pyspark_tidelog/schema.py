"""The DataFrame's columns, as Spark types: the official connector's.

Without Arrow, whose import takes longer than all else that Spark needs for a `load()`: `arrow` has the same columns as
the types that Spark takes them in.
"""

from collections.abc import Sequence
from typing import Final

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

from pyspark_tidelog.errors import SourceError

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


def spark_schema(columns: Sequence[str]) -> StructType:
    """The schema of a DataFrame with these columns, in this order; all nullable, as the connector's are."""
    return StructType([StructField(name, _SPARK_TYPES[name]) for name in columns])


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns that a user's own schema asks for, in its order: Spark has no other way to hand them over.

    SourceError for a column that there is not, or that has another type.
    """
    for field in schema:
        known = _SPARK_TYPES.get(field.name)
        if known is None:
            raise SourceError(f"the schema has a column {field.name}; topics have {', '.join(_SPARK_TYPES)}")
        if field.dataType != known or not field.nullable:
            found = field.dataType.simpleString() + ("" if field.nullable else " not null")
            raise SourceError(f"the schema says {field.name} {found}; it is {known.simpleString()}")
    return tuple(schema.names)
