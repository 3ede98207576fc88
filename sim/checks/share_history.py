"""What members of a share group were told: who acknowledged which record, and who got it afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.invariants import require

if TYPE_CHECKING:
    from tidelog.model.identifiers import TopicPartition


class ShareHistory:
    """Of one group."""

    def __init__(self, group: str, delivery_count_limit: int) -> None:
        self.group = group
        self._limit = delivery_count_limit
        self.acknowledged = 0
        self.refused = 0
        self._done: dict[TopicPartition, dict[int, str]] = {}
        """[partition][offset] -> who has acknowledged it for good, and was told that this holds."""

    def done(self, partition: TopicPartition) -> frozenset[int]:
        """Offsets that are never to be delivered again, as of now: to be kept when a fetch is sent."""
        return frozenset(self._done.get(partition, ()))

    def acquired(
        self, partition: TopicPartition, member: str, first: int, last: int, count: int, done: frozenset[int]
    ) -> None:
        """A member got records; `done` is what was acknowledged for good before it asked."""
        require(22, 1 <= count <= self._limit, f"{self.group}: {partition} {first}-{last} is delivered {count} times")
        for offset in range(first, last + 1):
            owner = self._done.get(partition, {}).get(offset, "")
            require(
                22, offset not in done, f"{self.group}: {partition} {offset} goes to {member} after {owner} was done"
            )

    def accepted(self, partition: TopicPartition, member: str, first: int, last: int) -> None:
        """A member was told that nothing is left to do with these records: by its word, or by another's before, if its
        locks had ended."""
        done = self._done.setdefault(partition, {})
        for offset in range(first, last + 1):
            done.setdefault(offset, member)
        self.acknowledged += last - first + 1
