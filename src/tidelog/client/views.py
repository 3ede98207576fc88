"""The cluster as Metadata shows it: brokers, topics, partitions; and its errors in words. No I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tidelog.client.addresses import Address
from tidelog.client.errors import refusal
from tidelog.model.errors import ErrorCode, KafkaError, error_code
from tidelog.model.identifiers import TopicId, TopicPartition


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition as Metadata last showed it; `leader` -1 where there is none, `leader_epoch` -1 where unknown."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error: ErrorCode


@dataclasses.dataclass(frozen=True, slots=True)
class TopicView:
    """A topic as Metadata last showed it. `topic_id` is zero where the broker is too old to tell."""

    name: str
    topic_id: TopicId
    internal: bool
    partitions: Mapping[int, PartitionView]


@dataclasses.dataclass(frozen=True, slots=True)
class Broker:
    """A broker as Metadata last showed it."""

    broker_id: int
    address: Address
    rack: str | None


def topic_view(topic: Any) -> TopicView:
    """A topic of a Metadata response."""
    return TopicView(
        name=topic.name,
        topic_id=TopicId(bytes(topic.topic_id)),
        internal=topic.is_internal,
        partitions={
            partition.partition_index: PartitionView(
                partition=partition.partition_index,
                leader=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                replicas=tuple(partition.replica_nodes),
                isr=tuple(partition.isr_nodes),
                offline=tuple(partition.offline_replicas),
                error=error_code(partition.error_code),
            )
            for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
        },
    )


def topic_error(name: str, code: ErrorCode) -> KafkaError:
    """An error that Metadata gave for a topic, in words."""
    text: str | None
    match code:
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            text = f"topic '{name}' does not exist"
        case ErrorCode.INVALID_TOPIC_EXCEPTION:
            text = f"'{name}' is not a valid topic name"
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            text = f"not authorized to see topic '{name}'"
        case _:
            text = None
    return refusal(code, f"topic '{name}'", text, topic=name)


def partition_error(topic_partition: TopicPartition, code: ErrorCode, text: str | None) -> KafkaError:
    """An error that a broker gave for a partition, with the broker's words where it had some."""
    topic, partition = topic_partition
    return refusal(code, str(topic_partition), text, topic=topic, partition=partition)
