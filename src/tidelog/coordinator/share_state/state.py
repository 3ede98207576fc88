"""What is stored of one share partition: a snapshot, and updates since, which say what has changed. Immutable.

A snapshot is written at the beginning, and after so many updates; the coordinator that loads the log adds them up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidelog.coordinator.records import CoordinatorRecord
from tidelog.coordinator.share_state.events import NO_COUNT, UNINITIALIZED_START, ShareKey
from tidelog.protocol import messages
from tidelog.sharing.records import StateBatch, combine


@dataclass(frozen=True, slots=True)
class ShareState:
    """The state after the last record about it."""

    snapshot_epoch: int
    """Counts the snapshots."""
    state_epoch: int
    """Of the last initialization; a write of an earlier one is of the past."""
    leader_epoch: int
    """Of the leader that read last."""
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
    created_ms: int
    """Wall time of the first snapshot."""
    updates: int = 0
    """Since the last snapshot."""

    def with_update(self, value: messages.ShareUpdateValue) -> ShareState:
        """After an update; one of an earlier snapshot says nothing new, nor does an earlier start offset."""
        if value.snapshot_epoch < self.snapshot_epoch:
            return self
        start_offset = max(value.start_offset, self.start_offset)
        return replace(
            self,
            leader_epoch=max(value.leader_epoch, self.leader_epoch),
            start_offset=start_offset,
            delivery_complete_count=value.delivery_complete_count,
            batches=tuple(combine(self.batches, map(_told, value.state_batches), start_offset)),
            updates=self.updates + 1,
        )


def snapshot(key: ShareKey, state: ShareState, wall_ms: int) -> CoordinatorRecord:
    """The whole state, as one record."""
    value = messages.ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=state.created_ms,
        write_timestamp=wall_ms,
        state_batches=[
            messages.ShareSnapshotValue.StateBatch(
                first_offset=first, last_offset=last, delivery_state=kind, delivery_count=count
            )
            for first, last, kind, count in state.batches
        ],
    )
    return CoordinatorRecord(snapshot_key(key), value)


def update(
    key: ShareKey,
    state: ShareState,
    leader_epoch: int,
    start_offset: int = UNINITIALIZED_START,
    batches: Sequence[StateBatch] = (),
    delivery_complete_count: int = NO_COUNT,
) -> CoordinatorRecord:
    """What has changed of `state`."""
    value = messages.ShareUpdateValue(
        snapshot_epoch=state.snapshot_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=delivery_complete_count,
        state_batches=[
            messages.ShareUpdateValue.StateBatch(
                first_offset=first, last_offset=last, delivery_state=kind, delivery_count=count
            )
            for first, last, kind, count in batches
        ],
    )
    name = messages.ShareUpdateKey(group_id=key.group, topic_id=key.topic_id, partition=key.partition)
    return CoordinatorRecord(name, value)


def deletion(key: ShareKey) -> CoordinatorRecord:
    return CoordinatorRecord(snapshot_key(key), None)


def snapshot_key(key: ShareKey) -> messages.ShareSnapshotKey:
    return messages.ShareSnapshotKey(group_id=key.group, topic_id=key.topic_id, partition=key.partition)


def of_snapshot(value: messages.ShareSnapshotValue) -> ShareState:
    """The state that a snapshot holds."""
    return ShareState(
        value.snapshot_epoch,
        value.state_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        tuple(map(_told, value.state_batches)),
        value.create_timestamp,
    )


def _told(batch: messages.ShareSnapshotValue.StateBatch | messages.ShareUpdateValue.StateBatch) -> StateBatch:
    return StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
