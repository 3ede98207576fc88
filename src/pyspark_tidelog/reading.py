"""What a task does: fetches a range of offsets and decodes it, a slice of columns at a time.

The next piece is on its way from the broker while this one is decoded and handed on, so a task waits for whichever of
the two is slower, not for both.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pyspark_tidelog.arrow import MICROSECONDS, RecordBatches, decoded_columns
from pyspark_tidelog.connections import kept_cluster
from pyspark_tidelog.errors import DataLoss, ReadFailed
from pyspark_tidelog.offsets import OffsetRange
from pyspark_tidelog.options import SourceOptions
from pyspark_tidelog.worker_process import spare_collections
from tidelog.client.blocking import BlockingCluster
from tidelog.client.errors import ClientError, OffsetOutOfRange, TopicChanged
from tidelog.client.fetching import READ_COMMITTED, READ_UNCOMMITTED, FetchedData, FetchSettings
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicId, parse_topic_id
from tidelog.ports.disk import Bytes
from tidelog.records.aborted_transactions import AbortedTransactions
from tidelog.records.column_implementation import ABSENT
from tidelog.records.columns import BatchFilter, Column, Columns, OpenBatch, decode_columns
from tidelog.records.errors import InvalidBatch
from tidelog.records.implementation import PURE_COST

if TYPE_CHECKING:
    from pyspark_tidelog.segments.pieces import Missing, Piece

logger: Final = logging.getLogger(__name__)

SLICE_BYTES_MAX: Final = 32 << 20
"""Of column data in one slice: bounds a task's memory where records are large."""
_MAX_WAIT_MS: Final = 500


def read_batches(options: SourceOptions, offset_range: OffsetRange, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The records of a range as Arrow batches with these columns of the source's schema."""
    maker = RecordBatches(names, offset_range.topic, offset_range.partition)
    with kept_cluster(options) as cluster:
        for columns in read_columns(cluster, options, offset_range, decoded_columns(names)):
            yield maker.batch(columns)
    spare_collections()


def read_columns(
    cluster: BlockingCluster | None, options: SourceOptions, offset_range: OffsetRange, wanted: Column
) -> Iterator[Columns]:
    """The records of a range as columns, timestamps in microseconds; slices without rows are left out.

    `cluster` may be None where files are read only. Raises `DataLoss` where offsets of the range, or the topic, are
    gone; with failOnDataLoss off it logs a warning and continues with the first record there is.
    """
    _log_absent_kernel()
    if options.segments:
        yield from _read_files(cluster, options, offset_range, wanted)
    else:
        assert cluster is not None, "there are neither brokers nor files"
        yield from _read_brokers(cluster, options, offset_range, wanted)


def _read_files(
    cluster: BlockingCluster | None, options: SourceOptions, offset_range: OffsetRange, wanted: Column
) -> Iterator[Columns]:
    """What the files have; the brokers are asked for the rest."""
    from pyspark_tidelog.segments.reading import parts_of

    for part in parts_of(cluster, options, offset_range):
        yield from _read_part(cluster, options, offset_range, wanted, part)


def _read_part(
    cluster: BlockingCluster | None,
    options: SourceOptions,
    whole: OffsetRange,
    wanted: Column,
    part: "Piece | Missing",
) -> Iterator[Columns]:
    """The records of a part; of one whose batches turn out to be damaged what other replicas or brokers have."""
    from pyspark_tidelog.segments.pieces import Missing
    from pyspark_tidelog.segments.reading import parts_of

    if isinstance(part, Missing):
        rest = replace(whole, start=part.start, end=part.end)
        if cluster is None:
            _lose(options, f"the files lack {rest}: {part.reason}.", "these offsets are left out")
            return
        logger.info("segments_lack: range=%s reason=%s", rest, part.reason)
        yield from _read_brokers(cluster, options, rest, wanted)
        return
    position = part.start
    try:
        for columns in _slices(part.records, part.start, part.end, wanted, options, part.aborted):
            position = columns.next_offset
            if columns.rows:
                yield columns
    except InvalidBatch as error:
        reason = f"offset {position} of the files cannot be read: {error.message}"
    else:
        return
    rest = replace(whole, start=position, end=part.end)
    for other in parts_of(cluster, options, rest, replica=part.replica + 1, reason=reason):
        yield from _read_part(cluster, options, whole, wanted, other)


def _read_brokers(
    cluster: BlockingCluster, options: SourceOptions, offset_range: OffsetRange, wanted: Column
) -> Iterator[Columns]:
    settings = FetchSettings(
        max_wait_ms=_MAX_WAIT_MS,
        max_bytes=options.fetch_bytes,
        partition_max_bytes=options.fetch_bytes,
        isolation=READ_COMMITTED if options.read_committed else READ_UNCOMMITTED,
    )
    topic_id: TopicId | None = parse_topic_id(offset_range.topic_id) if offset_range.topic_id else None
    position = offset_range.start
    while position < offset_range.end:
        try:
            pieces = cluster.iterate_fetch(
                offset_range.topic_partition, position, offset_range.end, settings, topic_id=topic_id
            )
            for data in pieces:
                yield from _decode(data, position, offset_range.end, wanted, options)
                position = data.next_offset
            return
        except OffsetOutOfRange as error:
            position = _after_gap(options, offset_range, error)
        except TopicChanged:
            what = f"topic {offset_range.topic} was deleted and created again while {offset_range} was to be read."
            _lose(options, what, "these offsets are left out")
            return
        except (KafkaError, ClientError) as error:
            if isinstance(error, KafkaError) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                what = f"{offset_range.topic_partition} is gone while {offset_range} was to be read."
                _lose(options, what, "it is left out")
                return
            if not error.retriable:
                raise
            raise ReadFailed(
                f"{offset_range.topic_partition} cannot be read from offset {position} on: {error}"
            ) from error


@cache
def _log_absent_kernel() -> None:
    """Says once a worker process that plain Python decodes there, and what that costs."""
    if ABSENT:
        logger.warning("kernel_absent: reason=%r effect=%r", ABSENT, PURE_COST)


def _decode(data: FetchedData, start: int, end: int, wanted: Column, options: SourceOptions) -> Iterator[Columns]:
    aborted = AbortedTransactions(data.aborted) if options.read_committed else None
    position = start
    try:
        for columns in _slices(data.records, start, min(end, data.next_offset), wanted, options, aborted):
            position = columns.next_offset
            if columns.rows:
                yield columns
    except InvalidBatch as error:
        raise data.unreadable(position, error) from error


def _slices(
    records: Bytes, start: int, end: int, wanted: Column, options: SourceOptions, aborted: BatchFilter | None
) -> Iterator[Columns]:
    """The records from `start` to before `end`, a slice after the other; some may have no rows. InvalidBatch."""
    place, next_offset = 0, start
    opened = OpenBatch()
    while next_offset < end:
        columns = decode_columns(
            records,
            position=place,
            start_offset=next_offset,
            end_offset=end,
            columns=wanted,
            rows_max=options.batch_rows,
            bytes_max=SLICE_BYTES_MAX,
            timestamp_scale=MICROSECONDS,
            aborted=aborted,
            opened=opened,
        )
        yield columns
        if not columns.rows and columns.position == place and columns.next_offset == next_offset:
            return
        place, next_offset = columns.position, columns.next_offset


def _after_gap(options: SourceOptions, offset_range: OffsetRange, error: OffsetOutOfRange) -> int:
    """The first offset that is there at or after the one that is not; ReadFailed where it is there by now."""
    if error.start <= error.offset < error.end:
        # Another leader was asked for the range: the one that refused the offset was behind.
        raise ReadFailed(
            f"{offset_range.topic_partition} cannot be read from offset {error.offset} on: {error}"
        ) from error
    what = (
        f"{offset_range.topic_partition} was to be read from offset {error.offset}, but has the offsets from"
        f" {error.start} to {error.end} only: retention or DeleteRecords removed the others, or the log was cut."
    )
    _lose(options, what, f"the read then continues at offset {error.start}")
    return error.start if error.offset < error.start else offset_range.end


def _lose(options: SourceOptions, what: str, instead: str) -> None:
    if options.fail_on_data_loss:
        raise DataLoss(what, instead=instead)
    logger.warning("%s failOnDataLoss is false: %s.", what, instead)
