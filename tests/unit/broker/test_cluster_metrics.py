"""What a cluster's brokers tell together: sums are right, lag is exact, and what is gone is shown no more."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from prometheus_client.parser import text_string_to_metric_families
from tests.keeping import KEEPING
from tests.unit.broker.harness import Broker
from tests.unit.broker.test_runtime import create, read
from tests.waiting import until, until_equal

from tidelog.broker.coordinators import loading
from tidelog.broker.metrics.scraping import FRESH_MS
from tidelog.client.admin import alter_reassignments, reassignments
from tidelog.client.blocking import BlockingCluster
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicPartition as Partition
from tidelog.records.batch import Codec, Record, build_batch
from tidelog.records.first_record import first_timestamp
from tidelog.testing import Cluster

Samples = dict[str, dict[frozenset[tuple[str, str]], float]]
FIRST_MS = 1_700_000_000_000
"""Timestamp of the first record of a topic; each one is a millisecond later than the one before."""
BYTES_IN = "kafka_server_brokertopicmetrics_bytesin_total"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster({**KEEPING, "metrics.listener": "0", "default.replication.factor": 3}, brokers=3) as started:
        yield started


def scrape(cluster: Cluster) -> list[Samples]:
    """Of each broker: [name][labels] -> value. Later than any page that was made before the call."""
    time.sleep(FRESH_MS / 1000 + 0.01)
    pages = []
    for runtime in cluster.runtimes.values():
        with urllib.request.urlopen(f"http://{runtime.metrics_address}/metrics", timeout=180) as answer:
            text = answer.read().decode()
        found: Samples = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                by_labels = found.setdefault(sample.name, {})
                labels = frozenset(sample.labels.items())
                assert labels not in by_labels, f"{sample.name} {sample.labels} is there twice"
                by_labels[labels] = sample.value
        failures = found["tidelog_metrics_collector_failures_total"]
        assert not any(failures.values()), failures
        pages.append(found)
    return pages


def total(pages: list[Samples], name: str, **labels: str) -> float:
    """The sum over brokers of the series with just these labels, and any partition."""
    wanted = set(labels.items())
    return sum(
        value
        for page in pages
        for found, value in page.get(name, {}).items()
        if {pair for pair in found if pair[0] != "partition"} == wanted
    )


def produce(cluster: Cluster, topic: str, count: int, partitions: int, **settings: object) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **settings})
    for number in range(count):
        producer.produce(topic, b"v" * 50, partition=number % partitions, timestamp=FIRST_MS + number)
    assert producer.flush(180) == 0


def test_sums_over_brokers_are_the_clusters(cluster: Cluster) -> None:
    """Each partition counts once, each record once; replication is counted apart."""
    create(cluster.bootstrap, "sums", 6)
    produce(cluster, "sums", 60, 6)
    assert len(read(cluster.bootstrap, "sums", 10)) == 10

    def replicated() -> bool:
        pages = scrape(cluster)
        return total(pages, "kafka_cluster_partition_insyncreplicascount", topic="sums") >= 6

    until(replicated)
    pages = scrape(cluster)
    assert total(pages, "kafka_server_brokertopicmetrics_messagesin_total", topic="sums") == 60
    assert total(pages, BYTES_IN, topic="sums") == total(pages, "kafka_log_log_size", topic="sums")
    assert total(pages, "kafka_topic_partitions", topic="sums") == 6
    assert total(pages, "kafka_topic_partition_current_offset", topic="sums") == 60
    assert total(pages, "kafka_server_brokertopicmetrics_bytesout_total", topic="sums") > 0
    assert total(pages, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert total(pages, "kafka_controller_kafkacontroller_offlinepartitionscount") == 0

    def as_many_topics() -> bool:
        topics = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=180).topics
        return total(scrape(cluster), "kafka_controller_kafkacontroller_globaltopiccount") == len(topics)

    # The consumer above has the groups' topic made.
    until(as_many_topics)


def test_lag_is_exact_in_records_and_in_seconds(cluster: Cluster) -> None:
    """From the group's coordinator alone, of partitions whoever leads them."""
    admin = create(cluster.bootstrap, "lag", 6)
    produce(cluster, "lag", 60, 6)
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": 'of "quotes"', "enable.auto.commit": False}
    )
    offsets = [TopicPartition("lag", partition, 10 if partition == 5 else partition) for partition in range(6)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
    group = 'of "quotes"'
    # Where another broker leads a partition, its end comes from there.
    until_equal(lambda: total(scrape(cluster), "kafka_consumergroup_lag", consumergroup=group, topic="lag"), 60 - 20)
    pages = scrape(cluster)
    asked_ms = time.time() * 1000
    assert total(pages, "kafka_consumergroup_lag_sum", consumergroup=group) == 60 - 20
    moments = set()
    for partition, committed in enumerate(offsets):
        (seconds,) = (
            value
            for page in pages
            for labels, value in page.get("kafka_consumergroup_group_lag_seconds", {}).items()
            if {("group", group), ("partition", str(partition))} <= labels
        )
        if partition == 5:
            assert seconds == 0
        else:
            first_ms = FIRST_MS + committed.offset * 6 + partition
            moments.add(first_ms + round(seconds * 1000))
    # The page has one "now": to the millisecond, each lag leads back to it from the record's own timestamp.
    (moment,) = moments
    assert abs(moment - asked_ms) < 60_000
    for future in admin.delete_topics(["lag"]).values():
        future.result(180)
    until_equal(lambda: total(scrape(cluster), "kafka_consumergroup_lag", consumergroup=group, topic="lag"), 0)
    until_equal(lambda: total(scrape(cluster), BYTES_IN, topic="lag"), 0)
    assert total(scrape(cluster), BYTES_IN) > 0


def test_what_a_reassignment_copies_is_counted_apart(cluster: Cluster) -> None:
    """On the leader and on the replica that is added; what an ordinary follower gets is no such bytes."""
    traffic = "kafka_server_brokertopicmetrics_"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("moves", 1, replica_assignment=[[0, 1]])])["moves"].result(180)
    produce(cluster, "moves", 50, 1)
    assert total(scrape(cluster), f"{traffic}reassignmentbytesin_total") == 0
    partition = Partition("moves", 0)
    with BlockingCluster(cluster.bootstrap) as client:
        assert client.run(alter_reassignments(client.routing, {partition: [0, 2]}))[partition] is None
        until(lambda: not client.run(reassignments(client.routing)))
    by_broker = dict(zip(cluster.runtimes, scrape(cluster), strict=True))
    pages = [by_broker[broker] for broker in range(3)]
    size = pages[0]["kafka_log_log_size"][frozenset({("topic", "moves"), ("partition", "0")})]
    assert [page[f"{traffic}reassignmentbytesin_total"][frozenset()] for page in pages] == [0, 0, size]
    assert [page[f"{traffic}reassignmentbytesoutpersec"][frozenset()] for page in pages] == [size, 0, 0]


def test_rebalances_and_commits_come_from_the_coordinator(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the kind of the group."""
    monkeypatch.setattr(loading, "LATELY_MS", 1 << 40)
    create(cluster.bootstrap, "rebalances")
    before = scrape(cluster)
    for protocol in ("classic", "consumer"):
        settings = {"bootstrap.servers": cluster.bootstrap, "group.id": protocol, "group.protocol": protocol}
        consumer = Consumer({**settings, "enable.auto.commit": False})
        consumer.subscribe(["rebalances"])
        until(lambda: consumer.poll(0.1) is None and consumer.assignment())  # noqa: B023  # Called in this turn.
        consumer.commit(offsets=[TopicPartition("rebalances", 0, 0)], asynchronous=False)
        consumer.close()
    after = scrape(cluster)

    def more(name: str, **labels: str) -> float:
        return total(after, name, **labels) - total(before, name, **labels)

    for protocol in ("classic", "consumer"):
        assert more("tidelog_group_rebalances_total", type=protocol) >= 1
    assert more("kafka_server_group_coordinator_metrics_offset_commit_count") == 2
    # The topic of groups' states was made by this module, and its partitions loaded since.
    longest = [page["kafka_server_group_coordinator_metrics_partition_load_time_max"][frozenset()] for page in after]
    assert any(took >= 0 for took in longest)


def test_topics_and_groups_can_be_left_out(cluster: Cluster) -> None:
    """By settings, while brokers run; sums over all topics stay."""
    create(cluster.bootstrap, "secret")
    produce(cluster, "secret", 10, 1)
    before = total(scrape(cluster), BYTES_IN)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def alter(name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for broker_id in cluster.runtimes:
            resource = ConfigResource(ConfigResource.Type.BROKER, str(broker_id), incremental_configs=[entry])
            admin.incremental_alter_configs([resource])[resource].result(180)

    alter("metrics.topics", "[^s].*")
    pages = scrape(cluster)
    assert not any(("topic", "secret") in labels for page in pages for found in page.values() for labels in found)
    assert total(pages, BYTES_IN) >= before
    alter("metrics.topics", ".*")
    alter("metrics.partitions", "false")
    pages = scrape(cluster)
    assert total(pages, "kafka_log_log_size", topic="secret") == 0
    assert total(pages, BYTES_IN, topic="secret") > 0
    alter("metrics.partitions", "true")


def batch_of(timestamps: list[int], base_offset: int, codec: Codec = Codec.NONE) -> bytes:
    records = [Record(base_offset + index, stamp, None, b"v", ()) for index, stamp in enumerate(timestamps)]
    return build_batch(records, codec=codec)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_the_first_records_timestamp_is_its_own(codec: Codec) -> None:
    """Not that of its batch, wherever in it the group stands; behind the last batch there is none."""
    data = batch_of([100, 300, 200], 5, codec) + batch_of([400], 8, codec)
    assert [first_timestamp(data, offset)[0] for offset in (5, 6, 7, 8, 9)] == [100, 300, 200, 400, None]
    assert first_timestamp(data, 9)[1] == 9
    assert first_timestamp(data[:-1], 8) == (None, 8)


def test_a_refused_append_is_counted_once(start_broker: Callable[..., Broker]) -> None:
    """Whichever of the two ways a request took; what a client did wrong is no failure of the broker."""
    broker = start_broker(message_max_bytes=100)
    broker.lead("t", 1)
    broker.produce("t", [b"v" * 500])
    traffic = broker.node.replicas.traffic.of("t")
    assert (traffic.produces, traffic.failed_produces, traffic.messages_in) == (1, 0, 0)
    assert traffic.rejected_bytes > 500
    broker.produce("t", [b"v"])
    assert (traffic.produces, traffic.messages_in) == (2, 1)


def test_what_another_broker_leads_is_not_counted(start_broker: Callable[..., Broker]) -> None:
    """Nor is it taken off: a counter that goes back looks to Prometheus like a broker that has started anew."""
    broker = start_broker()
    broker.lead("t", 1)
    broker.produce("t", [b"v"])
    broker.lead("t", 1, leader=1, isr=[0, 1], replicas=[0, 1], leader_epoch=1)
    assert broker.produce("t", [b"v"]).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert broker.node.replicas.traffic.of("t").produces == 1
