"""Makes a plan of a state and goals. The same state and goals give the same plan.

    counts, drains, fills, factors, racks     `counts`: minimum-cost flow, proven
    leaders                                   `leaders`: minimum-cost flow, proven

A stage keeps what the stages before it have reached.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.placement.plan.counts import settle_counts
from tidelog.placement.plan.goals import Balance, Goals, check_goals
from tidelog.placement.plan.layout import Layout
from tidelog.placement.plan.leaders import settle_leaders
from tidelog.placement.plan.plan import Plan
from tidelog.placement.plan.state import ClusterState


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan and what is to be said about it."""

    plan: Plan
    leader_changes: int = 0
    """Partitions that get another preferred leader for the sake of even leaders."""
    remarks: tuple[str, ...] = ()
    """What the goals did not reach, and why."""


def make_plan(state: ClusterState, goals: Goals) -> Planned:
    """The plan. PlanRefused where goals or rules contradict each other."""
    check_goals(state, goals)
    layout = Layout.of(state, goals)
    remarks: list[str] = []
    counted = settle_counts(layout)
    if len(counted.groups) > 1:
        shares = ", ".join(
            f"{group.total / len(group.brokers):.1f} on each of brokers "
            f"{sorted(layout.brokers[each].id for each in group.brokers)}"
            for group in counted.groups
        )
        remarks.append(f"rules keep counts from being even: {shares}")
    leader_changes = settle_leaders(layout) if Balance.LEADERS in goals.balance else 0
    moves = layout.moves()
    made = sum(move.replica_moves for move in moves)
    plan = Plan.of(
        moves,
        cluster_id=state.cluster_id,
        made_at_ms=state.taken_at_ms,
        state_digest=state.digest(),
        goals=goals.words(),
        moves_least=counted.moves_least,
        gap=(made - counted.moves_least) / made if made else 0.0,
    )
    return Planned(plan, leader_changes, tuple(remarks))
