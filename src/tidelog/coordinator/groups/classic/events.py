"""What the coordinator of a classic group is asked, and what it answers.

The handlers have validated what needs no group (session timeout, empty group ids) and have drawn the id that a new
member gets, so that nothing here depends on chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.coordinator.groups.classic.members import Protocol
from tidelog.coordinator.groups.offset_events import NO_GENERATION
from tidelog.coordinator.groups.topics_view import TopicRights
from tidelog.model.errors import ErrorCode
from tidelog.model.values import value

UNKNOWN_MEMBER: Final = ""
"""The member id of a client that has none yet."""


@value
class JoinGroup:
    """Answered by JoinReply, as a rule when the other members have joined too."""

    request_id: int
    group: str
    member_id: str
    new_member_id: str
    """Its id, should it be new."""
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Sequence[Protocol]
    wall_ms: int
    instance_id: str | None = None
    needs_known_id: bool = True
    """Whether a new dynamic member is first told its id, and joins with that (KIP-394, JoinGroup v4): so a client that
    joins again after a timeout leaves no dead member behind."""
    may_skip_assignment: bool = True
    """Whether a leader that came back understands that there is nothing to assign (KIP-814, JoinGroup v9)."""
    reason: str = ""
    rights: TopicRights | None = None
    """Where members of a consumer group join by the classic protocol; None: all topics may be described."""


class JoinedMember(NamedTuple):
    """One of those that the leader shall give partitions to."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@value
class JoinReply:
    """Outcome of a join: the generation, and for its leader all members."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: Sequence[JoinedMember] = ()
    skip_assignment: bool = False


class MemberAssignment(NamedTuple):
    """What the leader gives to one member."""

    member_id: str
    assignment: bytes


@value
class SyncGroup:
    """Answered by SyncReply when the leader has sent the assignment, and that is written."""

    request_id: int
    group: str
    member_id: str
    generation: int
    wall_ms: int
    instance_id: str | None = None
    protocol_type: str | None = None
    """As the member understood it; None where its version does not say."""
    protocol: str | None = None
    assignments: Sequence[MemberAssignment] = ()
    """From the leader; others send none."""


@value
class SyncReply:
    """The member's assignment."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@value
class Heartbeat:
    """Answered by HeartbeatReply, at once."""

    request_id: int
    group: str
    member_id: str
    generation: int
    instance_id: str | None = None


@value
class HeartbeatReply:
    """REBALANCE_IN_PROGRESS asks the member to join again."""

    error: ErrorCode


class LeavingMember(NamedTuple):
    """The member that leaves: the sender, or a static member that an administrator removes by its instance id alone."""

    member_id: str
    instance_id: str | None = None
    reason: str = ""


@value
class LeaveGroup:
    """Answered by LeaveReply."""

    request_id: int
    group: str
    members: Sequence[LeavingMember]
    wall_ms: int


@value
class LeaveReply:
    """An error for each member of the request, in its order."""

    errors: Sequence[ErrorCode]


@value
class DescribeGroup:
    """Answered by a DescribedGroup. Changes nothing."""

    request_id: int
    group: str


@value
class DescribedMember:
    """A member as DescribeGroups shows it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    """For the protocol in force; empty while the group rebalances."""
    assignment: bytes


@value
class DescribedGroup:
    """A classic group as DescribeGroups shows it; Dead where there is none of that id."""

    state: str
    protocol_type: str
    protocol: str
    """The protocol in force; empty while the group rebalances."""
    members: Sequence[DescribedMember]
    is_of_other_kind: bool = False
    """Whether there is a group of that id that is not classic."""
