"""Moves in waves: what may run together without crowding a broker, a disk or a link, and without filling a disk.

The next wave begins when the last one has ended, so moves of like size go together. What makes a partition safer (it
has fewer replicas in sync than it should) comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidelog.placement.plan.copies import Copy, Directories, Disk, Work, work_of
from tidelog.placement.plan.goals import PlanRefused
from tidelog.placement.plan.plan import Move
from tidelog.placement.plan.state import ClusterState

FREE_SHARE: Final = 0.02
"""Of a disk that a plan leaves free at any moment: retention and new records need room meanwhile."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one wave may put on a broker, a disk and a link. One move that is larger than a limit runs alone there."""

    broker_bytes: int = 16 << 30
    """Into or out of one broker."""
    broker_copies: int = 100
    """Into or out of one broker: each is a partition that its fetcher or its leader has more."""
    disk_copies: int = 50
    """Onto one log directory."""
    link_copies: int = 50
    """From one broker to one other."""


DEFAULT_LIMITS: Final = Limits()


class DisksFull(PlanRefused):
    """Disks have no room for what a plan puts on them, in any order of its moves."""

    def __init__(self, reasons: Sequence[str], brokers: frozenset[int]) -> None:
        super().__init__(reasons)
        self.brokers = brokers


class _Wave:
    def __init__(self, limits: Limits, free: dict[Disk, int]) -> None:
        self.limits = limits
        self.free = free
        self.bytes: dict[tuple[str, int], int] = {}
        self.copies: dict[tuple[str, int], int] = {}
        self.disks: dict[Disk, int] = {}
        self.links: dict[tuple[int, int], int] = {}
        self.works: list[Work] = []

    def add(self, work: Work) -> bool:
        """Takes a move if it keeps the limits beside those that are here."""
        if not (self._has_room(work) and all(self._is_within_limits(copy) for copy in work.copies)):
            return False
        for copy in work.copies:
            for end in _ends(copy):
                self.bytes[end] = self.bytes.get(end, 0) + copy.size
                self.copies[end] = self.copies.get(end, 0) + 1
            if copy.onto is not None:
                self.disks[copy.onto] = self.disks.get(copy.onto, 0) + 1
                if copy.onto in self.free:
                    self.free[copy.onto] -= copy.size
            if copy.source is not None:
                link = copy.source, copy.target
                self.links[link] = self.links.get(link, 0) + 1
        self.works.append(work)
        return True

    def _has_room(self, work: Work) -> bool:
        needed: dict[Disk, int] = {}
        for copy in work.copies:
            if copy.onto in self.free:
                needed[copy.onto] = needed.get(copy.onto, 0) + copy.size
        return all(size <= self.free[disk] for disk, size in needed.items())

    def _is_within_limits(self, copy: Copy) -> bool:
        limits = self.limits
        for end in _ends(copy):
            before = self.bytes.get(end, 0)
            if before and before + copy.size > limits.broker_bytes:
                return False
            if self.copies.get(end, 0) >= limits.broker_copies:
                return False
        if copy.onto is not None and self.disks.get(copy.onto, 0) >= limits.disk_copies:
            return False
        return copy.source is None or self.links.get((copy.source, copy.target), 0) < limits.link_copies


def _ends(copy: Copy) -> list[tuple[str, int]]:
    if copy.is_within:
        return [("within", copy.target)]
    ends = [("in", copy.target)]
    return ends if copy.source is None else [("out", copy.source), *ends]


def free_bytes(state: ClusterState) -> dict[Disk, int]:
    """What may be put on each disk whose size is known."""
    return {
        Disk(broker.id, each.path): each.usable_bytes - int((each.total_bytes or 0) * FREE_SHARE)
        for broker in state.brokers.values()
        for each in broker.directories
        if each.usable_bytes is not None
    }


def in_waves(moves: Iterable[Move], state: ClusterState, limits: Limits = DEFAULT_LIMITS) -> list[list[Work]]:
    """The moves as waves, each move with its wave's number. DisksFull where one has no room in any order."""
    free = free_bytes(state)
    directories = Directories(state, free)
    waiting = [work_of(move, state, directories) for move in moves]
    waiting.sort(key=lambda work: (-_urgency(work.move, state), -(work.move.size or 0), work.move.key))
    waves: list[list[Work]] = []
    while waiting:
        wave = _Wave(limits, free)
        waiting = [work for work in waiting if not wave.add(work)]
        if not wave.works:
            raise _full(waiting, free)
        for work in wave.works:
            for disk, size in work.frees.items():
                if disk in free:
                    free[disk] += size
        waves.append([replace(work, move=replace(work.move, wave=len(waves))) for work in wave.works])
    return waves


def _urgency(move: Move, state: ClusterState) -> int:
    """How many replicas of the partition are not in sync."""
    partition = state.partitions[move.key]
    return len(partition.replicas) - len(partition.isr)


def _full(waiting: Sequence[Work], free: dict[Disk, int]) -> DisksFull:
    needs: dict[Disk, int] = {}
    for work in waiting:
        for copy in work.copies:
            if copy.onto in free:
                needs[copy.onto] = needs.get(copy.onto, 0) + copy.size
    full = {disk: size for disk, size in needs.items() if size > free[disk]}
    return DisksFull(
        [
            f"broker {disk.broker} has no room in {disk.path}: the plan puts {size} bytes there, {max(0, free[disk])} "
            f"are free above the {FREE_SHARE:.0%} that stay so"
            for disk, size in full.items()
        ],
        frozenset(disk.broker for disk in full),
    )
