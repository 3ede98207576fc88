"""OffsetCommit: how far a group has read, by a member of it or by an application that assigns partitions by itself.

Versions 2-10. v2-4: a retention of the client's own; v6: leader epochs; v7: static members; v9: member epochs of
KIP-848 and GROUP_ID_NOT_FOUND; v10: topics by id alone.

Acknowledged when the record in `__consumer_offsets` is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred
from tidelog.broker.handlers import Versions
from tidelog.coordinator.groups.offset_events import BROKER_RETENTION, CommitOffsets, CommitOutcome, OffsetToCommit
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import LeaderEpoch, Offset, TopicId, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.OFFSET_COMMIT
VERSIONS: Final = Versions(2, 10)

TOPIC_IDS_SINCE: Final = 10
RETENTION_UNTIL: Final = 4


def handle(
    node: Node, context: RequestContext, request: messages.OffsetCommitRequest
) -> messages.OffsetCommitResponse | Deferred[messages.OffsetCommitResponse]:
    if not authorize(context, Operation.READ, ResourceType.GROUP, request.group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refused: dict[tuple[int, int], ErrorCode] = {}
    wanted: dict[tuple[int, int], OffsetToCommit] = {}
    for index, topic in enumerate(request.topics):
        name, error = _topic(node, context, topic)
        for position, partition in enumerate(topic.partitions):
            place = (index, position)
            if error is not ErrorCode.NONE:
                refused[place] = error
            elif partition.partition_index not in node.metadata.image.topics[name].partitions:
                refused[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                wanted[place] = OffsetToCommit(
                    TopicPartition(name, partition.partition_index),
                    Offset(partition.committed_offset),
                    LeaderEpoch(partition.committed_leader_epoch),
                    partition.committed_metadata,
                    node.metadata.image.topics[name].topic_id,
                )
    if not wanted:
        return _response(request, refused)

    def make(request_id: int) -> CommitOffsets:
        return CommitOffsets(
            request_id,
            request.group_id,
            list(wanted.values()),
            node.clock.wall_ms(),
            generation=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            retention_ms=request.retention_time_ms if context.api_version <= RETENTION_UNTIL else BROKER_RETENTION,
            api_version=context.api_version,
        )

    asked: Deferred[CommitOutcome] = node.groups.ask(request.group_id, make)
    told = asked.then(lambda outcome: [code for _, code in outcome.errors]).recover(
        KafkaError, lambda error: [error.code] * len(wanted)
    )
    return told.then(lambda errors: _response(request, refused | dict(zip(wanted, errors, strict=True))))


def _topic(
    node: Node, context: RequestContext, topic: messages.OffsetCommitRequest.OffsetCommitRequestTopic
) -> tuple[str, ErrorCode]:
    """The topic's name, and why its offsets cannot be committed."""
    image = node.metadata.image
    if context.api_version >= TOPIC_IDS_SINCE:
        known = image.topic_by_id(TopicId(bytes(topic.topic_id)))
        if known is None:
            return "", ErrorCode.UNKNOWN_TOPIC_ID
        name = known.name
    else:
        name = topic.name
    if not authorize(context, Operation.READ, ResourceType.TOPIC, name):
        return name, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return name, ErrorCode.NONE if name in image.topics else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _response(
    request: messages.OffsetCommitRequest, errors: dict[tuple[int, int], ErrorCode]
) -> messages.OffsetCommitResponse:
    response = messages.OffsetCommitResponse
    return response(
        topics=[
            response.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    response.OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=errors[index, position]
                    )
                    for position, partition in enumerate(topic.partitions)
                ],
            )
            for index, topic in enumerate(request.topics)
        ]
    )


def error_response(
    request: messages.OffsetCommitRequest, version: int, error: KafkaError
) -> messages.OffsetCommitResponse:
    places = (
        (index, position) for index, topic in enumerate(request.topics) for position in range(len(topic.partitions))
    )
    return _response(request, dict.fromkeys(places, error.code))
