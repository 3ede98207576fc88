"""Apache Kafka's own brokers of ZooKeeper days (3.9) on the embedded store's server.

They ask everything of it that a controller asks of ZooKeeper: fenced multis, watches of every kind, ephemeral nodes,
expiring sessions.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic
from kazoo.client import KazooClient

from tests.conformance.zookeeper import JAVA
from tests.ports import free_port
from tests.unit.store.serving import Served
from tests.waiting import until

DEADLINE_S = 60.0
SESSION_TIMEOUT_MS = 3000
QUIET = {"log_level": 0}
"""librdkafka says on standard error that brokers are not there yet; we know."""


class Kafka:
    """Brokers of Apache Kafka whose metadata is in our store."""

    def __init__(self, hosts: str, folder: Path, count: int) -> None:
        self._hosts = hosts
        self._folder = folder
        self.ports = [free_port() for _ in range(count)]
        self.processes = [self._start(broker_id) for broker_id in range(count)]
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})
        until(lambda: self.alive() == list(range(count)))

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def _start(self, broker_id: int) -> subprocess.Popen[bytes]:
        properties = self._folder / f"{broker_id}.properties"
        properties.write_text(
            f"broker.id={broker_id}\nlisteners=PLAINTEXT://127.0.0.1:{self.ports[broker_id]}\n"
            f"log.dirs={self._folder}/logs-{broker_id}\nzookeeper.connect={self._hosts}/kafka\n"
            f"zookeeper.session.timeout.ms={SESSION_TIMEOUT_MS}\noffsets.topic.replication.factor=1\n"
            "offsets.topic.num.partitions=1\nlog.cleaner.dedupe.buffer.size=2097152\n"
        )
        opened = [f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in ("java.lang", "java.nio", "sun.nio.ch")]
        jars = f"{os.environ['TIDELOG_KAFKA_ZOOKEEPER_JARS']}/*"
        with (self._folder / f"{broker_id}.log").open("wb") as log:
            return subprocess.Popen(
                [*JAVA, jars, *opened, "kafka.Kafka", str(properties)], stdout=log, stderr=subprocess.STDOUT
            )

    def alive(self) -> list[int]:
        assert self.processes[-1].poll() is None, (self._folder / f"{len(self.processes) - 1}.log").read_text()
        try:
            return sorted(self.admin.list_topics(timeout=2).brokers)
        except KafkaException:
            return []

    def leaders(self, topic: str) -> list[int]:
        partitions = self.admin.list_topics(topic, timeout=10).topics[topic].partitions
        return [partitions[number].leader for number in sorted(partitions)]

    def done(self, futures: dict[Any, Any]) -> None:
        for future in futures.values():
            future.result(DEADLINE_S)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Served() as served:
        yield served


@pytest.fixture(scope="module")
def kafka(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    kafka = Kafka(served.hosts, tmp_path_factory.mktemp("kafka"), 2)
    try:
        yield kafka
    finally:
        kafka.close()


@pytest.fixture
def tree(served: Served) -> Iterator[KazooClient]:
    client = KazooClient(f"{served.hosts}/kafka")
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.mark.row("R23")
def test_topics_live_and_die(kafka: Kafka, tree: KazooClient) -> None:
    """Created, grown, altered, written, read and deleted, with Kafka's nodes in our tree."""
    kafka.done(kafka.admin.create_topics([NewTopic(f"t{number}", 3, 2) for number in range(10)]))
    # Kafka answers before every broker knows of the topic.
    until(lambda: sorted(set(kafka.leaders("t0"))) == [0, 1])
    state = json.loads(tree.get("/brokers/topics/t0/partitions/0/state")[0])
    assert sorted(state["isr"]) == [0, 1]
    kafka.done(kafka.admin.create_partitions([NewPartitions("t0", 5)]))
    until(lambda: len(kafka.leaders("t0")) == 5)
    entry = ConfigEntry("retention.ms", "1234567", incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource("TOPIC", "t0", incremental_configs=[entry])
    kafka.done(kafka.admin.incremental_alter_configs([topic]))
    assert json.loads(tree.get("/config/topics/t0")[0])["config"] == {"retention.ms": "1234567"}
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True, **QUIET})
    for number in range(100):
        producer.produce("t0", str(number))
    assert producer.flush(DEADLINE_S) == 0
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap, "group.id": "g", "auto.offset.reset": "earliest", **QUIET}
    )
    consumer.subscribe(["t0"])
    found: set[str] = set()

    def read() -> bool:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.add(message.value().decode())
        return len(found) == 100

    until(read)
    consumer.close()
    kafka.done(kafka.admin.delete_topics([f"t{number}" for number in range(10)]))
    until(lambda: not [name for name in tree.get_children("/brokers/topics") if name.startswith("t")])
    assert tree.get_children("/admin/delete_topics") == []


def test_a_broker_dies(kafka: Kafka, tree: KazooClient) -> None:
    """Its session expires, another controller takes it out of every ISR and leads; started again, it joins."""
    kafka.done(kafka.admin.create_topics([NewTopic("failover", 4, 2)]))
    victim = json.loads(tree.get("/controller")[0])["brokerid"]
    survivor = 1 - victim
    kafka.processes[victim].kill()
    kafka.processes[victim].wait()
    until(lambda: tree.get_children("/brokers/ids") == [str(survivor)])
    until(lambda: tree.exists("/controller") and json.loads(tree.get("/controller")[0])["brokerid"] == survivor)
    until(lambda: set(kafka.leaders("failover")) == {survivor})
    state = json.loads(tree.get("/brokers/topics/failover/partitions/0/state")[0])
    assert (state["isr"], state["controller_epoch"]) == ([survivor], 2)
    kafka.processes[victim] = kafka._start(victim)
    until(lambda: sorted(tree.get_children("/brokers/ids")) == ["0", "1"])

    def whole() -> bool:
        states = [tree.get(f"/brokers/topics/failover/partitions/{number}/state")[0] for number in range(4)]
        return all(len(json.loads(each)["isr"]) == 2 for each in states)

    until(whole)


def test_the_store_starts_anew(kafka: Kafka, served: Served) -> None:
    """Kafka's sessions outlive a restart of the store's server; then topics can be made as before."""
    served.stop()
    served.start()
    kafka.done(kafka.admin.create_topics([NewTopic("afterwards", 2, 2)]))
    assert sorted(kafka.leaders("afterwards")) == [0, 1]
