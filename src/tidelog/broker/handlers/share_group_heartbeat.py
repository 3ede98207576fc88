"""ShareGroupHeartbeat: a member of a share group (KIP-932) joins, lives, leaves.

Version 1. Answered when what it changed is committed. Partitions that have no stored state yet get it behind the
answer: the member learns of them with a later heartbeat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.deferred import Deferred
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._members import CLIENT_ID_SIZE_MAX, check_heartbeat, cut
from tidelog.coordinator.groups.share.events import ShareHeartbeat, ShareHeartbeatReply
from tidelog.model.errors import KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.SHARE_GROUP_HEARTBEAT
VERSIONS: Final = Versions(1, 1)

_Response = messages.ShareGroupHeartbeatResponse


def handle(
    node: Node, context: RequestContext, request: messages.ShareGroupHeartbeatRequest
) -> messages.ShareGroupHeartbeatResponse | Deferred[messages.ShareGroupHeartbeatResponse]:
    names = request.subscribed_topic_names
    check_heartbeat(context, request.group_id, names)

    def make(request_id: int) -> ShareHeartbeat:
        return ShareHeartbeat(
            request_id,
            request.group_id,
            request.member_id,
            request.member_epoch,
            node.clock.wall_ms(),
            rack_id=request.rack_id,
            client_id=cut(context.client_id or "", CLIENT_ID_SIZE_MAX),
            client_host=f"/{context.client_address}",
            topics=None if names is None else frozenset(names),
        )

    return node.sharing.offsets.heartbeat(request.group_id, make).then(_response)


def _response(reply: ShareHeartbeatReply) -> messages.ShareGroupHeartbeatResponse:
    assignment = None
    if reply.assignment is not None:
        assignment = _Response.Assignment(
            topic_partitions=[
                _Response.TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in sorted(reply.assignment.items())
            ]
        )
    return _Response(
        error_code=reply.error,
        error_message=reply.message,
        member_id=reply.member_id,
        member_epoch=reply.epoch,
        heartbeat_interval_ms=reply.interval_ms,
        assignment=assignment,
    )


def error_response(
    request: messages.ShareGroupHeartbeatRequest, version: int, error: KafkaError
) -> messages.ShareGroupHeartbeatResponse:
    return _Response(error_code=error.code, error_message=error.message)
