"""`tidelog top`: what is read of a cluster, for programs and for eyes, and that trouble does not end it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.unit.broker.test_runtime import create
from tests.unit.cli.conftest import Outcome, Tidelog
from tests.waiting import until_equal

from tidelog import cli
from tidelog.cli.top import ROWS_MAX, screen
from tidelog.cli.top_requests import Requests, parse, read_requests
from tidelog.client.blocking import BlockingCluster
from tidelog.operator.overview import Overview, Reader
from tidelog.testing import Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster({"metrics.listener": "0", "slow.request.ms": 0}, brokers=2) as started:
        create(started.bootstrap, "t", 4)
        producer = Producer({"bootstrap.servers": started.bootstrap})
        now_ms = int(time.time() * 1000)
        for number in range(40):
            producer.produce("t", b"v", partition=number % 4, timestamp=now_ms - 60_000 + number)
        assert producer.flush(180) == 0
        consumer = Consumer({"bootstrap.servers": started.bootstrap, "group.id": "slow", "enable.auto.commit": False})
        consumer.commit(offsets=[TopicPartition("t", 0, 4), TopicPartition("t", 1, 10)], asynchronous=False)
        consumer.close()
        yield started


@pytest.fixture
def tidelog(cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tidelog:
    """Runs a command in this process."""
    monkeypatch.setenv("TIDELOG_BOOTSTRAP", cluster.bootstrap)

    def run(*arguments: str) -> Outcome:
        capsys.readouterr()
        code = cli.run(arguments)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


def test_one_reading_as_json(tidelog: Tidelog) -> None:
    """Brokers, topics, partitions in trouble, groups with their lag in records and seconds."""
    found = tidelog("top", "-i", "0.5", "-o", "json").json
    assert [each["broker"] for each in found["brokers"]] == [0, 1]
    assert sum(each["leaders"] for each in found["brokers"]) == sum(each["partitions"] for each in found["topics"])
    assert {"topic": "t", "partitions": 4, "recordsPerSecond": 0} in found["topics"]
    assert (found["offlinePartitions"], found["underReplicatedPartitions"], found["missing"]) == ([], [], [])
    [group] = found["groups"]
    assert (group["group"], group["lag"]) == ("slow", 6)
    assert 59 < group["lagSeconds"] < 600


def test_into_a_pipe_it_is_shown_once(tidelog: Tidelog) -> None:
    """As a screen would show it; Kafka has no text of its own for it."""
    shown = tidelog("top", "-i", "0.5")
    assert shown.code == 0
    assert "under-replicated 0" in shown.out
    assert "slow" in shown.out
    assert tidelog("top", "-o", "kafka").code == 2


def test_rates_are_of_two_readings(cluster: Cluster) -> None:
    """Records a second by topic; a partition that was not known before counts from its first reading on."""
    with BlockingCluster(cluster.bootstrap) as client:
        reader = Reader(client.routing)
        before = client.run(reader.read(0))
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for number in range(1_000):
            producer.produce("t", b"v", partition=number % 4)
        assert producer.flush(180) == 0
        now = client.run(reader.read(0))
    rate = now.rates(before)["t"]
    assert abs(rate * (now.at_s - before.at_s) - 1_000) <= now.at_s - before.at_s
    assert now.rates(None)["t"] == 0


def test_a_group_before_a_marker_is_behind_by_time_once_there_is_a_record() -> None:
    """As librdkafka leaves it: behind the last record of a transaction, where nothing but its end follows."""
    with Cluster() as own, BlockingCluster(own.bootstrap) as client:
        create(own.bootstrap, "tx", 1)
        producer = Producer({"bootstrap.servers": own.bootstrap, "transactional.id": "t"})
        producer.init_transactions(180)
        producer.begin_transaction()
        producer.produce("tx", b"v", partition=0)
        producer.commit_transaction(180)
        consumer = Consumer({"bootstrap.servers": own.bootstrap, "group.id": "marked", "enable.auto.commit": False})
        consumer.commit(offsets=[TopicPartition("tx", 0, 1)], asynchronous=False)
        consumer.close()
        reader = Reader(client.routing)
        until_equal(lambda: [(each.lag, each.lag_ms) for each in client.run(reader.read(5_000)).groups], [(1, None)])
        producer.begin_transaction()
        producer.produce("tx", b"v", partition=0, timestamp=2_000)
        producer.commit_transaction(180)
        until_equal(lambda: [(each.lag, each.lag_ms) for each in client.run(reader.read(5_000)).groups], [(3, 3_000)])


def test_the_screen_tells_of_trouble_and_stays_short(cluster: Cluster) -> None:
    """A reading that failed keeps the last one; of many partitions the first are named."""
    from rich.console import Console

    with BlockingCluster(cluster.bootstrap) as client:
        now: Overview = client.run(Reader(client.routing).read(0))
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115  # For as long as the test.
    console.print(screen(now, None, trouble="no broker answers"))
    text = console.export_text()
    assert "not read: no broker answers" in text
    assert len(text.splitlines()) < 12 + 3 * ROWS_MAX
    console.file.close()


def test_requests_by_the_brokers_metrics(cluster: Cluster, tidelog: Tidelog) -> None:
    """Slow ones first, by broker and API, for programs and for eyes; a broker that does not answer is named."""
    address = str(cluster.runtimes[0].metrics_address)
    found = tidelog("top", "-i", "0.5", "-o", "json", "-m", address, "-m", "127.0.0.1:1").json
    assert {row["broker"] for row in found["requests"]} == {address}
    (api_versions,) = (row for row in found["requests"] if row["request"] == "ApiVersions")
    assert api_versions["slowSinceStart"] > 0, "every request is slower than 0 ms"
    assert [row["slow"] for row in found["requests"]] == sorted(
        (row["slow"] for row in found["requests"]), reverse=True
    )
    assert found["metricsMissing"][0].startswith("metrics of 127.0.0.1:1: ")
    shown = tidelog("top", "--once", "-i", "0.5", "-m", address).out
    assert "Slow ever" in shown
    assert "ListOffsets" in shown
    assert tidelog("top", "-m", "nowhere").code == 2


def test_a_page_without_a_threshold_tells_no_slow_requests() -> None:
    """Nor a time where there was no request lately."""
    page = (
        'kafka_network_requestmetrics_errors_total{request="Fetch",error="NONE"} 7\n'
        'kafka_network_requestmetrics_errors_total{request="Fetch",error="NOT_LEADER_OR_FOLLOWER"} 2\n'
        'kafka_network_requestmetrics_totaltimems{request="Fetch",quantile="0.99"} NaN\n'
        'kafka_network_requestmetrics_totaltimems_count{request="Fetch"} 9\n'
    )
    assert parse(page) == {"Fetch": Requests(9, 2, None, None)}


@pytest.mark.parametrize("address", ["kafka..example:9404", "127.0.0.1:99999"])
def test_an_address_of_metrics_that_cannot_be_is_told_as_missing(address: str) -> None:
    """The screen of a cluster goes on without it."""
    (reason,) = read_requests([address], 1.0).missing
    assert reason.startswith(f"metrics of {address}: ")
