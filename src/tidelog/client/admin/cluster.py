"""The cluster itself and its disks. No I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from tidelog.client.admin.answers import ask_broker, error_of
from tidelog.client.operations import Operation
from tidelog.client.routing import Routing
from tidelog.client.views import Broker
from tidelog.model.errors import ErrorCode, KafkaError, error_code
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterView:
    """A cluster as Metadata shows it; the controller is -1 while there is none."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[Broker, ...]


def describe_cluster(routing: Routing, *, timeout_s: float | None = None) -> Operation[ClusterView]:
    """The cluster's id, controller and live brokers, sorted by id."""
    yield from routing.refresh((), routing.deadline(timeout_s))
    brokers = tuple(routing.brokers[broker_id] for broker_id in sorted(routing.brokers))
    return ClusterView(routing.cluster_id, routing.controller_id, brokers)


@dataclasses.dataclass(frozen=True, slots=True)
class ReplicaOnDisk:
    """A replica in a log directory: its bytes, and how far it lags (records) behind what it follows or replaces."""

    size: int
    offset_lag: int
    is_future: bool


@dataclasses.dataclass(frozen=True, slots=True)
class LogDirectory:
    """A log directory of a broker. Sizes of the file system are in bytes, -1 where the broker does not tell."""

    path: str
    error: ErrorCode
    replicas: Mapping[TopicPartition, ReplicaOnDisk]
    total_bytes: int = -1
    usable_bytes: int = -1


def describe_log_dirs(
    routing: Routing,
    broker_ids: Collection[int] | None = None,
    *,
    timeout_s: float | None = None,
) -> Operation[dict[int, list[LogDirectory] | KafkaError]]:
    """The log directories of brokers (None: all), [broker] -> directories; KafkaError for one that is not there."""
    deadline = routing.deadline(timeout_s)
    yield from routing.refresh((), deadline)
    wanted = sorted(routing.brokers) if broker_ids is None else list(broker_ids)
    results: dict[int, list[LogDirectory] | KafkaError] = {}
    for broker_id in wanted:
        if broker_id not in routing.brokers:
            results[broker_id] = KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"there is no live broker {broker_id}")
            continue
        response = yield from ask_broker(routing, broker_id, messages.DescribeLogDirsRequest(topics=None), deadline)
        results[broker_id] = error_of(response.error_code, None, f"broker {broker_id}") or [
            _log_directory(entry) for entry in response.results
        ]
    return results


def _log_directory(entry: Any) -> LogDirectory:
    return LogDirectory(
        path=entry.log_dir,
        error=error_code(entry.error_code),
        replicas={
            TopicPartition(topic.name, replica.partition_index): ReplicaOnDisk(
                replica.partition_size, replica.offset_lag, replica.is_future_key
            )
            for topic in entry.topics
            for replica in topic.partitions
        },
        total_bytes=entry.total_bytes,
        usable_bytes=entry.usable_bytes,
    )


def alter_replica_log_dirs(
    routing: Routing,
    broker_id: int,
    directories: Mapping[TopicPartition, str],
    *,
    timeout_s: float | None = None,
) -> Operation[dict[TopicPartition, KafkaError | None]]:
    """Has a broker move replicas of its own to other log directories (KIP-113); each one's error or None.

    It answers when the moves have begun: `describe_log_dirs` shows how far they are. A replica that the broker does not
    have yet is REPLICA_NOT_AVAILABLE, and is created in that directory when it comes. The directory in which a replica
    lies ends its move to another one. KafkaError BROKER_NOT_AVAILABLE where the broker is not live.
    """
    deadline = routing.deadline(timeout_s)
    if broker_id not in routing.brokers:
        yield from routing.refresh((), deadline)
    kind = messages.AlterReplicaLogDirsRequest
    by_path: dict[str, dict[str, list[int]]] = {}
    for (topic, index), path in directories.items():
        by_path.setdefault(path, {}).setdefault(topic, []).append(index)
    request = kind(
        dirs=[
            kind.AlterReplicaLogDir(
                path=path,
                topics=[kind.AlterReplicaLogDirTopic(name=name, partitions=each) for name, each in topics.items()],
            )
            for path, topics in by_path.items()
        ]
    )
    response = yield from ask_broker(routing, broker_id, request, deadline)
    return {
        TopicPartition(topic.topic_name, entry.partition_index): error_of(
            entry.error_code, None, f"{topic.topic_name}-{entry.partition_index} on broker {broker_id}"
        )
        for topic in response.results
        for entry in topic.partitions
    }
