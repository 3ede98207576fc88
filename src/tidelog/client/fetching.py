"""Fetch requests and what comes back, for every version: by topic name up to version 12, by id from 13 on. No I/O.

Record bytes stay as they came, a view into the response's frame, cut to whole batches: a broker sends its files as
they lie, so the first batch may begin before the offset asked for, and the last one may be cut short.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tidelog.client.arguments import INT32_MAX, require_whole
from tidelog.client.errors import InvalidResponse
from tidelog.client.leader_hints import LeaderHint, hints
from tidelog.client.routing import Routing
from tidelog.model.errors import ErrorCode, KafkaError, error_code
from tidelog.model.identifiers import TopicId, TopicPartition
from tidelog.protocol import messages
from tidelog.records.columns import OpenBatch

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

_BATCH_START: Final = struct.Struct(">qiib")  # Base offset, length of what follows, leader epoch, magic.
_BATCH_OVERHEAD: Final = 12
_BATCH_HEADER_SIZE: Final = 61
_LAST_OFFSET_DELTA: Final = struct.Struct(">i")
_LAST_OFFSET_DELTA_POSITION: Final = 23
_MAGIC: Final = 2


@dataclasses.dataclass(frozen=True, slots=True)
class FetchSettings:
    """How much a fetch asks for and how long it may wait (Kafka's fetch.* settings).

    The broker answers as soon as it has `min_bytes` or `max_wait_ms` have passed, with at most `max_bytes` in all and
    `partition_max_bytes` a partition, but always with one whole batch where there is one.
    """

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 << 20
    partition_max_bytes: int = 8 << 20
    isolation: int = READ_UNCOMMITTED
    rack: str = ""
    """client.rack: a `Fetcher` reads from a follower in it, if the leader names one (KIP-392); "": from leaders."""

    def __post_init__(self) -> None:
        for name in ("max_wait_ms", "min_bytes", "max_bytes", "partition_max_bytes"):
            require_whole(name, getattr(self, name), most=INT32_MAX)
        if self.isolation not in (READ_UNCOMMITTED, READ_COMMITTED):
            raise ValueError(f"isolation is {self.isolation!r}: it must be READ_UNCOMMITTED or READ_COMMITTED")


@dataclasses.dataclass(frozen=True, slots=True)
class FetchedData:
    """What one fetch gave of one partition.

    `records` are whole batches (v2) with the offsets from `fetch_offset` to `next_offset` (exclusive), from which the
    next fetch goes on; the first batch may begin before `fetch_offset`. Empty when there was nothing yet. A consumer
    of committed records skips those of `aborted` (producer id, first offset) up to their abort marker.
    """

    topic_partition: TopicPartition
    fetch_offset: int
    next_offset: int
    records: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...] = ()
    leader_epoch: int = -1
    """Of the last batch; with it a leader tells whether the log was cut below `next_offset` (KIP-320). -1: no batch."""
    preferred_replica: int = -1
    """The follower that the leader wants this reader to go to (KIP-392); there are no records then. -1: none."""
    leader: LeaderHint | None = None
    """The leader that a broker names which does not lead the partition itself (KIP-951)."""
    opened: OpenBatch = dataclasses.field(default_factory=OpenBatch, compare=False, repr=False)
    """The batch of `records` that was decoded in part; of one that is cut in two (`pieces.cut`) both pieces know it."""

    def unreadable(self, offset: int, error: KafkaError) -> KafkaError:
        """What to raise when the batch that holds `offset` cannot be decoded: where it is, and how to go on."""
        topic, partition = self.topic_partition
        return KafkaError(
            error.code,
            f"the batch at offset {offset} of {self.topic_partition} cannot be read: {error.message}; it was sent so,"
            " or damaged since. What follows it can be read from a later offset",
        ).about(topic=topic, partition=partition)


def rotten_batch(topic_partition: TopicPartition, offset: int) -> KafkaError:
    """The error to raise where a fetch was answered with CORRUPT_MESSAGE: no replica has the records at `offset`.

    Java's consumer raises it, too: asking again would go on for ever, and later records are not taken unless the caller
    asks for them.
    """
    error = KafkaError(
        ErrorCode.CORRUPT_MESSAGE,
        f"{topic_partition} cannot be read at offset {offset}: the broker has a damaged batch there; later ones can",
    )
    error.retriable = False
    error.advice = "restore the batch, or seek behind it"
    return error.about(topic=topic_partition.topic, partition=topic_partition.partition)


def fetch_request(routing: Routing, positions: Mapping[TopicPartition, int], settings: FetchSettings) -> Any:
    """A full fetch (no session) of these partitions, whose topics `routing` knows, from these offsets."""
    kind = messages.FetchRequest
    topics: dict[str, list[Any]] = {}
    for topic_partition, offset in positions.items():
        topics.setdefault(topic_partition.topic, []).append(
            kind.FetchPartition(
                partition=topic_partition.partition,
                current_leader_epoch=routing.leader_epoch(topic_partition),
                fetch_offset=offset,
                partition_max_bytes=settings.partition_max_bytes,
            )
        )
    return kind(
        max_wait_ms=settings.max_wait_ms,
        min_bytes=settings.min_bytes,
        max_bytes=settings.max_bytes,
        isolation_level=settings.isolation,
        session_id=0,
        session_epoch=-1,
        topics=[
            kind.FetchTopic(topic=name, topic_id=routing.topic_id(name), partitions=partitions)
            for name, partitions in topics.items()
        ],
    )


def fetched(
    response: Any,
    routing: Routing,
    positions: Mapping[TopicPartition, int],
    names: Mapping[TopicId, str] | None = None,
) -> Iterator[tuple[TopicPartition, ErrorCode, str | None, FetchedData]]:
    """The partitions of a response to a fetch of `positions`: each with its error; one with an error has no records.

    An error of the whole response is every partition's. A response may name no partition, as under a quota, or, in a
    session, only those with news. `names` are the topics by the ids that the request named; None: as `routing` knows
    them. KafkaError, when all other partitions were given, for the first whose records cannot be told apart.
    """
    if response.error_code:
        code = error_code(response.error_code)
        for topic_partition, position in positions.items():
            yield topic_partition, code, None, _nothing(topic_partition, position)
        return
    leader_of = hints(response)
    unreadable: KafkaError | None = None
    for topic in response.responses:
        name = topic.topic or (routing.topic_name(topic.topic_id) if names is None else names.get(topic.topic_id))
        for partition in topic.partitions:
            topic_partition = TopicPartition(name or "", partition.partition_index)
            if topic_partition not in positions:
                raise InvalidResponse(f"a broker answers a fetch with {topic_partition}, which was not asked for")
            position = positions[topic_partition]
            if partition.error_code:
                data = dataclasses.replace(
                    _nothing(topic_partition, position),
                    high_watermark=partition.high_watermark,
                    log_start_offset=partition.log_start_offset,
                    leader=leader_of(partition),
                )
                yield topic_partition, error_code(partition.error_code), None, data
                continue
            try:
                data = _data(topic_partition, position, partition)
            except KafkaError as error:
                unreadable = unreadable or error
                continue
            yield topic_partition, ErrorCode.NONE, None, data
    if unreadable is not None:
        raise unreadable


def _nothing(topic_partition: TopicPartition, position: int) -> FetchedData:
    return FetchedData(topic_partition, position, position, memoryview(b""), -1, -1, -1)


def _data(topic_partition: TopicPartition, position: int, partition: Any) -> FetchedData:
    records = memoryview(partition.records or b"")
    size, next_offset, leader_epoch = _last_whole_batch(records, topic_partition, None)
    return FetchedData(
        topic_partition=topic_partition,
        fetch_offset=position,
        next_offset=max(position, next_offset),
        records=records[:size],
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log_start_offset,
        aborted=tuple((entry.producer_id, entry.first_offset) for entry in partition.aborted_transactions or ()),
        leader_epoch=leader_epoch,
        preferred_replica=partition.preferred_read_replica,
    )


def whole_batches(
    records: memoryview, topic_partition: TopicPartition, end_offset: int | None = None
) -> tuple[int, int]:
    """The size of the whole batches at the front of `records`, and the offset after the last of them (-1: none).

    With `end_offset`, batches that begin at or after it don't count. Batches are stepped over, neither decoded nor
    checked: their CRC is the decoder's to check. KafkaError for formats before v2 and for sizes that can't be.
    """
    return _last_whole_batch(records, topic_partition, end_offset)[:2]


def _last_whole_batch(
    records: memoryview, topic_partition: TopicPartition, end_offset: int | None
) -> tuple[int, int, int]:
    """The same, and the leader epoch of the last of them (-1: none)."""
    unpack, total = _BATCH_START.unpack_from, len(records)
    position, last_position = 0, -1
    last_base = last_epoch = epoch = -1
    while total - position >= _BATCH_HEADER_SIZE:
        base_offset, length, epoch, magic = unpack(records, position)
        if magic != _MAGIC:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                f"{topic_partition} holds records of message format {magic} at offset {base_offset}; "
                "only format 2 (Kafka 0.11 and later) can be read",
            )
        if length < _BATCH_HEADER_SIZE - _BATCH_OVERHEAD:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"{topic_partition}: a batch of {length} bytes at offset {base_offset}"
            )
        after = position + _BATCH_OVERHEAD + length
        if after > total or (end_offset is not None and base_offset >= end_offset):
            break
        last_base, last_epoch, last_position, position = base_offset, epoch, position, after
    if last_position < 0:
        return 0, -1, -1
    (delta,) = _LAST_OFFSET_DELTA.unpack_from(records, last_position + _LAST_OFFSET_DELTA_POSITION)
    return position, last_base + delta + 1, last_epoch
