"""A plan on one screen: what is wrong, the plan beside the proven least, what it does, how long it takes, what if."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from tidelog.cli.output import print_table, size
from tidelog.placement.plan.diagnosis import findings
from tidelog.placement.plan.plan import Plan
from tidelog.placement.plan.planner import Planned
from tidelog.placement.plan.simulation import seconds_at
from tidelog.placement.plan.state import ClusterState

ROWS_MAX: Final = 16
"""Of a table: brokers or disks beyond are counted."""
THROTTLES: Final = (10 << 20, 50 << 20, 200 << 20)
"""For which the time is told, in bytes a second, where no throttle is given."""


def print_plan(state: ClusterState, planned: Planned, throttle: int | None) -> None:
    """The screen."""
    plan = planned.plan
    _print_lines("What is wrong", findings(state) or ["nothing"])
    _print_lines("The plan", _about(planned))
    if not plan.moves:
        return
    print()
    _print_brokers(state, plan)
    _print_disks(plan)
    _print_lines("How long", _times(plan, throttle))
    _print_lines("While it runs", _safety(plan))


def _print_lines(title: str, lines: Sequence[str]) -> None:
    print(title)
    for line in lines:
        print(f"  {line}")


def _about(planned: Planned) -> list[str]:
    plan = planned.plan
    remarks = [f"but {remark}" for remark in planned.remarks]
    if not plan.moves:
        reached = f": {', '.join(plan.goals)} {'is' if len(plan.goals) == 1 else 'are'} reached"
        return ["nothing to move" if remarks else f"nothing to move{reached}", *remarks]
    least = "" if plan.moves_least is None else f" (no plan needs fewer than {plan.moves_least:,})"
    if plan.moves_least == plan.replica_moves:
        least = ", the proven least"
    waves = len(plan.waves())
    lines = [f"{plan.replica_moves:,} replicas to copy{least}; {waves:,} {'wave' if waves == 1 else 'waves'}"]
    told = f"{size(plan.bytes)} to copy"
    if plan.bytes_least is not None:
        told += f" (no plan needs less than {size(plan.bytes_least)}: at most {plan.gap or 0:.1%} of it could be saved)"
    lines.append(told)
    order = sum(not move.replica_moves for move in plan.moves)
    if order:
        lines.append(f"{order:,} partitions only get another order of replicas, or fewer")
    if planned.leader_changes:
        lines.append(f"{planned.leader_changes:,} partitions get another preferred leader")
    return lines + remarks


def _print_brokers(state: ClusterState, plan: Plan) -> None:
    before = {broker: _Totals() for broker in state.brokers}
    after = {broker: _Totals() for broker in state.brokers}
    moves = {move.key: move for move in plan.moves}
    for key, partition in state.partitions.items():
        before_replicas = partition.replicas
        replicas = moves[key].replicas_to if key in moves else before_replicas
        for totals, placed in ((before, before_replicas), (after, replicas)):
            totals[placed[0]].leaders += 1
            for broker in placed:
                totals[broker].replicas += 1
                totals[broker].bytes += partition.size or 0
    rates = {entry["broker"]: entry for entry in (plan.simulation or {}).get("brokers", [])}
    changed = [broker for broker in state.brokers if before[broker] != after[broker] or broker in rates]
    rows = [
        (
            broker,
            state.brokers[broker].rack or "",
            _change(before[broker].replicas, after[broker].replicas),
            _change(before[broker].leaders, after[broker].leaders),
            f"{size(before[broker].bytes)} -> {size(after[broker].bytes)}",
            size(int(rates.get(broker, {}).get("bytes_in", 0))),
            size(int(rates.get(broker, {}).get("bytes_out", 0))),
        )
        for broker in changed[:ROWS_MAX]
    ]
    print_table(("#Broker", "Rack", "#Replicas", "#Leaders", "#Bytes", "#Gets", "#Sends"), rows)
    _print_rest(len(changed), "brokers")


def _print_rest(count: int, noun: str) -> None:
    if count > ROWS_MAX:
        print(f"... and {count - ROWS_MAX:,} {noun} more (-o json has all)")


class _Totals:
    """What a broker has."""

    def __init__(self) -> None:
        self.replicas = 0
        self.leaders = 0
        self.bytes = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Totals) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # It changes while it is filled.


def _change(before: int, after: int) -> str:
    return f"{before:,}" if before == after else f"{before:,} -> {after:,}"


def _print_disks(plan: Plan) -> None:
    disks: list[dict[str, Any]] = list((plan.simulation or {}).get("disks", []))
    of_broker: dict[int, int] = {}
    for entry in disks:
        of_broker[entry["broker"]] = of_broker.get(entry["broker"], 0) + 1
    if not disks or (max(of_broker.values()) < 2 and all(entry["usable_least"] is None for entry in disks)):
        return
    disks.sort(key=lambda entry: (-entry["peak_extra"], entry["broker"], entry["log_dir"]))
    rows = [
        (
            entry["broker"],
            entry["log_dir"],
            f"{size(entry['bytes_before'])} -> {size(entry['bytes_after'])}",
            size(entry["peak_extra"]),
            "" if entry["usable_least"] is None else size(max(0, entry["usable_least"])),
        )
        for entry in disks[:ROWS_MAX]
    ]
    print_table(("#Broker", "Directory", "#Bytes", "#At most more", "#Least free"), rows)
    _print_rest(len(disks), "directories")


def _times(plan: Plan, throttle: int | None) -> list[str]:
    lines = []
    for rate in (throttle,) if throttle else THROTTLES:
        whole = seconds_at(plan.simulation or {}, rate)
        told = duration(whole) if math.isfinite(whole) else "never: producers write more than that to what moves"
        lines.append(f"at {size(rate)}/s for each broker: {told}")
    return lines


def duration(seconds: float) -> str:
    """A time for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def _safety(plan: Plan) -> list[str]:
    found = plan.simulation or {}
    lines = []
    lowest = found.get("lowest_isr")
    if lowest is not None:
        lines.append(
            f"at least {lowest['replicas']} replicas in sync ({lowest['topic']}-{lowest['partition']}); "
            f"{found['without_spare']:,} partitions are without a spare above min.insync.replicas"
        )
    if found.get("stalled"):
        lines.append(f"{len(found['stalled'])} partitions have no leader to copy from: their moves wait for one")
    deaths = found.get("if_dies", [])
    worst = max(deaths, key=lambda each: (each["offline"], each["below_min_isr"], each["moves_stalled"]), default=None)
    if worst is not None:
        lines.append(
            f"if a broker dies, the worst is {worst['broker']}: {worst['offline']:,} partitions without a leader, "
            f"{worst['below_min_isr']:,} that refuse acks=all, {worst['moves_stalled']:,} moves that wait for it"
        )
    return lines
