"""Partitioners on columns agree with those on records."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.sink.partitioning import assign, make_partitioner
from tidelog.client.partitioners import PARTITIONERS, Partitions, partitioner_named

PARTITIONS = Partitions("t", 7, range(7))


def keys_of(seed: int) -> list[bytes | None]:
    generator = random.Random(seed)
    lengths = [*range(20), 255, 256, 257, 1000]
    return [None if generator.random() < 0.2 else generator.randbytes(generator.choice(lengths)) for _ in range(400)]


@pytest.mark.parametrize("name", PARTITIONERS)
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_keys_meet_where_the_clients_send_them(name: str, kind: pa.DataType) -> None:
    """Every partitioner, keys of all lengths, in slices of both widths of Arrow's binary."""
    keys = keys_of(1)
    generator = random.Random(2)

    def draw() -> int:
        return generator.getrandbits(31)

    array = pa.array([b"before", *keys, b"after"], kind).slice(1, len(keys))
    values = pa.array([b"v"] * len(keys))
    sizes = np.full(len(keys), 30, dtype=np.int64)
    found = assign(make_partitioner(name, 1000, draw), PARTITIONS, array, values, sizes, 1000)
    reference = partitioner_named(name)(1000, draw)
    for key, partition in zip(keys, found.tolist(), strict=True):
        assert 0 <= partition < 7
        expected = reference.partition(key, b"v", PARTITIONS)
        is_hashed = reference.hash is not None and (  # type: ignore[attr-defined]  # Those by name are KeyPartitioners.
            (key is not None and (reference.hashes_empty or key != b"")) or reference.choice is None  # type: ignore[attr-defined]
        )
        if is_hashed:
            assert partition == expected, key


def test_rows_without_keys_stay_together_for_a_batch() -> None:
    """The default: a batch's worth of bytes goes to one partition, then another is drawn."""
    generator = random.Random(3)
    partitioner = make_partitioner("default", 1000, lambda: generator.getrandbits(31))
    sizes = np.full(1000, 100, dtype=np.int64)
    found = assign(partitioner, PARTITIONS, None, pa.array([b"v"] * 1000), sizes, 1000).tolist()
    runs = [found[start : start + 10] for start in range(0, 1000, 10)]
    assert all(len(set(run)) == 1 for run in runs)
    assert len({run[0] for run in runs}) == 7


def test_round_robin_takes_turns_over_chunks() -> None:
    """The choice goes on where the last chunk has ended."""
    partitioner = make_partitioner("round_robin", 1000, lambda: 0)
    values = pa.array([b"v"] * 10)
    sizes = np.full(10, 1, dtype=np.int64)
    first = assign(partitioner, PARTITIONS, None, values, sizes, 1000).tolist()
    second = assign(partitioner, PARTITIONS, None, values, sizes, 1000).tolist()
    assert first + second == [number % 7 for number in range(20)]


def by_length(key: bytes | None, value: bytes | None, partitions: Partitions) -> int:
    """A user's own."""
    return len(value or b"") % partitions.count


def test_a_users_own_is_imported_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """module:name; what cannot be imported is told with the option's name."""
    import sys
    import types

    module = types.ModuleType("users_partitioners")
    module.by_length = by_length  # type: ignore[attr-defined]  # A module made here has no types.
    monkeypatch.setitem(sys.modules, "users_partitioners", module)
    partitioner = make_partitioner("users_partitioners:by_length", 1000, lambda: 0)
    values = pa.array([b"", b"a", b"ab", None])
    assert assign(partitioner, PARTITIONS, None, values, np.ones(4, dtype=np.int64), 1).tolist() == [0, 1, 2, 0]
    with pytest.raises(OptionError, match="partitioner"):
        make_partitioner("users_partitioners:missing", 1000, lambda: 0)
