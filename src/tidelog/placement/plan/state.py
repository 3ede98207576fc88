"""A cluster as the planner sees it: brokers with their directories, partitions with replicas, bytes and traffic.

Values only. What a cluster does not tell (an old version, a directory without a size) is None, never 0: the planner
says what it cannot do without it. `ClusterState.of` checks that the parts fit together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tidelog.model.identifiers import TopicPartition
from tidelog.placement.plan.documents import DocumentError

T = TypeVar("T")
K = TypeVar("K")

BROKER_ID_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class DirectoryState:
    """A log directory of a broker. Sizes are of its file system, in bytes."""

    path: str
    total_bytes: int | None = None
    usable_bytes: int | None = None
    """Free for the broker; None before Kafka 3.3 (KIP-827)."""
    error: str | None = None
    """The error's name while the directory is offline."""
    cordoned: bool = False
    """Gets no new replica."""


@dataclass(frozen=True, slots=True)
class BrokerState:
    """A broker; one that replicas are assigned to but that is not live has `online` False and no directories."""

    id: int
    rack: str | None = None
    online: bool = True
    cordoned: bool = False
    """Gets no new replica."""
    directories: tuple[DirectoryState, ...] = ()
    """In the order of log.dirs where known; empty where the broker did not tell."""
    throttles: Mapping[str, str] = field(default_factory=dict)
    """The dynamic settings that throttle replication and are set on this broker, by name."""
    silent: bool = False
    """It was asked for its directories and did not answer, though it may tell them; no document has this."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition. `directories` and `sizes` go with `replicas`, place by place."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    """Broker ids, the preferred leader first."""
    leader: int = -1
    isr: tuple[int, ...] = ()
    directories: tuple[str | None, ...] = ()
    sizes: tuple[int | None, ...] = ()
    """Bytes of each replica."""
    bytes_in_per_s: float | None = None
    """What producers write, measured between two readings."""
    bytes_out_per_s: float | None = None
    """What consumers read: an estimate from the commits of groups."""

    @property
    def key(self) -> TopicPartition:
        """Topic and number."""
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int | None:
        """Bytes that a new replica copies: those of the largest replica; None where no size is known."""
        return max((size for size in self.sizes if size is not None), default=None)


@dataclass(frozen=True, slots=True)
class TopicState:
    """What a topic's partitions share."""

    name: str
    id: str | None = None
    """The topic id in Kafka's base64; None where the cluster is too old to have any."""
    internal: bool = False
    min_insync_replicas: int | None = None
    throttles: Mapping[str, str] = field(default_factory=dict)
    """The topic's lists of throttled replicas, by the setting's name."""


@dataclass(frozen=True, slots=True)
class ReassignmentState:
    """A reassignment under way."""

    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DirectoryMoveState:
    """A replica on its way to another directory of its broker, and the bytes that are there already."""

    topic: str
    partition: int
    broker: int
    path: str
    bytes_done: int = 0

    @property
    def key(self) -> TopicPartition:
        """Topic and number."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class ClusterState:
    """A cluster at one time. Build it with `of`, which checks it."""

    cluster_id: str | None
    taken_at_ms: int
    """Wall time in milliseconds; 0 where it was written by hand."""
    brokers: Mapping[int, BrokerState]
    """By id, ascending."""
    topics: Mapping[str, TopicState]
    """By name, sorted."""
    partitions: Mapping[TopicPartition, PartitionState]
    """By topic and number, sorted."""
    reassignments: Mapping[TopicPartition, ReassignmentState]
    directory_moves: tuple[DirectoryMoveState, ...]
    missing: tuple[str, ...]
    """What the cluster could not tell and why, in words."""

    @classmethod
    def of(
        cls,
        *,
        brokers: Iterable[BrokerState],
        topics: Iterable[TopicState],
        partitions: Iterable[PartitionState],
        cluster_id: str | None = None,
        taken_at_ms: int = 0,
        reassignments: Mapping[TopicPartition, ReassignmentState] | None = None,
        directory_moves: Iterable[DirectoryMoveState] = (),
        missing: Iterable[str] = (),
    ) -> ClusterState:
        """A checked state. DocumentError for duplicates, unknown brokers and topics, and lists of unequal length."""
        by_id = _unique(sorted(brokers, key=lambda broker: broker.id), lambda broker: broker.id, "broker")
        by_name = _unique(sorted(topics, key=lambda topic: topic.name), lambda topic: topic.name, "topic")
        ordered = sorted(partitions, key=lambda partition: (partition.topic, partition.partition))
        by_key = _unique(ordered, lambda partition: partition.key, "partition")
        for broker in by_id.values():
            _unique(broker.directories, lambda directory: directory.path, f"broker {broker.id}: log directory")
        known = by_id.keys()
        paths = {broker.id: [each.path for each in broker.directories] for broker in by_id.values()}
        for partition in ordered:
            _check_partition(partition, known, by_name)
            _check_directories(partition, paths)
        moving = dict(sorted((reassignments or {}).items()))
        for key, reassignment in moving.items():
            if key not in by_key:
                raise DocumentError(f"reassignment of {key}: there is no such partition")
            for broker_id in (*reassignment.adding, *reassignment.removing):
                if broker_id not in known:
                    raise DocumentError(f"reassignment of {key}: broker {broker_id} is not among the brokers")
        copies = tuple(directory_moves)
        for copy in copies:
            if copy.key not in by_key:
                raise DocumentError(f"move of {copy.key} to {copy.path}: there is no such partition")
            if copy.broker not in known:
                raise DocumentError(f"move of {copy.key} to {copy.path}: broker {copy.broker} is not among the brokers")
        return cls(cluster_id, taken_at_ms, by_id, by_name, by_key, moving, copies, tuple(missing))

    @property
    def under_way(self) -> frozenset[TopicPartition]:
        """Partitions that are being moved, between brokers or between directories."""
        return frozenset((*self.reassignments, *(copy.key for copy in self.directory_moves)))

    def digest(self) -> str:
        """A hash of where everything is: equal for states in which no broker, replica or directory differs."""
        hasher = hashlib.sha256()
        for broker in self.brokers.values():
            hasher.update(f"{broker.id} {broker.rack} {[each.path for each in broker.directories]}\n".encode())
        for each in self.partitions.values():
            hasher.update(f"{each.topic} {each.partition} {each.replicas} {each.directories}\n".encode())
        return hasher.hexdigest()


def _check_partition(partition: PartitionState, known: Collection[int], topics: Mapping[str, TopicState]) -> None:
    name = str(partition.key)
    if partition.topic not in topics:
        raise DocumentError(f"partition {name}: there is no topic {partition.topic!r}")
    if not partition.replicas:
        raise DocumentError(f"partition {name}: it has no replicas")
    if len(set(partition.replicas)) != len(partition.replicas):
        raise DocumentError(f"partition {name}: a broker is there twice in its replicas {list(partition.replicas)}")
    for broker_id in (*partition.replicas, *partition.isr):
        if broker_id not in known:
            raise DocumentError(f"partition {name}: broker {broker_id} is not among the brokers")
    if partition.leader != -1 and partition.leader not in known:
        raise DocumentError(f"partition {name}: its leader, broker {partition.leader}, is not among the brokers")
    for what, values in (("log_dirs", partition.directories), ("bytes", partition.sizes)):
        if values and len(values) != len(partition.replicas):
            raise DocumentError(
                f"partition {name}: {what} has {len(values)} elements for {len(partition.replicas)} replicas"
            )


def _check_directories(partition: PartitionState, paths: Mapping[int, Sequence[str]]) -> None:
    """DocumentError for a replica in a directory that its broker, which tells them, does not have."""
    for broker_id, path in zip(partition.replicas, partition.directories, strict=False):
        if path is not None and paths[broker_id] and path not in paths[broker_id]:
            known = ", ".join(paths[broker_id])
            raise DocumentError(
                f"partition {partition.key}: broker {broker_id} has no log directory {path}: it has {known}"
            )


def _unique(values: Iterable[T], key: Callable[[T], K], what: str) -> dict[K, T]:
    found: dict[K, T] = {}
    for value in values:
        if key(value) in found:
            raise DocumentError(f"{what} {key(value)} is there twice")
        found[key(value)] = value
    return found
