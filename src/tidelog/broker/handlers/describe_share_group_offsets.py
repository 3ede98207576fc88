"""DescribeShareGroupOffsets: where share groups are in their partitions (KIP-932).

Versions 0-1. v1: the lag, records that are still to be delivered for good (KIP-1226).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred, gather
from tidelog.broker.handlers import Versions
from tidelog.broker.sharing.lag import Place, high_watermarks
from tidelog.broker.sharing.offsets import ByKey
from tidelog.coordinator.groups.share.events import StoredPartitions
from tidelog.coordinator.share_state.events import NO_COUNT, UNINITIALIZED_START, ShareKey, StateReply
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicId
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS
VERSIONS: Final = Versions(0, 1)

_Response = messages.DescribeShareGroupOffsetsResponse
_Group = _Response.DescribeShareGroupOffsetsResponseGroup
_Topic = _Response.DescribeShareGroupOffsetsResponseTopic
_Partition = _Response.DescribeShareGroupOffsetsResponsePartition
_UNKNOWN: Final = -1
_FORBIDDEN: Final = "Topic authorization failed."


def handle(
    node: Node, context: RequestContext, request: messages.DescribeShareGroupOffsetsRequest
) -> messages.DescribeShareGroupOffsetsResponse | Deferred[messages.DescribeShareGroupOffsetsResponse]:
    return gather([_group(node, context, group) for group in request.groups]).then(
        lambda groups: _Response(groups=groups)
    )


def _group(node: Node, context: RequestContext, wanted: Any) -> Deferred[Any]:
    """One group; never fails with a KafkaError."""
    answer: Deferred[Any] = Deferred()
    group = wanted.group_id
    if not authorize(context, Operation.DESCRIBE, ResourceType.GROUP, group):
        answer.complete(_Group(group_id=group, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return answer

    def settle(outcome: Deferred[Any]) -> None:
        try:
            answer.complete(outcome.result())
        except KafkaError as error:
            answer.complete(_Group(group_id=group, error_code=error.code, error_message=error.message))

    def told(stored: StoredPartitions) -> Deferred[Any]:
        topics = wanted.topics
        if topics is None:
            found = {
                stored.names.get(topic_id) or node.metadata.topic_name(topic_id) or "": sorted(partitions)
                for topic_id, partitions in stored.partitions.items()
                if node.metadata.topic_name(topic_id) is not None
            }
            asked = [
                (name, partitions)
                for name, partitions in sorted(found.items())
                if authorize(context, Operation.DESCRIBE, ResourceType.TOPIC, name, quiet=True)
            ]
        else:
            asked = [(topic.topic_name, list(topic.partitions)) for topic in topics]
        return _topics(node, context, group, asked)

    node.sharing.offsets.stored(group).and_then(told).on_complete(settle)
    return answer


def _topics(node: Node, context: RequestContext, group: str, asked: list[tuple[str, list[int]]]) -> Deferred[Any]:
    ids: dict[str, TopicId] = {}
    for name, _ in asked:
        topic = node.metadata.image.topics.get(name)
        if topic is not None and authorize(context, Operation.DESCRIBE, ResourceType.TOPIC, name):
            ids[name] = topic.topic_id
    places = [(ids[name], partition) for name, partitions in asked if name in ids for partition in partitions]

    def shown(summaries: ByKey) -> Deferred[Any]:
        begun = {
            Place(key.topic_id, key.partition): outcome
            for key, outcome in summaries.items()
            if isinstance(outcome, StateReply)
            and outcome.start_offset != UNINITIALIZED_START
            and outcome.delivery_complete_count != NO_COUNT
        }
        return high_watermarks(node, list(begun)).then(
            lambda ends: _Group(
                group_id=group,
                topics=[
                    _Topic(
                        topic_name=name,
                        topic_id=ids.get(name, ZERO_TOPIC_ID),
                        partitions=[
                            _partition(context, group, name, ids.get(name), each, summaries, ends)
                            for each in partitions
                        ],
                    )
                    for name, partitions in asked
                ],
            )
        )

    return node.sharing.offsets.summaries(group, places).and_then(shown)


def _partition(
    context: RequestContext,
    group: str,
    name: str,
    topic_id: TopicId | None,
    partition: int,
    summaries: ByKey,
    ends: dict[Place, int],
) -> Any:
    told = _Partition(partition_index=partition, start_offset=UNINITIALIZED_START, lag=_UNKNOWN)
    if topic_id is None:
        if not authorize(context, Operation.DESCRIBE, ResourceType.TOPIC, name, quiet=True):
            told.error_code, told.error_message = ErrorCode.TOPIC_AUTHORIZATION_FAILED, _FORBIDDEN
        return told
    outcome = summaries[ShareKey(group, topic_id, partition)]
    if isinstance(outcome, KafkaError):
        told.error_code, told.error_message = outcome.code, outcome.message
        return told
    told.start_offset, told.leader_epoch = outcome.start_offset, outcome.leader_epoch
    end = ends.get(Place(topic_id, partition))
    if end is not None:
        told.lag = max(end - outcome.start_offset - outcome.delivery_complete_count, 0)
    return told


def error_response(
    request: messages.DescribeShareGroupOffsetsRequest, version: int, error: KafkaError
) -> messages.DescribeShareGroupOffsetsResponse:
    return _Response(
        groups=[
            _Group(group_id=group.group_id, error_code=error.code, error_message=error.message)
            for group in request.groups
        ]
    )
