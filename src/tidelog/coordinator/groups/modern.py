"""Groups for which the coordinator computes the assignment (Kafka's ModernGroup): consumer groups and share groups.

    heartbeat --> decision --> writes, reply, deadlines
    record of the log --> replay, which alone changes a group

`ModernGroup` is what both kinds of groups have; `ModernGroups` finds the group of a request, a deadline or a record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from tidelog.coordinator.groups.part import Part
from tidelog.coordinator.groups.topics_view import NO_TOPICS_HASH, TopicsView
from tidelog.coordinator.result import Result
from tidelog.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.coordinator.groups.consumer.member import Partitions
    from tidelog.coordinator.groups.part import GroupResult, Replayer
    from tidelog.coordinator.groups.state import CoordinatorState
    from tidelog.protocol.messages import Message

NEVER: Final = -1
"""A wall time: what has not happened."""
NO_ASSIGNMENT_EPOCH: Final = 0
NO_TOPICS: Final = TopicsView()
"""Before the broker has told any."""

M = TypeVar("M")
"""A member."""


class ModernGroup(ABC, Generic[M]):
    """One group as its records say."""

    FIRST_EPOCH: ClassVar[int]
    """Before the first member has joined."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = self.FIRST_EPOCH
        self.metadata_hash = NO_TOPICS_HASH
        """Of the topics that were subscribed to when the epoch was last raised."""
        self.assignment_epoch = NO_ASSIGNMENT_EPOCH
        self.assigned_at_ms = NEVER
        """Wall time at which the target was computed."""
        self.members: dict[str, M] = {}
        self.target: dict[str, Partitions] = {}
        """member id -> what it is to have"""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._hard_state() == other._hard_state()

    __hash__ = None  # type: ignore[assignment]  # It changes.

    def _hard_state(self) -> tuple[object, ...]:
        """What is in the log."""
        return (
            *(self.group_id, self.epoch, self.metadata_hash, self.assignment_epoch, self.assigned_at_ms),
            *(self.members, self.target),
        )

    @property
    def members_count(self) -> int:
        return len(self.members)

    @property
    def is_empty(self) -> bool:
        return not self.members

    def member(self, member_id: str) -> M:
        """A member; KafkaError UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    @abstractmethod
    def replay(self, key: Any, value: Any) -> None:
        """Brings a record about this group in; value None: a tombstone."""

    def _replay_assignment(self, value: Any) -> None:
        """The record of the target's epoch."""
        self.assignment_epoch = NO_ASSIGNMENT_EPOCH if value is None else value.assignment_epoch
        self.assigned_at_ms = NEVER if value is None else value.assignment_timestamp


G = TypeVar("G", bound=ModernGroup[Any])
T = TypeVar("T")
"""The turn: one event's work."""
R = TypeVar("R")


class ModernGroups(Part, ABC, Generic[G, T]):
    """Decides for those of the coordinator's groups that are of one kind, and makes them."""

    GROUP: type[G]
    KEYS: ClassVar[Sequence[type[Message]]]
    """Of the records about these groups; the first one's tombstone ends a group."""
    NOUN: ClassVar[str]
    """The kind, with its article."""

    def __init__(self, coordinator: CoordinatorState) -> None:
        self._coordinator = coordinator
        self._groups: MutableMapping[str, Any] = coordinator.groups
        """[group id] -> groups of all kinds."""

    @abstractmethod
    def _turn(self, now_ms: int, wall_ms: int, result: GroupResult) -> T: ...

    def replayers(self) -> Mapping[type, Replayer]:
        return dict.fromkeys(self.KEYS, self._replay)

    def _replay(self, key: Any, value: Message | None) -> None:
        group = self._find(key.group_id)
        if group is None:
            if value is None:
                # Of a group that is gone, or that is of another kind now: nothing is left to take away.
                return
            group = self._groups[key.group_id] = self.GROUP(key.group_id)
        if value is None and type(key) is self.KEYS[0]:
            del self._groups[group.group_id]
        else:
            group.replay(key, value)

    @property
    def _topics(self) -> TopicsView:
        topics: TopicsView | None = self._coordinator.metadata
        return NO_TOPICS if topics is None else topics

    def _find(self, group_id: str) -> G | None:
        """The group, if it is of this kind."""
        group: G | None = self._groups.get(group_id)
        return group if isinstance(group, self.GROUP) else None

    def _missing(self, group_id: str) -> str:
        """Why `_find` found none."""
        what = "not found" if self._coordinator.group(group_id) is None else f"is not {self.NOUN}"
        return f"Group {group_id} {what}."

    def _decide(
        self,
        now_ms: int,
        wall_ms: int,
        request_id: int,
        result: GroupResult,
        decide: Callable[[T], R],
        refused: Callable[[KafkaError], R],
    ) -> None:
        """Takes a decision over; of one that was refused nothing holds but the refusal."""
        decided: GroupResult = Result()
        try:
            reply = decide(self._turn(now_ms, wall_ms, decided))
        except KafkaError as error:
            result.replies.append((request_id, refused(error)))
            return
        result.writes.extend(decided.writes)
        result.replies.extend(decided.replies)
        result.replies.append((request_id, reply))
