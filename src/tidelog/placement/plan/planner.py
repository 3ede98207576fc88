"""Makes a plan of a state and goals, in waves, and tries it. The same state and goals give the same plan.

    counts, drains, fills, factors, racks     `counts`: minimum-cost flow, proven
    bytes, traffic                            `evening`: local search beside its bound; small ones `exact`: a MIP
    leaders                                   `leaders`: minimum-cost flow, proven

A stage keeps what the stages before it have reached. Where bytes or traffic are asked for before counts, their bands
come first, and counts only as far as they let.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from tidelog.placement.plan import exact
from tidelog.placement.plan.counts import Counted, settle_counts
from tidelog.placement.plan.disks import Band, DiskLoads, bands
from tidelog.placement.plan.evening import even_out, least_bytes, least_moves, violation
from tidelog.placement.plan.goals import Balance, Goals, check_goals
from tidelog.placement.plan.layout import Layout
from tidelog.placement.plan.leaders import settle_leaders
from tidelog.placement.plan.partial import best_part, least_bytes_to, least_moves_to
from tidelog.placement.plan.plan import Plan
from tidelog.placement.plan.simulation import simulate
from tidelog.placement.plan.state import ClusterState
from tidelog.placement.plan.waves import DEFAULT_LIMITS, Limits, in_waves

GAP_THAT_SUFFICES: Final = 0.001
"""What the search finds this close to its bound is not solved again."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan and what is to be said about it."""

    plan: Plan
    leader_changes: int = 0
    """Partitions that get another preferred leader for the sake of even leaders."""
    remarks: tuple[str, ...] = ()
    """What the goals did not reach, and why."""


@dataclass(slots=True)
class _Proof:
    """Bounds that the stages found."""

    moves: int = 0
    bytes: int | None = None
    remarks: list[str] = field(default_factory=list)


def make_plan(
    state: ClusterState, goals: Goals, *, throttle: int | None = None, limits: Limits = DEFAULT_LIMITS
) -> Planned:
    """The plan. PlanRefused where goals or rules contradict each other. `throttle`: bytes a second of each broker."""
    check_goals(state, goals)
    layout = Layout.of(state, goals)
    remarks: list[str] = []
    counted = settle_counts(layout)
    moves_least, bytes_least = counted.moves_least, None
    remarks += _uneven(layout, counted)
    if {Balance.BYTES, Balance.TRAFFIC} & set(goals.balance):
        proof = _settle_loads(layout, counted)
        moves_least, bytes_least = max(moves_least, proof.moves), proof.bytes
        remarks += proof.remarks
    leader_changes = settle_leaders(layout) if Balance.LEADERS in goals.balance else 0
    whole = layout.moves()
    moves = best_part(whole, goals)
    if len(moves) < len(whole):
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


def _uneven(layout: Layout, counted: Counted) -> Iterable[str]:
    """What rules kept from being even."""
    if len(counted.groups) > 1:
        shares = ", ".join(
            f"{group.total / len(group.brokers):.1f} on each of brokers "
            f"{sorted(layout.brokers[each].id for each in group.brokers)}"
            for group in counted.groups
        )
        yield f"rules keep counts from being even: {shares}"


def _settle_loads(layout: Layout, counted: Counted) -> _Proof:
    """Brings bytes or traffic into their bands; what that has to cost."""
    goals = layout.goals
    by_bytes = Balance.BYTES in goals.balance
    weights = [
        (partition.size or 0) if by_bytes else round(partition.bytes_in_per_s or 0.0) for partition in layout.partitions
    ]
    count_bounds = None
    if Balance.COUNTS in goals.balance:
        count_bounds = list(zip(counted.bounds.low, counted.bounds.high, strict=True))
    loads = DiskLoads(layout, weights, count_bounds, by_broker=not by_bytes)
    wanted = bands(loads, goals.tolerance)
    even_out(loads, wanted)
    proof = _Proof()
    proven = _solve_small(loads, wanted, count_bounds, proof) if by_bytes else 0
    loads.settle()
    if by_bytes:
        # What could not be brought into its band is no reason for more moves: the bound is for what was reached.
        reached = [
            Band(min(band.low, load), max(band.high, load)) for band, load in zip(wanted, loads.loads, strict=True)
        ]
        proof.bytes = max(least_bytes(loads.former_loads, reached), proven)
        proof.moves = least_moves(loads, reached)
    outside = [
        (loads.loads[number], band, disk)
        for number, (disk, band) in enumerate(zip(loads.disks, wanted, strict=True))
        if not band.low <= loads.loads[number] <= band.high
    ]
    what = "bytes" if by_bytes else "bytes a second"
    proof.remarks += [
        f"broker {layout.brokers[disk.broker].id}{'' if disk.path is None else ' ' + disk.path} has {load} {what}, "
        f"not {band.low:.0f} to {band.high:.0f}: the search found no move that brings it closer"
        for load, band, disk in outside
    ]
    return proof


def _solve_small(
    loads: DiskLoads, wanted: list[Band], count_bounds: list[tuple[int, int]] | None, proof: _Proof
) -> int:
    """Solves a small problem to its end, where that is better than what the search found; its bound, in bytes."""
    if not exact.is_small(loads):
        return 0
    if not exact.is_installed():
        proof.remarks.append(exact.WHAT_TO_INSTALL)
        return 0
    found = [list(on.values()) for on in loads.on]
    outside, moved = violation(loads.loads, wanted), loads.moved_bytes()
    if not outside and moved - least_bytes(loads.former_loads, wanted) <= moved * GAP_THAT_SUFFICES:
        return 0
    solved = exact.solve(loads, wanted, count_bounds, inside=not outside)
    if solved is None:
        return 0
    loads.place(solved.placed)
    better = violation(loads.loads, wanted), loads.moved_bytes()
    if better[0] > outside + 1 or (better[0] > outside - 1 and better[1] >= moved):
        loads.place(found)
    return min(int(solved.bytes_least), loads.moved_bytes())
