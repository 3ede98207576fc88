"""Replicas of one broker moved between its directories: a disk emptied, or replicas put where they are wanted. Pure."""

from __future__ import annotations

from collections.abc import Collection

from tidelog.model.identifiers import TopicPartition
from tidelog.placement.plan.documents import DocumentError
from tidelog.placement.plan.plan import Move, Plan
from tidelog.placement.plan.state import BrokerState, ClusterState, PartitionState


def moves_within(
    state: ClusterState,
    broker_id: int,
    *,
    source: str | None = None,
    target: str | None = None,
    only: Collection[TopicPartition] | None = None,
    topics: Collection[str] | None = None,
) -> Plan:
    """A plan that moves a broker's replicas out of `source` (None: wherever they are) to `target`.

    Without `target` each goes, the largest first, to the directory with the fewest bytes that is online and not
    cordoned. `only` and `topics` restrict it. DocumentError where there is no such broker, directory or replica.
    """
    broker = state.brokers.get(broker_id)
    if broker is None or not broker.online:
        raise DocumentError(f"there is no live broker {broker_id}")
    if not broker.directories:
        told = f"log directories of broker {broker_id}: "
        reason = next((each.removeprefix(told) for each in state.missing if each.startswith(told)), "it answered none")
        raise DocumentError(f"broker {broker_id} did not tell its log directories: {reason}")
    for path in (source, target):
        if path is not None and path not in {each.path for each in broker.directories}:
            known = ", ".join(each.path for each in broker.directories)
            raise DocumentError(f"broker {broker_id} has no log directory {path}: it has {known}")
    missing = [key for key in only or () if key not in state.partitions or _place(state, key, broker_id) is None]
    if missing:
        raise DocumentError(f"broker {broker_id} has no replica of {', '.join(map(str, missing))}")
    chosen = [
        each
        for each in state.partitions.values()
        if (path := _place(state, each.key, broker_id)) is not None
        and path not in ({target} if source is None else {each.path for each in broker.directories} - {source})
        and (only is None or each.key in only)
        and (not topics or each.topic in topics)
    ]
    filled = _filled(state, broker, source)
    if target is None and not filled:
        raise DocumentError(f"broker {broker_id} has no other log directory that is online and not cordoned")
    moves = []
    for each in sorted(chosen, key=lambda partition: (-_size(partition, broker_id), partition.key)):
        path = target if target is not None else min(filled, key=lambda candidate: filled[candidate])
        filled[path] = filled.get(path, 0) + _size(each, broker_id)
        if path != _place(state, each.key, broker_id):
            moves.append(_move(each, broker_id, path, state.topics[each.topic].id))
    return Plan.of(
        moves,
        cluster_id=state.cluster_id,
        made_at_ms=state.taken_at_ms,
        state_digest=state.digest(),
        goals=("log-dirs",),
        moves_least=len(moves) if source is not None or target is not None else None,
    )


def _place(state: ClusterState, key: TopicPartition, broker_id: int) -> str | None:
    partition = state.partitions[key]
    if broker_id not in partition.replicas or not partition.directories:
        return None
    return partition.directories[partition.replicas.index(broker_id)]


def _size(partition: PartitionState, broker_id: int) -> int:
    return (partition.sizes[partition.replicas.index(broker_id)] or 0) if partition.sizes else 0


def _filled(state: ClusterState, broker: BrokerState, source: str | None) -> dict[str, int]:
    """[directory that may get replicas] -> bytes in it."""
    filled = {
        each.path: 0 for each in broker.directories if each.path != source and not each.cordoned and each.error is None
    }
    for partition in state.partitions.values():
        path = _place(state, partition.key, broker.id)
        if path in filled:
            filled[path] += _size(partition, broker.id)
    return filled


def _move(partition: PartitionState, broker_id: int, path: str, topic_id: str | None) -> Move:
    after = tuple(
        path if broker == broker_id else former
        for broker, former in zip(partition.replicas, partition.directories, strict=True)
    )
    return Move(
        partition.topic,
        partition.partition,
        partition.replicas,
        partition.replicas,
        partition.directories,
        after,
        _size(partition, broker_id),
        topic_id=topic_id,
    )
