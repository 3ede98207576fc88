"""The share groups of one coordinator: requests, deadlines and records find their group here."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any, Final

from tidelog.coordinator.groups.consumer.events import NamedPartitions
from tidelog.coordinator.groups.consumer.member import Partitions
from tidelog.coordinator.groups.modern import ModernGroups
from tidelog.coordinator.groups.share import records
from tidelog.coordinator.groups.share.events import (
    DescribedShareGroup,
    DescribedShareMember,
    DescribeShareGroup,
    Done,
    ForgetTopics,
    PrepareDeletion,
    PreparedOffsets,
    PrepareOffsets,
    ShareGroupPartitions,
    ShareHeartbeat,
    ShareHeartbeatReply,
    StateDeleted,
    StateInitialized,
    StoredPartitions,
)
from tidelog.coordinator.groups.share.group import ShareGroup
from tidelog.coordinator.groups.share.heartbeat import heartbeat, remove
from tidelog.coordinator.groups.share.records import united, without
from tidelog.coordinator.groups.share.turn import SESSION, AskedStates, ConfirmedStates, ShareDeadline, ShareTurn
from tidelog.coordinator.groups.topics_view import TopicsView
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages

if TYPE_CHECKING:
    from tidelog.coordinator.groups.part import DeadlineHandler, EventHandler, GroupResult
    from tidelog.coordinator.groups.state import CoordinatorState
    from tidelog.model.identifiers import TopicId

logger = logging.getLogger(__name__)

_NOT_EMPTY: Final = "The group is not empty."


class ShareGroups(ModernGroups[ShareGroup, ShareTurn]):
    """Decides for those of the coordinator's groups that are share groups, and makes them."""

    GROUP = ShareGroup
    KEYS = (
        messages.ShareGroupMetadataKey,
        messages.ShareGroupMemberMetadataKey,
        messages.ShareGroupTargetAssignmentMetadataKey,
        messages.ShareGroupTargetAssignmentMemberKey,
        messages.ShareGroupCurrentMemberAssignmentKey,
        messages.ShareGroupStatePartitionMetadataKey,
    )
    NOUN = "a share group"

    def __init__(self, coordinator: CoordinatorState) -> None:
        super().__init__(coordinator)
        self._asked: AskedStates = {}
        """No part of the groups: a new group is asked for before its first record makes it."""
        self._confirmed: ConfirmedStates = {}

    def handlers(self) -> Mapping[type, EventHandler]:
        return {
            ShareHeartbeat: self._heartbeat,
            StateInitialized: self._initialized,
            DescribeShareGroup: self._describe,
            ShareGroupPartitions: self._partitions,
            PrepareOffsets: self._prepare_offsets,
            PrepareDeletion: self._prepare_deletion,
            StateDeleted: self._deleted,
            ForgetTopics: self._forget,
        }

    def deadlines(self) -> Mapping[str, DeadlineHandler]:
        return {SESSION: self._expired}

    def loaded(self, now_ms: int, wall_ms: int, result: GroupResult) -> None:
        """Sessions begin anew."""
        turn = self._turn(now_ms, wall_ms, result)
        for group in self._groups.values():
            if isinstance(group, ShareGroup):
                for member_id in group.members:
                    turn.await_heartbeat(group.group_id, member_id)

    # Members.

    def _heartbeat(self, now_ms: int, event: ShareHeartbeat, result: GroupResult) -> None:
        def refused(error: KafkaError) -> ShareHeartbeatReply:
            return ShareHeartbeatReply(error.code, error.message)

        self._decide(now_ms, event.wall_ms, event.request_id, result, lambda turn: heartbeat(turn, event), refused)

    def _expired(self, now_ms: int, wall_ms: int, key: ShareDeadline, result: GroupResult) -> None:
        """A member has sent no heartbeat in time."""
        group = self._find(key.group_id)
        member = None if group is None else group.members.get(key.member_id)
        if group is not None and member is not None:
            logger.info("member put out: group=%s member=%s deadline=%s", key.group_id, key.member_id, key.kind)
            remove(self._turn(now_ms, wall_ms, result), group, member)

    def _describe(self, now_ms: int, event: DescribeShareGroup, result: GroupResult) -> None:
        group = self._find(event.group)
        if group is not None:
            reply = DescribedShareGroup(
                ErrorCode.NONE,
                event.group,
                state=group.state,
                epoch=group.epoch,
                assignment_epoch=group.assignment_epoch,
                members=[
                    DescribedShareMember(
                        member.member_id,
                        member.rack_id,
                        member.epoch,
                        member.client_id,
                        member.client_host,
                        sorted(member.topics),
                        _named(member.assigned, self._topics),
                    )
                    for member in group.members.values()
                ],
            )
        else:
            reply = DescribedShareGroup(ErrorCode.GROUP_ID_NOT_FOUND, event.group, self._missing(event.group))
        result.replies.append((event.request_id, reply))

    # Which partitions have stored state.

    def _initialized(self, now_ms: int, event: StateInitialized, result: GroupResult) -> None:
        group = self._find(event.group)
        if group is not None:
            after = group.stored.done(self._take_made(event))
            if after != group.stored:
                result.writes.append(records.stored_state(event.group, after))
        result.replies.append((event.request_id, Done()))

    def _take_made(self, event: StateInitialized) -> Partitions:
        """Of what is made, the partitions of which nothing later is under way.

        What is asked with a later epoch makes their state anew: what members said meanwhile would be lost.
        """
        asked = self._asked.get(event.group, {})
        confirmed = self._confirmed.setdefault(event.group, set())
        later = {place for place, each in asked.items() if each.state_epoch > event.state_epoch}
        made: dict[TopicId, frozenset[int]] = {}
        for topic_id, partitions in united(event.partitions, event.failed).items():
            answered = frozenset(each for each in partitions if (topic_id, each) not in later)
            for each in answered:
                was_asked = asked.pop((topic_id, each), None) is not None
                if each in event.failed.get(topic_id, ()):
                    confirmed.discard((topic_id, each))
                elif was_asked:
                    # Of what a former coordinator has asked for, a deletion of its may have taken the state since.
                    confirmed.add((topic_id, each))
            if done := answered & event.partitions.get(topic_id, frozenset()):
                made[topic_id] = done
        return made

    def _partitions(self, now_ms: int, event: ShareGroupPartitions, result: GroupResult) -> None:
        result.replies.append((event.request_id, self._stored(event.group)))

    def _stored(self, group_id: str) -> StoredPartitions:
        group = self._find(group_id)
        if group is None:
            return StoredPartitions(ErrorCode.GROUP_ID_NOT_FOUND, self._missing(group_id))
        stored = group.stored
        partitions = united(stored.initializing, stored.initialized)
        return StoredPartitions(
            ErrorCode.NONE,
            is_empty=group.is_empty,
            partitions=partitions,
            deleting=self._all_partitions(stored.deleting),
            names=dict(stored.names),
        )

    def _all_partitions(self, topic_ids: Set[TopicId]) -> Partitions:
        """Of topics of which only the ids are known; nothing of those that are gone."""
        names, topics = self._topics.names, self._topics.topics
        return {each: frozenset(range(topics[names[each]].layout.partitions)) for each in topic_ids if each in names}

    def _prepare_offsets(self, now_ms: int, event: PrepareOffsets, result: GroupResult) -> None:
        def decide(turn: ShareTurn) -> PreparedOffsets:
            group = turn.group(event.group, joins=True)
            if not group.is_empty:
                return PreparedOffsets(ErrorCode.NON_EMPTY_GROUP, _NOT_EMPTY)
            epoch = group.epoch + 1
            turn.write(records.group_epoch(event.group, epoch, group.metadata_hash))
            after = group.stored.begun(event.partitions, turn.topics.names)
            turn.write(records.stored_state(event.group, after))
            turn.ask_for_state(event.group, event.partitions, epoch)
            others = without(group.stored.initialized, event.partitions)
            return PreparedOffsets(
                ErrorCode.NONE, state_epoch=epoch, initialized=without(group.stored.initialized, others)
            )

        def refused(error: KafkaError) -> PreparedOffsets:
            return PreparedOffsets(error.code, error.message)

        self._decide(now_ms, 0, event.request_id, result, decide, refused)

    def _prepare_deletion(self, now_ms: int, event: PrepareDeletion, result: GroupResult) -> None:
        reply = self._stored(event.group)
        group = self._find(event.group)
        if group is not None and not group.is_empty:
            reply = StoredPartitions(ErrorCode.NON_EMPTY_GROUP, _NOT_EMPTY)
        elif group is not None:
            known = united(reply.partitions, reply.deleting)
            partitions = {each: some for each, some in known.items() if each in event.topics}
            reply = StoredPartitions(ErrorCode.NONE, partitions=partitions, names=reply.names)
            after = group.stored.deletion_begun(partitions)
            if after != group.stored:
                result.writes.append(records.stored_state(event.group, after))
        result.replies.append((event.request_id, reply))

    def _deleted(self, now_ms: int, event: StateDeleted, result: GroupResult) -> None:
        """State that members have wanted meanwhile may have been made before the deletion: it is asked for again."""
        group = self._find(event.group)
        if group is not None:
            after = group.stored.deletion_begun([*event.topics, *event.failed]).deleted(event.topics)
            if after != group.stored:
                result.writes.append(records.stored_state(event.group, after))
        result.replies.append((event.request_id, Done()))

    def _forget(self, now_ms: int, event: ForgetTopics, result: GroupResult) -> None:
        for group in self._groups.values():
            if isinstance(group, ShareGroup):
                self._forget_asked(group.group_id, event.topics)
                after = group.stored.without_topics(event.topics)
                if after != group.stored:
                    result.writes.append(records.stored_state(group.group_id, after))

    def _forget_asked(self, group_id: str, topics: Set[TopicId]) -> None:
        asked = self._asked.get(group_id, {})
        for place in [place for place in asked if place[0] in topics]:
            del asked[place]
        confirmed = self._confirmed.get(group_id, set())
        confirmed.difference_update([place for place in confirmed if place[0] in topics])

    def _replay(self, key: Any, value: messages.Message | None) -> None:
        super()._replay(key, value)
        if key.group_id not in self._groups:
            # Of the name alone: a group that gets it later counts its epochs anew.
            self._asked.pop(key.group_id, None)
            self._confirmed.pop(key.group_id, None)

    def _turn(self, now_ms: int, wall_ms: int, result: GroupResult) -> ShareTurn:
        coordinator = self._coordinator
        return ShareTurn(
            now_ms,
            wall_ms,
            coordinator.settings,
            self._topics,
            coordinator.deadlines,
            self._groups,
            coordinator.offset_store.knows,
            self._asked,
            self._confirmed,
            result,
        )


def _named(partitions: Partitions, topics: TopicsView) -> list[NamedPartitions]:
    return [
        NamedPartitions(topic_id, topics.names[topic_id], sorted(each))
        for topic_id, each in sorted(partitions.items())
        if topic_id in topics.names
    ]
