"""Delta tables as DataFrames, without a jar: the log says which files are the table, Spark reads those.

That is exact for tables that this package writes: appended, unpartitioned, without deletion vectors or column mapping.
"""

from typing import TYPE_CHECKING
from urllib.parse import unquote

from tidelog.pipeline.errors import TableMismatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_delta(spark: "SparkSession", path: str) -> "DataFrame":
    """The table at `path` as it is now; raises `TableMismatch` for one that needs a full Delta reader."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from tidelog.pipeline.delta import names_otherwise, opened, table_schema

    table = opened(path)
    protocol = table.protocol()
    if table.metadata().partition_columns or "deletionVectors" in (protocol.reader_features or ()):
        raise TableMismatch(f"the table at {path} is partitioned or has deletion vectors: read it with delta-spark")
    if names_otherwise(table):
        raise TableMismatch(f"the table at {path} has column mapping: read it with delta-spark")
    schema = from_arrow_schema(table_schema(table))
    # Of a local table these are paths, but with the escapes of URIs.
    files = table.file_uris() if "://" in path else [unquote(each) for each in table.file_uris()]
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*files)
