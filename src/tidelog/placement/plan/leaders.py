"""Which replica of each partition is the preferred leader, so that brokers lead as many: the fewest changes, proven."""

from __future__ import annotations

from tidelog.placement.plan.flow import Bounds, CountFlow
from tidelog.placement.plan.layout import Layout


def settle_leaders(layout: Layout) -> int:
    """Puts another replica first where brokers lead too many; the number of changes, which is the proven least.

    A broker that leads more than its share because its replicas have no other live place, keeps the rest of them.
    """
    live = [broker.online and layout.holds[place] for place, broker in enumerate(layout.brokers)]
    able = [item for item, replicas in enumerate(layout.replicas) if sum(live[broker] for broker in replicas) > 0]
    candidates = [frozenset(broker for broker in layout.replicas[item] if live[broker]) for item in able]
    first = [next(broker for broker in layout.replicas[item] if live[broker]) for item in able]
    groups = [(frozenset(place for place, may in enumerate(live) if may), len(able))]

    def undecided() -> CountFlow:
        return CountFlow(
            len(layout.brokers),
            [[broker] for broker in first],
            [1] * len(able),
            may_enter=lambda item, broker: broker in candidates[item],
        )

    flow = undecided()
    while (stuck := flow.solve(_bounds(flow, groups, apart=len(groups) > 1))) is not None:
        split = [
            (part, sum(flow.counts[broker] for broker in part))
            for brokers, _ in groups
            for part in (brokers & stuck.reached, brokers - stuck.reached)
            if part
        ]
        assert len(split) > len(groups), "the excess cannot get to all brokers"
        groups = split
        # On from here: totals of groups hold once they have exchanged all they can, and only then another cut is right.
        flow = flow.begun_here()
    if len(groups) > 1:
        # Within the bounds of all groups, the fewest changes are found from the leaders of before.
        flow = undecided()
        stuck = flow.solve(_bounds(flow, groups))
        assert stuck is None, "these bounds were met"
    changes = 0
    for item, places in zip(able, flow.places, strict=True):
        [leader] = places
        changes += layout.lead(item, leader)
    return changes


def _bounds(flow: CountFlow, groups: list[tuple[frozenset[int], int]], *, apart: bool = False) -> Bounds:
    """Floor and ceiling of each group's average; brokers of no group lead nothing."""
    bounds = Bounds(list(flow.counts), list(flow.counts), groups, apart)
    for brokers, total in groups:
        for broker in brokers:
            bounds.low[broker], bounds.high[broker] = total // len(brokers), -(-total // len(brokers))
    return bounds
