"""The Spark data source: `spark.read.format("tidelog")` and `readStream`, no jar and no setup.

Spark imports every package called pyspark_* and registers its `DefaultSource`; that happens in each session that uses
any Python data source, so importing this must stay cheap: what does the work is imported when a DataFrame is made.
"""

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark_tidelog.batch import TidelogBatchReader
    from pyspark_tidelog.lag import LagListener
    from pyspark_tidelog.options import SourceOptions
    from pyspark_tidelog.sink.writers import TidelogBatchWriter, TidelogStreamWriter
    from pyspark_tidelog.stream import TidelogStreamReader

__all__ = ["DefaultSource", "LagListener"]


def __getattr__(name: str) -> Any:
    """`LagListener`, for drivers that want it."""
    if name == "LagListener":
        from pyspark_tidelog.lag import LagListener

        return LagListener
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class DefaultSource(DataSource):
    """Topics of a tidelog or Apache Kafka cluster as DataFrames; `docs/spark.md` lists the options."""

    @classmethod
    def name(cls) -> str:
        return "tidelog"

    def schema(self) -> StructType:
        """Checks the options, so that mistakes are told by `load()` and not by the first action."""
        from pyspark_tidelog.options import parse_options
        from pyspark_tidelog.schema import spark_schema
        from pyspark_tidelog.worker_process import spare_collections

        schema = spark_schema(parse_options(self.options, streaming=None).columns)
        spare_collections()
        return schema

    def reader(self, schema: StructType) -> "TidelogBatchReader":
        from pyspark_tidelog.batch import TidelogBatchReader

        return TidelogBatchReader(self._options(schema, streaming=False))

    def streamReader(self, schema: StructType) -> "TidelogStreamReader":  # noqa: N802  # Spark's name.
        from pyspark_tidelog.stream import TidelogStreamReader

        return TidelogStreamReader(self._options(schema, streaming=True))

    def _options(self, schema: StructType, *, streaming: bool) -> "SourceOptions":
        """`schema` is the source's own, or a user's, which says the columns then."""
        from pyspark_tidelog.options import parse_options
        from pyspark_tidelog.schema import columns_of

        return parse_options(self.options, streaming=streaming).with_columns(columns_of(schema))

    def writer(self, schema: StructType, overwrite: bool) -> "TidelogBatchWriter":
        from pyspark_tidelog.errors import SourceError
        from pyspark_tidelog.sink.columns import check_schema
        from pyspark_tidelog.sink.options import parse_sink_options
        from pyspark_tidelog.sink.writers import TidelogBatchWriter
        from pyspark_tidelog.worker_process import spare_collections

        if overwrite:
            raise SourceError("a topic cannot be overwritten: write with mode('append')")
        options = parse_sink_options(self.options)
        writer = TidelogBatchWriter(options, check_schema(_fields(schema), options.topic))
        writer.begin()
        spare_collections()
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> "TidelogStreamWriter":  # noqa: N802  # Spark's name.
        from pyspark_tidelog.sink.columns import check_schema
        from pyspark_tidelog.sink.options import parse_sink_options
        from pyspark_tidelog.sink.writers import TidelogStreamWriter
        from pyspark_tidelog.worker_process import spare_collections

        options = parse_sink_options(self.options)
        writer = TidelogStreamWriter(options, check_schema(_fields(schema), options.topic), schema)
        spare_collections()
        return writer


def _fields(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]
