"""`tidelog plan`: what to move so that a cluster is as the operator wants it, from its state or from a file of one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.errors import Refused, WrongUsage
from tidelog.cli.options import DEFAULT_TIMEOUT_S, Bootstrap, Form, Output, TimeoutS
from tidelog.cli.output import print_json, print_table, size
from tidelog.client.addresses import DEFAULT_BOOTSTRAP
from tidelog.client.blocking import BlockingCluster
from tidelog.operator.files import read_state_file, write_plan_file, write_state_file
from tidelog.operator.reading import read_state
from tidelog.placement.plan.documents import DocumentError
from tidelog.placement.plan.kafka_json import dump_kafka, load_kafka
from tidelog.placement.plan.plan import Plan
from tidelog.placement.plan.plan_file import move_document
from tidelog.placement.plan.state import ClusterState

app = typer.Typer(add_completion=False)


@app.command()
def plan(
    moves: Annotated[
        Path | None,
        typer.Option("--list", metavar="FILE", help="The moves of a list of kafka-reassign-partitions, as they are."),
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", metavar="STATE", help="Plan for the state in a file, without a cluster.")
    ] = None,
    save_state: Annotated[
        Path | None, typer.Option("--save-state", metavar="FILE", help="Keep the state that was read.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="PLAN", help="Keep the plan.")] = None,
    output: Output = Form.TABLE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Plan moves of replicas, and keep the plan for `tidelog reassign run`."""
    if moves is None and save_state is None:
        raise WrongUsage("name what to plan for, or --save-state to keep the state alone")
    try:
        state = read_state_file(source) if source is not None else _read(bootstrap, timeout)
        if save_state is not None:
            write_state_file(save_state, state)
        if moves is None:
            return
        made = load_kafka(moves.read_bytes(), state)
        if out is not None:
            write_plan_file(out, made)
    except DocumentError as error:
        raise Refused([str(error)]) from None
    _print(made, output)


def _read(bootstrap: str, timeout: float) -> ClusterState:
    with BlockingCluster(
        bootstrap, client_id="tidelog-plan", operation_timeout_s=timeout, call_timeout_s=timeout, fail_fast=True
    ) as cluster:
        return cluster.run(read_state(cluster.routing, taken_at_ms=int(time.time() * 1000)))


def _print(made: Plan, output: Form) -> None:
    match output:
        case Form.KAFKA:
            print(dump_kafka(made.moves))
        case Form.JSON:
            print_json(
                {
                    "moves": made.replica_moves,
                    "moves_least": made.moves_least,
                    "bytes": made.bytes,
                    "gap": made.gap,
                    "plan": [move_document(move) for move in made.moves],
                }
            )
        case Form.TABLE:
            print_table(
                ("Topic", "#Partition", "From", "To", "#Bytes"),
                [
                    (each.topic, each.partition, each.replicas_from, each.replicas_to, size(each.bytes))
                    for each in made.moves
                ],
            )
