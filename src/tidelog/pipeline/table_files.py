"""What Spark plans and runs of a table job: a streaming source whose tasks write files and yield what they wrote.

Each query has some Python processes of Spark's that unpickle these classes, to plan or to be asked for offsets. So what
only tasks need (Arrow, Parquet) is imported by tasks.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructType

from pyspark_tidelog.batch import RangePartition
from pyspark_tidelog.offsets import Position
from pyspark_tidelog.options import SourceOptions, parse_options
from pyspark_tidelog.stream import TidelogStreamReader
from pyspark_tidelog.worker_process import spare_collections

if TYPE_CHECKING:
    import pyarrow as pa

TABLES_OPTION: Final = "table.of"
"""`tables_text`'s."""
MANIFEST_DDL: Final = (
    "topic string, partition int, start bigint, end bigint, topicId string, path string, size bigint, rows bigint,"
    " statistics string, recordBytes bigint, newFields array<string>"
)


@dataclass(frozen=True, slots=True)
class TablePlace:
    """Where the records of a topic go."""

    path: str
    shape: str
    """`TableShape.to_text`'s."""


def tables_text(places: Mapping[str, TablePlace]) -> str:
    """[topic] -> place, for an option of a data source, which can only be text."""
    return json.dumps({topic: [each.path, each.shape] for topic, each in places.items()})


def tables_of(text: str) -> dict[str, TablePlace]:
    """The inverse of `tables_text`."""
    return {topic: TablePlace(path, shape) for topic, (path, shape) in json.loads(text).items()}


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
        return TableFilesReader(options, tables_of(self.options[TABLES_OPTION]))


class TableFilesReader(TidelogStreamReader):
    """Plans as the source does; a task writes its range instead of handing it on."""

    def __init__(self, options: SourceOptions, tables: Mapping[str, TablePlace]) -> None:
        """`tables`: [topic] -> place."""
        super().__init__(options)
        self._tables = dict(tables)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"tables": self._tables}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A copy starts as a new one.
        self.__init__(state["options"], state["tables"])  # type: ignore[misc]

    def _initial_position(self) -> Position:
        """Where the table stands, also where a loss may be passed over and records there are gone: it takes no batch
        that begins elsewhere."""
        position = super()._initial_position()
        starting = self._options.starting
        given = {} if starting.by_timestamp else {each: offset for each, offset in starting.each.items() if offset >= 0}
        return replace(position, offsets={**position.offsets, **given})

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """One row: what was written of the range."""
        if not isinstance(partition, RangePartition):
            return iter(())
        from tidelog.pipeline.parquet import manifest, write_range
        from tidelog.pipeline.shape import TableShape

        place = self._tables[partition.value.topic]
        written = write_range(self._options, partition.value, place.path, TableShape.from_text(place.shape))
        spare_collections()
        return manifest(written)
