"""ShareAcknowledge: a member of a share group says what became of the records that it holds (KIP-932).

Versions 1-2. v2: locks are renewed (KIP-1222). Answered when all of it is stored. Epoch -1 ends the session, and gives
back what the member holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._sharing import acknowledgements_of, check_member, name_leaders, set_leader
from tidelog.broker.sharing.acknowledging import Acknowledged, acknowledge, end_session
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation, ResourceType
from tidelog.sharing.sessions import FINAL_EPOCH, INITIAL_EPOCH

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.SHARE_ACKNOWLEDGE
VERSIONS: Final = Versions(1, 2)

_Response = messages.ShareAcknowledgeResponse


def handle(
    node: Node, context: RequestContext, request: messages.ShareAcknowledgeRequest
) -> messages.ShareAcknowledgeResponse | Deferred[messages.ShareAcknowledgeResponse]:
    if not authorize(context, Operation.READ, ResourceType.GROUP, request.group_id or ""):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    group, member = check_member(request.group_id, request.member_id)
    if request.share_session_epoch == INITIAL_EPOCH:
        raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    session = node.sharing.sessions.find(group, member, request.share_session_epoch)
    told = acknowledgements_of(request.topics)
    acknowledged = acknowledge(node, node.sharing.partitions, context, session, told, renews=request.is_renew_ack)
    if request.share_session_epoch == FINAL_EPOCH:
        acknowledged = acknowledged.and_then(
            lambda errors: end_session(node.sharing.partitions, node.sharing.sessions, session).then(lambda _: errors)
        )
    return acknowledged.then(lambda errors: _response(node, context, group, errors))


def _response(
    node: Node, context: RequestContext, group: str, acknowledged: Acknowledged
) -> messages.ShareAcknowledgeResponse:
    response = _Response(acquisition_lock_timeout_ms=node.sharing.partitions.settings(group).record_lock_duration_ms)
    leaders: set[int] = set()
    topic: messages.ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse | None = None
    for place in sorted(acknowledged):
        if topic is None or topic.topic_id != place.topic_id:
            topic = _Response.ShareAcknowledgeTopicResponse(topic_id=place.topic_id)
            response.responses.append(topic)
        data = _Response.PartitionData(partition_index=place.partition)
        refused = acknowledged[place]
        if refused is not None:
            data.error_code, data.error_message = refused.code, refused.message
            if refused.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                set_leader(node, place, data, leaders)
        topic.partitions.append(data)
    name_leaders(node, context, response, _Response.NodeEndpoint, leaders)
    return response


def error_response(
    request: messages.ShareAcknowledgeRequest, version: int, error: KafkaError
) -> messages.ShareAcknowledgeResponse:
    return _Response(error_code=error.code, error_message=error.message)
