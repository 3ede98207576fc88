"""The share coordinator: what is stored of the share partitions that hash to one partition of `__share_group_state`.

    InitializeState  --> snapshot             the group coordinator's, when a group gets a partition
    ReadState        --> update of the epoch  a leader's, once: it fences former ones
    WriteState       --> update, or snapshot  a leader's, for whatever members acknowledge
    DeleteState      --> tombstone
    ForgetTopics     --> tombstones           topics were deleted

Nothing of it knows what records are; leaders decide, this remembers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Final

from tidelog.coordinator.result import Result
from tidelog.coordinator.share_state import state as states
from tidelog.coordinator.share_state.events import (
    UNINITIALIZED_START,
    DeleteState,
    ForgetTopics,
    InitializeState,
    ReadState,
    ShareKey,
    SnapshotAll,
    StateReply,
    SummarizeState,
    WriteState,
)
from tidelog.coordinator.share_state.state import ShareState
from tidelog.coordinator.state_machine import Remaining, StateMachine, TimePassed
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicId
from tidelog.protocol import messages
from tidelog.protocol.coordinator_records import SHARE_GROUP_STATE
from tidelog.sharing.records import STORED, StateBatch, combine

UPDATES_PER_SNAPSHOT: Final = 500
"""share.coordinator.snapshot.update.records.per.snapshot."""
SNAPSHOTS_PER_TURN: Final = 50
"""Share partitions whose state one SnapshotAll writes; each may hold thousands of batches."""

_FENCED_STATE: Final = "The share coordinator rejected the request because the share-group state epoch did not match."
_FENCED_LEADER: Final = "The leader epoch in the request is older than the epoch on the broker."


class ShareCoordinator(StateMachine):
    """State of one partition."""

    TOPIC: ClassVar[str] = SHARE_GROUP_STATE
    READS: ClassVar[frozenset[type]] = frozenset({SummarizeState, TimePassed})
    DIVISIBLE: ClassVar[frozenset[type]] = frozenset({SnapshotAll, ForgetTopics})

    def __init__(self, updates_per_snapshot: int = UPDATES_PER_SNAPSHOT) -> None:
        self.states: dict[ShareKey, ShareState] = {}
        self._updates_per_snapshot = updates_per_snapshot

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShareCoordinator) and self.states == other.states

    __hash__ = None  # type: ignore[assignment]  # It changes.

    def handle(self, now_ms: int, event: Any) -> Result[Any, Any]:
        result: Result[Any, Any] = Result()
        match event:
            case InitializeState():
                reply: Any = self._initialize(event, result)
            case ReadState():
                reply = self._read(event, result)
            case WriteState():
                reply = self._write(event, result)
            case DeleteState():
                if event.key in self.states:
                    result.writes.append(states.deletion(event.key))
                reply = StateReply()
            case SummarizeState():
                reply = self._summary(event)
            case SnapshotAll():
                reply = self._snapshot_all(event, result)
            case ForgetTopics():
                gone = [key for key in sorted(self.states) if key.topic_id in event.topics]
                result.writes.extend(map(states.deletion, gone))
                return result
            case TimePassed():
                return result
            case _:
                raise AssertionError(f"{type(event).__name__} is not for a share coordinator")
        result.replies.append((event.request_id, reply))
        return result

    def replay(self, record: Any) -> None:
        key, value = record.key, record.value
        name = ShareKey(key.group_id, TopicId(bytes(key.topic_id)), key.partition)
        if isinstance(key, messages.ShareSnapshotKey):
            if value is None:
                self.states.pop(name, None)
            else:
                self.states[name] = states.of_snapshot(value)
        elif isinstance(key, messages.ShareUpdateKey):
            known = self.states.get(name)
            if known is not None and value is not None:
                self.states[name] = known.with_update(value)
        else:
            raise AssertionError(f"{type(key).__name__} is not about a share partition")

    def too_large(self, event: Any) -> bool:
        """Nothing but `replay` changes anything here."""
        return True

    # What it is asked.

    def _initialize(self, event: InitializeState, result: Result[Any, Any]) -> StateReply:
        known = self.states.get(event.key)
        if known is not None and event.state_epoch < known.state_epoch:
            return StateReply(ErrorCode.FENCED_STATE_EPOCH, _FENCED_STATE)
        if known is not None and (_is_repeated(event, known) or event.start_offset == UNINITIALIZED_START):
            self._take_epoch(event, known, result)
            return StateReply()
        fresh = ShareState(
            0 if known is None else known.snapshot_epoch + 1,
            event.state_epoch,
            0 if known is None else known.leader_epoch,
            event.start_offset,
            0,
            (),
            event.wall_ms,
        )
        result.writes.append(states.snapshot(event.key, fresh, event.wall_ms))
        return StateReply()

    def _take_epoch(self, event: InitializeState, known: ShareState, result: Result[Any, Any]) -> None:
        """The state is there already, and stays what it is: only its epoch is a later one, where the group's is.

        A request that names no start wants state because the group's coordinator knows of none. It may have died before
        it wrote down that there is, or when a tool was about to alter offsets.
        """
        if event.state_epoch > known.state_epoch:
            later = replace(known, snapshot_epoch=known.snapshot_epoch + 1, state_epoch=event.state_epoch, updates=0)
            result.writes.append(states.snapshot(event.key, later, event.wall_ms))

    def _read(self, event: ReadState, result: Result[Any, Any]) -> StateReply:
        known = self.states.get(event.key)
        if known is None:
            return _uninitialized("Read")
        if 0 <= event.leader_epoch < known.leader_epoch:
            return StateReply(ErrorCode.FENCED_LEADER_EPOCH, _FENCED_LEADER)
        if event.leader_epoch > known.leader_epoch:
            count = known.delivery_complete_count
            record = states.update(event.key, known, event.leader_epoch, delivery_complete_count=count)
            result.writes.append(self._record(event.key, known, record, event.wall_ms))
        return StateReply(
            state_epoch=known.state_epoch,
            leader_epoch=max(event.leader_epoch, known.leader_epoch),
            start_offset=known.start_offset,
            batches=known.batches,
            delivery_complete_count=known.delivery_complete_count,
        )

    def _write(self, event: WriteState, result: Result[Any, Any]) -> StateReply:
        known = self.states.get(event.key)
        if known is None:
            return _uninitialized("Write")
        if 0 <= event.leader_epoch < known.leader_epoch:
            return StateReply(ErrorCode.FENCED_LEADER_EPOCH, _FENCED_LEADER)
        if 0 <= event.state_epoch < known.state_epoch:
            return StateReply(ErrorCode.FENCED_STATE_EPOCH, _FENCED_STATE)
        if not all(map(_is_sound, event.batches)):
            return StateReply(ErrorCode.INVALID_REQUEST, "The state batches are not valid.")
        record = states.update(
            event.key,
            known,
            known.leader_epoch,
            event.start_offset,
            combine((), event.batches, 0),
            event.delivery_complete_count,
        )
        result.writes.append(self._record(event.key, known, record, event.wall_ms))
        return StateReply()

    def _record(self, key: ShareKey, known: ShareState, record: Any, wall_ms: int) -> Any:
        """An update, or a snapshot in its place where there have been many."""
        if known.updates + 1 < self._updates_per_snapshot:
            return record
        after = known.with_update(record.value)
        return states.snapshot(key, replace(after, snapshot_epoch=after.snapshot_epoch + 1), wall_ms)

    def _summary(self, event: SummarizeState) -> StateReply:
        known = self.states.get(event.key)
        if known is None:
            return StateReply(start_offset=UNINITIALIZED_START)
        return StateReply(
            state_epoch=known.state_epoch,
            leader_epoch=known.leader_epoch,
            start_offset=known.start_offset,
            delivery_complete_count=known.delivery_complete_count,
        )

    def _snapshot_all(self, event: SnapshotAll, result: Result[Any, Any]) -> Remaining:
        keys = sorted(self.states) if event.rest is None else event.rest
        for key in keys[:SNAPSHOTS_PER_TURN]:
            known = self.states.get(key)
            if known is not None:
                again = replace(known, snapshot_epoch=known.snapshot_epoch + 1, updates=0)
                result.writes.append(states.snapshot(key, again, event.wall_ms))
        return Remaining(keys[SNAPSHOTS_PER_TURN:])


def _uninitialized(what: str) -> StateReply:
    return StateReply(ErrorCode.INVALID_REQUEST, f"{what} operation on uninitialized share partition not allowed.")


def _is_repeated(event: InitializeState, known: ShareState) -> bool:
    """Whether the state was made by the same request before, and has been written to since.

    A group coordinator that is not answered in time asks again, and either request may be the later one to arrive.
    """
    has_moved = known.start_offset != event.start_offset and known.updates > 0
    return event.state_epoch == known.state_epoch and (bool(known.batches) or has_moved)


def _is_sound(batch: StateBatch) -> bool:
    return 0 <= batch.first_offset <= batch.last_offset and batch.state in STORED and batch.delivery_count >= 0
