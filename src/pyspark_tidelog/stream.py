"""`readStream.format("tidelog")`: where a stream is, what its next batch takes, and what became of the topics
meanwhile.

Spark keeps one of these in a process beside the driver and asks it for offsets; `read` runs on pickled copies in tasks.
Between two batches it is asked for the latest offset every 10 ms, hence the short memory of the last answer. Spark
calls `commit` a batch late, and not at all for the last one; but it asks for the latest offset *from* a position only
when the batch that ended there is done, so that is when progress is published.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_tidelog.batch import RangePartition, read_partition
from pyspark_tidelog.errors import DataLoss, OptionError
from pyspark_tidelog.losses import (
    Loss,
    losses_between,
    nearer_target,
    partitions_behind,
    with_places_of_gone,
)
from pyspark_tidelog.offsets import (
    OffsetRange,
    Position,
    batch_start,
    cut_at,
    limit_offsets,
    ranges_between,
    recreated_topics,
    split_ranges,
)
from pyspark_tidelog.options import SourceOptions
from pyspark_tidelog.spark_versions import (
    HAS_LIMITS,
    PYSPARK_VERSION,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_tidelog.planning import Partitions
    from pyspark_tidelog.progress import Progress
    from tidelog.client.blocking import BlockingCluster

logger: Final = logging.getLogger(__name__)
Answer = TypeVar("Answer")

LATEST_REUSED_S: Final = 0.05
"""How long an answer about the ends of partitions serves: 20 questions a second while a query is idle, not 100."""
PARTITIONS_REUSED_S: Final = 1.0
"""How long the list of topics and partitions serves: new partitions are found this late at most."""
SETTLING_S: Final = 1.0
"""How long a partition may seem to end before what was read from it, or not to be there: a new leader may not know its
end yet, and a broker not have heard of the topic."""


class TidelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The offsets of one streaming query; see the module's docstring for who calls what when."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        if not HAS_LIMITS:
            _refuse_limits(options)
        self._last: dict[str, Any] | None = None
        self._cluster: BlockingCluster | None = None
        self._initial: Position | None = None
        self._known: tuple[float, Partitions] | None = None
        self._latest: tuple[float, Position] | None = None
        self._target: Position | None = None
        self._progress: Progress | None = None
        self._last_batch_s: float | None = None
        self._tolerated: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        """Options only: what travels to tasks has no sockets and no memory."""
        return {"options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["options"])  # type: ignore[misc]  # A copy starts as a new one.

    # Spark's questions, in its names.

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a new query starts; the same answer however often it is asked (`offsets` says how it survives)."""
        if self._initial is None:
            self._initial = self._initial_position()
        self._last = self._initial.to_json()
        return self._last

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

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Where the batch from `start` ends; `start` itself while there is nothing to read, or not enough yet.

        Spark before 4.2 gives no start: it is where the last batch ended that this process knows of. After a restart
        it knows of none, and the answer is the latest offset, which `partitions` compares with the start it is given.
        """
        start = self._last if start is None else start
        if start is None:
            return self._latest_position().to_json()
        position = Position.from_json(start)
        self._publish(position)
        end = self._next_end(position, limit or ReadAllAvailable())
        if end is None:
            return start
        self._last_batch_s = time.monotonic()
        self._last = replace(end, since=position if position.initial else None).to_json()
        return self._last

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of the partitions as last seen, for the query's progress."""
        return None if self._latest is None else self._latest[1].to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """A range of offsets a task, from the two positions alone: a replayed batch reads what it read the first
        time."""
        until = self._as_subscribed(Position.from_json(end))
        since = self._as_subscribed(batch_start(Position.from_json(start), until))
        if not HAS_LIMITS:
            self._checked(since, until)
            self._last = end
        gaps, ranges = self._without_gaps(ranges_between(since, until))
        pieces = split_ranges(
            ranges,
            partitions_min=self._options.partitions_min,
            records_max=self._options.records_max_per_partition,
        )
        return [RangePartition(piece) for piece in (*gaps, *pieces)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Arrow batches of one range, in a task."""
        return read_partition(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Everything up to `end` is done."""
        self._publish(Position.from_json(end))

    def stop(self) -> None:
        """Publishes what could not be published yet, and closes the connections."""
        if self._progress is not None:
            self._progress.publish(self._open(), at_once=True)
        if self._cluster is not None:
            self._cluster.close()

    # What the answers are made of.

    def _open(self) -> "BlockingCluster":
        from pyspark_tidelog.planning import open_cluster

        if self._cluster is None:
            self._cluster = open_cluster(self._options)
        return self._cluster

    def _initial_position(self) -> Position:
        from pyspark_tidelog.planning import initial_position

        return initial_position(self._open(), self._options)

    def _next_end(self, position: Position, limit: ReadLimit) -> Position | None:
        position = self._as_subscribed(position)
        latest = self._checked(position, self._latest_position())
        if self._target is not None:
            latest = self._up_to_target(position, latest)
        recreated = set(recreated_topics(position, latest))
        starts = {each: 0 if each.topic in recreated else position.offsets.get(each, 0) for each in latest.offsets}
        # A target may lie behind: a logged batch of an earlier run, or of uncommitted reads, went further.
        ends = {each: max(end, starts[each]) for each, end in latest.offsets.items()}
        backlog = sum(end - starts[each] for each, end in ends.items())
        if backlog == 0 or self._too_little(backlog, limit):
            return None
        if not isinstance(limit, ReadAllAvailable) and self._options.offsets_max_per_trigger is not None:
            ends = limit_offsets(self._readable(starts), ends, self._options.offsets_max_per_trigger)
        return Position(ends, latest.topic_ids)

    def _up_to_target(self, position: Position, latest: Position) -> Position:
        """Where the availableNow run may go: its target, as far as that is still there."""
        assert self._target is not None
        latest = self._checked(self._target, latest)
        self._target = nearer_target(self._target, latest)
        return with_places_of_gone(position, self._target)

    def _readable(self, starts: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """The first offsets that can be read from `starts` on, where a loss may be passed over: offsets that are gone
        use up no limit, or a gap of millions would be a batch for each thousand."""
        if self._options.fail_on_data_loss:
            return starts
        earliest = self._earliest(starts)
        return {each: max(start, earliest.get(each, start)) for each, start in starts.items()}

    def _without_gaps(self, ranges: list[OffsetRange]) -> tuple[list[OffsetRange], list[OffsetRange]]:
        """What of the ranges is known to be gone, one range a partition, and the rest: many tasks for nothing are
        spared where partitions are cut into tasks and a loss may be passed over."""
        options = self._options
        if options.fail_on_data_loss or not (options.partitions_min or options.records_max_per_partition):
            return [], ranges
        return cut_at(ranges, self._earliest(each.topic_partition for each in ranges))

    def _earliest(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The first offset of each of the partitions that is there."""
        wanted = set(partitions)

        def ask() -> Mapping[TopicPartition, int]:
            from pyspark_tidelog import planning

            known = tuple(wanted.intersection(self._partitions().partitions))
            return planning.earliest_offsets(self._open(), self._options, known)

        return self._asked_again(ask)

    def _too_little(self, backlog: int, limit: ReadLimit) -> bool:
        """Whether minOffsetsPerTrigger holds the batch back; not in availableNow, which must come to its end."""
        least = self._options.offsets_min_per_trigger
        if least is None or backlog >= least or isinstance(limit, ReadAllAvailable) or self._target is not None:
            return False
        if self._last_batch_s is None:
            return False
        return (time.monotonic() - self._last_batch_s) * 1000 < self._options.trigger_delay_ms_max

    def _latest_position(self) -> Position:
        from pyspark_tidelog import planning

        if self._latest is not None and time.monotonic() - self._latest[0] < LATEST_REUSED_S:
            return self._latest[1]

        def ask() -> Position:
            known = self._partitions()
            return Position(planning.latest_offsets(self._open(), self._options, known.partitions), known.topic_ids)

        position = self._asked_again(ask)
        self._latest = (time.monotonic(), position)
        return position

    def _asked_again(self, ask: Callable[[], Answer]) -> Answer:
        """What `ask` gives about the partitions that are known, once more where one was deleted since they were
        listed."""
        try:
            return ask()
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        self._known = None
        return ask()

    def _partitions(self) -> "Partitions":
        from pyspark_tidelog.planning import subscribed_partitions

        if self._known is None or time.monotonic() - self._known[0] >= PARTITIONS_REUSED_S:
            found = subscribed_partitions(self._open(), self._options.subscription)
            # Counted from now on: for a topic that is gone brokers are asked again and again, for a second or two.
            self._known = (time.monotonic(), found)
        return self._known[1]

    def _as_subscribed(self, position: Position) -> Position:
        """The position without topics that versions before have read, and that are left out now: none was lost."""
        subscription = self._options.subscription
        left_out = sorted({each.topic for each in position.offsets if subscription.leaves_out(each.topic)})
        if not left_out:
            return position
        names = ", ".join(left_out)
        if names not in self._tolerated:
            self._tolerated.add(names)
            logger.info("private topics of a sink, not read any more: topics=%s", names)
        return position.without(left_out)

    def _checked(self, position: Position, latest: Position) -> Position:
        """`latest`, once it is clear that nothing of `position` was lost, or that losing it is accepted."""
        losses = self._losses(position, latest)
        if any(loss.subject not in self._tolerated for loss in losses):
            time.sleep(SETTLING_S)
            self._known = self._latest = None
            latest = self._latest_position()
            losses = self._losses(position, latest)
        for loss in losses:
            if self._options.fail_on_data_loss:
                raise DataLoss(loss.what, instead=loss.instead)
            if loss.subject not in self._tolerated:
                self._tolerated.add(loss.subject)
                logger.warning("%s failOnDataLoss is false: %s.", loss.what, loss.instead)
        return with_places_of_gone(position, latest)

    def _losses(self, position: Position, latest: Position) -> list[Loss]:
        return list(losses_between(position, latest, self._behind(position, latest)))

    def _behind(self, position: Position, latest: Position) -> list[TopicPartition]:
        """Partitions that end before `position`. One whose last stable offset lies there has an open transaction, and
        ends where its high watermark is."""
        from pyspark_tidelog.planning import high_watermarks

        behind = partitions_behind(position, latest)
        if not behind or not self._options.read_committed:
            return behind
        ends = high_watermarks(self._open(), behind)
        return [each for each in behind if ends[each] < position.offsets[each]]

    def _publish(self, position: Position) -> None:
        if self._options.group is None:
            return
        if self._progress is None:
            from pyspark_tidelog.progress import Progress

            self._progress = Progress(self._options.group)
        self._progress.reached(position.offsets)
        self._progress.publish(self._open())


def _refuse_limits(options: SourceOptions) -> None:
    given = {
        "maxOffsetsPerTrigger": options.offsets_max_per_trigger,
        "minOffsetsPerTrigger": options.offsets_min_per_trigger,
    }
    for name, value in given.items():
        if value is not None:
            raise OptionError(
                name, f"needs PySpark 4.2 or later: PySpark {PYSPARK_VERSION} does not ask Python sources within limits"
            )
