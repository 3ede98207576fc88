"""The answers as records: Spark writes them into a topic, exactly once, and an unchanged client reads them."""

import json
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidelog.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.pipeline.demo.questions import Answers

TOPIC: Final = "answers"
PARTITIONS: Final = 3
_READ_S_MAX: Final = 30.0


@dataclass(frozen=True, slots=True)
class Published:
    """What was written, and what a consumer of committed records saw of it."""

    rows: int
    sample: tuple[str, str]
    """Key and value of one record, as the consumer got them."""
    faults: tuple[str, ...]


def rows_of(answers: "Answers") -> list[tuple[str, str]]:
    """Key and value of each answer: `airline/Delta Air Lines Inc.`, and the row as JSON."""
    kinds = (("airline", "name", answers.airlines), ("destination", "faa", answers.destinations))
    return [
        (f"{kind}/{row[name]}", json.dumps(row.asDict(), sort_keys=True, default=float))
        for kind, name, rows in kinds
        for row in rows
    ]


def publish(spark: "SparkSession", address: str, rows: list[tuple[str, str]]) -> None:
    """Writes the rows in one transaction: readers of committed records see all of them, or none."""
    spark.createDataFrame(rows, "key string, value string").write.format("tidelog").mode("append").options(
        **{"kafka.bootstrap.servers": address, "topic": TOPIC, "kafka.compression.type": "lz4"}
    ).save()


def consume(address: str, rows: list[tuple[str, str]]) -> Published:
    """Reads the topic with confluent-kafka to its end and compares."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "answers-demo",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([TOPIC])
    seen: Counter[tuple[str, str]] = Counter()
    ended: set[int | None] = set()
    deadline = time.monotonic() + _READ_S_MAX
    try:
        # The transaction is decided before its markers are in all partitions: an end may be reached too early.
        while len(ended) < PARTITIONS or seen.total() < len(rows):
            if time.monotonic() > deadline:
                if len(ended) == PARTITIONS:
                    break
                raise PipelineError(f"topic {TOPIC} could not be read to its end within {_READ_S_MAX:g} s")
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error() is not None:
                ended.add(message.partition())
            else:
                seen[(message.key() or b"").decode(), (message.value() or b"").decode()] += 1
    finally:
        consumer.close()
    return Published(len(rows), next(iter(seen), ("", "")), tuple(_faults(rows, seen)))


def _faults(rows: list[tuple[str, str]], seen: Counter[tuple[str, str]]) -> list[str]:
    missing = [key for key, _ in (Counter(rows) - seen)]
    extra = [key for key, _ in (seen - Counter(rows))]
    return [
        f"{TOPIC}: {len(keys)} answers are {what}, such as {keys[0]}"
        for what, keys in (("missing", missing), ("there twice, or changed", extra))
        if keys
    ]
