"""A query's or batch job's private topic: emptied or deleted when what is in it was copied.

A query's is made when a task needs it first. A batch job's is made in the driver before its tasks, which make none: one
that lives on behind its job would leave a topic that nothing deletes.
"""

import contextlib
import logging
import time
from collections.abc import Mapping
from typing import Final

from pyspark_tidelog.sink.errors import SinkError, WriteStopped
from pyspark_tidelog.sink.options import SinkOptions
from pyspark_tidelog.sink.staged import MARK_PARTITION, Mark, decode_mark
from tidelog.client import admin
from tidelog.client.blocking import BlockingCluster
from tidelog.client.errors import ClientError
from tidelog.client.fetching import READ_COMMITTED, FetchSettings
from tidelog.client.offsets import delete_records
from tidelog.client.operations import Operation
from tidelog.client.routing import Routing
from tidelog.client.security import ClientSecurity
from tidelog.client.views import TopicView
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from tidelog.records.aborted_transactions import AbortedTransactions
from tidelog.records.columns import Column, decode_columns

logger: Final = logging.getLogger(__name__)

MESSAGE_BYTES_MAX: Final = 100_000_000
"""The target's own bound is the one that counts; this much one request may have (socket.request.max.bytes)."""
SEGMENT_BYTES: Final = 128 << 20
"""What was copied is deleted by whole segments."""
OPEN_WAIT_S: Final = 5.0
"""For a transaction that is open in the mark's partition: one that is decided has its markers in a moment."""
OPEN_PAUSE_S: Final = 0.1
"""Between two looks at it: a broker tells no client when a transaction ends."""
JOB_RETENTION_MS: Final = 7 * 24 * 3600 * 1000
"""For what a batch job leaves behind whose driver was killed."""


def open_cluster(options: SinkOptions) -> BlockingCluster:
    """A client for these options; connects when first asked something."""
    return BlockingCluster(
        options.bootstrap,
        client_id=options.client_id,
        call_timeout_s=options.request_timeout_ms / 1000,
        operation_timeout_s=max(options.delivery_timeout_ms, options.request_timeout_ms) / 1000,
        security=ClientSecurity.from_properties(dict(options.security)),
    )


def make_private_topic(cluster: BlockingCluster, options: SinkOptions, name: str, *, is_query: bool) -> int:
    """Creates the topic unless it is there; how many partitions it has for staged batches.

    One that is there keeps its partitions, whatever the options say now. KafkaError where the cluster does not let it.
    """
    view = cluster.run(admin.describe_topics(cluster.routing, [name]))[name]
    if isinstance(view, KafkaError):
        if view.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise view
        _create(cluster, options, name, is_query=is_query)
        view = cluster.topics([name])[name]
    return _staging_partitions(view)


def await_private_topic(cluster: BlockingCluster, options: SinkOptions, name: str) -> int:
    """As `make_private_topic`, of a batch job's: SinkError where no broker knows it for `kafka.request.timeout.ms`."""
    return _staging_partitions(cluster.run(_awaited(cluster.routing, name, options.request_timeout_ms / 1000)))


def _awaited(routing: Routing, name: str, timeout_s: float) -> Operation[TopicView]:
    deadline = routing.deadline(timeout_s)
    attempt = 0
    while True:
        view = (yield from admin.describe_topics(routing, [name]))[name]
        if not isinstance(view, KafkaError):
            return view
        if view.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise view
        attempt += 1
        if not (yield from routing.pause(attempt, deadline)):
            raise SinkError(f"topic '{name}', in which the batch write is staged, is gone: the write is over") from view


def _staging_partitions(view: TopicView) -> int:
    staging_partitions = len(view.partitions) - 1
    if staging_partitions < 1:
        raise SinkError(f"topic '{view.name}' has one partition: it is no private topic of a write")
    return staging_partitions


def _create(cluster: BlockingCluster, options: SinkOptions, name: str, *, is_query: bool) -> None:
    topic = admin.NewTopic(
        name,
        partitions=1 + options.staging_partitions,
        replication_factor=options.staging_replication_factor,
        configs={
            "cleanup.policy": "delete",
            # The mark of a query must not expire, however long the query stands still.
            "retention.ms": "-1" if is_query else str(JOB_RETENTION_MS),
            "retention.bytes": "-1",
            "segment.bytes": str(SEGMENT_BYTES),
            "max.message.bytes": str(MESSAGE_BYTES_MAX),
            # Staged batches are known by their checksums: brokers must leave them as they are.
            "compression.type": "producer",
            "message.timestamp.type": "CreateTime",
        },
    )
    outcome = cluster.run(admin.create_topics(cluster.routing, [topic]))[name]
    if isinstance(outcome, KafkaError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
        outcome.add_note(f"'{name}' is the private topic in which a write of exactly once is staged")
        raise outcome


def read_mark(cluster: BlockingCluster, topic: str) -> tuple[Mark | None, int]:
    """The batch that was written last, None where there is no mark; and where the next mark will be.

    To be asked once the transactional id is taken over: no transaction of that id is open then. WriteStopped where one
    of another id is, which may be decided already.
    """
    partition = TopicPartition(topic, MARK_PARTITION)
    deadline = time.monotonic() + OPEN_WAIT_S
    while (end := _decided_end(cluster, partition)) is None:
        if time.monotonic() >= deadline:
            raise WriteStopped(
                "a driver with another transactional id writes a batch of the same query, or was killed doing so:"
                f" {partition} has an open transaction. Start the query again when that driver is gone, at the latest"
                " kafka.transaction.timeout.ms later"
            )
        time.sleep(OPEN_PAUSE_S)
    start = cluster.offsets({partition: EARLIEST_TIMESTAMP})[partition].offset
    last: bytes | None = None
    is_there = False
    for data in cluster.iterate_fetch(partition, start, end, FetchSettings(isolation=READ_COMMITTED)):
        columns = decode_columns(
            data.records,
            start_offset=data.fetch_offset,
            end_offset=end,
            columns=Column.VALUE,
            aborted=AbortedTransactions(data.aborted),
        )
        if columns.rows and columns.value is not None:
            is_there = True
            offsets = memoryview(columns.value.offsets).cast("B").cast("i")
            content = memoryview(columns.value.data or b"").cast("B")
            last = bytes(content[offsets[columns.rows - 1] : offsets[columns.rows]])
    return decode_mark(last, topic) if is_there else None, end


def _decided_end(cluster: BlockingCluster, partition: TopicPartition) -> int | None:
    """Where a partition ends; None while it has an open transaction."""
    end = cluster.offsets({partition: LATEST_TIMESTAMP})[partition].offset
    stable = cluster.offsets({partition: LATEST_TIMESTAMP}, isolation=READ_COMMITTED)[partition].offset
    return None if stable < end else end


def delete_staged(cluster: BlockingCluster, topic: str, ends: Mapping[int, int]) -> None:
    """Deletes a query's records that are of no more use. What goes wrong is only logged: nothing depends on it."""
    positions = {TopicPartition(topic, partition): end for partition, end in ends.items()}
    try:
        outcomes = cluster.run(delete_records(cluster.routing, positions))
    except (KafkaError, ClientError) as error:
        logger.warning("staged records not deleted: topic=%s error=%s", topic, error)
        return
    for partition, outcome in outcomes.items():
        if isinstance(outcome, KafkaError):
            logger.warning("staged records not deleted: partition=%s error=%s", partition, outcome)


def delete_private_topic(cluster: BlockingCluster, topic: str) -> None:
    """Deletes a batch job's topic. What goes wrong is only logged: its records expire."""
    outcome: KafkaError | ClientError | None = None
    try:
        outcome = cluster.run(admin.delete_topics(cluster.routing, [topic])).get(topic)
    except (KafkaError, ClientError) as error:
        outcome = error
    is_gone = isinstance(outcome, KafkaError) and outcome.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if outcome is not None and not is_gone:
        logger.warning("private topic not deleted: topic=%s error=%s", topic, outcome)


def message_bytes_max(cluster: BlockingCluster, topic: str) -> int | None:
    """A topic's max.message.bytes; None where the cluster does not tell."""
    resource = admin.ConfigResource(admin.ResourceType.TOPIC, topic)
    with contextlib.suppress(KafkaError, ClientError, ValueError):
        entries = cluster.run(admin.describe_configs(cluster.routing, [resource], keys=["max.message.bytes"]))[resource]
        if not isinstance(entries, KafkaError):
            for entry in entries:
                if entry.name == "max.message.bytes" and entry.value is not None:
                    return int(entry.value)
    return None
