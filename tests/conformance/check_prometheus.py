"""Debian's Prometheus and promtool: what Kafka's dashboards ask returns data, rates and lags are what clients did.

The expressions are in a file outside of the project, which TIDELOG_DASHBOARDS names (`dashboards.json`: dashboard ->
panels, each with `expr` and `metrics`); without it those checks are skipped by name.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conformance.check_kafka_tools import run as run_kafkas
from tests.conformance.unanswered import OF_OTHERS, UNANSWERED
from tests.waiting import until
from tidelog.client.admin import alter_quotas
from tidelog.client.blocking import BlockingCluster
from tidelog.launcher.plan import HOST
from tidelog.launcher.ports import ReservedPort
from tidelog.metrics.board import ROWS
from tidelog.quotas.entities import CLIENT_ID, USER, Entity
from tidelog.testing import Cluster

BROKERS: Final = 3
TOPIC: Final = "orders"
GROUP: Final = "billing"
RECORDS: Final = 3_000
CHOSEN: Final = (
    "strimzi/strimzi-kafka",
    "strimzi/strimzi-kafka-exporter",
    "strimzi/alerts-kafka",
    "strimzi/alerts-kafka-exporter",
    "grafana-7589/kafka-exporter-overview",
    "grafana-11962/kafka-metrics",
    "confluent/kafka-cluster (grafana 721)",
    "confluent/kafka-topics",
    "confluent/kafka-quotas",
    "confluent/kafka-transaction-coordinator",
    "confluent/kafka-lag-exporter",
    "confluent/alerts-broker",
    "grafana-mixin/kafka-overview",
    "grafana-mixin/kafka-topic",
    "grafana-mixin/alerts",
    "kafka-lag-exporter/dashboard",
    "awesome-alerts/danielqsj",
)
"""Dashboards and rules that are evaluated."""
_TIMES: Final = frozenset({"__rate_interval", "__interval", "interval", "__range", "resolution", "rate_interval"})
"""Variables that stand for a duration."""
_VARIABLE: Final = re.compile(r"(?:label_values|query_result)\((.*)\)", re.DOTALL)
"""What a dashboard offers to choose from."""


class Prometheus:
    """A server that scrapes the cluster each second."""

    def __init__(self, folder: Path, targets: list[str]) -> None:
        port = ReservedPort(HOST, 0, "")
        self.address = f"{HOST}:{port.number}"
        port.close()
        configs = [
            {
                "targets": [target],
                "labels": {
                    "namespace": "kafka",
                    "strimzi_io_cluster": "tidelog",
                    "strimzi_io_name": "tidelog-kafka",
                    "kubernetes_pod_name": f"tidelog-kafka-{number}",
                    "container": "kafka",
                    "env": "test",
                    "kafka_cluster": "tidelog",
                },
            }
            for number, target in enumerate(targets)
        ]
        job = {"job_name": "kafka-broker", "scrape_interval": "1s", "static_configs": configs}
        config = folder / "prometheus.yml"
        # JSON is YAML.
        config.write_text(json.dumps({"scrape_configs": [job]}))
        subprocess.run(["promtool", "check", "config", config], check=True, stdout=subprocess.DEVNULL)
        self._log = (folder / "prometheus.log").open("w")
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={self.address}",
            ],
            stdout=self._log,
            stderr=self._log,
        )

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._log.close()

    def query(self, expression: str, **parameters: str) -> list[dict[str, Any]]:
        query = urllib.parse.urlencode({"query": expression, **parameters})
        with urllib.request.urlopen(f"http://{self.address}/api/v1/query?{query}", timeout=30) as answer:
            result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            return result

    def value(self, expression: str) -> float:
        """The one value of an expression; 0 where there is none."""
        found = self.query(expression)
        return float(found[0]["value"][1]) if found else 0.0

    def is_up(self) -> bool:
        try:
            return self.value("sum(up)") == BROKERS
        except OSError:
            return False


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {"metrics.listener": "0", "default.replication.factor": 3, "min.insync.replicas": 2}
    with Cluster(settings, brokers=BROKERS) as started:
        yield started


@pytest.fixture(scope="module")
def prometheus(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    targets = [str(runtime.metrics_address) for runtime in cluster.runtimes.values()]
    server = Prometheus(tmp_path_factory.mktemp("prometheus"), targets)
    try:
        until(server.is_up, "Prometheus has scraped every broker")
        use(cluster)
        # Rates need a sample from after the load.
        until(
            lambda: server.value(f'sum(kafka_consumergroup_lag{{consumergroup="{GROUP}"}})') == RECORDS // 2,
            "the group's lag is there",
            limit_s=60,
        )
        time.sleep(3)
        yield server
    finally:
        server.stop()


def use(cluster: Cluster) -> None:
    """Producers of all kinds, a group that stays behind, a topic that is deleted, requests that fail, client quotas."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    quotas = {"producer_byte_rate": 1e9, "consumer_byte_rate": 1e9, "request_percentage": 1e6}
    with BlockingCluster(cluster.bootstrap) as client:
        everyone = Entity.of({USER: None, CLIENT_ID: None})
        assert client.run(alter_quotas(client.routing, {everyone: quotas}))[everyone] is None
    for future in admin.create_topics([NewTopic(TOPIC, 6, 3), NewTopic("gone", 1, 3)]).values():
        future.result(30)
    # Series of a topic begin at zero: so that rates see all that follows, they are scraped once before it.
    time.sleep(3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce(TOPIC, b"v" * 100, partition=number % 6)
    assert producer.flush(60) == 0
    transactional = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "t"})
    transactional.init_transactions(30)
    transactional.begin_transaction()
    transactional.produce("gone", b"v")
    transactional.commit_transaction(30)
    errors: list[object] = []
    large = Producer({"bootstrap.servers": cluster.bootstrap, "message.max.bytes": 3_000_000})
    large.produce("gone", b"v" * 2_000_000, on_delivery=lambda error, _: errors.append(error))
    large.flush(30)
    assert errors
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC])
    count = 0
    while count < RECORDS // 2:
        count += len(consumer.consume(500, 5))
    half = [TopicPartition(TOPIC, partition, RECORDS // 12) for partition in range(6)]
    consumer.commit(offsets=half, asynchronous=False)
    consumer.close()
    for future in admin.delete_topics(["gone"]).values():
        future.result(30)


def dashboards() -> dict[str, list[dict[str, Any]]]:
    path = os.environ.get("TIDELOG_DASHBOARDS")
    if path is None or not Path(path).exists():
        pytest.skip("TIDELOG_DASHBOARDS names no file with the expressions of Kafka's dashboards")
    found: dict[str, list[dict[str, Any]]] = json.loads(Path(path).read_text())
    return found


def opened(expression: str) -> str:
    """The expression with every variable of Grafana's opened to anything, durations to a minute."""

    def replaced(match: re.Match[str]) -> str:
        return "1m" if match[1] in _TIMES else ".*"

    text = re.sub(r"\$\{?(\w+)(?::\w+)?\}?", replaced, expression)
    text = re.sub(r"(?<![!~])=(['\"])([^'\"]*\.\*[^'\"]*)\1", r'=~"\2"', text)
    return text.replace("[1m:1m]", "[1m]")


def chosen_from(expression: str) -> str:
    """The series from which a variable of Grafana's takes its values."""
    match = _VARIABLE.fullmatch(expression.strip())
    if match is None:
        return expression
    series, _, label = match[1].rpartition(",")
    if expression.startswith("query_result"):
        return match[1]
    return series or f'{{{label.strip()}!=""}}'


@pytest.mark.parametrize("name", CHOSEN)
def test_a_dashboard_of_kafka_shows_the_cluster(prometheus: Prometheus, name: str) -> None:
    """Panels and variables have data, but for what `unanswered.py` lists with the reason; alerts have their metrics."""
    empty: list[str] = []
    for panel in dashboards()[name]:
        if any(metric.startswith(tuple(OF_OTHERS)) for metric in panel["metrics"]):
            continue
        if prometheus.query(opened(chosen_from(panel["expr"]))):
            continue
        missing = [metric for metric in panel["metrics"] if not prometheus.query(metric)]
        if "alerts" in name and len(missing) < len(panel["metrics"]):
            # An alert that does not fire is empty; of metrics by either of two names one is enough.
            continue
        if not missing and panel["expr"].rstrip().endswith("> 0"):
            # At the moment it is zero, as it should be: nobody is throttled.
            continue
        if not any(each in UNANSWERED for each in (*missing, panel.get("panel"))):
            empty.append(f"{panel.get('panel')}: {opened(panel['expr'])} missing={missing}")
    assert not empty, "\n".join(empty)


def test_what_is_unanswered_is_really_not_there(prometheus: Prometheus) -> None:
    """A reason whose metric is served by now is none."""
    served = [name for name in UNANSWERED if re.fullmatch(r"[a-z_:]+", name) and prometheus.query(name)]
    assert served == []


def test_rates_and_lags_are_what_clients_did(prometheus: Prometheus, cluster: Cluster) -> None:
    """Records in by the metrics are those that were sent; bytes are those of the logs; lag is the tool's."""
    topic = f'{{topic="{TOPIC}"}}'
    messages_in = "kafka_server_brokertopicmetrics_messagesin_total"
    assert prometheus.value(f"sum({messages_in}{topic})") == RECORDS
    # Increase extrapolates to the edges of its range; the samples themselves tell what came in it.
    increase = prometheus.value(
        f"sum(max_over_time({messages_in}{topic}[5m]) - min_over_time({messages_in}{topic}[5m]))"
    )
    assert increase == RECORDS
    bytes_in = prometheus.value(f"sum(kafka_server_brokertopicmetrics_bytesin_total{topic})")
    assert bytes_in == prometheus.value(f"sum(kafka_log_log_size{topic})") / 3
    # Series begin at zero, where Prometheus extrapolates no further; at the end it adds a second's share at most.
    for metric, sent in ((messages_in, RECORDS), ("kafka_server_brokertopicmetrics_bytesin_total", bytes_in)):
        by_rate = prometheus.value(f"sum(rate({metric}{topic}[5m])) * 300")
        assert 0.99 * sent <= by_rate <= 1.25 * sent
    described = subprocess.run(
        [sys.executable, "-m", "tidelog", "groups", "describe", GROUP, "-o", "json", "-b", cluster.bootstrap],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    lag = sum(int(found) for found in re.findall(r'"lag": (\d+)', described))
    assert prometheus.value(f'sum(kafka_consumergroup_lag{{consumergroup="{GROUP}"}})') == lag == RECORDS // 2
    if "TIDELOG_KAFKA_JARS" in os.environ:
        group = ("--bootstrap-server", cluster.bootstrap, "--describe", "--group", GROUP)
        text = run_kafkas("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *group)
        # GROUP, TOPIC, PARTITION, CURRENT-OFFSET, LOG-END-OFFSET, LAG, ...
        assert sum(int(line.split()[5]) for line in text.splitlines() if line.startswith(GROUP)) == lag
    seconds = prometheus.value(f'max(kafka_consumergroup_group_lag_seconds{{group="{GROUP}"}})')
    assert 0 < seconds < 600


def test_our_own_board_and_alerts(prometheus: Prometheus) -> None:
    """Every panel has data (of errors: there may be none), and promtool has nothing to say against the rules."""
    empty = [
        f"{panel.title}: {opened(panel.expression)}"
        for row in ROWS.values()
        for panel in row
        if panel.title != "Errors" and not prometheus.query(opened(panel.expression))
    ]
    assert not empty, "\n".join(empty)
    monitoring = Path(__file__).parents[2] / "docs/monitoring"
    for command, name in (("rules", "alerts.yml"), ("config", "prometheus.yml")):
        subprocess.run(["promtool", "check", command, monitoring / name], check=True, stdout=subprocess.DEVNULL)


_KNOWN_LINT: Final = re.compile(
    r"label names should be written in 'snake_case' not 'camelCase'"
    r"|kafka_\w+ (?:non-histogram and non-summary metrics should not have \"_(?:sum|count)\" suffix"
    r"|use base unit|metric names should not contain abbreviated units|no.*units?)"
)
"""What promtool says of names and labels that Kafka itself writes so."""


def test_promtool_finds_nothing_else(cluster: Cluster) -> None:
    """Its lint knows better names for Kafka's metrics, and nothing to say of ours."""
    for runtime in cluster.runtimes.values():
        with urllib.request.urlopen(f"http://{runtime.metrics_address}/metrics", timeout=30) as answer:
            page = answer.read()
        found = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False)
        lines = [line for line in found.stderr.decode().splitlines() if not _KNOWN_LINT.search(line)]
        assert lines == []
