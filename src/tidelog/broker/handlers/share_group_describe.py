"""ShareGroupDescribe: share groups (KIP-932) with their members, and what these fetch from.

Version 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize, authorized_operations
from tidelog.broker.deferred import Deferred, gather
from tidelog.broker.handlers import Versions
from tidelog.coordinator.groups.share.assignment import NAME as ASSIGNOR
from tidelog.coordinator.groups.share.events import DescribedShareGroup, DescribedShareMember, DescribeShareGroup
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import GROUP_OPERATIONS, Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.SHARE_GROUP_DESCRIBE
VERSIONS: Final = Versions(1, 1)

_Response = messages.ShareGroupDescribeResponse


def handle(
    node: Node, context: RequestContext, request: messages.ShareGroupDescribeRequest
) -> messages.ShareGroupDescribeResponse | Deferred[messages.ShareGroupDescribeResponse]:
    asked = [
        _describe(node, context, group, with_operations=request.include_authorized_operations)
        for group in dict.fromkeys(request.group_ids)
    ]
    return gather(asked).then(lambda groups: _Response(groups=groups))


def _describe(
    node: Node, context: RequestContext, group: str, *, with_operations: bool
) -> Deferred[messages.ShareGroupDescribeResponse.DescribedGroup]:
    """One group; never fails with a KafkaError."""
    answer: Deferred[messages.ShareGroupDescribeResponse.DescribedGroup] = Deferred()
    if not authorize(context, Operation.DESCRIBE, ResourceType.GROUP, group):
        answer.complete(_failed(group, KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)))
        return answer
    if not group:
        answer.complete(_failed(group, KafkaError(ErrorCode.INVALID_GROUP_ID)))
        return answer

    def settle(outcome: Deferred[DescribedShareGroup]) -> None:
        try:
            described = _described(outcome.result())
        except KafkaError as error:
            answer.complete(_failed(group, error))
            return
        topics = {topic for member in described.members for topic in member.subscribed_topic_names}
        if not all(authorize(context, Operation.DESCRIBE, ResourceType.TOPIC, topic, quiet=True) for topic in topics):
            reason = "The group has described topic(s) that the client is not authorized to describe."
            answer.complete(_failed(group, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, reason)))
            return
        if with_operations and not described.error_code:
            described.authorized_operations = authorized_operations(
                context, GROUP_OPERATIONS, ResourceType.GROUP, group
            )
        answer.complete(described)

    node.groups.ask(group, lambda request_id: DescribeShareGroup(request_id, group)).on_complete(settle)
    return answer


def _described(reply: DescribedShareGroup) -> messages.ShareGroupDescribeResponse.DescribedGroup:
    if reply.error:
        return _failed(reply.group, KafkaError(reply.error, reply.message or ""))
    return _Response.DescribedGroup(
        group_id=reply.group,
        group_state=reply.state,
        group_epoch=reply.epoch,
        assignment_epoch=reply.assignment_epoch,
        assignor_name=ASSIGNOR,
        members=[_member(member) for member in reply.members],
    )


def _member(member: DescribedShareMember) -> messages.ShareGroupDescribeResponse.Member:
    return _Response.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        assignment=_Response.Assignment(
            topic_partitions=[
                _Response.TopicPartitions(
                    topic_id=topic.topic_id, topic_name=topic.topic, partitions=list(topic.partitions)
                )
                for topic in member.assigned
            ]
        ),
    )


def _failed(group: str, error: KafkaError) -> messages.ShareGroupDescribeResponse.DescribedGroup:
    return _Response.DescribedGroup(error_code=error.code, error_message=error.message, group_id=group)


def error_response(
    request: messages.ShareGroupDescribeRequest, version: int, error: KafkaError
) -> messages.ShareGroupDescribeResponse:
    return _Response(groups=[_failed(group, error) for group in request.group_ids])
