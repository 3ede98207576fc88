"""What the parts of a coordinator of groups share: groups by id, offsets, deadlines, settings, topics.

The parts (`offsets`, `classic.groups`, `consumer.groups`) take this, and none of them knows the coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.coordinator.deadlines import Deadlines
from tidelog.coordinator.groups.group import OFFSETS_ONLY
from tidelog.coordinator.groups.offset_store import OffsetStore
from tidelog.coordinator.groups.settings import GroupSettings

if TYPE_CHECKING:
    from tidelog.coordinator.groups.group import Group


class CoordinatorState:
    """ClassicGroupState of one partition of `__consumer_offsets`."""

    def __init__(self, settings: GroupSettings | None = None) -> None:
        self.settings = GroupSettings() if settings is None else settings
        self.groups: dict[str, Group] = {}
        """Groups that have, or had, members; parts put them in and take them out."""
        self.offset_store = OffsetStore()
        """What is committed."""
        self.deadlines = Deadlines()
        """Keys are tuples whose first element is a part's kind of deadline."""
        self.metadata: Any = None
        """What is known of topics, for server-side assignment; the shell sets it before each event."""

    def group(self, group_id: str) -> Group | None:
        """The group; OFFSETS_ONLY for one that only has offsets; None for one that is not."""
        found = self.groups.get(group_id)
        if found is None and self.offset_store.knows(group_id):
            return OFFSETS_ONLY
        return found
