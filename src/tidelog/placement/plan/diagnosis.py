"""What is wrong with a cluster, in a line each, the worst first. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tidelog.placement.plan.copies import used_bytes
from tidelog.placement.plan.goals import TOLERANCE
from tidelog.placement.plan.state import ClusterState

FULL: Final = 0.85
"""Above this share a disk is called full: the next burst may stop its broker's directory."""
NAMED_MAX: Final = 4
"""Things of a kind that one line names."""


def findings(state: ClusterState) -> list[str]:
    """What an operator should know of before a plan is made."""
    return [
        *_brokers(state),
        *_partitions(state),
        *_disks(state),
        *_racks(state),
        *_uneven(state),
        *_under_way(state),
    ]


def _brokers(state: ClusterState) -> Iterator[str]:
    held = dict.fromkeys(state.brokers, 0)
    for partition in state.partitions.values():
        for broker_id in partition.replicas:
            held[broker_id] += 1
    for broker in state.brokers.values():
        if not broker.online:
            are = "is" if held[broker.id] == 1 else "are"
            yield f"broker {broker.id} is offline: {_number(held[broker.id], 'replica')} {are} assigned to it"
        elif not held[broker.id]:
            yield f"broker {broker.id} holds no replica"
        if broker.cordoned:
            yield f"broker {broker.id} is cordoned: it gets no new replica"
        for directory in broker.directories:
            if directory.error is not None:
                yield f"broker {broker.id} has lost {directory.path} ({directory.error})"
            elif directory.cordoned and not broker.cordoned:
                yield f"broker {broker.id} {directory.path} is cordoned: it gets no new replica"


def _partitions(state: ClusterState) -> Iterator[str]:
    leaderless = [key for key, each in state.partitions.items() if each.leader < 0]
    short = [key for key, each in state.partitions.items() if each.leader >= 0 and len(each.isr) < len(each.replicas)]
    below = [
        key
        for key, each in state.partitions.items()
        if each.leader >= 0 and len(each.isr) < (state.topics[key.topic].min_insync_replicas or 1)
    ]
    for what, keys in (
        ("without a leader", leaderless),
        ("below min.insync.replicas", below),
        ("with replicas out of sync", short),
    ):
        if keys:
            yield f"{_number(len(keys), 'partition')} {what}: {_named([str(key) for key in keys])}"


def _disks(state: ClusterState) -> Iterator[str]:
    full = [
        (1 - directory.usable_bytes / directory.total_bytes, broker.id, directory.path)
        for broker in state.brokers.values()
        for directory in broker.directories
        if directory.total_bytes and directory.usable_bytes is not None
    ]
    worst = sorted((each for each in full if each[0] >= FULL), key=lambda each: (-each[0], each[1:]))
    if worst:
        yield f"{_number(len(worst), 'disk')} full: " + _named(
            [f"broker {broker} {path} {share:.0%}" for share, broker, path in worst]
        )


def _racks(state: ClusterState) -> Iterator[str]:
    # A broker that is gone tells no rack: it is taken to have one of its own, as in plans.
    racks = {broker.id: broker.id if broker.rack is None else broker.rack for broker in state.brokers.values()}
    live = [broker for broker in state.brokers.values() if broker.online]
    names = {broker.rack for broker in live if broker.rack is not None}
    without = [str(broker.id) for broker in live if broker.rack is None]
    if not names:
        return
    if without:
        yield f"{_number(len(without), 'broker')} without a rack beside others that have one: {_named(without)}"
    crowded = [
        str(key)
        for key, each in state.partitions.items()
        if len({racks[broker] for broker in each.replicas}) < min(len(each.replicas), len(names))
    ]
    if crowded:
        yield f"{_number(len(crowded), 'partition')} twice in one rack: {_named(crowded)}"


def _uneven(state: ClusterState) -> Iterator[str]:
    live = [broker.id for broker in state.brokers.values() if broker.online]
    if not live:
        return
    counts = dict.fromkeys(live, 0)
    leaders = dict.fromkeys(live, 0)
    for partition in state.partitions.values():
        for broker in partition.replicas:
            if broker in counts:
                counts[broker] += 1
        if partition.replicas[0] in leaders:
            leaders[partition.replicas[0]] += 1
    for what, found in (("replicas", counts), ("preferred leaders", leaders)):
        low, high = min(found.values()), max(found.values())
        if high - low > 1:
            yield f"brokers have {low} to {high} {what}, {sum(found.values()) / len(found):.1f} on average"
    yield from _uneven_bytes(state)


def _uneven_bytes(state: ClusterState) -> Iterator[str]:
    used = used_bytes(state)
    if len(used) < 2 or not sum(used.values()):
        return
    average = sum(used.values()) / len(used)
    low, high = min(used.values()), max(used.values())
    if high > average * (1 + TOLERANCE) or low < average * (1 - TOLERANCE):
        yield f"disks hold {low / average:.0%} to {high / average:.0%} of the average bytes"


def _under_way(state: ClusterState) -> Iterator[str]:
    if state.reassignments:
        yield f"{_number(len(state.reassignments), 'reassignment')} under way: these partitions are left alone"
    if state.directory_moves:
        yield f"{_number(len(state.directory_moves), 'move')} between directories under way"
    throttled = [f"broker {broker.id}" for broker in state.brokers.values() if broker.throttles]
    throttled += [f"topic {topic.name}" for topic in state.topics.values() if topic.throttles]
    if throttled:
        yield f"replication throttles are set: {_named(throttled)}"


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMED_MAX])
    return shown if len(names) <= NAMED_MAX else f"{shown}, ... ({len(names) - NAMED_MAX:,} more)"
