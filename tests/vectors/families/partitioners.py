"""Kafka's partitioners of all ages, record by record, with the random numbers that they drew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidelog.client.partitioners.choices import CountingChoice, DrawInt, Partitions, StickyChoice, WeightedChoice
from tidelog.client.partitioners.hashes import murmur2_hash
from tidelog.client.partitioners.partitioner import KeyPartitioner

FILES = ("partitioners.json.gz",)


def check(case: dict[str, Any]) -> None:
    given = case["input"]
    run = _built_in(given) if given["partitioner"] == "built-in" else _by_record(given)
    for op, found, expected in zip(given["ops"], run, case["expected"]["results"], strict=True):
        assert found == expected, op


class Drawn:
    """The numbers of one operation: all are taken, and no more."""

    def __init__(self) -> None:
        self._numbers: list[int] = []

    def __call__(self) -> int:
        return self._numbers.pop(0)

    def supply(self, op: dict[str, Any]) -> None:
        assert not self._numbers, f"{len(self._numbers)} draws were not taken"
        self._numbers = list(op.get("draws", ()))


def _partitions(listed: list[list[Any]]) -> Partitions:
    return Partitions("t", len(listed), [partition for partition, is_available in listed if is_available])


def _partitioner(given: dict[str, Any], draw: DrawInt) -> KeyPartitioner:
    kind, _, _ = given["partitioner"].rpartition("-")
    start = given.get("counter_start")
    match kind:
        case "default":
            return KeyPartitioner(murmur2_hash, CountingChoice(draw if start is None else start))
        case "round-robin":
            return KeyPartitioner(None, CountingChoice(start or 0))
        case "sticky-default":
            return KeyPartitioner(murmur2_hash, StickyChoice(draw))
        case "uniform-sticky":
            return KeyPartitioner(None, StickyChoice(draw))
    raise AssertionError(kind)


def _by_record(given: dict[str, Any]) -> Iterator[Any]:
    draws = Drawn()
    partitioner = _partitioner(given, draws)
    partitions = _partitions(given["partitions"])
    for op in given["ops"]:
        draws.supply(op)
        if op["op"] == "metadata":
            partitions = _partitions(op["partitions"])
            yield None
        elif op["op"] == "new_batch":
            partitioner.new_batch(op["previous"], partitions)
            yield None
        else:
            key = None if op["key"] is None else bytes.fromhex(op["key"])
            yield partitioner.partition(key, None, partitions)
    draws.supply({})


def _built_in(given: dict[str, Any]) -> Iterator[Any]:
    draws = Drawn()
    choice = WeightedChoice(given["batch_size"], draws)
    partitions = _partitions(given["partitions"])
    for op in given["ops"]:
        draws.supply(op)
        if op["op"] == "metadata":
            partitions = _partitions(op["partitions"])
            yield {}
        elif op["op"] == "load":
            count = op.get("length", 0)
            sizes, ids = op["queue_sizes"] or [], op.get("partition_ids", [])
            yield {"range_end": choice.update_load(sizes[:count], ids[:count], len(sizes))}
        else:
            before = choice.choose(partitions)
            choice.appended(op["bytes"], partitions, enable_switch=op["enable_switch"])
            yield {"partition": before, "next": choice.choose(partitions)}
    draws.supply({})
