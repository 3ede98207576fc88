"""DeleteShareGroupOffsets: a share group without members forgets topics (KIP-932).

Version 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._share_offsets import check_group, refuse_forbidden, refuse_unknown
from tidelog.broker.handlers._share_states import refuse
from tidelog.model.errors import KafkaError
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


def handle(
    node: Node, context: RequestContext, request: messages.DeleteShareGroupOffsetsRequest
) -> messages.DeleteShareGroupOffsetsResponse | Deferred[messages.DeleteShareGroupOffsetsResponse]:
    group = request.group_id
    check_group(context, Operation.DELETE, group)
    response = _Response()
    wanted: dict[TopicId, messages.DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic] = {}
    for topic in request.topics:
        told = _Topic(topic_name=topic.topic_name)
        response.responses.append(told)
        known = node.metadata.image.topics.get(topic.topic_name)
        if not authorize(context, Operation.READ, ResourceType.TOPIC, topic.topic_name):
            refuse_forbidden(told)
        elif known is None:
            refuse_unknown(told)
        else:
            told.topic_id = known.topic_id
            wanted[known.topic_id] = told

    def done(errors: dict[TopicId, KafkaError | None]) -> messages.DeleteShareGroupOffsetsResponse:
        for topic_id, told in wanted.items():
            error = errors.get(topic_id)
            if error is not None:
                refuse(told, error)
        return response

    return node.sharing.offsets.delete(group, list(wanted)).then(done)


def error_response(
    request: messages.DeleteShareGroupOffsetsRequest, version: int, error: KafkaError
) -> messages.DeleteShareGroupOffsetsResponse:
    return _Response(error_code=error.code, error_message=error.message)
