"""Positions and ranges: what a stream's batches take, and that nothing is taken twice or left out."""

import json
import pickle

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amount import examples

from pyspark_tidelog.offsets import (
    OffsetRange,
    Position,
    batch_start,
    limit_offsets,
    ranges_between,
    recreated_topics,
    split_ranges,
)
from tidelog.model.identifiers import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)

PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b", "c.d"]), st.integers(0, 12))
OFFSETS = st.dictionaries(PARTITIONS, st.integers(0, 10**12), max_size=8)
IDS = st.dictionaries(st.sampled_from(["a", "b", "c.d"]), st.sampled_from(["x", "y"]))
SIMPLE = st.builds(Position, OFFSETS, IDS)
POSITIONS = st.builds(Position, OFFSETS, IDS, st.booleans(), st.none() | SIMPLE)
RANGES = st.lists(
    st.builds(
        lambda partition, start, count: OffsetRange(partition.topic, partition.partition, start, start + count),
        PARTITIONS,
        st.integers(0, 1000),
        st.integers(1, 500),
    ),
    max_size=6,
)


@settings(max_examples=examples(500))
@given(POSITIONS)
def test_positions_survive_json(position: Position) -> None:
    """What Spark keeps in its checkpoint comes back equal, and equal positions are equal text."""
    text = json.dumps(position.to_json())
    again = Position.from_json(json.loads(text))
    assert again == position
    shuffled = Position(dict(reversed(position.offsets.items())), position.topic_ids, position.initial, position.since)
    assert json.dumps(shuffled.to_json()) == text


def test_the_connectors_offsets_can_be_read() -> None:
    """A checkpoint's offsets in the official form, without our marks."""
    assert Position.from_json({"a": {"0": 5, "1": 7}}) == Position({A0: 5, A1: 7})


def test_the_first_batch_starts_where_it_was_planned_from() -> None:
    """A later answer of initialOffset, from a "latest" that moved, does not move the first batch's start."""
    planned = Position({A0: 10}, initial=True)
    end = Position({A0: 15}, since=planned)
    moved = Position({A0: 14}, initial=True)
    logged = Position.from_json(end.to_json())
    assert dict(batch_start(moved, logged).offsets) == {A0: 10}
    later = Position({A0: 15})
    assert batch_start(later, Position({A0: 20})) is later


def test_new_partitions_are_read_from_their_beginning() -> None:
    """What a position does not know yet begins at 0."""
    assert ranges_between(Position({A0: 3}), Position({A0: 5, A1: 2})) == [
        OffsetRange("a", 0, 3, 5),
        OffsetRange("a", 1, 0, 2),
    ]


def test_recreated_topics_are_read_from_their_beginning() -> None:
    """Another topic id: other records, whatever their offsets."""
    start, end = Position({A0: 30, B0: 4}, {"a": "old", "b": "b"}), Position({A0: 2, B0: 5}, {"a": "new", "b": "b"})
    assert recreated_topics(start, end) == ["a"]
    assert ranges_between(start, end) == [OffsetRange("a", 0, 0, 2, "new"), OffsetRange("b", 0, 4, 5, "b")]


@settings(max_examples=examples(500))
@given(OFFSETS, st.integers(1, 10**6))
def test_a_limit_is_kept_and_used_up(backlog: dict[TopicPartition, int], limit: int) -> None:
    """A batch takes as many offsets as it may, or all there are; never one behind its start or past the end."""
    starts = dict.fromkeys(backlog, 7)
    ends = {each: 7 + count for each, count in backlog.items()}
    limited = limit_offsets(starts, ends, limit)
    taken = {each: limited[each] - 7 for each in ends}
    assert all(0 <= taken[each] <= backlog[each] for each in backlog)
    assert sum(taken.values()) == min(limit, sum(backlog.values()))


def test_a_limit_starves_nobody() -> None:
    """A partition with one record beside one with a million is served while there is room for it."""
    limited = limit_offsets({A0: 0, A1: 0}, {A0: 1_000_000, A1: 1}, 10)
    assert limited == {A0: 9, A1: 1}
    few = {TopicPartition("a", number): 1 for number in range(1, 50)}
    limited = limit_offsets(dict.fromkeys((A0, *few), 0), {A0: 1_000_000, **few}, 1000)
    assert limited == {A0: 951, **few}


def test_one_record_is_served_where_each_batch_is_too_small_for_all() -> None:
    """Nine partitions have more than the batches take, and get more all the time; the tenth's record waits its turn."""
    places = [TopicPartition("a", number) for number in range(10)]
    last = places[-1]
    starts, ends = dict.fromkeys(places, 0), {each: 1 if each == last else 1000 for each in places}
    batches = 0
    while starts[last] == 0:
        batches += 1
        assert batches < 50
        starts = limit_offsets(starts, ends, 5)
        ends = {each: end if each == last else end + 100 for each, end in ends.items()}


@settings(max_examples=examples(500))
@given(RANGES, st.none() | st.integers(1, 40), st.none() | st.integers(1, 200))
def test_splitting_loses_and_doubles_nothing(
    ranges: list[OffsetRange], partitions_min: int | None, records_max: int | None
) -> None:
    """The pieces follow each other, keep the limit, and are as many as asked for where there are as many offsets."""
    pieces = split_ranges(ranges, partitions_min=partitions_min, records_max=records_max)
    assert [(each.topic, each.partition, offset) for each in pieces for offset in range(each.start, each.end)] == [
        (each.topic, each.partition, offset) for each in ranges for offset in range(each.start, each.end)
    ]
    if records_max is not None:
        assert all(each.count <= records_max for each in pieces)
    if partitions_min is not None:
        assert len(pieces) >= min(partitions_min, sum(each.count for each in ranges))


def test_one_range_a_partition_is_one_task() -> None:
    """Without options nothing is cut."""
    ranges = [OffsetRange("a", 0, 0, 10**9)]
    assert split_ranges(ranges, partitions_min=None, records_max=None) == ranges
    assert len(split_ranges(ranges, partitions_min=3, records_max=None)) == 3


def test_ranges_travel() -> None:
    """They are what Spark pickles to tasks."""
    each = OffsetRange("a", 0, 1, 2, "id")
    assert pickle.loads(pickle.dumps(each)) == each
    assert str(each) == "a-0 [1, 2)"
