"""A topic of its own with a query that writes into it, for tests without Spark."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

import pyarrow as pa
from tests.unit.pyspark_tidelog.spark_fixtures import Broker

from pyspark_tidelog.sink.copying import begin_batch_job, commit_micro_batch
from pyspark_tidelog.sink.options import SinkOptions, parse_sink_options
from pyspark_tidelog.sink.staged import Decision, StagedWrite
from pyspark_tidelog.sink.task import stage
from tidelog.client import admin
from tidelog.client.fetching import READ_COMMITTED, FetchSettings
from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.records.aborted_transactions import AbortedTransactions
from tidelog.records.columns import decode_columns


class Site:
    """A topic, a query that writes into it, and a reader of committed records."""

    def __init__(self, broker: Broker, partitions: int = 2, *, replicas: int = 1, **options: str) -> None:
        self._broker = broker
        self.client = broker.client
        self.topic = f"t-{uuid.uuid4().hex[:10]}"
        self.query = uuid.uuid4().hex
        self.partitions = partitions
        self._replicas = replicas
        self._is_begun = False
        self.create(self.topic, partitions)
        self.options = parse_sink_options(
            {
                "kafka.bootstrap.servers": broker.bootstrap,
                "topic": self.topic,
                "stagingPartitions": "2",
                "partitioner": "round_robin",
                "kafka.batch.size": "200",
            }
            | options
        )

    def create(self, topic: str, partitions: int, **configs: str) -> None:
        new = admin.NewTopic(
            topic, partitions, self._replicas, configs={key.replace("_", "."): text for key, text in configs.items()}
        )
        outcome = self.client.run(admin.create_topics(self.client.routing, [new]))[topic]
        assert not isinstance(outcome, KafkaError), outcome

    def attempt(
        self, batch: int, *values: str, is_query: bool = True, options: SinkOptions | None = None
    ) -> StagedWrite:
        """A task attempt that stages these rows."""
        return self.attempt_of(batch, [rows_of(values)], is_query=is_query, options=options)

    def attempt_of(
        self,
        batch: int,
        rows: Iterable[pa.RecordBatch],
        *,
        is_query: bool = True,
        options: SinkOptions | None = None,
    ) -> StagedWrite:
        """The same of Spark's batches, as they come."""
        if not is_query and not self._is_begun:
            self._is_begun = True
            begin_batch_job(self.options, self.options.staging_prefix + self.query)
        return stage(options or self.options, ("value",), rows, query=self.query, batch=batch, is_query=is_query)

    def commit(self, batch: int, *writes: StagedWrite) -> Decision:
        return commit_micro_batch(self.options, writes, batch)

    def committed(self, topic: str | None = None) -> list[str]:
        """The values that a reader of committed records sees when no transaction is open any more, without an order."""
        self._broker.settle(topic or self.topic)
        return self.committed_so_far(topic)

    def committed_so_far(self, topic: str | None = None) -> list[str]:
        """The same, while a transaction may be open."""
        found: list[str] = []
        for number in range(self.partitions):
            partition = TopicPartition(topic or self.topic, number)
            end = self.client.offsets({partition: -1}, isolation=READ_COMMITTED)[partition].offset
            for data in self.client.iterate_fetch(partition, 0, end, FetchSettings(isolation=READ_COMMITTED)):
                columns = decode_columns(data.records, end_offset=end, aborted=AbortedTransactions(data.aborted))
                assert columns.value is not None
                offsets = memoryview(columns.value.offsets).cast("B").cast("i")
                content = bytes(columns.value.data or b"")
                found += [content[offsets[row] : offsets[row + 1]].decode() for row in range(columns.rows)]
        return sorted(found)


def rows_of(values: Iterable[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([value.encode() for value in values])], ["value"])


def values(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number:04}" for number in range(count)]
