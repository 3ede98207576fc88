"""Our own consumer and transactional producer while coordinators, leaders and applications are killed."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.waiting import until

from tidelog.testing import Cluster

WAIT_S = 180.0
ROOT = Path(__file__).parents[2]
IN_PARTITIONS = 4
PORTION = 300


@contextlib.contextmanager
def application(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """One of tests/scenarios/applications.py, killed at the end if it was not before."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.scenarios.applications", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


class Copied:
    """What goes into "in", and what a reader of committed records finds in "out"."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
        )
        self._reader = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "judge",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._reader.assign([confluent_kafka.TopicPartition("out", partition, 0) for partition in range(2)])
        self.given = 0
        self.found: Counter[int] = Counter()

    def give(self, count: int = PORTION) -> None:
        for number in range(self.given, self.given + count):
            self._producer.produce("in", b"%d" % number, partition=number % IN_PARTITIONS)
        assert self._producer.flush(WAIT_S) == 0
        self.given += count

    def look(self) -> int:
        """How many there are by now."""
        for message in self._reader.consume(500, 0.02):
            if message.error() is None:
                self.found[int(message.value())] += 1
        return self.found.total()

    def until_some(self) -> None:
        """Until a record of the last portion is there; all earlier ones were."""
        until(lambda: self.look() > self.given - PORTION, lambda: f"{len(self.found)} of {self.given}", every_s=0)

    def until_all(self) -> None:
        until(lambda: len(self.found) == self.given or self.look() < 0, lambda: f"{len(self.found)}", every_s=0)

    def close(self) -> None:
        self._reader.close()


@pytest.mark.row("R22")
def test_exactly_once_through_kills() -> None:
    """Two copying applications; the group's coordinator, a partition's leader and one of the applications die."""
    settings = {
        "min.insync.replicas": 2,
        "offsets.topic.num.partitions": 2,
        "transaction.state.log.num.partitions": 2,
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1_000,
    }
    with Cluster(settings, brokers=3, processes=True) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for created in admin.create_topics([NewTopic("in", IN_PARTITIONS, 3), NewTopic("out", 2, 3)]).values():
            created.result(WAIT_S)
        copied = Copied(cluster.bootstrap)
        with application("copy", cluster.bootstrap, "one"), application("copy", cluster.bootstrap, "two") as two:
            copied.give()
            copied.until_all()
            for victim in ("coordinator", "leader"):
                if victim == "coordinator":
                    broker = admin.describe_consumer_groups(["copy"])["copy"].result(WAIT_S).coordinator.id
                else:
                    broker = admin.list_topics("in", WAIT_S).topics["in"].partitions[0].leader
                copied.give()
                copied.until_some()
                cluster.kill(broker)
                copied.give()
                copied.until_all()
                cluster.restart(broker)
            copied.give()
            copied.until_some()
            two.kill()
            with application("copy", cluster.bootstrap, "two"):
                copied.give()
                copied.until_all()
        # What would come twice would be there by now, or come with this.
        with application("copy", cluster.bootstrap, "one"):
            copied.give(IN_PARTITIONS)
            copied.until_all()
        copied.close()
        assert copied.found == dict.fromkeys(range(copied.given), 1)
