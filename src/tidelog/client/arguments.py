"""What callers give, judged before anything is begun, so that what is no good changes nothing and is named.

TypeError for what is of another type, ValueError for what no request could hold, or what means nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Final

from tidelog.model.identifiers import TopicPartition

OFFSET_MAX: Final = (1 << 63) - 1
INT32_MAX: Final = (1 << 31) - 1
"""Times (in ms), sizes and partitions are int32 in requests."""


def require_number(
    name: str, given: object, *, above: float | None = None, least: float | None = None, most: float = math.inf
) -> None:
    """A number, above `above` or from `least` on, and up to `most`."""
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise TypeError(f"{name} is a number, not {type(given).__name__}")
    low = above if above is not None else least
    fits = low is None or (given > low if above is not None else given >= low)
    if not (fits and given <= most):
        bound = f"above {above:g}" if above is not None else f"{least:g} or above"
        upper = "" if most == math.inf else f", up to {most}"
        raise ValueError(f"{name} is {given}: it must be {bound}{upper}")


def require_whole(name: str, given: object, *, least: int = 0, most: float = math.inf) -> None:
    """A whole number from `least` up to `most`."""
    if isinstance(given, bool) or not isinstance(given, int):
        raise TypeError(f"{name} is an int, not {type(given).__name__}")
    require_number(name, given, least=least, most=most)


def require_text(name: str, given: object) -> None:
    """A str that is not empty, or None."""
    if given is not None and not isinstance(given, str):
        raise TypeError(f"{name} is a str, not {type(given).__name__}")
    if given == "":
        raise ValueError(f"{name} is empty: give a name, or None")


def require_timeout(given: object) -> None:
    """Seconds to wait, None: for ever. What is below 0 has passed already."""
    if given is None:
        return
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise TypeError(f"timeout_s is a number of seconds or None, not {type(given).__name__}")
    if math.isnan(given):
        raise ValueError("timeout_s is nan: give a number of seconds, or None to wait for ever")


def require_topics(given: Iterable[object]) -> tuple[str, ...]:
    """Names of topics, each once."""
    if isinstance(given, (str, bytes)):
        raise TypeError("topics are several names, not one")
    names: dict[str, None] = {}
    for name in given:
        if not isinstance(name, str):
            raise TypeError(f"a topic's name is a str, not {type(name).__name__}")
        if not name:
            raise ValueError("a topic's name is not empty")
        names[name] = None
    return tuple(names)


def require_partitions(given: Collection[object]) -> None:
    """Partitions, each a TopicPartition."""
    if isinstance(given, (str, bytes, TopicPartition)):
        raise TypeError(f"partitions are several TopicPartitions, not one {type(given).__name__}")
    for each in given:
        if not isinstance(each, TopicPartition):
            raise TypeError(f"a partition is a TopicPartition, not {each!r:.40}")
        topic, partition = each
        require_topics([topic])
        require_whole(f"the partition of '{topic}'", partition, most=INT32_MAX)


def require_offset(topic_partition: TopicPartition, given: object) -> None:
    """An offset of a partition: 0 or above."""
    require_whole(f"the offset of {topic_partition}", given, most=OFFSET_MAX)
