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


class _Families:
    """Those that have a sample for each partition."""

    def __init__(self, page: Page, cluster_id: str) -> None:
        self.cluster_id = cluster_id

        def gauge(name: str, help: str) -> Family:
            return page.family(name, "gauge", help)

        cluster, log, exporter = "kafka_cluster_partition_", "kafka_log_log_", "kafka_topic_partition_"
        self.under_replicated = gauge(f"{cluster}underreplicated", "1 where a replica is not in sync.")
        self.in_sync = gauge(f"{cluster}insyncreplicascount", "Replicas in sync.")
        self.replicas = gauge(f"{cluster}replicascount", "Replicas as assigned.")
        self.under_min_isr = gauge(f"{cluster}underminisr", "1 where too few replicas are in sync for acks=all.")
        self.at_min_isr = gauge(f"{cluster}atminisr", "1 where just enough replicas are in sync for acks=all.")
        self.stable_lag = gauge(f"{cluster}laststableoffsetlag", "Records that open transactions keep from readers.")
        self.size = gauge(f"{log}size", "Bytes of the replica's log.")
        self.segments = gauge(f"{log}numlogsegments", "Segments of the replica's log.")
        self.log_start = gauge(f"{log}logstartoffset", "First offset of the replica's log.")
        self.log_end = gauge(f"{log}logendoffset", "Offset of the next record of the replica's log.")
        self.current = gauge(f"{exporter}current_offset", "The partition's high watermark.")
        self.oldest = gauge(f"{exporter}oldest_offset", "The partition's first offset.")
        self.lag_latest = gauge("kafka_partition_latest_offset", "The partition's high watermark.")
        self.lag_earliest = gauge("kafka_partition_earliest_offset", "The partition's first offset.")
        self.exporter_replicas = gauge(f"{exporter}replicas", "Replicas as assigned.")
        self.exporter_in_sync = gauge(f"{exporter}in_sync_replica", "Replicas in sync.")
        self.leader = gauge(f"{exporter}leader", "Id of the broker that leads the partition.")
        self.preferred = gauge(f"{exporter}leader_is_preferred", "1 where the first replica leads.")
        self.exporter_under = gauge(f"{exporter}under_replicated_partition", "1 where a replica is not in sync.")


def collect_replicas(page: Page, node: Node) -> Iterator[None]:
    """Of all replicas of this broker, and each one's."""
    selection = Selection(node.config)
    counts, families = _Counts(), _Families(page, node.cluster_id)
    for index, replica in enumerate(list(node.replicas)):
        if not index % REPLICAS_PER_STEP:
            yield
        topic, partition = replica.topic_partition
        labels = ""
        if selection.partitions and selection.has_topic(topic):
            labels = f'{{topic="{topic}",partition="{partition}"}}'
            _add_log(families, replica, labels)
        counts.replicas += 1
        counts.offline += replica.log.is_offline
        if replica.leader is None and labels:
            # As Kafka has it: replicas that do not lead are those with 0.
            families.replicas.add(0, labels)
        if replica.leader is not None and not replica.removed:
            _add_leader(families, counts, replica, replica.leader, labels)
    _add_counts(page, node, counts)
    yield


def _add_log(families: _Families, replica: Replica, labels: str) -> None:
    log = replica.log
    families.size.add(log.size, labels)
    families.segments.add(len(log.segments), labels)
    families.log_start.add(int(log.log_start_offset), labels)
    families.log_end.add(int(log.log_end_offset), labels)


def _add_leader(families: _Families, counts: _Counts, replica: Replica, leader: PartitionLeader, labels: str) -> None:
    counts.leaders += 1
    in_sync = len(leader.isr)
    settled = len(leader.replicas) - len(leader.adding)
    # What a reassignment is adding is not missed yet.
    is_under = int(sum(id not in leader.adding for id in leader.isr) < settled)
    min_isr = leader.effective_min_isr
    counts.under_replicated += is_under
    counts.under_min_isr += in_sync < min_isr
    counts.at_min_isr += in_sync == min_isr
    counts.reassigning += bool(leader.adding)
    if replica.delayed_appends is not None:
        counts.delayed += len(replica.delayed_appends)
    if not labels:
        return
    high_watermark = int(leader.high_watermark)
    families.under_replicated.add(is_under, labels)
    families.in_sync.add(in_sync, labels)
    families.replicas.add(len(leader.replicas), labels)
    families.under_min_isr.add(int(in_sync < min_isr), labels)
    families.at_min_isr.add(int(in_sync == min_isr), labels)
    families.stable_lag.add(max(high_watermark - replica.last_stable_offset, 0), labels)
    families.current.add(high_watermark, labels)
    families.oldest.add(int(replica.log.log_start_offset), labels)
    lag_exporter = f'{{cluster_name="{families.cluster_id}",{labels[1:]}'
    families.lag_latest.add(high_watermark, lag_exporter)
    families.lag_earliest.add(int(replica.log.log_start_offset), lag_exporter)
    families.exporter_replicas.add(len(leader.replicas), labels)
    families.exporter_in_sync.add(in_sync, labels)
    families.leader.add(int(leader.broker_id), labels)
    families.preferred.add(int(leader.replicas[0] == leader.broker_id), labels)
    families.exporter_under.add(is_under, labels)


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
