"""The coordinator of the groups that hash to one partition of `__consumer_offsets`.

    offsets   group -> topic partition -> CommittedOffset

There is no membership yet: whoever commits with generation -1 is taken for an application that assigns partitions by
itself, as Kafka does while a group is empty. A generation or member epoch belongs to a membership that cannot exist
here, so it is refused with the error by which a client joins anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog.coordinator.events import (
    BROKER_RETENTION,
    NO_GENERATION,
    CommitOffsets,
    CommitOutcome,
    Event,
    ExpireOffsets,
    FetchedOffsets,
    FetchOffsets,
    ForgetPartitions,
    GroupListing,
    ListGroups,
    OffsetToCommit,
    Reply,
)
from tidelog.coordinator.records import NEVER, CommittedOffset, OffsetKey, OffsetRecord
from tidelog.coordinator.result import Result
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicPartition


class GroupCoordinator:
    """State of one partition. `handle` decides, `replay` alone changes; so a loaded state equals a live one."""

    def __init__(self, *, metadata_size_max: int) -> None:
        self.metadata_size_max = metadata_size_max
        """offset.metadata.max.bytes: characters in the note of a commit."""
        self._offsets: dict[str, dict[TopicPartition, CommittedOffset]] = {}

    def handle(self, now_ms: int, event: Event) -> Result[OffsetRecord, Reply]:
        """What follows from `event`. `now_ms` is monotonic; wall times come with the events."""
        result: Result[OffsetRecord, Reply] = Result()
        match event:
            case CommitOffsets():
                self._commit(event, result)
            case FetchOffsets(request_id, group, partitions):
                result.replies.append((request_id, FetchedOffsets(self._fetch(group, partitions))))
            case ExpireOffsets(wall_ms, retention_ms):
                result.writes.extend(OffsetRecord(key, None) for key in self._expired(wall_ms, retention_ms))
            case ForgetPartitions(partitions):
                gone = set(partitions)
                result.writes.extend(
                    OffsetRecord(OffsetKey(group, *partition), None)
                    for group, offsets in self._offsets.items()
                    for partition in offsets
                    if partition in gone
                )
            case ListGroups(request_id):
                result.replies.append((request_id, GroupListing(sorted(self._offsets))))
        return result

    def replay(self, record: OffsetRecord) -> None:
        """Brings one record in, while loading or after it was appended."""
        group, topic, partition = record.key
        key = TopicPartition(topic, partition)
        if record.value is not None:
            self._offsets.setdefault(group, {})[key] = record.value
            return
        offsets = self._offsets.get(group)
        if offsets is not None:
            offsets.pop(key, None)
            if not offsets:
                # Without members, a group without offsets is no group.
                del self._offsets[group]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GroupCoordinator) and self._offsets == other._offsets

    __hash__ = None  # type: ignore[assignment]  # It changes.

    def __len__(self) -> int:
        """Offsets held."""
        return sum(map(len, self._offsets.values()))

    def _commit(self, event: CommitOffsets, result: Result[OffsetRecord, Reply]) -> None:
        refused = self._membership_error(event)
        errors: list[tuple[TopicPartition, ErrorCode]] = []
        for wanted in event.offsets:
            error = refused or self._offset_error(wanted)
            errors.append((wanted.topic_partition, error))
            if error is ErrorCode.NONE:
                result.writes.append(_record(event, wanted))
        result.replies.append((event.request_id, CommitOutcome(errors)))

    def _membership_error(self, event: CommitOffsets) -> ErrorCode:
        """NONE for a client that claims no membership."""
        if event.generation == NO_GENERATION:
            return ErrorCode.NONE
        if event.group in self._offsets:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.GROUP_ID_NOT_FOUND if event.knows_group_not_found else ErrorCode.ILLEGAL_GENERATION

    def _offset_error(self, wanted: OffsetToCommit) -> ErrorCode:
        if wanted.metadata is not None and len(wanted.metadata) > self.metadata_size_max:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    def _fetch(self, group: str, partitions: Sequence[TopicPartition] | None) -> dict[TopicPartition, CommittedOffset]:
        offsets = self._offsets.get(group, {})
        if partitions is None:
            return dict(offsets)
        return {partition: offsets[partition] for partition in partitions if partition in offsets}

    def _expired(self, wall_ms: int, retention_ms: int) -> Iterator[OffsetKey]:
        for group, offsets in self._offsets.items():
            for partition, committed in offsets.items():
                expires = committed.expire_timestamp_ms
                if expires == NEVER:
                    expires = committed.commit_timestamp_ms + retention_ms
                if wall_ms >= expires:
                    yield OffsetKey(group, *partition)


def _record(event: CommitOffsets, wanted: OffsetToCommit) -> OffsetRecord:
    topic, partition = wanted.topic_partition
    expires = NEVER if event.retention_ms == BROKER_RETENTION else event.wall_ms + event.retention_ms
    return OffsetRecord(
        OffsetKey(event.group, topic, partition),
        CommittedOffset(
            offset=wanted.offset,
            leader_epoch=wanted.leader_epoch,
            metadata=wanted.metadata or "",
            commit_timestamp_ms=event.wall_ms,
            expire_timestamp_ms=expires,
            topic_id=wanted.topic_id,
        ),
    )
