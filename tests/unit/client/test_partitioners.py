"""Which partition a record goes to."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tidelog.client.partitioners import (
    PARTITIONERS,
    InvalidPartition,
    OwnPartitioner,
    Partitioner,
    Partitions,
    crc32_hash,
    fnv1a_hash,
    murmur2,
    partition_for_key,
    partitioner_factory,
    partitioner_named,
    to_positive,
)
from tidelog.client.partitioners.choices import CountingChoice, WeightedChoice

THREE = Partitions("t", 3, [0, 1, 2])


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


@pytest.mark.parametrize(
    ("key", "expected"), [(b"", 0), (b"123456789", 0xCBF43926), (b"a", 0xE8B7BE43), (b"abc", 0x352441C2)]
)
def test_crc32_is_librdkafkas(key: bytes, expected: int) -> None:
    """The check values of CRC-32, unsigned."""
    assert crc32_hash(key) == expected


@pytest.mark.parametrize(
    ("key", "unsigned"), [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"foobar", 0xBF9CF968), (b"abc", 0x1A47E90B)]
)
def test_fnv1a_is_saramas(key: bytes, unsigned: int) -> None:
    """The published values of FNV-1a, read as signed numbers whose absolute value counts."""
    assert fnv1a_hash(key) == abs(unsigned - 2**32 if unsigned >= 2**31 else unsigned)


def partitions_of(partitioner: Partitioner, keys: list[bytes | None], partitions: Partitions = THREE) -> list[int]:
    return [partitioner.partition(key, b"v", partitions) for key in keys]


@pytest.mark.row("R20")
@pytest.mark.parametrize(
    ("name", "null", "empty", "abc"),
    [
        ("default", None, 275646681 % 3, 479470107 % 3),
        ("murmur2", 275646681 % 3, 275646681 % 3, 479470107 % 3),
        ("murmur2_random", None, 275646681 % 3, 479470107 % 3),
        ("sticky", None, 275646681 % 3, 479470107 % 3),
        ("counter", None, 275646681 % 3, 479470107 % 3),
        ("consistent", 0, 0, 0x352441C2 % 3),
        ("consistent_random", None, None, 0x352441C2 % 3),
        ("fnv1a", (2**32 - 0x811C9DC5) % 3, (2**32 - 0x811C9DC5) % 3, 0x1A47E90B % 3),
        ("fnv1a_random", None, (2**32 - 0x811C9DC5) % 3, 0x1A47E90B % 3),
        ("uniform_sticky", None, None, None),
        ("round_robin", None, None, None),
        ("random", None, None, None),
    ],
)
def test_what_each_name_makes_of_keys(name: str, null: int | None, empty: int | None, abc: int | None) -> None:
    """A number: always there. None: where chance or turn has it, shown by a draw of each partition."""
    for drawn in (0, 1, 2):
        for key, expected in ((None, null), (b"", empty), (b"abc", abc)):
            partitioner = partitioner_named(name)(100, lambda drawn=drawn: drawn)  # type: ignore[misc]
            turn = 0 if name == "round_robin" else drawn
            assert partitioner.partition(key, b"v", THREE) == (turn if expected is None else expected)


def test_every_name_is_tried_above() -> None:
    """And an unknown one is told what there is."""
    (names,) = (mark.args[1] for mark in test_what_each_name_makes_of_keys.pytestmark if mark.name == "parametrize")  # type: ignore[attr-defined]
    assert {case[0] for case in names} == set(PARTITIONERS)
    with pytest.raises(ValueError, match="no partitioner 'sticki': choose one of default, sticky, counter"):
        partitioner_named("sticki")


@pytest.mark.row("R20")
def test_the_counter_goes_round_the_available_ones() -> None:
    """From anywhere before 2.4, from 0 with RoundRobinPartitioner; over all where none has a leader."""
    counter = partitioner_named("counter")(100, lambda: 7)
    assert partitions_of(counter, [None, None, b"abc", None]) == [1, 2, 479470107 % 3, 0]
    everywhere = partitioner_named("round_robin")(100, lambda: 7)
    assert partitions_of(everywhere, [b"abc", b"abc", None, None]) == [0, 1, 2, 0]
    assert partitions_of(everywhere, [None, None], Partitions("t", 9, [3, 8])) == [3, 8]
    assert partitions_of(everywhere, [None, None], Partitions("t", 9, [])) == [6, 7]
    assert not everywhere.new_batch(1, THREE)


def test_a_counter_that_overflows_goes_on() -> None:
    """Only the low 31 bits count, as Java's counter wraps."""
    choice = CountingChoice(2**31 - 1)
    assert [choice.choose(Partitions("t", 10, [])) for _ in range(3)] == [7, 0, 1]


@pytest.mark.row("R21")
def test_sticky_leaves_a_partition_when_a_batch_begins_there() -> None:
    """Then it takes another one than before; batches elsewhere, those of keys, don't move it."""
    draws = iter([1, 4, 4, 2])
    sticky = partitioner_named("sticky")(100, lambda: next(draws))
    assert partitions_of(sticky, [None, None]) == [1, 1]
    assert sticky.new_batch(0, THREE)
    assert partitions_of(sticky, [None]) == [1]
    assert sticky.new_batch(1, THREE)
    assert partitions_of(sticky, [None]) == [2]
    assert list(draws) == []
    assert sticky.new_batch(2, Partitions("t", 3, [0]))
    assert partitions_of(sticky, [None]) == [0]


@pytest.mark.row("R22")
def test_a_users_own_function() -> None:
    """It sees key, value and the topic, and its answer is taken."""

    def by_country(key: bytes | None, value: bytes | None, partitions: Partitions) -> int:
        return 0 if value == b"CN" else partitions.count - 1

    own = partitioner_factory(by_country)(100, lambda: 0)
    assert [own.partition(None, value, THREE) for value in (b"CN", b"DE")] == [0, 2]
    assert not own.new_batch(0, THREE)


@pytest.mark.row("R22")
def test_a_users_own_class() -> None:
    """One instance serves all topics, keeps what it likes, and may hear of new batches."""

    class Sticky:
        current = 0

        def partition(self, key: bytes | None, value: bytes | None, partitions: Partitions) -> int:
            return self.current

        def new_batch(self, previous: int, partitions: Partitions) -> None:
            self.current = previous + 1

    factory = partitioner_factory(Sticky())
    one, other = factory(100, lambda: 0), factory(100, lambda: 0)
    assert one.new_batch(0, THREE)
    assert other.partition(None, None, THREE) == 1


@pytest.mark.row("R22")
@pytest.mark.parametrize("chosen", [3, -1, None, "0", 1.0])
def test_a_users_own_that_errs_is_told(chosen: object) -> None:
    """What is no partition of the topic is refused by name, before anything is sent."""
    own = OwnPartitioner(lambda key, value, partitions: chosen)  # type: ignore[arg-type, return-value]
    with pytest.raises(InvalidPartition, match=r"chose .* for topic 't', which has partitions 0 to 2"):
        own.partition(None, None, THREE)


@pytest.mark.row("R21")
def test_stays_on_a_partition_for_a_batch_of_bytes() -> None:
    """A partition is left after batch_size bytes, and at twice that even while its batch should be filled."""
    draws = iter([4, 2, 3])
    choice = WeightedChoice(100, lambda: next(draws))
    assert choice.choose(THREE) == 1
    choice.appended(99, THREE, enable_switch=True)
    assert choice.choose(THREE) == 1
    choice.appended(1, THREE, enable_switch=False)
    assert choice.choose(THREE) == 1
    choice.appended(1, THREE, enable_switch=True)
    assert choice.choose(THREE) == 2
    choice.appended(200, THREE, enable_switch=False)
    assert choice.choose(THREE) == 0


@pytest.mark.row("R21")
def test_draws_only_partitions_with_a_leader_where_there_is_one() -> None:
    """Without any available partition all are drawn from, so that records wait rather than fail."""
    assert WeightedChoice(1, lambda: 5).choose(Partitions("t", 10, [2, 7])) == 7
    assert WeightedChoice(1, lambda: 5).choose(Partitions("t", 10, [])) == 5


@pytest.mark.row("R21")
def test_short_queues_are_drawn_more_often() -> None:
    """Weights are the distance to the longest queue and one: 1, 4 and 5 parts of ten here."""
    source = random.Random(7)
    choice = WeightedChoice(1, lambda: source.getrandbits(31))
    partitions = Partitions("t", 8, [5, 6, 7])
    assert choice.update_load([4, 1, 0], [5, 6, 7], 3) == 10
    drawn: Counter[int] = Counter()
    for _ in range(10_000):
        choice.appended(2, partitions)
        drawn[choice.choose(partitions)] += 1
    assert drawn[5] / 10_000 == pytest.approx(0.1, abs=0.02)
    assert drawn[6] / 10_000 == pytest.approx(0.4, abs=0.02)
    assert drawn[7] / 10_000 == pytest.approx(0.5, abs=0.02)


def test_equal_queues_need_no_table() -> None:
    """Equal load everywhere is no load; equal load on some partitions keeps the others out."""
    choice = WeightedChoice(1, lambda: 0)
    assert choice.update_load([3, 3], [0, 1], 2) is None
    assert choice.update_load([3, 3], [0, 1], 3) == 2
    with pytest.raises(ValueError, match="2 queue sizes for 1 partitions"):
        choice.update_load([3, 3], [0], 2)
