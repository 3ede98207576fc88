"""How far streaming queries are behind their topics: a listener for `spark.streams.addListener`.

Spark's own progress says rows, and offsets as text. This adds what remains to be read, as `kafka-consumer-groups`
counts it, and how old the newest record is that was read. It asks the brokers after each batch, in the driver.
"""

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_tidelog.offsets import Position
from tidelog.client.blocking import BlockingCluster
from tidelog.client.errors import ClientError
from tidelog.client.fetching import FetchSettings
from tidelog.client.offsets import list_offsets
from tidelog.client.security import ClientSecurity
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import LATEST_TIMESTAMP, TopicPartition
from tidelog.records.batch import iterate_headers
from tidelog.records.errors import InvalidBatch

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

logger: Final = logging.getLogger(__name__)

_ONE_BATCH: Final = FetchSettings(max_wait_ms=0, max_bytes=1, partition_max_bytes=1)
"""Brokers give one batch, whatever its size."""
_TIMEOUT_S: Final = 5.0
"""Listeners are told of one batch after the other: a cluster that does not answer must not hold them up for long."""


@dataclass(frozen=True, slots=True)
class Lag:
    """A query after one of its batches."""

    query: str
    """Its name, or its id where it has none."""
    batch: int
    rows: int
    """That Spark counted in the batch; files, not records, where the query is a table's."""
    offsets: int
    """That the batch took."""
    behind: int
    """Offsets between the query and the ends of its partitions, at the time of asking."""
    partitions: Mapping[TopicPartition, int]
    """The same of each partition."""
    freshness_s: float | None
    """Age of the newest record of the batch, in seconds; None where it had none, or that could not be found out."""


def log_lag(lag: Lag) -> None:
    """A line of the log for each batch."""
    freshness = "-" if lag.freshness_s is None else f"{lag.freshness_s:.1f}"
    logger.info(
        "query_lag: query=%s batch=%d rows=%d offsets=%d behind=%d freshness_s=%s",
        lag.query,
        lag.batch,
        lag.rows,
        lag.offsets,
        lag.behind,
        freshness,
    )


class LagListener(StreamingQueryListener):
    """Tells the lag of every query that reads topics of one cluster, after each of its batches."""

    def __init__(
        self,
        bootstrap: str,
        report: Callable[[Lag], None] = log_lag,
        *,
        properties: Mapping[str, str] | None = None,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        """`properties` are a Kafka client's, for secured clusters. UnsupportedSecurity, or ValueError for `bootstrap`.

        A cluster that cannot be asked is a warning in the log; what `report` raises goes to Spark, which logs it.
        """
        super().__init__()
        self._report = report
        self._wall_s = wall_s
        self._cluster = BlockingCluster(
            bootstrap,
            client_id="tidelog-spark-lag",
            call_timeout_s=_TIMEOUT_S,
            operation_timeout_s=_TIMEOUT_S,
            security=ClientSecurity.from_properties(properties or {}),
        )

    def onQueryStarted(self, event: "QueryStartedEvent") -> None:  # noqa: N802  # Spark's name.
        """Nothing has been read yet."""

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:  # noqa: N802  # Spark's name.
        """After each batch; while a query is idle every ten seconds."""
        progress = event.progress
        starts, ends = _positions(progress)
        if not ends:
            return
        try:
            behind = self._behind(ends)
            newest_ms = self._newest_ms(starts, ends)
        except (KafkaError, ClientError) as error:
            logger.warning("query_lag_unknown: query=%s reason=%s", progress.name or progress.id, error)
            return
        self._report(
            Lag(
                query=progress.name or str(progress.id),
                batch=progress.batchId,
                rows=progress.numInputRows,
                offsets=sum(max(0, end - starts.get(each, 0)) for each, end in ends.items()),
                behind=sum(behind.values()),
                partitions=behind,
                freshness_s=None if newest_ms is None else max(0.0, self._wall_s() - newest_ms / 1000),
            )
        )

    def onQueryIdle(self, event: "QueryIdleEvent") -> None:  # noqa: N802  # Spark's name.
        """Spark says no offsets here."""

    def onQueryTerminated(self, event: "QueryTerminatedEvent") -> None:  # noqa: N802  # Spark's name.
        """The query reads no more."""

    def close(self) -> None:
        """Closes the connections; a listener that goes on opens them again."""
        self._cluster.close()

    def _behind(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Of the partitions that are there: a query that goes on without a topic keeps its place in it."""
        operation = list_offsets(self._cluster.routing, dict.fromkeys(ends, LATEST_TIMESTAMP))
        behind: dict[TopicPartition, int] = {}
        refusal: KafkaError | None = None
        for each, found in self._cluster.run(operation).items():
            if not isinstance(found, KafkaError):
                behind[each] = max(0, found.offset - ends[each])
            elif refusal is None or found.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                refusal = found
        if refusal is not None and not (behind and refusal.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            raise refusal
        return behind

    def _newest_ms(self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int | None:
        """The greatest timestamp among the last batches that were read of each partition."""
        newest = [
            timestamp
            for each, end in ends.items()
            if starts.get(each, 0) < end
            for timestamp in self._timestamps(each, end)
        ]
        return max(newest, default=None)

    def _timestamps(self, partition: TopicPartition, end: int) -> Iterator[int]:
        data = self._cluster.fetch(partition, end - 1, _ONE_BATCH)
        try:
            for _, header in iterate_headers(data.records):
                if header.base_offset < end and not header.is_control:
                    yield header.max_timestamp
        except InvalidBatch as error:
            logger.warning("query_lag_unreadable: partition=%s offset=%d reason=%s", partition, end - 1, error.message)


def _positions(progress: Any) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Where a batch began and ended, of all sources that have offsets as topics have."""
    starts: dict[TopicPartition, int] = {}
    ends: dict[TopicPartition, int] = {}
    for source in progress.sources:
        end = _position(source.endOffset)
        if end is None:
            continue
        ends |= end.offsets
        begin = end.since or _position(source.startOffset)
        starts |= {} if begin is None else begin.offsets
    return starts, ends


def _position(text: str | None) -> Position | None:
    try:
        return Position.from_json(json.loads(text or ""))
    except (ValueError, AttributeError, TypeError):
        return None  # Another source's.
