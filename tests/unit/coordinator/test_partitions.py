"""Which partition keeps a group: Java's hash of its id."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinator.partitions import REMEMBERED_LENGTH_MAX, java_hash, partition_for


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("group-1", 293427299),
        ("console-consumer-12345", 158455506),
        ("日本", 835047),
        ("😀", 1772899),
        ("polygenelubricants", -(1 << 31)),
    ],
)
def test_hashes_are_javas(text: str, value: int) -> None:
    """Signed, over UTF-16 units."""
    assert java_hash(text) == value


def test_the_least_hash_counts_as_zero() -> None:
    """Math.abs of it would be negative; Kafka takes 0."""
    assert partition_for("polygenelubricants", 50) == 0


@given(st.text(), st.integers(1, 1000))
def test_any_group_has_a_partition(group: str, partitions: int) -> None:
    """Whatever the id and however many partitions."""
    assert 0 <= partition_for(group, partitions) < partitions


def test_long_keys_are_not_kept() -> None:
    """Anybody may ask for the coordinator of any group: what he asked about is forgotten."""
    tracemalloc.start()
    try:
        for index in range(1_000):
            partition_for(f"{index:05}" * (REMEMBERED_LENGTH_MAX // 4), 50)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 50_000
