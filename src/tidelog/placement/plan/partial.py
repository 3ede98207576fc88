"""The part of a plan that does most: at most so many moves, bytes, or seconds.

Moves are taken one by one, the one that brings counts and loads closest to what the whole plan reaches, for what it
costs, first. A partition that several brokers or directories are exchanged for may get some of them: its steps are
those that keep the rules of racks, so any part of a plan keeps the rules; brokers to drain are left by the first steps.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace

from tidelog.model.identifiers import TopicPartition
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


def best_part(
    moves: Sequence[Move],
    goals: Goals,
    seconds: Callable[[Sequence[Move]], float],
    spreads: Callable[[Sequence[int]], bool],
) -> list[Move]:
    """The moves that do most within the limits of the goals; those that copy nothing are all there.

    `seconds` tells how long moves take together, `spreads` whether a partition may be on these brokers (racks).
    """
    if not goals.is_limited:
        return list(moves)
    free = [move for move in moves if not move.replica_moves]
    taken = _best_first([_steps(move, goals, spreads) for move in moves if move.replica_moves], goals)
    if goals.seconds_max is not None:
        taken = taken[: _how_many(taken, goals.seconds_max, lambda part: seconds(_joined(part)))]
    return sorted([*free, *_joined(taken)], key=lambda move: move.key)


def _steps(move: Move, goals: Goals, spreads: Callable[[Sequence[int]], bool]) -> list[Move]:
    """A move as a chain of moves, one for each replica, that may be ended after each; itself where it cannot be."""
    exchanges = len(move.replicas_from) == len(move.replicas_to) and all(
        before == after or (before in move.removing and after in move.adding)
        for before, after in zip(move.replicas_from, move.replicas_to, strict=True)
    )
    if not exchanges:
        return [move]
    steps = []
    begun = move
    replicas, directories = list(move.replicas_from), list(move.directories_from)
    for place in sorted(range(len(replicas)), key=lambda place: move.replicas_from[place] not in goals.drain):
        broker, path = move.replicas_to[place], move.directories_to[place]
        if (replicas[place], directories[place]) == (broker, path):
            continue
        replicas[place], directories[place] = broker, path
        if spreads(replicas):
            steps.append(replace(begun, replicas_to=tuple(replicas), directories_to=tuple(directories)))
            begun = replace(move, replicas_from=tuple(replicas), directories_from=tuple(directories))
    return steps if begun.replicas_from == move.replicas_to and steps else [move]


def _joined(steps: Sequence[Move]) -> list[Move]:
    """One move for each partition: from before its first step to after its last."""
    whole: dict[TopicPartition, Move] = {}
    for step in steps:
        first = whole.get(step.key, step)
        whole[step.key] = replace(first, replicas_to=step.replicas_to, directories_to=step.directories_to)
    return list(whole.values())


def _best_first(chains: Sequence[Sequence[Move]], goals: Goals) -> list[Move]:
    """The steps within `moves_max` and `bytes_max`, those that do most for what they cost first."""
    paid = [step for chain in chains for step in chain]
    distance = _Distance(paid)
    moves_left = goals.moves_max if goals.moves_max is not None else sum(move.replica_moves for move in paid)
    bytes_left = goals.bytes_max if goals.bytes_max is not None else sum(move.bytes for move in paid)
    taken: list[Move] = []
    done = [0] * len(chains)
    # Gains only shrink as moves are taken, so one that is still the best when it is looked at again, is the best.
    heap = [(-distance.gain(chain[0]) / _cost(chain[0], goals), number) for number, chain in enumerate(chains)]
    heapq.heapify(heap)
    while heap and moves_left > 0:
        key, number = heapq.heappop(heap)
        move = chains[number][done[number]]
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
        done[number] += 1
        if done[number] < len(chains[number]):
            following = chains[number][done[number]]
            heapq.heappush(heap, (-distance.gain(following) / _cost(following, goals), number))
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
    return max(1, move.bytes if by_bytes else move.replica_moves)


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
