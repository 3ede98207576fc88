"""Makes tests/older/data anew, by the older version: `python -m tests.older.make_data`.

    one-broker.tar.xz       one broker's folder, stopped by SIGTERM
    three-brokers.tar.xz    three brokers' folders and their store; stopped and started, then all killed by SIGKILL
    *.json                  what a reader saw before the end

The topics: plain (several segments, all codecs, idempotent producers), keyed (compacted, cleaned), transactions
(committed and aborted ones), open (a transaction that nobody ends), grown (partitions and settings altered), gone
(deleted). The groups: classic and next-generation (KIP-848). Times of retention are endless, for the files grow old.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tests.older import version
from tests.waiting import until

DATA: Final = Path(__file__).parent / "data"
DEADLINE_S: Final = 180.0
FOR_EVER: Final = str(2**31 - 1)
SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.retention.ms": "-1",
    "offsets.retention.minutes": FOR_EVER,
    "transactional.id.expiration.ms": FOR_EVER,
    "producer.id.expiration.ms": FOR_EVER,
    "log.index.size.max.bytes": "4096",
    "log.cleaner.backoff.ms": "100",
    "log.initial.task.delay.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
}
"""Of the brokers that write the data, and of those that read it."""
LOG: Final = re.compile(r"broker-\d\.log$")
"""What brokers have logged is of no interest."""
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
Found = dict[str, list[tuple[int, str | None, str | None]]]


def create(admin: AdminClient, name: str, partitions: int, factor: int, **config: str) -> None:
    """A topic, when it is there."""
    topic = NewTopic(name, partitions, factor, config={key.replace("_", "."): value for key, value in config.items()})
    admin.create_topics([topic])[name].result(DEADLINE_S)


def send(bootstrap: str, topic: str, records: list[tuple[str, str]], *, partition: int = 0, **settings: Any) -> None:
    """Sends the records with an idempotent producer, each in a batch of its own; all are acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "batch.num.messages": 1,
            "linger.ms": 0,
            **settings,
        }
    )
    failed: list[str] = []
    for key, value in records:
        producer.produce(
            topic,
            value,
            key,
            partition=partition,
            headers=[("of", key.encode())],
            on_delivery=lambda error, _: failed.append(error.str()) if error else None,
        )
    assert producer.flush(DEADLINE_S) == 0
    assert not failed, failed


def transact(bootstrap: str, transactional_id: str, topic: str, values: list[str], *, commit: bool) -> None:
    """A transaction of its own producer, committed or aborted."""
    producer = begin(bootstrap, transactional_id, topic, values)
    (producer.commit_transaction if commit else producer.abort_transaction)(DEADLINE_S)


def begin(bootstrap: str, transactional_id: str, topic: str, values: list[str]) -> Producer:
    """A transaction that is open when the records are on the brokers."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "transaction.timeout.ms": 60_000}
    )
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, transactional_id, partition=0)
    assert producer.flush(DEADLINE_S) == 0
    return producer


def read(bootstrap: str, topic: str, partition: int) -> list[tuple[int, str | None, str | None]]:
    """(offset, key, value) of all committed records."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[tuple[int, str | None, str | None]] = []
    try:
        while (message := consumer.poll(DEADLINE_S)) is not None and message.error() is None:
            key, value = message.key(), message.value()
            found.append((message.offset(), key and key.decode(), value and value.decode()))
        assert message is not None
        assert message.error().name() == "_PARTITION_EOF", message.error()
    finally:
        consumer.close()
    return found


def read_all(bootstrap: str) -> Found:
    """["topic-partition"] -> committed records, of every topic but the internal ones."""
    topics = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=DEADLINE_S).topics
    return {
        f"{name}-{partition}": read(bootstrap, name, partition)
        for name in sorted(topics)
        if not name.startswith("__")
        for partition in sorted(topics[name].partitions)
    }


def consume(bootstrap: str, group: str, count: int, **settings: Any) -> None:
    """A member of the group reads `count` records of topic plain, commits what it has read and leaves."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **settings,
        }
    )
    consumer.subscribe(["plain"])
    read = 0
    while read < count:
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        assert message.error() is None, message.error()
        read += 1
    consumer.commit(asynchronous=False)
    consumer.close()


def committed(bootstrap: str, group: str) -> dict[str, int]:
    """[partition of plain] -> offset."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        found = consumer.committed([TopicPartition("plain", partition) for partition in range(2)], DEADLINE_S)
        return {str(each.partition): each.offset for each in found}
    finally:
        consumer.close()


def fill(bootstrap: str, factor: int, part: int) -> None:
    """The records of the first or the second life."""
    if part == 0:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        create(admin, "plain", 2, factor, segment_bytes="4000")
        create(
            admin, "keyed", 1, factor, cleanup_policy="compact", segment_bytes="1200", min_cleanable_dirty_ratio="0.01"
        )
        create(admin, "transactions", 1, factor, segment_bytes="4000")
        create(admin, "open", 1, factor)
        create(admin, "grown", 1, factor)
        create(admin, "gone", 1, factor)
        send(bootstrap, "gone", [("k", "v")])
        admin.delete_topics(["gone"])["gone"].result(DEADLINE_S)
        admin.create_partitions([NewPartitions("grown", 3)])["grown"].result(DEADLINE_S)
        for resource, name, value in (
            (ConfigResource(ResourceType.TOPIC, "grown"), "max.message.bytes", "123456"),
            (ConfigResource(ResourceType.BROKER, "0"), "message.max.bytes", "1234567"),
        ):
            entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            resource.add_incremental_config(entry)
            (answer,) = admin.incremental_alter_configs([resource]).values()
            answer.result(DEADLINE_S)
    for number, codec in enumerate(CODECS):
        records = [(f"{codec}-{index}", f"part {part}, {index} " + 20 * codec) for index in range(20)]
        send(bootstrap, "plain", records, partition=number % 2, **{"compression.codec": codec})
    send(bootstrap, "keyed", [(f"key-{index % 7}", f"part {part}, {index} {'.' * 60}") for index in range(80)])
    for index in range(6):
        values = [f"part {part}, {index}, {each}" for each in range(5)]
        transact(bootstrap, f"id-{index % 3}", "transactions", values, commit=index % 3 != 1)
    transact(bootstrap, "ended", "open", [f"part {part}, committed"], commit=True)
    for partition in range(3):
        send(bootstrap, "grown", [("k", f"part {part}")], partition=partition)
    consume(bootstrap, "classic", 30)
    consume(bootstrap, "next-generation", 20, **{"group.protocol": "consumer"})


class Running:
    """`tidelog start` of the older version."""

    def __init__(self, source: Path, folder: Path, brokers: int) -> None:
        self.log = folder / "start.log"
        settings = [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")]
        ports = ("--port", "0", "--store-port", "0")
        self.process = version.start(
            source, "start", "--brokers", str(brokers), "--data", folder / "data", *ports, *settings, log=self.log
        )
        self.bootstrap = version.address(self.process, self.log)

    def end(self, number: signal.Signals) -> None:
        """SIGTERM to the process that was started; SIGKILL to its brokers too, before it can do anything for them."""
        if number is signal.SIGKILL:
            self.process.send_signal(signal.SIGSTOP)
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
            for child in children.split():
                os.kill(int(child), number)
        self.process.send_signal(number)
        self.process.wait(DEADLINE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


def make(source: Path, name: str, brokers: int, end: signal.Signals) -> None:
    """One archive, and what is in it."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        running = Running(source, folder, brokers)
        fill(running.bootstrap, brokers, 0)
        running.end(signal.SIGTERM)
        running = Running(source, folder, brokers)
        fill(running.bootstrap, brokers, 1)
        left_open = begin(running.bootstrap, "left-open", "open", ["never committed"])
        keyed = folder.joinpath("data", "broker-0", "cleaner-offset-checkpoint")
        until(lambda: "keyed 0" in keyed.read_text(), "topic keyed is cleaned")
        expected = {
            "records": read_all(running.bootstrap),
            "committed": {group: committed(running.bootstrap, group) for group in ("classic", "next-generation")},
        }
        running.end(end)
        del left_open
        with tarfile.open(DATA / f"{name}.tar.xz", "w:xz", preset=9) as archive:
            archive.add(folder / "data", "data", filter=lambda each: None if LOG.search(each.name) else each)
        (DATA / f"{name}.json").write_text(json.dumps(expected, sort_keys=True) + "\n")


def main() -> None:
    DATA.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        source = version.unpack(Path(folder))
        make(source, "one-broker", 1, signal.SIGTERM)
        make(source, "three-brokers", 3, signal.SIGKILL)
    subprocess.run(["ls", "-l", str(DATA)], check=True)


if __name__ == "__main__":
    main()
