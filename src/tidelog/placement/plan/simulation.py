"""A plan tried before it runs: time, rates, room on disks, replicas in sync, and what if a broker dies. Pure.

A wave takes as long as its busiest broker: what it sends, what it gets, or what it copies between its directories, at
the throttle. What producers write meanwhile is copied as well, so a partition whose traffic is above the throttle never
gets there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog.placement.plan.copies import Copy, Disk, Work, used_bytes
from tidelog.placement.plan.deaths import Deaths
from tidelog.placement.plan.state import ClusterState

WAVE_OVERHEAD_S: Final = 1.0
"""What a wave takes beside copying: throttles set, requests, the last fetches, the look that finds it done."""
ASSUMED_RATE: Final = 100 * 1000 * 1000
"""Bytes a second into and out of a broker where there is no throttle: most of a link of 1 Gbit/s."""


@dataclass(frozen=True, slots=True)
class Load:
    """What one wave puts on one end of a broker."""

    bytes: int = 0
    growth_per_s: float = 0.0
    """What is written to the partitions meanwhile."""

    def seconds(self, rate: float) -> float:
        """How long that takes; infinite where the growth is faster."""
        if not self.bytes and not self.growth_per_s:
            return 0.0
        return self.bytes / (rate - self.growth_per_s) if rate > self.growth_per_s else math.inf


def loads(wave: Sequence[Work]) -> dict[tuple[str, int], Load]:
    """[("in", "out" or "within", broker)] -> what a wave puts there."""
    found: dict[tuple[str, int], Load] = {}
    for work in wave:
        for copy in work.copies:
            for end in _ends(copy):
                before = found.get(end, Load())
                found[end] = Load(before.bytes + copy.size, before.growth_per_s + copy.bytes_in_per_s)
    return found


def _ends(copy: Copy) -> list[tuple[str, int]]:
    if copy.is_within:
        return [("within", copy.target)]
    return [("in", copy.target)] if copy.source is None else [("out", copy.source), ("in", copy.target)]


def wave_seconds(wave: Sequence[Work], rate: float) -> float:
    """How long a wave takes at a throttle, in bytes a second."""
    return max((load.seconds(rate) for load in loads(wave).values()), default=0.0) + WAVE_OVERHEAD_S


def seconds(waves: Sequence[Sequence[Work]], rate: float) -> float:
    """How long all waves take; infinite where one never ends."""
    return sum(wave_seconds(wave, rate) for wave in waves)


def simulate(waves: Sequence[Sequence[Work]], state: ClusterState, throttle: int | None = None) -> dict[str, Any]:
    """What happens in the waves, as a JSON object. `throttle`: bytes a second of each broker; None: the assumed rate.

    Seconds are null where the throttle is below what is written to the partitions that move.
    """
    rate = float(throttle or ASSUMED_RATE)
    minimum = _lowest(state, waves)
    return {
        "throttle": throttle,
        "rate": rate,
        "seconds": _finite(seconds(waves, rate)),
        "waves": [_wave(number, wave, rate) for number, wave in enumerate(waves)],
        "brokers": _brokers(waves, rate),
        "disks": _disks(waves, state),
        "lowest_isr": minimum,
        "without_spare": _without_spare(state, waves),
        "stalled": sorted(
            {str(work.move.key) for wave in waves for work in wave for copy in work.copies if copy.source is None}
        ),
        "if_dies": Deaths(state).in_waves(waves),
    }


def _finite(value: float) -> float | None:
    return round(value, 3) if math.isfinite(value) else None


def _wave(number: int, wave: Sequence[Work], rate: float) -> dict[str, Any]:
    found = loads(wave)
    busiest = max(found, key=lambda end: (found[end].seconds(rate), end), default=None)
    return {
        "wave": number,
        "partitions": len(wave),
        "moves": sum(work.move.replica_moves for work in wave),
        "bytes": sum(work.move.bytes for work in wave),
        "seconds": _finite(wave_seconds(wave, rate)),
        "most": _most(found),
        "busiest": None if busiest is None else {"broker": busiest[1], "direction": busiest[0]},
    }


def _brokers(waves: Sequence[Sequence[Work]], rate: float) -> list[dict[str, Any]]:
    """Of each broker that takes part: bytes in all, and the highest rate of any wave, in bytes a second.

    A leader shares what it may send among those that it sends to, by their bytes.
    """
    totals: dict[int, dict[str, float]] = {}
    for wave in waves:
        found = loads(wave)
        offered = _offered(wave, found, rate)
        for (direction, broker), load in found.items():
            entry = totals.setdefault(broker, {})
            entry[f"bytes_{direction}"] = entry.get(f"bytes_{direction}", 0) + load.bytes
            peak = min(rate, offered.get(broker, 0.0)) if direction == "in" else rate
            if load.bytes:
                entry[f"peak_{direction}_per_s"] = max(entry.get(f"peak_{direction}_per_s", 0.0), peak)
    return [{"broker": broker, **totals[broker]} for broker in sorted(totals)]


def _most(found: Mapping[tuple[str, int], Load]) -> list[list[float]]:
    """[bytes, growth a second] of the ends that can be the busiest at some throttle."""
    kept: list[Load] = []
    for load in sorted(set(found.values()), key=lambda each: (-each.bytes, -each.growth_per_s)):
        if not kept or load.growth_per_s > kept[-1].growth_per_s:
            kept.append(load)
    return [[load.bytes, load.growth_per_s] for load in kept]


def seconds_at(simulation: Mapping[str, Any], rate: float) -> float:
    """How long a simulated plan takes at another throttle; infinite where it never ends."""
    return sum(
        max((Load(size, growth).seconds(rate) for size, growth in wave["most"]), default=0.0) + WAVE_OVERHEAD_S
        for wave in simulation.get("waves", [])
    )


def _offered(wave: Sequence[Work], found: Mapping[tuple[str, int], Load], rate: float) -> dict[int, float]:
    """[broker] -> what the leaders of a wave send it in a second, at their throttles."""
    offered: dict[int, float] = {}
    for work in wave:
        for copy in work.copies:
            if copy.source is not None and not copy.is_within and copy.size:
                share = rate * copy.size / found["out", copy.source].bytes
                offered[copy.target] = offered.get(copy.target, 0.0) + share
    return offered


def _disks(waves: Sequence[Sequence[Work]], state: ClusterState) -> list[dict[str, Any]]:
    """Of each disk that takes part: bytes before, after and at most; `peak_extra` is above what it had at first."""
    held = used_bytes(state)
    now = dict(held)
    peak: dict[Disk, int] = {}
    touched: dict[Disk, None] = {}
    for wave in waves:
        for work in wave:
            for copy in work.copies:
                if copy.onto is not None:
                    now[copy.onto] = now.get(copy.onto, 0) + copy.size
                    touched[copy.onto] = None
        for disk in touched:
            peak[disk] = max(peak.get(disk, 0), now.get(disk, 0) - held.get(disk, 0))
        for work in wave:
            for disk, size in work.frees.items():
                now[disk] = now.get(disk, 0) - size
                touched[disk] = None
    usable = {
        Disk(broker.id, each.path): each.usable_bytes
        for broker in state.brokers.values()
        for each in broker.directories
    }
    return [
        {
            "broker": disk.broker,
            "log_dir": disk.path,
            "bytes_before": held.get(disk, 0),
            "bytes_after": now.get(disk, 0),
            "peak_extra": peak.get(disk, 0),
            "usable_least": None if (free := usable.get(disk)) is None else free - peak.get(disk, 0),
        }
        for disk in sorted(touched, key=lambda each: (each.broker, each.path))
    ]


def _in_sync(work: Work, state: ClusterState) -> int:
    """Replicas in sync at the worst moment of a move: those of now stay until the new ones have joined them."""
    now = state.partitions[work.move.key].isr
    return min(len(now), len(work.move.replicas_to)) if now else 0


def _lowest(state: ClusterState, waves: Sequence[Sequence[Work]]) -> dict[str, Any] | None:
    """The partition of the plan with the fewest replicas in sync."""
    found = [(_in_sync(work, state), work.move.key) for wave in waves for work in wave]
    if not found:
        return None
    count, key = min(found)
    return {"replicas": count, "topic": key.topic, "partition": key.partition}


def _without_spare(state: ClusterState, waves: Sequence[Sequence[Work]]) -> int:
    """Partitions of the plan for which one more loss ends writes with acks=all, while they move."""
    return sum(
        _in_sync(work, state) <= (state.topics[work.move.topic].min_insync_replicas or 1)
        for wave in waves
        for work in wave
    )
