"""`tidelog plan`: what to move so that a cluster is as the operator wants it, from its state or from a file of one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from tidelog.cli.cluster import connect
from tidelog.cli.errors import Refused, WrongUsage
from tidelog.cli.options import COUNT_MAX, DEFAULT_TIMEOUT_S, Bootstrap, Form, Output, TimeoutS
from tidelog.cli.output import print_json, warn
from tidelog.cli.plan_text import print_plan
from tidelog.client.addresses import DEFAULT_BOOTSTRAP
from tidelog.operator.files import read_state_file, write_plan_file, write_state_file
from tidelog.operator.reading import read_state
from tidelog.operator.traffic import read_with_traffic
from tidelog.placement.plan.documents import DocumentError
from tidelog.placement.plan.goals import TOLERANCE, Balance, Goals, PlanRefused
from tidelog.placement.plan.kafka_json import dump_kafka, load_kafka
from tidelog.placement.plan.plan_file import move_document
from tidelog.placement.plan.planner import Planned, make_plan, try_out
from tidelog.placement.plan.state import ClusterState

app = typer.Typer(add_completion=False)

BrokerIds = list[int] | None
Names = list[str] | None


@app.command()
def plan(
    balance: Annotated[
        list[Balance] | None,
        typer.Option("--balance", help="What to make even; may be repeated, the most important first."),
    ] = None,
    drain: Annotated[BrokerIds, typer.Option("--drain", metavar="ID", help="Take all replicas off it.")] = None,
    fill: Annotated[BrokerIds, typer.Option("--fill", metavar="ID", help="Bring it up to the average.")] = None,
    exclude: Annotated[
        BrokerIds, typer.Option("--exclude", metavar="ID", help="Give this broker no new replica.")
    ] = None,
    factor: Annotated[
        int | None, typer.Option("--factor", min=1, metavar="N", help="The replication factor of --topic.")
    ] = None,
    topic: Annotated[
        Names, typer.Option("--topic", "-t", metavar="NAME", help="Move replicas of this topic only; may be repeated.")
    ] = None,
    leave: Annotated[Names, typer.Option("--leave", metavar="NAME", help="Leave this topic as it is.")] = None,
    moves_max: Annotated[
        int | None, typer.Option("--max-moves", min=1, metavar="N", help="The best moves up to so many replicas.")
    ] = None,
    bytes_max: Annotated[
        int | None, typer.Option("--max-bytes", min=1, metavar="BYTES", help="The best moves up to so many bytes.")
    ] = None,
    seconds_max: Annotated[
        float | None,
        typer.Option("--max-seconds", min=0, metavar="SECONDS", help="The best moves that end by then, at --throttle."),
    ] = None,
    disks_max: Annotated[
        int | None,
        typer.Option("--max-disks", min=1, metavar="N", help="With --balance bytes: relieve the worst N disks alone."),
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option("--tolerance", min=0.0, max=1.0, help="How far from the average bytes and traffic may be."),
    ] = TOLERANCE,
    rack_aware: Annotated[
        bool, typer.Option("--rack-aware/--disable-rack-aware", help="Whether racks count.", show_default="racks count")
    ] = True,
    listed: Annotated[
        Path | None,
        typer.Option("--list", metavar="FILE", help="Take the moves of a list of kafka-reassign-partitions."),
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", metavar="STATE", help="Plan for the state in a file, without a cluster.")
    ] = None,
    save_state: Annotated[
        Path | None, typer.Option("--save-state", metavar="FILE", help="Keep the state that was read.")
    ] = None,
    traffic: Annotated[
        float | None,
        typer.Option("--traffic", min=0.1, metavar="SECONDS", help="Watch what producers write for so long."),
    ] = None,
    throttle: Annotated[
        int | None,
        typer.Option(
            "--throttle", min=1, max=COUNT_MAX, metavar="BYTES/S", help="Of each broker, for the time that is told."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="PLAN", help="Keep the plan.")] = None,
    output: Output = Form.TABLE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Plan moves of replicas with their proof, and keep the plan for `tidelog reassign run`."""
    if factor is not None and not topic:
        raise WrongUsage("--factor goes with --topic")
    goals = Goals(
        balance=tuple(dict.fromkeys(balance or ())),
        drain=frozenset(drain or ()),
        fill=frozenset(fill or ()),
        exclude=frozenset(exclude or ()),
        factors=dict.fromkeys(topic or (), factor) if factor is not None else {},
        topics=frozenset(topic) if topic and (factor is None or balance) else None,
        leave=frozenset(leave or ()),
        moves_max=moves_max,
        bytes_max=bytes_max,
        seconds_max=seconds_max,
        disks_max=disks_max,
        tolerance=tolerance,
        rack_aware=rack_aware,
    )
    if listed is not None and goals.words():
        raise WrongUsage("--list has its moves already: name no goals beside it")
    if listed is None and not goals.words() and save_state is None:
        raise WrongUsage("name what to plan for: --balance, --drain, --fill, --factor or --list")
    if traffic is not None and source is not None:
        raise WrongUsage("--traffic watches a cluster: the state of --from is a file")
    if Balance.TRAFFIC in goals.balance and traffic is None and source is None:
        raise WrongUsage("--balance traffic goes with --traffic SECONDS, or with --from a state that has some")
    try:
        state = read_state_file(source) if source is not None else _read(bootstrap, timeout, traffic)
        if save_state is not None:
            write_state_file(save_state, state)
        if listed is None and not goals.words():
            return
        began = time.monotonic()
        if listed is not None:
            planned = Planned(try_out(load_kafka(listed.read_bytes(), state), state, throttle))
        else:
            planned = make_plan(state, goals, throttle=throttle)
        seconds = time.monotonic() - began
        if out is not None:
            write_plan_file(out, planned.plan)
    except DocumentError as error:
        raise Refused([str(error)]) from None
    except PlanRefused as error:
        raise Refused(error.reasons) from None
    for line in state.missing:
        warn(line)
    match output:
        case Form.KAFKA:
            print(dump_kafka(planned.plan.moves))
        case Form.JSON:
            print_json(_json(planned, seconds))
        case Form.TABLE:
            print_plan(state, planned, throttle)
            if out is not None and planned.plan.moves:
                print(f"The plan is kept in {out}: tidelog reassign run {out}")


def _read(bootstrap: str, timeout: float, traffic: float | None) -> ClusterState:
    with connect("plan", bootstrap, timeout) as cluster:
        now_ms = int(time.time() * 1000)
        if traffic is not None:
            return cluster.run(read_with_traffic(cluster.routing, seconds=traffic, taken_at_ms=now_ms))
        return cluster.run(read_state(cluster.routing, taken_at_ms=now_ms))


def _json(planned: Planned, seconds: float) -> dict[str, Any]:
    made = planned.plan
    return {
        "goals": list(made.goals),
        "moves": made.replica_moves,
        "moves_least": made.moves_least,
        "bytes": made.bytes,
        "bytes_least": made.bytes_least,
        "gap": made.gap,
        "leader_changes": planned.leader_changes,
        "seconds": round(seconds, 3),
        "remarks": list(planned.remarks),
        "simulation": made.simulation,
        "plan": [move_document(move) for move in made.moves],
    }
