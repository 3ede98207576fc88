"""Which partition a record goes to."""

import random
from collections import Counter

import pytest

from tidelog.client.partitioners import StickyPartitioner, murmur2, partition_for_key, to_positive


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        (b"", 275646681),
    ],
)
@pytest.mark.row("R20")
def test_murmur2_is_kafkas(key: bytes, expected: int) -> None:
    """Known answers of Kafka's own hash, signed as in Java."""
    assert murmur2(key) == expected


@pytest.mark.row("R20")
def test_a_key_keeps_its_partition_whatever_is_available() -> None:
    """The partition of a key depends on the key and the count alone."""
    assert partition_for_key(b"foobar", 7) == to_positive(-790332482) % 7


@pytest.mark.row("R21")
def test_stays_on_a_partition_for_a_batch_of_bytes() -> None:
    """A partition is left after batch_size bytes, and at twice that even while its batch should be filled."""
    draws = iter([4, 2, 3])
    partitioner = StickyPartitioner(100, lambda: next(draws))
    everywhere = [0, 1, 2]
    assert partitioner.current(everywhere, 3) == 1
    partitioner.appended(99, enable_switch=True, available=everywhere, partitions_count=3)
    assert partitioner.current(everywhere, 3) == 1
    partitioner.appended(1, enable_switch=False, available=everywhere, partitions_count=3)
    assert partitioner.current(everywhere, 3) == 1
    partitioner.appended(1, enable_switch=True, available=everywhere, partitions_count=3)
    assert partitioner.current(everywhere, 3) == 2
    partitioner.appended(200, enable_switch=False, available=everywhere, partitions_count=3)
    assert partitioner.current(everywhere, 3) == 0


@pytest.mark.row("R21")
def test_draws_only_partitions_with_a_leader_where_there_is_one() -> None:
    """Without any available partition all are drawn from, so that records wait rather than fail."""
    assert StickyPartitioner(1, lambda: 5).current([2, 7], 10) == 7
    assert StickyPartitioner(1, lambda: 5).current([], 10) == 5


@pytest.mark.row("R21")
def test_short_queues_are_drawn_more_often() -> None:
    """Weights are the distance to the longest queue and one: 1, 4 and 5 parts of ten here."""
    source = random.Random(7)
    partitioner = StickyPartitioner(1, lambda: source.getrandbits(31))
    assert partitioner.update_load([4, 1, 0], [5, 6, 7], 3) == 10
    drawn: Counter[int] = Counter()
    for _ in range(10_000):
        partitioner.appended(2, enable_switch=True, available=[5, 6, 7], partitions_count=3)
        drawn[partitioner.current([5, 6, 7], 3)] += 1
    assert drawn[5] / 10_000 == pytest.approx(0.1, abs=0.02)
    assert drawn[6] / 10_000 == pytest.approx(0.4, abs=0.02)
    assert drawn[7] / 10_000 == pytest.approx(0.5, abs=0.02)


def test_equal_queues_need_no_table() -> None:
    """Equal load everywhere is no load; equal load on some partitions keeps the others out."""
    partitioner = StickyPartitioner(1, lambda: 0)
    assert partitioner.update_load([3, 3], [0, 1], 2) is None
    assert partitioner.update_load([3, 3], [0, 1], 3) == 2
    with pytest.raises(ValueError, match="2 queue sizes for 1 partitions"):
        partitioner.update_load([3, 3], [0], 2)
