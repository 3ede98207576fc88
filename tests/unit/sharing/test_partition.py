"""A share partition, step by step. Where Kafka 4.3 was asked the same, its answers are what is expected."""

from __future__ import annotations

import pytest

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.sharing import partition as partition_module
from tidelog.sharing.partition import Acknowledgement, Acquired, ReadBatch, SharePartition
from tidelog.sharing.records import RecordState, StateBatch
from tidelog.sharing.settings import ShareSettings

TWO_BATCHES = [ReadBatch(0, 9), ReadBatch(10, 19)]


def deliver(partition: SharePartition, member: str = "a", records_max: int = 500) -> list[Acquired]:
    """What `member` gets of two batches of ten."""
    offset = partition.next_fetch_offset
    batches = [batch for batch in TWO_BATCHES if batch.last_offset >= offset]
    return partition.acquire(0, member, batches, records_max)


def release(partition: SharePartition, member: str = "a") -> None:
    """`member` gives back all that it holds."""
    held = [
        Acknowledgement(run.first, run.last, [2]) for run in partition.runs if run.is_locked and run.member == member
    ]
    partition.written(partition.acknowledge(0, member, held))


def told(partition: SharePartition, *acknowledgements: tuple[int, int, int], member: str = "a") -> list[StateBatch]:
    """Acknowledges, and has it written."""
    change = partition.acknowledge(0, member, [Acknowledgement(a, b, [kind]) for a, b, kind in acknowledgements])
    batches = change.batches()
    partition.written(change)
    return batches


def test_whole_batches_are_acquired() -> None:
    partition = SharePartition(0)
    assert partition.acquire(0, "a", TWO_BATCHES, 5) == [(0, 9, 1)]
    assert partition.acquire(0, "b", TWO_BATCHES[1:], 5) == [(10, 19, 1)]
    assert deliver(partition) == []


def test_what_is_released_during_a_read_waits_for_the_next_one() -> None:
    """It is not among what was read: it must not be taken for a gap."""
    partition = SharePartition(0)
    partition.acquire(0, "a", TWO_BATCHES[:1], 10)
    read_from = partition.next_fetch_offset
    assert told(partition, (4, 4, 2)) == [(4, 4, RecordState.AVAILABLE, 1)]
    assert partition.acquire(0, "b", TWO_BATCHES[1:], 10, read_from=read_from) == [(10, 19, 1)]
    assert partition.next_fetch_offset == 4
    assert partition.acquire(0, "b", TWO_BATCHES, 10, read_from=4) == [(4, 4, 2)]


def test_strictly_as_many_records_as_asked_for_are_acquired() -> None:
    partition = SharePartition(0)
    assert partition.acquire(0, "a", TWO_BATCHES, 12, is_strict=True) == [(0, 9, 1), (10, 11, 1)]
    assert partition.next_fetch_offset == 12


def test_acquired_records_are_told_in_batches_of_the_size_that_was_asked_for() -> None:
    small = [ReadBatch(n, n) for n in range(6)]
    partition = SharePartition(0)
    assert partition.acquire(0, "a", small, 6, batch_size=4) == [(0, 3, 1), (4, 5, 1)]


def test_the_start_moves_over_what_is_acknowledged_once_it_is_written() -> None:
    partition = SharePartition(0)
    deliver(partition)
    change = partition.acknowledge(0, "a", [Acknowledgement(0, 4, [1]), Acknowledgement(6, 6, [3])])
    assert (partition.start_offset, partition.delivery_complete_count) == (0, 6)
    assert change.batches() == [(0, 4, RecordState.ACKNOWLEDGED, 1), (6, 6, RecordState.ARCHIVED, 1)]
    partition.written(change)
    assert (partition.start_offset, partition.delivery_complete_count) == (5, 1)


def test_what_is_said_of_records_below_the_start_is_passed_over() -> None:
    partition = SharePartition(0)
    deliver(partition)
    told(partition, (0, 4, 1))
    assert told(partition, (0, 4, 1)) == []
    assert told(partition, (3, 6, 1)) == [(5, 6, RecordState.ACKNOWLEDGED, 1)]


@pytest.mark.parametrize(
    ("acknowledgement", "member", "code"),
    [
        (Acknowledgement(5, 5, [1]), "b", ErrorCode.INVALID_RECORD_STATE),
        (Acknowledgement(2, 2, [1]), "a", ErrorCode.INVALID_RECORD_STATE),
        (Acknowledgement(15, 25, [1]), "a", ErrorCode.INVALID_REQUEST),
        (Acknowledgement(25, 30, [1]), "a", ErrorCode.INVALID_REQUEST),
        (Acknowledgement(5, 5, [9]), "a", ErrorCode.INVALID_REQUEST),
        (Acknowledgement(5, 7, [1, 1]), "a", ErrorCode.INVALID_REQUEST),
        (Acknowledgement(7, 5, [1]), "a", ErrorCode.INVALID_REQUEST),
        (Acknowledgement(-3, -1, [1]), "a", ErrorCode.INVALID_REQUEST),
        (Acknowledgement(5, 5, []), "a", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_refused_changes_nothing(acknowledgement: Acknowledgement, member: str, code: ErrorCode) -> None:
    partition = SharePartition(0)
    deliver(partition)
    told(partition, (2, 2, 1))
    before = [repr(run) for run in partition.runs]
    with pytest.raises(KafkaError) as refused:
        partition.acknowledge(0, member, [Acknowledgement(0, 1, [1]), acknowledgement])
    assert refused.value.code is code
    assert [repr(run) for run in partition.runs] == before


@pytest.mark.parametrize(
    ("batches", "code"),
    [
        ([(6, 6), (5, 5)], ErrorCode.INVALID_REQUEST),
        ([(5, 8), (7, 9)], ErrorCode.INVALID_REQUEST),
        ([(5, 5), (5, 5)], ErrorCode.INVALID_RECORD_STATE),
        ([(5, 7), (7, 9)], ErrorCode.INVALID_RECORD_STATE),
    ],
)
def test_batches_that_are_not_in_order_or_name_a_record_twice_are_refused(
    batches: list[tuple[int, int]], code: ErrorCode
) -> None:
    """As by Kafka: what the client meant by the record's second type would be lost without a word."""
    partition = SharePartition(0)
    deliver(partition)
    with pytest.raises(KafkaError) as refused:
        partition.acknowledge(0, "a", [Acknowledgement(first, last, [1]) for first, last in batches])
    assert refused.value.code is code
    assert partition.acknowledge(0, "a", [Acknowledgement(5, 9, [1])]).batches(), "nothing was changed"


def test_a_record_is_archived_when_it_was_delivered_as_often_as_it_may_be() -> None:
    partition = SharePartition(0, settings=ShareSettings(delivery_count_limit=2))
    for count in (1, 2):
        assert deliver(partition, records_max=1)[-1].delivery_count == count
        release(partition)
    assert partition.start_offset == 10
    assert deliver(partition) == [(10, 19, 1)]


def test_what_was_delivered_often_comes_by_itself_and_ever_less_of_it() -> None:
    partition = SharePartition(0)
    got = []
    for _ in range(5):
        got.append(deliver(partition))
        release(partition)
    assert got == [
        [(0, 9, 1), (10, 19, 1)],
        [(0, 9, 2), (10, 19, 2)],
        [(0, 9, 3), (10, 19, 3)],
        [(0, 4, 4)],
        [(0, 0, 5)],
    ]
    assert partition.start_offset == 1
    assert deliver(partition) == [(1, 1, 5)]


def test_sessions_that_end_count_no_delivery() -> None:
    """As in Kafka 4.1: their members have not failed with what they held. What is not stored is held as before."""
    partition = SharePartition(0)
    for number in range(6):
        member = f"m{number}"
        assert deliver(partition, member) == [(0, 9, 1), (10, 19, 1)]
        change = partition.release(member)
        assert change.batches() == [(0, 19, RecordState.AVAILABLE, 0)]
        partition.written(change)
    assert deliver(partition) == [(0, 9, 1), (10, 19, 1)]
    partition.failed(0, partition.release("a"))
    assert told(partition, (0, 19, 2)) == [(0, 19, RecordState.AVAILABLE, 1)]


def test_what_a_strict_fetch_leaves_of_a_batch_is_not_passed_over() -> None:
    """Of the second batch, records that were delivered often come by themselves: not behind others."""
    partition = SharePartition(0)
    batches = [ReadBatch(0, 4), ReadBatch(5, 104), ReadBatch(105, 120)]
    assert partition.acquire(0, "a", batches, 5, is_strict=True) == [(0, 4, 1)]
    for count in (1, 2, 3):
        assert partition.acquire(0, "b", batches[1:], 5, read_from=5, is_strict=True) == [(5, 9, count)]
        told(partition, (5, 9, 2), member="b")
    told(partition, (0, 4, 2))
    assert partition.acquire(0, "c", batches, 10, is_strict=True) == [(0, 4, 2)]
    assert partition.end_offset <= 104


def test_a_lock_ends_when_its_time_is_over_unless_it_was_renewed() -> None:
    partition = SharePartition(0, settings=ShareSettings(record_lock_duration_ms=100))
    partition.acquire(0, "a", TWO_BATCHES, 500)
    assert partition.next_due_ms == 100
    assert not partition.acknowledge(50, "a", [Acknowledgement(0, 4, [4])]).runs
    assert partition.time_passed(99).runs == []
    change = partition.time_passed(100)
    assert change.batches() == [(5, 19, RecordState.AVAILABLE, 1)]
    assert partition.next_due_ms == 150
    assert not partition.can_acquire(20)
    partition.written(change)
    assert partition.next_fetch_offset == 5


def test_a_change_that_is_not_written_leaves_the_lock() -> None:
    partition = SharePartition(0)
    deliver(partition)
    change = partition.acknowledge(0, "a", [Acknowledgement(0, 9, [1])])
    partition.failed(10, change)
    assert told(partition, (0, 9, 1)) == [(0, 9, RecordState.ACKNOWLEDGED, 1)]


def test_no_more_records_are_in_flight_than_may_be() -> None:
    partition = SharePartition(0, settings=ShareSettings(partition_max_record_locks=10))
    assert deliver(partition) == [(0, 9, 1)]
    assert not partition.can_acquire(20)
    told(partition, (5, 5, 1))
    assert deliver(partition) == [(10, 19, 1)]
    release(partition)
    assert deliver(partition, "b")[0] == (0, 4, 2), "what came back may be delivered whatever the limit"


def test_a_record_that_is_held_for_long_does_not_let_the_state_grow_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is behind it is settled in many ways, and stays until the start can move: it has to fit a record."""
    monkeypatch.setattr(partition_module, "RUNS_MAX", 100)
    partition = SharePartition(0)
    assert partition.acquire(0, "slow", [ReadBatch(0, 0)], 1) == [(0, 0, 1)]
    settled = 0
    while partition.can_acquire(100_000):
        first = partition.next_fetch_offset
        assert first < 1_000, "there is no end"
        partition.acquire(0, "a", [ReadBatch(first, first + 9)], 10)
        told(partition, *((offset, offset, 1 + offset % 2 * 2) for offset in range(first, first + 10)), member="a")
        settled += 10
    assert settled == 100
    assert len(partition.runs) <= 110
    assert partition.acquire(0, "a", [ReadBatch(101, 110)], 10) == []
    told(partition, (0, 0, 1), member="slow")
    assert partition.start_offset == 101
    assert partition.acquire(0, "a", [ReadBatch(101, 110)], 10) == [(101, 110, 1)]


def test_what_cannot_be_delivered_is_archived_at_once() -> None:
    partition = SharePartition(5)
    batches = [ReadBatch(8, 9), ReadBatch(10, 10, is_deliverable=False), ReadBatch(13, 14)]
    assert partition.acquire(0, "a", batches, 500) == [(8, 9, 1), (13, 14, 1)]
    assert partition.start_offset == 8
    told(partition, (8, 9, 1))
    assert partition.start_offset == 13


def test_what_was_stored_is_taken_up_where_it_was_left() -> None:
    stored = [StateBatch(5, 6, 2, 1), StateBatch(8, 9, 0, 2), StateBatch(10, 12, 4, 5)]
    partition = SharePartition(5, stored)
    assert (partition.start_offset, partition.next_fetch_offset, partition.end_offset) == (7, 7, 13)
    assert partition.acquire(0, "a", [ReadBatch(0, 20)], 500) == [(7, 7, 1), (8, 9, 3), (13, 20, 1)]


def test_the_log_s_start_takes_what_is_below_along() -> None:
    partition = SharePartition(0)
    deliver(partition)
    change = partition.acknowledge(0, "a", [Acknowledgement(0, 4, [2])])
    assert partition.start_moved(12)
    partition.written(change)
    assert told(partition, (0, 19, 1)) == [(12, 19, RecordState.ACKNOWLEDGED, 1)]
    assert partition.start_moved(40)
    assert (partition.start_offset, partition.next_fetch_offset, partition.records_in_flight) == (40, 40, 0)
