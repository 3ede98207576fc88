"""`tidelog leaders`: elections by hand, as `kafka-leader-election` does, and how evenly leadership is spread."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tidelog.cli.cluster import connect
from tidelog.cli.errors import Refused, WrongUsage
from tidelog.cli.options import DEFAULT_TIMEOUT_S, Bootstrap, Form, Output, TimeoutS
from tidelog.cli.output import print_json, print_table
from tidelog.client import admin
from tidelog.client.addresses import DEFAULT_BOOTSTRAP
from tidelog.client.blocking import BlockingCluster
from tidelog.client.views import TopicView
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Leaders of partitions.")


class ElectionType(enum.StrEnum):
    """As options spell it."""

    PREFERRED = "preferred"
    UNCLEAN = "unclean"


@app.command()
def elect(
    type: Annotated[
        ElectionType,
        typer.Option(
            "--election-type",
            "-e",
            case_sensitive=False,
            help="preferred: the first assigned replica, if it is in sync. "
            "unclean: where no replica leads, any live one; records that it lacks are lost.",
        ),
    ],
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="Of this topic.")] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, help="This partition of it; may be repeated.", show_default="all"),
    ] = None,
    everything: Annotated[bool, typer.Option("--all-topic-partitions", "--all", help="Of all topics.")] = False,
    plan: Annotated[
        Path | None,
        typer.Option(
            "--path-to-json-file",
            "--file",
            metavar="FILE",
            help='Of those in a file: {"partitions": [{"topic": "t", "partition": 0}]}.',
        ),
    ] = None,
    output: Output = Form.TABLE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Elect leaders of partitions."""
    if (topic is not None) + everything + (plan is not None) != 1:
        raise WrongUsage("name exactly one of --topic, --all-topic-partitions and --path-to-json-file")
    if partition and topic is None:
        raise WrongUsage("--partition goes with --topic")
    chosen = None if plan is None else _read_plan(plan)
    with connect("leaders", bootstrap, timeout) as cluster:
        if topic is not None:
            chosen = [TopicPartition(topic, index) for index in partition or _partitions_of(cluster, topic)]
        results = cluster.run(admin.elect_leaders(cluster.routing, admin.ElectionType[type.name], chosen))
    elected = [each for each, error in results.items() if error is None]
    not_needed = [each for each, error in results.items() if _is_not_needed(error)]
    failed = {each: error for each, error in results.items() if error is not None and not _is_not_needed(error)}
    if output is Form.JSON:
        print_json(
            [
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "error": None if error is None else error.code.name,
                    "message": None if error is None else error.message,
                }
                for each, error in results.items()
            ]
        )
    else:
        if elected:
            print(f"Successfully completed leader election ({type.name}) for partitions {_names(elected)}")
        if not_needed:
            print(f"Valid replica already elected for partitions {_names(not_needed)}")
        if not results:
            print("Every partition has the leader that it should have.")
    if failed:
        raise Refused(
            [
                *(
                    f"Error completing leader election ({type.name}) for partition: {_names([each])}: {error.message}"
                    for each, error in failed.items()
                ),
                f"{len(failed)} replica(s) could not be elected",
            ]
        )


@app.command()
def show(
    output: Output = Form.TABLE, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, timeout: TimeoutS = DEFAULT_TIMEOUT_S
) -> None:
    """Show, for each broker, what it leads and what it should lead.

    The imbalance is the share of the partitions whose first replica it is that others lead: above
    leader.imbalance.per.broker.percentage (10) the controller moves them back by itself, if
    auto.leader.rebalance.enable is on.
    """
    with connect("leaders", bootstrap, timeout) as cluster:
        views = cluster.run(admin.list_topics(cluster.routing))
        brokers = cluster.run(admin.describe_cluster(cluster.routing)).brokers
    shares = _shares([broker.broker_id for broker in brokers], views)
    if output is Form.JSON:
        print_json(shares)
        return
    columns = ["#Broker", "#Leads", "#Should lead", "#Led by others", "#Imbalance"]
    rows = [
        [each["broker"], each["leads"], each["shouldLead"], each["ledByOthers"], f"{each['imbalancePercent']:.0f} %"]
        for each in shares
    ]
    print_table(columns, rows)


def _shares(broker_ids: Iterable[int], topics: Mapping[str, TopicView]) -> list[dict[str, Any]]:
    shares = {id: {"broker": id, "leads": 0, "shouldLead": 0, "ledByOthers": 0} for id in broker_ids}
    for view in topics.values():
        for partition in view.partitions.values():
            preferred = next(iter(partition.replicas), -1)
            for id in (preferred, partition.leader):
                if id >= 0:
                    shares.setdefault(id, {"broker": id, "leads": 0, "shouldLead": 0, "ledByOthers": 0})
            if preferred >= 0:
                shares[preferred]["shouldLead"] += 1
                shares[preferred]["ledByOthers"] += partition.leader != preferred
            if partition.leader >= 0:
                shares[partition.leader]["leads"] += 1
    return [
        {**share, "imbalancePercent": 100 * share["ledByOthers"] / share["shouldLead"] if share["shouldLead"] else 0.0}
        for _, share in sorted(shares.items())
    ]


def _read_plan(path: Path) -> list[TopicPartition]:
    try:
        content = json.loads(path.read_bytes())
        return [TopicPartition(str(each["topic"]), int(each["partition"])) for each in content["partitions"]]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise WrongUsage(
            f'{path} is not {{"partitions": [{{"topic": "t", "partition": 0}}, ...]}}: {error!r}'
        ) from error


def _partitions_of(cluster: BlockingCluster, topic: str) -> list[int]:
    view = cluster.run(admin.describe_topics(cluster.routing, [topic]))[topic]
    if isinstance(view, KafkaError):
        raise view
    return sorted(view.partitions)


def _is_not_needed(error: KafkaError | None) -> bool:
    return error is not None and error.code is ErrorCode.ELECTION_NOT_NEEDED


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{each.topic}-{each.partition}" for each in partitions)
