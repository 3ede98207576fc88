"""Produce requests of prebuilt batches, as an operation. No I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tidelog.client.leader_hints import LeaderHint, hints
from tidelog.client.offsets import by_topic
from tidelog.client.operations import Operation
from tidelog.client.routing import Routing
from tidelog.model.errors import ErrorCode, KafkaError, error_code
from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicId, TopicPartition
from tidelog.ports.disk import Bytes
from tidelog.protocol import messages

REQUEST_BYTES: Final = 1 << 20
"""Of batches for one leader in a request. A broker does half as much work for four requests of this size, which are
sent one behind the other, as for one of 4 MiB: what it receives, checks and writes stays in the processor's caches."""


@dataclasses.dataclass(frozen=True, slots=True)
class ProducedBatch:
    """Where batches went. -1 stands for what is not known, as after acks=0 all of it."""

    base_offset: int = -1
    log_append_time: int = -1
    """Milliseconds since 1970, where the topic's timestamps are the broker's."""
    log_start_offset: int = -1


@dataclasses.dataclass(frozen=True, slots=True)
class Produced:
    """What a leader says of one partition's batch. `record_errors`: [place in it] -> what is wrong there (KIP-467)."""

    topic_partition: TopicPartition
    code: ErrorCode
    text: str | None
    result: ProducedBatch
    record_errors: Mapping[int, str]
    leader: LeaderHint | None = None
    """Which other broker leads the partition, where the answer says so."""


def produce_request(
    routing: Routing,
    batches: Mapping[TopicPartition, Bytes],
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


def shares_of(batches: dict[TopicPartition, Bytes]) -> Iterator[dict[TopicPartition, Bytes]]:
    """The batches for one leader in shares of `REQUEST_BYTES` at most; a larger batch is one of its own."""
    share: dict[TopicPartition, Bytes] = {}
    size = 0
    for topic_partition, batch in batches.items():
        if share and size + len(batch) > REQUEST_BYTES:
            yield share
            share, size = {}, 0
        share[topic_partition] = batch
        size += len(batch)
    if share:
        yield share


def names_by_id(request: Any) -> dict[TopicId, str]:
    """The topics of a produce request, by the ids that it names."""
    return {topic.topic_id: topic.name for topic in request.topic_data if topic.topic_id != ZERO_TOPIC_ID}


def produced(
    response: Any, names: Mapping[TopicId, str], batches: Mapping[TopicPartition, Bytes]
) -> Iterator[Produced]:
    """The partitions of a response to `produce_request`; None as response stands for acks=0.

    `names` are those of the request, whatever Metadata has shown since. What the request named by no id is left out:
    its topic was not known then, and no broker has appended to it.
    """
    if response is None:
        for topic_partition in batches:
            yield Produced(topic_partition, ErrorCode.NONE, None, ProducedBatch(), {})
        return
    leader_of = hints(response)
    for topic in response.responses:
        name = topic.name or names.get(topic.topic_id)
        if name is None:
            continue
        for entry in topic.partition_responses:
            yield Produced(
                TopicPartition(name, entry.index),
                error_code(entry.error_code),
                entry.error_message,
                ProducedBatch(entry.base_offset, entry.log_append_time_ms, entry.log_start_offset),
                {
                    each.batch_index: each.batch_index_error_message or entry.error_message or "no reason given"
                    for each in entry.record_errors
                },
                leader_of(entry),
            )


def produce_batches(
    routing: Routing,
    batches: Mapping[TopicPartition, Bytes],
    *,
    acks: int = -1,
    timeout_s: float | None = None,
) -> Operation[dict[TopicPartition, ProducedBatch | KafkaError]]:
    """Appends prebuilt batches, each partition's at its leader, again after errors that may pass."""
    deadline = routing.deadline(timeout_s)
    names: dict[TopicId, str] = {}

    def build(group: Mapping[TopicPartition, Bytes]) -> Any:
        request = produce_request(routing, group, acks=acks, timeout_ms=int(routing.call_timeout_s * 1000))
        names.update(names_by_id(request))
        return request

    def parse(response: Any) -> Iterator[tuple[TopicPartition, ErrorCode, str | None, ProducedBatch]]:
        for each in produced(response, names, batches):
            yield each.topic_partition, each.code, each.text, each.result

    return (yield from routing.ask_leaders(batches, build, parse, deadline, shares_of))
