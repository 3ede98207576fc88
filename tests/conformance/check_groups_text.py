"""`tidelog groups -o kafka` beside `kafka-consumer-groups` of Kafka 4.3, on the same groups: line for line the same."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Iterator

import pytest

from tests.conformance import java
from tests.waiting import until
from tidelog.client.cluster import Cluster as ClientCluster
from tidelog.client.consumer import Consumer, ConsumerSettings
from tidelog.client.producer import Producer
from tidelog.testing import Cluster

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
GROUPS = {"eager": ("classic", None), "static": ("classic", "instance-1"), "next": ("consumer", None)}
"""[group] -> its protocol and its only member's lasting name."""


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A cluster with a stable group of each kind, and one without members that lags."""
    leaving = threading.Event()
    ready: list[str] = []

    async def member(bootstrap: str, group: str) -> None:
        protocol, instance_id = GROUPS[group]
        settings = ConsumerSettings(
            assignors=("range",),
            protocol=protocol,  # type: ignore[arg-type]  # Plain words are taken.
            instance_id=instance_id,
            auto_offset_reset="earliest",  # type: ignore[arg-type]
            auto_commit=False,
        )
        async with ClientCluster(bootstrap, client_id=group) as cluster, Consumer(cluster, group, settings) as consumer:
            consumer.subscribe(["t"])
            while not leaving.is_set():
                if await consumer.poll(0.05) is not None:
                    await consumer.commit()
                elif sum(consumer.position(tp) or 0 for tp in consumer.assignment) == 9 and group not in ready:
                    ready.append(group)

    async def members(bootstrap: str) -> None:
        async with ClientCluster(bootstrap) as cluster, Producer(cluster) as producer:
            for number in range(9):
                await producer.send("t", b"x", partition=number % 3)
        await asyncio.gather(*(member(bootstrap, group) for group in GROUPS))

    with Cluster({"num.partitions": 3}) as cluster:
        thread = threading.Thread(target=lambda: asyncio.run(members(cluster.bootstrap)))
        thread.start()
        try:
            until(lambda: len(ready) == len(GROUPS), lambda: f"only {ready}")
            ours(cluster.bootstrap, "reset-offsets empty --topic t:0,2 --to-offset 1 --execute")
            yield cluster.bootstrap
        finally:
            leaving.set()
            thread.join(30)


def printed(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines on stdout, in order of their text: Kafka's own order is that of a hash map."""
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


def ours(bootstrap: str, arguments: str) -> list[str]:
    command = ["tidelog", "groups", *arguments.split(), "-b", bootstrap, "-o", "kafka"]
    return printed(subprocess.run(command, capture_output=True, text=True, timeout=60, check=False))


def kafkas(bootstrap: str, arguments: str) -> list[str]:
    jars, command = os.environ["TIDELOG_KAFKA_JARS"], ("--bootstrap-server", bootstrap, *arguments.split())
    return printed(java.run(jars, TOOL, *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE))


@pytest.mark.parametrize(
    ("kafkas_arguments", "our_arguments"),
    [
        ("--list", "list"),
        ("--describe --all-groups", "describe --all"),
        ("--describe --all-groups --verbose", "describe --all --verbose"),
        ("--describe --all-groups --members", "describe --all --members"),
        ("--describe --group static --members --verbose", "describe static --members --verbose"),
        ("--describe --group next --members --verbose", "describe next --members --verbose"),
        ("--describe --all-groups --state", "describe --all --state"),
        ("--describe --group next --state --verbose", "describe next --state --verbose"),
        (
            "--reset-offsets --group empty --all-topics --to-latest --dry-run",
            "reset-offsets empty --all-topics --to-latest",
        ),
        (
            "--reset-offsets --group empty --topic t --to-current --dry-run",
            "reset-offsets empty --topic t --to-current",
        ),
        (
            "--reset-offsets --group empty --topic t:0 --shift-by 1 --export --dry-run",
            "reset-offsets empty --topic t:0 --shift-by 1 --export",
        ),
    ],
)
def test_the_same_text(bootstrap: str, kafkas_arguments: str, our_arguments: str) -> None:
    """Headings, widths, blanks at the ends of lines."""
    assert ours(bootstrap, our_arguments) == kafkas(bootstrap, kafkas_arguments)
