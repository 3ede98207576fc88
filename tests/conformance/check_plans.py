"""Plans on Apache Kafka 4.3 and 3.9: a broker taken in, another retired, a disk emptied, all undone, under load.

The commands are those of docs/operations.md, against three nodes with two log directories each, while an unchanged
producer and consumer go on: no record is lost, no throttle is left.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest
from bench.peers.kafka import KafkaCluster
from confluent_kafka import Consumer, Producer

from tests.waiting import until
from tidelog.client import admin
from tidelog.client.blocking import BlockingCluster
from tidelog.operator.reading import read_state
from tidelog.placement.plan.state import ClusterState

TOPIC = "moved"
PARTITIONS = 6
FIRST_BYTES = 6_000_000
THROTTLE = "400000"
VERSIONS = {"4.3": "TIDELOG_KAFKA_JARS", "3.9": "TIDELOG_KAFKA_ZOOKEEPER_JARS"}


class TwoDirectories(KafkaCluster):
    """Nodes with two log directories."""

    def _properties(self, node: int) -> dict[str, object]:
        return {**super()._properties(node), "log.dirs": ",".join(self.directories(node))}

    def directories(self, node: int) -> list[str]:
        return [str(self.log_dir(node)), f"{self.log_dir(node)}b"]


class Outcome(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


class Traffic:
    """A producer and a consumer of numbers, in order in each partition, until the block ends."""

    def __init__(self, bootstrap: str) -> None:
        self._stop = threading.Event()
        self.sent = [0] * PARTITIONS
        self.read = [0] * PARTITIONS
        self.errors: list[str] = []
        settings = {"bootstrap.servers": bootstrap}
        self._producer = Producer({**settings, "acks": "all", "enable.idempotence": True, "linger.ms": 5})
        self._consumer = Consumer(
            {**settings, "group.id": "readers", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        )
        self._threads = [threading.Thread(target=self._produce), threading.Thread(target=self._consume)]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(180)
        self._consumer.close()

    def _told(self, error: object, _: object) -> None:
        if error is not None:
            self.errors.append(f"not acknowledged: {error}")

    def _produce(self) -> None:
        while not self._stop.wait(0.02):
            for partition in range(PARTITIONS):
                value = str(self.sent[partition]).encode()
                self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._told)
                self.sent[partition] += 1
            self._producer.poll(0)
        if self._producer.flush(120):
            self.errors.append("records were not acknowledged within 120 s")

    def _consume(self) -> None:
        self._consumer.subscribe([TOPIC])
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline:
            message = self._consumer.poll(0.2)
            if message is None or message.error():
                if self._stop.is_set() and self.read == self.sent:
                    return
                continue
            value, partition = message.value() or b"", message.partition() or 0
            if value.startswith(b"x"):
                continue
            if int(value) != self.read[partition]:
                self.errors.append(f"partition {partition}: {int(value)} instead of {self.read[partition]}")
                return
            self.read[partition] += 1
        self.errors.append("not all was read")


class Reachable(Protocol):
    """A cluster whose nodes have two log directories."""

    bootstrap: str

    def directories(self, node: int) -> list[str]: ...


class Operator:
    """The commands, and what a cluster says afterwards."""

    def __init__(self, kafka: Reachable, folder: Path) -> None:
        self.kafka = kafka
        self.folder = folder
        self._environment = {**os.environ, "TIDELOG_BOOTSTRAP": kafka.bootstrap, "XDG_STATE_HOME": str(folder)}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", "from tidelog.cli import main; main()", *arguments]
        return subprocess.Popen(
            command, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def type(self, *arguments: str, code: int = 0) -> Outcome:
        with self.start(*arguments) as process:
            try:
                out, err = process.communicate(timeout=300)
            except subprocess.TimeoutExpired:
                # Else the block would wait for it.
                process.kill()
                pytest.fail(f"{arguments} does not end: {process.communicate()}")
        assert process.returncode == code, (arguments, out, err)
        return Outcome(process.returncode, out, err)

    def json(self, *arguments: str) -> Any:
        return json.loads(self.type(*arguments, "-o", "json").out)

    def state(self) -> ClusterState:
        with BlockingCluster(self.kafka.bootstrap) as client:
            return client.run(read_state(client.routing, taken_at_ms=0))

    def replicas(self) -> list[tuple[int, ...]]:
        return [each.replicas for key, each in self.state().partitions.items() if key.topic == TOPIC]

    def leaders(self) -> list[int]:
        return [each.leader for key, each in self.state().partitions.items() if key.topic == TOPIC]

    def throttles(self) -> list[Mapping[str, str]]:
        state = self.state()
        return [each.throttles for each in (*state.brokers.values(), *state.topics.values()) if each.throttles]

    def has_no_throttle(self) -> None:
        """At once, or as soon as each broker has seen what the controller has acknowledged."""
        until(lambda: not self.throttles(), "no throttle is left")


@pytest.fixture(scope="module", params=list(VERSIONS))
def operator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """Three nodes; the topic lies on the first two, with some megabytes in it."""
    folder = tmp_path_factory.mktemp("kafka")
    (folder / "release").mkdir()
    (folder / "release" / "libs").symlink_to(Path(os.environ[VERSIONS[request.param]]).absolute())
    with TwoDirectories(folder / "release", folder / "data", {"auto.create.topics.enable": "false"}) as kafka:
        with BlockingCluster(kafka.bootstrap, operation_timeout_s=120) as client:
            assignment = {index: ((1, 2), (2, 1))[index % 2] for index in range(PARTITIONS)}
            topic = admin.NewTopic(TOPIC, assignment=assignment, configs={"min.insync.replicas": "1"})
            outcome = client.run(admin.create_topics(client.routing, [topic]))
            assert isinstance(outcome[TOPIC], admin.CreatedTopic), outcome
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        for number in range(FIRST_BYTES // 10_000):
            producer.produce(TOPIC, b"x" * 10_000, partition=number % PARTITIONS)
        assert not producer.flush(120)
        yield Operator(kafka, folder)


@pytest.mark.nightly
def test_brokers_are_changed_under_load(operator: Operator) -> None:
    """Broker 3 is taken in, killed in between; broker 1 is retired, and comes back by one command."""
    plan = str(operator.folder / "fill.plan")
    drain = str(operator.folder / "drain.plan")
    before = operator.replicas()
    with Traffic(operator.kafka.bootstrap) as traffic:
        operator.type("plan", "--fill", "3", "--topic", TOPIC, "--throttle", THROTTLE, "--out", plan)
        with operator.start("reassign", "run", plan, "--throttle", THROTTLE) as interrupted:
            until(lambda: any(3 in each for each in operator.replicas()), "the first moves are under way")
            interrupted.send_signal(signal.SIGKILL)
            interrupted.wait()
        filled = operator.json("reassign", "run", plan, "--throttle", THROTTLE)
        assert (filled["status"], filled["left"]) == ("done", [])
        print("fill:", filled["seconds"], "s, predicted", filled["predicted_seconds"])
        assert any(3 in each for each in operator.replicas())
        operator.has_no_throttle()
        between = operator.replicas()
        operator.type("plan", "--drain", "1", "--topic", TOPIC, "--throttle", THROTTLE, "--out", drain)
        drained = operator.json("reassign", "run", drain, "--throttle", THROTTLE)
        print("drain:", drained["seconds"], "s, predicted", drained["predicted_seconds"])
        assert not any(1 in each for each in operator.replicas())
        operator.has_no_throttle()
        operator.type("reassign", "rollback", "--throttle", "10000000")
        assert operator.replicas() == between
        operator.type("reassign", "rollback", plan)
        assert operator.replicas() == before
        operator.has_no_throttle()
    assert traffic.errors == []
    assert traffic.read == traffic.sent


@pytest.mark.nightly
def test_a_disk_is_emptied_and_filled_again(operator: Operator) -> None:
    """All replicas of a broker leave one directory, and come back by one command."""
    first, second = operator.kafka.directories(2)

    def places() -> list[str | None]:
        state = operator.state()
        return [
            each.directories[each.replicas.index(2)]
            for key, each in state.partitions.items()
            if key.topic == TOPIC and 2 in each.replicas
        ]

    before = places()
    assert {first, second} == set(before)
    moved = operator.json(
        "log-dirs", "move", "--broker", "2", "--from", first, "--topic", TOPIC, "--throttle", THROTTLE
    )
    assert moved["status"] == "done"
    print("disk:", moved["seconds"], "s, predicted", moved["predicted_seconds"])
    assert set(places()) == {second}
    operator.has_no_throttle()
    operator.type("reassign", "rollback")
    assert places() == before
    operator.has_no_throttle()


def test_brokers_are_listed_and_cordoned(operator: Operator, request: pytest.FixtureRequest) -> None:
    """Where Kafka knows it (4.3); elsewhere it says what works instead."""
    shown = operator.json("brokers")
    assert [each["broker"] for each in shown] == [1, 2, 3]
    if "4.3" in request.node.name:
        operator.type("brokers", "cordon", "1")
        assert [each["cordoned"] for each in operator.json("brokers")] == [True, False, False]
        operator.type("brokers", "uncordon", "1")
        assert [each["cordoned"] for each in operator.json("brokers")] == [False] * 3
    else:
        assert "--exclude 1" in operator.type("brokers", "cordon", "1", code=1).err
