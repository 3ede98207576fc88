"""What the decisions about consumer groups have in common: the time, the settings, the topics, and the result."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tidelog.coordinator.deadlines import Deadlines
from tidelog.coordinator.groups.classic.turn import ClassicTurn
from tidelog.coordinator.groups.consumer.computation import TargetComputation
from tidelog.coordinator.groups.consumer.group import ConsumerGroup
from tidelog.coordinator.groups.consumer.member import ConsumerMember
from tidelog.coordinator.groups.consumer.settings import ConsumerSettings
from tidelog.coordinator.groups.settings import GroupSettings
from tidelog.coordinator.groups.topics_view import TopicsView
from tidelog.coordinator.records import CoordinatorRecord, PreparedRecords
from tidelog.coordinator.result import Result

SESSION: Final = "consumer-session"
"""The member's next heartbeat is overdue."""
REBALANCE: Final = "consumer-rebalance"
"""The member has not given up what it was told to."""
JOIN: Final = "consumer-join"
"""A member that speaks the classic protocol was told to join again and has not."""
SYNC: Final = "consumer-sync"
"""A member that speaks the classic protocol has joined and not fetched its assignment."""
ASSIGN: Final = "consumer-assign"
"""The group's next target is due; of no member."""
KINDS: Final = (SESSION, REBALANCE, JOIN, SYNC)


class ConsumerDeadline(NamedTuple):
    """A key among the coordinator's deadlines."""

    kind: str
    group_id: str
    member_id: str = ""


@dataclass(slots=True)
class ConsumerTurn:
    """One event's work."""

    now_ms: int
    wall_ms: int
    all_settings: GroupSettings
    topics: TopicsView
    deadlines: Deadlines
    groups: MutableMapping[str, Any]
    """[group id] -> ConsumerGroup, ClassicGroup."""
    computations: MutableMapping[str, TargetComputation]
    """[group id] -> its next target, where that is computed in steps."""
    result: Result[Any, Any]

    @property
    def settings(self) -> ConsumerSettings:
        """What is the same for all groups: assignors, sizes, patterns."""
        return self.all_settings.consumer

    def settings_of(self, group_id: str) -> ConsumerSettings:
        """With the intervals and the session of the group, if it has its own."""
        return self.all_settings.of_group(group_id)

    def as_classic(self) -> ClassicTurn:
        """The same for a group that is, or becomes, classic."""
        return ClassicTurn(self.now_ms, self.wall_ms, self.all_settings, self.result)

    def assignor_or_default(self, name: str | None) -> str:
        """The assignor that a group's members want, where it is allowed."""
        return name if name in self.settings.assignors else self.settings.assignors[0]

    def write(self, record: CoordinatorRecord | PreparedRecords) -> None:
        self.result.writes.append(record)

    def reply(self, request_id: int, reply: object) -> None:
        self.result.replies.append((request_id, reply))

    def session_timeout_ms(self, group: ConsumerGroup, member: ConsumerMember) -> int:
        """Members that speak the classic protocol bring their own."""
        if member.classic is not None:
            return member.classic.session_timeout_ms
        return self.settings_of(group.group_id).session_timeout_ms

    def await_heartbeat(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """The member has sent a heartbeat: its session begins anew."""
        self.expect(SESSION, group, member.member_id, self.session_timeout_ms(group, member))

    def expect(self, kind: str, group: ConsumerGroup, member_id: str, timeout_ms: int) -> None:
        self.deadlines.set(ConsumerDeadline(kind, group.group_id, member_id), self.now_ms + timeout_ms)

    def expect_soon(self, kind: str, group: ConsumerGroup) -> None:
        """The deadline is due now, in an event of its own; where it was before, it stays so."""
        if not self.deadlines.is_due(ConsumerDeadline(kind, group.group_id), self.now_ms):
            self.expect(kind, group, "", 0)

    def is_expected(self, kind: str, group: ConsumerGroup, member_id: str) -> bool:
        return ConsumerDeadline(kind, group.group_id, member_id) in self.deadlines

    def expect_no_more(self, kind: str, group: ConsumerGroup, member_id: str) -> None:
        self.deadlines.cancel(ConsumerDeadline(kind, group.group_id, member_id))

    def forget(self, group: ConsumerGroup, member_id: str) -> None:
        """The member is gone: nothing is expected of it."""
        for kind in KINDS:
            self.expect_no_more(kind, group, member_id)
