"""A classic group: its members, its generation, and where its rebalance stands.

    Empty --join--> PreparingRebalance --all joined, or time is up--> CompletingRebalance --leader's sync--> Stable
      ^                 |       ^                                              |                               |
      +--all are gone---+       +------- a member joins, leaves or dies -------+-------------------------------+

The members, their assignments in the last stable generation, and that generation stand in a record of the
log (`recorded`); everything else is the coordinator's memory of a rebalance, which members begin anew when the
coordinator moves. This module keeps the members and what counts them consistent; when the states change is decided in
`rebalance`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from tidelog.coordinator.groups.classic.deadlines import SESSION, ClassicDeadline
from tidelog.coordinator.groups.classic.members import ClassicMember, Protocol, names
from tidelog.coordinator.groups.events import CLASSIC
from tidelog.coordinator.groups.group import FROM_COMMIT
from tidelog.coordinator.records import CoordinatorRecord
from tidelog.model.errors import ErrorCode
from tidelog.protocol import consumer_protocol, messages
from tidelog.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from tidelog.coordinator.deadlines import Deadlines
    from tidelog.coordinator.groups.offset_events import CommitOffsets, OffsetToCommit

GENERATION_MAX: Final = 2**31 - 1
"""After which they begin at 0 again; a record may say anything."""
_RECORD_OVERHEAD: Final = 24
"""Bytes of a member's record beside its texts and what is opaque: lengths and timeouts."""


class ClassicGroupState(StrEnum):
    """Where a group stands, in Kafka's words."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    """Of a group that does not exist, or does not any more."""


_BEFORE: Final = {
    ClassicGroupState.EMPTY: {ClassicGroupState.PREPARING_REBALANCE},
    ClassicGroupState.PREPARING_REBALANCE: {
        ClassicGroupState.EMPTY,
        ClassicGroupState.COMPLETING_REBALANCE,
        ClassicGroupState.STABLE,
    },
    ClassicGroupState.COMPLETING_REBALANCE: {ClassicGroupState.PREPARING_REBALANCE},
    ClassicGroupState.STABLE: {ClassicGroupState.COMPLETING_REBALANCE},
}
"""state -> those from which it is reached."""


class ClassicGroup:
    """One group. Members are in the order of joining, which decides wherever one of them has to be chosen."""

    __slots__ = (
        "_supporters",
        "_topics",
        "_waiting_joins",
        "came_ms",
        "deadlines",
        "delay_left_ms",
        "generation",
        "group_id",
        "leader",
        "members",
        "pending",
        "pending_sync",
        "previous_state",
        "protocol",
        "protocol_type",
        "recorded",
        "state",
        "state_since_ms",
        "static",
    )

    kind: Final = CLASSIC

    def __init__(self, group_id: str, deadlines: Deadlines, wall_ms: int = -1) -> None:
        self.group_id = group_id
        self.deadlines = deadlines
        """Its coordinator's."""
        self.state = ClassicGroupState.EMPTY
        self.previous_state = ClassicGroupState.DEAD
        self.state_since_ms = wall_ms
        """Wall time at which the state was entered; -1 where an old record does not say."""
        self.generation = 0
        self.protocol_type = ""
        """What its members divide among themselves; empty until a first one has joined."""
        self.protocol: str | None = None
        """The one that all support, chosen by vote for each generation."""
        self.leader: str | None = None
        """Member id of the one that assigns."""
        self.members: dict[str, ClassicMember] = {}
        self.static: dict[str, str] = {}
        """instance id -> member id"""
        self.pending: dict[str, None] = {}
        """Ids that were given out and have not joined yet (a set, in order)."""
        self.pending_sync: dict[str, None] = {}
        """Members of which SyncGroup is still awaited in this generation (a set, in order)."""
        self.came_ms: int | None = None
        """When the last member came while a new group waits for more (monotonic): then it waits longer."""
        self.delay_left_ms = 0
        """How much longer it may wait so."""
        self.recorded: messages.GroupMetadataValue | None = None
        """What the log says about the group; changed by replay alone."""
        self._waiting_joins = 0
        self._supporters: Counter[str] = Counter()
        """protocol -> how many members support it"""
        self._topics: tuple[frozenset[str] | None] | None = None

    @classmethod
    def restored(cls, group_id: str, deadlines: Deadlines, value: messages.GroupMetadataValue) -> ClassicGroup:
        """The group that a record describes: Stable, or Empty, with no request waiting."""
        group = cls(group_id, deadlines, value.current_state_timestamp)
        group.recorded = value
        group.generation = value.generation
        group.protocol_type = value.protocol_type
        group.protocol = value.protocol
        # Kafka writes no id twice; of other writers' the last one counts.
        for member in {member.member_id: member for member in value.members}.values():
            group.add(
                ClassicMember(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    member.session_timeout,
                    # The first version of the record had no such field.
                    member.session_timeout if member.rebalance_timeout == -1 else member.rebalance_timeout,
                    (Protocol(value.protocol or "", bytes(member.subscription)),),
                    bytes(member.assignment),
                ),
                value.protocol_type,
            )
        group.leader = value.leader if value.leader in group.members else next(iter(group.members), None)
        if group.members:
            group.state = ClassicGroupState.STABLE
        return group

    # Members.

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        """Takes a member in; the first one says of what type the group is, and leads it."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        self.pending.pop(member.member_id, None)
        self._supporters.update(names(member.protocols))
        self._topics = None

    def remove(self, member_id: str) -> ClassicMember | None:
        """Takes a member out, or an id that has not joined yet. The caller answers its requests before."""
        self.pending.pop(member_id, None)
        self.pending_sync.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self._support_ends(member.protocols)
        self._waiting_joins -= member.join_request is not None
        if member.instance_id is not None and self.static.get(member.instance_id) == member_id:
            del self.static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self._topics = None
        return member

    def replace_static(self, old_id: str, new_id: str) -> ClassicMember:
        """Gives a static member that came back a new id, in the old one's place; no request of it waits now."""
        member = self.members[old_id]
        assert member.instance_id is not None
        self._waiting_joins -= member.join_request is not None
        member.join_request = member.sync_request = None
        member.member_id = new_id
        self.members = {new_id if known == old_id else known: kept for known, kept in self.members.items()}
        self.static[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.pending_sync:
            del self.pending_sync[old_id]
            self.pending_sync[new_id] = None
        return member

    def update(
        self, member: ClassicMember, protocols: Sequence[Protocol], session_timeout_ms: int, rebalance_timeout_ms: int
    ) -> None:
        """What a member says when it joins again."""
        self._support_ends(member.protocols)
        self._supporters.update(names(protocols))
        member.protocols = protocols
        member.session_timeout_ms = session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms
        self._topics = None

    def wait_for_join(self, member: ClassicMember, request_id: int | None) -> int | None:
        """The member's JoinGroup waits, or no more (None); the id of the one that waited until now."""
        before, member.join_request = member.join_request, request_id
        self._waiting_joins += (request_id is not None) - (before is not None)
        return before

    @property
    def waiting_joins(self) -> int:
        """How many members wait for the rebalance to begin."""
        return self._waiting_joins

    @property
    def all_joined(self) -> bool:
        return self._waiting_joins == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long the slowest member may take to join again."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def elect_joined_leader(self) -> bool:
        """Makes a member that has joined the leader, the present leader if it has; whether there is one."""
        leader = self.members.get(self.leader) if self.leader is not None else None
        if leader is None or leader.join_request is None:
            joined = (member_id for member_id, member in self.members.items() if member.join_request is not None)
            found = next(joined, None)
            if found is None:
                return False
            self.leader = found
        return True

    def membership_error(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """NONE for a member; FENCED_INSTANCE_ID for one whose instance id has a newer owner; UNKNOWN_MEMBER_ID."""
        if instance_id is not None:
            known = self.static.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    # Protocols.

    def supports(self, protocol_type: str, protocols: Sequence[Protocol]) -> bool:
        """Whether a client with these can be a member: one that all members support is among them."""
        if self.state is ClassicGroupState.EMPTY:
            return bool(protocol_type and protocols)
        everybody = len(self.members)
        return self.protocol_type == protocol_type and any(
            self._supporters[protocol.name] == everybody for protocol in protocols
        )

    def elected_protocol(self) -> str | None:
        """Each member votes for the one it likes best of those that all support; the first in the order of joining
        decides a tie."""
        everybody = len(self.members)
        candidates = {name for name, count in self._supporters.items() if count == everybody}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0] if votes else None

    def _support_ends(self, protocols: Sequence[Protocol]) -> None:
        for name in names(protocols):
            self._supporters[name] -= 1
            if not self._supporters[name]:
                # Members that come back under ever new names must not leave them behind.
                del self._supporters[name]

    @property
    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that its consumers read; None where that cannot be known: other types, unreadable metadata."""
        if self._topics is None:
            self._topics = (self._find_topics(),)
        return self._topics[0]

    def _find_topics(self) -> frozenset[str] | None:
        if self.protocol_type != consumer_protocol.PROTOCOL_TYPE or (self.members and self.protocol is None):
            return None
        try:
            subscriptions = [member.metadata(self.protocol) for member in self.members.values()]
            return frozenset(topic for each in subscriptions for topic in consumer_protocol.topics_of(each))
        except ProtocolError:
            return None

    # States.

    def enter(self, state: ClassicGroupState, wall_ms: int) -> None:
        assert self.state in _BEFORE[state], f"group {self.group_id!r}: {self.state} -> {state}"
        self.previous_state, self.state = self.state, state
        self.state_since_ms = wall_ms

    @property
    def is_initial(self) -> bool:
        """Whether it waits for the first members of an empty group."""
        return self.state is ClassicGroupState.PREPARING_REBALANCE and self.previous_state is ClassicGroupState.EMPTY

    def next_generation(self, wall_ms: int) -> None:
        """All that joined are in: CompletingRebalance, or Empty if there are none."""
        self.generation = (self.generation + 1) & GENERATION_MAX
        self.protocol = self.elected_protocol()
        self.enter(ClassicGroupState.COMPLETING_REBALANCE if self.members else ClassicGroupState.EMPTY, wall_ms)
        self.pending_sync.clear()
        self._topics = None

    # As the coordinator and the offsets see it.

    def __eq__(self, other: object) -> bool:
        """Whether the log says the same of both groups."""
        return isinstance(other, ClassicGroup) and self.group_id == other.group_id and self.recorded == other.recorded

    __hash__ = None  # type: ignore[assignment]  # It changes.

    @property
    def members_count(self) -> int:
        return len(self.members)

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicGroupState.EMPTY

    def check_commit(self, event: CommitOffsets) -> ErrorCode:
        """Members commit in their generation, and not before the leader has sent the assignment: a member that does so
        has not given up what the generation before gave it. A client that is no member commits while there are none.
        """
        in_transaction = event.producer is not None
        if event.generation < 0 and self.is_empty:
            return ErrorCode.NONE
        if event.generation >= 0 or event.member_id or event.group_instance_id is not None:
            error = self.membership_error(event.member_id, event.group_instance_id)
            if error is not ErrorCode.NONE:
                return error
            if event.generation != self.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif not in_transaction:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if self.state is ClassicGroupState.COMPLETING_REBALANCE and not in_transaction:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def check_offset(self, event: CommitOffsets, offset: OffsetToCommit) -> ErrorCode:
        return ErrorCode.NONE

    def committed(self, now_ms: int, event: CommitOffsets) -> None:
        """A member that commits lives."""
        member = self.members.get(event.member_id)
        if member is not None and event.producer is None:
            self.expect(now_ms, member.member_id, member.session_timeout_ms)

    def expect(self, now_ms: int, member_id: str, timeout_ms: int) -> None:
        """The member's next heartbeat, or the join of the id that was given out, has to come within that time."""
        self.deadlines.set(ClassicDeadline(SESSION, self.group_id, member_id), now_ms + timeout_ms)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Any client may ask what a classic group has committed."""
        return ErrorCode.NONE

    def check_delete_offsets(self) -> ErrorCode:
        """What members of another protocol type read is not known here."""
        if self.is_empty or self.protocol_type == consumer_protocol.PROTOCOL_TYPE:
            return ErrorCode.NONE
        return ErrorCode.NON_EMPTY_GROUP

    def is_subscribed(self, topic: str) -> bool:
        """All topics, as long as it is not known which."""
        topics = self.subscribed_topics
        return self.protocol_type == consumer_protocol.PROTOCOL_TYPE if topics is None else topic in topics

    @property
    def offsets_expire_from_ms(self) -> int | None:
        """KIP-211: all offsets of a group without members; of a stable group of consumers those of other topics."""
        if not self.protocol_type:
            return FROM_COMMIT
        if self.is_empty:
            # Old records don't say since when.
            return FROM_COMMIT if self.state_since_ms < 0 else self.state_since_ms
        return None if self.state is not ClassicGroupState.STABLE or self.subscribed_topics is None else FROM_COMMIT

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        if self.recorded is None:
            return ()
        return (CoordinatorRecord(messages.GroupMetadataKey(group=self.group_id), None),)

    @property
    def is_forgettable(self) -> bool:
        """Whether nothing would be lost with it: it has no members, none is joining, and the log does not know it."""
        return self.state is ClassicGroupState.EMPTY and not self.pending and self.recorded is None

    @property
    def record_size(self) -> int:
        """About how many bytes its record has."""
        return sum(
            len(member.metadata(self.protocol))
            + len(member.assignment)
            + len(member.member_id)
            + len(member.instance_id or "")
            + len(member.client_id)
            + len(member.client_host)
            + _RECORD_OVERHEAD
            for member in self.members.values()
        )

    def as_record(self) -> messages.GroupMetadataValue:
        """What the log is to say, in the state it is in now."""
        return messages.GroupMetadataValue(
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=self.state_since_ms,
            members=list(self._member_records()),
        )

    def _member_records(self) -> Iterator[messages.GroupMetadataValue.MemberMetadata]:
        for member in self.members.values():
            yield messages.GroupMetadataValue.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(self.protocol),
                assignment=member.assignment,
            )
