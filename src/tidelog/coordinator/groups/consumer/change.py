"""What a request changes in a consumer group, step by step; each step may add records, in Kafka's order.

    the member's own record --> patterns --> group epoch --> target assignment --> what the member holds

Both protocols come through here: heartbeats of KIP-848, and the JoinGroup of members that speak the classic one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tidelog.coordinator.groups.consumer import records
from tidelog.coordinator.groups.consumer.computation import TargetComputation
from tidelog.coordinator.groups.consumer.group import ConsumerGroup, ResolvedPattern, target_of
from tidelog.coordinator.groups.consumer.member import (
    NO_PARTITIONS,
    ConsumerMember,
    MemberState,
    Partitions,
)
from tidelog.coordinator.groups.consumer.reconciliation import reconcile
from tidelog.coordinator.groups.consumer.target import compute_target
from tidelog.coordinator.groups.consumer.turn import ASSIGN, REBALANCE, ConsumerTurn
from tidelog.coordinator.groups.topics_view import TopicRights, version_of
from tidelog.coordinator.patterns import InvalidPattern, compile_pattern
from tidelog.model.errors import ErrorCode, KafkaError

PATTERN_REFRESH_MIN_MS: Final = 10_000
"""Between two looks at all patterns of a group, though topics come and go, or ACLs: each is a match with every topic's
name."""

NAME_LENGTH_MAX: Final = 4096
"""Characters of an id: it stands in each record of its member, and records have to fit a batch."""
RECORD_BYTES: Final = 50
"""Of a target's record, without names and partitions: key, value, and what the batch adds."""
PARTITION_BYTES: Final = 5
"""Of a partition in it, with its share of the topics' ids."""


@dataclass(slots=True)
class GroupChange:
    """A group on its way through the steps. `group` itself is as it was before them."""

    turn: ConsumerTurn
    group: ConsumerGroup
    before: ConsumerMember | None
    """The member as it was, None if it is new; for a static one that came back its former self with the new id."""
    after: ConsumerMember | None
    """The member as it is to be; None if the group changes by itself."""
    replaced: str | None = None
    """The member id that the static member had before."""
    rights: TopicRights | None = None
    """What the one that asks may describe; None: every topic."""
    epoch: int = 0
    assignment_epoch: int = 0
    target: Mapping[str, Partitions] | None = None
    """The new target, where one was computed."""
    resolved: dict[str, ResolvedPattern] = field(default_factory=dict)
    """Patterns that were looked at."""

    def __post_init__(self) -> None:
        self.epoch = self.group.epoch
        self.assignment_epoch = self.group.assignment_epoch

    # The steps.

    def subscribe(self) -> bool:
        """Writes down what changed about the member; whether that calls for another assignment."""
        before, after = self.before, self.after
        assert after is not None
        if after == before:
            return False
        self.turn.write(records.member_metadata(self.group.group_id, after))
        if after.pattern != (before.pattern if before is not None else ""):
            self._resubscribe(before, after)
            return True
        if before is None or after.topics != before.topics:
            return True
        return self.group.assignor_with(before, after) != self.group.assignor

    def advance(self, *, is_needed: bool) -> None:
        """Raises the group's epoch where that is needed, or topics changed."""
        turn, group = self.turn, self.group
        if self._refresh_patterns():
            is_needed = True
        if not is_needed and group.topics_seen is turn.topics:
            return
        group.topics_seen = turn.topics
        metadata_hash = turn.topics.hash_of(self._subscribed())
        if is_needed or metadata_hash != group.metadata_hash:
            self.epoch += 1
            write_epoch(turn, group, self.epoch, metadata_hash)

    def assign(self) -> None:
        """Computes a new target where the epoch was raised, unless the last one is too young."""
        turn, group = self.turn, self.group
        if self.epoch <= self.assignment_epoch:
            return
        delay_ms = assignment_delay_ms(turn, group)
        if delay_ms > 0:
            if not turn.is_expected(ASSIGN, group, ""):
                turn.expect(ASSIGN, group, "", delay_ms)
            return
        if is_large(turn, len(group.members) + (self.before is None and self.after is not None), self._subscribed()):
            # With what this change writes, which the group does not know yet.
            turn.expect_soon(ASSIGN, group)
            return
        turn.expect_no_more(ASSIGN, group, "")
        turn.computations.pop(group.group_id, None)
        former = dict(group.target)
        members = dict(group.members)
        if self.replaced is not None:
            members.pop(self.replaced, None)
            former_target = former.pop(self.replaced, None)
            if former_target is not None and self.after is not None:
                former[self.after.member_id] = former_target
        if self.after is not None:
            members[self.after.member_id] = self.after
        assignor = turn.assignor_or_default(group.assignor_with(self.before, self.after))
        patterns = group.patterns | self.resolved
        target = compute_target(members, former, patterns, turn.topics, assignor)
        for member_id, partitions in target.items():
            if former.get(member_id) != partitions:
                turn.write(records.target(group.group_id, member_id, partitions))
        turn.write(records.target_epoch(group.group_id, self.epoch, turn.wall_ms))
        self.target = target
        self.assignment_epoch = self.epoch

    def move(self, owned: Partitions | None, known_epoch: int | None = None) -> ConsumerMember:
        """Brings the member a step nearer to its target; the member after it.

        `known_epoch`: the one before the member's, where it has shown by it that it did not get the last answer. It may
        miss the next one, too, so it goes on to be known by that epoch.
        """
        turn, group, member = self.turn, self.group, self.after
        assert member is not None
        if member.is_reconciled_to(self.assignment_epoch):
            return member
        if self.target is None:
            target = target_of(group, member.member_id, member.instance_id)
        else:
            target = self.target.get(member.member_id, NO_PARTITIONS)
        try:
            moved = reconcile(member, self.assignment_epoch, target, group.is_free, owned)
        except KafkaError:
            # Nothing of this change holds: the next one has to look at topics and patterns again.
            group.topics_seen = group.patterns_seen = None
            raise
        if moved == member:
            return member
        if known_epoch is not None:
            moved = replace(moved, previous_epoch=known_epoch)
        turn.write(records.current(group.group_id, moved))
        if moved.classic is None:
            if moved.state is MemberState.UNREVOKED_PARTITIONS:
                turn.expect(REBALANCE, group, moved.member_id, moved.rebalance_timeout_ms)
            else:
                turn.expect_no_more(REBALANCE, group, moved.member_id)
        return moved

    def _subscribed(self) -> frozenset[str]:
        """The topics that members want once this change is made."""
        before = [] if self.before is None else [self.before]
        after = [] if self.after is None else [self.after]
        return self.group.subscribed_topics_with(before, after, self.resolved)

    # Patterns.

    def _resubscribe(self, before: ConsumerMember | None, after: ConsumerMember) -> None:
        group = self.group
        if before is not None and before.pattern and group.users_of(before.pattern) == 1:
            self.turn.write(records.no_pattern(group.group_id, before.pattern))
        if after.pattern and after.pattern not in group.patterns:
            self._resolve(after.pattern)

    def _resolve(self, text: str) -> None:
        turn = self.turn
        try:
            found = turn.topics.matching(text, compile_pattern(text))
            if self.rights is not None:
                found = frozenset(filter(self.rights.may_describe, found))
        except InvalidPattern as error:
            raise KafkaError(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"SubscribedTopicRegex `{text}` is not a valid regular expression: {error}.",
            ) from error
        if sum(map(len, found)) > turn.all_settings.pattern_topics_length_max:
            raise KafkaError(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"SubscribedTopicRegex `{text}` stands for too many topics: {len(found)}.",
            )
        known = self.group.patterns.get(text)
        if known is not None and known.topics == found:
            return
        resolved = self.resolved[text] = ResolvedPattern(found, turn.topics.version, turn.wall_ms)
        turn.write(records.pattern(self.group.group_id, text, found, resolved.version, resolved.wall_ms))

    def _refresh_patterns(self) -> bool:
        """Looks at all patterns again where topics or ACLs changed, or it is time; whether one stands for other topics
        now."""
        turn, group = self.turn, self.group
        if not group.patterns:
            return False
        age_ms = turn.now_ms - group.patterns_resolved_ms
        if group.patterns_seen is None:
            # Loaded: their age is unknown.
            pass
        elif age_ms < (
            turn.settings.pattern_refresh_ms
            if group.is_resolved_by(turn.topics, self.rights)
            else PATTERN_REFRESH_MIN_MS
        ):
            return False
        group.patterns_seen, group.patterns_resolved_ms = turn.topics, turn.now_ms
        group.patterns_rights = version_of(self.rights)
        count = len(self.resolved)
        before, after = self.before, self.after
        is_given_up = before is not None and after is not None and after.pattern != before.pattern
        for text in group.patterns:
            if is_given_up and before is not None and text == before.pattern and group.users_of(text) == 1:
                # It goes with its last user.
                continue
            try:
                self._resolve(text)
            except KafkaError:
                # Another release let it pass: it stays what it was.
                continue
        return len(self.resolved) > count


def assign_in_steps(turn: ConsumerTurn, group: ConsumerGroup) -> None:
    """ASSIGN is due: the next step of the target of a large group, or the whole target of another one."""
    computation = turn.computations.pop(group.group_id, None)
    if not group.members:
        return
    if computation is None or computation.group is not group:
        is_due = group.epoch > group.assignment_epoch and assignment_delay_ms(turn, group) <= 0
        if not is_due or not is_large(turn, len(group.members), group.subscribed_topics):
            GroupChange(turn, group, None, None).assign()
            return
        computation = TargetComputation(group, turn.topics, turn.assignor_or_default(group.assignor))
    if computation.go_on():
        turn.write(computation.result(turn.wall_ms))
        if group.epoch > computation.epoch:
            # The group has changed meanwhile.
            turn.expect(ASSIGN, group, "", turn.settings_of(group.group_id).assignment_interval_ms)
    else:
        turn.computations[group.group_id] = computation
        turn.expect_soon(ASSIGN, group)
    turn.result.goes_on = True


def is_large(turn: ConsumerTurn, members: int, subscribed: Iterable[str]) -> bool:
    """Whether to compute the target of so many members, of these topics, would hold up the broker's other clients."""
    topics = turn.topics.topics
    partitions = sum(topics[name].layout.partitions for name in subscribed if name in topics)
    return members + partitions > turn.settings.assigned_at_once_max


def check_room(turn: ConsumerTurn, group: ConsumerGroup, member_id: str) -> None:
    """KafkaError GROUP_MAX_SIZE_REACHED where there is no place for a new member: a target is written as one batch, and
    one that does not fit would never be."""
    if member_id in group.members:
        return
    count = len(group.members) + 1
    if count > turn.settings.group_size_max:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {turn.settings.group_size_max} members.",
        )
    topics = turn.topics.topics
    partitions = sum(topics[name].layout.partitions for name in group.subscribed_topics if name in topics)
    size = count * (RECORD_BYTES + len(group.group_id) + len(member_id)) + PARTITION_BYTES * partitions
    if size > turn.all_settings.group_record_max_bytes:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED, f"The target of {count} members does not fit a batch of records."
        )


def assignment_delay_ms(turn: ConsumerTurn, group: ConsumerGroup) -> int:
    """How long to wait until the next target may be computed; 0: now."""
    interval_ms = turn.settings_of(group.group_id).assignment_interval_ms
    age_ms = turn.wall_ms - group.assigned_at_ms
    # A clock that was set back must not keep a group waiting.
    return interval_ms - age_ms if group.assigned_at_ms >= 0 and 0 <= age_ms < interval_ms else 0


def write_epoch(turn: ConsumerTurn, group: ConsumerGroup, epoch: int, metadata_hash: int) -> None:
    """The group's next epoch."""
    if group.has_partition_metadata:
        turn.write(records.no_partition_metadata(group.group_id))
    turn.write(records.group_epoch(group.group_id, epoch, metadata_hash))


def write_removal(turn: ConsumerTurn, group: ConsumerGroup, member_id: str) -> None:
    """The member is no more."""
    turn.write(records.no_current(group.group_id, member_id))
    turn.write(records.no_target(group.group_id, member_id))
    turn.write(records.no_member_metadata(group.group_id, member_id))


def remove(turn: ConsumerTurn, group: ConsumerGroup, members: Sequence[ConsumerMember]) -> None:
    """Takes members out: what they held is free, and the next heartbeat of another one computes a new target."""
    gone: dict[str, int] = {}
    for member in members:
        write_removal(turn, group, member.member_id)
        turn.forget(group, member.member_id)
        if member.pattern:
            gone[member.pattern] = gone.get(member.pattern, 0) + 1
    for text, count in gone.items():
        if group.users_of(text) == count and text in group.patterns:
            turn.write(records.no_pattern(group.group_id, text))
    names = group.subscribed_topics_with(members, [], {})
    write_epoch(turn, group, group.epoch + 1, turn.topics.hash_of(names))


def replace_static(turn: ConsumerTurn, group: ConsumerGroup, former: ConsumerMember, member: ConsumerMember) -> None:
    """A static member came back with another id: it takes the place of its former self."""
    write_removal(turn, group, former.member_id)
    turn.forget(group, former.member_id)
    turn.write(records.member_metadata(group.group_id, member))
    target = group.target.get(former.member_id, NO_PARTITIONS)
    turn.write(records.target(group.group_id, member.member_id, target))
    turn.write(records.current(group.group_id, member))
