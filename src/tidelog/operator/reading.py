"""Reads a cluster's state through the protocol. No I/O of its own: operations, as those of `client.admin`.

Works from Apache Kafka 2.4 on. What a cluster is too old to tell, refuses or has no live broker for, is listed in
`ClusterState.missing`, and the rest is read all the same:

    Metadata                       brokers, racks, topics, leaders, ISRs
    DescribeLogDirs                directories, bytes of replicas; sizes of directories from Kafka 3.3 on
    DescribeConfigs                throttles, cordoned directories, min.insync.replicas
    ListPartitionReassignments     what is under way
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tidelog.client import admin
from tidelog.client.admin import ConfigResource, LogDirectory, ResourceType
from tidelog.client.errors import ClientError, UnsupportedByBroker
from tidelog.client.operations import Operation
from tidelog.client.routing import Routing
from tidelog.client.views import PartitionView, TopicView
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicPartition, format_topic_id
from tidelog.placement.plan.state import (
    BrokerState,
    ClusterState,
    DirectoryMoveState,
    DirectoryState,
    PartitionState,
    ReassignmentState,
    TopicState,
)

BROKER_THROTTLES: Final = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
TOPIC_THROTTLES: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
CORDONED: Final = "cordoned.log.dirs"
BROKER_CORDONED: Final = "broker.cordoned"
MIN_INSYNC: Final = "min.insync.replicas"
ALL_DIRECTORIES: Final = "*"

WITHHELD: Final = frozenset({ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION})
"""Answers of a broker that does not tell its directories, to this operator or at all."""

TOPICS_PER_REQUEST: Final = 500
"""Topics whose settings one request asks for: answers stay below a megabyte."""


def read_state(routing: Routing, *, taken_at_ms: int, timeout_s: float | None = None) -> Operation[ClusterState]:
    """The state of the cluster. KafkaError and ClientError only where not even Metadata could be read.

    `taken_at_ms` is the wall time, which only the caller knows.
    """
    topics = yield from admin.list_topics(routing, timeout_s=timeout_s)
    live = sorted(routing.brokers)
    missing: list[str] = []
    silent: set[int] = set()
    directories = yield from _directories(routing, live, missing, silent, timeout_s)
    broker_settings = yield from _settings(
        routing,
        [ConfigResource(ResourceType.BROKER, str(broker_id)) for broker_id in live],
        (*BROKER_THROTTLES, CORDONED, BROKER_CORDONED),
        missing,
        timeout_s,
    )
    topic_settings = yield from _settings(
        routing,
        [ConfigResource(ResourceType.TOPIC, name) for name in topics],
        (*TOPIC_THROTTLES, MIN_INSYNC),
        missing,
        timeout_s,
    )
    try:
        under_way = yield from admin.reassignments(routing, timeout_s=timeout_s)
    except (KafkaError, ClientError) as error:
        missing.append(f"reassignments under way: {error}")
        under_way = {}
    state = _state(routing, topics, directories, broker_settings, topic_settings, under_way, missing, taken_at_ms)
    return _with_silent(state, silent)


def read_placement(
    routing: Routing, *, broker_ids: Collection[int] | None = None, timeout_s: float | None = None
) -> Operation[ClusterState]:
    """The state without settings, for those who watch moves: sizes and directories of `broker_ids` (None: of all).

    KafkaError and ClientError where Metadata or the reassignments under way could not be read: without either of them
    nothing can be said about a move.
    """
    topics = yield from admin.list_topics(routing, timeout_s=timeout_s)
    under_way = yield from admin.reassignments(routing, timeout_s=timeout_s)
    asked = sorted(id for id in routing.brokers if broker_ids is None or id in broker_ids)
    missing: list[str] = []
    silent: set[int] = set()
    directories = yield from _directories(routing, asked, missing, silent, timeout_s)
    return _with_silent(_state(routing, topics, directories, {}, {}, under_way, missing, 0), silent)


def _state(
    routing: Routing,
    topics: Mapping[str, TopicView],
    directories: Mapping[int, Sequence[LogDirectory]],
    broker_settings: Mapping[str, _Settings],
    topic_settings: Mapping[str, _Settings],
    under_way: Mapping[TopicPartition, admin.Reassignment],
    missing: Sequence[str],
    taken_at_ms: int,
) -> ClusterState:
    live = routing.brokers
    brokers = [
        _broker(broker_id, live[broker_id].rack, directories.get(broker_id, []), broker_settings.get(str(broker_id)))
        for broker_id in sorted(live)
    ]
    partitions = _partitions(topics.values(), _Disks.of(directories), under_way)
    assigned = {broker_id for each in partitions for broker_id in (*each.replicas, *each.isr)}
    brokers += [BrokerState(broker_id, online=False) for broker_id in sorted(assigned - live.keys())]
    present = {each.key for each in partitions}
    known = assigned | live.keys()
    return ClusterState.of(
        cluster_id=routing.cluster_id,
        taken_at_ms=taken_at_ms,
        brokers=brokers,
        topics=[_topic(view, topic_settings.get(view.name)) for view in topics.values()],
        partitions=[_known_leader(each, known) for each in partitions],
        reassignments={
            key: ReassignmentState(each.adding, each.removing)
            for key, each in under_way.items()
            if key in present and known.issuperset((*each.adding, *each.removing))
        },
        directory_moves=_directory_moves(directories, present),
        missing=missing,
    )


def _with_silent(state: ClusterState, silent: Collection[int]) -> ClusterState:
    brokers = {each.id: replace(each, silent=each.online and each.id in silent) for each in state.brokers.values()}
    return replace(state, brokers=brokers)


def _directories(
    routing: Routing, broker_ids: Sequence[int], missing: list[str], silent: set[int], timeout_s: float | None
) -> Operation[dict[int, list[LogDirectory]]]:
    """[broker] -> directories, of each broker that tells them; `silent` gets those that may tell them yet."""
    found: dict[int, list[LogDirectory]] = {}
    for broker_id in broker_ids:
        try:
            answers = yield from admin.describe_log_dirs(routing, [broker_id], timeout_s=timeout_s)
        except ClientError as error:
            missing.append(f"log directories of broker {broker_id}: {error}")
            if not isinstance(error, UnsupportedByBroker):
                silent.add(broker_id)
            continue
        answer = answers[broker_id]
        if isinstance(answer, KafkaError):
            missing.append(f"log directories of broker {broker_id}: {answer}")
            if answer.code not in WITHHELD:
                silent.add(broker_id)
            continue
        found[broker_id] = answer
        if any(directory.total_bytes < 0 and directory.error is ErrorCode.NONE for directory in answer):
            missing.append(f"sizes of log directories of broker {broker_id}: it is older than Kafka 3.3")
    return found


@dataclass(slots=True)
class _Settings:
    """Settings of one resource: values in force, and those that are set on the resource itself."""

    in_force: dict[str, str] = field(default_factory=dict)
    own: dict[str, str] = field(default_factory=dict)


def _settings(
    routing: Routing,
    resources: Sequence[ConfigResource],
    keys: Sequence[str],
    missing: list[str],
    timeout_s: float | None,
) -> Operation[dict[str, _Settings]]:
    """The settings of resources by name; those that cannot be told are left out, and one line says so."""
    found: dict[str, _Settings] = {}
    for begin in range(0, len(resources), TOPICS_PER_REQUEST):
        portion = resources[begin : begin + TOPICS_PER_REQUEST]
        try:
            answers = yield from admin.describe_configs(routing, portion, keys=keys, timeout_s=timeout_s)
        except (KafkaError, ClientError) as error:
            missing.append(f"settings of {portion[0].type.name.lower()}s: {error}")
            return found
        for resource, answer in answers.items():
            if isinstance(answer, KafkaError):
                missing.append(f"settings of {resource.type.name.lower()} {resource.name}: {answer}")
                continue
            settings = found.setdefault(resource.name, _Settings())
            for entry in answer:
                if entry.value is None:
                    continue
                settings.in_force[entry.name] = entry.value
                if entry.source in (
                    admin.ConfigSource.DYNAMIC_TOPIC_CONFIG,
                    admin.ConfigSource.DYNAMIC_BROKER_CONFIG,
                ):
                    settings.own[entry.name] = entry.value
    return found


def _broker(
    broker_id: int, rack: str | None, directories: Sequence[LogDirectory], settings: _Settings | None
) -> BrokerState:
    settings = settings or _Settings()
    cordoned = {each.strip() for each in settings.in_force.get(CORDONED, "").split(",")} - {""}
    return BrokerState(
        id=broker_id,
        rack=rack,
        cordoned=ALL_DIRECTORIES in cordoned or settings.in_force.get(BROKER_CORDONED) == "true",
        directories=tuple(
            DirectoryState(
                path=directory.path,
                total_bytes=directory.total_bytes if directory.total_bytes >= 0 else None,
                usable_bytes=directory.usable_bytes if directory.usable_bytes >= 0 else None,
                error=None if directory.error is ErrorCode.NONE else directory.error.name,
                cordoned=ALL_DIRECTORIES in cordoned or directory.path in cordoned,
            )
            for directory in directories
        ),
        throttles={name: settings.own[name] for name in BROKER_THROTTLES if name in settings.own},
    )


def _topic(view: TopicView, settings: _Settings | None) -> TopicState:
    settings = settings or _Settings()
    minimum = settings.in_force.get(MIN_INSYNC, "")
    return TopicState(
        name=view.name,
        id=None if view.topic_id == ZERO_TOPIC_ID else format_topic_id(view.topic_id),
        internal=view.internal,
        min_insync_replicas=int(minimum) if minimum.isdigit() and int(minimum) > 0 else None,
        throttles={name: settings.own[name] for name in TOPIC_THROTTLES if settings.own.get(name)},
    )


@dataclass(frozen=True, slots=True)
class _Disks:
    """Where replicas lie, by (broker, topic and partition); what is on its way to a directory is left out."""

    paths: Mapping[tuple[int, TopicPartition], str]
    sizes: Mapping[tuple[int, TopicPartition], int]

    @classmethod
    def of(cls, directories: Mapping[int, Sequence[LogDirectory]]) -> _Disks:
        paths: dict[tuple[int, TopicPartition], str] = {}
        sizes: dict[tuple[int, TopicPartition], int] = {}
        for broker_id, of_broker in directories.items():
            for directory in of_broker:
                for key, replica in directory.replicas.items():
                    if not replica.is_future:
                        paths[broker_id, key] = directory.path
                        sizes[broker_id, key] = replica.size
        return cls(paths, sizes)


def _partitions(
    topics: Iterable[TopicView], disks: _Disks, under_way: Mapping[TopicPartition, admin.Reassignment]
) -> list[PartitionState]:
    return [
        _partition(key, view, under_way.get(key), disks)
        for topic in topics
        for key, view in ((TopicPartition(topic.name, number), view) for number, view in topic.partitions.items())
        if view.replicas
    ]


def _partition(
    key: TopicPartition, view: PartitionView, reassignment: admin.Reassignment | None, disks: _Disks
) -> PartitionState:
    # While it is under way the controller knows the replicas best; a broker's metadata may be of before.
    replicas = reassignment.replicas or view.replicas if reassignment is not None else view.replicas
    return PartitionState(
        topic=key.topic,
        partition=key.partition,
        replicas=replicas,
        leader=view.leader,
        isr=view.isr,
        directories=tuple(disks.paths.get((broker_id, key)) for broker_id in replicas),
        sizes=tuple(disks.sizes.get((broker_id, key)) for broker_id in replicas),
    )


def _known_leader(partition: PartitionState, known: Collection[int]) -> PartitionState:
    """A leader that is neither live nor a replica (Metadata of a broker that lags) counts as none."""
    return partition if partition.leader in known else replace(partition, leader=-1)


def _directory_moves(
    directories: Mapping[int, Sequence[LogDirectory]], present: set[TopicPartition]
) -> list[DirectoryMoveState]:
    return [
        DirectoryMoveState(key.topic, key.partition, broker_id, directory.path, max(0, replica.size))
        for broker_id, of_broker in directories.items()
        for directory in of_broker
        for key, replica in sorted(directory.replicas.items())
        if replica.is_future and key in present
    ]
