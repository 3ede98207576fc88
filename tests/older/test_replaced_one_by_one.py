"""Brokers of an older version and of today's on one store, while they are replaced one by one, and back."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient

from tests.amount import thorough
from tests.older import version
from tests.older.make_data import DEADLINE_S, consume, create, read
from tests.older.version import ROOT
from tests.ports import free_ports
from tests.unit.store.serving import Served
from tests.waiting import until

pytestmark = [
    thorough,
    pytest.mark.skipif(not version.is_there(), reason=f"this clone has no commit {version.COMMIT} in its history"),
]

PARTITIONS: Final = 4
BROKERS: Final = 3
SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
}


class Brokers:
    """Three broker processes on one store, each of either version."""

    def __init__(self, folder: Path, store: str) -> None:
        self.sources = {"older": version.unpack(folder / "older"), "today": ROOT / "src"}
        self._folder = folder
        self._running: dict[int, subprocess.Popen[str]] = {}
        first = free_ports(BROKERS)
        self.bootstrap = ",".join(f"127.0.0.1:{first + number}" for number in range(BROKERS))
        for number in range(BROKERS):
            own = {
                "broker.id": number,
                "listeners": f"PLAINTEXT://127.0.0.1:{first + number}",
                "log.dirs": folder / f"broker-{number}",
                "zookeeper.connect": store,
            }
            lines = [f"{name}={value}\n" for name, value in {**own, **SETTINGS}.items()]
            (folder / f"broker-{number}.properties").write_text("".join(lines))

    def start(self, number: int, which: str) -> None:
        """Returns when clients can connect."""
        log = self._folder / f"broker-{number}.log"
        properties = self._folder / f"broker-{number}.properties"
        self._running[number] = version.start(self.sources[which], "broker", properties, log=log)
        version.address(self._running[number], log)

    def stop(self, number: int, how: signal.Signals = signal.SIGTERM) -> int:
        """The exit code."""
        process = self._running.pop(number)
        process.send_signal(how)
        code = process.wait(DEADLINE_S)
        assert process.stdout is not None
        process.stdout.close()
        return code

    def replace(self, number: int, which: str) -> None:
        """Another version with the same data; returns when all replicas are in sync."""
        assert self.stop(number) == 0, (self._folder / f"broker-{number}.log").read_text()
        self.start(number, which)
        until(self.all_in_sync, f"broker {number}, {which}, is in sync")

    def all_in_sync(self) -> bool:
        """Whether the controller shows every replica of every partition in its ISR."""
        topics = AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(timeout=DEADLINE_S).topics.values()
        return all(len(partition.isrs) == BROKERS for topic in topics for partition in topic.partitions.values())

    def kill(self) -> None:
        """Whatever still runs."""
        for number in list(self._running):
            self.stop(number, signal.SIGKILL)


class Load:
    """An idempotent and a transactional producer, each a thread, and what they were told."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._stop = threading.Event()
        self.acknowledged: dict[int, dict[int, str]] = {partition: {} for partition in range(PARTITIONS)}
        """[partition][offset] -> value."""
        self.committed: list[str] = []
        self.failed: list[str] = []
        self._threads = [threading.Thread(target=self._run, args=(work,)) for work in (self._send, self._transact)]
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Returns when all that was sent is acknowledged."""
        self._stop.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()

    def _run(self, work: object) -> None:
        try:
            assert callable(work)
            work()
        except Exception as error:
            self.failed.append(repr(error))

    def _delivered(self, error: object, message: Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        if error is not None:
            self.failed.append(str(error))
        elif partition is not None and offset is not None and value is not None:
            self.acknowledged[partition][offset] = value.decode()

    def _send(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "linger.ms": 0})
        number = 0
        while not self._stop.is_set():
            producer.produce("plain", f"{number}", partition=number % PARTITIONS, on_delivery=self._delivered)
            number += 1
            producer.poll(0.005)
        assert producer.flush(DEADLINE_S) == 0

    def _transact(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "transactional.id": "load"})
        producer.init_transactions(DEADLINE_S)
        number = 0
        while not self._stop.is_set():
            producer.begin_transaction()
            values = [f"{number}, {each}" for each in range(3)]
            for value in values:
                producer.produce("transactions", value, partition=0)
            if number % 3 == 2:
                producer.abort_transaction(DEADLINE_S)
            else:
                producer.commit_transaction(DEADLINE_S)
                self.committed += values
            number += 1


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    """Three of the older version."""
    with Served() as served, contextlib.ExitStack() as stack:
        brokers = Brokers(tmp_path, served.hosts)
        stack.callback(brokers.kill)
        for number in range(BROKERS):
            brokers.start(number, "older")
        yield brokers


def test_nothing_is_lost_there_and_back(brokers: Brokers) -> None:
    """Each acknowledged record is at its offset, each committed transaction whole and once, each group where it was."""
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    create(admin, "plain", PARTITIONS, BROKERS)
    create(admin, "transactions", 1, BROKERS)
    load = Load(brokers.bootstrap)
    for which in ("today", "older"):
        for number in range(BROKERS):
            brokers.replace(number, which)
            before = sum(map(len, load.acknowledged.values())), len(load.committed)
            until(lambda before=before: sum(map(len, load.acknowledged.values())) > before[0] + 20, "records go on")  # type: ignore[misc]
            until(lambda before=before: len(load.committed) > before[1] + 6, "transactions go on")  # type: ignore[misc]
            consume(brokers.bootstrap, "group", 10)
        create(admin, f"made-{which}", 2, BROKERS)
    load.finish()
    assert not load.failed
    for partition, acknowledged in load.acknowledged.items():
        found = {offset: value for offset, _, value in read(brokers.bootstrap, "plain", partition)}
        assert found == acknowledged
    assert [value for _, _, value in read(brokers.bootstrap, "transactions", 0)] == load.committed
