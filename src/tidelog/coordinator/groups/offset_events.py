"""What a coordinator is asked about offsets, and what it answers.

Requests name topics by name; the shell has resolved ids, authorized, and answered for topics that do not exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import field
from typing import Final

from tidelog.coordinator.groups.events import NOBODY
from tidelog.coordinator.records import CommittedOffset
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import NO_LEADER_EPOCH, ZERO_TOPIC_ID, LeaderEpoch, Offset, TopicId, TopicPartition
from tidelog.model.values import value

NO_GENERATION: Final = -1
"""The generation, or member epoch, of a client that is no member."""
BROKER_RETENTION: Final = -1
"""`retention_ms` where the client leaves it to offsets.retention.minutes."""
NEWEST_COMMIT: Final = 10
"""The newest version of OffsetCommit."""


@value
class OffsetToCommit:
    """One partition of an OffsetCommit or TxnOffsetCommit."""

    topic_partition: TopicPartition
    offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str | None = ""
    topic_id: TopicId = ZERO_TOPIC_ID


@value
class CommitOffsets:
    """Answered by CommitOutcome."""

    request_id: int
    group: str
    offsets: Sequence[OffsetToCommit]
    wall_ms: int
    """Wall time of the commit."""
    generation: int = NO_GENERATION
    """Or member epoch (KIP-848)."""
    member_id: str = ""
    group_instance_id: str | None = None
    retention_ms: int = BROKER_RETENTION
    """How long to keep these offsets, by clients before OffsetCommit v5."""
    api_version: int = NEWEST_COMMIT
    """Of OffsetCommit, or of TxnOffsetCommit where there is a producer; which errors the client understands."""
    producer: tuple[int, int] | None = None
    """Producer id and epoch of the transaction that these offsets are part of; they are pending until it ends."""


@value
class CommitOutcome:
    """An error for each partition of the request, in its order."""

    errors: Sequence[tuple[TopicPartition, ErrorCode]]


@value
class FetchOffsets:
    """Answered by FetchedOffsets. Changes nothing."""

    request_id: int
    group: str
    partitions: Sequence[TopicPartition] | None = None
    """None: all that the group committed."""
    require_stable: bool = False
    """Whether an offset is withheld while a transaction may change it."""
    member_id: str | None = None
    """None: the client does not say that it is a member."""
    member_epoch: int = NO_GENERATION


@value
class FetchedOffsets:
    """What is committed; a partition that was asked for and has nothing is absent."""

    offsets: Mapping[TopicPartition, CommittedOffset] = field(default_factory=dict)
    unstable: Set[TopicPartition] = frozenset()
    """Partitions that are withheld because of transactions under way: UNSTABLE_OFFSET_COMMIT."""
    error: ErrorCode = ErrorCode.NONE
    """Of the whole answer: the client is not the member of the group that it says it is."""


@value
class DeleteOffsets:
    """Answered by DeletedOffsets."""

    request_id: int
    group: str
    partitions: Sequence[TopicPartition]


@value
class DeletedOffsets:
    """An error of the whole request, or one for each partition, in its order."""

    error: ErrorCode
    errors: Sequence[tuple[TopicPartition, ErrorCode]] = ()


@value
class ExpireOffsets:
    """The retention of offsets is due. Groups that are empty and have none left go with their offsets. Answered by
    Remaining, with the groups that were not looked at yet.
    """

    wall_ms: int
    retention_ms: int
    """offsets.retention.minutes, in milliseconds."""
    request_id: int = NOBODY
    groups: Sequence[str] | None = None
    """None: all."""


@value
class ForgetPartitions:
    """These partitions were deleted: what groups committed for them is void. No reply."""

    partitions: Sequence[TopicPartition]
