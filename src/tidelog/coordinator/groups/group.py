"""What the coordinator and the offsets ask of a group, whatever the protocol of its members.

A group that has offsets and no more, because an application assigns partitions by itself, is no object at all: it is
`OFFSETS_ONLY`, until a member joins it, and is gone with its last offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from tidelog.coordinator.groups.events import CLASSIC
from tidelog.coordinator.groups.offset_events import NO_GENERATION
from tidelog.model.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.coordinator.groups.offset_events import CommitOffsets, OffsetToCommit
    from tidelog.coordinator.records import CoordinatorRecord

FROM_COMMIT: Final = -1
"""Retention counts from each offset's own commit."""


class Group(Protocol):
    """A group as the coordinator holds it in `groups`. What is compared by `==` is what is in the log."""

    @property
    def kind(self) -> str:
        """`events.CLASSIC` or `events.CONSUMER`."""
        ...

    @property
    def state(self) -> str:
        """As ListGroups names it: Empty, Stable, PreparingRebalance, Reconciling, ..."""
        ...

    @property
    def protocol_type(self) -> str:
        """As ListGroups tells it; "" for none."""
        ...

    @property
    def members_count(self) -> int:
        """How many members it has."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether it has no members: it may be deleted, and goes when its last offset expires."""
        ...

    def check_commit(self, event: CommitOffsets) -> ErrorCode:
        """Whether the client may commit: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, STALE_MEMBER_EPOCH,
        FENCED_INSTANCE_ID, REBALANCE_IN_PROGRESS. `event.producer` tells a transaction's commit.
        """
        ...

    def check_offset(self, event: CommitOffsets, offset: OffsetToCommit) -> ErrorCode:
        """The same of one partition, where it depends on that (KIP-1251); asked when `check_commit` says NONE."""
        ...

    def committed(self, now_ms: int, event: CommitOffsets) -> None:
        """A client that may has committed: in a classic group that prolongs the member's session."""
        ...

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether the client may read offsets: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH."""
        ...

    def check_delete_offsets(self) -> ErrorCode:
        """NON_EMPTY_GROUP where members read topics that are not known here; else topics are asked for one by one."""
        ...

    def is_subscribed(self, topic: str) -> bool:
        """Whether members read the topic, whose offsets then neither expire nor may be deleted."""
        ...

    @property
    def offsets_expire_from_ms(self) -> int | None:
        """Wall time from which the retention of all offsets counts, such as when the group became empty (KIP-211);
        FROM_COMMIT: each offset's own commit; None: nothing expires now.
        """
        ...

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        """What to write so that the group is no more; its offsets are seen to."""
        ...


class _OffsetsOnly:
    """A classic group without members, as Kafka tells it."""

    kind: Final = CLASSIC
    state: Final = "Empty"
    protocol_type: Final = ""
    members_count: Final = 0
    is_empty: Final = True
    offsets_expire_from_ms: Final = FROM_COMMIT

    def check_commit(self, event: CommitOffsets) -> ErrorCode:
        """A generation is that of a member, and there is none."""
        return ErrorCode.NONE if event.generation <= NO_GENERATION else ErrorCode.UNKNOWN_MEMBER_ID

    def check_offset(self, event: CommitOffsets, offset: OffsetToCommit) -> ErrorCode:
        return ErrorCode.NONE

    def committed(self, now_ms: int, event: CommitOffsets) -> None:
        """There are no sessions."""

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        return ErrorCode.NONE

    def check_delete_offsets(self) -> ErrorCode:
        return ErrorCode.NONE

    def is_subscribed(self, topic: str) -> bool:
        return False

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        return ()


OFFSETS_ONLY: Final[Group] = _OffsetsOnly()
