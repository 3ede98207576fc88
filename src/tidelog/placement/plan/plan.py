"""A plan: the moves of replicas that lead from one state to another, in waves, with its inverse.

    Move("t", 0, replicas_from=(1, 2), replicas_to=(3, 2), ...)    broker 3 copies it, broker 1 drops it, 3 leads

A move is whole: what a partition's replicas and directories were, and what they become. So a plan can be compared with
a cluster (not begun, done, changed by others), and turned round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidelog.model.identifiers import TopicPartition
from tidelog.placement.plan.documents import DocumentError


@dataclass(frozen=True, slots=True)
class Move:
    """What becomes of one partition. The lists of directories go with those of replicas; None: any, or unknown."""

    topic: str
    partition: int
    replicas_from: tuple[int, ...]
    replicas_to: tuple[int, ...]
    directories_from: tuple[str | None, ...]
    directories_to: tuple[str | None, ...]
    size: int | None = None
    """Bytes of one replica; None where unknown."""
    wave: int = 0
    """Moves of one wave run together; the next begins when it has ended."""
    topic_id: str | None = None
    """In Kafka's base64: a topic that is deleted and made again has another one. None where it is not known."""

    @property
    def key(self) -> TopicPartition:
        """Topic and number."""
        return TopicPartition(self.topic, self.partition)

    @property
    def adding(self) -> tuple[int, ...]:
        """Brokers that get a replica, in the order of the new replicas."""
        return tuple(broker for broker in self.replicas_to if broker not in self.replicas_from)

    @property
    def removing(self) -> tuple[int, ...]:
        """Brokers that lose one."""
        return tuple(broker for broker in self.replicas_from if broker not in self.replicas_to)

    @property
    def within(self) -> tuple[tuple[int, str | None, str], ...]:
        """Replicas that stay on their broker and change their directory: (broker, from, to)."""
        former = dict(zip(self.replicas_from, self.directories_from, strict=True))
        return tuple(
            (broker, former[broker], directory)
            for broker, directory in zip(self.replicas_to, self.directories_to, strict=True)
            if broker in former and directory is not None and directory != former[broker]
        )

    @property
    def replica_moves(self) -> int:
        """Replicas that are copied: to other brokers, and to other directories. A new order alone copies none."""
        return len(self.adding) + len(self.within)

    @property
    def bytes(self) -> int:
        """Bytes that it copies between brokers and between directories; 0 where the size is unknown."""
        return self.replica_moves * (self.size or 0)

    def inverse(self) -> Move:
        """The move back."""
        return replace(
            self,
            replicas_from=self.replicas_to,
            replicas_to=self.replicas_from,
            directories_from=self.directories_to,
            directories_to=self.directories_from,
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """Moves, and what is known of them. Build it with `of`, which checks it."""

    cluster_id: str | None
    """Of the cluster it was made for; None where unknown."""
    made_at_ms: int
    """When the state it was made for was taken."""
    state_digest: str | None
    """`ClusterState.digest` of that state."""
    goals: tuple[str, ...]
    """What it was made for, in words of the command line, the most important first."""
    moves: tuple[Move, ...]
    """Sorted by wave, then as they were made. At most one for each partition."""
    moves_least: int | None = None
    """The fewest moves that could reach the goals, proven; None where no bound is known."""
    bytes_least: int | None = None
    """The fewest bytes; at most `bytes`."""
    gap: float | None = None
    """How far the plan can be from the best at most: 0.02 is 2 per cent; None where unknown."""
    simulation: Mapping[str, Any] | None = None
    """What the simulation predicted, as its own document."""

    @classmethod
    def of(
        cls,
        moves: Iterable[Move],
        *,
        cluster_id: str | None = None,
        made_at_ms: int = 0,
        state_digest: str | None = None,
        goals: Iterable[str] = (),
        moves_least: int | None = None,
        bytes_least: int | None = None,
        gap: float | None = None,
        simulation: Mapping[str, Any] | None = None,
    ) -> Plan:
        """A checked plan. DocumentError for duplicates and for lists that do not go together."""
        ordered = tuple(sorted(moves, key=lambda move: move.wave))
        seen: set[TopicPartition] = set()
        for move in ordered:
            _check(move)
            if move.key in seen:
                raise DocumentError(f"partition {move.key} is there twice")
            seen.add(move.key)
        return cls(
            cluster_id, made_at_ms, state_digest, tuple(goals), ordered, moves_least, bytes_least, gap, simulation
        )

    @property
    def replica_moves(self) -> int:
        """Replicas that are copied."""
        return sum(move.replica_moves for move in self.moves)

    @property
    def bytes(self) -> int:
        """Bytes that are copied."""
        return sum(move.bytes for move in self.moves)

    def waves(self) -> list[list[Move]]:
        """The moves by wave, in order; no wave is empty."""
        by_wave: dict[int, list[Move]] = {}
        for move in self.moves:
            by_wave.setdefault(move.wave, []).append(move)
        return [by_wave[wave] for wave in sorted(by_wave)]

    def inverse(self) -> Plan:
        """The plan that undoes this one, the last wave first. Its time and its bounds are not known."""
        last = max((move.wave for move in self.moves), default=0)
        back = [replace(move.inverse(), wave=last - move.wave) for move in self.moves]
        return Plan.of(back, cluster_id=self.cluster_id, made_at_ms=self.made_at_ms, goals=("rollback",))


def _check(move: Move) -> None:
    for replicas, directories in (
        (move.replicas_from, move.directories_from),
        (move.replicas_to, move.directories_to),
    ):
        if not replicas:
            raise DocumentError(f"partition {move.key}: it has no replicas")
        if len(set(replicas)) != len(replicas):
            raise DocumentError(f"partition {move.key}: a broker is there twice in {list(replicas)}")
        if len(directories) != len(replicas):
            raise DocumentError(
                f"partition {move.key}: log_dirs has {len(directories)} elements for {len(replicas)} replicas"
            )
