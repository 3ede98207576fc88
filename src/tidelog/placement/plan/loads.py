"""The stage that brings bytes and traffic into their bands, as far as the order of goals lets it, with its bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelog.placement.plan import exact
from tidelog.placement.plan.counts import Counted
from tidelog.placement.plan.disks import Band, DiskLoads, bands
from tidelog.placement.plan.evening import even_out, least_bytes, least_moves, take_back, violation
from tidelog.placement.plan.goals import Balance
from tidelog.placement.plan.guard import BrokerGuard
from tidelog.placement.plan.layout import Layout

GAP_THAT_SUFFICES: Final = 0.001
"""What the search finds this close to its bound is not solved again."""

CountBounds = Sequence[tuple[int, int]]


@dataclass(slots=True)
class Proof:
    """What no plan can be below, and what was not reached."""

    moves: int = 0
    bytes: int | None = None
    counts_kept: bool = True
    """Whether brokers still have the counts of the stage before, where they were asked for."""
    remarks: list[str] = field(default_factory=list)


def settle_loads(layout: Layout, counted: Counted) -> Proof:
    """Evens out traffic over brokers, then bytes over disks beside it, keeping counts where they are asked for.

    What is asked for later than bytes (or traffic) gives way where it keeps them from their bands.
    """
    proof = Proof()
    balance = layout.goals.balance
    guard: BrokerGuard | None = None
    if Balance.TRAFFIC in balance:
        weights = [round(partition.bytes_in_per_s or 0.0) for partition in layout.partitions]
        counts = _count_bounds(layout, counted)
        loads, wanted = _even(layout, weights, counts, None, proof, by_broker=True)
        if counts is not None and _comes_first(layout, Balance.TRAFFIC, Balance.COUNTS) and _is_outside(loads, wanted):
            loads, wanted = _even(layout, weights, None, None, proof, by_broker=True)
            proof.counts_kept = False
        loads.settle()
        proof.remarks += _outside(layout, loads, wanted, "bytes a second")
        guard = BrokerGuard(loads.loads, wanted, weights)
    if Balance.BYTES in balance:
        _settle_bytes(layout, counted, guard, proof)
    return proof


def _settle_bytes(layout: Layout, counted: Counted, guard: BrokerGuard | None, proof: Proof) -> None:
    weights = [partition.size or 0 for partition in layout.partitions]
    counts = _count_bounds(layout, counted)
    loads, wanted = _even(layout, weights, counts, guard, proof)
    left = _left_alone(layout, weights)
    if left:
        proof.remarks.append(
            f"{left} more {'disk is' if left == 1 else 'disks are'} above what even shares allow: this plan is for the "
            f"worst {layout.goals.disks_max}"
        )
    if _is_outside(loads, wanted):
        keeps_counts = counts if not _comes_first(layout, Balance.BYTES, Balance.COUNTS) else None
        keeps_traffic = guard if not _comes_first(layout, Balance.BYTES, Balance.TRAFFIC) else None
        if keeps_counts is not counts or keeps_traffic is not guard:
            loads, wanted = _even(layout, weights, keeps_counts, keeps_traffic, proof)
            proof.counts_kept = proof.counts_kept and keeps_counts is counts
            proof.remarks.append("what was asked for after bytes gives way to them")
    loads.settle()
    # What could not be brought into its band is no reason for more moves: the bound is for plans that leave as much.
    outside = violation(loads.loads, wanted)
    proof.bytes = max(least_bytes(loads.former_loads, wanted, outside=outside, drops=loads.drops), proof.bytes or 0)
    proof.moves = least_moves(loads, wanted, outside)
    proof.remarks += _outside(layout, loads, wanted, "bytes")


def _count_bounds(layout: Layout, counted: Counted) -> CountBounds | None:
    if Balance.COUNTS not in layout.goals.balance:
        return None
    return list(zip(counted.bounds.low, counted.bounds.high, strict=True))


def _comes_first(layout: Layout, one: Balance, other: Balance) -> bool:
    """Whether both are asked for, and the one before the other."""
    return other in layout.goals.balance and layout.goals.comes_first(one, other)


def _even(
    layout: Layout,
    weights: Sequence[int],
    counts: CountBounds | None,
    guard: BrokerGuard | None,
    proof: Proof,
    *,
    by_broker: bool = False,
) -> tuple[DiskLoads, list[Band]]:
    """The loads after the search, small ones solved to the end, and the bands that they should be in."""
    loads = DiskLoads(layout, weights, counts, by_broker=by_broker, guard=guard and guard.copy())
    wanted = bands(loads, layout.goals.tolerance)
    if layout.goals.disks_max is not None and not by_broker:
        wanted = _of_the_worst(loads, wanted, layout.goals.disks_max)
    even_out(loads, wanted)
    proof.bytes = None if by_broker or guard is not None else _solve_small(loads, wanted, counts, proof)
    return loads, wanted


def _worst_first(loads: DiskLoads, wanted: Sequence[Band]) -> list[int]:
    """The disks above their band, the one that is furthest above for its size first."""
    above = [disk for disk, band in enumerate(wanted) if loads.loads[disk] > band.high]
    return sorted(above, key=lambda disk: (-loads.loads[disk] / max(1.0, wanted[disk].high), disk))


def _of_the_worst(loads: DiskLoads, wanted: Sequence[Band], disks_max: int) -> list[Band]:
    """Bands that ask for something of the worst disks alone. The others may get bytes up to theirs, and need none."""
    worst = set(_worst_first(loads, wanted)[:disks_max])
    return [
        band if disk in worst else Band(min(band.low, load), max(band.high, load))
        for disk, (band, load) in enumerate(zip(wanted, loads.loads, strict=True))
    ]


def _left_alone(layout: Layout, weights: Sequence[int]) -> int:
    """Disks above their band that a plan for the worst leaves as they are."""
    if layout.goals.disks_max is None:
        return 0
    loads = DiskLoads(layout, weights)
    return max(0, len(_worst_first(loads, bands(loads, layout.goals.tolerance))) - layout.goals.disks_max)


def _is_outside(loads: DiskLoads, wanted: Sequence[Band]) -> bool:
    return violation(loads.loads, wanted) > 0


def _outside(layout: Layout, loads: DiskLoads, wanted: Sequence[Band], what: str) -> Iterator[str]:
    """The disks that are not in their band."""
    for disk, band, load in zip(loads.disks, wanted, loads.loads, strict=True):
        if not band.low <= load <= band.high:
            path = "" if disk.path is None else f" {disk.path}"
            yield (
                f"broker {layout.brokers[disk.broker].id}{path} has {load} {what}, "
                f"not {band.low:.0f} to {band.high:.0f}: the search found no move that brings it closer"
            )


def _solve_small(loads: DiskLoads, wanted: list[Band], counts: CountBounds | None, proof: Proof) -> int | None:
    """Solves a small problem to its end, where that is better than what the search found; its bound, in bytes."""
    if not exact.is_small(loads):
        return None
    outside, moved = violation(loads.loads, wanted), loads.moved_bytes()
    if not outside and moved - least_bytes(loads.former_loads, wanted, drops=loads.drops) <= moved * GAP_THAT_SUFFICES:
        return None
    if not exact.is_installed():
        if exact.WHAT_TO_INSTALL not in proof.remarks:
            proof.remarks.append(exact.WHAT_TO_INSTALL)
        return None
    found = [list(on.values()) for on in loads.on]
    solved = exact.solve(loads, wanted, counts, inside=not outside)
    if solved is None:
        return None
    loads.place(solved.placed)
    take_back(loads, wanted)
    better = violation(loads.loads, wanted), loads.moved_bytes()
    if better[0] > outside + 1 or (better[0] > outside - 1 and better[1] >= moved):
        loads.place(found)
    return min(int(solved.bytes_least), loads.moved_bytes())
