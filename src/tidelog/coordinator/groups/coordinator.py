"""The coordinator of the groups that hash to one partition of `__consumer_offsets`.

    event    --by its class-->          Offsets | classic | consumer | share groups  -->  writes, replies, deadlines
    record   --by its key's class-->    the same, each its own
    deadline --by its kind-->           the same

What they share is `CoordinatorState`: the coordinator is one, which its parts take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from tidelog.coordinator.groups.classic.events import DescribeGroup, Heartbeat
from tidelog.coordinator.groups.classic.groups import ClassicGroups
from tidelog.coordinator.groups.consumer.events import DescribeConsumerGroup
from tidelog.coordinator.groups.consumer.groups import ConsumerGroups
from tidelog.coordinator.groups.counts import GroupCounts
from tidelog.coordinator.groups.events import (
    DeletedGroups,
    DeleteGroups,
    GroupListing,
    ListedGroup,
    ListGroups,
)
from tidelog.coordinator.groups.offset_events import CommitOffsets, ExpireOffsets, FetchOffsets, ForgetPartitions
from tidelog.coordinator.groups.offsets import Offsets
from tidelog.coordinator.groups.refusals import RefusalLog
from tidelog.coordinator.groups.share.events import DescribeShareGroup, ForgetTopics, ShareGroupPartitions
from tidelog.coordinator.groups.share.groups import ShareGroups
from tidelog.coordinator.groups.state import CoordinatorState
from tidelog.coordinator.records import OffsetRecord, PreparedRecords, decode_offset_key, decode_record
from tidelog.coordinator.result import Result
from tidelog.coordinator.state_machine import StateMachine, TimePassed
from tidelog.model.errors import ErrorCode
from tidelog.protocol.coordinator_records import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from tidelog.coordinator.groups.part import DeadlineHandler, EventHandler, GroupResult, Part, Replayer
    from tidelog.coordinator.groups.settings import GroupSettings

_OFFSET_KEYS: Final = (b"\x00\x01", b"\x00\x00")
"""How the keys of offsets begin."""


class GroupCoordinator(CoordinatorState, StateMachine):
    """ClassicGroupState of one partition. `handle` decides; of what is in the log, `replay` alone changes anything."""

    TOPIC: ClassVar[str] = CONSUMER_OFFSETS
    DIVISIBLE: ClassVar[frozenset[type]] = frozenset({DeleteGroups, ExpireOffsets, ForgetPartitions, ForgetTopics})
    READS: ClassVar[frozenset[type]] = frozenset(
        {
            DescribeConsumerGroup,
            DescribeGroup,
            DescribeShareGroup,
            FetchOffsets,
            Heartbeat,
            ListGroups,
            ShareGroupPartitions,
        }
    )

    def __init__(self, settings: GroupSettings | None = None, counts: GroupCounts | None = None) -> None:
        super().__init__(settings)
        self._counts = GroupCounts() if counts is None else counts
        self._refusals = RefusalLog()
        self.offsets = Offsets(self)
        self.classic = ClassicGroups(self)
        self.consumers = ConsumerGroups(self)
        self.classic.compatibility = self.consumers
        self.shares = ShareGroups(self)
        self._handlers: dict[type, EventHandler] = {
            TimePassed: self._time_passed,
            ListGroups: self._list,
            DeleteGroups: self._delete,
        }
        self._replayers: dict[type, Replayer] = {}
        self._deadline_handlers: dict[str, DeadlineHandler] = {}
        self._parts: list[Part] = [self.offsets, self.classic, self.consumers, self.shares]
        for part in self._parts:
            self._handlers |= part.handlers()
            self._replayers |= part.replayers()
            self._deadline_handlers |= part.deadlines()

    def __eq__(self, other: object) -> bool:
        """Whether the log that made `other` would have made this one."""
        return (
            isinstance(other, GroupCoordinator)
            and self.groups == other.groups
            and self.offsets.store == other.offsets.store
        )

    __hash__ = None  # type: ignore[assignment]  # It changes.

    def __len__(self) -> int:
        """Offsets held."""
        return len(self.offsets.store)

    # The shell's side.

    @property
    def next_due_ms(self) -> int | None:
        return self.deadlines.next_due_ms

    def handle(self, now_ms: int, event: Any) -> GroupResult:
        result: GroupResult = Result()
        self._handlers[type(event)](now_ms, event, result)
        if result.replies:
            self._refusals.look(now_ms, event, result.replies, self.groups)
        if result.writes:
            self._counts.wrote(event, result.writes)
        return result

    def replay(self, record: Any) -> None:
        if type(record) is OffsetRecord:
            self.offsets.store.replay(record)
            return
        if type(record) is PreparedRecords:
            self._replayers[type(record.key)](record.key, None)
            return
        key, value, _, _ = record
        # KeyError for a write of our own that no part claims: `load` would forget it without a word.
        self._replayers[type(key)](key, value)

    def load(self, key: bytes | None, value: bytes | None, producer: tuple[int, int] | None) -> None:
        if key is not None and key[:2] in _OFFSET_KEYS:
            store = self.offsets.store
            if producer is None:
                store.load(key, value)
            else:
                store.replay(OffsetRecord(*decode_offset_key(key), value, producer))
            return
        record = decode_record(self.TOPIC, key, value, producer)
        if type(record.key) in self._replayers:
            # Groups of a kind that is not served are left alone: what Kafka wrote stays in the log.
            self.replay(record)

    def loaded(self, now_ms: int, wall_ms: int) -> GroupResult:
        result: GroupResult = Result()
        for part in self._parts:
            part.loaded(now_ms, wall_ms, result)
        return result

    def transaction_ended(self, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        self.offsets.store.transaction_ended(producer_id, committed=committed)

    def too_large(self, event: Any) -> bool:
        return type(event) is CommitOffsets

    # What concerns all kinds of groups.

    def _time_passed(self, now_ms: int, event: TimePassed, result: GroupResult) -> None:
        key = self.deadlines.pop_due(now_ms)
        if key is not None:
            assert isinstance(key, tuple)
            self._deadline_handlers[key[0]](now_ms, event.wall_ms, key, result)

    def _list(self, now_ms: int, event: ListGroups, result: GroupResult) -> None:
        found = []
        for name in sorted({*self.groups, *self.offsets.store.groups()}):
            group = self.group(name)
            if group is not None:
                found.append(ListedGroup(name, group.protocol_type, group.state, group.kind))
        result.replies.append((event.request_id, GroupListing(found)))

    def _delete(self, now_ms: int, event: DeleteGroups, result: GroupResult) -> None:
        errors = []
        for name in dict.fromkeys(event.groups):
            group = self.group(name)
            if group is None:
                errors.append((name, ErrorCode.GROUP_ID_NOT_FOUND))
            elif not group.is_empty:
                errors.append((name, ErrorCode.NON_EMPTY_GROUP))
            else:
                errors.append((name, ErrorCode.NONE))
                result.writes.extend(self.offsets.tombstones(name))
                result.writes.extend(group.tombstones())
        result.replies.append((event.request_id, DeletedGroups(errors)))
