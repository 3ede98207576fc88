"""Apache Kafka's command line tools of several releases, run as their scripts run them."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.conformance import java

_FETCH: Final = Path(__file__).parent.parent / "kafka_jars.sh"
_OLD: Final = {
    "kafka-topics": "kafka.admin.TopicCommand",
    "kafka-reassign-partitions": "kafka.admin.ReassignPartitionsCommand",
    "kafka-preferred-replica-election": "kafka.admin.PreferredReplicaLeaderElectionCommand",
    "kafka-leader-election": "kafka.admin.LeaderElectionCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-producer": "kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "kafka.tools.ConsoleConsumer",
    "kafka-dump-log": "kafka.tools.DumpLogSegments",
    "kafka-acls": "kafka.admin.AclCommand",
}
_NEW: Final = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
}
TOOLS: Final[Mapping[str, Mapping[str, str]]] = {"2.2.1": _OLD, "2.8.2": _OLD, "3.9.1": _NEW, "4.3.0": _NEW}
"""[release][script] -> its class."""


@dataclass(frozen=True, slots=True)
class Way:
    """A release of the tools, and what they are pointed at."""

    release: str
    option: str
    """zookeeper, or bootstrap-server."""

    @property
    def name(self) -> str:
        """Of the way, in tests' names and in the table of commands."""
        return f"{self.release}-{'zk' if self.by_store else 'api'}"

    @property
    def by_store(self) -> bool:
        """Whether the tool writes into the store by itself."""
        return self.option == "zookeeper"


WAYS: Final = (
    Way("2.2.1", "zookeeper"),
    Way("2.8.2", "zookeeper"),
    Way("2.8.2", "bootstrap-server"),
    Way("4.3.0", "bootstrap-server"),
)
"""The documents' own release; the last with all of --zookeeper, both ways; and today's."""


@dataclass(frozen=True, slots=True)
class Printed:
    """What a tool left behind."""

    out: str
    err: str
    status: int

    def __str__(self) -> str:
        return f"{self.out}\n[stderr]\n{self.err}\n[exit {self.status}]"


@functools.cache
def jars(release: str) -> str:
    """The folder with a release's jars; fetched where they are not there yet."""
    environment = {**os.environ, "KAFKA_VERSION": release}
    done = subprocess.run([_FETCH], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def run(release: str, tool: str, *arguments: str) -> Printed:
    """Runs a script's class."""
    done = java.run(
        jars(release),
        TOOLS[release][tool],
        *arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    return Printed(done.stdout, done.stderr, done.returncode)
