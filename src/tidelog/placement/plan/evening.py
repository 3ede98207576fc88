"""Local search that brings loads of disks into bands with few bytes, and the bound that says how few could do. Pure.

What lies above a disk's band has to leave it, and what lacks below has to come: the larger of the two sums is a bound
for any plan (`least_bytes`). The search moves replicas from the disk that is furthest above to those that are furthest
below, the largest that fits first and at last the smallest that suffices, so that what it moves stays close to the
bound; where nothing fits alone, it exchanges two. Then it takes back what turned out not to be needed.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import Final, TypeAlias

from tidelog.placement.plan.disks import Band, DiskLoads

Swap: TypeAlias = tuple[float, int, int, int, int]
"""(bytes moved for each byte gained, item, its disk, other item, its disk)"""

TARGETS: Final = 24
"""Disks that are tried for a replica, those with the most room."""
CANDIDATES: Final = 40
"""Replicas of a disk that are tried around the size that would be best."""
PASSES: Final = 3


def least_bytes(loads: Sequence[int], bands: Sequence[Band], *, outside: float = 0.0, drops: bool = False) -> int:
    """The fewest bytes that any plan has to move from these loads into the bands, but for what it leaves `outside`.

    What is left outside may all be above bands, or all below, or in part. With `drops`, where factors get lower,
    replicas may leave a disk without a move.
    """
    above = sum(max(0.0, load - band.high) for load, band in zip(loads, bands, strict=True))
    below = sum(max(0.0, band.low - load) for load, band in zip(loads, bands, strict=True))
    if drops:
        return int(max(0.0, below - outside))
    return int(max(0.0, above - outside, below - outside, (above + below - outside) / 2))


def least_moves(loads: DiskLoads, bands: Sequence[Band], outside: float = 0.0) -> int:
    """The fewest replicas that have to leave the disks that were above their band, the largest first.

    `outside`: bytes that may stay above, on whichever of these disks.
    """
    if loads.drops:
        return 0
    held: list[list[int]] = [[] for _ in bands]
    for item, former in enumerate(loads.former):
        for disk in former.values():
            held[disk].append(loads.weights[item])
    excesses = [load - band.high for load, band in zip(loads.former_loads, bands, strict=True)]
    if not outside:
        return sum(_fewest(of_disk, excess) for of_disk, excess in zip(held, excesses, strict=True))
    of_all = [weight for of_disk, excess in zip(held, excesses, strict=True) if excess > 0 for weight in of_disk]
    return _fewest(of_all, sum(max(0.0, excess) for excess in excesses) - outside)


def _fewest(weights: Sequence[int], excess: float) -> int:
    """How many of the largest together are at least `excess`; all, where they are less."""
    number = 0
    for weight in sorted(weights, reverse=True):
        if excess <= 0 or not weight:
            break
        excess -= weight
        number += 1
    return number


def violation(loads: Sequence[int], bands: Sequence[Band]) -> float:
    """Bytes outside of bands."""
    return sum(max(0.0, load - band.high, band.low - load) for load, band in zip(loads, bands, strict=True))


def even_out(loads: DiskLoads, bands: Sequence[Band]) -> None:
    """Moves replicas until loads are in their bands, or no step helps."""
    search = _Search(loads, bands)
    for _ in range(PASSES):
        search.relieve()
        search.fill()
        if not search.take_back():
            break


def take_back(loads: DiskLoads, bands: Sequence[Band]) -> None:
    """Takes back moves that bands do not need, those of empty replicas among them."""
    _Search(loads, bands).take_back()


class _Search:
    def __init__(self, loads: DiskLoads, bands: Sequence[Band]) -> None:
        self.loads = loads
        self.bands = bands

    def _above(self, disk: int) -> float:
        return self.loads.loads[disk] - self.bands[disk].high

    def _below(self, disk: int) -> float:
        return self.bands[disk].low - self.loads.loads[disk]

    def _room(self, disk: int) -> float:
        return self.bands[disk].high - self.loads.loads[disk]

    def _roomy(self, source: int) -> list[int]:
        """Disks to move to: those that lack first, then those with the most room; the own broker's first of equals."""
        loads = self.loads
        broker = loads.disks[source].broker
        disks = [disk for disk, place in enumerate(loads.disks) if place.open and disk != source]
        disks.sort(key=lambda disk: (-max(0.0, self._below(disk)), -self._room(disk), disk))
        own = [disk for disk in disks if loads.disks[disk].broker == broker]
        return [*disks[:TARGETS], *own]

    def relieve(self) -> None:
        """Takes from disks above their band, the worst first, until they are in it or nothing helps."""
        stuck: set[int] = set()
        while True:
            above = [disk for disk in range(len(self.bands)) if self._above(disk) > 0 and disk not in stuck]
            if not above:
                return
            source = max(above, key=lambda disk: (self._above(disk), -disk))
            if not (self._move_from(source) or self._swap_from(source)):
                stuck.add(source)

    def _move_from(self, source: int) -> bool:
        excess = self._above(source)
        targets = self._roomy(source)
        held = self.loads.held[source]
        best: tuple[float, int, int, int] | None = None
        for target in targets:
            room = self._room(target)
            if room <= 0:
                continue
            lacks = max(0.0, self._below(target))
            # The smallest that suffices if it fits, else the largest that fits.
            enough = bisect.bisect_left(held, (int(min(excess, room)), -1))
            for place in _around(enough, len(held)):
                weight, item = held[place]
                if not weight or weight > room or not self.loads.may_move(item, source, target):
                    continue
                # Bytes that serve neither the disk above nor one below are wasted.
                wasted = max(0.0, weight - excess) + max(0.0, weight - max(lacks, 0.0)) * 1.0
                back = self.loads.cost(item, target) - self.loads.cost(item, source)
                key = (wasted + max(0, back - weight) - min(excess, weight), -weight, target, item)
                if best is None or key < best:
                    best = key
                break
        if best is None:
            return False
        self.loads.move(best[3], source, best[2])
        return True

    def _swap_from(self, source: int) -> bool:
        """Exchanges a replica of a disk above its band with a smaller one of another disk."""
        excess = self._above(source)
        found = [
            swap
            for target in self._roomy(source)
            if self._room(target) > 0
            and (swap := self._best_swap(source, target, min(excess, self._room(target)), self._room(target)))
        ]
        return self._swap(min(found, default=None))

    def _swap_to(self, target: int) -> bool:
        """Exchanges a replica of a disk below its band with a larger one of another disk."""
        loads = self.loads
        lacks, room = self._below(target), self._room(target)
        sources = [disk for disk in range(len(self.bands)) if disk != target]
        sources.sort(key=lambda disk: (-(loads.loads[disk] - self.bands[disk].low), disk))
        found = [
            swap
            for source in sources[:TARGETS]
            if (spare := loads.loads[source] - self.bands[source].low) > 0
            and (swap := self._best_swap(source, target, min(lacks, spare), min(room, spare)))
        ]
        return self._swap(min(found, default=None))

    def _best_swap(self, source: int, target: int, wanted: float, most: float) -> Swap | None:
        """The cheapest exchange that brings about `wanted` bytes from one disk to another, and no more than `most`."""
        loads = self.loads
        best: Swap | None = None
        for weight, item in reversed(loads.held[source][-CANDIDATES:]):
            place = bisect.bisect_left(loads.held[target], (int(weight - wanted), -1))
            for smaller, other in loads.held[target][max(0, place - 1) : place + 3]:
                gain = weight - smaller
                if not 0 < gain <= most or not self._may_swap(item, source, other, target):
                    continue
                key = ((weight + smaller) / min(gain, wanted), item, source, other, target)
                if best is None or key < best:
                    best = key
        return best

    def _swap(self, swap: Swap | None) -> bool:
        if swap is None:
            return False
        _, item, source, other, target = swap
        self.loads.move(item, source, target)
        self.loads.move(other, target, source)
        return True

    def _may_swap(self, item: int, source: int, other: int, target: int) -> bool:
        loads = self.loads
        if not loads.may_move(item, source, target, swapped=True) or not loads.may_move(
            other, target, source, swapped=True
        ):
            return False
        leaving, entering = loads.disks[source].broker, loads.disks[target].broker
        if loads.guard is None or leaving == entering:
            return True
        return loads.guard.allows({item: (leaving, entering), other: (entering, leaving)})

    def fill(self) -> None:
        """Brings to disks below their band what others can spare."""
        stuck: set[int] = set()
        while True:
            below = [disk for disk in range(len(self.bands)) if self._below(disk) > 0 and disk not in stuck]
            if not below:
                return
            target = max(below, key=lambda disk: (self._below(disk), -disk))
            if not self.loads.disks[target].open or not (self._move_to(target) or self._swap_to(target)):
                stuck.add(target)

    def _move_to(self, target: int) -> bool:
        loads = self.loads
        lacks, room = self._below(target), self._room(target)
        sources = [disk for disk in range(len(self.bands)) if disk != target]
        sources.sort(key=lambda disk: (-(loads.loads[disk] - self.bands[disk].low), disk))
        for source in sources[:TARGETS]:
            spare = loads.loads[source] - self.bands[source].low
            if spare <= 0:
                break
            held = loads.held[source]
            place = bisect.bisect_left(held, (int(min(lacks, spare)), -1))
            for each in _around(place, len(held)):
                weight, item = held[each]
                if weight and weight <= min(spare, room) and loads.may_move(item, source, target):
                    loads.move(item, source, target)
                    return True
        return False

    def take_back(self) -> bool:
        """Undoes moves that are not needed any more, the largest first, and moves smaller ones instead of others."""
        loads = self.loads
        moved = sorted(
            (
                (loads.weights[item], item, disk)
                for item, on in enumerate(loads.on)
                for disk in on.values()
                if loads.former[item].get(loads.disks[disk].broker) != disk
            ),
            reverse=True,
        )
        changed = False
        for weight, item, disk in moved:
            for home in loads.former[item].values():
                if loads.on[item].get(loads.disks[disk].broker) != disk or home in loads.on[item].values():
                    continue
                if not weight or (weight <= self._room(home) and loads.loads[disk] - weight >= self.bands[disk].low):
                    if loads.may_move(item, disk, home):
                        loads.move(item, disk, home)
                        changed = True
                elif self._replace(item, disk, home):
                    changed = True
        return changed

    def _replace(self, item: int, disk: int, home: int) -> bool:
        """Moves a smaller replica from its home instead, or two that are smaller together; all stay in their bands."""
        loads = self.loads
        weight = loads.weights[item]
        need = math.ceil(max(weight - self._room(home), weight - (loads.loads[disk] - self.bands[disk].low), 1))
        held = [each for each in loads.held[home] if each[0] and not loads.cost(each[1], home)]
        place = bisect.bisect_left(held, (need, -1))
        instead: list[tuple[int, tuple[int, ...]]] = []
        instead += [(smaller, (other,)) for smaller, other in held[place : place + CANDIDATES] if smaller < weight]
        if not loads.is_bound or loads.disks[disk].broker == loads.disks[home].broker:
            instead += _pairs(held, need, weight)
        instead.sort()
        for _, others in instead[:CANDIDATES]:
            if all(self._may_swap(item, disk, other, home) for other in others):
                loads.move(item, disk, home)
                for other in others:
                    loads.move(other, home, disk)
                return True
        return False


def _pairs(held: Sequence[tuple[int, int]], need: int, below: int) -> list[tuple[int, tuple[int, ...]]]:
    """For each replica the smallest other one with which it is at least `need`, where both stay `below` a sum."""
    found: list[tuple[int, tuple[int, ...]]] = []
    high = len(held) - 1
    for low, (weight, item) in enumerate(held):
        while high > low and held[high - 1][0] + weight >= need and high - 1 > low:
            high -= 1
        if high <= low:
            break
        total = held[high][0] + weight
        if need <= total < below:
            found.append((total, (item, held[high][1])))
    return found


def _around(place: int, length: int) -> list[int]:
    """Places to try: from the one that suffices upwards a few, then downwards."""
    up = list(range(place, min(place + 4, length)))
    down = list(range(place - 1, max(-1, place - CANDIDATES), -1))
    return up + down
