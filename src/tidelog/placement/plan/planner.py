"""Makes a plan of a state and goals, in waves, and tries it. The same state and goals give the same plan.

    counts, drains, fills, factors, racks     `counts`: minimum-cost flow, proven
    bytes, traffic                            `loads`: local search beside its bound; small ones `exact`: a MIP
    leaders                                   `leaders`: minimum-cost flow, proven
    order of creation                         `order`: the best beginning of each topic; asked for first, it is settled
                                              before all else, else by the order of replicas alone

A stage keeps what the stages before it have reached; `loads` lets go of what was asked for later than bytes where bytes
cannot be evened out beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tidelog.placement.plan.counts import Counted, settle_counts
from tidelog.placement.plan.goals import Balance, Goals, PlanRefused, check_goals
from tidelog.placement.plan.layout import Layout
from tidelog.placement.plan.leaders import settle_leaders
from tidelog.placement.plan.loads import settle_loads
from tidelog.placement.plan.order import pin_leaders, settle_order
from tidelog.placement.plan.partial import best_part, least_bytes_to, least_moves_to
from tidelog.placement.plan.plan import Move, Plan
from tidelog.placement.plan.simulation import ASSUMED_RATE, seconds, simulate
from tidelog.placement.plan.state import ClusterState
from tidelog.placement.plan.waves import DEFAULT_LIMITS, DisksFull, Limits, in_waves


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan and what is to be said about it."""

    plan: Plan
    leader_changes: int = 0
    """Partitions that get another preferred leader for the sake of even leaders."""
    remarks: tuple[str, ...] = ()
    """What the goals did not reach, and why."""


def make_plan(
    state: ClusterState, goals: Goals, *, throttle: int | None = None, limits: Limits = DEFAULT_LIMITS
) -> Planned:
    """The plan. PlanRefused where goals or rules contradict each other. `throttle`: bytes a second of each broker.

    A broker whose disks have no room for what a plan gives it, gets nothing by the next attempt.
    """
    check_goals(state, goals)
    full: frozenset[int] = frozenset()
    first: DisksFull | None = None
    while True:
        try:
            planned = _plan(state, replace(goals, exclude=goals.exclude | full), throttle, limits)
            break
        except DisksFull as error:
            if error.brokers <= full or error.brokers & goals.fill:
                raise (first or error) from None
            first = first or error
            full |= error.brokers
        except PlanRefused as error:
            raise (first or error) from None
    told = [f"broker {broker} gets no replica: its disks have no room" for broker in sorted(full)]
    left = sum(goals.in_scope(key.topic) for key in state.under_way)
    if left:
        told.append(f"{left} {'partition that is' if left == 1 else 'partitions that are'} being moved: left alone")
    return replace(planned, remarks=(*told, *planned.remarks))


def _plan(state: ClusterState, goals: Goals, throttle: int | None, limits: Limits) -> Planned:
    layout = Layout.of(state, goals)
    remarks: list[str] = []
    # Where even leaders come first they end the turn, so nothing is copied for it.
    ordered_first = goals.comes_first(Balance.ORDER, Balance.LEADERS, Balance.COUNTS, Balance.BYTES, Balance.TRAFFIC)
    counted = settle_counts(layout, pin_leaders(layout) if ordered_first else 0)
    moves_least, bytes_least = counted.moves_least, None
    remarks += _uneven(layout, counted)
    if {Balance.BYTES, Balance.TRAFFIC} & set(goals.balance):
        proof = settle_loads(layout, counted)
        # What has been given up on the way, proves nothing.
        kept = proof.counts_kept if Balance.COUNTS in goals.balance else not goals.fill
        moves_least, bytes_least = max(moves_least if kept else 0, proof.moves), proof.bytes
        remarks += proof.remarks
    leader_changes = _settle_leaders(layout, remarks)
    whole = layout.moves()
    moves = best_part(whole, goals, lambda part: _seconds(part, state, throttle, limits), layout.spreads)
    if moves != whole:
        moves_least = least_moves_to(moves)
        bytes_least = None if bytes_least is None else least_bytes_to(moves)
        left = sum(move.replica_moves for move in whole) - sum(move.replica_moves for move in moves)
        remarks.append(f"{left} moves more reach the goals: this plan is limited")
    plan = Plan.of(
        moves,
        cluster_id=state.cluster_id,
        made_at_ms=state.taken_at_ms,
        state_digest=state.digest(),
        goals=goals.words(),
        moves_least=moves_least,
        bytes_least=bytes_least,
    )
    if bytes_least is not None:
        gap = (plan.bytes - bytes_least) / plan.bytes if plan.bytes else 0.0
    else:
        gap = (plan.replica_moves - moves_least) / plan.replica_moves if plan.replica_moves else 0.0
    return Planned(try_out(replace(plan, gap=gap), state, throttle, limits), leader_changes, tuple(remarks))


def try_out(plan: Plan, state: ClusterState, throttle: int | None = None, limits: Limits = DEFAULT_LIMITS) -> Plan:
    """The plan in waves, with what the simulation predicts. PlanRefused where a disk has no room."""
    waves = in_waves(plan.moves, state, limits)
    moves = [work.move for wave in waves for work in wave]
    return replace(plan, moves=tuple(moves), simulation=simulate(waves, state, throttle))


def _settle_leaders(layout: Layout, remarks: list[str]) -> int:
    """Chooses preferred leaders, by whichever was asked for first: even numbers, or turns. How many were changed."""
    goals = layout.goals
    if goals.comes_first(Balance.ORDER, Balance.LEADERS):
        ordered = settle_order(layout)
        remarks += [
            f"{number} partitions of topic {topic} are not led in turn: the brokers whose turn it is have no replica, "
            "and get none where the order of creation is not asked for first"
            for topic, number in ordered.off_turn.items()
        ]
        if Balance.LEADERS in goals.balance:
            remarks.append("leaders are as even as the order of creation makes them, which was asked for first")
        return ordered.changes
    if Balance.LEADERS not in goals.balance:
        return 0
    if Balance.ORDER in goals.balance:
        remarks.append("the order of creation gives way to even leaders, which were asked for first")
    return settle_leaders(layout)


def _seconds(moves: Sequence[Move], state: ClusterState, throttle: int | None, limits: Limits) -> float:
    """How long moves take. PlanRefused where a disk has no room."""
    return seconds(in_waves(moves, state, limits), float(throttle or ASSUMED_RATE))


def _uneven(layout: Layout, counted: Counted) -> Iterable[str]:
    """What rules kept from being even."""
    if len(counted.groups) > 1:
        shares = ", ".join(
            f"{group.total / len(group.brokers):.1f} on each of brokers "
            f"{sorted(layout.brokers[each].id for each in group.brokers)}"
            for group in counted.groups
        )
        yield f"rules keep counts from being even: {shares}"
