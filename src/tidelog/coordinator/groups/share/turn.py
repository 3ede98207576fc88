"""What the decisions about share groups have in common: the time, the settings, the topics, and the result."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tidelog.coordinator.deadlines import Deadlines
from tidelog.coordinator.groups.consumer.member import Partitions
from tidelog.coordinator.groups.settings import GroupSettings
from tidelog.coordinator.groups.share.group import ShareGroup
from tidelog.coordinator.groups.share.settings import ShareGroupSettings
from tidelog.coordinator.groups.topics_view import TopicsView
from tidelog.coordinator.records import CoordinatorRecord
from tidelog.coordinator.result import Result
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicId

SESSION: Final = "share-session"
"""The member's next heartbeat is overdue."""


class ShareDeadline(NamedTuple):
    """A key among the coordinator's deadlines."""

    kind: str
    group_id: str
    member_id: str


class StateAsked(NamedTuple):
    """When the share coordinator was last asked to make state of a partition, and with which epoch."""

    since_ms: int
    """Monotonic."""
    state_epoch: int


AskedStates = dict[str, dict[tuple[TopicId, int], StateAsked]]
"""[group id][topic, partition] -> what the share coordinator has not been heard of yet. Not in the log."""

ConfirmedStates = dict[str, set[tuple[TopicId, int]]]
"""[group id] -> partitions whose state this coordinator has had made, or confirmed. Not in the log."""


@dataclass(slots=True)
class ShareTurn:
    """One event's work."""

    now_ms: int
    wall_ms: int
    all_settings: GroupSettings
    topics: TopicsView
    deadlines: Deadlines
    groups: MutableMapping[str, Any]
    """[group id] -> groups of all kinds."""
    has_offsets: Callable[[str], bool]
    """Whether a group of that name has committed offsets: it is a classic one."""
    asked: AskedStates
    confirmed: ConfirmedStates
    result: Result[Any, Any]

    def settings_of(self, group_id: str) -> ShareGroupSettings:
        return self.all_settings.of_share_group(group_id)

    def write(self, record: CoordinatorRecord) -> None:
        self.result.writes.append(record)

    def ask_for_state(self, group_id: str, partitions: Partitions, state_epoch: int) -> None:
        """Notes that state of these partitions is about to be made."""
        asked = self.asked.setdefault(group_id, {})
        for topic_id, each in partitions.items():
            asked.update(
                dict.fromkeys(((topic_id, partition) for partition in each), StateAsked(self.now_ms, state_epoch))
            )

    def confirm_state(self, group_id: str, partitions: Partitions) -> Partitions:
        """Those of the partitions whose state this coordinator has not confirmed yet; it is about to be."""
        confirmed = self.confirmed.setdefault(group_id, set())
        unknown = {
            topic_id: frozenset(each for each in some if (topic_id, each) not in confirmed)
            for topic_id, some in partitions.items()
        }
        confirmed.update((topic_id, each) for topic_id, some in unknown.items() for each in some)
        return {topic_id: some for topic_id, some in unknown.items() if some}

    def awaits_state(self, group_id: str, topic_id: TopicId, partition: int) -> bool:
        """Whether state of a partition was asked for, not too long ago to ask again."""
        asked = self.asked.get(group_id, {}).get((topic_id, partition))
        return asked is not None and self.now_ms - asked.since_ms < self.settings_of(group_id).initialize_retry_ms

    def group(self, group_id: str, *, joins: bool) -> ShareGroup:
        """The share group, a new one where that may be; KafkaError GROUP_ID_NOT_FOUND."""
        found = self.groups.get(group_id)
        if isinstance(found, ShareGroup):
            return found
        if found is not None or self.has_offsets(group_id):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        if not joins:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
        return ShareGroup(group_id)

    def await_heartbeat(self, group_id: str, member_id: str) -> None:
        """The member has sent a heartbeat: its session begins anew."""
        timeout_ms = self.settings_of(group_id).session_timeout_ms
        self.deadlines.set(ShareDeadline(SESSION, group_id, member_id), self.now_ms + timeout_ms)

    def expect_no_more(self, group_id: str, member_id: str) -> None:
        self.deadlines.cancel(ShareDeadline(SESSION, group_id, member_id))
