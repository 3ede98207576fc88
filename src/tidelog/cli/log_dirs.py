"""`tidelog log-dirs`: the log directories of brokers and what lies in them, as `kafka-log-dirs` tells."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from tidelog.cli.cluster import connect
from tidelog.cli.errors import Refused
from tidelog.cli.log_dir_moves import cordon, move, uncordon
from tidelog.cli.options import DEFAULT_TIMEOUT_S, Bootstrap, Form, Output, TimeoutS
from tidelog.cli.output import ids, print_json, print_table, size
from tidelog.client import admin
from tidelog.client.addresses import DEFAULT_BOOTSTRAP
from tidelog.client.admin import LogDirectory
from tidelog.model.errors import ErrorCode, KafkaError

app = typer.Typer(add_completion=False, invoke_without_command=True)
app.command("move")(move)
app.command("cordon")(cordon)
app.command("uncordon")(uncordon)


@app.callback()
def log_dirs(
    context: typer.Context,
    broker: Annotated[
        list[int] | None, typer.Option("--broker", metavar="ID", help="Only this broker; may be repeated.")
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", metavar="NAME", help="Only this topic; may be repeated.")
    ] = None,
    output: Output = Form.TABLE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Show the log directories of brokers (all, if none is named) and the bytes of each replica in them."""
    if context.invoked_subcommand is not None:
        return
    with connect("log-dirs", bootstrap, timeout) as cluster:
        results = cluster.run(admin.describe_log_dirs(cluster.routing, broker))
        live = sorted(cluster.routing.brokers)
    missing = [broker_id for broker_id in results if broker_id not in live]
    if missing:
        raise Refused([f"The given brokers do not exist: {ids(missing)}. Current existent brokers: {ids(live)}"])
    refused = [result for result in results.values() if isinstance(result, KafkaError)]
    found = {
        broker_id: [_only(directory, topic) for directory in result]
        for broker_id, result in results.items()
        if not isinstance(result, KafkaError)
    }
    match output:
        case Form.KAFKA:
            print("Querying brokers for log directories information")
            print(f"Received log directory information from brokers {ids(found)}")
            print(json.dumps(_kafka_json(found), separators=(",", ":"), ensure_ascii=False))
        case Form.JSON:
            print_json(_json(found))
        case Form.TABLE:
            _print_tables(found)
    if refused:
        raise Refused([error.message or error.code.name for error in refused])


def _only(directory: LogDirectory, topics: list[str] | None) -> LogDirectory:
    if not topics:
        return directory
    replicas = {tp: replica for tp, replica in directory.replicas.items() if tp.topic in topics}
    return LogDirectory(directory.path, directory.error, replicas, directory.total_bytes, directory.usable_bytes)


def _kafka_json(found: dict[int, list[LogDirectory]]) -> dict[str, Any]:
    """Kafka's own line, its keys in its order."""
    return {
        "brokers": [
            {
                "broker": broker_id,
                "logDirs": [
                    {
                        "partitions": [
                            {
                                "partition": str(topic_partition),
                                "size": replica.size,
                                "offsetLag": replica.offset_lag,
                                "isFuture": replica.is_future,
                            }
                            for topic_partition, replica in sorted(directory.replicas.items())
                        ],
                        "error": None if directory.error is ErrorCode.NONE else _java_class(directory.error),
                        "logDir": directory.path,
                    }
                    for directory in directories
                ],
            }
            for broker_id, directories in found.items()
        ],
        "version": 1,
    }


def _java_class(error: ErrorCode) -> str:
    """The exception that Java's client makes of a code; a directory has hardly any but the first."""
    if error is ErrorCode.KAFKA_STORAGE_ERROR:
        return "org.apache.kafka.common.errors.KafkaStorageException"
    words = error.name.removesuffix("_ERROR").title().replace("_", "")
    return f"org.apache.kafka.common.errors.{words}Exception"


def _json(found: dict[int, list[LogDirectory]]) -> list[dict[str, Any]]:
    return [
        {
            "broker": broker_id,
            "logDirs": [
                {
                    "logDir": directory.path,
                    "error": None if directory.error is ErrorCode.NONE else directory.error.name,
                    "totalBytes": directory.total_bytes if directory.total_bytes >= 0 else None,
                    "usableBytes": directory.usable_bytes if directory.usable_bytes >= 0 else None,
                    "partitions": [
                        {
                            "topic": topic_partition.topic,
                            "partition": topic_partition.partition,
                            "size": replica.size,
                            "offsetLag": replica.offset_lag,
                            "isFuture": replica.is_future,
                        }
                        for topic_partition, replica in sorted(directory.replicas.items())
                    ],
                }
                for directory in directories
            ],
        }
        for broker_id, directories in found.items()
    ]


def _print_tables(found: dict[int, list[LogDirectory]]) -> None:
    for broker_id, directories in found.items():
        for directory in directories:
            state = "online" if directory.error is ErrorCode.NONE else f"offline ({directory.error.name})"
            used = sum(replica.size for replica in directory.replicas.values())
            space = ""
            if directory.total_bytes >= 0:
                space = f", {size(directory.usable_bytes)} of {size(directory.total_bytes)} free"
            replicas = len(directory.replicas)
            print(f"broker {broker_id}  {directory.path}: {state}, replicas: {replicas}, {size(used)}{space}")
            if directory.replicas:
                print_table(
                    ("Topic", "#Partition", "#Size", "#Lag", "Moving in"),
                    [
                        (
                            tp.topic,
                            tp.partition,
                            size(replica.size),
                            replica.offset_lag,
                            "yes" if replica.is_future else "",
                        )
                        for tp, replica in sorted(directory.replicas.items())
                    ],
                )
