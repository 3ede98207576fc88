"""What tests on Spark share: one session for all of them, a broker, and topics with records in them."""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.waiting import until

from pyspark_tidelog.connections import close_idle
from tidelog.client import admin
from tidelog.client.blocking import BlockingCluster
from tidelog.client.fetching import READ_COMMITTED
from tidelog.client.offsets import list_offsets
from tidelog.model.identifiers import LATEST_TIMESTAMP, TopicPartition
from tidelog.pipeline.session import spark_session
from tidelog.records.batch import build_batch
from tidelog.records.compression import Codec
from tidelog.records.record import Header, Record
from tidelog.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BASE_TIMESTAMP = time.time_ns() // 1_000_000_000 * 1000 - 3_600_000
"""An hour ago, in ms: records must not be old enough for retention to take them."""


class Broker:
    """A cluster to read from, and what tests do to it."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.client = BlockingCluster(bootstrap)

    def topic(self, partitions: int = 1, name: str | None = None) -> str:
        """A new topic, of a name that no other test uses."""
        chosen = name or f"t-{uuid.uuid4().hex[:12]}"
        results = self.client.run(admin.create_topics(self.client.routing, [admin.NewTopic(chosen, partitions, 1)]))
        for result in results.values():
            if isinstance(result, Exception):
                raise result
        self._wait_for(chosen, partitions)
        return chosen

    def delete(self, topic: str) -> None:
        """Returns when no leader answers for the topic any more: Apache Kafka answers before its brokers have removed
        its logs, and they tell offsets of them until then."""
        partitions = [TopicPartition(topic, number) for number in self.client.partitions([topic])[topic]]
        for error in self.client.run(admin.delete_topics(self.client.routing, [topic])).values():
            if error is not None:
                raise error
        until(lambda: not self._answered(partitions), f"{topic} is gone")

    def _answered(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those whose leader tells their end."""
        found = self.client.run(list_offsets(self.client.routing, dict.fromkeys(partitions, LATEST_TIMESTAMP)))
        return [each for each, result in found.items() if not isinstance(result, Exception)]

    def grow(self, topic: str, partitions: int) -> None:
        results = self.client.run(admin.create_partitions(self.client.routing, {topic: partitions}))
        for result in results.values():
            if isinstance(result, Exception):
                raise result
        self._wait_for(topic, partitions)

    def _wait_for(self, topic: str, partitions: int) -> None:
        """Apache Kafka answers before its brokers know of new partitions."""
        until(
            lambda: len(self.client.partitions(re.compile(re.escape(topic))).get(topic, ())) == partitions,
            f"{topic} has {partitions} partitions",
        )

    def forget(self, topic: str, partition: int, before: int) -> None:
        """DeleteRecords: the log then starts at `before`."""
        from tidelog.client.offsets import delete_records

        for result in self.client.run(
            delete_records(self.client.routing, {TopicPartition(topic, partition): before})
        ).values():
            if isinstance(result, Exception):
                raise result

    def produce(
        self, topic: str, values: Iterable[bytes | None], *, partition: int = 0, codec: Codec = Codec.NONE
    ) -> None:
        """A batch with these values; keys count from k0, timestamps by a second each from `BASE_TIMESTAMP`."""
        rows = [(f"k{index}".encode(), value, ()) for index, value in enumerate(values)]
        self.produce_records(topic, rows, partition=partition, codec=codec)

    def produce_records(
        self,
        topic: str,
        rows: Sequence[tuple[bytes | None, bytes | None, Sequence[Header]]],
        *,
        partition: int = 0,
        codec: Codec = Codec.NONE,
    ) -> None:
        records = [
            Record(index, BASE_TIMESTAMP + 1000 * index, key, value, headers)
            for index, (key, value, headers) in enumerate(rows)
        ]
        self.client.produce(TopicPartition(topic, partition), build_batch(records, codec=codec))

    def settle(self, topic: str) -> None:
        """Waits until no transaction is open in the topic: markers come moments after a commit is decided."""
        partitions = [TopicPartition(topic, number) for number in self.client.partitions([topic])[topic]]
        question = dict.fromkeys(partitions, -1)
        deadline = time.monotonic() + 20
        while self.client.offsets(question, isolation=READ_COMMITTED) != self.client.offsets(question):
            assert time.monotonic() < deadline, f"a transaction stays open in {topic}"

    def options(self, topic: str, **options: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic} | options

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """[partition] -> offset."""
        found = self.client.committed_offsets(group)
        return {each.partition: commit.offset for each, commit in found.items() if each.topic == topic}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session of this process; its JVM ends with the tests."""
    scratch: Path = tmp_path_factory.mktemp("spark")
    session = spark_session(
        "tests",
        cores=2,
        scratch=scratch,
        settings={
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        },
    )
    yield session
    stop_spark(session)


def stop_spark(session: SparkSession) -> None:
    """Ends the session and its JVM, which otherwise lives until this process ends; once, though two folders' tests
    ask."""
    from pyspark import SparkContext

    if SparkContext._active_spark_context is None:
        return
    gateway: Any = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(180)
    SparkContext._gateway = None
    SparkContext._jvm = None


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """A broker in this process; or, for conformance, the cluster that TIDELOG_TEST_BOOTSTRAP names."""
    given = os.environ.get("TIDELOG_TEST_BOOTSTRAP")
    if given:
        tester = Broker(given)
        yield tester
        tester.client.close()
        return
    with Cluster() as cluster:
        tester = Broker(cluster.bootstrap)
        yield tester
        close_idle()
        tester.client.close()
