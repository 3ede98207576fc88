"""What goes in, and whether what came out is right: every record doubled, once."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

RECORDS: Final = 500
PARTITIONS: Final = 3
DEADLINE_S: Final = 240.0
"""From the start of the software until all has come out; most of it is its own start on a busy machine."""
SETTLE_S: Final = 3.0
"""Then what comes twice has come."""
EXPECTED: Final = Counter(2 * number for number in range(RECORDS))


class Wrong(AssertionError):
    """What came out is not what should; the text says in which way."""


def doubled() -> list[int]:
    """What a right output has, in the order of the input."""
    return [2 * number for number in range(RECORDS)]


def prepare(bootstrap: str, source: str, sink: str) -> None:
    """Makes both topics, and fills the first one with 0, 1, 2, ... as JSON. Wrong."""
    make_topic(bootstrap, sink)
    fill(bootstrap, source, range(RECORDS))


def make_topic(bootstrap: str, topic: str, replicas: int = 3) -> None:
    """With PARTITIONS partitions. KafkaException."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, replicas)]).values():
        future.result(30)


def fill(bootstrap: str, topic: str, values: Iterable[int], replicas: int = 3) -> None:
    """Makes the topic, with these values. Wrong."""
    make_topic(bootstrap, topic, replicas)
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, str(value).encode(), key=f"key-{value % 7}".encode())
    if producer.flush(60):
        raise Wrong(f"topic {topic} could not be written")


def judge(bootstrap: str, sink: str, still_runs: Callable[[], bool]) -> None:
    """Returns when the output is complete and right. Wrong.

    `still_runs`: whether more may come; software that ends by itself is judged by what it has left.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(sink, partition, 0) for partition in range(PARTITIONS)])
    found: Counter[int] = Counter()
    deadline = time.monotonic() + DEADLINE_S
    settled = None
    try:
        while settled is None or time.monotonic() < settled:
            ran = still_runs()
            messages = consumer.consume(500, 0.5)
            for message in messages:
                if message.error() is None:
                    found[_number(json.loads(message.value()))] += 1
            if settled is None and (found.keys() >= EXPECTED.keys() or (not ran and not messages)):
                settled = time.monotonic() + SETTLE_S
            if settled is None and time.monotonic() > deadline:
                break
    finally:
        consumer.close()
    if found != EXPECTED:
        missing, extra = EXPECTED - found, found - EXPECTED
        raise Wrong(f"{missing.total()} records are missing, {extra.total()} are too many")


def _number(value: Any) -> int:
    """Some software wraps a value in an object of its own."""
    return int(value["value"] if isinstance(value, dict) else value)
