"""What the driver makes of the tasks' messages, and of the mark. Pure."""

from __future__ import annotations

import pytest

from pyspark_tidelog.sink.errors import WriteStopped
from pyspark_tidelog.sink.staged import (
    Decision,
    Mark,
    StagedBatch,
    StagedWrite,
    Wanted,
    decide,
    decode_mark,
    encode_mark,
    pack,
    plan_copy,
    staging_partition,
)
from tidelog.model.identifiers import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def staged(*batches: StagedBatch, query: str = "q", batch: int = 3) -> StagedWrite:
    return StagedWrite(query, batch, "private", (A, B), pack(batches), sum(each.rows for each in batches))


def test_the_plan_names_the_winners_batches() -> None:
    """By partition and offset, with checksum and target; ranges end behind the last row."""
    plan = plan_copy(
        [staged(StagedBatch(1, 10, 7, 5, 0), StagedBatch(2, 0, 8, 1, 1)), staged(StagedBatch(1, 40, 9, 2, 0))]
    )
    assert plan.wanted == {1: {10: Wanted(7, 5, A), 40: Wanted(9, 2, A)}, 2: {0: Wanted(8, 1, B)}}
    assert plan.ranges() == {1: (10, 42), 2: (0, 1)}
    assert plan.targets == {A, B}
    assert plan.rows == 8


def test_messages_of_two_batches_stop_the_commit() -> None:
    """A message of another attempt's batch must not be taken for this one's."""
    with pytest.raises(WriteStopped, match="different batches"):
        plan_copy([staged(batch=3), staged(batch=4)])
    with pytest.raises(WriteStopped, match="different batches"):
        plan_copy([staged(), staged(query="other")])


def test_a_batch_named_twice_stops_the_commit() -> None:
    """It would be copied once, and a row would be missing."""
    with pytest.raises(WriteStopped, match="two tasks name"):
        plan_copy([staged(StagedBatch(1, 10, 7, 5, 0)), staged(StagedBatch(1, 10, 7, 5, 0))])


def test_rows_that_lie_in_two_places_stop_the_commit() -> None:
    """Two threads would copy into one partition and give the same sequence numbers, of which brokers take one batch:
    some task saw the private topic with fewer partitions than it has, or than it has now."""
    with pytest.raises(WriteStopped, match=r"rows for t-1 in partitions 1 and 2 .*nothing was written"):
        plan_copy(
            [staged(StagedBatch(1, 10, 7, 5, 0), StagedBatch(2, 0, 8, 1, 1)), staged(StagedBatch(1, 40, 9, 2, 1))]
        )


@pytest.mark.parametrize(
    ("mark", "batch", "decision"),
    [
        (None, 0, Decision.WRITE),
        (Mark("q", 0, 9), 0, Decision.SKIP),
        (Mark("q", 0, 9), 1, Decision.WRITE),
        (Mark("q", 41, 10), 41, Decision.SKIP),
        (Mark("q", 41, 0), 42, Decision.WRITE),
    ],
)
def test_an_equal_mark_is_skipped_and_one_more_is_written(mark: Mark | None, batch: int, decision: Decision) -> None:
    """The mark decides, however old it is; fewer rows may be left of a batch whose records retention takes."""
    assert decide(mark, "q", batch, 9, 0, "private") is decision


@pytest.mark.parametrize(
    ("mark", "batch"),
    [(Mark("q", 5, 9), 4), (Mark("q", 5, 9), 7), (Mark("q", 5, 9), 0), (Mark("r", 4, 9), 5), (None, 1)],
)
def test_any_other_mark_stops_the_query(mark: Mark | None, batch: int) -> None:
    """Whether the batch is written cannot be known."""
    with pytest.raises(WriteStopped):
        decide(mark, "q", batch, 9, 0, "private")


def test_a_batch_that_has_more_rows_than_were_written_stops_the_query() -> None:
    """It has the number of the one that was written, after the checkpoint was put back by one: to skip it would lose
    what came since."""
    with pytest.raises(WriteStopped, match="was written with 9 rows, and has 10 now"):
        decide(Mark("q", 5, 9), "q", 5, 10, 0, "private")


def test_a_query_may_be_told_where_to_begin() -> None:
    """firstBatch counts only where there is no mark."""
    assert decide(None, "q", 57, 9, 57, "private") is Decision.WRITE
    assert decide(Mark("q", 57, 9), "q", 58, 9, 57, "private") is Decision.WRITE
    with pytest.raises(WriteStopped, match="firstBatch to 57"):
        decide(None, "q", 57, 9, 0, "private")


def test_marks_round_trip_and_others_are_refused() -> None:
    """What is no mark stops the query, rather than being taken for none."""
    assert decode_mark(encode_mark("q", 12, 100), "private") == Mark("q", 12, 100)
    for value in (None, b"", b"{}", b"[]", b'{"query": "q", "batch": 2}', b'{"query": 1, "batch": 2, "rows": 3}'):
        with pytest.raises(WriteStopped, match="no mark"):
            decode_mark(value, "private")


def test_batches_for_one_partition_are_staged_in_one() -> None:
    """So that they keep their order; partitions next to each other are spread."""
    places = [staging_partition(TopicPartition("t", number), 4) for number in range(8)]
    assert sorted(places[:4]) == [1, 2, 3, 4]
    assert places[:4] == places[4:]
