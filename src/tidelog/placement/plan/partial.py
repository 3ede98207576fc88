"""The part of a plan that does most: at most so many moves, bytes, or seconds.

Moves are taken one by one, the one that brings counts and loads closest to what the whole plan reaches, for what it
costs, first. Each partition's move is whole, so any part of a plan keeps the rules.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from tidelog.placement.plan.goals import Goals
from tidelog.placement.plan.plan import Move

Place = tuple[int, str | None]
"""A broker and a directory, or a broker alone: what has a count or a load."""


class _Distance:
    """How far counts and bytes are from where the whole plan brings them."""

    def __init__(self, moves: Sequence[Move]) -> None:
        self.left: dict[Place, int] = {}
        for move in moves:
            for place, change in _changes(move).items():
                self.left[place] = self.left.get(place, 0) + change

    def gain(self, move: Move) -> int:
        """By how much a move shortens it."""
        return sum(abs(self.left[place]) - abs(self.left[place] - change) for place, change in _changes(move).items())

    def take(self, move: Move) -> None:
        """The move is made."""
        for place, change in _changes(move).items():
            self.left[place] -= change


def _changes(move: Move) -> dict[Place, int]:
    """What a move adds to each broker and directory, in bytes; where sizes are not known, a replica counts as one."""
    weight = move.size or 1
    changes: dict[Place, int] = {}
    before = set(zip(move.replicas_from, move.directories_from, strict=True))
    after = set(zip(move.replicas_to, move.directories_to, strict=True))
    for place in after - before:
        changes[place] = weight
    for place in before - after:
        changes[place] = -weight
    return changes


def best_part(moves: Sequence[Move], goals: Goals, seconds: Callable[[Sequence[Move]], float]) -> list[Move]:
    """The moves that do most within the limits of the goals; those that copy nothing are all there.

    `seconds` tells how long moves take together.
    """
    if not goals.is_limited:
        return list(moves)
    free = [move for move in moves if not move.replica_moves]
    taken = _best_first([move for move in moves if move.replica_moves], goals)
    if goals.seconds_max is not None:
        taken = taken[: _how_many(taken, goals.seconds_max, seconds)]
    return sorted([*free, *taken], key=lambda move: move.key)


def _best_first(paid: Sequence[Move], goals: Goals) -> list[Move]:
    """The moves within `moves_max` and `bytes_max`, those that do most for what they cost first."""
    distance = _Distance(paid)
    moves_left = goals.moves_max if goals.moves_max is not None else sum(move.replica_moves for move in paid)
    bytes_left = goals.bytes_max if goals.bytes_max is not None else sum(move.bytes for move in paid)
    taken: list[Move] = []
    # Gains only shrink as moves are taken, so one that is still the best when it is looked at again, is the best.
    heap = [(-distance.gain(move) / _cost(move, goals), number) for number, move in enumerate(paid)]
    heapq.heapify(heap)
    while heap and moves_left > 0:
        key, number = heapq.heappop(heap)
        move = paid[number]
        if move.replica_moves > moves_left or move.bytes > bytes_left:
            continue
        now = -distance.gain(move) / _cost(move, goals)
        if now > key and heap and now > heap[0][0]:
            heapq.heappush(heap, (now, number))
            continue
        taken.append(move)
        distance.take(move)
        moves_left -= move.replica_moves
        bytes_left -= move.bytes
    return taken


def _how_many(moves: Sequence[Move], seconds_max: float, seconds: Callable[[Sequence[Move]], float]) -> int:
    """How many of the first moves end in time: time only grows with them, but for how they fall into waves."""
    low, high = 0, len(moves)
    while low < high:
        middle = (low + high + 1) // 2
        if seconds(moves[:middle]) <= seconds_max:
            low = middle
        else:
            high = middle - 1
    return low


def _cost(move: Move, goals: Goals) -> float:
    by_bytes = goals.bytes_max is not None or goals.seconds_max is not None
    return move.bytes or 1 if by_bytes else move.replica_moves


def least_moves_to(moves: Sequence[Move]) -> int:
    """The fewest replicas that have to be copied for brokers to have as many as after these moves."""
    counts: dict[int, int] = {}
    for move in moves:
        for broker in move.adding:
            counts[broker] = counts.get(broker, 0) + 1
        for broker in move.removing:
            counts[broker] = counts.get(broker, 0) - 1
    return sum(change for change in counts.values() if change > 0)


def least_bytes_to(moves: Sequence[Move]) -> int:
    """The fewest bytes that have to be copied for directories to hold as much as after these moves."""
    loads: dict[Place, int] = {}
    for move in moves:
        for place, change in _changes(move).items():
            loads[place] = loads.get(place, 0) + (change if move.size else 0)
    return sum(change for change in loads.values() if change > 0)
