"""Metrics of coordinators: groups and transactions by state, each from its own coordinator alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tidelog.coordinator.groups.counts import KINDS, GroupCounts
from tidelog.coordinator.transactions.states import TransactionState
from tidelog.metrics.page import labels_text
from tidelog.model.topics import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from tidelog.broker.node import Node
    from tidelog.metrics.page import Page

_GROUPS: Final = "kafka_coordinator_group_groupmetadatamanager_numgroups"
_CLASSIC_STATES: Final = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")
_PER_STEP: Final = 200


def coordinates(node: Node, topic: str) -> bool:
    """Whether this broker leads a partition of an internal topic, and so coordinates something."""
    return any(replica.leader is not None for replica in node.replicas.of_topic(topic))


def collect_groups_by_state(page: Page, node: Node) -> Iterator[None]:
    """How many groups there are in each state, of both protocols."""
    states: Counter[str] = Counter()
    kinds: Counter[tuple[str, str]] = Counter()
    offsets = 0
    is_coordinator = coordinates(node, CONSUMER_OFFSETS_TOPIC)
    if is_coordinator:
        for shard in node.groups.shards.loaded():
            machine = shard.machine
            offsets += len(machine)
            for index, name in enumerate({*machine.groups, *machine.offsets.store.groups()}):
                if not index % _PER_STEP:
                    yield
                group = machine.group(name)
                if group is not None:
                    states[group.state] += 1
                    kinds[group.kind, group.state] += 1
            yield
    page.family(_GROUPS, "gauge", "Groups that this broker coordinates.").add(sum(states.values()))
    for state in _CLASSIC_STATES:
        page.family(f"{_GROUPS}{state.lower()}", "gauge", f"Groups in state {state}.").add(states[state])
    page.family("kafka_coordinator_group_groupmetadatamanager_numoffsets", "gauge", "Committed offsets.").add(offsets)
    family = page.family("tidelog_groups", "gauge", "Groups by protocol and state.")
    for (kind, state), count in sorted(kinds.items()):
        family.add(count, labels_text(type=kind, state=state))
    _add_counts(page, node.group_counts or GroupCounts())
    times = node.groups.shards.load_times.recent(node.clock.monotonic_ms()) if is_coordinator else []
    _add_load_times(page, "group_coordinator", times)


def _add_counts(page: Page, counts: GroupCounts) -> None:
    rebalances = page.family("tidelog_group_rebalances_total", "counter", "Rebalances of groups by protocol.")
    for kind in KINDS:
        rebalances.add(counts.rebalances[kind], labels_text(type=kind))
    prefix = "kafka_server_group_coordinator_metrics_"
    classic, consumer, share = (counts.rebalances[kind] for kind in KINDS)
    for name, value, help in (
        ("group_completed_rebalance", classic, "Rebalances of classic groups."),
        ("consumer_group_rebalance", consumer, "Epochs of consumer groups."),
        ("share_group_rebalance", share, "Epochs of share groups."),
        ("offset_commit", counts.commits, "Offsets that were committed."),
        ("offset_deletion", counts.deletions, "Offsets that were deleted by request, or with their topic."),
        ("offset_expiration", counts.expirations, "Offsets that have expired."),
    ):
        page.family(f"{prefix}{name}_count", "untyped", f"{help} A counter.").add(value)


def collect_transactions(page: Page, node: Node) -> Iterator[None]:
    """How many transactional ids are in each state, and how old the oldest open transaction is."""
    states: Counter[TransactionState] = Counter()
    oldest_ms: int | None = None
    times: list[int] = []
    partitions = 0
    if coordinates(node, TRANSACTION_STATE_TOPIC):
        shards = node.transactions.shards
        times = shards.load_times.recent(node.clock.monotonic_ms())
        for shard in shards.loaded():
            partitions += 1
            for index, transaction in enumerate(shard.machine.transactions()):
                if not index % _PER_STEP:
                    yield
                states[transaction.state] += 1
                if transaction.state is TransactionState.ONGOING and (
                    oldest_ms is None or transaction.started_ms < oldest_ms
                ):
                    oldest_ms = transaction.started_ms
    family = page.family("tidelog_transactions", "gauge", "Transactional ids by the state of their transaction.")
    for state in TransactionState:
        if state < TransactionState.DEAD:
            family.add(states[state], labels_text(state=state.label))
    age_ms = 0 if oldest_ms is None else max(node.clock.wall_ms() - oldest_ms, 0)
    page.family(
        "tidelog_oldest_open_transaction_seconds", "gauge", "How long the oldest transaction that is open has been so."
    ).add(age_ms / 1000)
    _add_load_times(page, "transaction_coordinator", times)
    for name, value, help in (
        ("transactional_id_count", sum(states.values()), "Transactional ids that are known."),
        ("partitions_total_size", partitions, "Partitions whose transactional ids are coordinated here."),
        ("active_transaction_total_time_max", age_ms, "Milliseconds that the oldest open transaction has been so."),
    ):
        page.family(f"kafka_server_transaction_coordinator_metrics_{name}", "gauge", help).add(value)


def _add_load_times(page: Page, coordinator: str, times: list[int]) -> None:
    """NaN where no partition was loaded lately, as in Kafka."""
    prefix = f"kafka_server_{coordinator}_metrics_partition_load_time_"
    help = "Milliseconds that it took to load a partition, of those loaded in the last half a minute."
    page.family(f"{prefix}avg", "gauge", help).add(sum(times) / len(times) if times else float("nan"))
    page.family(f"{prefix}max", "gauge", help).add(float(max(times)) if times else float("nan"))
