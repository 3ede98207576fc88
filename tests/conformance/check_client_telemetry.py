"""Apache Kafka's own tool makes a client metrics resource, and Java's clients push as they are (KIP-714)."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator

import pytest

from tests.conformance.check_kafka_tools import TOOLS, run
from tidelog.testing import Cluster

pytest.importorskip("opentelemetry.proto", reason="the extra tidelog[telemetry] is not installed")

TOPIC = "measured"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster({"metrics.listener": "0"}, brokers=2) as started:
        yield started


def client_metrics(cluster: Cluster, *arguments: str) -> str:
    return run(f"{TOOLS}.ClientMetricsCommand", "--bootstrap-server", cluster.bootstrap, *arguments)


def series(cluster: Cluster, pattern: str) -> list[str]:
    """The lines of all brokers' pages that begin with a regular expression."""
    found: list[str] = []
    for runtime in cluster.runtimes.values():
        with urllib.request.urlopen(f"http://{runtime.metrics_address}/metrics", timeout=30) as answer:
            found += re.findall(rf"^{pattern}.*$", answer.read().decode(), re.MULTILINE)
    return found


@pytest.mark.nightly
def test_resources_by_kafkas_own_tool(cluster: Cluster) -> None:
    """Altered, described, listed, deleted, as kafka-client-metrics.sh prints it."""
    alter = ("--alter", "--name", "r", "--metrics", "org.apache.kafka.", "--interval", "400", "--match", "client_id=x")
    assert "Altered client metrics config for r." in client_metrics(cluster, *alter)
    described = client_metrics(cluster, "--describe", "--name", "r")
    for setting in ("interval.ms=400", "match=client_id=x", "metrics=org.apache.kafka."):
        assert setting in described
    assert client_metrics(cluster, "--list").split() == ["r"]
    assert "Deleted client metrics config for r." in client_metrics(cluster, "--delete", "--name", "r")
    assert client_metrics(cluster, "--list").strip() == ""


@pytest.mark.nightly
def test_java_clients_push_as_they_are(cluster: Cluster) -> None:
    """A producer's and a consumer's metrics are on the pages: they have counted no more than they did.

    Less it may be: a producer's last push comes before its last record, and one that comes too early is refused.
    """
    alter = ("--alter", "--name", "all", "--metrics", "*", "--interval", "500")
    client_metrics(cluster, *alter)
    server = ("--bootstrap-server", cluster.bootstrap, "--topic", TOPIC)
    run(f"{TOOLS}.VerifiableProducer", *server, "--max-messages", "60", "--throughput", "20")
    run(f"{TOOLS}.consumer.ConsoleConsumer", *server, "--from-beginning", "--max-messages", "60", "--group", "g")
    assert all('client_software_name="apache-kafka-java"' in line for line in series(cluster, "tidelog_client_info"))
    assert series(cluster, r'tidelog_client_info.*group_id="g"')
    sent = series(cluster, r'org_apache_kafka_producer_topic_record_send_total\{.*topic="measured"')
    assert 0 < sum(float(line.rpartition(" ")[2]) for line in sent) <= 60
    consumed = series(cluster, r"org_apache_kafka_consumer_fetch_manager_records_consumed_total\{(?!.*topic=)")
    assert 0 < sum(float(line.rpartition(" ")[2]) for line in consumed) <= 60
    assert series(cluster, r"org_apache_kafka_producer_node_request_latency_avg\{.*node_id=")
    pushes = 'tidelog_client_metrics_pushes_total{error="'
    refused = series(cluster, re.escape(pushes) + r"(?!NONE|UNKNOWN_SUBSCRIPTION_ID|THROTTLING_QUOTA_EXCEEDED)")
    assert refused == []
