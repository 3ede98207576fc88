"""Topics and partitions: created, deleted, grown, described. No I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from tidelog.client.admin.answers import REQUEST_TIMEOUT_MS, error_codes, error_of
from tidelog.client.errors import ClientError, UnsupportedByBroker
from tidelog.client.exchange import ByVersion
from tidelog.client.operations import Operation
from tidelog.client.routing import Routing
from tidelog.client.views import TopicView, topic_error
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicId, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

BROKER_DEFAULT: Final = -1
"""Partitions or replication factor of a new topic: the broker's num.partitions or default.replication.factor."""


@dataclasses.dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create: counts, or (`assignment`) each partition's replicas, leader first."""

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignment: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic as created; -1 and the zero id where the broker is too old to tell."""

    name: str
    topic_id: TopicId
    partitions: int
    replication_factor: int


def create_topics(
    routing: Routing, topics: Sequence[NewTopic], *, validate_only: bool = False, timeout_s: float | None = None
) -> Operation[dict[str, CreatedTopic | KafkaError]]:
    """Creates topics, or with `validate_only` says what creating them would say.

    Where an answer was lost the request is sent again: TOPIC_ALREADY_EXISTS then says that it may be this call's.
    """
    kind = messages.CreateTopicsRequest
    request = kind(
        topics=[
            kind.CreatableTopic(
                name=topic.name,
                num_partitions=BROKER_DEFAULT if topic.assignment else topic.partitions,
                replication_factor=BROKER_DEFAULT if topic.assignment else topic.replication_factor,
                assignments=[
                    kind.CreatableReplicaAssignment(partition_index=partition, broker_ids=list(replicas))
                    for partition, replicas in sorted((topic.assignment or {}).items())
                ],
                configs=[kind.CreatableTopicConfig(name=key, value=value) for key, value in topic.configs.items()],
            )
            for topic in topics
        ],
        timeout_ms=REQUEST_TIMEOUT_MS,
        validate_only=validate_only,
    )
    lost: list[ClientError] = []
    response = yield from routing.ask_controller(
        request, routing.deadline(timeout_s), lambda answer: error_codes(answer.topics), lost=lost
    )

    def words(topic: Any) -> str | None:
        text: str | None = topic.error_message
        if lost and not validate_only and topic.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
            text = text or f"topic '{topic.name}' already exists"
            return f"{text} It may be the one that this call made: {lost[-1]}, before its first request was answered"
        return text

    return {
        topic.name: error_of(topic.error_code, words(topic), f"topic '{topic.name}'", topic=topic.name)
        or CreatedTopic(topic.name, TopicId(bytes(topic.topic_id)), topic.num_partitions, topic.replication_factor)
        for topic in response.topics
    }


def delete_topics(
    routing: Routing, names: Sequence[str], *, timeout_s: float | None = None
) -> Operation[dict[str, KafkaError | None]]:
    """Deletes topics by name; each one's error or None.

    Where an answer was lost the request is sent again: one that was in view before, and is unknown then, is deleted.
    """
    kind = messages.DeleteTopicsRequest

    def build(version: int) -> Any:
        if version < 6:
            return kind(topic_names=list(names), timeout_ms=REQUEST_TIMEOUT_MS)
        return kind(topics=[kind.DeleteTopicState(name=name) for name in names], timeout_ms=REQUEST_TIMEOUT_MS)

    request = ByVersion(ApiKey.DELETE_TOPICS, build)
    lost: list[ClientError] = []
    present = routing.topics.keys() & names
    response = yield from routing.ask_controller(
        request, routing.deadline(timeout_s), lambda answer: error_codes(answer.responses), lost=lost
    )
    for name in names:
        routing.topics.pop(name, None)
    return {
        entry.name: None
        if lost and entry.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and entry.name in present
        else error_of(entry.error_code, entry.error_message, f"topic '{entry.name}'", topic=entry.name)
        for entry in response.responses
    }


def create_partitions(
    routing: Routing,
    counts: Mapping[str, int],
    *,
    assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
    validate_only: bool = False,
    timeout_s: float | None = None,
) -> Operation[dict[str, KafkaError | None]]:
    """Grows topics to `counts` partitions in all; `assignments` [topic] -> replicas of each new partition.

    Where an answer was lost the request is sent again: a topic that had fewer partitions in view before, and has that
    many then, has grown.
    """
    kind = messages.CreatePartitionsRequest
    chosen = assignments or {}
    request = kind(
        topics=[
            kind.CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=[kind.CreatePartitionsAssignment(broker_ids=list(replicas)) for replicas in chosen[name]]
                if name in chosen
                else None,
            )
            for name, count in counts.items()
        ],
        timeout_ms=REQUEST_TIMEOUT_MS,
        validate_only=validate_only,
    )
    deadline = routing.deadline(timeout_s)
    lost: list[ClientError] = []
    smaller = {name for name in counts if name in routing.topics and _partitions(routing, name) < counts[name]}
    response = yield from routing.ask_controller(
        request, deadline, lambda answer: error_codes(answer.results), lost=lost
    )
    for name in counts:
        routing.topics.pop(name, None)
    refused = [entry.name for entry in response.results if entry.error_code == ErrorCode.INVALID_PARTITIONS]
    doubtful = smaller.intersection(refused) if lost and not validate_only else ()
    if doubtful:
        yield from routing.refresh(doubtful, deadline)
    grown = {name for name in doubtful if _partitions(routing, name) == counts[name]}
    return {
        entry.name: None
        if entry.name in grown
        else error_of(entry.error_code, entry.error_message, f"topic '{entry.name}'", topic=entry.name)
        for entry in response.results
    }


def _partitions(routing: Routing, topic: str) -> int:
    """How many partitions of a topic are in view."""
    view = routing.topics.get(topic)
    return len(view.partitions) if view is not None else 0


def list_topics(routing: Routing, *, timeout_s: float | None = None) -> Operation[dict[str, TopicView]]:
    """Every topic, internal ones too, sorted by name, as the cluster has them now."""
    yield from routing.refresh(None, routing.deadline(timeout_s))
    return dict(sorted(routing.topics.items()))


def describe_topics(
    routing: Routing, names: Collection[str], *, timeout_s: float | None = None
) -> Operation[dict[str, TopicView | KafkaError]]:
    """Topics by name as the cluster has them now, or why not."""
    errors = yield from routing.refresh(names, routing.deadline(timeout_s))
    return {name: topic_error(name, errors[name]) if name in errors else routing.topics[name] for name in names}


@dataclasses.dataclass(frozen=True, slots=True)
class EligibleReplicas:
    """Replicas that may lead though they left the ISR (KIP-966): `current` now, `last_known` before that was empty."""

    current: tuple[int, ...]
    last_known: tuple[int, ...]


def eligible_replicas(
    routing: Routing, names: Collection[str], *, timeout_s: float | None = None
) -> Operation[dict[TopicPartition, EligibleReplicas] | None]:
    """The eligible leader replicas of topics' partitions; None where the cluster does not know the idea."""
    deadline = routing.deadline(timeout_s)
    kind = messages.DescribeTopicPartitionsRequest
    found: dict[TopicPartition, EligibleReplicas] = {}
    cursor: Any = None
    while True:
        request = kind(topics=[kind.TopicRequest(name=name) for name in sorted(names)], cursor=cursor)
        try:
            response = yield from routing.ask_any(request, deadline)
        except UnsupportedByBroker:
            return None
        for topic in response.topics:
            for entry in topic.partitions:
                found[TopicPartition(topic.name, entry.partition_index)] = EligibleReplicas(
                    tuple(entry.eligible_leader_replicas or ()), tuple(entry.last_known_elr or ())
                )
        if response.next_cursor is None:
            return found
        cursor = kind.Cursor(
            topic_name=response.next_cursor.topic_name, partition_index=response.next_cursor.partition_index
        )
