"""All that Kafka's placement can draw, worked out apart from ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product


def drawn(brokers: Sequence[int], partitions: int, factor: int) -> Iterator[dict[int, list[int]]]:
    """[partition] -> replicas, for each start and each shift over the brokers in their order."""
    count = len(brokers)
    for start, shift in product(range(count), repeat=2):
        assignment = {}
        for number in range(partitions):
            leader = (start + number) % count
            distance = shift + number // count
            places = [leader, *((leader + 1 + (distance + each) % (count - 1)) % count for each in range(factor - 1))]
            assignment[number] = [brokers[place] for place in places]
        yield assignment


def is_drawn(assignment: dict[int, list[int]], brokers: Sequence[int]) -> bool:
    """Whether Kafka's placement could have come up with it."""
    return assignment in drawn(sorted(brokers), len(assignment), len(assignment[0]))
