"""The order in which Kafka's coordinator goes through members, topics and partitions: that of Java's hash tables.

Where several assignments are equally good, the uniform assignor takes the one that this order leads to; so a group
gets the same from this broker as from Kafka's. An entry's place in a table is its hash, both halves mixed, modulo the
table's size, which doubles when three quarters are full. Entries of one place stand in Kafka in the order in which they
came, which depends on the group's history. Here they are sorted, so that the same question gets the same answer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from operator import mul
from typing import Final, TypeVar

from tidelog.assignors.assignor import by_text
from tidelog.assignors.steps import Pace, Steps, at_once, order_of
from tidelog.model.identifiers import TopicId

T = TypeVar("T")

SIZE_MIN: Final = 16
"""Places of a table with up to twelve entries."""
_HALVES: Final = struct.Struct(">qq")


def strings_in_order(strings: Iterable[T]) -> list[T]:
    """As a HashSet of java.lang.String gives them."""
    return at_once(strings_in_order_steps(strings))


def strings_in_order_steps(strings: Iterable[T]) -> Steps[list[T]]:
    """`strings_in_order`, in steps."""
    pace = Pace()
    entries = list(strings)
    texts: list[bytes] = []
    hashes: list[int] = []
    for each in entries:
        text = by_text(str(each))
        texts.append(text)
        hashes.append(_string_hash(text))
        if pace.is_over():
            yield
    by_name = yield from order_of(texts)
    places = _places([hashes[index] for index in by_name])
    yield
    by_place = yield from order_of(places)
    return [entries[by_name[index]] for index in by_place]


def topics_in_order(names: Iterable[str], ids: Mapping[str, TopicId]) -> list[str]:
    """As a HashSet of topic ids gives them; by name where an id is not known."""
    ordered = sorted(names, key=by_text)
    if any(name not in ids for name in ordered):
        return ordered
    return _in_order(ordered, [_topic_hash(ids[name]) for name in ordered])


def numbers_in_order(numbers: Iterable[int]) -> list[int]:
    """As a HashSet of java.lang.Integer, none below 0, gives them."""
    ordered = sorted(numbers)
    return _in_order(ordered, ordered)


def topic_rank(topic_id: TopicId | None) -> tuple[int, int]:
    """Sort key by which Kafka compares topic ids: both halves as signed numbers. Without an id all are equal."""
    if topic_id is None:
        return 0, 0
    high: int
    low: int
    high, low = _HALVES.unpack(topic_id)
    return high, low


def _in_order(entries: list[T], hashes: list[int]) -> list[T]:
    return [entries[index] for index in at_once(order_of(_places(hashes)))]


def _places(hashes: list[int]) -> list[int]:
    """Where the entries that have these hashes stand in a table of their own."""
    size = SIZE_MIN
    while 4 * len(hashes) > 3 * size:
        size *= 2
    return [(value ^ value >> 16) & (size - 1) for value in hashes]


def _string_hash(text: bytes) -> int:
    """String.hashCode, unsigned, of UTF-16 code units."""
    count = len(text) // 2
    units: tuple[int, ...] = struct.unpack(f">{count}H", text)
    total: int = sum(map(mul, units, _powers(count)))
    return total & 0xFFFFFFFF


@lru_cache(maxsize=256)
def _powers(count: int) -> tuple[int, ...]:
    """By what the hash of a text multiplies each of its `count` code units."""
    return tuple(pow(31, exponent, 1 << 32) for exponent in range(count - 1, -1, -1))


def _topic_hash(topic_id: TopicId) -> int:
    """Uuid.hashCode, unsigned."""
    high, low = topic_rank(topic_id)
    both = high ^ low
    return (both >> 32 ^ both) & 0xFFFFFFFF
