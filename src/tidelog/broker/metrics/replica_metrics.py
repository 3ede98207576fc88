"""Metrics of replicas: leaders, replicas in sync, where logs begin and end, how far followers are behind.

What is true of a partition comes from its leader alone, so that a sum over brokers counts it once; what is true of a
replica, such as the size of its log, comes from each broker that has one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tidelog.broker.metrics.selection import Selection
from tidelog.metrics.page import labels_text

if TYPE_CHECKING:
    from tidelog.broker.node import Node
    from tidelog.broker.replicas.replica import Replica
    from tidelog.metrics.page import Family, Page
    from tidelog.replication.leader import PartitionLeader

REPLICAS_PER_STEP: Final = 50
_MANAGER: Final = "kafka_server_replicamanager_"


class _Counts:
    """Replicas of this broker by what they are."""

    def __init__(self) -> None:
        self.replicas = self.leaders = self.offline = self.delayed = 0
        self.under_replicated = self.under_min_isr = self.at_min_isr = self.reassigning = 0


class _Tables:
    """Those that have a row for each partition."""

    def __init__(self, page: Page, cluster_id: str) -> None:
        self.cluster = f'{{cluster_name="{cluster_id}",'

        def gauge(name: str, help: str) -> Family:
            return page.family(name, "gauge", help)

        cluster, log, exporter = "kafka_cluster_partition_", "kafka_log_log_", "kafka_topic_partition_"
        self.replicas = gauge(f"{cluster}replicascount", "Replicas as assigned.")
        self.of_logs = page.table(
            gauge(f"{log}size", "Bytes of the replica's log."),
            gauge(f"{log}numlogsegments", "Segments of the replica's log."),
            gauge(f"{log}logstartoffset", "First offset of the replica's log."),
            gauge(f"{log}logendoffset", "Offset of the next record of the replica's log."),
        )
        under, in_sync = "1 where a replica is not in sync.", "Replicas in sync."
        self.of_leaders = page.table(
            (gauge(f"{cluster}underreplicated", under), gauge(f"{exporter}under_replicated_partition", under)),
            (gauge(f"{cluster}insyncreplicascount", in_sync), gauge(f"{exporter}in_sync_replica", in_sync)),
            (self.replicas, gauge(f"{exporter}replicas", "Replicas as assigned.")),
            gauge(f"{cluster}underminisr", "1 where too few replicas are in sync for acks=all."),
            gauge(f"{cluster}atminisr", "1 where just enough replicas are in sync for acks=all."),
            gauge(f"{cluster}laststableoffsetlag", "Records that open transactions keep from readers."),
            gauge(f"{exporter}current_offset", "The partition's high watermark."),
            gauge(f"{exporter}oldest_offset", "The partition's first offset."),
            gauge(f"{exporter}leader", "Id of the broker that leads the partition."),
            gauge(f"{exporter}leader_is_preferred", "1 where the first replica leads."),
        )
        self.of_lag_exporter = page.table(
            gauge("kafka_partition_latest_offset", "The partition's high watermark."),
            gauge("kafka_partition_earliest_offset", "The partition's first offset."),
        )


def collect_replicas(page: Page, node: Node) -> Iterator[None]:
    """Of all replicas of this broker, and each one's."""
    selection = Selection(node.config)
    counts, tables = _Counts(), _Tables(page, node.cluster_id)
    for index, replica in enumerate(list(node.replicas)):
        if not index % REPLICAS_PER_STEP:
            yield
        topic, partition = replica.topic_partition
        log = replica.log
        labels = ""
        if selection.partitions and selection.has_topic(topic):
            labels = f'{{topic="{topic}",partition="{partition}"}}'
            row = (log.size, len(log.segments), int(log.log_start_offset), int(log.log_end_offset))
            tables.of_logs.add(labels, row)
        counts.replicas += 1
        counts.offline += log.is_offline
        if replica.leader is None and labels:
            # As Kafka has it: replicas that do not lead are those with 0.
            tables.replicas.add(0, labels)
        if replica.leader is not None and not replica.removed:
            _add_leader(tables, counts, replica, replica.leader, labels)
    _add_counts(page, node, counts)
    yield


def _add_leader(tables: _Tables, counts: _Counts, replica: Replica, leader: PartitionLeader, labels: str) -> None:
    counts.leaders += 1
    in_sync, replicas, adding = len(leader.isr), leader.replicas, leader.adding
    # What a reassignment is adding is not missed yet.
    settled_in_sync = sum(id not in adding for id in leader.isr) if adding else in_sync
    is_under = int(settled_in_sync < len(replicas) - len(adding))
    min_isr = leader.effective_min_isr
    is_under_min, is_at_min = int(in_sync < min_isr), int(in_sync == min_isr)
    counts.under_replicated += is_under
    counts.under_min_isr += is_under_min
    counts.at_min_isr += is_at_min
    counts.reassigning += bool(adding)
    if replica.delayed_appends is not None:
        counts.delayed += len(replica.delayed_appends)
    if not labels:
        return
    log, high_watermark = replica.log, int(leader.high_watermark)
    start = int(log.log_start_offset)
    stable_lag = max(high_watermark - log.last_stable_offset, 0)
    is_preferred = int(replicas[0] == leader.broker_id)
    isr = (is_under, in_sync, len(replicas), is_under_min, is_at_min)
    tables.of_leaders.add(labels, (*isr, stable_lag, high_watermark, start, int(leader.broker_id), is_preferred))
    tables.of_lag_exporter.add(tables.cluster + labels[1:], (high_watermark, start))


def _add_counts(page: Page, node: Node, counts: _Counts) -> None:
    for name, value, help in (
        ("partitioncount", counts.replicas, "Replicas on this broker."),
        ("leadercount", counts.leaders, "Partitions that this broker leads."),
        ("underreplicatedpartitions", counts.under_replicated, "Partitions led here that lack a replica in sync."),
        ("underminisrpartitioncount", counts.under_min_isr, "Partitions led here that refuse acks=all."),
        ("atminisrpartitioncount", counts.at_min_isr, "Partitions led here with just enough replicas in sync."),
        ("offlinereplicacount", counts.offline, "Replicas here whose log directory has failed."),
        ("reassigningpartitions", counts.reassigning, "Partitions led here that are getting other replicas."),
        ("produceridcount", node.logs.producer_limit.count, "Idempotent producers that are remembered."),
    ):
        page.family(f"{_MANAGER}{name}", "gauge", help).add(value)
    page.meter(f"{_MANAGER}isrshrinks", "Times that an ISR became smaller, seen by its leader.").add(
        node.replicas.isr_shrinks
    )
    page.meter(f"{_MANAGER}isrexpands", "Times that an ISR became larger, seen by its leader.").add(
        node.replicas.isr_expands
    )
    page.meter(f"{_MANAGER}failedisrupdates", "Changes of an ISR that the controller has refused.").add(
        node.alter_partition_manager.refused
    )
    sessions = "kafka_server_fetchsessioncache_"
    page.family(f"{sessions}numincrementalfetchsessions", "gauge", "Fetch sessions of consumers.").add(
        len(node.fetch_sessions)
    )
    page.family(f"{sessions}numincrementalfetchpartitionscached", "gauge", "Partitions in those sessions.").add(
        node.fetch_sessions.partitions
    )
    page.meter(f"{sessions}incrementalfetchsessionevictions", "Sessions that had to go for another one.").add(
        node.fetch_sessions.evictions
    )
    waiting = {"Fetch": len(node.purgatory), "Produce": counts.delayed}
    for name in ("purgatorysize", "numdelayedoperations"):
        family = page.family(f"kafka_server_delayedoperationpurgatory_{name}", "gauge", "Requests that wait, by kind.")
        for kind, count in waiting.items():
            family.add(count, labels_text(delayedOperation=kind, delayedoperation=kind))


def collect_followers(page: Page, node: Node) -> Iterator[None]:
    """How far this broker's followers are behind their leaders."""
    selection = Selection(node.config)
    manager = "kafka_server_replicafetchermanager_"
    each = page.family(
        "kafka_server_fetcherlagmetrics_consumerlag", "gauge", "Committed records that this follower has not got."
    )
    largest = stopped = 0
    for index, followed in enumerate(node.fetcher_manager.followed()):
        if not index % REPLICAS_PER_STEP:
            yield
        lag = followed.follower.lag
        largest = max(largest, lag)
        stopped += followed.follower.phase.name == "STOPPED"
        topic, partition = followed.replica.topic_partition
        if selection.partitions and selection.has_topic(topic):
            client = f"ReplicaFetcherThread-0-{followed.follower.leader_id}"
            labels = f'clientId="{client}",clientid="{client}",topic="{topic}",partition="{partition}"'
            each.add(lag, f"{{{labels}}}")
    of_all = labels_text(clientId="Replica", clientid="Replica")
    page.family(f"{manager}maxlag", "gauge", "Records by which the follower furthest behind is behind.").add(
        largest, of_all
    )
    page.family(f"{manager}failedpartitionscount", "gauge", "Partitions that are followed no more, for an error.").add(
        stopped, of_all
    )
    page.family(
        "tidelog_truncations_below_high_watermark_total", "counter", "Times that a follower lost committed records."
    ).add(node.fetcher_manager.lossy_truncations)
