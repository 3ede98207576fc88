"""A source that costs nothing: hands Spark the Arrow batches of a topic that a worker process has decoded before.

What a read takes with it is Spark's own; the rest of what a read of the same topic takes is the source's.
`bench/spark.py` runs it beside the reads (case `arrow`). Workers import it, so it is a module of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_tidelog import DefaultSource
from pyspark_tidelog.batch import RangePartition, TidelogBatchReader

if TYPE_CHECKING:
    import pyarrow as pa

_KEPT: Final[dict[tuple[str, int], list[pa.RecordBatch]]] = {}
"""[topic, partition] -> its batches, of one topic."""


class ArrowBatches(DataSource):
    """`format("bench-arrow")`, with the options of a read of files."""

    @classmethod
    def name(cls) -> str:
        return "bench-arrow"

    def schema(self) -> StructType:
        return DefaultSource(self.options).schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(DefaultSource(self.options).reader(schema))


class _Reader(DataSourceReader):
    def __init__(self, files: TidelogBatchReader) -> None:
        self._files = files

    def partitions(self) -> list[InputPartition]:
        return self._files.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        place = partition.value.topic, partition.value.partition
        if place not in _KEPT:
            for other in [each for each in _KEPT if each[0] != place[0]]:
                del _KEPT[other]
            _KEPT[place] = list(self._files.read(partition))
        return iter(_KEPT[place])
