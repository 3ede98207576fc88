"""The records of share groups in `__consumer_offsets`, as Kafka 4.3 writes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Final

from tidelog.coordinator.groups.consumer.member import NO_PARTITIONS, Partitions
from tidelog.coordinator.records import CoordinatorRecord
from tidelog.model.identifiers import TopicId
from tidelog.protocol import messages

_State = messages.ShareGroupStatePartitionMetadataValue
STABLE: Final = 0
LEAVE_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class ShareMember:
    """A member, as of the last record about it."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    assigned: Partitions = field(default_factory=lambda: NO_PARTITIONS)


@dataclass(frozen=True, slots=True)
class StoredState:
    """Which partitions have state with the share coordinator, or are to get it."""

    initializing: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    initialized: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    deleting: frozenset[TopicId] = frozenset()
    names: Mapping[TopicId, str] = field(default_factory=dict)
    """Of these topics."""

    @property
    def is_empty(self) -> bool:
        return not (self.initializing or self.initialized or self.deleting)

    def begun(self, partitions: Partitions, names: Mapping[TopicId, str]) -> StoredState:
        """With partitions that are to get state."""
        return replace(
            self,
            initializing=united(self.initializing, partitions),
            initialized=without(self.initialized, partitions),
            names={**self.names, **{topic_id: names.get(topic_id, "") for topic_id in partitions}},
        )

    def done(self, partitions: Partitions) -> StoredState:
        """With partitions that have got it."""
        known = {topic_id: each for topic_id, each in partitions.items() if topic_id in self.initializing}
        return replace(
            self, initializing=without(self.initializing, known), initialized=united(self.initialized, known)
        )

    def deletion_begun(self, topics: Iterable[TopicId]) -> StoredState:
        """With topics whose state is about to go."""
        gone = {each for each in topics if each in self.initializing or each in self.initialized}
        return replace(
            self,
            initializing={each: some for each, some in self.initializing.items() if each not in gone},
            initialized={each: some for each, some in self.initialized.items() if each not in gone},
            deleting=self.deleting | gone,
        )

    def deleted(self, topics: Iterable[TopicId]) -> StoredState:
        """Without topics whose state is gone."""
        gone = set(topics)
        return replace(
            self,
            deleting=self.deleting - gone,
            names={
                each: name
                for each, name in self.names.items()
                if each not in gone or each in self.initializing or each in self.initialized
            },
        )

    def without_topics(self, topics: Set[TopicId]) -> StoredState:
        """Without topics that were deleted."""
        return StoredState(
            {each: some for each, some in self.initializing.items() if each not in topics},
            {each: some for each, some in self.initialized.items() if each not in topics},
            self.deleting - topics,
            {each: name for each, name in self.names.items() if each not in topics},
        )


def united(some: Partitions, others: Partitions) -> Partitions:
    return {
        topic_id: some.get(topic_id, frozenset()) | others.get(topic_id, frozenset()) for topic_id in {**some, **others}
    }


def without(some: Partitions, others: Partitions) -> Partitions:
    left = {topic_id: each - others.get(topic_id, frozenset()) for topic_id, each in some.items()}
    return {topic_id: each for topic_id, each in left.items() if each}


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    key = messages.ShareGroupMetadataKey(group_id=group_id)
    return CoordinatorRecord(key, messages.ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash))


def no_group(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(messages.ShareGroupMetadataKey(group_id=group_id), None)


def member_metadata(group_id: str, member: ShareMember) -> CoordinatorRecord:
    value = messages.ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
    )
    return CoordinatorRecord(_member_key(group_id, member.member_id), value)


def no_member_metadata(group_id: str, member_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(_member_key(group_id, member_id), None)


def _member_key(group_id: str, member_id: str) -> messages.ShareGroupMemberMetadataKey:
    return messages.ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id)


def target_epoch(group_id: str, epoch: int, wall_ms: int) -> CoordinatorRecord:
    key = messages.ShareGroupTargetAssignmentMetadataKey(group_id=group_id)
    value = messages.ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=wall_ms)
    return CoordinatorRecord(key, value)


def no_target_epoch(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(messages.ShareGroupTargetAssignmentMetadataKey(group_id=group_id), None)


def target(group_id: str, member_id: str, partitions: Partitions) -> CoordinatorRecord:
    value = messages.ShareGroupTargetAssignmentMemberValue(
        topic_partitions=[
            messages.ShareGroupTargetAssignmentMemberValue.TopicPartition(topic_id=topic_id, partitions=sorted(each))
            for topic_id, each in sorted(partitions.items())
        ]
    )
    return CoordinatorRecord(_target_key(group_id, member_id), value)


def no_target(group_id: str, member_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(_target_key(group_id, member_id), None)


def _target_key(group_id: str, member_id: str) -> messages.ShareGroupTargetAssignmentMemberKey:
    return messages.ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)


def current(group_id: str, member: ShareMember) -> CoordinatorRecord:
    value = messages.ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=STABLE,
        assigned_partitions=[
            messages.ShareGroupCurrentMemberAssignmentValue.TopicPartitions(topic_id=topic_id, partitions=sorted(each))
            for topic_id, each in sorted(member.assigned.items())
        ],
    )
    return CoordinatorRecord(_current_key(group_id, member.member_id), value)


def no_current(group_id: str, member_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(_current_key(group_id, member_id), None)


def _current_key(group_id: str, member_id: str) -> messages.ShareGroupCurrentMemberAssignmentKey:
    return messages.ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)


def stored_state(group_id: str, state: StoredState) -> CoordinatorRecord:
    def infos(partitions: Partitions) -> list[messages.ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo]:
        return [
            _State.TopicPartitionsInfo(
                topic_id=topic_id, topic_name=state.names.get(topic_id, ""), partitions=sorted(each)
            )
            for topic_id, each in sorted(partitions.items())
        ]

    value = _State(
        initializing_topics=infos(state.initializing),
        initialized_topics=infos(state.initialized),
        deleting_topics=[
            _State.TopicInfo(topic_id=topic_id, topic_name=state.names.get(topic_id, ""))
            for topic_id in sorted(state.deleting)
        ],
    )
    return CoordinatorRecord(messages.ShareGroupStatePartitionMetadataKey(group_id=group_id), value)


def no_stored_state(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(messages.ShareGroupStatePartitionMetadataKey(group_id=group_id), None)


def read_stored_state(value: messages.ShareGroupStatePartitionMetadataValue) -> StoredState:
    """As the record says."""

    def partitions(infos: list[messages.ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo]) -> Partitions:
        return {TopicId(bytes(each.topic_id)): frozenset(each.partitions) for each in infos if each.partitions}

    names = {TopicId(bytes(each.topic_id)): each.topic_name for each in value.deleting_topics}
    for info in (*value.initializing_topics, *value.initialized_topics):
        names[TopicId(bytes(info.topic_id))] = info.topic_name
    return StoredState(
        partitions(value.initializing_topics),
        partitions(value.initialized_topics),
        frozenset(TopicId(bytes(each.topic_id)) for each in value.deleting_topics),
        names,
    )
