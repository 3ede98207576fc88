"""Bytes on disks while a plan is made: what each may hold, what lies on it, and what may go there."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tidelog.placement.plan.layout import Layout


@dataclass(frozen=True, slots=True)
class DiskPlace:
    """A log directory; `path` is None for a broker whose directories are not known, which counts as one."""

    broker: int
    path: str | None
    open: bool
    """Whether it may get replicas."""


@dataclass(slots=True)
class Band:
    """Loads that a disk may have."""

    low: float
    high: float


class Guard(Protocol):
    """Loads of brokers in another measure (`guard.BrokerGuard`)."""

    def allows(self, items: Mapping[int, tuple[int, int]]) -> bool: ...

    def move(self, item: int, leaving: int, entering: int) -> None: ...


class DiskLoads:
    """The replicas of a layout by disk. Weights are whole numbers, equal for all replicas of a partition.

    `counts` [broker] -> replicas; where `count_bounds`, [broker] -> (least, most), are given, moves keep to them.
    With `by_broker` each broker counts as one disk. A `guard` has loads in another measure, which moves keep to too.
    """

    def __init__(
        self,
        layout: Layout,
        weights: Sequence[int],
        count_bounds: Sequence[tuple[int, int]] | None = None,
        *,
        by_broker: bool = False,
        guard: Guard | None = None,
    ) -> None:
        self.layout = layout
        self.weights = weights
        self.disks = _disk_places(layout, by_broker=by_broker)
        self._of_broker: dict[int, list[int]] = {}
        index: dict[tuple[int, str | None], int] = {}
        for number, place in enumerate(self.disks):
            self._of_broker.setdefault(place.broker, []).append(number)
            index[place.broker, place.path] = number
        self.loads = [0] * len(self.disks)
        self.held: list[list[tuple[int, int]]] = [[] for _ in self.disks]
        """[disk] -> (weight, item), ascending."""
        self.on: list[dict[int, int]] = []
        """[item] -> its disks, [broker] -> disk."""
        self.former: list[dict[int, int]] = []
        """The same before the plan."""
        self.counts = list(layout.staying)
        self._count_bounds = count_bounds
        self.guard = guard
        self._add_staying(index)
        self.staying_loads = list(self.loads)
        """What partitions that are not moved have on the disks."""
        self.former_loads = list(self.loads)
        """What the disks held before the plan."""
        for item, partition in enumerate(layout.partitions):
            directories = partition.directories or (None,) * len(partition.replicas)
            former = zip(layout.former(item), directories, strict=True)
            self.former.append({broker: self._disk(index, broker, path) for broker, path in former})
            for disk in self.former[item].values():
                self.former_loads[disk] += weights[item]
        for item in range(len(layout.partitions)):
            self.on.append({})
            for broker, path in zip(layout.replicas[item], layout.directories[item], strict=True):
                known = path is not None or broker in self.former[item]
                self._put(item, self._disk(index, broker, path) if known else self._lightest(broker))

    def _disk(self, index: dict[tuple[int, str | None], int], broker: int, path: str | None) -> int:
        """The disk of a directory, or the broker's first where the directory is not known."""
        return index.get((broker, path), self._of_broker[broker][0])

    def _lightest(self, broker: int) -> int:
        usable = [disk for disk in self._of_broker[broker] if self.disks[disk].open] or self._of_broker[broker]
        return min(usable, key=lambda disk: (self.loads[disk], disk))

    def _add_staying(self, index: dict[tuple[int, str | None], int]) -> None:
        """The bytes of partitions that are not moved."""
        layout = self.layout
        if layout.goals.topics is not None:
            return
        moving = {partition.key for partition in layout.partitions}
        for key, partition in layout.state.partitions.items():
            if key not in moving:
                directories = partition.directories or (None,) * len(partition.replicas)
                for broker_id, path in zip(partition.replicas, directories, strict=True):
                    self.loads[self._disk(index, layout.index[broker_id], path)] += partition.size or 0

    def _put(self, item: int, disk: int) -> None:
        broker = self.disks[disk].broker
        self.on[item][broker] = disk
        self.loads[disk] += self.weights[item]
        self.counts[broker] += 1
        bisect.insort(self.held[disk], (self.weights[item], item))

    @property
    def drops(self) -> bool:
        """Whether some partitions are to have fewer replicas."""
        needs = self.layout.needs
        return any(len(former) > need for former, need in zip(self.former, needs, strict=True))

    @property
    def is_bound(self) -> bool:
        """Whether brokers have bounds beside those of their disks' loads."""
        return self._count_bounds is not None or self.guard is not None

    def move(self, item: int, source: int, target: int) -> None:
        """Takes a replica from one disk to another."""
        broker = self.disks[source].broker
        del self.on[item][broker]
        self.loads[source] -= self.weights[item]
        self.counts[broker] -= 1
        if self.guard is not None:
            self.guard.move(item, broker, self.disks[target].broker)
        held = self.held[source]
        del held[bisect.bisect_left(held, (self.weights[item], item))]
        self._put(item, target)

    def may_move(self, item: int, source: int, target: int, *, swapped: bool = False) -> bool:
        """Whether rules let a replica go from one disk to another; with `swapped` another one comes for it."""
        layout = self.layout
        leaving, entering = self.disks[source].broker, self.disks[target].broker
        back = self.former[item].get(entering) == target
        if not self.disks[target].open and not back:
            return False
        if leaving == entering:
            return True
        if entering in self.on[item] or not layout.holds[entering] or layout.pins.get(item) == leaving:
            return False
        if layout.closed[entering] is not None and entering not in self.former[item]:
            return False
        if not swapped and self._count_bounds is not None:
            least, most = self._count_bounds[leaving][0], self._count_bounds[entering][1]
            if self.counts[leaving] <= least or self.counts[entering] >= most:
                return False
        if not swapped and self.guard is not None and not self.guard.allows({item: (leaving, entering)}):
            return False
        return self._spreads(item, leaving, entering)

    def _spreads(self, item: int, leaving: int, entering: int) -> bool:
        racks = self.layout.racks
        if racks is None or racks[leaving] == racks[entering]:
            return True
        others = {racks[broker] for broker in self.on[item] if broker != leaving}
        count = len(others | {racks[entering]})
        return count >= min(self.layout.needs[item], self.layout.rack_count)

    def place(self, placed: Sequence[Sequence[int]]) -> None:
        """Puts all replicas where they are told to be, [item] -> disks."""
        self.loads = list(self.staying_loads)
        self.counts = list(self.layout.staying)
        self.held = [[] for _ in self.disks]
        for item, disks in enumerate(placed):
            self.on[item] = {}
            for disk in disks:
                self._put(item, disk)

    def cost(self, item: int, disk: int) -> int:
        """Bytes that it takes to have a replica on a disk: none where it has been there."""
        return 0 if self.former[item].get(self.disks[disk].broker) == disk else self.weights[item]

    def moved_bytes(self) -> int:
        """What the layout copies in all."""
        return sum(self.cost(item, disk) for item, on in enumerate(self.on) for disk in on.values())

    def settle(self) -> None:
        """Gives the layout the brokers and directories that were found."""
        layout = self.layout
        for item, on in enumerate(self.on):
            layout.settle(item, on.keys())
            for place, broker in enumerate(layout.replicas[item]):
                path = self.disks[on[broker]].path
                if self.former[item].get(broker) == on[broker]:
                    partition = layout.partitions[item]
                    former = partition.directories or (None,) * len(partition.replicas)
                    path = former[partition.replicas.index(layout.brokers[broker].id)]
                layout.directories[item][place] = path


def _disk_places(layout: Layout, *, by_broker: bool) -> list[DiskPlace]:
    disks = []
    for place, broker in enumerate(layout.brokers):
        if by_broker or not broker.directories:
            disks.append(DiskPlace(place, None, layout.holds[place]))
        for directory in () if by_broker else broker.directories:
            usable = layout.holds[place] and directory.error is None and not directory.cordoned
            disks.append(DiskPlace(place, directory.path, usable))
    return disks


def bands(loads: DiskLoads, tolerance: float) -> list[Band]:
    """What each disk should hold: an even share, by size where all sizes are known and differ; closed ones no more.

    Shares are of brokers first, then of the directories inside each, so that both are even.
    """
    layout = loads.layout
    usable = [number for number, disk in enumerate(loads.disks) if disk.open]
    fixed = sum(
        loads.loads[number]
        for number, disk in enumerate(loads.disks)
        if not disk.open and not layout.is_drained(disk.broker)
    )
    shares = _shares(loads, usable)
    total = float(sum(loads.loads) - fixed)
    largest = _largest(loads)
    found = [_closed_band(loads, number) for number in range(len(loads.disks))]
    while shares:
        whole = sum(shares.values())
        giants = {
            number: largest[number]
            for number, share in shares.items()
            if largest[number] > total * share / whole * (1 + tolerance)
        }
        if not giants:
            break
        # A replica above the share of its disk has the disk to itself, and the others share what is left.
        for number, weight in giants.items():
            found[number] = Band(0.0, float(weight))
            total -= weight
            del shares[number]
    for number, share in shares.items():
        target = max(0.0, total) * share / sum(shares.values())
        found[number] = Band(target * (1 - tolerance), target * (1 + tolerance))
    return found


def _largest(loads: DiskLoads) -> list[int]:
    """[disk] -> the largest replica that may have it to itself.

    One that a stage before has moved counts where it was, if it may go back: it need not be copied for that.
    """
    largest = [0] * len(loads.disks)
    for item, on in enumerate(loads.on):
        taken = set(on.values())
        for disk in on.values():
            if disk not in loads.former[item].values():
                homes = (home for home in loads.former[item].values() if home not in taken)
                back = (home for home in homes if loads.may_move(item, disk, home, swapped=True))
                disk = next(back, disk)
                taken.add(disk)
            largest[disk] = max(largest[disk], loads.weights[item])
    return largest


def _closed_band(loads: DiskLoads, number: int) -> Band:
    """Of a disk that gets nothing: it is emptied where its broker is drained, and left alone where that is offline."""
    layout, broker, load = loads.layout, loads.disks[number].broker, float(loads.loads[number])
    if layout.is_drained(broker):
        return Band(0.0, 0.0)
    return Band(0.0 if layout.holds[broker] else load, load)


def _shares(loads: DiskLoads, usable: Sequence[int]) -> dict[int, float]:
    layout = loads.layout
    sizes: dict[int, int] = {}
    for number in usable:
        disk = loads.disks[number]
        found = next((each for each in layout.brokers[disk.broker].directories if each.path == disk.path), None)
        if found is None or not found.total_bytes:
            sizes = {}
            break
        sizes[number] = found.total_bytes
    if sizes and max(sizes.values()) > min(sizes.values()):
        return {number: float(size) for number, size in sizes.items()}
    per_broker: dict[int, int] = {}
    for number in usable:
        broker = loads.disks[number].broker
        per_broker[broker] = per_broker.get(broker, 0) + 1
    return {number: 1 / per_broker[loads.disks[number].broker] for number in usable}
