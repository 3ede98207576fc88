"""Client quotas: Kafka's own kafka-configs, and how other clients take being throttled."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.conformance.check_kafka_tools import TOOLS, run
from tidelog.testing import Cluster

OLD_JARS = Path(__file__).parents[2] / "build/kafka-2.8.2"
"""The last release whose tools take --zookeeper for everything."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


def configs(broker: Cluster, *arguments: str, fails: bool = False) -> list[str]:
    text = run("kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap, *arguments, fails=fails)
    return [line for line in text.splitlines() if line]


def alter(broker: Cluster, quota: str, *arguments: str, fails: bool = False) -> str:
    return "\n".join(configs(broker, "--alter", "--add-config", quota, *arguments, fails=fails))


def test_kafka_configs_prints_what_it_prints_on_kafka(broker: Cluster) -> None:
    """Lines of Kafka 4.3's tool on Kafka (shared vectors, tools.txt)."""
    both = ("--entity-type", "users", "--entity-name", "user1", "--entity-type", "clients", "--entity-name", "clientA")
    quotas = "producer_byte_rate=1024,consumer_byte_rate=2048,request_percentage=200"
    assert alter(broker, quotas, *both) == "Completed updating config for user user1."
    assert alter(broker, "producer_byte_rate=1024", "--user", "user1") == "Completed updating config for user user1."
    alter(broker, "producer_byte_rate=100", "--user-defaults")
    alter(broker, "connection_creation_rate=700", "--ip", "127.0.0.2")
    assert "Quota producer_byte_rate must be greater than 0" in alter(
        broker, "producer_byte_rate=-1", "--user", "user1", fails=True
    )
    assert "producer_byte_rate cannot be a fractional value." in alter(
        broker, "producer_byte_rate=1.5", "--user", "user1", fails=True
    )
    assert set(configs(broker, "--describe", "--entity-type", "users")) == {
        "Quota configs for user-principal 'user1' are producer_byte_rate=1024.0",
        "Quota configs for the default user-principal are producer_byte_rate=100.0",
    }
    (line,) = configs(broker, "--describe", "--user", "user1", "--client", "clientA")
    beginning, _, values = line.partition(" are ")
    assert beginning == "Quota configs for user-principal 'user1', client-id 'clientA'"
    assert set(values.split(", ")) == {
        "consumer_byte_rate=2048.0",
        "request_percentage=200.0",
        "producer_byte_rate=1024.0",
    }
    assert configs(broker, "--describe", "--ip", "127.0.0.2") == [
        "Quota configs for ip '127.0.0.2' are connection_creation_rate=700.0"
    ]
    delete = ("--alter", "--delete-config")
    configs(broker, *delete, "consumer_byte_rate,request_percentage,producer_byte_rate", *both)
    configs(broker, *delete, "producer_byte_rate", "--user", "user1")
    configs(broker, *delete, "producer_byte_rate", "--user-defaults")
    configs(broker, *delete, "connection_creation_rate", "--ip", "127.0.0.2")
    assert configs(broker, "--describe", "--entity-type", "users") == []


def test_the_old_tool_writes_into_the_store() -> None:
    """kafka-configs --zookeeper of Kafka 2.8: every broker follows what it writes, and it reads what we write."""
    if not OLD_JARS.is_dir():
        pytest.skip(f"no Kafka 2.8.2 in {OLD_JARS}: KAFKA_VERSION=2.8.2 tests/conformance/kafka_jars.sh fetches it")
    with Cluster(brokers=2) as cluster:

        def old(*arguments: str) -> str:
            command = ["java", "-cp", f"{OLD_JARS}/*", "kafka.admin.ConfigCommand", "--zookeeper", cluster.store]
            done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120, check=False)
            return done.stdout

        both = ("--entity-type", "users", "--entity-name", "u", "--entity-type", "clients", "--entity-name", "c")
        assert "Completed updating config" in old("--alter", "--add-config", "producer_byte_rate=1024", *both)
        expected = ["Quota configs for user-principal 'u', client-id 'c' are producer_byte_rate=1024.0"]
        for bootstrap in cluster.bootstrap.split(","):
            at = ("--bootstrap-server", bootstrap, "--describe", "--user", "u", "--client", "c")
            assert [line for line in run("kafka.admin.ConfigCommand", *at).splitlines() if line] == expected
        alter(cluster, "request_percentage=200", "--user", "a b/c")
        assert "Configs for user-principal 'a b/c' are request_percentage=200.0" in old(
            "--describe", "--entity-type", "users"
        )


def test_librdkafka_is_slowed_down_and_loses_nothing(broker: Cluster) -> None:
    """Three seconds' worth beyond what a window allows, both ways."""
    alter(broker, "producer_byte_rate=200000,consumer_byte_rate=200000", "--client", "slow")
    throttles: list[float] = []
    settings = {"bootstrap.servers": broker.bootstrap, "client.id": "slow"}
    # Small requests: each one that has begun is carried out, however large it is.
    small = {"batch.num.messages": 5, "throttle_cb": lambda event: throttles.append(event.throttle_time)}
    producer = Producer(settings | small)
    begun = time.monotonic()
    for number in range(260):
        producer.produce("slow", str(number).encode() + bytes(10_000))
        producer.poll(0)
    assert producer.flush(60) == 0
    assert time.monotonic() - begun > 1.5
    assert throttles
    consumer = Consumer(settings | {"group.id": "slow", "auto.offset.reset": "earliest"})
    consumer.subscribe(["slow"])
    values: list[bytes] = []
    while len(values) < 260 and time.monotonic() - begun < 90:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            values.append(message.value() or b"")
    consumer.close()
    assert [value.rstrip(b"\0") for value in values] == [str(number).encode() for number in range(260)]


def test_kafkas_producer_is_slowed_down_and_loses_nothing(broker: Cluster) -> None:
    """kafka-producer-perf-test: 2.6 MB at 200 kB a second."""
    alter(broker, "producer_byte_rate=200000", "--client", "perf")
    begun = time.monotonic()
    text = run(
        f"{TOOLS}.ProducerPerformance",
        *("--topic", "perf", "--num-records", "260", "--record-size", "10000", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={broker.bootstrap}", "client.id=perf", "batch.size=1"),
    )
    assert "260 records sent" in text
    assert time.monotonic() - begun > 1.5
