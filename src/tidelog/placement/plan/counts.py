"""Which replicas move so that brokers have as many as they should: the fewest moves, proven (`flow`).

The bounds follow from the goals. Where rules (racks, closed brokers) keep brokers from the average, the counts become
as even as the rules let them: the brokers that the excess can get to are a group with an average of its own, the others
are another one, and it is solved again, until the bounds of all groups are met.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.placement.plan.flow import Bounds, CountFlow, Stuck
from tidelog.placement.plan.goals import NOT_TO_BE_FILLED, Balance, PlanRefused
from tidelog.placement.plan.layout import Layout

SHARES_ABOVE: Final = (0.0, 0.1, 0.5)
"""Of the average that brokers may get above it where the fewest moves need that; beyond, as it comes."""
REASONS_MAX: Final = 5
"""Partitions that a refusal names."""


@dataclass(frozen=True, slots=True)
class Group:
    """Brokers that share an average, and the replicas that they hold together at the end."""

    brokers: frozenset[int]
    total: int


@dataclass(frozen=True, slots=True)
class Counted:
    """What the stage did: the fewest moves that could do, proven, and the bounds that all brokers are within."""

    moves_least: int
    bounds: Bounds
    groups: tuple[Group, ...]
    """One where all brokers are even; more where rules keep some apart."""


def settle_counts(layout: Layout, pinned: int = 0) -> Counted:
    """Moves as few replicas as drains, fills, factors, racks and even counts need. PlanRefused where that cannot be.

    `pinned`: the copies that `layout.pins` need at least. Which pins there are was chosen before, so beside them the
    bound is that of the counts alone, or of the pins alone, whichever is larger.
    """
    solve = _evenly if Balance.COUNTS in layout.goals.balance else _loosely
    flow, bounds, groups = solve(layout, layout.pins)
    least = flow.cost
    if layout.pins:
        without, _, even = solve(layout, {})
        least = min(flow.cost, max(pinned, without.cost if len(even) == len(groups) else 0))
    for item, places in enumerate(flow.places):
        if places != set(layout.replicas[item]):
            layout.settle(item, places)
    return Counted(least, bounds, tuple(groups))


def _evenly(layout: Layout, pins: Mapping[int, int]) -> tuple[CountFlow, Bounds, list[Group]]:
    """All brokers as even as rules let them be."""
    flow = _flow(layout, pins)
    groups = [_together(layout, flow)]
    bounds = _even_bounds(flow, groups)
    while (stuck := flow.solve(bounds)) is not None:
        split = _split(flow, groups, stuck)
        if len(split) == len(groups):
            raise PlanRefused(_why(layout, flow, stuck))
        groups = split
        # On from here: totals of groups hold once they have exchanged all they can, and only then another cut is right.
        flow = flow.begun_here()
        bounds = _even_bounds(flow, groups, apart=True)
    if len(groups) > 1:
        # Within the bounds of all groups, the fewest moves are found from where replicas were.
        flow = _flow(layout, pins)
        bounds = _even_bounds(flow, groups)
        stuck = flow.solve(bounds)
        assert stuck is None, "these bounds were met"
    return flow, bounds, groups


def _loosely(layout: Layout, pins: Mapping[int, int]) -> tuple[CountFlow, Bounds, list[Group]]:
    """What has to move, to where there is least; never a move more than what has to. The counts are no goal."""
    flow = _flow(layout, pins)
    group = _together(layout, flow)
    stuck = flow.solve(_loose_bounds(layout, flow, group, sum(flow.needs)))
    if stuck is not None:
        raise PlanRefused(_why(layout, flow, stuck))
    least = flow.cost
    for share in SHARES_ABOVE:
        closer = _flow(layout, pins)
        bounds = _loose_bounds(layout, closer, group, int(share * group.total / len(group.brokers)))
        if closer.solve(bounds) is None and closer.cost == least:
            return closer, bounds, [group]
    return flow, Bounds(list(flow.counts), list(flow.counts)), [group]


def _together(layout: Layout, flow: CountFlow) -> Group:
    """All brokers that may hold replicas."""
    brokers = frozenset(place for place, may in enumerate(layout.holds) if may)
    return Group(brokers, sum(flow.counts[place] for place in brokers) + sum(flow.missing.values()))


def _flow(layout: Layout, pins: Mapping[int, int]) -> CountFlow:
    closed = layout.closed
    stranded = _stranded(layout)
    return CountFlow(
        len(layout.brokers),
        [_kept_first(layout, item) for item in range(len(layout.partitions))],
        layout.needs,
        may_enter=lambda item, broker: (
            closed[broker] is None or (closed[broker] == NOT_TO_BE_FILLED and item in stranded)
        ),
        leave={place for place, broker in enumerate(layout.brokers) if broker.id in layout.goals.drain},
        gone={place for place, may in enumerate(layout.holds) if not may},
        racks=layout.racks,
        rack_count=layout.rack_count,
        extra=layout.staying,
        pins=pins,
    )


def _kept_first(layout: Layout, item: int) -> list[int]:
    """The brokers of a partition; where it is to have fewer, those in sync first: it drops those at the end."""
    former = layout.former(item)
    if layout.needs[item] >= len(former):
        return former
    in_sync = {layout.index[broker_id] for broker_id in layout.partitions[item].isr}
    return sorted(former, key=lambda broker: broker not in in_sync)


def _stranded(layout: Layout) -> set[int]:
    """Partitions that have to leave a broker and have no place on those to fill, which have them, or whose racks do."""
    filled = [place for place, why in enumerate(layout.closed) if why is None]
    if not layout.goals.fill or NOT_TO_BE_FILLED not in layout.closed:
        return set()
    found = set()
    for item, need in enumerate(layout.needs):
        kept = {broker for broker in layout.former(item) if layout.holds[broker]}
        if len(kept) < need and not any(_may_join(layout, place, kept, need) for place in filled):
            found.add(item)
    return found


def _may_join(layout: Layout, broker: int, kept: set[int], need: int) -> bool:
    if broker in kept:
        return False
    racks = layout.racks
    return racks is None or need > layout.rack_count or racks[broker] not in {racks[each] for each in kept}


def _even_bounds(flow: CountFlow, groups: list[Group], *, apart: bool = False) -> Bounds:
    """Floor and ceiling of each group's average; brokers of no group, which are gone, keep what they have."""
    bounds = Bounds(list(flow.counts), list(flow.counts), [(group.brokers, group.total) for group in groups], apart)
    for group in groups:
        for broker in group.brokers:
            bounds.low[broker] = group.total // len(group.brokers)
            bounds.high[broker] = -(-group.total // len(group.brokers))
    return bounds


def _loose_bounds(layout: Layout, flow: CountFlow, group: Group, above: int) -> Bounds:
    """No broker gains beyond so many above the average, those to fill reach it; what is above stays there."""
    bounds = Bounds(list(flow.counts), list(flow.counts))
    floor, ceiling = group.total // len(group.brokers), -(-group.total // len(group.brokers))
    for place in group.brokers:
        fill = layout.brokers[place].id in layout.goals.fill
        bounds.low[place] = floor if fill else min(flow.counts[place], floor)
        bounds.high[place] = max(flow.counts[place], ceiling + above)
    return bounds


def _split(flow: CountFlow, groups: list[Group], stuck: Stuck) -> list[Group]:
    """Each group in two: the brokers that the excess gets to, which keep all of it, and the others."""
    waiting: dict[int, int] = {}
    for item, number in flow.missing.items():
        entry = next((bin for bin in sorted(stuck.reached) if flow.may_take(item, bin)), None)
        if entry is not None:
            waiting[entry] = waiting.get(entry, 0) + number
    split: list[Group] = []
    for group in groups:
        split += [
            Group(brokers, sum(flow.counts[each] + waiting.get(each, 0) for each in brokers))
            for brokers in (group.brokers & stuck.reached, group.brokers - stuck.reached)
            if brokers
        ]
    return split


def _why(layout: Layout, flow: CountFlow, stuck: Stuck) -> list[str]:
    """The rules that leave a replica no place, for the first few partitions that have none."""
    reasons = []
    for item in stuck.items[:REASONS_MAX]:
        partition = layout.partitions[item]
        against = [
            f"broker {broker.id} ({why})"
            for place, broker in enumerate(layout.brokers)
            if place not in flow.places[item] and (why := _against(layout, flow, item, place)) is not None
        ]
        held = [layout.brokers[place].id for place in sorted(flow.places[item])]
        reasons.append(
            f"{partition.key} needs {layout.needs[item]} replicas and can have {len(held)}, on {held}: not on "
            + (", ".join(against) or "any other broker")
        )
    if len(stuck.items) > REASONS_MAX:
        reasons.append(f"and {len(stuck.items) - REASONS_MAX} partitions more")
    reasons += [
        f"broker {layout.brokers[place].id} holds {flow.counts[place]} replicas, too many of which may not go"
        for place in stuck.bins
    ]
    return reasons or _not_filled(layout, flow)


def _not_filled(layout: Layout, flow: CountFlow) -> list[str]:
    """Why brokers to fill stay below the average: the rules that keep from them what others could give."""
    goals = layout.goals
    rules = [
        rule
        for rule, holds in (
            ("--topic", goals.topics is not None),
            ("--leave", bool(goals.leave)),
            ("racks", layout.racks is not None),
            ("moves under way", bool(layout.state.under_way)),
        )
        if holds
    ]
    against = ", ".join(rules) or "partitions that have a replica there already"
    return [
        f"--fill {broker.id}: broker {broker.id} gets to {flow.counts[place]} replicas and not to the average, because "
        f"of {against}"
        for place, broker in enumerate(layout.brokers)
        if broker.id in goals.fill
    ]


def _against(layout: Layout, flow: CountFlow, item: int, place: int) -> str | None:
    if layout.closed[place] is not None:
        return layout.closed[place]
    if layout.racks is not None and any(layout.racks[place] == layout.racks[each] for each in flow.places[item]):
        return f"rack {layout.brokers[place].rack} has one already"
    return None
