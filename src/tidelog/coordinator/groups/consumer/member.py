"""A member of a consumer group (KIP-848): what it wants, what it holds, and how far it has come. Immutable.

A member that speaks the classic protocol has `classic`, what it said in JoinGroup; its member epoch is what it takes
for the group's generation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Final, TypeAlias

from tidelog.model.identifiers import TopicId

JOINING_EPOCH: Final = 0
"""A member that joins, or comes back after it was fenced."""
LEAVE_EPOCH: Final = -1
"""A member that leaves for good."""
STATIC_LEAVE_EPOCH: Final = -2
"""A static member that leaves, and will be back: its partitions are kept for it until its session ends."""

Partitions: TypeAlias = Mapping[TopicId, frozenset[int]]
"""[topic id] -> partitions; no topic without any."""
HeldPartitions: TypeAlias = Mapping[TopicId, Mapping[int, int]]
"""[topic id][partition] -> the member epoch with which it was given (KIP-1251); no topic without any."""

NO_PARTITIONS: Final[Partitions] = MappingProxyType({})
NOTHING_HELD: Final[HeldPartitions] = MappingProxyType({})


class MemberState(IntEnum):
    """How far a member is on its way to its target; the numbers stand in records."""

    STABLE = 0
    """It has all of the target of its epoch."""
    UNREVOKED_PARTITIONS = 1
    """It must give up what is in `pending_revocation` and say so, before it may go on."""
    UNRELEASED_PARTITIONS = 2
    """Some of its target is still held by others."""
    UNKNOWN = 127
    """Written by a later release: it must give up everything."""


@dataclass(frozen=True, slots=True)
class ClassicMemberMetadata:
    """What a member that speaks the classic protocol said when it joined."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """(assignor, subscription), as it prefers them; never empty."""


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One member, as of the last record about it."""

    member_id: str
    epoch: int = 0
    """The target that it works towards, or has; -2: a static member that has left for a while."""
    previous_epoch: int = 0
    """The one before, by which it is known when it did not get the answer with the new one; the last that it has shown
    to have got."""
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    """How long it may take to give partitions up."""
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    pattern: str = ""
    """The regular expression that it subscribes to; empty where it has none."""
    assignor: str | None = None
    classic: ClassicMemberMetadata | None = None
    assigned: HeldPartitions = field(default_factory=dict)
    """What it may consume."""
    pending_revocation: HeldPartitions = field(default_factory=dict)
    """What it must give up; still its own until it says so."""

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether it has all that the target of that epoch gives it."""
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def assignment_epoch_of(self, topic_id: TopicId, partition: int) -> int | None:
        """The member epoch with which it was given the partition; None when it does not hold it."""
        for held in (self.assigned, self.pending_revocation):
            epoch = held.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None


def plain(held: HeldPartitions) -> Partitions:
    """What is held, without epochs."""
    return {topic_id: frozenset(partitions) for topic_id, partitions in held.items()}


def held_at(partitions: Partitions, epoch: int) -> HeldPartitions:
    """All of `partitions`, given with that epoch."""
    return {topic_id: dict.fromkeys(sorted(each), epoch) for topic_id, each in partitions.items()}


def id_of(member: ConsumerMember | None) -> str | None:
    return None if member is None else member.member_id
