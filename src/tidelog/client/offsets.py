"""Questions about offsets, as operations: where a partition begins and ends, what a timestamp maps to, what a group
committed; and the moves: commits without membership, records deleted up to an offset. No I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tidelog.client.exchange import ByVersion
from tidelog.client.fetching import READ_UNCOMMITTED
from tidelog.client.routing import Operation, Routing, partition_error
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey


@dataclasses.dataclass(frozen=True, slots=True)
class OffsetFound:
    """An answer of ListOffsets. -1 in all three: no record is at or after the timestamp asked for."""

    offset: int
    timestamp: int
    """Of the record found, ms since 1970; -1 for questions that are not about a record (earliest, latest)."""
    leader_epoch: int
    """Of the record, or of the leader; -1 where the broker is too old to tell."""


@dataclasses.dataclass(frozen=True, slots=True)
class CommittedOffset:
    """What a group committed for a partition: the next offset to read, and the committer's own note."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


def list_offsets(
    routing: Routing,
    timestamps: Mapping[TopicPartition, int],
    *,
    isolation: int = READ_UNCOMMITTED,
    timeout_s: float | None = None,
) -> Operation[dict[TopicPartition, OffsetFound | KafkaError]]:
    """The offset for a timestamp (ms since 1970) or a question of `model.identifiers` (-1 latest, -2 earliest,
    -3 greatest timestamp, ...), one request a leader; each partition's answer or error."""
    deadline = routing.deadline(timeout_s)
    kind = messages.ListOffsetsRequest

    def build(group: dict[TopicPartition, int]) -> Any:
        return kind(
            replica_id=-1,
            isolation_level=isolation,
            topics=[
                kind.ListOffsetsTopic(
                    name=name,
                    partitions=[
                        kind.ListOffsetsPartition(
                            partition_index=tp.partition,
                            current_leader_epoch=routing.leader_epoch(tp),
                            timestamp=group[tp],
                        )
                        for tp in partitions
                    ],
                )
                for name, partitions in by_topic(group)
            ],
            timeout_ms=int(routing.call_timeout_s * 1000),
        )

    def parse(response: Any) -> Iterator[tuple[TopicPartition, ErrorCode, str | None, OffsetFound]]:
        for topic in response.topics:
            for entry in topic.partitions:
                found = OffsetFound(entry.offset, entry.timestamp, entry.leader_epoch)
                yield TopicPartition(topic.name, entry.partition_index), ErrorCode(entry.error_code), None, found

    return (yield from routing.ask_leaders(timestamps, build, parse, deadline))


def delete_records(
    routing: Routing, offsets: Mapping[TopicPartition, int], *, timeout_s: float | None = None
) -> Operation[dict[TopicPartition, int | KafkaError]]:
    """Moves log starts up to `offsets` (-1: to the high watermark); each partition's new log start or error."""
    deadline = routing.deadline(timeout_s)
    kind = messages.DeleteRecordsRequest

    def build(group: dict[TopicPartition, int]) -> Any:
        return kind(
            topics=[
                kind.DeleteRecordsTopic(
                    name=name,
                    partitions=[
                        kind.DeleteRecordsPartition(partition_index=tp.partition, offset=group[tp]) for tp in partitions
                    ],
                )
                for name, partitions in by_topic(group)
            ],
            timeout_ms=int(routing.call_timeout_s * 1000),
        )

    def parse(response: Any) -> Iterator[tuple[TopicPartition, ErrorCode, str | None, int]]:
        for topic in response.topics:
            for entry in topic.partitions:
                code = ErrorCode(entry.error_code)
                yield TopicPartition(topic.name, entry.partition_index), code, None, entry.low_watermark

    return (yield from routing.ask_leaders(offsets, build, parse, deadline))


def commit_offsets(
    routing: Routing,
    group: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
    *,
    timeout_s: float | None = None,
) -> Operation[None]:
    """Commits offsets for a group that has no members now; KafkaError for the first partition refused.

    UNKNOWN_MEMBER_ID says that members are consuming in the group: their offsets are theirs to commit.
    """
    if not offsets:
        return
    deadline = routing.deadline(timeout_s)
    yield from routing.require_topics({tp.topic for tp in offsets}, deadline)
    kind = messages.OffsetCommitRequest
    request = kind(
        group_id=group,
        topics=[
            kind.OffsetCommitRequestTopic(
                name=name,
                topic_id=routing.topic_id(name),
                partitions=[
                    kind.OffsetCommitRequestPartition(
                        partition_index=tp.partition,
                        committed_offset=offsets[tp].offset,
                        committed_leader_epoch=offsets[tp].leader_epoch,
                        committed_metadata=offsets[tp].metadata,
                    )
                    for tp in partitions
                ],
            )
            for name, partitions in by_topic(offsets)
        ],
    )

    def errors_of(response: Any) -> Iterator[int]:
        return (entry.error_code for topic in response.topics for entry in topic.partitions)

    response = yield from routing.ask_coordinator(group, request, deadline, errors_of)
    for topic in response.topics:
        name = topic.name or routing.topic_name(topic.topic_id) or "?"
        for entry in topic.partitions:
            if entry.error_code:
                tp = TopicPartition(name, entry.partition_index)
                raise KafkaError(ErrorCode(entry.error_code), f"group '{group}' could not commit {tp}")


def committed_offsets(
    routing: Routing,
    group: str,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    timeout_s: float | None = None,
) -> Operation[dict[TopicPartition, CommittedOffset]]:
    """What a group committed, for `partitions` or (None) wherever it did; partitions without a commit are left out."""
    deadline = routing.deadline(timeout_s)
    wanted = None if partitions is None else list(partitions)
    if wanted is None:
        yield from routing.refresh(None, deadline)  # Version 10 answers with topic ids, which must be known here.
    else:
        yield from routing.require_topics({tp.topic for tp in wanted}, deadline)
    grouped = None if wanted is None else by_topic(wanted)
    request = ByVersion(ApiKey.OFFSET_FETCH, lambda version: _offset_fetch_request(routing, group, grouped, version))

    def errors_of(response: Any) -> Iterator[int]:
        yield response.groups[0].error_code if response.groups else response.error_code

    response = yield from routing.ask_coordinator(group, request, deadline, errors_of)
    answer = response.groups[0] if response.groups else response
    if answer.error_code:
        raise KafkaError(ErrorCode(answer.error_code), f"group '{group}'")
    found: dict[TopicPartition, CommittedOffset] = {}
    for topic in answer.topics:
        name = topic.name or routing.topic_name(getattr(topic, "topic_id", ZERO_TOPIC_ID)) or "?"
        for entry in topic.partitions:
            tp = TopicPartition(name, entry.partition_index)
            if entry.error_code:
                raise partition_error(tp, ErrorCode(entry.error_code), None)
            if entry.committed_offset >= 0:
                found[tp] = CommittedOffset(entry.committed_offset, entry.committed_leader_epoch, entry.metadata or "")
    return found


def _offset_fetch_request(
    routing: Routing, group: str, grouped: list[tuple[str, list[TopicPartition]]] | None, version: int
) -> Any:
    """Up to version 7 a request is about one group, from version 8 on about a list of them."""
    kind = messages.OffsetFetchRequest
    if version < 8:
        topics = None
        if grouped is not None:
            topics = [
                kind.OffsetFetchRequestTopic(name=name, partition_indexes=[tp.partition for tp in tps])
                for name, tps in grouped
            ]
        return kind(group_id=group, topics=topics)
    group_topics = None
    if grouped is not None:
        group_topics = [
            kind.OffsetFetchRequestTopics(
                name=name, topic_id=routing.topic_id(name), partition_indexes=[tp.partition for tp in tps]
            )
            for name, tps in grouped
        ]
    return kind(groups=[kind.OffsetFetchRequestGroup(group_id=group, topics=group_topics)])


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[TopicPartition]]]:
    """Partitions gathered under their topics, both sorted: one request lists each topic once."""
    topics: dict[str, list[TopicPartition]] = {}
    for topic_partition in sorted(partitions):
        topics.setdefault(topic_partition.topic, []).append(topic_partition)
    return list(topics.items())
