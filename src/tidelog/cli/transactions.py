"""`tidelog transactions`: transactional ids, producers of partitions, hanging transactions; as `kafka-transactions`."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from tidelog.cli.cluster import connect
from tidelog.cli.errors import Refused, WrongUsage
from tidelog.cli.options import DEFAULT_TIMEOUT_S, Bootstrap, Form, Output, TimeoutS, one_of
from tidelog.cli.output import print_json, print_table
from tidelog.client import admin
from tidelog.client.addresses import DEFAULT_BOOTSTRAP
from tidelog.client.admin import ProducerState
from tidelog.client.blocking import BlockingCluster
from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import TopicPartition

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Transactions, open and hanging.")

MAX_TRANSACTION_TIMEOUT_MINUTES = 15
MINUTE_MS = 60_000

Topic = Annotated[str, typer.Option("--topic", "-t", metavar="NAME", help="The topic.")]
Partition = Annotated[int, typer.Option("--partition", "-p", min=0, help="The partition of it.")]


TRANSACTION_STATES: Final = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
    "PrepareEpochFence",
)  # fmt: skip
"""As Kafka names them."""


@app.command("list")
def list_(
    duration_filter: Annotated[
        int,
        typer.Option("--duration-filter", metavar="MS", help="Only transactions that are open for longer."),
    ] = -1,
    pattern: Annotated[
        str | None,
        typer.Option("--transactional-id-pattern", metavar="REGEX", help="Only ids that this matches as a whole."),
    ] = None,
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only in this state (Ongoing, ...); may be repeated.")
    ] = None,
    output: Output = Form.TABLE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """List transactional ids, their coordinators and states."""
    states = one_of(state or (), TRANSACTION_STATES, "--state")
    with connect("transactions", bootstrap, timeout) as cluster:
        found = cluster.run(
            admin.list_transactions(cluster.routing, states=states, running_longer_ms=duration_filter, pattern=pattern)
        )
    rows = [(each.transactional_id, each.coordinator_id, each.producer_id, each.state) for each in found]
    _print(output, ("TransactionalId", "#Coordinator", "#ProducerId", "TransactionState"), rows)


@app.command()
def describe(
    transactional_id: Annotated[str, typer.Option("--transactional-id", metavar="ID", help="Whose.")],
    output: Output = Form.TABLE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Show a transactional id as its coordinator has it."""
    with connect("transactions", bootstrap, timeout) as cluster:
        found = cluster.run(admin.describe_transactions(cluster.routing, [transactional_id]))[transactional_id]
    if isinstance(found, KafkaError):
        raise found
    running = None if found.start_ms is None else _now_ms() - found.start_ms
    none = "None" if output is Form.KAFKA else None
    row = (
        found.coordinator_id,
        found.transactional_id,
        found.producer_id,
        found.producer_epoch,
        found.state,
        found.timeout_ms,
        none if found.start_ms is None else found.start_ms,
        none if running is None else running,
        [str(each) for each in found.partitions] if output is Form.JSON else ",".join(map(str, found.partitions)),
    )
    _print(
        output,
        (
            "#CoordinatorId",
            "TransactionalId",
            "#ProducerId",
            "#ProducerEpoch",
            "TransactionState",
            "#TransactionTimeoutMs",
            "#CurrentTransactionStartTimeMs",
            "#TransactionDurationMs",
            "TopicPartitions",
        ),
        [row],
    )


@app.command("describe-producers")
def describe_producers(
    topic: Topic,
    partition: Partition,
    broker_id: Annotated[
        int | None, typer.Option("--broker-id", metavar="ID", help="Ask this replica, not the leader.")
    ] = None,
    output: Output = Form.TABLE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Show what a partition remembers of its producers, and where their open transactions begin."""
    with connect("transactions", bootstrap, timeout) as cluster:
        found = _producers(cluster, TopicPartition(topic, partition), broker_id)
    none = "None" if output is Form.KAFKA else None
    rows = [
        (
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.last_sequence,
            each.last_timestamp,
            none if each.transaction_start is None else each.transaction_start,
        )
        for each in found
    ]
    headers = ("ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp")
    _print(output, tuple(f"#{each}" for each in (*headers, "CurrentTransactionStartOffset")), rows)


@app.command("find-hanging")
def find_hanging(
    topic: Annotated[str | None, typer.Option("--topic", "-t", metavar="NAME", help="Only in this topic.")] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0, help="Only in this one of it.")] = None,
    broker_id: Annotated[
        int | None, typer.Option("--broker-id", metavar="ID", help="Only in the replicas on this broker.")
    ] = None,
    max_transaction_timeout: Annotated[
        int,
        typer.Option(
            "--max-transaction-timeout", min=0, metavar="MINUTES", help="Only without a record for longer than this."
        ),
    ] = MAX_TRANSACTION_TIMEOUT_MINUTES,
    output: Output = Form.TABLE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Find open transactions that nobody will end: committed reads wait there. `abort` ends them."""
    if topic is None and broker_id is None:
        raise WrongUsage("find-hanging needs --topic or --broker-id, so that not everything is searched")
    if partition is not None and topic is None:
        raise WrongUsage("--partition goes with --topic")
    now_ms = _now_ms()
    with connect("transactions", bootstrap, timeout) as cluster:
        partitions = _partitions(cluster, topic, partition, broker_id)
        found = cluster.run(
            admin.find_hanging(
                cluster.routing,
                partitions,
                now_ms=now_ms,
                older_than_ms=max_transaction_timeout * MINUTE_MS,
                broker_id=broker_id,
            )
        )
    rows = [
        (
            where.topic,
            where.partition,
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.transaction_start,
            each.last_timestamp,
            (now_ms - each.last_timestamp) // MINUTE_MS,
        )
        for where, each in found
    ]
    numbers = ("Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset", "LastTimestamp")
    _print(output, ("Topic", *(f"#{each}" for each in (*numbers, "Duration(min)"))), rows)


@app.command()
def abort(
    topic: Topic,
    partition: Partition,
    start_offset: Annotated[
        int | None,
        typer.Option("--start-offset", min=0, help="Where the transaction begins in the partition (find-hanging)."),
    ] = None,
    producer_id: Annotated[int | None, typer.Option("--producer-id", help="Or whose it is, with the next two.")] = None,
    producer_epoch: Annotated[int | None, typer.Option("--producer-epoch")] = None,
    coordinator_epoch: Annotated[int | None, typer.Option("--coordinator-epoch")] = None,
    output: Output = Form.TABLE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Abort a hanging transaction in one partition. Never one that its coordinator still knows."""
    where = TopicPartition(topic, partition)
    with connect("transactions", bootstrap, timeout) as cluster:
        if start_offset is not None:
            producer = next(
                (each for each in _producers(cluster, where, None) if each.transaction_start == start_offset), None
            )
            if producer is None:
                raise Refused(
                    [f"Could not find any open transactions starting at offset {start_offset} on partition {where}"]
                )
            producer_id, producer_epoch = producer.producer_id, producer.producer_epoch
            coordinator_epoch = producer.coordinator_epoch
        if producer_id is None or producer_epoch is None or coordinator_epoch is None:
            raise WrongUsage(
                "name the transaction by --start-offset, or by --producer-id, --producer-epoch and --coordinator-epoch"
            )
        cluster.run(
            admin.abort_transaction(
                cluster.routing,
                where,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                # Of a producer that had no marker there yet none is known; 0 is no more than any coordinator's.
                coordinator_epoch=max(coordinator_epoch, 0),
            )
        )
    if output is Form.JSON:
        print_json({"topic": topic, "partition": partition, "producerId": producer_id, "aborted": True})
    elif output is Form.TABLE:
        print(f"{where}: the transaction of producer {producer_id} is aborted")


@app.command()
def fence(
    transactional_ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Transactional ids.")],
    output: Output = Form.TABLE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Fence the producers that go by transactional ids: open transactions are aborted, the producers must stop."""
    with connect("transactions", bootstrap, timeout) as cluster:
        results = cluster.run(admin.fence_producers(cluster.routing, transactional_ids))
    fenced = {name: found for name, found in results.items() if not isinstance(found, KafkaError)}
    if output is Form.JSON:
        print_json(
            [
                {"transactionalId": name, "producerId": each.producer_id, "producerEpoch": each.producer_epoch}
                for name, each in fenced.items()
            ]
        )
    else:
        for name, each in fenced.items():
            print(f"{name}: producers before epoch {each.producer_epoch} of producer id {each.producer_id} are fenced")
    refused = [found for found in results.values() if isinstance(found, KafkaError)]
    if refused:
        raise Refused([error.message or error.code.name for error in refused])


def _producers(cluster: BlockingCluster, where: TopicPartition, broker_id: int | None) -> list[ProducerState]:
    found = cluster.run(admin.describe_producers(cluster.routing, [where], broker_id=broker_id))[where]
    if isinstance(found, KafkaError):
        raise found
    return found


def _partitions(
    cluster: BlockingCluster, topic: str | None, partition: int | None, broker_id: int | None
) -> list[TopicPartition]:
    """What is to be searched."""
    if topic is not None and partition is not None:
        return [TopicPartition(topic, partition)]
    if broker_id is not None:
        cluster.run(admin.describe_cluster(cluster.routing))
        if broker_id not in cluster.routing.brokers:
            raise Refused([f"there is no live broker {broker_id}"])
    topics = [topic] if topic is not None else list(cluster.run(admin.list_topics(cluster.routing)))
    views = cluster.run(cluster.routing.require_topics(topics, cluster.routing.deadline()))
    return [
        TopicPartition(name, index)
        for name, view in sorted(views.items())
        for index, found in sorted(view.partitions.items())
        if broker_id is None or broker_id in found.replicas
    ]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _print(output: Form, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table; `#` before a column says that it holds numbers."""
    names = [name.removeprefix("#") for name in columns]
    match output:
        case Form.JSON:
            keys = [name[0].lower() + name[1:].replace("(min)", "Min") for name in names]
            print(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=2, ensure_ascii=False))
        case Form.KAFKA:
            lines = [names, *([str(cell) for cell in row] for row in rows)]
            widths = [max(len(line[index]) for line in lines) for index in range(len(names))]
            for line in lines:
                print("".join(f"{cell:<{width}}\t" for cell, width in zip(line, widths, strict=True)))
        case Form.TABLE:
            print_table(columns, rows)
