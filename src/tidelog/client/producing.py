"""Produce requests of prebuilt batches, as an operation. No I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from tidelog.client.offsets import by_topic
from tidelog.client.operations import Operation
from tidelog.client.routing import Routing
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages


@dataclasses.dataclass(frozen=True, slots=True)
class ProducedBatch:
    """Where batches went. -1 stands for what is not known, as after acks=0 all of it."""

    base_offset: int = -1
    log_append_time: int = -1
    """Milliseconds since 1970, where the topic's timestamps are the broker's."""
    log_start_offset: int = -1
    record_errors: Mapping[int, str] = dataclasses.field(default_factory=dict)
    """[place in a refused batch, from 0] -> what is wrong with that record (KIP-467)."""


def produce_request(
    routing: Routing,
    batches: Mapping[TopicPartition, bytes | bytearray],
    *,
    acks: int,
    timeout_ms: int = 30_000,
    transactional_id: str | None = None,
) -> Any:
    """A request that appends to each partition the batches given, all of partitions with one leader."""
    kind = messages.ProduceRequest
    return kind(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            kind.TopicProduceData(
                name=name,
                topic_id=routing.topic_id(name),
                partition_data=[
                    kind.PartitionProduceData(index=tp.partition, records=memoryview(batches[tp])) for tp in partitions
                ],
            )
            for name, partitions in by_topic(batches)
        ],
    )


def produced(
    response: Any, routing: Routing, batches: Mapping[TopicPartition, bytes | bytearray]
) -> Iterator[tuple[TopicPartition, ErrorCode, str | None, ProducedBatch]]:
    """The partitions of a response to `produce_request`; None as response stands for acks=0."""
    if response is None:
        for topic_partition in batches:
            yield topic_partition, ErrorCode.NONE, None, ProducedBatch()
        return
    for topic in response.responses:
        name = topic.name or routing.topic_name(topic.topic_id) or ""
        for entry in topic.partition_responses:
            yield (
                TopicPartition(name, entry.index),
                ErrorCode(entry.error_code),
                entry.error_message,
                ProducedBatch(
                    entry.base_offset, entry.log_append_time_ms, entry.log_start_offset, _record_errors(entry)
                ),
            )


def _record_errors(entry: Any) -> Mapping[int, str]:
    return {
        each.batch_index: each.batch_index_error_message or entry.error_message or "no reason given"
        for each in entry.record_errors
    }


def produce_batches(
    routing: Routing,
    batches: Mapping[TopicPartition, bytes | bytearray],
    *,
    acks: int = -1,
    timeout_s: float | None = None,
) -> Operation[dict[TopicPartition, ProducedBatch | KafkaError]]:
    """Appends prebuilt batches, each partition's at its leader, again after errors that may pass."""
    deadline = routing.deadline(timeout_s)
    result = yield from routing.ask_leaders(
        batches,
        lambda group: produce_request(routing, group, acks=acks, timeout_ms=int(routing.call_timeout_s * 1000)),
        lambda response: produced(response, routing, batches),
        deadline,
    )
    return result
