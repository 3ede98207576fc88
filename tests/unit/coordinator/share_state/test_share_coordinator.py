"""What is stored of share partitions: fences, snapshots, what a log brings back. As Kafka 4.3 answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tidelog.coordinator.share_state.coordinator import ShareCoordinator
from tidelog.coordinator.share_state.events import (
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
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicId
from tidelog.protocol import messages
from tidelog.sharing.records import StateBatch

KEY = ShareKey("g", TopicId(bytes(15) + b"t"), 0)


class Coordinator:
    """A coordinator, and the log that it writes."""

    def __init__(self, updates_per_snapshot: int = 500) -> None:
        self.machine = ShareCoordinator(updates_per_snapshot)
        self.log: list[tuple[bytes, bytes | None]] = []
        self._updates = updates_per_snapshot

    def ask(self, event: Any) -> Any:
        ((_, reply),) = self.tell(event)
        return reply

    def tell(self, event: Any) -> list[Any]:
        """The replies."""
        result = self.machine.handle(0, event)
        for record in result.writes:
            self.machine.replay(record)
            self.log.append(record.encode())
        assert self.loaded() == self.machine
        return result.replies

    def loaded(self, first: int = 0) -> ShareCoordinator:
        """What the next coordinator makes of the log."""
        machine = ShareCoordinator(self._updates)
        for key, value in self.log[first:]:
            machine.load(key, value, None)
        return machine

    def write(self, *batches: StateBatch, state_epoch: int = 2, leader_epoch: int = 3, start: int = 5) -> StateReply:
        reply: StateReply = self.ask(WriteState(1, KEY, state_epoch, leader_epoch, start, batches, 9, 1))
        return reply

    def read(self, leader_epoch: int = 3) -> StateReply:
        reply: StateReply = self.ask(ReadState(1, KEY, leader_epoch, 9))
        return reply


def initialized(updates_per_snapshot: int = 500) -> Coordinator:
    coordinator = Coordinator(updates_per_snapshot)
    assert coordinator.ask(InitializeState(1, KEY, 2, 5, 9)) == StateReply()
    assert coordinator.read().start_offset == 5
    return coordinator


def test_what_was_never_initialized_is_neither_read_nor_written() -> None:
    coordinator = Coordinator()
    assert coordinator.read().error is ErrorCode.INVALID_REQUEST
    assert coordinator.write().error is ErrorCode.INVALID_REQUEST
    assert coordinator.ask(SummarizeState(1, KEY)).start_offset == -1
    assert coordinator.ask(DeleteState(1, KEY)) == StateReply()
    assert coordinator.log == []


def test_former_leaders_and_former_states_are_fenced() -> None:
    coordinator = initialized()
    assert coordinator.read(2).error is ErrorCode.FENCED_LEADER_EPOCH
    assert coordinator.write(leader_epoch=2).error is ErrorCode.FENCED_LEADER_EPOCH
    assert coordinator.write(state_epoch=1).error is ErrorCode.FENCED_STATE_EPOCH
    assert coordinator.ask(InitializeState(1, KEY, 1, 0, 9)).error is ErrorCode.FENCED_STATE_EPOCH


@pytest.mark.parametrize("start", [-1, 5])
@pytest.mark.parametrize("batch", [StateBatch(7, 9, 2, 1), None])
def test_a_request_to_initialize_that_arrives_twice_takes_nothing_away(start: int, batch: StateBatch | None) -> None:
    """The second one may come when members have acknowledged records: they are not delivered again."""
    coordinator = Coordinator()
    first = InitializeState(1, KEY, 2, start, 9)
    coordinator.ask(first)
    assert coordinator.ask(first) == StateReply()
    assert coordinator.read().start_offset == start
    assert coordinator.ask(first) == StateReply(), "a leader has read, and no more"
    coordinator.write(*([] if batch is None else [batch]), start=6)
    before = coordinator.read()
    assert coordinator.ask(first) == StateReply()
    assert coordinator.read() == before
    assert coordinator.ask(InitializeState(1, KEY, 3, 5, 9)) == StateReply()
    assert (coordinator.read().start_offset, coordinator.read().batches) == (5, ()), "a later epoch begins anew"


def test_what_is_initialized_again_before_anything_was_written_begins_where_it_was_told_to_last() -> None:
    coordinator = Coordinator()
    coordinator.ask(InitializeState(1, KEY, 2, 5, 9))
    coordinator.ask(InitializeState(1, KEY, 2, 7, 9))
    assert coordinator.read().start_offset == 7


@pytest.mark.parametrize("updates_per_snapshot", [1, 500])
def test_state_that_is_there_is_kept_where_a_member_wants_some(updates_per_snapshot: int) -> None:
    """The group's coordinator may have died when offsets were about to be altered: it does not know then what there is.
    To begin anew would deliver records again, or pass over records that no member has got."""
    coordinator = initialized(updates_per_snapshot)
    coordinator.write(StateBatch(7, 9, 2, 1), start=6)
    before = coordinator.read()
    assert coordinator.ask(InitializeState(1, KEY, 3, -1, 9)) == StateReply()
    assert coordinator.read() == replace(before, state_epoch=3)
    assert coordinator.write(state_epoch=2).error is ErrorCode.FENCED_STATE_EPOCH
    coordinator.write(StateBatch(6, 6, 2, 1), state_epoch=3, start=6)
    assert coordinator.read().batches == (StateBatch(6, 9, 2, 1),)


def test_writes_add_up() -> None:
    coordinator = initialized()
    coordinator.write(StateBatch(5, 9, 2, 1), StateBatch(10, 19, 0, 1))
    coordinator.write(StateBatch(12, 13, 2, 2), StateBatch(20, 21, 4, 5), start=10)
    coordinator.write(StateBatch(14, 14, 0, 0), start=-1)
    reply = coordinator.read()
    assert (reply.state_epoch, reply.start_offset) == (2, 10)
    assert reply.batches == ((10, 11, 0, 1), (12, 13, 2, 2), (14, 19, 0, 1), (20, 21, 4, 5))


def test_a_write_that_comes_late_takes_nothing_back() -> None:
    """It was sent again on another connection, and the first copy comes behind what was written since."""
    coordinator = initialized()
    coordinator.write(StateBatch(5, 9, 2, 1))
    coordinator.write(StateBatch(10, 19, 2, 1), start=10)
    coordinator.write(StateBatch(20, 24, 0, 1), start=20)
    coordinator.write(StateBatch(5, 9, 2, 1))
    reply = coordinator.read()
    assert (reply.start_offset, reply.batches) == (20, ((20, 24, 0, 1),))


def test_malformed_batches_are_refused() -> None:
    coordinator = initialized()
    for batch in (StateBatch(9, 5, 2, 1), StateBatch(5, 9, 1, 1), StateBatch(5, 9, 7, 1), StateBatch(5, 9, 0, -1)):
        assert coordinator.write(batch).error is ErrorCode.INVALID_REQUEST


def test_after_so_many_updates_comes_a_snapshot() -> None:
    coordinator = initialized(3)
    for offset in range(5, 10):
        coordinator.write(StateBatch(offset, offset, 2, 1))
    assert {messages.ShareSnapshotKey.RECORD_TYPE, messages.ShareUpdateKey.RECORD_TYPE} == {
        int.from_bytes(key[:2], "big") for key, _ in coordinator.log
    }
    last_snapshot = max(place for place, (key, _) in enumerate(coordinator.log) if key[:2] == b"\x00\x00")
    assert last_snapshot > 0
    assert coordinator.loaded(last_snapshot) == coordinator.machine


def test_nothing_before_a_snapshot_of_all_is_needed() -> None:
    coordinator = initialized()
    coordinator.write(StateBatch(5, 9, 2, 1))
    before = len(coordinator.log)
    assert coordinator.ask(SnapshotAll(1, 9)).rest == []
    assert coordinator.loaded(before) == coordinator.machine


def test_what_is_deleted_is_gone() -> None:
    coordinator = initialized()
    coordinator.ask(DeleteState(1, KEY))
    assert coordinator.read().error is ErrorCode.INVALID_REQUEST
    assert coordinator.loaded().states == {}


def test_the_state_of_deleted_topics_goes() -> None:
    coordinator = initialized()
    other = KEY._replace(topic_id=TopicId(bytes(15) + b"o"))
    coordinator.ask(InitializeState(1, other, 2, 5, 9))
    coordinator.ask(InitializeState(1, KEY._replace(partition=1), 2, 5, 9))
    coordinator.tell(ForgetTopics(frozenset({KEY.topic_id})))
    assert list(coordinator.machine.states) == [other]
    assert coordinator.loaded() == coordinator.machine
