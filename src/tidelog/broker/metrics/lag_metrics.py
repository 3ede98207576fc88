"""Metrics of groups' lag, from their coordinators: by the names of kafka_exporter and of kafka-lag-exporter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.metrics.coordinator_metrics import coordinates
from tidelog.broker.metrics.selection import Selection
from tidelog.metrics.page import escaped
from tidelog.model.topics import CONSUMER_OFFSETS_TOPIC

if TYPE_CHECKING:
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.metrics.lag import GroupPosition, Lags
    from tidelog.broker.node import Node
    from tidelog.metrics.page import Family, Page

_EXPORTER: Final = "kafka_consumergroup_"
_LAG_EXPORTER: Final = "kafka_consumergroup_group_"
_POSITIONS_PER_STEP: Final = 100


class _OfGroup:
    """Sums of one group."""

    def __init__(self) -> None:
        self.lag = self.offsets = self.max_lag = 0
        self.max_lag_ms = 0
        self.moved_ms = 0
        """Wall time at which any of its positions moved last."""


class _Families:
    """Those that have a sample for each position of a group."""

    def __init__(self, page: Page, cluster_id: str) -> None:
        self.cluster_id = cluster_id

        def gauge(name: str, help: str) -> Family:
            return page.family(name, "gauge", help)

        behind, committed = "High watermark less committed offset.", "Committed offset."
        self.exporter = (
            gauge(f"{_EXPORTER}current_offset", committed),
            gauge(f"{_EXPORTER}lag", behind),
            gauge("kafka_consumer_lag_millis", "As kafka_consumergroup_group_lag_seconds, by 1000."),
        )
        self.lag_exporter = (
            gauge(f"{_LAG_EXPORTER}offset", committed),
            gauge(f"{_LAG_EXPORTER}lag", behind),
            gauge(f"{_LAG_EXPORTER}lag_seconds", "Now less the timestamp of the first record not committed; exact."),
        )
        self.of_exporter = page.table(*self.exporter)
        self.of_lag_exporter = page.table(*self.lag_exporter)


def collect_lag(page: Page, node: Node, lags: Lags) -> Iterator[Deferred[Any] | None]:
    """Of each group that is coordinated here: members, offsets, lag."""
    selection = Selection(node.config)
    yield from _collect_members(page, node, selection)
    yield from lags.look(selection)
    now_ms = node.clock.wall_ms()
    families = _Families(page, node.cluster_id)
    groups: dict[str, _OfGroup] = {}
    for index, position in enumerate(list(lags.positions.values())):
        if not index % _POSITIONS_PER_STEP:
            yield None
        _add_position(families, position, groups.setdefault(position.group, _OfGroup()), now_ms)
    for index, (group, sums) in enumerate(groups.items()):
        if not index % _POSITIONS_PER_STEP:
            yield None
        _add_group(page, node.cluster_id, group, sums, now_ms)


def _collect_members(page: Page, node: Node, selection: Selection) -> Iterator[None]:
    members = page.family(f"{_EXPORTER}members", "gauge", "Members of the group.")
    if not coordinates(node, CONSUMER_OFFSETS_TOPIC):
        return
    for shard in node.groups.shards.loaded():
        for index, (name, group) in enumerate(list(shard.machine.groups.items())):
            if not index % _POSITIONS_PER_STEP:
                yield None
            if selection.has_group(name):
                members.add(group.members_count, f'{{consumergroup="{escaped(name)}"}}')


def _add_position(families: _Families, position: GroupPosition, sums: _OfGroup, now_ms: int) -> None:
    topic, partition = position.topic_partition
    name = escaped(position.group)
    place = f'topic="{topic}",partition="{partition}"'
    labels = f'{{consumergroup="{name}",{place}}}'
    others = (
        f'{{cluster_name="{families.cluster_id}",group="{name}",{place},member_host="",consumer_id="",client_id=""}}'
    )
    offset, lag, lag_ms = position.offset, position.lag, position.lag_ms(now_ms)
    sums.offsets += offset
    sums.moved_ms = max(sums.moved_ms, position.moved_ms)
    if lag is not None:
        sums.lag += lag
        sums.max_lag = max(sums.max_lag, lag)
    if lag is not None and lag_ms is not None:
        sums.max_lag_ms = max(sums.max_lag_ms, lag_ms)
        families.of_exporter.add(labels, (offset, lag, lag_ms))
        families.of_lag_exporter.add(others, (offset, lag, lag_ms / 1000))
        return
    # Its leader has not answered in time, or not all of it.
    for (of_offset, of_lag, _), text in ((families.exporter, labels), (families.lag_exporter, others)):
        of_offset.add(offset, text)
        if lag is not None:
            of_lag.add(lag, text)


def _add_group(page: Page, cluster: str, group: str, sums: _OfGroup, now_ms: int) -> None:
    name = escaped(group)
    labels = f'{{consumergroup="{name}"}}'
    others = f'{{cluster_name="{cluster}",group="{name}"}}'
    page.family(f"{_EXPORTER}lag_sum", "gauge", "Lag of all the group's partitions.").add(sums.lag, labels)
    page.family(f"{_EXPORTER}current_offset_sum", "gauge", "Sum of committed offsets.").add(sums.offsets, labels)
    page.family(f"{_LAG_EXPORTER}sum_lag", "gauge", "Lag of all the group's partitions.").add(sums.lag, others)
    page.family(f"{_LAG_EXPORTER}max_lag", "gauge", "Lag of the partition furthest behind.").add(sums.max_lag, others)
    page.family(f"{_LAG_EXPORTER}max_lag_seconds", "gauge", "Lag of the partition longest behind.").add(
        sums.max_lag_ms / 1000, others
    )
    stands = page.family(
        "tidelog_consumergroup_unmoved_seconds",
        "gauge",
        "Since a committed offset of the group changed; 0 without lag.",
    )
    stands.add(max(now_ms - sums.moved_ms, 0) / 1000 if sums.max_lag > 0 else 0.0, labels)
