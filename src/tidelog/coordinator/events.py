"""What a group's coordinator is asked, and what it answers.

Requests name topics by name; the shell has resolved ids, authorized, and answered for topics that do not exist. Each
carries a request id, by which its reply is found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tidelog.coordinator.records import CommittedOffset
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import NO_LEADER_EPOCH, ZERO_TOPIC_ID, LeaderEpoch, Offset, TopicId, TopicPartition

NO_GENERATION: Final = -1
"""The generation, or member epoch, of a client that is no member."""
BROKER_RETENTION: Final = -1
"""`retention_ms` where the client leaves it to offsets.retention.minutes."""


@dataclass(frozen=True, slots=True)
class OffsetToCommit:
    """One partition of an OffsetCommit."""

    topic_partition: TopicPartition
    offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str | None = ""
    topic_id: TopicId = ZERO_TOPIC_ID


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """Answered by CommitOutcome."""

    request_id: int
    group: str
    offsets: Sequence[OffsetToCommit]
    wall_ms: int
    """Wall time of the commit."""
    generation: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None
    retention_ms: int = BROKER_RETENTION
    """How long to keep these offsets, by clients before OffsetCommit v5."""
    knows_group_not_found: bool = True
    """Whether the client understands GROUP_ID_NOT_FOUND here (OffsetCommit v9)."""


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """An error for each partition of the request, in its order."""

    errors: Sequence[tuple[TopicPartition, ErrorCode]]


@dataclass(frozen=True, slots=True)
class FetchOffsets:
    """Answered by FetchedOffsets. Changes nothing."""

    request_id: int
    group: str
    partitions: Sequence[TopicPartition] | None = None
    """None: all that the group committed."""


@dataclass(frozen=True, slots=True)
class FetchedOffsets:
    """What is committed; a partition that was asked for and has nothing is absent."""

    offsets: Mapping[TopicPartition, CommittedOffset] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExpireOffsets:
    """The retention of offsets is due; no reply."""

    wall_ms: int
    retention_ms: int
    """offsets.retention.minutes, in milliseconds."""


@dataclass(frozen=True, slots=True)
class ForgetPartitions:
    """These partitions were deleted: what groups committed for them is void. No reply."""

    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class ListGroups:
    """Answered by a GroupListing."""

    request_id: int


@dataclass(frozen=True, slots=True)
class GroupListing:
    """Groups by id, sorted. Without membership a group is its offsets: classic, without a protocol, Empty."""

    groups: Sequence[str]


Event: TypeAlias = CommitOffsets | FetchOffsets | ExpireOffsets | ForgetPartitions | ListGroups
Reply: TypeAlias = CommitOutcome | FetchedOffsets | GroupListing
