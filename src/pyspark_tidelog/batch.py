"""`spark.read.format("tidelog")`: offsets are resolved once, when the read is planned, and shared out to tasks."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_tidelog.offsets import OffsetRange, split_ranges
from pyspark_tidelog.options import SourceOptions
from pyspark_tidelog.worker_process import spare_collections

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from pyspark_tidelog.filters import Pushed


class RangePartition(InputPartition):
    """One task's work."""

    def __init__(self, value: OffsetRange) -> None:
        super().__init__(value)
        self.value: OffsetRange = value


class TidelogBatchReader(DataSourceReader):
    """Plans in the driver and reads in tasks; holds options only, since it travels pickled."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._pushed: Pushed | None = None

    @property
    def pushFilters(self) -> "_FilterTaker":  # noqa: N802  # Spark's name; `_FilterTaker` says more.
        """Takes the filters that ranges of offsets can stand for; gives those that Spark has to look at."""
        return _FilterTaker(self._take)

    def _take(self, filters: "list[Filter]") -> "Sequence[Filter]":
        from pyspark_tidelog.filters import push

        self._pushed = push(filters)
        return self._pushed.rest

    def partitions(self) -> list[InputPartition]:
        """A range of offsets a task; asks the cluster."""
        options = self._options
        ranges = _planned(options, self._pushed)
        pieces = split_ranges(
            ranges, partitions_min=options.partitions_min, records_max=options.records_max_per_partition
        )
        spare_collections()
        return [RangePartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Arrow batches of one range. Spark makes up an empty partition where a plan has none."""
        return read_partition(self._options, partition)


class _FilterTaker:
    """The method `pushFilters`, in a form that Spark takes for the base's where filters are not handed over.

    Where spark.sql.python.filterPushdown.enabled is off, as it is by default, Spark refuses a source with a method of
    its own: it could rely on filters. This one does not.
    """

    def __init__(self, take: "Callable[[list[Filter]], Sequence[Filter]]") -> None:
        self._take = take
        self.__func__ = getattr(DataSourceReader, "pushFilters", None)  # What a bound method has, and Spark looks at.

    def __call__(self, filters: "list[Filter]") -> "Sequence[Filter]":
        return self._take(filters)


def _planned(options: SourceOptions, pushed: "Pushed | None") -> list[OffsetRange]:
    from pyspark_tidelog.planning import open_cluster, plan_batch

    if options.segments:
        from pyspark_tidelog.segments.reading import open_catalog

        catalog = open_catalog(options)
        if not options.bootstrap:
            return plan_batch(catalog, options, pushed)
    with open_cluster(options) as cluster:
        return plan_batch(cluster, options, pushed)


def read_partition(options: SourceOptions, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
    """What both readers do in a task."""
    if not isinstance(partition, RangePartition):
        return iter(())
    from pyspark_tidelog.reading import read_batches

    return read_batches(options, partition.value, options.columns)
