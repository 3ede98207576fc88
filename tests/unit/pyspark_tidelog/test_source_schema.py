"""A schema of the user's own says which columns are decoded."""

from __future__ import annotations

import pytest
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from pyspark_tidelog import DefaultSource
from pyspark_tidelog.errors import OptionError, SourceError
from pyspark_tidelog.schema import spark_schema

pytestmark = [pytest.mark.row("R38")]

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "flights"}


def decoded(schema: StructType, **options: str) -> tuple[str, ...]:
    """The columns of a batch read and of a stream."""
    source = DefaultSource(BASE | options)
    batch, stream = source.reader(schema)._options.columns, source.streamReader(schema)._options.columns
    assert batch == stream
    return batch


def test_the_schema_says_the_columns() -> None:
    """In its order, headers too; the source's own schema is what the options say."""
    assert decoded(spark_schema(["offset", "value", "headers"])) == ("offset", "value", "headers")
    assert decoded(spark_schema(["value"]), columns="value") == ("value",)
    assert decoded(DefaultSource(BASE).schema())[:2] == ("key", "value")


def test_another_option_is_a_conflict() -> None:
    """It would be one of both, without a word."""
    with pytest.raises(OptionError, match="option columns says value, and the schema offset"):
        decoded(spark_schema(["offset"]), columns="value")


def test_columns_that_there_are_not_are_refused() -> None:
    """By name, with what there is."""
    wrong = {
        "the schema has a column Value; topics have key, value, topic": StructField("Value", BinaryType()),
        "the schema says offset int; it is bigint": StructField("offset", IntegerType()),
        "the schema says offset bigint not null; it is bigint": StructField("offset", LongType(), nullable=False),
    }
    for reason, field in wrong.items():
        with pytest.raises(SourceError, match=reason):
            decoded(StructType([field]))
