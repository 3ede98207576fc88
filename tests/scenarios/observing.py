"""What the scenarios share: a real client's calls, a partition's folder, and what its files say."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from tests.interop.support import DEADLINE_S

from tidelog.model.identifiers import TopicPartition as Partition
from tidelog.records.batch import BatchHeader, iterate_headers
from tidelog.storage.log import Log
from tidelog.testing import Cluster, ProcessBroker

START_MS = 1_600_000_000_000
"""Timestamps of records begin here, unless a test says otherwise."""


class Entry(NamedTuple):
    """An entry of an index, its offset made absolute."""

    key: int
    """The offset of an .index entry, the timestamp of a .timeindex entry."""
    value: int
    """The position of an .index entry, the offset of a .timeindex entry."""


def create(broker: Cluster | ProcessBroker, topic: str, partitions: int = 1, **config: object) -> None:
    """Creates a topic; settings with underscores for dots."""
    settings = {name.replace("_", "."): str(value) for name, value in config.items()}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(DEADLINE_S)


def alter(broker: Cluster | ProcessBroker, topic: str, **config: object) -> None:
    """Sets settings of a topic, as AdminClient does."""
    entries = [
        ConfigEntry(name.replace("_", "."), str(value), incremental_operation=AlterConfigOpType.SET)
        for name, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)


def described(broker: Cluster | ProcessBroker, topic: str) -> Mapping[str, str]:
    """What AdminClient describes."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    entries = admin.describe_configs([resource])[resource].result(DEADLINE_S)
    return {name: entry.value for name, entry in entries.items()}


def send(
    broker: Cluster | ProcessBroker,
    topic: str,
    values: Iterable[bytes],
    *,
    partition: int = 0,
    timestamp_ms: int = START_MS,
    step_ms: int = 0,
    key: bytes | None = None,
    **settings: object,
) -> list[str]:
    """Sends each value as a batch of its own; the names of the errors."""
    errors: list[str] = []
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "batch.num.messages": 1, "retries": 0, **settings}
    )
    for number, value in enumerate(values):
        producer.produce(
            topic,
            value,
            key,
            partition,
            on_delivery=lambda error, _: errors.append(error.name()) if error else None,
            timestamp=timestamp_ms + number * step_ms,
        )
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0
    return errors


def read(broker: Cluster | ProcessBroker, topic: str, offset: int, count: int, partition: int = 0) -> list[bytes]:
    """The values of `count` records from `offset` on."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "scenario", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.assign([TopicPartition(topic, partition, offset)])
        values: list[bytes] = []
        while len(values) < count:
            messages = consumer.consume(count - len(values), DEADLINE_S)
            assert messages, f"{len(values)} of {count} came"
            for message in messages:
                assert message.error() is None, message.error()
                values.append(message.value())
        return values
    finally:
        consumer.close()


def watermarks(broker: Cluster | ProcessBroker, topic: str, partition: int = 0) -> tuple[int, int]:
    """Log start and high watermark, as a consumer sees them."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "scenario"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=DEADLINE_S)
        return low, high
    finally:
        consumer.close()


def folder(broker: Cluster | ProcessBroker, topic: str, partition: int = 0) -> Path:
    """Where the partition's files are."""
    return Path(broker.data, "broker-0", f"{topic}-{partition}")


def names(broker: Cluster | ProcessBroker, topic: str, suffix: str) -> list[str]:
    """Names of the partition's files that end with `suffix`, oldest segment first."""
    return sorted(path.name for path in folder(broker, topic).iterdir() if path.name.endswith(suffix))


def log_of(cluster: Cluster, topic: str, partition: int = 0) -> Log:
    """The log itself: to be looked at in the broker's thread (`Cluster.call`)."""
    log = cluster.runtime.node.logs.get(Partition(topic, partition))
    assert log is not None
    return log


def batches(path: Path) -> list[tuple[int, BatchHeader]]:
    """Position and header of each batch in a .log file."""
    return list(iterate_headers(path.read_bytes()))


def index_entries(path: Path) -> list[Entry]:
    """Of an .index file, whose last entries may be zeros: those that preallocation has left."""
    base = int(path.name.partition(".")[0])
    data = path.read_bytes()
    return [Entry(base + relative, position) for relative, position in struct.iter_unpack(">II", data) if position]


def time_entries(path: Path) -> list[Entry]:
    """Of a .timeindex file."""
    base = int(path.name.partition(".")[0])
    data = path.read_bytes()
    return [Entry(timestamp, base + relative) for timestamp, relative in struct.iter_unpack(">qI", data) if timestamp]
