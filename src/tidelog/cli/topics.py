"""`tidelog topics`: create, list, describe, alter, delete, as `kafka-topics` does."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Final

import typer

from tidelog.cli.cluster import connect
from tidelog.cli.errors import Refused, WrongUsage
from tidelog.cli.options import (
    DEFAULT_TIMEOUT_S,
    INT32_MAX,
    Bootstrap,
    Form,
    Output,
    TimeoutS,
    key_values,
    replica_lists,
)
from tidelog.cli.output import ids, print_json, print_table, warn
from tidelog.client import admin
from tidelog.client.addresses import DEFAULT_BOOTSTRAP
from tidelog.client.admin import ConfigEntry, ConfigResource, EligibleReplicas, NewTopic, Reassignment, ResourceType
from tidelog.client.blocking import BlockingCluster
from tidelog.client.views import PartitionView, TopicView
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition, format_topic_id

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Topics and partitions.")

NAME_WARNING: Final = (
    "Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
    "To avoid issues it is best to use either, but not both."
)
KEYS_WARNING: Final = (
    "If partitions are increased for a topic that has a key, the partition logic or ordering of the messages will be "
    "affected"
)

Names = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Topics by name.")]


@app.command()
def create(
    topics: Names,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, max=INT32_MAX, help="How many.", show_default="num.partitions"),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            "-r",
            min=1,
            max=INT32_MAX,
            help="Copies of each.",
            show_default="default.replication.factor",
        ),
    ] = None,
    assignment: Annotated[
        str | None,
        typer.Option("--replica-assignment", metavar="0:1,1:2,...", help="Brokers of each partition, leader first."),
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option("--config", "-c", metavar="KEY=VALUE", help="A setting; may be repeated.")
    ] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="No error for those that exist.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what creating them would say.")] = False,
    output: Output = Form.TABLE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Create topics."""
    if assignment is not None and (partitions is not None or replication_factor is not None):
        raise WrongUsage("--replica-assignment says partitions and replicas itself: leave the counts out")
    if any("." in name or "_" in name for name in topics):
        _warn_of_names(output)
    replicas = None if assignment is None else dict(enumerate(replica_lists(assignment, "--replica-assignment")))
    configs = key_values(config or [], "--config")
    wanted = [
        NewTopic(
            name,
            admin.BROKER_DEFAULT if partitions is None else partitions,
            admin.BROKER_DEFAULT if replication_factor is None else replication_factor,
            replicas,
            configs,
        )
        for name in dict.fromkeys(topics)
    ]
    with connect("topics", bootstrap, timeout) as cluster:
        results = cluster.run(admin.create_topics(cluster.routing, wanted, validate_only=dry_run))
    refused = []
    created = []
    for result in results.values():
        if not isinstance(result, KafkaError):
            created.append(result)
        elif not (if_not_exists and result.code is ErrorCode.TOPIC_ALREADY_EXISTS):
            refused.append(result)
    match output:
        case Form.JSON:
            print_json(
                [
                    {
                        "topic": topic.name,
                        "topicId": format_topic_id(topic.topic_id),
                        "partitionCount": topic.partitions,
                        "replicationFactor": topic.replication_factor,
                    }
                    for topic in created
                ]
            )
        case _:
            for topic in created:
                print(f"Created topic {topic.name}." if not dry_run else f"Topic {topic.name} could be created.")
    _refuse(refused, output)


@app.command(name="list")
def list_(
    exclude_internal: Annotated[bool, typer.Option("--exclude-internal", help="Without Kafka's own topics.")] = False,
    output: Output = Form.TABLE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """List topics."""
    with connect("topics", bootstrap, timeout) as cluster:
        views = cluster.run(admin.list_topics(cluster.routing))
    shown = [view for view in views.values() if not (exclude_internal and view.internal)]
    match output:
        case Form.KAFKA:
            for view in shown:
                print(view.name)
        case Form.JSON:
            print_json(
                [
                    {
                        "topic": view.name,
                        "topicId": format_topic_id(view.topic_id),
                        "internal": view.internal,
                        "partitionCount": len(view.partitions),
                        "replicationFactor": _replication_factor(view),
                    }
                    for view in shown
                ]
            )
        case Form.TABLE:
            print_table(
                ("Topic", "#Partitions", "#Replication", "Topic id"),
                [
                    (view.name, len(view.partitions), _replication_factor(view), format_topic_id(view.topic_id))
                    for view in shown
                ],
            )


@dataclasses.dataclass(frozen=True, slots=True)
class _Description:
    """All that `describe` shows of the topics chosen."""

    topics: dict[str, TopicView]
    configs: dict[str, list[ConfigEntry]]
    reassignments: Mapping[TopicPartition, Reassignment]
    eligible: Mapping[TopicPartition, EligibleReplicas] | None

    def min_isr(self, topic: str) -> int:
        for entry in self.configs.get(topic, ()):
            if entry.name == "min.insync.replicas" and entry.value is not None:
                return int(entry.value)
        return 1


@app.command()
def describe(
    topics: Annotated[list[str] | None, typer.Argument(metavar="[TOPIC...]", help="Topics by name.")] = None,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated-partitions", help="Only those with a replica out of sync.")
    ] = False,
    unavailable: Annotated[bool, typer.Option("--unavailable-partitions", help="Only those without a leader.")] = False,
    under_min_isr: Annotated[
        bool, typer.Option("--under-min-isr-partitions", help="Only those that acks=all can't write to.")
    ] = False,
    at_min_isr: Annotated[
        bool, typer.Option("--at-min-isr-partitions", help="Only those that can't lose another replica.")
    ] = False,
    with_overrides: Annotated[
        bool, typer.Option("--topics-with-overrides", help="Only topics with settings of their own.")
    ] = False,
    exclude_internal: Annotated[bool, typer.Option("--exclude-internal", help="Without Kafka's own topics.")] = False,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="No error for those that don't exist.")] = False,
    output: Output = Form.TABLE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Describe topics (all, if none is named): leaders, replicas, ISR, settings."""
    with connect("topics", bootstrap, timeout) as cluster:
        description, refused = _gather(cluster, topics, exclude_internal=exclude_internal, if_exists=if_exists)
    kinds: list[tuple[bool, Callable[[str, PartitionView], bool]]] = [
        (under_replicated, lambda _, partition: len(partition.isr) < len(partition.replicas)),
        (unavailable, lambda _, partition: partition.leader < 0 or partition.leader in partition.offline),
        (under_min_isr, lambda topic, partition: len(partition.isr) < description.min_isr(topic)),
        (at_min_isr, lambda topic, partition: len(partition.isr) == description.min_isr(topic)),
    ]
    filters = [chosen for wanted, chosen in kinds if wanted]
    if len(filters) > 1:
        raise WrongUsage("only one kind of partitions can be asked for at a time")
    partitions = {
        view.name: [p for p in view.partitions.values() if not filters or filters[0](view.name, p)]
        for view in description.topics.values()
        if not with_overrides or _overrides(description, view.name)
    }
    if filters:
        partitions = {name: chosen for name, chosen in partitions.items() if chosen}
    match output:
        case Form.KAFKA:
            _describe_as_kafka(description, partitions, headers=not filters, rows=not with_overrides)
        case Form.JSON:
            print_json([_topic_json(description, name, chosen) for name, chosen in partitions.items()])
        case Form.TABLE:
            _describe_as_tables(description, partitions)
    _refuse(refused, output)


@app.command()
def alter(
    topics: Names,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", min=1, max=INT32_MAX, help="How many there shall be in all.")
    ],
    assignment: Annotated[
        str | None,
        typer.Option(
            "--replica-assignment", metavar="0:1,1:2,...", help="Brokers of each partition, those that exist included."
        ),
    ] = None,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="No error for those that don't exist.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what adding them would say.")] = False,
    output: Output = Form.TABLE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Add partitions to topics. Their number can only grow; settings are changed by `tidelog configs alter`."""
    with connect("topics", bootstrap, timeout) as cluster:
        existing, refused = _existing(cluster, topics, if_exists=if_exists)
        if existing:
            warn(KEYS_WARNING)
        assignments = {}
        if assignment is not None:
            lists = replica_lists(assignment, "--replica-assignment")
            assignments = {name: lists[len(view.partitions) :] for name, view in existing.items()}
        results = (
            cluster.run(
                admin.create_partitions(
                    cluster.routing,
                    dict.fromkeys(existing, partitions),
                    assignments=assignments,
                    validate_only=dry_run,
                )
            )
            if existing
            else {}
        )
    refused.extend(result for result in results.values() if isinstance(result, KafkaError))
    grown = [name for name, result in results.items() if result is None]
    match output:
        case Form.KAFKA:
            pass  # Kafka's tool says nothing when it succeeds.
        case Form.JSON:
            print_json([{"topic": name, "partitionCount": partitions} for name in grown])
        case Form.TABLE:
            for name in grown:
                print(f"Topic {name} {'could have' if dry_run else 'has'} {partitions} partitions.")
    _refuse(refused, output)


@app.command()
def delete(
    topics: Names,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="No error for those that don't exist.")] = False,
    output: Output = Form.TABLE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Delete topics with all their records."""
    with connect("topics", bootstrap, timeout) as cluster:
        existing, refused = _existing(cluster, topics, if_exists=if_exists)
        results = cluster.run(admin.delete_topics(cluster.routing, list(existing))) if existing else {}
    refused.extend(result for result in results.values() if isinstance(result, KafkaError))
    deleted = [name for name, result in results.items() if result is None]
    match output:
        case Form.KAFKA:
            pass  # Kafka's tool says nothing when it succeeds.
        case Form.JSON:
            print_json([{"topic": name} for name in deleted])
        case Form.TABLE:
            for name in deleted:
                print(f"Deleted topic {name}.")
    _refuse(refused, output)


# What is known of topics


def _existing(
    cluster: BlockingCluster, names: Collection[str], *, if_exists: bool
) -> tuple[dict[str, TopicView], list[KafkaError]]:
    """The topics that are there, and an error for each that is not."""
    found = cluster.run(admin.describe_topics(cluster.routing, list(dict.fromkeys(names))))
    views: dict[str, TopicView] = {}
    errors: list[KafkaError] = []
    for name, result in found.items():
        if not isinstance(result, KafkaError):
            views[name] = result
        elif result.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            errors.append(result)
        elif not if_exists:
            errors.append(KafkaError(result.code, f"Topic '{name}' does not exist as expected"))
    return views, errors


def _gather(
    cluster: BlockingCluster, topics: list[str] | None, *, exclude_internal: bool, if_exists: bool
) -> tuple[_Description, list[KafkaError]]:
    refused: list[KafkaError] = []
    if topics:
        views, refused = _existing(cluster, topics, if_exists=if_exists)
    else:
        views = cluster.run(admin.list_topics(cluster.routing))
    views = {name: view for name, view in views.items() if not (exclude_internal and view.internal)}
    if not views:
        return _Description(views, {}, {}, None), refused
    routing = cluster.routing
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in views]
    configs = {
        resource.name: entries
        for resource, entries in cluster.run(admin.describe_configs(routing, resources)).items()
        if not isinstance(entries, KafkaError)
    }
    eligible = cluster.run(admin.eligible_replicas(routing, views))
    return _Description(views, configs, _reassignments(cluster), eligible), refused


def _reassignments(cluster: BlockingCluster) -> Mapping[TopicPartition, Reassignment]:
    """What is being moved; nothing for those who may describe topics, and not the cluster: as Kafka's tool does."""
    try:
        return cluster.run(admin.reassignments(cluster.routing))
    except KafkaError as error:
        if error.code is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise
        return {}


def _replication_factor(view: TopicView) -> int:
    return len(view.partitions[min(view.partitions)].replicas) if view.partitions else 0


def _overrides(description: _Description, topic: str) -> dict[str, str]:
    """The settings that are not Kafka's own defaults, as Kafka's tool lists them."""
    return {entry.name: entry.value or "" for entry in description.configs.get(topic, ()) if not entry.is_default}


def _warn_of_names(output: Form) -> None:
    if output is Form.KAFKA:
        print(f"WARNING: {NAME_WARNING}")  # Kafka's tool has it on stdout.
    else:
        warn(NAME_WARNING)


def _refuse(errors: list[KafkaError], output: Form) -> None:
    if not errors:
        return
    reasons = [error.message or error.code.name for error in errors]
    if output is Form.KAFKA:
        for reason in reasons:
            print(f"Error while executing topic command : {reason}")
        raise Refused(())
    raise Refused(reasons)


# How it is shown


def _describe_as_kafka(
    description: _Description, partitions: dict[str, list[PartitionView]], *, headers: bool, rows: bool
) -> None:
    for name, chosen in partitions.items():
        view = description.topics[name]
        if headers:
            configs = ",".join(f"{key}={value}" for key, value in _overrides(description, name).items())
            print(
                f"Topic: {name}\tTopicId: {format_topic_id(view.topic_id)}\tPartitionCount: {len(view.partitions)}"
                f"\tReplicationFactor: {_replication_factor(view)}\tConfigs: {configs}"
            )
        for partition in chosen if rows else ():
            line = (
                f"\tTopic: {name}\tPartition: {partition.partition}"
                f"\tLeader: {partition.leader if partition.leader >= 0 else 'none'}"
                f"\tReplicas: {ids(partition.replicas)}\tIsr: {ids(partition.isr)}"
            )
            topic_partition = TopicPartition(name, partition.partition)
            moving = description.reassignments.get(topic_partition)
            if moving is not None:
                line += f"\tAdding Replicas: {ids(moving.adding)}\tRemoving Replicas: {ids(moving.removing)}"
            if description.eligible is None:
                line += "\tElr: N/A\tLastKnownElr: N/A"
            else:
                eligible = description.eligible.get(topic_partition, EligibleReplicas((), ()))
                line += f"\tElr: {ids(eligible.current)}\tLastKnownElr: {ids(eligible.last_known)}"
            print(line)


def _describe_as_tables(description: _Description, partitions: dict[str, list[PartitionView]]) -> None:
    for name, chosen in partitions.items():
        view = description.topics[name]
        print(
            f"{name}  id {format_topic_id(view.topic_id)}, {len(view.partitions)} partitions, "
            f"replication factor {_replication_factor(view)}{', internal' if view.internal else ''}"
        )
        for key, value in _overrides(description, name).items():
            print(f"  {key}={value}")
        moving = any(TopicPartition(name, p.partition) in description.reassignments for p in chosen)
        columns = ["#Partition", "#Leader", "#Epoch", "Replicas", "In sync"]
        rows = []
        for partition in chosen:
            row: list[Any] = [
                partition.partition,
                partition.leader if partition.leader >= 0 else "none",
                partition.leader_epoch,
                ids(partition.replicas),
                ids(partition.isr),
            ]
            if moving:
                change = description.reassignments.get(TopicPartition(name, partition.partition))
                row += [ids(change.adding), ids(change.removing)] if change else ["", ""]
            rows.append(row)
        print_table(columns + (["Adding", "Removing"] if moving else []), rows)


def _topic_json(description: _Description, name: str, partitions: list[PartitionView]) -> dict[str, Any]:
    view = description.topics[name]
    return {
        "topic": name,
        "topicId": format_topic_id(view.topic_id),
        "internal": view.internal,
        "partitionCount": len(view.partitions),
        "replicationFactor": _replication_factor(view),
        "configs": _overrides(description, name),
        "partitions": [_partition_json(description, name, partition) for partition in partitions],
    }


def _partition_json(description: _Description, name: str, partition: PartitionView) -> dict[str, Any]:
    topic_partition = TopicPartition(name, partition.partition)
    shown: dict[str, Any] = {
        "partition": partition.partition,
        "leader": partition.leader if partition.leader >= 0 else None,
        "leaderEpoch": partition.leader_epoch,
        "replicas": partition.replicas,
        "isr": partition.isr,
        "offlineReplicas": partition.offline,
    }
    moving = description.reassignments.get(topic_partition)
    if moving is not None:
        shown |= {"addingReplicas": moving.adding, "removingReplicas": moving.removing}
    if description.eligible is not None:
        eligible = description.eligible.get(topic_partition, EligibleReplicas((), ()))
        shown |= {"elr": eligible.current, "lastKnownElr": eligible.last_known}
    return shown
