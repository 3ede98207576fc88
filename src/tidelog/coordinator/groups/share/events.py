"""What the coordinator of a share group is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

from tidelog.coordinator.groups.consumer.events import NamedPartitions
from tidelog.coordinator.groups.consumer.member import NO_PARTITIONS, Partitions
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicId
from tidelog.model.values import value

UNCONFIRMED_EPOCH: Final = 0
"""The state epoch with which state is confirmed: state of a group that has begun has a later one, and stays."""


@value
class ShareHeartbeat:
    """ShareGroupHeartbeat. Answered by ShareHeartbeatReply. None: as it was the last time."""

    request_id: int
    group: str
    member_id: str
    epoch: int
    """0 joins, -1 leaves."""
    wall_ms: int
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] | None = None


@value
class ShareHeartbeatReply:
    """Where the member stands."""

    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    interval_ms: int = 0
    """When to send the next heartbeat."""
    assignment: Partitions | None = None
    """What it may fetch; None: as it was told before."""
    to_initialize: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    """Whose state is to be made with the share coordinator; then StateInitialized says so."""
    state_epoch: int = 0
    """With which it is made."""
    to_confirm: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    """Whose state was made before this coordinator began. A power cut may have taken it, and left the record that says
    so: it is made anew with UNCONFIRMED_EPOCH where it is not there."""


@value
class StateInitialized:
    """What the share coordinator was asked to make, or to confirm, is there, or has failed. Answered by Done."""

    request_id: int
    group: str
    partitions: Partitions
    state_epoch: int
    """With which it was made."""
    failed: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    """Are asked for again by the next heartbeat."""


@value
class DescribeShareGroup:
    """ShareGroupDescribe of one group. Answered by DescribedShareGroup. Changes nothing."""

    request_id: int
    group: str


@value
class DescribedShareMember:
    """A member."""

    member_id: str
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    topics: Sequence[str]
    assigned: Sequence[NamedPartitions]


@value
class DescribedShareGroup:
    """GROUP_ID_NOT_FOUND for what is no share group."""

    error: ErrorCode
    group: str
    message: str | None = None
    state: str = "Dead"
    epoch: int = 0
    assignment_epoch: int = 0
    members: Sequence[DescribedShareMember] = ()


@value
class ShareGroupPartitions:
    """Which partitions a group has stored state of, for tools. Answered by StoredPartitions. Changes nothing."""

    request_id: int
    group: str


@value
class StoredPartitions:
    """GROUP_ID_NOT_FOUND for what is no share group."""

    error: ErrorCode
    message: str | None = None
    is_empty: bool = True
    """Whether the group has no members."""
    partitions: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    deleting: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    """Whose state was to be deleted, and may be there still: a deletion has failed, or its end was not written down."""
    names: Mapping[TopicId, str] = field(default_factory=dict)
    """Of topics that have gone, too."""


@value
class PrepareOffsets:
    """AlterShareGroupOffsets: the group begins anew in these partitions. Answered by PreparedOffsets.

    A group that is not there is made. NON_EMPTY_GROUP while it has members.
    """

    request_id: int
    group: str
    partitions: Partitions


@value
class PreparedOffsets:
    """`state_epoch`: with which the state is to be made; then StateInitialized says so."""

    error: ErrorCode
    message: str | None = None
    state_epoch: int = 0
    initialized: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    """Which of them have state, also where it cannot be made anew."""


@value
class PrepareDeletion:
    """DeleteShareGroupOffsets: the state of topics is about to be deleted. Answered by StoredPartitions, of those that
    have any, or may have some left. NON_EMPTY_GROUP while the group has members."""

    request_id: int
    group: str
    topics: Sequence[TopicId]


@value
class StateDeleted:
    """What the share coordinator was asked to forget is forgotten, or has failed. Answered by Done."""

    request_id: int
    group: str
    topics: Sequence[TopicId]
    failed: Sequence[TopicId] = ()
    """Some or all of their state may be gone."""


@value
class ForgetTopics:
    """These topics were deleted: the share coordinator deletes their state by itself. No reply."""

    topics: frozenset[TopicId]


@value
class Done:
    """What was told is written."""

    error: ErrorCode = ErrorCode.NONE
