"""A share group as its records say: members, epochs, which member fetches from what. Changed by `replay` alone.

Nothing has to be given up before another member may have it, since members share partitions: a member that learns of a
new target has it at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tidelog.coordinator.groups.consumer.member import NO_PARTITIONS, Partitions
from tidelog.coordinator.groups.events import SHARE
from tidelog.coordinator.groups.modern import ModernGroup
from tidelog.coordinator.groups.share import records
from tidelog.coordinator.groups.share.records import LEAVE_EPOCH, ShareMember, StoredState
from tidelog.coordinator.records import CoordinatorRecord
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicId
from tidelog.protocol import messages

if TYPE_CHECKING:
    from tidelog.coordinator.groups.offset_events import CommitOffsets, OffsetToCommit

EMPTY: Final = "Empty"
STABLE: Final = "Stable"


class ShareGroup(ModernGroup[ShareMember]):
    """One group."""

    kind: Final = SHARE
    protocol_type: Final = SHARE
    offsets_expire_from_ms: Final = None

    FIRST_EPOCH = 1  # Kafka's first member has epoch 2.

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.stored = StoredState()

    def _hard_state(self) -> tuple[object, ...]:
        return (*super()._hard_state(), self.stored)

    @property
    def state(self) -> str:
        """Kafka's name of where it stands."""
        return STABLE if self.members else EMPTY

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """What at least one member subscribes to."""
        return frozenset[str]().union(*(member.topics for member in self.members.values()))

    # Committed offsets, which share groups have none of.

    def check_commit(self, event: CommitOffsets) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def check_offset(self, event: CommitOffsets, offset: OffsetToCommit) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def committed(self, now_ms: int, event: CommitOffsets) -> None:
        """Nothing is committed."""

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """As of a group that does not exist, whose answer is that nothing is committed."""
        return ErrorCode.NONE

    def check_delete_offsets(self) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def is_subscribed(self, topic: str) -> bool:
        return any(topic in member.topics for member in self.members.values())

    # Its end.

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        """What removes the group with all its members; its stored state is seen to."""
        group_id, member_ids = self.group_id, list(self.members)
        return [
            *(records.no_current(group_id, member_id) for member_id in member_ids),
            *(records.no_target(group_id, member_id) for member_id in member_ids),
            records.no_target_epoch(group_id),
            *(records.no_member_metadata(group_id, member_id) for member_id in member_ids),
            records.no_stored_state(group_id),
            records.no_group(group_id),
        ]

    # Replay.

    def replay(self, key: Any, value: Any) -> None:
        """Brings a record about this group in; value None: a tombstone."""
        match key:
            case messages.ShareGroupMetadataKey():
                if value is not None:
                    self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case messages.ShareGroupMemberMetadataKey():
                if value is None:
                    self.members.pop(key.member_id, None)
                else:
                    self.members[key.member_id] = replace(
                        self._known(key.member_id),
                        rack_id=value.rack_id,
                        client_id=value.client_id,
                        client_host=value.client_host,
                        topics=frozenset(value.subscribed_topic_names),
                    )
            case messages.ShareGroupTargetAssignmentMetadataKey():
                self._replay_assignment(value)
            case messages.ShareGroupTargetAssignmentMemberKey():
                if value is None:
                    self.target.pop(key.member_id, None)
                else:
                    self.target[key.member_id] = _partitions(value.topic_partitions)
            case messages.ShareGroupCurrentMemberAssignmentKey():
                self._replay_current(key.member_id, value)
            case messages.ShareGroupStatePartitionMetadataKey():
                self.stored = StoredState() if value is None else records.read_stored_state(value)
            case _:
                raise AssertionError(f"{type(key).__name__} is not about a share group")

    def _known(self, member_id: str) -> ShareMember:
        return self.members.get(member_id) or ShareMember(member_id)

    def _replay_current(self, member_id: str, value: Any) -> None:
        if value is not None:
            self.members[member_id] = replace(
                self._known(member_id),
                epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                assigned=_partitions(value.assigned_partitions),
            )
        elif member_id in self.members:
            self.members[member_id] = replace(
                self.members[member_id], epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned=NO_PARTITIONS
            )


def _partitions(told: Iterable[Any]) -> Partitions:
    return {TopicId(bytes(each.topic_id)): frozenset(each.partitions) for each in told if each.partitions}
