"""The target of a large group, computed in steps between which the broker serves its clients.

    the epoch is raised --> deadline ASSIGN, at once --> a step --> ASSIGN, at once --> ... --> the last step: one write

The group goes on meanwhile: members join, leave and are put out, and its epoch rises. What was begun is ended all the
same, for the epoch of which it was begun, as if it had been there at once: a group whose members come and go would
never see a target otherwise. Those that left meanwhile get none, and the raised epoch calls for the next target.
Nothing of it is in the log until the end: a coordinator that moves begins anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.assignors.steps import Pace, Steps
from tidelog.coordinator.groups.consumer import records
from tidelog.coordinator.groups.consumer.group import ConsumerGroup, NewTarget
from tidelog.coordinator.groups.consumer.target import target_in_steps
from tidelog.coordinator.records import PreparedRecords

if TYPE_CHECKING:
    from tidelog.coordinator.groups.consumer.member import Partitions
    from tidelog.coordinator.groups.topics_view import TopicsView


class TargetComputation:
    """One target on its way. It looks at the group as it was when it was begun."""

    __slots__ = ("_changed", "_instances", "_records", "_steps", "epoch", "group")

    def __init__(self, group: ConsumerGroup, topics: TopicsView, assignor: str) -> None:
        self.group = group
        self.epoch = group.epoch
        """Of the group, when this was begun."""
        self._changed: dict[str, Partitions] = {}
        self._records = PreparedRecords()
        self._instances = dict(group.static)
        self._steps = self._compute(group, topics, assignor)

    def go_on(self) -> bool:
        """Does one step; whether that was the last."""
        return next(self._steps, True) is True

    def _compute(self, group: ConsumerGroup, topics: TopicsView, assignor: str) -> Steps[None]:
        members, former, patterns = dict(group.members), dict(group.target), dict(group.patterns)
        target = yield from target_in_steps(members, former, patterns, topics, assignor)
        pace = Pace()
        for member_id, partitions in target.items():
            if former.get(member_id) != partitions:
                self._changed[member_id] = partitions
                self._records.add(records.target(group.group_id, member_id, partitions))
            if pace.is_over(sum(map(len, partitions.values())) + 1):
                yield

    def result(self, wall_ms: int) -> PreparedRecords:
        """The records of the whole target, for the group as it is now."""
        group, prepared, changed = self.group, self._records, self._changed
        group_id = group.group_id
        self._hand_on(group)
        for member_id in sorted(changed.keys() - group.members.keys()):
            del changed[member_id]
            prepared.add(records.no_target(group_id, member_id))
        prepared.add(records.target_epoch(group_id, self.epoch, wall_ms))
        prepared.key = NewTarget(group_id, self.epoch, wall_ms, changed)
        return prepared

    def _hand_on(self, group: ConsumerGroup) -> None:
        """Static members that came back with another id meanwhile get what their former selves were to have."""
        for instance_id, former_id in self._instances.items():
            member_id = group.static.get(instance_id)
            if member_id in (None, former_id) or former_id not in self._changed:
                continue
            assert member_id is not None
            partitions = self._changed[former_id]
            if group.target.get(member_id) != partitions:
                self._changed[member_id] = partitions
                self._records.add(records.target(group.group_id, member_id, partitions))
