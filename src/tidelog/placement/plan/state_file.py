"""A cluster's state as a JSON document: written by `tidelog plan --save-state`, by hand, or taken from a bundle.

    {"format": "tidelog-state", "version": 1, "cluster_id": "...", "taken_at_ms": 0,
     "brokers": [{"id": 0, "rack": "a", "log_dirs": [{"path": "/d", "total_bytes": 1000, "usable_bytes": 900}]}],
     "topics": [{"name": "t", "partitions": [{"partition": 0, "replicas": [0], "log_dirs": ["/d"], "bytes": [100]}]}]}

Only `version`, the brokers' ids, the topics' names and the partitions' numbers and replicas must be there.
"""

from __future__ import annotations

from typing import Any, Final

from tidelog.model.identifiers import TopicPartition
from tidelog.placement.plan.documents import DocumentError, Fields, check_head, dump, parse
from tidelog.placement.plan.state import (
    BROKER_ID_MAX,
    BrokerState,
    ClusterState,
    DirectoryMoveState,
    DirectoryState,
    PartitionState,
    ReassignmentState,
    TopicState,
)

FORMAT: Final = "tidelog-state"
VERSION: Final = 1


def dump_state(state: ClusterState) -> str:
    """The state as text; `load_state` gives it back."""
    partitions: dict[str, list[dict[str, Any]]] = {name: [] for name in state.topics}
    for partition in state.partitions.values():
        partitions[partition.topic].append(_partition_document(partition))
    return dump(
        {
            "format": FORMAT,
            "version": VERSION,
            "cluster_id": state.cluster_id,
            "taken_at_ms": state.taken_at_ms,
            "missing": list(state.missing),
            "brokers": [_broker_document(broker) for broker in state.brokers.values()],
            "topics": [
                {
                    "name": topic.name,
                    "id": topic.id,
                    "internal": topic.internal,
                    "min_insync_replicas": topic.min_insync_replicas,
                    "throttles": dict(topic.throttles),
                    "partitions": partitions[topic.name],
                }
                for topic in state.topics.values()
            ],
            "reassignments": [
                {"topic": key.topic, "partition": key.partition, "adding": each.adding, "removing": each.removing}
                for key, each in state.reassignments.items()
            ],
            "directory_moves": [
                {
                    "topic": move.topic,
                    "partition": move.partition,
                    "broker": move.broker,
                    "log_dir": move.path,
                    "bytes_done": move.bytes_done,
                }
                for move in state.directory_moves
            ],
        }
    )


def load_state(text: str | bytes) -> ClusterState:
    """The state that a document describes. DocumentError, naming the place, where it is none."""
    fields = parse(text, "a state")
    check_head(fields, FORMAT, VERSION, format_required=False)
    topics = fields.objects("topics", _topic)
    reassignments = fields.objects("reassignments", _reassignment, optional=True)
    if len(dict(reassignments)) != len(reassignments):
        raise DocumentError("reassignments: a partition is there twice")
    return ClusterState.of(
        cluster_id=fields.optional_text("cluster_id"),
        taken_at_ms=fields.optional_integer("taken_at_ms") or 0,
        brokers=fields.objects("brokers", _broker),
        topics=[topic for topic, _ in topics],
        partitions=[partition for _, partitions in topics for partition in partitions],
        reassignments=dict(reassignments),
        directory_moves=fields.objects("directory_moves", _directory_move, optional=True),
        missing=fields.texts("missing"),
    )


def _broker_document(broker: BrokerState) -> dict[str, Any]:
    return {
        "id": broker.id,
        "rack": broker.rack,
        "online": broker.online,
        "cordoned": broker.cordoned,
        "log_dirs": [
            {
                "path": directory.path,
                "total_bytes": directory.total_bytes,
                "usable_bytes": directory.usable_bytes,
                "error": directory.error,
                "cordoned": directory.cordoned,
            }
            for directory in broker.directories
        ],
        "throttles": dict(broker.throttles),
    }


def _partition_document(partition: PartitionState) -> dict[str, Any]:
    document: dict[str, Any] = {
        "partition": partition.partition,
        "replicas": partition.replicas,
        "leader": partition.leader,
        "isr": partition.isr,
    }
    if partition.directories:
        document["log_dirs"] = partition.directories
    if partition.sizes:
        document["bytes"] = partition.sizes
    if partition.bytes_in_per_s is not None:
        document["bytes_in_per_s"] = partition.bytes_in_per_s
    if partition.bytes_out_per_s is not None:
        document["bytes_out_per_s"] = partition.bytes_out_per_s
    return document


def _broker(fields: Fields) -> BrokerState:
    return BrokerState(
        id=fields.integer("id", high=BROKER_ID_MAX),
        rack=fields.optional_text("rack"),
        online=fields.flag("online", True),
        cordoned=fields.flag("cordoned", False),
        directories=fields.objects("log_dirs", _directory, optional=True),
        throttles=fields.text_map("throttles"),
    )


def _directory(fields: Fields) -> DirectoryState:
    return DirectoryState(
        path=fields.text("path"),
        total_bytes=fields.optional_integer("total_bytes"),
        usable_bytes=fields.optional_integer("usable_bytes"),
        error=fields.optional_text("error"),
        cordoned=fields.flag("cordoned", False),
    )


def _topic(fields: Fields) -> tuple[TopicState, tuple[PartitionState, ...]]:
    topic = TopicState(
        name=fields.text("name"),
        id=fields.optional_text("id"),
        internal=fields.flag("internal", False),
        min_insync_replicas=fields.optional_integer("min_insync_replicas", low=1),
        throttles=fields.text_map("throttles"),
    )
    return topic, fields.objects("partitions", lambda each: _partition(topic.name, each))


def _partition(topic: str, fields: Fields) -> PartitionState:
    replicas = fields.integers("replicas")
    preferred = replicas[0] if replicas else -1
    return PartitionState(
        topic=topic,
        partition=fields.integer("partition", high=BROKER_ID_MAX),
        replicas=replicas,
        leader=fields.integer("leader", low=-1, high=BROKER_ID_MAX) if "leader" in fields else preferred,
        isr=fields.integers("isr") if "isr" in fields else replicas,
        directories=fields.optional_texts("log_dirs") or (),
        sizes=fields.optional_integers("bytes") or (),
        bytes_in_per_s=fields.optional_number("bytes_in_per_s"),
        bytes_out_per_s=fields.optional_number("bytes_out_per_s"),
    )


def _reassignment(fields: Fields) -> tuple[TopicPartition, ReassignmentState]:
    key = TopicPartition(fields.text("topic"), fields.integer("partition", high=BROKER_ID_MAX))
    return key, ReassignmentState(fields.integers("adding"), fields.integers("removing"))


def _directory_move(fields: Fields) -> DirectoryMoveState:
    return DirectoryMoveState(
        topic=fields.text("topic"),
        partition=fields.integer("partition", high=BROKER_ID_MAX),
        broker=fields.integer("broker", high=BROKER_ID_MAX),
        path=fields.text("log_dir"),
        bytes_done=fields.optional_integer("bytes_done") or 0,
    )
