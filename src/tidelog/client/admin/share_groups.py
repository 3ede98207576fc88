"""Offsets of share groups (KIP-932): where a group begins in each partition; described, altered, forgotten. No I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from tidelog.client.admin.answers import error_of
from tidelog.client.offsets import by_topic
from tidelog.client.operations import Operation
from tidelog.client.routing import Routing
from tidelog.client.views import partition_error
from tidelog.model.errors import ErrorCode, KafkaError, error_code
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages


@dataclasses.dataclass(frozen=True, slots=True)
class ShareOffset:
    """Where a share group is in a partition: everything before `start_offset` is done."""

    start_offset: int
    """-1: the group has not begun there."""
    leader_epoch: int
    lag: int
    """Records that are still to be done; -1 where the broker does not tell."""


def describe_share_group_offsets(
    routing: Routing, group: str, *, timeout_s: float | None = None
) -> Operation[dict[TopicPartition, ShareOffset | KafkaError]]:
    """Where a share group is in each partition that it has taken up; KafkaError for the group's."""
    kind = messages.DescribeShareGroupOffsetsRequest
    request = kind(groups=[kind.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)])

    def codes(response: Any) -> Iterator[int]:
        return (each.error_code for each in response.groups)

    response = yield from routing.ask_coordinator(group, request, routing.deadline(timeout_s), codes)
    (answer,) = response.groups
    _raise(answer, group)
    found: dict[TopicPartition, ShareOffset | KafkaError] = {}
    for topic in answer.topics:
        for each in topic.partitions:
            topic_partition = TopicPartition(topic.topic_name, each.partition_index)
            if each.error_code:
                found[topic_partition] = partition_error(
                    topic_partition, error_code(each.error_code), each.error_message
                )
            else:
                found[topic_partition] = ShareOffset(each.start_offset, each.leader_epoch, each.lag)
    return found


def alter_share_group_offsets(
    routing: Routing, group: str, offsets: Mapping[TopicPartition, int], *, timeout_s: float | None = None
) -> Operation[dict[TopicPartition, KafkaError | None]]:
    """Has a share group without members begin at other offsets; each partition's error or None, KafkaError for the
    group's. A group that is not there is made."""
    kind = messages.AlterShareGroupOffsetsRequest
    request = kind(
        group_id=group,
        topics=[
            kind.AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    kind.AlterShareGroupOffsetsRequestPartition(
                        partition_index=each.partition, start_offset=offsets[each]
                    )
                    for each in partitions
                ],
            )
            for name, partitions in by_topic(offsets)
        ],
    )
    response = yield from routing.ask_coordinator(
        group, request, routing.deadline(timeout_s), lambda answer: (answer.error_code,)
    )
    _raise(response, group)
    results: dict[TopicPartition, KafkaError | None] = {}
    for topic in response.responses:
        for each in topic.partitions:
            topic_partition = TopicPartition(topic.topic_name, each.partition_index)
            code = error_code(each.error_code)
            refused = None if code is ErrorCode.NONE else partition_error(topic_partition, code, each.error_message)
            results[topic_partition] = refused
    return results


def delete_share_group_offsets(
    routing: Routing, group: str, topics: Collection[str], *, timeout_s: float | None = None
) -> Operation[dict[str, KafkaError | None]]:
    """Has a share group without members forget topics; each one's error or None, KafkaError for the group's."""
    kind = messages.DeleteShareGroupOffsetsRequest
    request = kind(
        group_id=group,
        topics=[kind.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in dict.fromkeys(topics)],
    )
    response = yield from routing.ask_coordinator(
        group, request, routing.deadline(timeout_s), lambda answer: (answer.error_code,)
    )
    _raise(response, group)
    return {
        topic.topic_name: error_of(topic.error_code, topic.error_message, f"topic '{topic.topic_name}'")
        for topic in response.responses
    }


def _raise(answer: Any, group: str) -> None:
    text = answer.error_message
    if error_code(answer.error_code) is ErrorCode.NON_EMPTY_GROUP:
        text = f"group '{group}' has members: stop them first"
    error = error_of(answer.error_code, text, f"group '{group}'", group=group)
    if error is not None:
        raise error
