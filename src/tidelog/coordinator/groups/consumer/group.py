"""A consumer group (KIP-848) as its records say: members, epochs, the target assignment. Changed by `replay` alone.

    members change --> group epoch + 1 --> target assignment of that epoch --> each member is brought there

    epoch             counts what calls for another assignment: subscriptions, members, topics
    assignment_epoch  the group epoch of the target; behind `epoch` while a new one is to be computed
    member.epoch      the target that a member has reached, or is held up on its way to

The holder of a partition, the number of a topic's subscribers and the like are counted along, so that a heartbeat asks
for them without looking at ten thousand members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tidelog.coordinator.groups.consumer import records
from tidelog.coordinator.groups.consumer.member import (
    LEAVE_EPOCH,
    NO_PARTITIONS,
    NOTHING_HELD,
    ConsumerMember,
    HeldPartitions,
    MemberState,
    Partitions,
)
from tidelog.coordinator.groups.events import CONSUMER
from tidelog.coordinator.groups.group import FROM_COMMIT
from tidelog.coordinator.groups.modern import NEVER, ModernGroup
from tidelog.coordinator.groups.topics_view import NO_RIGHTS, TopicRights, TopicsView, version_of
from tidelog.coordinator.records import CoordinatorRecord
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicId
from tidelog.protocol import messages
from tidelog.protocol.consumer_protocol import PROTOCOL_TYPE

if TYPE_CHECKING:
    from tidelog.coordinator.groups.offset_events import CommitOffsets, OffsetToCommit

MEMBER_EPOCH_SINCE: Final = 9
"""Version of OffsetCommit from which it carries member epochs."""

EMPTY: Final = "Empty"
ASSIGNING: Final = "Assigning"
RECONCILING: Final = "Reconciling"
STABLE: Final = "Stable"
DEAD: Final = "Dead"


@dataclass(frozen=True, slots=True)
class ResolvedPattern:
    """The topics that a regular expression stood for."""

    topics: frozenset[str]
    version: int
    """Of the view of topics."""
    wall_ms: int


@dataclass(frozen=True, slots=True)
class NewTarget:
    """What the records of a new target come to, for a group that is in memory."""

    group_id: str
    epoch: int
    wall_ms: int
    changed: Mapping[str, Partitions]
    """[member id] -> what it is to have; of those whose target is another one than before."""


class ConsumerGroup(ModernGroup[ConsumerMember]):
    """One group."""

    kind: Final = CONSUMER
    protocol_type: Final = PROTOCOL_TYPE
    offsets_expire_from_ms: Final = FROM_COMMIT

    FIRST_EPOCH = 0

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.static: dict[str, str] = {}
        """instance id -> member id"""
        self.patterns: dict[str, ResolvedPattern] = {}
        self.has_partition_metadata = False
        """Whether a former release's record of the topics is in the log."""
        self._owners: dict[TopicId, dict[int, str]] = {}
        self._subscribers: Counter[str] = Counter()
        """topic -> members that name it"""
        self._pattern_users: Counter[str] = Counter()
        self._assignors: Counter[str] = Counter()
        self._protocols: Counter[str] = Counter()
        """Assignors of the classic protocol -> members that support them"""
        self._stable: Counter[int] = Counter()
        """member epoch -> members that are stable there"""
        self.classic_members = 0
        """Members that speak the classic protocol."""
        # What is not in the log: whether topics and patterns have to be looked at again.
        self.topics_seen: TopicsView | None = None
        self.patterns_seen: TopicsView | None = None
        self.patterns_resolved_ms = NEVER
        self.patterns_rights = NO_RIGHTS
        """The version of the ACLs by which patterns were resolved."""

    # What it is asked.

    def is_resolved_by(self, topics: TopicsView, rights: TopicRights | None) -> bool:
        """Whether patterns were resolved when topics and ACLs were what they are now."""
        return self.patterns_seen is topics and self.patterns_rights == version_of(rights)

    def _hard_state(self) -> tuple[object, ...]:
        return (
            *super()._hard_state(),
            *(self.static, self.patterns, self.has_partition_metadata, self._owners),
            *(self._subscribers, self._pattern_users, self._assignors, self._protocols, self._stable),
            self.classic_members,
        )

    @property
    def state(self) -> str:
        """Kafka's name of where it stands."""
        if not self.members:
            return EMPTY
        if self.epoch > self.assignment_epoch:
            return ASSIGNING
        return STABLE if self._stable[self.assignment_epoch] == len(self.members) else RECONCILING

    @property
    def assignor(self) -> str | None:
        """The one that most members ask for; None if none asks."""
        return most_wanted(self._assignors)

    def assignor_with(self, before: ConsumerMember | None, after: ConsumerMember | None) -> str | None:
        """As `assignor`, with one member changed."""
        return most_wanted(_changed(self._assignors, _assignor_of(before), _assignor_of(after)))

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """The member that has the instance id now."""
        member_id = None if instance_id is None else self.static.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def is_free(self, topic_id: TopicId, partition: int) -> bool:
        """Whether no member holds the partition."""
        return partition not in self._owners.get(topic_id, ())

    def owner(self, topic_id: TopicId, partition: int) -> str | None:
        """The member that holds the partition, to be revoked or not."""
        return self._owners.get(topic_id, {}).get(partition)

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """What the member subscribes to, its pattern's topics too."""
        resolved = self.patterns.get(member.pattern)
        return member.topics if resolved is None else member.topics | resolved.topics

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """What at least one member subscribes to."""
        return self.subscribed_topics_with([], [], {})

    def subscribed_topics_with(
        self,
        before: Sequence[ConsumerMember],
        after: Sequence[ConsumerMember],
        resolved: dict[str, ResolvedPattern],
    ) -> frozenset[str]:
        """As `subscribed_topics`, with the members `before` replaced by `after`, and newly resolved patterns."""
        names = self._subscribers.copy()
        used = self._pattern_users.copy()
        for members, sign in ((before, -1), (after, 1)):
            for member in members:
                _add(names, member.topics, sign)
                _add(used, _pattern_of(member), sign)
        patterns = self.patterns | resolved
        return frozenset(names).union(*(patterns[text].topics for text in used if text in patterns))

    def users_of(self, pattern: str) -> int:
        """How many members subscribe with the pattern."""
        return self._pattern_users[pattern]

    def supports_classic(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Whether a member that offers these speaks the language of the group's classic members."""
        if protocol_type != PROTOCOL_TYPE:
            return False
        offered = list(protocols)
        if self.is_empty:
            return bool(offered)
        return any(self._protocols[name] == self.classic_members for name in offered)

    def is_classic_without(self, leaving: Iterable[str]) -> bool:
        """Whether all other members speak the classic protocol, and some of `leaving` do not."""
        gone = [self.members[member_id] for member_id in leaving]
        classic = sum(member.classic is not None for member in gone)
        return classic < len(gone) and self.classic_members - classic == len(self.members) - len(gone)

    # Offsets.

    def check_commit(self, event: CommitOffsets) -> ErrorCode:
        """Whether a member may commit; partitions are asked for one by one where it has a newer epoch by now."""
        epoch = event.generation
        if epoch < 0 and not self.members:
            return ErrorCode.NONE
        names_member = epoch >= 0 or event.member_id or event.group_instance_id is not None
        if event.producer is not None and not names_member:
            # TxnOffsetCommit before KIP-447 has no member: the transaction alone fences.
            return ErrorCode.NONE
        member = self.members.get(event.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if event.producer is None and member.classic is None and event.api_version < MEMBER_EPOCH_SINCE:
            return ErrorCode.UNSUPPORTED_VERSION
        return ErrorCode.NONE if 0 <= epoch <= member.epoch else _stale(member)

    def check_offset(self, event: CommitOffsets, offset: OffsetToCommit) -> ErrorCode:
        """A member that does not know its newest epoch yet may commit what it has held since its own (KIP-1251)."""
        member = self.members.get(event.member_id)
        if member is None or event.generation == member.epoch:
            return ErrorCode.NONE
        since = member.assignment_epoch_of(offset.topic_id, offset.topic_partition.partition)
        return ErrorCode.NONE if since is not None and since <= event.generation else _stale(member)

    def committed(self, now_ms: int, event: CommitOffsets) -> None:
        """Only heartbeats tell that a member lives."""

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether a member may read what is committed; a client that names no member may."""
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_epoch == member.epoch else _stale(member)

    def check_delete_offsets(self) -> ErrorCode:
        return ErrorCode.NONE

    def is_subscribed(self, topic: str) -> bool:
        if topic in self._subscribers:
            return True
        return any(topic in self.patterns[text].topics for text in self._pattern_users if text in self.patterns)

    # Its end.

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        """What removes the group with all its members, in Kafka's order."""
        group_id, member_ids = self.group_id, list(self.members)
        return [
            *(records.no_current(group_id, member_id) for member_id in member_ids),
            *(records.no_target(group_id, member_id) for member_id in member_ids),
            records.no_target_epoch(group_id),
            *(records.no_member_metadata(group_id, member_id) for member_id in member_ids),
            *([records.no_partition_metadata(group_id)] if self.has_partition_metadata else []),
            *(records.no_pattern(group_id, text) for text in self.patterns),
            records.no_group(group_id),
        ]

    # Replay.

    def replay(self, key: Any, value: Any) -> None:
        """Brings a record about this group in; value None: a tombstone."""
        match key:
            case messages.ConsumerGroupMetadataKey():
                if value is not None:
                    self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case messages.ConsumerGroupPartitionMetadataKey():
                self.has_partition_metadata = value is not None
            case messages.ConsumerGroupMemberMetadataKey():
                before = self.members.get(key.member_id)
                if value is not None:
                    self._change(before, records.with_metadata(before or ConsumerMember(key.member_id), value))
                elif before is not None:
                    self._change(before, None)
            case messages.ConsumerGroupTargetAssignmentMetadataKey():
                self._replay_assignment(value)
            case messages.ConsumerGroupTargetAssignmentMemberKey():
                if value is None:
                    self.target.pop(key.member_id, None)
                else:
                    self.target[key.member_id] = records.target_of(value)
            case messages.ConsumerGroupCurrentMemberAssignmentKey():
                before = self.members.get(key.member_id)
                if value is not None:
                    self._change(before, records.with_current(before or ConsumerMember(key.member_id), value))
                elif before is not None:
                    self._change(before, _without_anything(before))
            case messages.ConsumerGroupRegularExpressionKey():
                if value is None:
                    self.patterns.pop(key.regular_expression, None)
                else:
                    self.patterns[key.regular_expression] = ResolvedPattern(
                        frozenset(value.topics), value.version, value.timestamp
                    )
            case _:
                raise AssertionError(f"{type(key).__name__} is not about a consumer group")

    def replay_target(self, new: NewTarget) -> None:
        """Brings in what the records of a whole target say."""
        self.target.update(new.changed)
        self.assignment_epoch, self.assigned_at_ms = new.epoch, new.wall_ms

    def _change(self, before: ConsumerMember | None, after: ConsumerMember | None) -> None:
        for member, sign in ((before, -1), (after, 1)):
            if member is None:
                continue
            if before is None or after is None or before.topics != after.topics:
                _add(self._subscribers, member.topics, sign)
            _add(self._pattern_users, _pattern_of(member), sign)
            _add(self._assignors, _assignor_of(member), sign)
            if member.classic is not None:
                self.classic_members += sign
                _add(self._protocols, dict.fromkeys(name for name, _ in member.classic.protocols), sign)
            if member.state is MemberState.STABLE:
                _add(self._stable, (member.epoch,), sign)
        self._change_owners(before, after)
        if after is not None:
            self.members[after.member_id] = after
        elif before is not None:
            del self.members[before.member_id]
        left = None if before is None else before.instance_id
        # The instance id may have gone on to the member that replaced this one.
        if left is not None and before is not None and self.static.get(left) == before.member_id:
            del self.static[left]
        if after is not None and after.instance_id is not None:
            self.static[after.instance_id] = after.member_id

    def _change_owners(self, before: ConsumerMember | None, after: ConsumerMember | None) -> None:
        """A log that was compacted may give a partition to its next owner first, and take it from the former one then:
        a member gives back only what is its own."""
        if (
            before is not None
            and after is not None
            and before.assigned is after.assigned
            and before.pending_revocation is after.pending_revocation
        ):
            return
        if before is not None:
            for topic_id, partition in _all_held(before):
                owners = self._owners.get(topic_id, {})
                if owners.get(partition) == before.member_id:
                    del owners[partition]
                    if not owners:
                        del self._owners[topic_id]
        if after is not None:
            for topic_id, partition in _all_held(after):
                self._owners.setdefault(topic_id, {})[partition] = after.member_id


def most_wanted(assignors: Counter[str]) -> str | None:
    """The name that most ask for; of several the first in order."""
    return min(assignors, key=lambda name: (-assignors[name], name), default=None)


def _stale(member: ConsumerMember) -> ErrorCode:
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def _without_anything(member: ConsumerMember) -> ConsumerMember:
    return replace(
        member,
        epoch=LEAVE_EPOCH,
        previous_epoch=LEAVE_EPOCH,
        assigned=NOTHING_HELD,
        pending_revocation=NOTHING_HELD,
    )


def _all_held(member: ConsumerMember) -> Iterator[tuple[TopicId, int]]:
    held: HeldPartitions
    for held in (member.assigned, member.pending_revocation):
        for topic_id, partitions in held.items():
            for partition in partitions:
                yield topic_id, partition


def _pattern_of(member: ConsumerMember) -> tuple[str, ...]:
    return (member.pattern,) if member.pattern else ()


def _assignor_of(member: ConsumerMember | None) -> tuple[str, ...]:
    return () if member is None or member.assignor is None else (member.assignor,)


def _add(counter: Counter[Any], keys: Iterable[Any], count: int) -> None:
    for key in keys:
        counter[key] += count
        if not counter[key]:
            # A key with count 0 must not stay behind.
            del counter[key]


def _changed(counter: Counter[str], less: Iterable[str], more: Iterable[str]) -> Counter[str]:
    changed = counter.copy()
    _add(changed, less, -1)
    _add(changed, more, 1)
    return changed


def target_of(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Partitions:
    """What a member is to have; for a static one that just came back, what its former self was to have."""
    if instance_id is not None:
        member_id = group.static.get(instance_id, member_id)
    return group.target.get(member_id, NO_PARTITIONS)
