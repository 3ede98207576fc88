"""DeleteShareGroupOffsets: a share group without members forgets topics (KIP-932).

Version 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred
from tidelog.broker.handlers import Versions
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicId
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.DELETE_SHARE_GROUP_OFFSETS
VERSIONS: Final = Versions(0, 0)

_Response = messages.DeleteShareGroupOffsetsResponse
_Topic = _Response.DeleteShareGroupOffsetsResponseTopic
_UNKNOWN: Final = "This server does not host this topic-partition."


def handle(
    node: Node, context: RequestContext, request: messages.DeleteShareGroupOffsetsRequest
) -> messages.DeleteShareGroupOffsetsResponse | Deferred[messages.DeleteShareGroupOffsetsResponse]:
    group = request.group_id
    if not authorize(context, Operation.DELETE, ResourceType.GROUP, group):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed.")
    if not group:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    response = _Response()
    wanted: dict[TopicId, messages.DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic] = {}
    for topic in request.topics:
        told = _Topic(topic_name=topic.topic_name)
        response.responses.append(told)
        known = node.metadata.image.topics.get(topic.topic_name)
        if not authorize(context, Operation.READ, ResourceType.TOPIC, topic.topic_name):
            told.error_code, told.error_message = ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."
        elif known is None:
            told.error_code, told.error_message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN
        else:
            told.topic_id = known.topic_id
            wanted[known.topic_id] = told

    def done(errors: dict[TopicId, KafkaError | None]) -> messages.DeleteShareGroupOffsetsResponse:
        for topic_id, told in wanted.items():
            error = errors.get(topic_id)
            if error is not None:
                told.error_code, told.error_message = error.code, error.message
        return response

    answer = node.sharing.offsets.delete(group, list(wanted)).then(done)
    return answer.result() if answer.done else answer


def error_response(
    request: messages.DeleteShareGroupOffsetsRequest, version: int, error: KafkaError
) -> messages.DeleteShareGroupOffsetsResponse:
    return _Response(error_code=error.code, error_message=error.message)
