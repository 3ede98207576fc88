"""OffsetDelete: what a group committed for some partitions.

Version 0. Partitions of topics that the group's members read are refused: GROUP_SUBSCRIBED_TO_TOPIC; a group whose
members do not say what they read keeps everything: NON_EMPTY_GROUP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._partition_errors import check_readable, topics_with_errors
from tidelog.coordinator.groups.offset_events import DeletedOffsets, DeleteOffsets
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.OFFSET_DELETE
VERSIONS: Final = Versions(0, 0)


def handle(
    node: Node, context: RequestContext, request: messages.OffsetDeleteRequest
) -> messages.OffsetDeleteResponse | Deferred[messages.OffsetDeleteResponse]:
    if not authorize(context, Operation.DELETE, ResourceType.GROUP, request.group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    errors: dict[TopicPartition, ErrorCode] = {}
    wanted: list[TopicPartition] = []
    for topic in request.topics:
        for partition in topic.partitions:
            place = TopicPartition(topic.name, partition.partition_index)
            error = check_readable(node, context, place)
            if error is ErrorCode.NONE:
                wanted.append(place)
            else:
                errors[place] = error

    def finish(reply: DeletedOffsets) -> messages.OffsetDeleteResponse:
        if reply.error is not ErrorCode.NONE:
            return messages.OffsetDeleteResponse(error_code=reply.error)
        return _response(request, errors | dict(reply.errors))

    asked = node.groups.ask(request.group_id, lambda request_id: DeleteOffsets(request_id, request.group_id, wanted))
    return asked.then(finish)


def _response(
    request: messages.OffsetDeleteRequest, errors: dict[TopicPartition, ErrorCode]
) -> messages.OffsetDeleteResponse:
    kind = messages.OffsetDeleteResponse
    return kind(
        topics=topics_with_errors(
            request.topics, errors, kind.OffsetDeleteResponseTopic, kind.OffsetDeleteResponsePartition
        )
    )


def error_response(
    request: messages.OffsetDeleteRequest, version: int, error: KafkaError
) -> messages.OffsetDeleteResponse:
    return messages.OffsetDeleteResponse(error_code=error.code)
