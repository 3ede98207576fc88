"""Offsets: when they may be committed, fetched and deleted, and when they expire.

    OffsetCommit, TxnOffsetCommit --> validate with the group --> records --> OffsetStore
    OffsetFetch                   --> validate with the group --> what is committed, unless a transaction may change it

A group without members has offsets and nothing else (`group.OFFSETS_ONLY`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from tidelog.coordinator.groups.group import FROM_COMMIT
from tidelog.coordinator.groups.offset_events import (
    BROKER_RETENTION,
    NO_GENERATION,
    CommitOffsets,
    CommitOutcome,
    DeletedOffsets,
    DeleteOffsets,
    ExpireOffsets,
    FetchedOffsets,
    FetchOffsets,
    ForgetPartitions,
    OffsetToCommit,
)
from tidelog.coordinator.groups.part import Part
from tidelog.coordinator.records import NEVER, CommittedOffset, OffsetRecord, decode_offset
from tidelog.coordinator.state_machine import Remaining
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicPartition

if TYPE_CHECKING:
    from tidelog.coordinator.groups.part import EventHandler, GroupResult
    from tidelog.coordinator.groups.state import CoordinatorState

EXPIRY_OFFSETS_MAX: Final = 2_000
"""Offsets, and groups, that one event looks at: some milliseconds. A partition may hold millions."""
_TIME_MAX: Final = 2**63 - 1
GROUP_NOT_FOUND_SINCE: Final = 9
"""The version of OffsetCommit from which clients understand GROUP_ID_NOT_FOUND."""


class Offsets(Part):
    """The offsets of one coordinator's groups; records come in through `store`."""

    def __init__(self, state: CoordinatorState) -> None:
        self._state = state
        self.store = state.offset_store

    def handlers(self) -> Mapping[type, EventHandler]:
        return {
            CommitOffsets: self._commit,
            FetchOffsets: self._fetch,
            DeleteOffsets: self._delete,
            ExpireOffsets: self._expire,
            ForgetPartitions: self._forget,
        }

    def loaded(self, now_ms: int, wall_ms: int, result: GroupResult) -> None:
        self.store.loaded()

    # Commit.

    def _commit(self, now_ms: int, event: CommitOffsets, result: GroupResult) -> None:
        group = self._state.group(event.group)
        refused = _told(event, _unknown_group_error(event) if group is None else group.check_commit(event))
        if group is not None and refused is ErrorCode.NONE:
            group.committed(now_ms, event)
        errors: list[tuple[TopicPartition, ErrorCode]] = []
        for wanted in event.offsets:
            error = refused or self._offset_error(wanted)
            if error is ErrorCode.NONE and group is not None:
                error = _told(event, group.check_offset(event, wanted))
            errors.append((wanted.topic_partition, error))
            if error is ErrorCode.NONE:
                result.writes.append(_record(event, wanted))
        result.replies.append((event.request_id, CommitOutcome(errors)))

    def _offset_error(self, wanted: OffsetToCommit) -> ErrorCode:
        longest = self._state.settings.offset_metadata_max_bytes
        if wanted.metadata is not None and len(wanted.metadata) > longest:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    # Fetch.

    def _fetch(self, now_ms: int, event: FetchOffsets, result: GroupResult) -> None:
        result.replies.append((event.request_id, self._fetched(event)))

    def _fetched(self, event: FetchOffsets) -> FetchedOffsets:
        name = event.group
        group = self._state.group(name)
        if group is None:
            return FetchedOffsets()
        error = group.check_fetch(event.member_id, event.member_epoch)
        if error is not ErrorCode.NONE:
            return FetchedOffsets(error=error)
        store = self.store
        if event.partitions is None:
            found = {TopicPartition(topic, partition): value for topic, partition, value in store.of_group(name)}
        else:
            found = {}
            for place in event.partitions:
                value = store.get(name, *place)
                if value is not None:
                    found[place] = value
        unstable: set[TopicPartition] = set()
        if event.require_stable and store.has_open_transactions(name):
            asked = found if event.partitions is None else event.partitions
            unstable.update(place for place in asked if store.is_pending(name, *place))
        offsets = {place: decode_offset(value) for place, value in found.items() if place not in unstable}
        return FetchedOffsets(
            {place: value for place, value in offsets.items() if not self._is_of_former_topic(place, value)}, unstable
        )

    def _is_of_former_topic(self, place: TopicPartition, committed: CommittedOffset) -> bool:
        """Whether the offset was committed for a topic that was deleted, and another one has its name now.

        The event of the deletion may have been missed; both ids must be known to differ, as in Kafka.
        """
        view = self._state.metadata
        known = None if view is None else view.topics.get(place.topic)
        return known is not None and committed.topic_id not in (ZERO_TOPIC_ID, known.topic_id)

    # Delete.

    def _delete(self, now_ms: int, event: DeleteOffsets, result: GroupResult) -> None:
        group = self._state.group(event.group)
        refused = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_delete_offsets()
        if group is None or refused is not ErrorCode.NONE:
            result.replies.append((event.request_id, DeletedOffsets(refused)))
            return
        errors: list[tuple[TopicPartition, ErrorCode]] = []
        for place in event.partitions:
            topic, partition = place
            if group.is_subscribed(topic):
                errors.append((place, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC))
                continue
            errors.append((place, ErrorCode.NONE))
            if self._has(event.group, topic, partition):
                result.writes.append(OffsetRecord(event.group, topic, partition, None))
        result.replies.append((event.request_id, DeletedOffsets(ErrorCode.NONE, errors)))

    def _has(self, group: str, topic: str, partition: int) -> bool:
        store = self.store
        return store.get(group, topic, partition) is not None or store.is_pending(group, topic, partition)

    def tombstones(self, group: str) -> Iterator[OffsetRecord]:
        """What to write so that the group has no offsets, committed or pending."""
        places = [(topic, partition) for topic, partition, _ in self.store.of_group(group)]
        for topic, partition in dict.fromkeys([*places, *self.store.pending_of_group(group)]):
            yield OffsetRecord(group, topic, partition, None)

    def _forget(self, now_ms: int, event: ForgetPartitions, result: GroupResult) -> None:
        """A deleted topic's offsets go, those of transactions under way too."""
        deleted: dict[str, dict[int, None]] = {}
        for topic, partition in event.partitions:
            deleted.setdefault(topic, {})[partition] = None
        store = self.store
        for group in store.groups():
            topics = deleted if store.has_open_transactions(group) else store.committed[group].keys() & deleted
            for topic in sorted(topics):
                for partition in deleted[topic]:
                    if self._has(group, topic, partition):
                        result.writes.append(OffsetRecord(group, topic, partition, None))

    # Expiry.

    def _expire(self, now_ms: int, event: ExpireOffsets, result: GroupResult) -> None:
        state = self._state
        names = event.groups
        if names is None:
            # The same rule holds for groups that never committed anything, when they have no members.
            names = list(dict.fromkeys([*state.groups, *self.store.committed]))
        seen = 0
        for count, name in enumerate(names):
            if seen >= EXPIRY_OFFSETS_MAX:
                result.replies.append((event.request_id, Remaining(names[count:])))
                return
            seen += 1
            group = state.group(name)
            if group is None:
                continue
            since_ms = group.offsets_expire_from_ms
            all_gone = True
            for topic, partition, value in self.store.of_group(name):
                seen += 1
                if (
                    since_ms is not None
                    and not group.is_subscribed(topic)
                    and _is_expired(decode_offset(value), since_ms, event)
                    and not self.store.is_pending(name, topic, partition)
                ):
                    result.writes.append(OffsetRecord(name, topic, partition, None))
                else:
                    all_gone = False
            # A share group, whose offsets never expire here, goes when it is deleted.
            if since_ms is not None and all_gone and group.is_empty and not self.store.has_open_transactions(name):
                result.writes.extend(group.tombstones())
        result.replies.append((event.request_id, Remaining()))


def _is_expired(committed: CommittedOffset, since_ms: int, event: ExpireOffsets) -> bool:
    if committed.expire_timestamp_ms != NEVER:
        # By the client's own wish, which only clients before OffsetCommit v5 have.
        return event.wall_ms >= committed.expire_timestamp_ms
    base_ms = committed.commit_timestamp_ms if since_ms == FROM_COMMIT else since_ms
    return event.wall_ms - base_ms >= event.retention_ms


def _unknown_group_error(event: CommitOffsets) -> ErrorCode:
    """A client that claims no membership may begin a group by committing to it."""
    if event.generation <= NO_GENERATION:
        return ErrorCode.NONE
    if event.producer is None and event.api_version >= GROUP_NOT_FOUND_SINCE:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.ILLEGAL_GENERATION


def _told(event: CommitOffsets, error: ErrorCode) -> ErrorCode:
    """The error as the client knows it: TxnOffsetCommit has no member epochs."""
    is_stale = event.producer is not None and error is ErrorCode.STALE_MEMBER_EPOCH
    return ErrorCode.ILLEGAL_GENERATION if is_stale else error


def _record(event: CommitOffsets, wanted: OffsetToCommit) -> OffsetRecord:
    topic, partition = wanted.topic_partition
    expires = NEVER
    if event.retention_ms != BROKER_RETENTION:
        expires = min(event.wall_ms + event.retention_ms, _TIME_MAX)
    value = CommittedOffset(
        wanted.offset, wanted.leader_epoch, wanted.metadata or "", event.wall_ms, expires, wanted.topic_id
    )
    return OffsetRecord(event.group, topic, partition, value.encode(), event.producer)
