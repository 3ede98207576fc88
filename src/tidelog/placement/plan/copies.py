"""What a move copies: from which broker and directory to which. Leaders send, whichever replica is replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tidelog.placement.plan.plan import Move
from tidelog.placement.plan.state import ClusterState


@dataclass(frozen=True, slots=True)
class Disk:
    """A log directory of a broker."""

    broker: int
    path: str


@dataclass(frozen=True, slots=True)
class Copy:
    """One replica on its way. `source` is None for a partition without a leader, whose copy cannot begin."""

    source: int | None
    target: int
    onto: Disk | None
    """None where the broker's directories are not known."""
    size: int
    bytes_in_per_s: float

    @property
    def is_within(self) -> bool:
        """Whether it stays on its broker, and only changes the directory."""
        return self.source == self.target


@dataclass(frozen=True, slots=True)
class Work:
    """A move with all that it copies, and what it frees when it has ended: [disk] -> bytes."""

    move: Move
    copies: tuple[Copy, ...]
    frees: Mapping[Disk, int]


class Directories:
    """Which directory a broker would choose for a replica: the live one with the fewest logs, as Kafka does.

    `room`: [disk] -> bytes that may be put there, where known. A replica that has no room where the broker would put
    it, goes to the one with the most; that has to be asked for.
    """

    def __init__(self, state: ClusterState, room: Mapping[Disk, int] | None = None) -> None:
        self._room = dict(room or {})
        self._logs: dict[int, dict[str, int]] = {
            broker.id: {each.path: 0 for each in broker.directories if each.error is None and not each.cordoned}
            for broker in state.brokers.values()
        }
        for partition in state.partitions.values():
            for broker, path in zip(partition.replicas, partition.directories, strict=False):
                if path in self._logs[broker]:
                    self._logs[broker][path] += 1

    def take(self, broker: int, path: str | None, size: int) -> Disk | None:
        """The disk of a new replica of `size` bytes: the one asked for, else one of those that the broker has.

        None where its directories are not known; a broker that is gone need not be in the state at all.
        """
        path = path or self.default(broker)
        if path is None:
            return None
        disk = Disk(broker, path)
        logs = self._logs.setdefault(broker, {})
        logs[path] = logs.get(path, 0) + 1
        if disk in self._room:
            self._room[disk] -= size
        return disk

    def default(self, broker: int) -> str | None:
        """The directory that the broker would choose now."""
        logs = self._logs.setdefault(broker, {})
        return min(logs, key=lambda each: logs[each], default=None)

    def roomy(self, broker: int, size: int) -> str | None:
        """The directory to ask for where the one that the broker would choose has no room, and another one has."""
        default = self.default(broker)
        if default is None or size <= self._room.get(Disk(broker, default), size):
            return None
        room = {path: self._room.get(Disk(broker, path), 0) for path in self._logs[broker]}
        best = max(room, key=lambda path: room[path])
        return best if size <= room[best] else None


def work_of(move: Move, state: ClusterState, directories: Directories) -> Work:
    """What a move copies and frees; it names the directories that have to be asked for."""
    partition = state.partitions[move.key]
    traffic = partition.bytes_in_per_s or 0.0
    size = move.size or 0
    source = partition.leader if partition.leader >= 0 else None
    wanted = dict(zip(move.replicas_to, move.directories_to, strict=True))
    copies = []
    for broker in move.adding:
        if wanted[broker] is None:
            wanted[broker] = directories.roomy(broker, size)
        copies.append(Copy(source, broker, directories.take(broker, wanted[broker], size), size, traffic))
    copies += [Copy(broker, broker, Disk(broker, path), size, traffic) for broker, _, path in move.within]
    former = dict(zip(move.replicas_from, move.directories_from, strict=True))
    sizes = dict(zip(partition.replicas, partition.sizes or (None,) * len(partition.replicas), strict=True))
    leaving = [*move.removing, *(broker for broker, _, _ in move.within)]
    frees = {
        Disk(broker, path): sizes.get(broker) or 0 for broker in leaving if (path := former.get(broker)) is not None
    }
    move = replace(move, directories_to=tuple(wanted[broker] for broker in move.replicas_to))
    return Work(move, tuple(copies), frees)


def used_bytes(state: ClusterState) -> dict[Disk, int]:
    """Bytes of replicas on each disk."""
    held: dict[Disk, int] = {
        Disk(broker.id, each.path): 0 for broker in state.brokers.values() for each in broker.directories
    }
    for partition in state.partitions.values():
        for broker, path, size in zip(partition.replicas, partition.directories, partition.sizes, strict=False):
            if path is not None:
                disk = Disk(broker, path)
                held[disk] = held.get(disk, 0) + (size or 0)
    return held
