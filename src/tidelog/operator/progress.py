"""How far a cluster is with a plan, and what has changed since the plan was made. No I/O.

NOT_BEGUN   the partition is as the plan found it
UNDER_WAY   it is on its way to where the plan wants it, by this run or another tool
DONE        it is there
SETTLING    its replicas are those of before and after together: a broker's metadata is of a moment in between
CHANGED     it is something else: the plan was made for another cluster than this is by now. So is a topic that was
            deleted and made again, wherever its replicas are
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from tidelog.model.identifiers import TopicPartition
from tidelog.placement.plan.plan import Move, Plan
from tidelog.placement.plan.state import BrokerState, ClusterState, DirectoryMoveState, PartitionState


class Standing(enum.Enum):
    """Where one move stands; the module's head explains."""

    NOT_BEGUN = enum.auto()
    UNDER_WAY = enum.auto()
    DONE = enum.auto()
    SETTLING = enum.auto()
    CHANGED = enum.auto()


@dataclass(frozen=True, slots=True)
class Judged:
    """A move as the cluster shows it."""

    move: Move
    standing: Standing
    reason: str = ""
    """What has changed, or cannot be told, in words."""
    gone: bool = False
    """Whether the topic that the plan knows is not there any more, though another one may have its name."""
    reordered: str = ""
    """Not empty: the former replicas are there in another order, in words. Kafka leaves them so when it cancels."""
    reassigned: bool = False
    """Whether the replicas are on the brokers where the plan wants them."""
    to_place: tuple[tuple[int, str], ...] = ()
    """Replicas that lie in another directory than the plan wants, and are not on their way: (broker, directory)."""
    coming: bool = False
    """Whether a replica is being copied to the directory where the plan wants it."""
    silent: tuple[int, ...] = ()
    """Live brokers that did not answer: whether their replicas of `to_place` lie where they should, is not known."""
    bytes_left: int = 0
    """Bytes that are still to be copied, as far as sizes are known."""

    @property
    def is_misplaced(self) -> bool:
        """Whether all that is left of it is to ask for directories: nothing is being copied."""
        return self.reassigned and bool(self.to_place) and not (self.silent or self.coming)

    @property
    def waits_for(self) -> tuple[int, ...]:
        """Brokers that have to be live for it."""
        adding = () if self.reassigned else self.move.adding
        return tuple(sorted({*adding, *(broker for broker, _ in self.to_place)}))


def target_of(state: ClusterState, key: TopicPartition) -> tuple[int, ...] | None:
    """The replicas that a partition's reassignment leads to; None where none is under way."""
    reassignment = state.reassignments.get(key)
    partition = state.partitions.get(key)
    if reassignment is None or partition is None:
        return None
    return tuple(broker for broker in partition.replicas if broker not in reassignment.removing)


def judge(move: Move, state: ClusterState, copies: Mapping[int, DirectoryMoveState]) -> Judged:
    """Where a move stands in a state. `copies`: [broker] -> what it copies of the partition to another directory."""
    partition = state.partitions.get(move.key)
    if partition is None:
        return Judged(move, Standing.CHANGED, f"partition {move.key}: it does not exist any more", gone=True)
    topic_id = state.topics[move.topic].id
    if None not in (move.topic_id, topic_id) and move.topic_id != topic_id:
        reason = f"partition {move.key}: the topic was deleted, and another one made of its name"
        return Judged(move, Standing.CHANGED, reason, gone=True)
    target = target_of(state, move.key)
    if target is not None:
        if target == move.replicas_to:
            return Judged(move, Standing.UNDER_WAY, bytes_left=_bytes_left(move, partition, copies))
        reason = f"partition {move.key}: it is being moved to {list(target)}, which this plan does not ask for"
        return Judged(move, Standing.CHANGED, reason)
    if partition.replicas == move.replicas_to:
        return _judge_directories(move, partition, state, copies, reassigned=True)
    if partition.replicas == move.replicas_from:
        return _judge_directories(move, partition, state, copies, reassigned=False)
    reason = (
        f"partition {move.key}: its replicas are {list(partition.replicas)}, the plan is for {list(move.replicas_from)}"
    )
    if {*partition.replicas} == {*move.replicas_from}:
        return replace(_judge_directories(move, partition, state, copies, reassigned=False), reordered=reason)
    if {*partition.replicas} == {*move.replicas_from, *move.replicas_to}:
        return Judged(move, Standing.SETTLING, bytes_left=_bytes_left(move, partition, copies))
    return Judged(move, Standing.CHANGED, reason)


def _judge_directories(
    move: Move,
    partition: PartitionState,
    state: ClusterState,
    copies: Mapping[int, DirectoryMoveState],
    *,
    reassigned: bool,
) -> Judged:
    """A move whose partition has all its former replicas, or all its new ones: do they lie where they should?"""
    former = dict(zip(move.replicas_from, move.directories_from, strict=True))
    present = dict(zip(partition.replicas, partition.directories, strict=True)) if partition.directories else {}
    to_place: list[tuple[int, str]] = []
    silent: list[int] = []
    coming = False
    for broker, directory in zip(move.replicas_to, move.directories_to, strict=True):
        now = present.get(broker)
        if directory is None or broker not in present or now == directory:
            continue
        future = copies.get(broker)
        if future is not None and future.path == directory:
            coming = True
        elif now is None and _does_not_tell(state, broker):
            continue
        elif broker in former and now is not None and former[broker] not in (now, None):
            reason = f"partition {move.key}: on broker {broker} it lies in {now}, the plan is for {former[broker]}"
            return Judged(move, Standing.CHANGED, reason)
        else:
            to_place.append((broker, directory))
            if now is None and state.brokers[broker].silent:
                silent.append(broker)
    left = _bytes_left(move, partition, copies)
    begun = coming or (reassigned and (bool(silent) or move.replicas_from != move.replicas_to))
    if reassigned and not coming and not to_place:
        return Judged(move, Standing.DONE, reassigned=True)
    return Judged(
        move,
        Standing.UNDER_WAY if begun else Standing.NOT_BEGUN,
        f"broker {silent[0]} does not answer where it lies" if silent else "",
        reassigned=reassigned,
        to_place=tuple(to_place),
        coming=coming,
        silent=tuple(silent),
        bytes_left=left,
    )


def _does_not_tell(state: ClusterState, broker_id: int) -> bool:
    """Whether a live broker keeps its directories to itself: what is asked of them cannot be seen, and is believed."""
    broker = state.brokers.get(broker_id)
    return broker is not None and broker.online and not broker.directories and not broker.silent


def _bytes_left(move: Move, partition: PartitionState, copies: Mapping[int, DirectoryMoveState]) -> int:
    size = max(partition.size or 0, move.size or 0)
    sizes = dict(zip(partition.replicas, partition.sizes, strict=True)) if partition.sizes else {}
    left = sum(
        max(0, size - (sizes.get(broker) or 0))
        for broker in move.adding
        if broker not in partition.isr or broker not in partition.replicas
    )
    present = dict(zip(partition.replicas, partition.directories, strict=True)) if partition.directories else {}
    for broker, _, directory in move.within:
        if present.get(broker) != directory:
            done = copies[broker].bytes_done if broker in copies else 0
            left += max(0, (sizes.get(broker) or move.size or 0) - done)
    return left


@dataclass(frozen=True, slots=True)
class Progress:
    """All moves of a plan as the cluster shows them, in the plan's order."""

    moves: tuple[Judged, ...]

    @classmethod
    def of(cls, plan: Plan, state: ClusterState) -> Progress:
        """The progress of a plan in a state."""
        copies: dict[TopicPartition, dict[int, DirectoryMoveState]] = {}
        for each in state.directory_moves:
            copies.setdefault(TopicPartition(each.topic, each.partition), {})[each.broker] = each
        return cls(tuple(judge(move, state, copies.get(move.key, {})) for move in plan.moves))

    def of_standing(self, *standings: Standing) -> list[Judged]:
        """The moves that stand so."""
        return [each for each in self.moves if each.standing in standings]

    @property
    def unfinished(self) -> list[Judged]:
        """What is not done, and not changed by others."""
        return self.of_standing(Standing.NOT_BEGUN, Standing.UNDER_WAY, Standing.SETTLING)

    @property
    def bytes_left(self) -> int:
        """Bytes that are still to be copied."""
        return sum(each.bytes_left for each in self.unfinished)


def is_for_another_cluster(plan: Plan, state: ClusterState) -> str:
    """Not empty: the plan was made for another cluster, in words. What has the same names here is none of its."""
    if None in (plan.cluster_id, state.cluster_id) or plan.cluster_id == state.cluster_id:
        return ""
    return f"the plan is for cluster {plan.cluster_id}, this is {state.cluster_id}"


def changes_since(plan: Plan, state: ClusterState, *, strict: bool = True) -> list[str]:
    """What keeps a plan from being carried out as it was made, in words; its own progress is no change.

    Not `strict`: what was begun goes on, or back, with replicas in another order, and to brokers that are cordoned or
    not live, which are waited for.
    """
    elsewhere = is_for_another_cluster(plan, state)
    if elsewhere:
        return [elsewhere]
    judged = Progress.of(plan, state)
    found = [each.reason for each in judged.of_standing(Standing.CHANGED)]
    if strict:
        found += [each.reordered for each in judged.moves if each.reordered]
    for broker, directories in sorted(_destinations(judged.unfinished).items()):
        known = state.brokers.get(broker)
        if known is not None and known.online:
            found += _broker_changes(known, directories, strict)
        elif strict:
            found.append(f"broker {broker}, which is to get replicas, is not live")
    return found


def _destinations(moves: Iterable[Judged]) -> dict[int, set[str | None]]:
    """[broker] -> the directories in which it is to get replicas, None for any."""
    found: dict[int, set[str | None]] = {}
    for each in moves:
        if each.reassigned and not each.to_place:
            continue
        move = each.move
        wanted = dict(zip(move.replicas_to, move.directories_to, strict=True))
        for broker in move.adding:
            found.setdefault(broker, set()).add(wanted[broker])
        for broker, _, directory in move.within:
            found.setdefault(broker, set()).add(directory)
    return found


def _broker_changes(broker: BrokerState, directories: Collection[str | None], cordons_count: bool) -> list[str]:
    if cordons_count and broker.cordoned:
        return [f"broker {broker.id}, which is to get replicas, is cordoned"]
    found = []
    known = {each.path: each for each in broker.directories}
    for path in sorted(each for each in directories if each is not None):
        directory = known.get(path)
        if known and directory is None:
            found.append(f"broker {broker.id} has no log directory {path}: it has {', '.join(known)}")
        elif directory is not None and directory.error is not None:
            found.append(f"log directory {path} of broker {broker.id} is offline: {directory.error}")
        elif directory is not None and directory.cordoned and cordons_count:
            found.append(f"log directory {path} of broker {broker.id}, which is to get replicas, is cordoned")
    return found


def undoing(plan: Plan, state: ClusterState) -> Plan:
    """The plan that takes back what is done of another one; moves that were not begun are left out."""
    begun = {each.move.key for each in Progress.of(plan, state).moves if _has_changed_something(each)}
    inverse = plan.inverse()
    return replace(inverse, moves=tuple(move for move in inverse.moves if move.key in begun))


def _has_changed_something(judged: Judged) -> bool:
    if judged.standing is Standing.DONE:
        return True
    if judged.standing is Standing.CHANGED:
        return False
    if judged.silent:
        return True  # It may have: its way back begins with asking where it lies.
    move = judged.move
    moved_over = judged.reassigned and move.replicas_from != move.replicas_to
    return moved_over or len(set(judged.to_place) & {(broker, to) for broker, _, to in move.within}) < len(move.within)
