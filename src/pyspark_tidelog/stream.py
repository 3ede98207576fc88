"""`readStream.format("tidelog")`: where a stream is, what its next batch takes, and what became of the topics
meanwhile.

Spark keeps one of these in a process beside the driver and asks it for offsets; `read` runs on pickled copies in tasks.
Between two batches it is asked for the latest offset every 10 ms, hence the short memory of the last answer. Spark
calls `commit` a batch late, and not at all for the last one; but it asks for the latest offset *from* a position only
when the batch that ended there is done, so that is when progress is published.
"""

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pyspark_tidelog.batch import RangePartition, read_partition
from pyspark_tidelog.errors import DataLoss
from pyspark_tidelog.offsets import (
    Position,
    batch_start,
    limit_offsets,
    ranges_between,
    recreated_topics,
    split_ranges,
)
from pyspark_tidelog.options import SourceOptions
from tidelog.model.identifiers import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_tidelog.planning import Partitions
    from tidelog.client.blocking import BlockingCluster

_LOGGER: Final = logging.getLogger(__name__)

LATEST_REUSED_S: Final = 0.05
"""How long an answer about the ends of partitions serves: 20 questions a second while a query is idle, not 100."""
PARTITIONS_REUSED_S: Final = 1.0
"""How long the list of topics and partitions serves: new partitions are found this late at most."""
SETTLING_S: Final = 1.0
"""How long a partition may seem to end before what was read from it: a new leader may not know its end yet."""


class TidelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The offsets of one streaming query; see the module's docstring for who calls what when."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._cluster: BlockingCluster | None = None
        self._initial: Position | None = None
        self._known: tuple[float, Partitions] | None = None
        self._latest: tuple[float, Position] | None = None
        self._target: Position | None = None
        self._published: Mapping[TopicPartition, int] | None = None
        self._last_batch_s: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Options only: what travels to tasks has no sockets and no memory."""
        return {"options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["options"])  # type: ignore[misc]  # A copy starts as a new one.

    # Spark's questions, in its names.

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a new query starts; the same answer however often it is asked (`offsets` says how it survives)."""
        from pyspark_tidelog.planning import initial_position

        if self._initial is None:
            self._initial = initial_position(self._open(), self._options)
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit that the options set; with both, `latestOffset` minds the lower one too."""
        if self._options.offsets_max_per_trigger is not None:
            return ReadMaxRows(self._options.offsets_max_per_trigger)
        if self._options.offsets_min_per_trigger is not None:
            return ReadMinRows(self._options.offsets_min_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Records where this run is to end."""
        self._known = self._latest = None
        self._target = self._latest_position()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the batch from `start` ends; `start` itself while there is nothing to read, or not enough yet."""
        position = Position.from_json(start)
        self._publish(position)
        end = self._next_end(position, limit)
        if end is None:
            return start
        self._last_batch_s = time.monotonic()
        return replace(end, since=position if position.initial else None).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of the partitions as last seen, for the query's progress."""
        return None if self._latest is None else self._latest[1].to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """A range of offsets a task, from the two positions alone: a replayed batch reads what it read the first
        time."""
        until = Position.from_json(end)
        since = batch_start(Position.from_json(start), until)
        pieces = split_ranges(
            ranges_between(since, until),
            partitions_min=self._options.partitions_min,
            records_max=self._options.records_max_per_partition,
        )
        return [RangePartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Arrow batches of one range, in a task."""
        return read_partition(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Everything up to `end` is done."""
        self._publish(Position.from_json(end))

    def stop(self) -> None:
        """Closes the connections."""
        if self._cluster is not None:
            self._cluster.close()

    # What the answers are made of.

    def _open(self) -> "BlockingCluster":
        from pyspark_tidelog.planning import open_cluster

        if self._cluster is None:
            self._cluster = open_cluster(self._options)
        return self._cluster

    def _next_end(self, position: Position, limit: ReadLimit) -> Position | None:
        latest = self._target if self._target is not None else self._latest_position()
        latest = self._checked(position, latest)
        recreated = set(recreated_topics(position, latest))
        starts = {each: 0 if each.topic in recreated else position.offsets.get(each, 0) for each in latest.offsets}
        # Behind the target means past it already: a restart with availableNow whose logged batch went further.
        ends = {each: max(end, starts[each]) for each, end in latest.offsets.items()}
        backlog = sum(end - starts[each] for each, end in ends.items())
        if backlog == 0 or self._too_little(backlog, limit):
            return None
        if not isinstance(limit, ReadAllAvailable) and self._options.offsets_max_per_trigger is not None:
            ends = limit_offsets(starts, ends, self._options.offsets_max_per_trigger)
        return Position(ends, latest.topic_ids)

    def _too_little(self, backlog: int, limit: ReadLimit) -> bool:
        """Whether minOffsetsPerTrigger holds the batch back; not in availableNow, which must come to its end."""
        least = self._options.offsets_min_per_trigger
        if least is None or backlog >= least or isinstance(limit, ReadAllAvailable) or self._target is not None:
            return False
        if self._last_batch_s is None:
            return False
        return (time.monotonic() - self._last_batch_s) * 1000 < self._options.trigger_delay_ms_max

    def _latest_position(self) -> Position:
        from pyspark_tidelog.planning import latest_offsets

        now = time.monotonic()
        if self._latest is not None and now - self._latest[0] < LATEST_REUSED_S:
            return self._latest[1]
        known = self._partitions(now)
        ends = latest_offsets(self._open(), self._options, known.partitions)
        self._latest = (time.monotonic(), Position(ends, known.topic_ids))
        return self._latest[1]

    def _partitions(self, now: float) -> "Partitions":
        from pyspark_tidelog.planning import subscribed_partitions

        if self._known is None or now - self._known[0] >= PARTITIONS_REUSED_S:
            self._known = (now, subscribed_partitions(self._open(), self._options.subscription))
        return self._known[1]

    def _checked(self, position: Position, latest: Position) -> Position:
        """`latest`, once it is clear that nothing of `position` was lost, or that losing it is accepted.

        Partitions that are gone keep their place, so that they are not taken for new ones if they come back.
        """
        behind = _behind(position, latest)
        if behind and self._target is None:
            time.sleep(SETTLING_S)
            self._known = self._latest = None
            latest = self._latest_position()
            behind = _behind(position, latest)
        gone = sorted(set(position.offsets).difference(latest.offsets))
        recreated = recreated_topics(position, latest)
        for what, instead in _losses(position, latest, gone, recreated, behind if self._target is None else []):
            if self._options.fail_on_data_loss:
                raise DataLoss(what, instead=instead)
            _LOGGER.warning("%s failOnDataLoss is false: %s.", what, instead)
        kept = {each: position.offsets[each] for each in gone if each.topic not in recreated}
        ids = {topic: position.topic_ids[topic] for topic in {each.topic for each in kept} & position.topic_ids.keys()}
        return Position({**kept, **latest.offsets}, {**ids, **latest.topic_ids})

    def _publish(self, position: Position) -> None:
        if self._options.group is None or position.offsets == self._published:
            return
        from pyspark_tidelog.progress import publish

        publish(self._open(), self._options.group, position.offsets)
        self._published = position.offsets


def _behind(position: Position, latest: Position) -> list[TopicPartition]:
    """Partitions that now end before what was read from them, though their topic is the same."""
    recreated = set(recreated_topics(position, latest))
    return sorted(
        each
        for each, offset in position.offsets.items()
        if each.topic not in recreated and latest.offsets.get(each, offset) < offset
    )


def _losses(
    position: Position,
    latest: Position,
    gone: list[TopicPartition],
    recreated: list[str],
    behind: list[TopicPartition],
) -> Iterator[tuple[str, str]]:
    """What happened, and what the query does if it may go on."""
    for topic in recreated:
        yield (
            f"topic {topic} was deleted and created again since this query read it (its id was"
            f" {position.topic_ids[topic]}, it is {latest.topic_ids[topic]}).",
            "the query then reads the new topic from its beginning; or start it with a new checkpoint",
        )
    if lost := [str(each) for each in gone if each.topic not in recreated]:
        yield (
            f"{', '.join(lost)} no longer exist, or are not subscribed to any more.",
            "the query then reads the others",
        )
    for each in behind:
        yield (
            f"{each} was read up to offset {position.offsets[each]}, and now ends at {latest.offsets[each]}: its end"
            " was lost.",
            "the query then waits until records with higher offsets come",
        )
