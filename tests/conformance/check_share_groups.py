"""Share groups (KIP-932) by Kafka 4.3's own tools and by librdkafka's share consumer, unchanged, on three brokers."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer, ShareConsumer

from tests.conformance import java
from tests.conformance.check_kafka_groups import JARS, run
from tidelog.testing import Cluster

RELEASE = "4.3"
COUNT = 500
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {"group.share.min.record.lock.duration.ms": 1000, "group.share.assignment.interval.ms": 0}
    with Cluster(brokers=3, settings=settings) as cluster:
        yield cluster


def fill(cluster: Cluster, topic: str, group: str) -> None:
    """A topic of two partitions with records, and a group that begins with the first of them."""
    brokers = ("--bootstrap-server", cluster.bootstrap)
    run(RELEASE, "TopicCommand", *brokers, "--create", "--topic", topic, "--partitions", "2")
    setting = ("--alter", "--group", group, "--add-config", "share.auto.offset.reset=earliest")
    done = java.run(os.environ[JARS[RELEASE]], "kafka.admin.ConfigCommand", *brokers, *setting, stdout=subprocess.PIPE)
    assert done.returncode == 0, done.stdout
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(COUNT):
        producer.produce(topic, str(number).encode(), partition=number % 2)
    assert producer.flush(DEADLINE_S) == 0


def described(cluster: Cluster, group: str, *arguments: str) -> list[list[str]]:
    """What kafka-share-groups shows, row by row, without the heading."""
    command = "consumer.group.ShareGroupCommand"
    text = run(RELEASE, command, "--bootstrap-server", cluster.bootstrap, "--describe", "--group", group, *arguments)
    return [line.split() for line in text.splitlines() if line.startswith(group)]


def test_the_console_share_consumer_and_the_tool_for_share_groups(cluster: Cluster) -> None:
    """Everything is read once and acknowledged; the group is shown, begins anew where it is told to, and is deleted."""
    fill(cluster, "console", "console-group")
    brokers = ("--bootstrap-server", cluster.bootstrap)
    text = run(
        RELEASE,
        "consumer.ConsoleShareConsumer",
        *brokers,
        *("--topic", "console", "--group", "console-group", "--max-messages", str(COUNT), "--timeout-ms", "30000"),
    )
    assert sorted(int(line) for line in text.splitlines() if line.isdecimal()) == list(range(COUNT))
    assert [row[-1] for row in described(cluster, "console-group")] == ["0", "0"]
    assert described(cluster, "console-group", "--state")[0][-2:] == ["Empty", "0"]
    command = "consumer.group.ShareGroupCommand"
    run(
        RELEASE,
        command,
        *brokers,
        *("--reset-offsets", "--group", "console-group", "--topic", "console", "--to-earliest", "--execute"),
    )
    assert sorted(row[-2:] for row in described(cluster, "console-group")) == [["0", "250"], ["0", "250"]]
    run(RELEASE, command, *brokers, "--delete", "--group", "console-group")
    assert "console-group" not in run(RELEASE, command, *brokers, "--list")


def test_two_verifiable_share_consumers(cluster: Cluster) -> None:
    """Together they acknowledge each record once."""
    fill(cluster, "verified", "verified-group")
    command = ["java", "-cp", os.environ[JARS[RELEASE]] + "/*", "org.apache.kafka.tools.VerifiableShareConsumer"]
    options = ["--bootstrap-server", cluster.bootstrap, "--topic", "verified", "--group-id", "verified-group"]
    consumers = [
        subprocess.Popen(
            [*command, *options, "--acknowledgement-mode", mode],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for mode in ("sync", "async")
    ]
    deadline = time.monotonic() + DEADLINE_S
    try:
        while not (rows := described(cluster, "verified-group")) or any(row[-1] != "0" for row in rows):
            assert time.monotonic() < deadline, rows
    finally:
        for consumer in consumers:
            consumer.terminate()
    acknowledged: list[tuple[int, int]] = []
    for consumer in consumers:
        text, _ = consumer.communicate(timeout=DEADLINE_S)
        for line in text.splitlines():
            event = json.loads(line)
            if event["name"] == "offsets_acknowledged" and event["success"]:
                for place in event["partitions"]:
                    acknowledged.extend((place["partition"], offset) for offset in place["offsets"])
    assert sorted(acknowledged) == [(partition, offset) for partition in range(2) for offset in range(COUNT // 2)]


def test_librdkafkas_share_consumer(cluster: Cluster) -> None:
    """confluent-kafka's ShareConsumer gets each record once, and acknowledges with its next poll."""
    fill(cluster, "librdkafka", "librdkafka-group")
    consumer = ShareConsumer({"bootstrap.servers": cluster.bootstrap, "group.id": "librdkafka-group"})
    consumer.subscribe(["librdkafka"])
    seen: list[int] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(seen) < COUNT:
        assert time.monotonic() < deadline, len(seen)
        for message in consumer.poll(1.0) or ():
            assert message.error() is None, message.error()
            seen.append(int(message.value() or b"-1"))
    assert sorted(seen) == list(range(COUNT))
    consumer.poll(0.5)
    consumer.close()
    assert [row[-1] for row in described(cluster, "librdkafka-group")] == ["0", "0"]
