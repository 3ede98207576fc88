"""Administration as operations: topics, partitions, settings, log directories, the cluster itself. No I/O.

Each function returns an `Operation`, which the blocking and the asyncio cluster carry out with `run`. Calls about
several things answer for each: a result, or the `KafkaError` with which the cluster refused it. What needs the
controller is sent to it, and again when it has moved.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from tidelog.client.errors import ClientError, UnsupportedByBroker
from tidelog.client.exchange import ByVersion
from tidelog.client.routing import Broker, Operation, Routing, TopicView, topic_error
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicId, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

BROKER_DEFAULT: Final = -1
"""Partitions or replication factor of a new topic: the broker's num.partitions or default.replication.factor."""
REQUEST_TIMEOUT_MS: Final = 30_000
"""How long a broker may work on a creation or deletion before it answers."""


# Topics


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
    """Creates topics, or with `validate_only` says what creating them would say."""
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
    response = yield from routing.ask_controller(request, routing.deadline(timeout_s), _topic_errors)
    return {
        topic.name: _error(topic.error_code, topic.error_message, f"topic '{topic.name}'")
        or CreatedTopic(topic.name, TopicId(bytes(topic.topic_id)), topic.num_partitions, topic.replication_factor)
        for topic in response.topics
    }


def delete_topics(
    routing: Routing, names: Sequence[str], *, timeout_s: float | None = None
) -> Operation[dict[str, KafkaError | None]]:
    """Deletes topics by name; each one's error or None."""
    kind = messages.DeleteTopicsRequest

    def build(version: int) -> Any:
        if version < 6:
            return kind(topic_names=list(names), timeout_ms=REQUEST_TIMEOUT_MS)
        return kind(topics=[kind.DeleteTopicState(name=name) for name in names], timeout_ms=REQUEST_TIMEOUT_MS)

    request = ByVersion(ApiKey.DELETE_TOPICS, build)
    response = yield from routing.ask_controller(
        request, routing.deadline(timeout_s), lambda answer: (entry.error_code for entry in answer.responses)
    )
    for name in names:
        routing.topics.pop(name, None)
    return {
        entry.name: _error(entry.error_code, entry.error_message, f"topic '{entry.name}'")
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
    """Grows topics to `counts` partitions in all; `assignments` [topic] -> replicas of each new partition."""
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
    response = yield from routing.ask_controller(
        request, routing.deadline(timeout_s), lambda answer: (entry.error_code for entry in answer.results)
    )
    for name in counts:
        routing.topics.pop(name, None)
    return {
        entry.name: _error(entry.error_code, entry.error_message, f"topic '{entry.name}'") for entry in response.results
    }


class ElectionType(enum.IntEnum):
    """Who may be elected: the first assigned replica, if in sync, or, where nobody leads, whoever is live."""

    PREFERRED = 0
    UNCLEAN = 1


def elect_leaders(
    routing: Routing,
    type: ElectionType,
    partitions: Collection[TopicPartition] | None = None,
    *,
    timeout_s: float | None = None,
) -> Operation[dict[TopicPartition, KafkaError | None]]:
    """Elects leaders of partitions; each one's error or None. None: of all, and those that need none are left out."""
    kind = messages.ElectLeadersRequest
    topics: dict[str, list[int]] = {}
    for name, index in partitions or ():
        topics.setdefault(name, []).append(index)
    chosen = [kind.TopicPartitions(topic=name, partitions=indexes) for name, indexes in topics.items()]

    def build(version: int) -> Any:
        if version == 0 and type is not ElectionType.PREFERRED:
            raise ClientError("the cluster is too old for unclean elections by hand")
        request = kind(topic_partitions=None if partitions is None else chosen, timeout_ms=REQUEST_TIMEOUT_MS)
        if version >= 1:
            request.election_type = int(type)
        return request

    def errors(response: Any) -> Iterator[int]:
        yield response.error_code
        yield from (each.error_code for topic in response.replica_election_results for each in topic.partition_result)

    response = yield from routing.ask_controller(
        ByVersion(ApiKey.ELECT_LEADERS, build), routing.deadline(timeout_s), errors
    )
    refused = _error(response.error_code, None, "the election was refused")
    if refused is not None:
        raise refused
    for name in topics:
        routing.topics.pop(name, None)
    return {
        TopicPartition(topic.topic, each.partition_id): _error(
            each.error_code, each.error_message, f"partition {topic.topic}-{each.partition_id}"
        )
        for topic in response.replica_election_results
        for each in topic.partition_result
    }


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


@dataclasses.dataclass(frozen=True, slots=True)
class Reassignment:
    """A partition on its way to other brokers: those it gains and those it will leave."""

    adding: tuple[int, ...]
    removing: tuple[int, ...]


def reassignments(routing: Routing, *, timeout_s: float | None = None) -> Operation[dict[TopicPartition, Reassignment]]:
    """The reassignments in progress; none where the cluster has no such API."""
    request = messages.ListPartitionReassignmentsRequest(topics=None, timeout_ms=REQUEST_TIMEOUT_MS)
    try:
        response = yield from routing.ask_controller(
            request, routing.deadline(timeout_s), lambda answer: (answer.error_code,)
        )
    except UnsupportedByBroker:
        return {}
    error = _error(response.error_code, response.error_message, "reassignments")
    if error is not None:
        raise error
    return {
        TopicPartition(topic.name, entry.partition_index): Reassignment(
            tuple(entry.adding_replicas), tuple(entry.removing_replicas)
        )
        for topic in response.topics
        for entry in topic.partitions
    }


def alter_reassignments(
    routing: Routing,
    targets: Mapping[TopicPartition, Sequence[int] | None],
    *,
    allow_replication_factor_change: bool = True,
    timeout_s: float | None = None,
) -> Operation[dict[TopicPartition, KafkaError | None]]:
    """Begins reassignments: by partition its replicas, or None to cancel the one in progress; each one's error or None.

    It answers when they have begun: `reassignments` says what is still under way. Forbidding another replication factor
    needs Kafka 4.1 (KIP-860); UnsupportedByBroker from older clusters.
    """
    kind = messages.AlterPartitionReassignmentsRequest
    topics: dict[str, list[Any]] = {}
    for (name, index), replicas in targets.items():
        wish = kind.ReassignablePartition(
            partition_index=index, replicas=None if replicas is None else [int(id) for id in replicas]
        )
        topics.setdefault(name, []).append(wish)

    def build(version: int) -> Any:
        if version == 0 and not allow_replication_factor_change:
            raise UnsupportedByBroker("the cluster is too old to keep replication factors as they are")
        request = kind(
            topics=[kind.ReassignableTopic(name=name, partitions=wishes) for name, wishes in topics.items()],
            timeout_ms=REQUEST_TIMEOUT_MS,
        )
        if version >= 1:
            request.allow_replication_factor_change = allow_replication_factor_change
        return request

    def errors(response: Any) -> Iterator[int]:
        yield response.error_code
        yield from (each.error_code for topic in response.responses for each in topic.partitions)

    response = yield from routing.ask_controller(
        ByVersion(ApiKey.ALTER_PARTITION_REASSIGNMENTS, build), routing.deadline(timeout_s), errors
    )
    refused = _error(response.error_code, response.error_message, "the reassignment was refused")
    if refused is not None:
        raise refused
    for name in topics:
        routing.topics.pop(name, None)
    return {
        TopicPartition(topic.name, each.partition_index): _error(
            each.error_code, each.error_message, f"partition {topic.name}-{each.partition_index}"
        )
        for topic in response.responses
        for each in topic.partitions
    }


# Settings


class ResourceType(enum.IntEnum):
    """What settings belong to."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


@dataclasses.dataclass(frozen=True, slots=True)
class ConfigResource:
    """A topic or a broker by its name; a broker's name is its id, or "" for the default of all brokers."""

    type: ResourceType
    name: str


class ConfigSource(enum.IntEnum):
    """Which layer a value comes from, the closest first wins."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


CONFIG_TYPES: Final = ("unknown", "boolean", "string", "int", "short", "long", "double", "list", "class", "password")


@dataclasses.dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A value of one layer; the first of a setting's synonyms is in force."""

    name: str
    value: str | None
    source: ConfigSource


@dataclasses.dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A setting as it is in force. `value` None: not set, or hidden because it is sensitive."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...] = ()
    type: str = "unknown"
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """Whether no layer but Kafka's own default gives it."""
        return self.source is ConfigSource.DEFAULT_CONFIG


def describe_configs(
    routing: Routing,
    resources: Iterable[ConfigResource],
    *,
    keys: Sequence[str] | None = None,
    documentation: bool = False,
    timeout_s: float | None = None,
) -> Operation[dict[ConfigResource, list[ConfigEntry] | KafkaError]]:
    """The settings of resources with where each value comes from; `keys` None means all.

    A broker's own settings are asked of that broker, everything else of any.
    """
    deadline = routing.deadline(timeout_s)
    kind = messages.DescribeConfigsRequest
    by_broker: dict[int, list[ConfigResource]] = {}
    for resource in dict.fromkeys(resources):
        by_broker.setdefault(_config_owner(resource), []).append(resource)
    if any(broker_id >= 0 for broker_id in by_broker):
        yield from routing.refresh((), deadline)
    results: dict[ConfigResource, list[ConfigEntry] | KafkaError] = {}
    for broker_id, group in by_broker.items():
        request = kind(
            resources=[
                kind.DescribeConfigsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configuration_keys=None if keys is None else list(keys),
                )
                for resource in group
            ],
            include_synonyms=True,
            include_documentation=documentation,
        )
        response = yield from _ask_broker(routing, broker_id, request, deadline)
        for result in response.results:
            resource = ConfigResource(ResourceType(result.resource_type), result.resource_name)
            results[resource] = _error(result.error_code, result.error_message, resource.name) or [
                _config_entry(entry) for entry in result.configs
            ]
    return results


class AlterOperation(enum.IntEnum):
    """What an incremental change does: APPEND and SUBTRACT change elements of a list."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclasses.dataclass(frozen=True, slots=True)
class ConfigChange:
    """One change of one setting; `value` None goes with DELETE, which lets the next layer's value through."""

    name: str
    value: str | None
    operation: AlterOperation = AlterOperation.SET


def alter_configs(
    routing: Routing,
    changes: Mapping[ConfigResource, Sequence[ConfigChange]],
    *,
    validate_only: bool = False,
    timeout_s: float | None = None,
) -> Operation[dict[ConfigResource, KafkaError | None]]:
    """Changes settings one by one and leaves the others as they are (KIP-339); each resource's error or None."""
    deadline = routing.deadline(timeout_s)
    kind = messages.IncrementalAlterConfigsRequest
    by_broker: dict[int, list[ConfigResource]] = {}
    for resource in changes:
        by_broker.setdefault(_config_owner(resource), []).append(resource)
    if any(broker_id >= 0 for broker_id in by_broker):
        yield from routing.refresh((), deadline)
    results: dict[ConfigResource, KafkaError | None] = {}
    for broker_id, group in by_broker.items():
        request = kind(
            resources=[
                kind.AlterConfigsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configs=[
                        kind.AlterableConfig(name=change.name, config_operation=change.operation, value=change.value)
                        for change in changes[resource]
                    ],
                )
                for resource in group
            ],
            validate_only=validate_only,
        )
        if broker_id < 0:
            response = yield from routing.ask_controller(
                request, deadline, lambda answer: (entry.error_code for entry in answer.responses)
            )
        else:
            response = yield from _ask_broker(routing, broker_id, request, deadline)
        for entry in response.responses:
            resource = ConfigResource(ResourceType(entry.resource_type), entry.resource_name)
            results[resource] = _error(entry.error_code, entry.error_message, resource.name)
    return results


def _config_owner(resource: ConfigResource) -> int:
    if resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name:
        if not (resource.name.isascii() and resource.name.isdigit()):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"'{resource.name}' is not a broker id")
        return int(resource.name)
    return -1


def _config_entry(entry: Any) -> ConfigEntry:
    config_type = entry.config_type if 0 <= entry.config_type < len(CONFIG_TYPES) else 0
    return ConfigEntry(
        name=entry.name,
        value=entry.value,
        source=_config_source(entry.config_source),
        read_only=entry.read_only,
        sensitive=entry.is_sensitive,
        synonyms=tuple(
            ConfigSynonym(synonym.name, synonym.value, _config_source(synonym.source)) for synonym in entry.synonyms
        ),
        type=CONFIG_TYPES[config_type],
        documentation=entry.documentation,
    )


def _config_source(number: int) -> ConfigSource:
    return ConfigSource(number) if number in ConfigSource._value2member_map_ else ConfigSource.UNKNOWN


# The cluster and its disks


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
        response = yield from _ask_broker(routing, broker_id, messages.DescribeLogDirsRequest(topics=None), deadline)
        results[broker_id] = _error(response.error_code, None, f"broker {broker_id}") or [
            _log_directory(entry) for entry in response.results
        ]
    return results


def _log_directory(entry: Any) -> LogDirectory:
    return LogDirectory(
        path=entry.log_dir,
        error=ErrorCode(entry.error_code),
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


# Helpers


def _ask_broker(routing: Routing, broker_id: int, request: Any, deadline: Any) -> Operation[Any]:
    if broker_id < 0:
        return (yield from routing.ask_any(request, deadline))
    broker = routing.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"there is no live broker {broker_id}")
    outcome = yield from routing.ask(broker.address, request, deadline)
    if isinstance(outcome, ClientError):
        raise outcome
    return outcome


def _topic_errors(response: Any) -> Iterator[int]:
    return (topic.error_code for topic in response.topics)


def _error(code: int, message: str | None, subject: str) -> KafkaError | None:
    if code == ErrorCode.NONE:
        return None
    return KafkaError(ErrorCode(code), message or subject)
