"""Filters that Spark hands to a batch read (PySpark 4.1 and later), turned into ranges of offsets.

    topic, partition   any comparison: partitions that do not pass are not read
    offset             =, <, <=, >, >=, IN: a range's ends
    timestamp          =, >, >=, IN: the first record that is as late, as the broker finds it

A later end cannot be had from timestamps: records of one partition need not be in their order. What a range is not
exactly the same as is left to Spark to look at, too: IN and timestamps.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pyspark_tidelog.offsets import OffsetRange
from tidelog.model.identifiers import TopicPartition

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)

_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "EqualTo": lambda found, wanted: bool(found == wanted),
    "EqualNullSafe": lambda found, wanted: bool(found == wanted),
    "GreaterThan": lambda found, wanted: bool(found > wanted),
    "GreaterThanOrEqual": lambda found, wanted: bool(found >= wanted),
    "LessThan": lambda found, wanted: bool(found < wanted),
    "LessThanOrEqual": lambda found, wanted: bool(found <= wanted),
    "In": lambda found, wanted: found in wanted,
    "StringStartsWith": lambda found, wanted: bool(found.startswith(wanted)),
    "StringEndsWith": lambda found, wanted: bool(found.endswith(wanted)),
    "StringContains": lambda found, wanted: wanted in found,
}
"""By the names of Spark's filters, whose classes PySpark 4.0 does not have."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison of a column with a constant."""

    column: str
    comparison: str
    value: Any
    negated: bool = False

    def holds(self, found: Any) -> bool:
        return _COMPARISONS[self.comparison](found, self.value) is not self.negated


@dataclass(frozen=True, slots=True)
class Pushed:
    """What is to be read of each partition."""

    partitions: tuple[Condition, ...] = ()
    """On topic and partition."""
    first: int = 0
    """Offsets below are not wanted."""
    end: int | None = None
    """Nor are those from here on."""
    since_ms: int | None = None
    """Nor records that are all older, in ms."""
    rest: Sequence[Any] = field(default=(), compare=False)
    """The filters that Spark has to look at."""

    def passes(self, topic_partition: TopicPartition) -> bool:
        found = {"topic": topic_partition.topic, "partition": topic_partition.partition}
        return all(each.holds(found[each.column]) for each in self.partitions)

    def narrowed(self, ranges: Iterable[OffsetRange], since: Mapping[TopicPartition, int]) -> list[OffsetRange]:
        """What is left of `ranges`; `since` is where the first record of `since_ms` or later is, -1: nowhere."""
        left = []
        for each in ranges:
            first = since.get(each.topic_partition, each.start)
            start = max(each.start, self.first, first)
            end = each.end if self.end is None else min(each.end, self.end)
            if self.passes(each.topic_partition) and first >= 0 and start < end:
                left.append(replace(each, start=start, end=end))
        return left


def push(filters: Iterable[Any]) -> Pushed:
    """What Spark's filters, all of which have to hold, leave to be read."""
    pushed = Pushed()
    rest = []
    for each in filters:
        with_it, is_exact = _with(pushed, each)
        pushed = with_it
        if not is_exact:
            rest.append(each)
    return replace(pushed, rest=rest)


def _with(pushed: Pushed, given: Any) -> tuple[Pushed, bool]:
    """`pushed` and one filter more, and whether Spark need not look at that."""
    kind, negated = type(given).__name__, False
    if kind == "Not":
        given, negated = given.child, True
        kind = type(given).__name__
    column = given.attribute[0].lower() if len(given.attribute) == 1 else ""
    if kind == "IsNotNull" and column in ("topic", "partition", "offset"):
        return pushed, not negated
    if kind not in _COMPARISONS or given.value is None or (kind == "In" and None in given.value):
        return pushed, False
    condition = Condition(column, kind, given.value, negated)
    match column:
        case "partition" | "topic":
            return replace(pushed, partitions=(*pushed.partitions, condition)), True
        case "offset" if not negated:
            return _with_offset(pushed, condition)
        case "timestamp" if not negated:
            return _with_timestamp(pushed, condition), False
        case _:
            return pushed, False


def _with_offset(pushed: Pushed, condition: Condition) -> tuple[Pushed, bool]:
    value = condition.value
    values = value if condition.comparison == "In" else (value,)
    if not values or not all(type(each) is int for each in values):
        return pushed, False
    first, end = 0, None
    match condition.comparison:
        case "EqualTo" | "EqualNullSafe" | "In":
            first, end = min(values), max(values) + 1
        case "GreaterThan":
            first = value + 1
        case "GreaterThanOrEqual":
            first = value
        case "LessThan":
            end = value
        case "LessThanOrEqual":
            end = value + 1
        case _:
            return pushed, False
    ends = [each for each in (pushed.end, end) if each is not None]
    return replace(pushed, first=max(pushed.first, first), end=min(ends, default=None)), len(values) == 1


def _with_timestamp(pushed: Pushed, condition: Condition) -> Pushed:
    values = condition.value if condition.comparison == "In" else (condition.value,)
    if not values or not all(isinstance(each, datetime.datetime) and each.tzinfo for each in values):
        return pushed
    since_us = (min(values) - _EPOCH) // _MICROSECOND
    match condition.comparison:
        case "EqualTo" | "EqualNullSafe" | "In" | "GreaterThanOrEqual":
            since_ms = -(-since_us // 1000)
        case "GreaterThan":
            since_ms = since_us // 1000 + 1
        case _:
            return pushed
    # Times up to 1970 are no question to a broker.
    return replace(pushed, since_ms=max(pushed.since_ms or 0, since_ms)) if since_ms > 0 else pushed
