"""Questions about offsets, as operations: where a partition begins and ends, what a timestamp maps to, what a group
committed; and the moves: commits without membership, records deleted up to an offset. No I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from tidelog.client.arguments import require_offset, require_partitions
from tidelog.client.errors import InvalidResponse, refusal
from tidelog.client.exchange import ByVersion
from tidelog.client.fetching import READ_UNCOMMITTED
from tidelog.client.operations import Deadline, Operation
from tidelog.client.routing import Routing
from tidelog.client.views import partition_error
from tidelog.model.errors import ErrorCode, KafkaError, error_code
from tidelog.model.identifiers import TopicId, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

_UNNAMED: Final = "?"
"""Stands for a topic with committed offsets that Metadata does not show."""


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


def judged_offsets(given: Mapping[TopicPartition, int | CommittedOffset]) -> dict[TopicPartition, CommittedOffset]:
    """What a caller wants to commit, by partition; TypeError or ValueError where it is no offsets."""
    if not isinstance(given, Mapping):
        raise TypeError(f"offsets are a mapping of TopicPartition to the next offset, not {type(given).__name__}")
    require_partitions(given)
    offsets: dict[TopicPartition, CommittedOffset] = {}
    for topic_partition, each in given.items():
        offsets[topic_partition] = each if isinstance(each, CommittedOffset) else CommittedOffset(each)
        require_offset(topic_partition, offsets[topic_partition].offset)
    return offsets


@dataclasses.dataclass(frozen=True, slots=True)
class GroupMember:
    """Who commits: a member of a group, or (`generation` -1, no id) a client while the group has no members.

    `generation` is the member epoch in groups of KIP-848; `instance_id` a static member's lasting name (KIP-345).
    `topics_read` are the ids of the topics whose offsets it commits, [name] -> id, where they are known: in another
    topic of the name these offsets mean nothing.
    """

    group: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None
    topics_read: Mapping[str, TopicId] = dataclasses.field(default_factory=dict, compare=False)


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
                yield TopicPartition(topic.name, entry.partition_index), error_code(entry.error_code), None, found

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
                code = error_code(entry.error_code)
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
    refused = yield from commit_offsets_each(routing, group, offsets, timeout_s=timeout_s)
    for topic_partition, error in refused.items():
        if error is not None:
            topic, partition = topic_partition
            subject = f"group '{group}' could not commit {topic_partition}"
            raise refusal(error.code, subject, topic=topic, partition=partition, group=group)


def commit_offsets_each(
    routing: Routing,
    group: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
    *,
    timeout_s: float | None = None,
) -> Operation[dict[TopicPartition, KafkaError | None]]:
    """The same, with each partition's error or None."""
    if not offsets:
        return {}
    deadline = routing.deadline(timeout_s)
    topics = {tp.topic for tp in offsets}
    yield from routing.require_topics(topics, deadline)
    topic_ids = routing.topic_ids(topics)
    request = commit_request(GroupMember(group), offsets, topic_ids)
    response = yield from routing.ask_coordinator(group, request, deadline, commit_error_codes)
    return dict(commit_results(response, topic_ids))


def commit_request(
    member: GroupMember, offsets: Mapping[TopicPartition, CommittedOffset], topic_ids: Mapping[str, TopicId]
) -> Any:
    """An OffsetCommit of `offsets`, with the ids of their topics."""
    kind = messages.OffsetCommitRequest
    return kind(
        group_id=member.group,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        topics=[
            kind.OffsetCommitRequestTopic(
                name=name,
                topic_id=topic_ids[name],
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


def commit_error_codes(response: Any) -> Iterator[int]:
    """The error codes of an answer to OffsetCommit or TxnOffsetCommit."""
    return (entry.error_code for topic in response.topics for entry in topic.partitions)


def commit_results(
    response: Any, topic_ids: Mapping[str, TopicId]
) -> Iterator[tuple[TopicPartition, KafkaError | None]]:
    """What became of each partition of an OffsetCommit with these `topic_ids`."""
    names = _names_by_id(topic_ids)
    for topic in response.topics:
        name = _name(topic, names)
        for entry in topic.partitions:
            topic_partition = TopicPartition(name, entry.partition_index)
            code = error_code(entry.error_code)
            yield topic_partition, None if code is ErrorCode.NONE else partition_error(topic_partition, code, None)


def committed_offsets(
    routing: Routing,
    group: str,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    timeout_s: float | None = None,
) -> Operation[dict[TopicPartition, CommittedOffset]]:
    """What a group committed, for `partitions` or (None) wherever it did; partitions without a commit are left out."""
    deadline = routing.deadline(timeout_s)
    if partitions is None:
        return (yield from _all_committed(routing, group, deadline))
    wanted = list(partitions)
    topics = {tp.topic for tp in wanted}
    yield from routing.require_topics(topics, deadline)
    topic_ids = routing.topic_ids(topics)
    request = committed_request(GroupMember(group), wanted, topic_ids)
    response = yield from routing.ask_coordinator(group, request, deadline, committed_error_codes)
    return _all_or_error(committed_answers(response, group, topic_ids))


def _all_committed(
    routing: Routing, group: str, deadline: Deadline
) -> Operation[dict[TopicPartition, CommittedOffset]]:
    yield from routing.refresh(None, deadline)  # Version 10 answers with topic ids, whose names must be known.
    names = _names_by_id(routing.topic_ids(routing.topics))
    request = committed_request(GroupMember(group), None, {})
    response = yield from routing.ask_coordinator(group, request, deadline, committed_error_codes)
    unnamed = {topic.topic_id: _UNNAMED for each in response.groups for topic in each.topics}
    return _all_or_error(_committed(response, group, unnamed | names))


def committed_request(
    member: GroupMember,
    partitions: Iterable[TopicPartition] | None,
    topic_ids: Mapping[str, TopicId],
    *,
    require_stable: bool = False,
) -> ByVersion:
    """An OffsetFetch of `partitions`, with the ids of their topics, or (None) of all that a group committed.

    With `require_stable` offsets that a transaction is about to commit are refused (UNSTABLE_OFFSET_COMMIT, KIP-447).
    Up to version 7 a request is about one group, from version 8 on about a list of them.
    """
    grouped = None if partitions is None else by_topic(partitions)
    kind = messages.OffsetFetchRequest

    def build(version: int) -> Any:
        stable = require_stable and version >= 7
        if version < 8:
            topics = None
            if grouped is not None:
                topics = [
                    kind.OffsetFetchRequestTopic(name=name, partition_indexes=[tp.partition for tp in tps])
                    for name, tps in grouped
                ]
            return kind(group_id=member.group, topics=topics, require_stable=stable)
        group_topics = None
        if grouped is not None:
            group_topics = [
                kind.OffsetFetchRequestTopics(
                    name=name, topic_id=topic_ids[name], partition_indexes=[tp.partition for tp in tps]
                )
                for name, tps in grouped
            ]
        asked = kind.OffsetFetchRequestGroup(group_id=member.group, topics=group_topics)
        if version >= 9 and member.member_id:
            asked.member_id, asked.member_epoch = member.member_id, member.generation
        return kind(groups=[asked], require_stable=stable)

    return ByVersion(ApiKey.OFFSET_FETCH, build)


def committed_error_codes(response: Any) -> Iterator[int]:
    """The error codes of an answer to OffsetFetch: the group's, then its partitions'."""
    answer = response.groups[0] if response.groups else response
    yield answer.error_code
    yield from (entry.error_code for topic in answer.topics for entry in topic.partitions)


def committed_answers(
    response: Any, group: str, topic_ids: Mapping[str, TopicId]
) -> dict[TopicPartition, CommittedOffset | KafkaError]:
    """What an answer to an OffsetFetch with these `topic_ids` says was committed, or the error of a partition.

    KafkaError, raised, for the group's.
    """
    return _committed(response, group, _names_by_id(topic_ids))


def _committed(
    response: Any, group: str, names: Mapping[TopicId, str]
) -> dict[TopicPartition, CommittedOffset | KafkaError]:
    answer = response.groups[0] if response.groups else response
    if answer.error_code:
        raise refusal(error_code(answer.error_code), f"group '{group}'", group=group)
    found: dict[TopicPartition, CommittedOffset | KafkaError] = {}
    for topic in answer.topics:
        name = _name(topic, names)
        for entry in topic.partitions:
            tp = TopicPartition(name, entry.partition_index)
            if entry.error_code:
                found[tp] = partition_error(tp, error_code(entry.error_code), None)
            elif entry.committed_offset >= 0:
                found[tp] = CommittedOffset(entry.committed_offset, entry.committed_leader_epoch, entry.metadata or "")
    return found


def _all_or_error(
    answers: Mapping[TopicPartition, CommittedOffset | KafkaError],
) -> dict[TopicPartition, CommittedOffset]:
    found: dict[TopicPartition, CommittedOffset] = {}
    for topic_partition, answer in answers.items():
        if isinstance(answer, KafkaError):
            raise answer
        found[topic_partition] = answer
    return found


def _names_by_id(topic_ids: Mapping[str, TopicId]) -> dict[TopicId, str]:
    return {topic_id: name for name, topic_id in topic_ids.items()}


def _name(topic: Any, names: Mapping[TopicId, str]) -> str:
    """The name of a topic in an answer: from some version on it has only the id, by which the request named it."""
    name = topic.name or names.get(topic.topic_id)
    if name is None:
        # Were it passed over, the topic asked for would seem to have no offsets.
        raise InvalidResponse(f"a broker answers with topic id {topic.topic_id.hex()}, which was not asked for")
    return str(name)


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[TopicPartition]]]:
    """Partitions gathered under their topics, both sorted: one request lists each topic once."""
    topics: dict[str, list[TopicPartition]] = {}
    for topic_partition in sorted(partitions):
        topics.setdefault(topic_partition.topic, []).append(topic_partition)
    return list(topics.items())
