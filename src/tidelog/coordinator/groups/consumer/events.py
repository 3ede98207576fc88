"""What the coordinator of a consumer group (KIP-848) is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.coordinator.groups.consumer.member import Partitions
from tidelog.coordinator.groups.topics_view import TopicRights
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicId
from tidelog.model.values import value


@value
class ConsumerHeartbeat:
    """ConsumerGroupHeartbeat. Answered by ConsumerHeartbeatReply. None: as it was the last time."""

    request_id: int
    group: str
    member_id: str
    epoch: int
    """0 joins, -1 leaves, -2 leaves for a while."""
    wall_ms: int
    new_member_id: str = ""
    """Its id, should it have none."""
    version: int = 1
    """Of the request: from 1 on members draw their ids themselves, and may subscribe with a pattern."""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    """What it has now, assigned or about to be revoked."""
    rights: TopicRights | None = None
    """None: it may describe every topic."""


@value
class ConsumerHeartbeatReply:
    """Where the member stands."""

    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    interval_ms: int = 0
    """When to send the next heartbeat."""
    assignment: Partitions | None = None
    """What it may consume; None: as it was told before."""


@value
class DescribeConsumerGroup:
    """ConsumerGroupDescribe of one group. Answered by DescribedConsumerGroup. Changes nothing."""

    request_id: int
    group: str


@value
class NamedPartitions:
    """Partitions of a topic that exists."""

    topic_id: TopicId
    topic: str
    partitions: Sequence[int]


@value
class DescribedConsumer:
    """A member."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    topics: Sequence[str]
    pattern: str
    is_classic: bool
    assigned: Sequence[NamedPartitions]
    target: Sequence[NamedPartitions]


@value
class DescribedConsumerGroup:
    """GROUP_ID_NOT_FOUND for what is no consumer group."""

    error: ErrorCode
    group: str
    message: str | None = None
    state: str = "Dead"
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: Sequence[DescribedConsumer] = ()
