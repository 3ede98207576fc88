"""ConsumerGroupDescribe: consumer groups (KIP-848) with their members, what these have and are to have.

Versions 0-1. v1: which protocol a member speaks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize, authorized_operations
from tidelog.broker.deferred import Deferred, gather
from tidelog.broker.handlers import Versions
from tidelog.coordinator.groups.consumer.events import (
    DescribeConsumerGroup,
    DescribedConsumer,
    DescribedConsumerGroup,
    NamedPartitions,
)
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import GROUP_OPERATIONS, Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.CONSUMER_GROUP_DESCRIBE
VERSIONS: Final = Versions(0, 1)

MEMBER_TYPE_SINCE: Final = 1
CLASSIC: Final = 0
CONSUMER: Final = 1

_Response = messages.ConsumerGroupDescribeResponse


def handle(
    node: Node, context: RequestContext, request: messages.ConsumerGroupDescribeRequest
) -> messages.ConsumerGroupDescribeResponse | Deferred[messages.ConsumerGroupDescribeResponse]:
    asked = [
        _describe(node, context, group, with_operations=request.include_authorized_operations)
        for group in dict.fromkeys(request.group_ids)
    ]
    return gather(asked).then(lambda groups: _Response(groups=groups))


def _describe(
    node: Node, context: RequestContext, group: str, *, with_operations: bool
) -> Deferred[messages.ConsumerGroupDescribeResponse.DescribedGroup]:
    """One group; never fails with a KafkaError."""
    if not authorize(context, Operation.DESCRIBE, ResourceType.GROUP, group):
        return Deferred.of(_failed(group, KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)))
    if not group:
        return Deferred.of(_failed(group, KafkaError(ErrorCode.INVALID_GROUP_ID)))

    def describe(found: DescribedConsumerGroup) -> messages.ConsumerGroupDescribeResponse.DescribedGroup:
        described = _described(found, context.api_version)
        if not all(
            authorize(context, Operation.DESCRIBE, ResourceType.TOPIC, topic, quiet=True)
            for topic in _topics(described)
        ):
            reason = "The group has described topic(s) that the client is not authorized to describe."
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, reason)
        if with_operations and not described.error_code:
            described.authorized_operations = authorized_operations(
                context, GROUP_OPERATIONS, ResourceType.GROUP, group
            )
        return described

    asked: Deferred[DescribedConsumerGroup] = node.groups.ask(
        group, lambda request_id: DescribeConsumerGroup(request_id, group)
    )
    return asked.then(describe).recover(KafkaError, lambda error: _failed(group, error))


def _described(reply: DescribedConsumerGroup, version: int) -> messages.ConsumerGroupDescribeResponse.DescribedGroup:
    return _Response.DescribedGroup(
        error_code=reply.error,
        error_message=reply.message,
        group_id=reply.group,
        group_state="" if reply.error else reply.state,
        group_epoch=reply.epoch,
        assignment_epoch=reply.assignment_epoch,
        assignor_name=reply.assignor,
        members=[_member(member, version) for member in reply.members],
    )


def _topics(group: messages.ConsumerGroupDescribeResponse.DescribedGroup) -> set[str]:
    """All topics that a description names."""
    topics: set[str] = set()
    for member in group.members:
        topics.update(member.subscribed_topic_names)
        for assignment in (member.assignment, member.target_assignment):
            topics.update(each.topic_name for each in assignment.topic_partitions)
    return topics


def _member(member: DescribedConsumer, version: int) -> messages.ConsumerGroupDescribeResponse.Member:
    described = _Response.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.pattern or None,
        assignment=_assignment(member.assigned),
        target_assignment=_assignment(member.target),
    )
    if version >= MEMBER_TYPE_SINCE:
        described.member_type = CLASSIC if member.is_classic else CONSUMER
    return described


def _assignment(partitions: Sequence[NamedPartitions]) -> messages.ConsumerGroupDescribeResponse.Assignment:
    return _Response.Assignment(
        topic_partitions=[
            _Response.TopicPartitions(
                topic_id=topic.topic_id, topic_name=topic.topic, partitions=list(topic.partitions)
            )
            for topic in partitions
        ]
    )


def _failed(group: str, error: KafkaError) -> messages.ConsumerGroupDescribeResponse.DescribedGroup:
    return _Response.DescribedGroup(error_code=error.code, error_message=error.message, group_id=group)


def error_response(
    request: messages.ConsumerGroupDescribeRequest, version: int, error: KafkaError
) -> messages.ConsumerGroupDescribeResponse:
    return _Response(groups=[_failed(group, error) for group in request.group_ids])
