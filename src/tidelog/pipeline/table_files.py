"""What Spark plans and runs of a table job: a streaming source whose tasks write files and yield what they wrote.

Each query has some Python processes of Spark's that unpickle these classes, to plan or to be asked for offsets. So what
only tasks need (Arrow, Parquet) is imported by tasks.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructType

from pyspark_tidelog.batch import RangePartition
from pyspark_tidelog.options import SourceOptions, parse_options
from pyspark_tidelog.stream import TidelogStreamReader

if TYPE_CHECKING:
    import pyarrow as pa

SHAPE_OPTION: Final = "table.shape"
PATH_OPTION: Final = "table.path"
MANIFEST_DDL: Final = (
    "topic string, partition int, start bigint, end bigint, topicId string, path string, size bigint, rows bigint,"
    " statistics string, recordBytes bigint, newFields array<string>"
)


class TableFiles(DataSource):
    """The streaming source of a table job; registered by `start_table`."""

    @classmethod
    def name(cls) -> str:
        return "tidelog_table_files"

    def schema(self) -> str:
        return MANIFEST_DDL

    def streamReader(self, schema: StructType) -> "TableFilesReader":  # noqa: N802  # Spark's name.
        given = {name: value for name, value in self.options.items() if not name.lower().startswith("table.")}
        options = parse_options(given, streaming=True)
        return TableFilesReader(options, self.options[PATH_OPTION], self.options[SHAPE_OPTION])


class TableFilesReader(TidelogStreamReader):
    """Plans as the source does; a task writes its range instead of handing it on."""

    def __init__(self, options: SourceOptions, table_path: str, shape: str) -> None:
        """`shape` is `TableShape.to_text`'s."""
        super().__init__(options)
        self._table_path = table_path
        self._shape = shape

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"table_path": self._table_path, "shape": self._shape}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A copy starts as a new one.
        self.__init__(state["options"], state["table_path"], state["shape"])  # type: ignore[misc]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """One row: what was written of the range."""
        if not isinstance(partition, RangePartition):
            return iter(())
        from tidelog.pipeline.parquet import manifest, write_range
        from tidelog.pipeline.shape import TableShape

        shape = TableShape.from_text(self._shape)
        return manifest(write_range(self._options, partition.value, self._table_path, shape))
