"""The fewest changes that bring counts into bounds: a minimum-cost flow, solved by shortest augmenting paths.

Each item (a partition) sits in some bins (brokers), and must keep its number of bins. A bin's count has bounds. Moving
an item into a bin where it has not been costs 1, moving it back costs nothing. As a flow: source -> item -> bin ->
sink, where the cell of an item in a rack has a capacity of its own; what stands costs 0, so what stands is a flow of
least cost for *its* counts. From there the excess is pushed along shortest paths of the residual network, which keeps
the cost least for the counts reached (Ahuja, Magnanti, Orlin: Network Flows, 9.7): at the end it is the proven least.

The network of 50,000 items and 110 bins has millions of arcs. Here only bins are nodes: an arc from bin a to bin b of
cost -1, 0 or 1 is there if some item in a may go to b instead. A shortest path never needs to take an item to other
racks twice, since it could be cut short there. Distances are found by Bellman and Ford's method, then paths are taken
along tight arcs until there is none, so that a handful of rounds suffice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

FAR: Final = 1 << 60


@dataclass(slots=True)
class Bounds:
    """How many items a bin may hold, and how many all bins of a group hold together.

    Bins of no group keep what they have; `groups` None: all are one, whose total follows.
    """

    low: list[int]
    high: list[int]
    groups: Sequence[tuple[Collection[int], int]] | None = None
    """(bins, total)"""
    apart: bool = False
    """Whether groups exchange nothing: each is brought within its bounds by itself."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """Why the bounds cannot be met: the excess of `bins` and the missing places of `items` reach no bin with room.

    `reached` are the bins that the excess can get to, all of them full.
    """

    bins: tuple[int, ...]
    items: tuple[int, ...]
    reached: frozenset[int]


class CountFlow:
    """Items in bins, moved as little as possible until all counts are within bounds.

    `places[item]` are the bins of an item, `former[item]` those where being costs nothing, `needs[item]` the number of
    bins it must have. `may_enter(item, bin)` says which bins it may newly enter; bins of `leave` are left at once.
    `racks` [bin] -> rack: at most one bin of an item a rack while it needs no more than there are racks (`rack_count`),
    at least one a rack otherwise; None: no racks. Racks from `rack_count` on are unknown ones, each of one bin.
    An item that needs fewer bins than it has leaves those of `gone` first, and never goes back there. `extra` [bin] ->
    items that stay there and are no part of this. `pins` [item] -> a bin that it has to be in.
    """

    def __init__(
        self,
        bins: int,
        former: Sequence[Sequence[int]],
        needs: Sequence[int],
        *,
        may_enter: Callable[[int, int], bool],
        leave: Collection[int] = (),
        gone: Collection[int] = (),
        racks: Sequence[int] | None = None,
        rack_count: int = 0,
        extra: Sequence[int] | None = None,
        pins: Mapping[int, int] | None = None,
    ) -> None:
        self.bins = bins
        self.former = [frozenset(bin for bin in each if bin not in leave) for each in former]
        self.needs = list(needs)
        self._may_enter = may_enter
        self._gone = gone
        self._racks = racks
        self._rack_count = rack_count
        self._pins = pins or {}
        self._extra = list(extra) if extra is not None else [0] * bins
        self.places: list[set[int]] = []
        self.counts = list(self._extra)
        """Of each bin, those of `extra` too."""
        self._old: list[dict[int, None]] = [{} for _ in range(bins)]
        self._new: list[dict[int, None]] = [{} for _ in range(bins)]
        self._lost: list[dict[int, None]] = [{} for _ in range(bins)]
        self.missing: dict[int, int] = {}
        """Bins that items still need, [item] -> number."""
        for item, bins_of in enumerate(former):
            self._place(item, [bin for bin in bins_of if bin not in leave])

    def _place(self, item: int, former: Sequence[int]) -> None:
        """An item where it was, as far as it needs to be there and racks allow. It leaves bins of `gone` first."""
        former = sorted(former, key=self._gone.__contains__)
        kept: list[int] = []
        racks: set[int] = set()
        spread = self._racks is not None and self.needs[item] <= self._rack_count
        for bin in former:
            if len(kept) == self.needs[item] or (spread and self.rack(bin) in racks):
                continue
            kept.append(bin)
            racks.add(self.rack(bin))
        if self._racks is not None and not spread:
            kept = self._with_every_rack(former, self.needs[item])
        if item in self._pins and self._pins[item] not in kept:
            kept = self._with_pin(kept, self._pins[item], self.needs[item])
        self.places.append(set(kept))
        self.former[item] -= {bin for bin in former if bin in self._gone and bin not in kept}
        for bin in self.former[item]:
            (self._old if bin in self.places[item] else self._lost)[bin][item] = None
        for bin in kept:
            self.counts[bin] += 1
            if bin not in self.former[item]:
                self._new[bin][item] = None
        if len(kept) < self.needs[item]:
            self.missing[item] = self.needs[item] - len(kept)

    def _with_every_rack(self, former: Sequence[int], need: int) -> list[int]:
        """Bins of an item that needs more bins than there are racks: one of each rack first, room left for the rest.

        Those in unknown racks come last: they go first where the item has more than it needs.
        """
        unknown = [bin for bin in former if self.rack(bin) >= self._rack_count]
        first: dict[int, int] = {}
        for bin in former:
            if bin not in unknown:
                first.setdefault(self.rack(bin), bin)
        spare = need - self._rack_count
        others = [bin for bin in former if bin not in unknown and bin not in first.values()]
        return [*first.values(), *others[:spare], *unknown][:need]

    def _with_pin(self, kept: Sequence[int], pin: int, need: int) -> list[int]:
        """The bins of an item with the one it has to be in, for one of the same rack, or for one that can be spared."""
        racks = [self.rack(bin) for bin in kept]
        if self._racks is None or need <= self._rack_count:
            room = len(kept) < need and self.rack(pin) not in racks
        else:
            known = {rack for rack in (*racks, self.rack(pin)) if rack < self._rack_count}
            room = need - len(kept) - 1 >= self._rack_count - len(known)
        if room:
            return [*kept, pin]
        if self.rack(pin) in racks:
            place = racks.index(self.rack(pin))
        else:
            place = next((place for place, rack in enumerate(racks) if racks.count(rack) > 1), 0)
        return [*kept[:place], pin, *kept[place + 1 :]]

    def rack(self, bin: int) -> int:
        """The rack of a bin; where racks count for nothing, each bin is its own."""
        return self._racks[bin] if self._racks is not None else bin

    # Arcs

    def _fits(self, item: int, leaving: int | None, entering: int, places: set[int] | None = None) -> bool:
        """Whether an item may leave a bin (None: it lacks one) for another by pins and racks; `places`: where it is."""
        if leaving is not None and self._pins.get(item) == leaving:
            return False
        if self._racks is None:
            return True
        rack, left = self._racks[entering], None if leaving is None else self._racks[leaving]
        if rack == left:
            return True
        places = self.places[item] if places is None else places
        if self.needs[item] <= self._rack_count:
            return all(self._racks[bin] != rack or bin == leaving for bin in places)
        if leaving is not None:
            return any(self._racks[bin] == left for bin in places if bin != leaving)
        used = {self._racks[bin] for bin in places}
        free = self.needs[item] - len(places)
        return rack not in used or free > self._rack_count - len(used)

    def _items(self, leaving: int, entering: int, cost: int, *, snapshot: bool = False) -> Iterator[int]:
        """Items that may go from one bin to another at a cost; with `snapshot` items may be moved meanwhile."""
        lost = self._lost[entering]
        if cost < 0:
            yield from self._in_both(self._new[leaving], lost, leaving, entering, snapshot)
            return
        if cost == 0:
            yield from self._in_both(self._old[leaving], lost, leaving, entering, snapshot)
        held: Iterable[int] = self._new[leaving] if cost == 0 else self._old[leaving]
        for item in tuple(held) if snapshot else held:
            if (
                entering not in self.places[item]
                and item not in lost
                and self._may_enter(item, entering)
                and self._fits(item, leaving, entering)
            ):
                yield item

    def _in_both(
        self, held: dict[int, None], lost: dict[int, None], leaving: int, entering: int, snapshot: bool
    ) -> Iterator[int]:
        few, many = (held, lost) if len(held) < len(lost) else (lost, held)
        for item in tuple(few) if snapshot else few:
            if item in many and self._fits(item, leaving, entering):
                yield item

    def _cheapest(self, leaving: int, entering: int) -> int:
        """The cost of the cheapest arc between two bins, FAR where there is none."""
        new, lost = self._new[leaving], self._lost[entering]
        for cost in (-1, 0, 1):
            if (cost == -1 and not (new and lost)) or (cost == 0 and not (new or lost)):
                continue
            if next(self._items(leaving, entering, cost), None) is not None:
                return cost
        return FAR

    def _entry_cost(self, item: int, bin: int) -> int:
        """What it costs a missing place of an item to be taken in a bin, FAR where it may not."""
        if bin in self.places[item] or not self._fits(item, None, bin):
            return FAR
        if bin in self.former[item]:
            return 0
        return 1 if self._may_enter(item, bin) else FAR

    def may_take(self, item: int, bin: int) -> bool:
        """Whether a bin may take a missing place of an item."""
        return self._entry_cost(item, bin) < FAR

    def _move(self, item: int, leaving: int | None, entering: int) -> None:
        places = self.places[item]
        if leaving is not None:
            places.remove(leaving)
            self.counts[leaving] -= 1
            if leaving in self.former[item]:
                del self._old[leaving][item]
                self._lost[leaving][item] = None
            else:
                del self._new[leaving][item]
        else:
            self.missing[item] -= 1
            if not self.missing[item]:
                del self.missing[item]
        places.add(entering)
        self.counts[entering] += 1
        if entering in self.former[item]:
            self._old[entering][item] = None
            del self._lost[entering][item]
        else:
            self._new[entering][item] = None

    # Rounds

    def solve(self, bounds: Bounds) -> Stuck | None:
        """Moves items until all counts are within bounds, at least cost; else why that cannot be."""
        while True:
            round = _Round(self, bounds)
            if round.is_done:
                return None
            stuck = round.measure()
            if stuck is not None:
                return stuck
            round.push()

    def begun_here(self) -> CountFlow:
        """The same items as they are now, for other bounds: what brought them here is no cost, and may be undone.

        After a change of bounds this flow would not be of least cost for them, which a round relies on.
        """
        return CountFlow(
            self.bins,
            [sorted(places) for places in self.places],
            self.needs,
            may_enter=lambda item, entering: entering in self.former[item] or self._may_enter(item, entering),
            gone=self._gone,
            racks=self._racks,
            rack_count=self._rack_count,
            extra=self._extra,
            pins=self._pins,
        )

    @property
    def cost(self) -> int:
        """Entries into bins where items have not been."""
        return sum(len(items) for items in self._new)


class _Round:
    """Distances from all excess at once, and the paths that keep to them. Beyond the bins are the sinks, one a group.

    A bin above its high bound has excess, one below its low bound lacks; between the bounds it passes items on to its
    group's sink and back at no cost. So does an item that lacks a place.
    """

    def __init__(self, flow: CountFlow, bounds: Bounds) -> None:
        self.flow = flow
        self.bounds = bounds
        total = sum(flow.counts) + sum(flow.missing.values())
        groups = [(range(flow.bins), total)] if bounds.groups is None else bounds.groups
        self.nodes = flow.bins + len(groups)
        self._sink_of: dict[int, int] = {}
        inside = [
            max(low, min(count, high)) for count, low, high in zip(flow.counts, bounds.low, bounds.high, strict=True)
        ]
        self.surplus = [count - clamped for count, clamped in zip(flow.counts, inside, strict=True)]
        """Of bins, and then of the sinks: what they got above what there is. Below 0: lacks."""
        for sink, (bins, total) in enumerate(groups, start=flow.bins):
            self._sink_of |= dict.fromkeys(bins, sink)
            self.surplus.append(sum(inside[bin] for bin in bins) - total)
        self.distance = [FAR] * self.nodes
        self._costs: dict[tuple[int, int], int] = {}
        self._target = FAR
        self._tries: dict[tuple[int, int], Iterator[int]] = {}

    @property
    def is_done(self) -> bool:
        return not self.flow.missing and not any(self.surplus)

    def measure(self) -> Stuck | None:
        """The distances; why nothing can be pushed, if so."""
        distance = self.distance
        for node, surplus in enumerate(self.surplus):
            if surplus > 0:
                distance[node] = 0
        for item in self.flow.missing:
            for bin in range(self.flow.bins):
                distance[bin] = min(distance[bin], self.flow._entry_cost(item, bin))
        changed = [node for node, far in enumerate(distance) if far < FAR]
        while changed:
            reached: dict[int, None] = {}
            for node in changed:
                for other in range(self.nodes):
                    if distance[node] - 1 < distance[other] and node != other:
                        cost = self._cost(node, other)
                        if distance[node] + cost < distance[other]:
                            distance[other] = distance[node] + cost
                            reached[other] = None
            changed = list(reached)
        self._target = min((distance[node] for node, each in enumerate(self.surplus) if each < 0), default=FAR)
        if self._target < FAR:
            return None
        return Stuck(
            tuple(bin for bin in range(self.flow.bins) if self.surplus[bin] > 0),
            tuple(self.flow.missing),
            frozenset(bin for bin in range(self.flow.bins) if distance[bin] < FAR),
        )

    def _cost(self, node: int, other: int) -> int:
        if node >= self.flow.bins:
            return 0 if self._gives(node, other) else FAR
        if other >= self.flow.bins:
            return 0 if self._takes(node, other) else FAR
        if not self._may_exchange(node, other):
            return FAR
        key = (node, other)
        if key not in self._costs:
            self._costs[key] = self.flow._cheapest(node, other)
        return self._costs[key]

    def _may_exchange(self, bin: int, other: int) -> bool:
        return not self.bounds.apart or self._sink_of.get(bin) == self._sink_of.get(other)

    def _takes(self, bin: int, sink: int) -> bool:
        return self._sink_of.get(bin) == sink and self.bounds.low[bin] <= self.flow.counts[bin] < self.bounds.high[bin]

    def _gives(self, sink: int, bin: int) -> bool:
        return self._sink_of.get(bin) == sink and self.bounds.low[bin] < self.flow.counts[bin] <= self.bounds.high[bin]

    def push(self) -> None:
        """Takes paths along tight arcs until there are none."""
        pushed = False
        for item in list(self.flow.missing):
            for bin in sorted(range(self.flow.bins), key=lambda each: (self.flow.counts[each], each)):
                while item in self.flow.missing:
                    cost = self.flow._entry_cost(item, bin)
                    if cost >= FAR or cost != self.distance[bin]:
                        break
                    path = self._path_from(bin, item)
                    if path is None:
                        break
                    self._take(path, bin, item)
                    pushed = True
        sources = sorted(
            (node for node, each in enumerate(self.surplus) if each > 0), key=lambda node: -self.surplus[node]
        )
        for node in sources:
            while self.surplus[node] > 0 and self.distance[node] == 0:
                path = self._path_from(node)
                if path is None:
                    break
                self._take(path, node, None)
                pushed = True
        assert pushed, "a measured path is there"

    def _path_from(self, start: int, entering: int | None = None) -> list[tuple[int, int, int]] | None:
        """A tight path from a node to one that lacks, as steps (item, or -1 at the sink; from; to); None: none.

        `entering`: the item that takes a missing place at the start.
        """
        path: list[tuple[int, int, int]] = []
        moved = {} if entering is None else {entering: self.flow.places[entering] | {start}}
        seen = {start}
        node = start
        while not (self.surplus[node] < 0 and self.distance[node] == self._target):
            step = self._step(node, seen, moved)
            if step is not None:
                path.append(step)
                self._note(moved, *step)
                node = step[2]
                seen.add(node)
            elif path:
                item, node, left = path.pop()
                self._note(moved, item, left, node)
            else:
                return None
        return path

    def _note(self, moved: dict[int, set[int]], item: int, leaving: int, entering: int) -> None:
        """Notes where an item is once a path was taken so far: a path may move an item more than once."""
        if item >= 0:
            moved[item] = moved.get(item, self.flow.places[item]) - {leaving} | {entering}

    def _step(self, node: int, seen: set[int], moved: dict[int, set[int]]) -> tuple[int, int, int] | None:
        for other in self._nearby(node):
            if other in seen:
                continue
            cost = self.distance[other] - self.distance[node]
            if node >= self.flow.bins:
                if cost == 0 and self._gives(node, other):
                    return -1, node, other
            elif other >= self.flow.bins:
                if cost == 0 and self._takes(node, other):
                    return -1, node, other
            elif -1 <= cost <= 1 and self._may_exchange(node, other):
                item = self._item(node, other, cost, moved)
                if item is not None:
                    return item, node, other
        return None

    def _nearby(self, node: int) -> list[int]:
        """Nodes that tight arcs may lead to, those that lack most first."""
        near = self.distance[node] + 1
        others = [other for other in range(self.nodes) if other != node and self.distance[other] <= near]
        return sorted(others, key=lambda other: (self.surplus[other] >= 0, self._count(other), other))

    def _count(self, node: int) -> int:
        return -1 if node >= self.flow.bins else self.flow.counts[node]

    def _item(self, leaving: int, entering: int, cost: int, moved: dict[int, set[int]]) -> int | None:
        """The next item that may go; what was passed over is not looked at again in this round."""
        key = (leaving, entering)
        if key not in self._tries:
            self._tries[key] = self.flow._items(leaving, entering, cost, snapshot=True)
        flow = self.flow
        for item in self._tries[key]:
            places = moved.get(item, flow.places[item])
            if leaving not in places or entering in places:
                continue
            exact = (entering not in flow.former[item]) - (leaving not in flow.former[item])
            if exact == cost and flow._fits(item, leaving, entering, places):
                return item
        return None

    def _take(self, path: list[tuple[int, int, int]], start: int, item: int | None) -> None:
        """Moves the items of a path; each bin on it keeps its count but the first and the last."""
        if item is None:
            self.surplus[start] -= 1
        else:
            self.flow._move(item, None, start)
        for each, leaving, entering in path:
            if each >= 0:
                self.flow._move(each, leaving, entering)
        self.surplus[path[-1][2] if path else start] += 1
