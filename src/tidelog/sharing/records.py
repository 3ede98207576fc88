"""The states of records in a share partition, kept as runs: neighbours of one state and delivery count are one entry.

offsets   10 .. 19      20 .. 24           25 .. 25
runs      ACKNOWLEDGED  AVAILABLE, 1 time  ARCHIVED, 5 times
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple


class RecordState(IntEnum):
    """KIP-932. The numbers stand in requests and in records of `__share_group_state`."""

    AVAILABLE = 0
    ACQUIRED = 1
    """Locked for a member; never stored."""
    ACKNOWLEDGED = 2
    ARCHIVED = 4
    """Rejected, delivered too often, or not a record that can be delivered."""

    @property
    def is_terminal(self) -> bool:
        """Whether the record is never delivered again."""
        return self >= RecordState.ACKNOWLEDGED


STORED: Final = frozenset({RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})


class StateBatch(NamedTuple):
    """A run as it is stored; both ends are in it."""

    first_offset: int
    last_offset: int
    state: int
    """A RecordState."""
    delivery_count: int

    @property
    def rank(self) -> tuple[int, int]:
        """Of two batches about an offset the higher one holds: a delivery is never taken back."""
        return self.delivery_count, self.state


def combine(known: Iterable[StateBatch], told: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """`known` with what `told` says, without what is below `start_offset`; sorted, disjoint, neighbours joined.

    Where both speak of an offset, the higher delivery count holds, and of equal counts the higher state, so that an
    older write that arrives late takes nothing back.
    """
    batches = [batch for batch in (*known, *told) if batch.last_offset >= start_offset]
    bounds = sorted(
        {max(batch.first_offset, start_offset) for batch in batches} | {batch.last_offset + 1 for batch in batches}
    )
    batches.sort()
    combined: list[StateBatch] = []
    open_batches: list[StateBatch] = []
    position = 0
    for first, following in itertools.pairwise(bounds):
        while position < len(batches) and batches[position].first_offset <= first:
            open_batches.append(batches[position])
            position += 1
        open_batches = [batch for batch in open_batches if batch.last_offset >= first]
        if not open_batches:
            continue
        best = max(open_batches, key=lambda batch: batch.rank)
        last = combined[-1] if combined else None
        if last is not None and last.last_offset == first - 1 and last.rank == best.rank:
            combined[-1] = last._replace(last_offset=following - 1)
        else:
            combined.append(StateBatch(first, following - 1, best.state, best.delivery_count))
    return combined
