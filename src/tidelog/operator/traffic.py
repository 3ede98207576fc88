"""A state with the traffic of its partitions, from two readings some seconds apart. Operations, no I/O of their own.

In: by how much the leader's replica has grown between the readings. Where retention has taken something away, or the
leader has changed, it is the records that came, by the bytes that a record of the partition takes on average. Out: the
same for what groups have committed meanwhile, which is an estimate: consumers without commits are not seen, and one
that commits rarely is seen in jumps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tidelog.client import admin
from tidelog.client.errors import ClientError
from tidelog.client.offsets import committed_offsets, list_offsets
from tidelog.client.operations import Operation, Pause
from tidelog.client.routing import Routing
from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from tidelog.operator.reading import read_state
from tidelog.placement.plan.state import ClusterState, PartitionState


@dataclass(slots=True)
class _Reading:
    """Where partitions end and groups are, at one time of the monotonic clock."""

    at: float
    ends: Mapping[TopicPartition, int]
    committed: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    sizes: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Bytes of the replica on the broker that led when the watching began."""


def read_with_traffic(
    routing: Routing, *, seconds: float, taken_at_ms: int, timeout_s: float | None = None
) -> Operation[ClusterState]:
    """The state, with what comes and goes in `seconds`, where a partition has a leader. Errors: `read_state`."""
    topics = yield from admin.list_topics(routing, timeout_s=timeout_s)
    leaders = {
        TopicPartition(topic.name, number): view.leader
        for topic in topics.values()
        for number, view in topic.partitions.items()
        if view.leader >= 0
    }
    partitions = list(leaders)
    missing: list[str] = []
    before = yield from _read(routing, partitions, missing, timeout_s)
    before.sizes = yield from _sizes(routing, leaders, timeout_s)
    before.starts = yield from _offsets(routing, partitions, EARLIEST_TIMESTAMP, timeout_s)
    yield Pause(seconds)
    after = yield from _read(routing, partitions, [], timeout_s)
    state = yield from read_state(routing, taken_at_ms=taken_at_ms, timeout_s=timeout_s)
    after.sizes = {
        key: size
        for key, partition in state.partitions.items()
        if (size := _size_of(partition)) is not None and leaders.get(key) == partition.leader
    }
    after.starts = yield from _offsets(routing, partitions, EARLIEST_TIMESTAMP, timeout_s)
    went: dict[TopicPartition, int] = {}
    for (group, key), offset in after.committed.items():
        went[key] = went.get(key, 0) + max(0, offset - before.committed.get((group, key), offset))
    found = {
        key: _with_rates(partition, before, after, went.get(key, 0)) for key, partition in state.partitions.items()
    }
    return replace(state, partitions=found, missing=(*state.missing, *missing))


def _read(
    routing: Routing, partitions: Iterable[TopicPartition], missing: list[str], timeout_s: float | None
) -> Operation[_Reading]:
    reading = _Reading(routing.now(), (yield from _offsets(routing, partitions, LATEST_TIMESTAMP, timeout_s)))
    try:
        groups = yield from admin.list_groups(routing, timeout_s=timeout_s)
    except (KafkaError, ClientError) as error:
        missing.append(f"traffic out: groups cannot be listed: {error}")
        return reading
    for listing in groups:
        try:
            committed = yield from committed_offsets(routing, listing.group, timeout_s=timeout_s)
        except (KafkaError, ClientError) as error:
            missing.append(f"traffic out to group {listing.group}: {error}")
            continue
        for key, each in committed.items():
            reading.committed[listing.group, key] = each.offset
    return reading


def _offsets(
    routing: Routing, partitions: Iterable[TopicPartition], timestamp: int, timeout_s: float | None
) -> Operation[dict[TopicPartition, int]]:
    """The offsets of partitions whose leaders tell them."""
    answers = yield from list_offsets(routing, dict.fromkeys(partitions, timestamp), timeout_s=timeout_s)
    return {key: answer.offset for key, answer in answers.items() if not isinstance(answer, KafkaError)}


def _sizes(
    routing: Routing, leaders: Mapping[TopicPartition, int], timeout_s: float | None
) -> Operation[dict[TopicPartition, int]]:
    """The bytes of partitions on their leaders, of brokers that tell them; `read_state` says which do not."""
    found: dict[TopicPartition, int] = {}
    for broker in sorted(set(leaders.values()) & routing.brokers.keys()):
        try:
            answers = yield from admin.describe_log_dirs(routing, [broker], timeout_s=timeout_s)
        except ClientError:
            continue  # It is asked again by `read_state`, which names the error.
        answer = answers[broker]
        for directory in () if isinstance(answer, KafkaError) else answer:
            for key, replica in directory.replicas.items():
                if leaders.get(key) == broker and not replica.is_future:
                    found[key] = replica.size
    return found


def _size_of(partition: PartitionState) -> int | None:
    """The bytes of the leader's replica."""
    return dict(zip(partition.replicas, partition.sizes, strict=False)).get(partition.leader)


def _bytes_per_record(key: TopicPartition, before: _Reading, after: _Reading, size: int) -> float:
    """What a record takes: of those that came, where their bytes are known; else of all on the disk."""
    came, grown = after.ends[key] - before.ends[key], after.sizes.get(key, 0) - before.sizes.get(key, 0)
    known = key in before.sizes and key in after.sizes and before.starts.get(key) == after.starts.get(key)
    if known and came > 0 and grown > 0:
        return grown / came
    records = after.ends[key] - after.starts[key]
    return size / records if records > 0 else 0.0


def _with_rates(partition: PartitionState, before: _Reading, after: _Reading, went: int) -> PartitionState:
    """The partition with its rates, where all is known that they follow from. `went`: records that groups committed."""
    key = partition.key
    seconds = after.at - before.at
    size = _size_of(partition)
    if key not in before.ends or key not in after.ends or key not in after.starts or seconds <= 0 or size is None:
        return partition
    bytes_per_record = _bytes_per_record(key, before, after, size)
    came = max(0, after.ends[key] - before.ends[key])
    return replace(
        partition,
        bytes_in_per_s=round(came * bytes_per_record / seconds, 1),
        bytes_out_per_s=round(went * bytes_per_record / seconds, 1),
    )
