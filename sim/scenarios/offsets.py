"""What groups have committed, by one coordinator after another, compared with the log that all of them read.

    plain commits, commits of transactions, their ends in any order, deletions; now and then the next coordinator loads
    the whole log

A cluster has transactions and plain commits of the same partition hardly ever, and a coordinator that moves between the
two. Of all records about a partition that hold, the last one in the log counts (invariant 15).
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from sim.invariants import require
from sim.world.randomness import SeededRandom
from tidelog.coordinator.groups.coordinator import GroupCoordinator
from tidelog.coordinator.records import CommittedOffset, OffsetRecord
from tidelog.model.identifiers import Offset

STEPS: Final = 120
RELOAD_CHANCE: Final = 0.1
DELETE_CHANCE: Final = 0.1
PRODUCERS: Final = range(4000, 4003)
PLACES: Final = tuple((group, topic, index) for group in ("g", "h") for topic in ("kept", "other") for index in (0, 1))

_Place: TypeAlias = tuple[str, str, int]


class _End(NamedTuple):
    """A marker."""

    producer_id: int
    committed: bool


class OffsetsWalk:
    """See the module. `run` is the whole walk."""

    def __init__(self, seed: int | str) -> None:
        self._random = SeededRandom(seed, "offsets walk")
        self._log: list[OffsetRecord | _End] = []
        self._coordinator = GroupCoordinator()
        self._committed: dict[_Place, tuple[int, bytes]] = {}
        """[place] -> where in the log the record stands that holds, and its value."""
        self._pending: dict[int, dict[_Place, tuple[int, bytes]]] = {}
        """[producer] -> the same of its transaction that is open."""

    def run(self, steps: int = STEPS) -> None:
        for _ in range(steps):
            if self._random.chance(RELOAD_CHANCE):
                self._reload()
            elif self._pending and self._random.chance(0.3):
                producers = sorted(self._pending)
                self._end(_End(producers[self._random.below(len(producers))], self._random.chance(0.6)))
            else:
                self._write(PLACES[self._random.below(len(PLACES))])
            self._check()

    def _write(self, place: _Place) -> None:
        position = len(self._log)
        if self._random.chance(DELETE_CHANCE):
            record = OffsetRecord(*place, None)
            self._committed.pop(place, None)
            for offsets in self._pending.values():
                offsets.pop(place, None)
        else:
            value = CommittedOffset(Offset(position)).encode()
            producer = (PRODUCERS[self._random.below(len(PRODUCERS))], 0) if self._random.chance(0.5) else None
            record = OffsetRecord(*place, value, producer)
            offsets = self._committed if producer is None else self._pending.setdefault(producer[0], {})
            offsets[place] = position, value
        self._log.append(record)
        self._coordinator.replay(record)

    def _end(self, end: _End) -> None:
        for place, (position, value) in self._pending.pop(end.producer_id).items():
            if end.committed and position > self._committed.get(place, (-1, b""))[0]:
                self._committed[place] = position, value
        self._log.append(end)
        self._coordinator.transaction_ended(end.producer_id, 0, committed=end.committed)

    def _reload(self) -> None:
        """Another broker leads the partition, and reads it from its start."""
        self._coordinator = GroupCoordinator()
        for each in self._log:
            if isinstance(each, _End):
                self._coordinator.transaction_ended(each.producer_id, 0, committed=each.committed)
            else:
                key, value = each.encode()
                self._coordinator.load(key, value, each.producer)
        self._coordinator.loaded(0, 0)

    def _check(self) -> None:
        store = self._coordinator.offsets.store
        for place in PLACES:
            _, expected = self._committed.get(place, (-1, None))
            found = store.get(*place)
            require(15, found == expected, f"{place}: {found!r} is committed, by its log {expected!r}")
            is_open = any(place in offsets for offsets in self._pending.values())
            told = f"{place}: a transaction that is open has an offset for it: {is_open}"
            require(15, store.is_pending(*place) == is_open, told)
