"""`tidelog log-dirs move`, `cordon`, `uncordon`: replicas moved between a broker's directories; directories closed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from tidelog.cli.cluster import connect
from tidelog.cli.errors import Refused, WrongUsage
from tidelog.cli.option_groups import with_option_groups
from tidelog.cli.options import DEFAULT_TIMEOUT_S, Bootstrap, Form, TimeoutS
from tidelog.cli.output import print_table, size
from tidelog.cli.reassign_session import RunOptions, Throttle, alone, finish
from tidelog.client.addresses import DEFAULT_BOOTSTRAP
from tidelog.model.identifiers import TopicPartition
from tidelog.operator.cordons import NoCordons, cordon_directories
from tidelog.operator.emptying import moves_within
from tidelog.operator.files import write_plan_file
from tidelog.operator.reading import read_state
from tidelog.placement.plan.documents import DocumentError
from tidelog.placement.plan.goals import PlanRefused
from tidelog.placement.plan.planner import try_out

BrokerId: TypeAlias = Annotated[int, typer.Option("--broker", min=0, metavar="ID", help="The broker.")]
Paths: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="DIR...", help="Directories, as `tidelog log-dirs` shows them.")
]


@with_option_groups
def move(
    *,
    broker: BrokerId,
    replicas: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC-PARTITION]...", help="These replicas only.")
    ] = None,
    source: Annotated[
        str | None, typer.Option("--from", metavar="DIR", help="All replicas in this directory: it is emptied.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="DIR", help="Where they go.", show_default="the emptiest others, the largest first"
        ),
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", metavar="NAME", help="Of this topic only; may be repeated.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the moves.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="PLAN", help="Keep the plan instead, for `tidelog reassign run`.")
    ] = None,
    throttle: Throttle = None,
    options: RunOptions,
) -> None:
    """Move replicas between the log directories of a broker, and wait until they are there.

    A run like those of `tidelog reassign`: it may be paused, cancelled, and undone by `tidelog reassign rollback`.
    """
    if source is None and target is None:
        raise WrongUsage("name --from, the directory to empty, or --to")
    if source is None and not replicas and not topic:
        raise WrongUsage("name the replicas to move: --from, TOPIC-PARTITION or --topic")
    only = [_replica(each) for each in replicas] if replicas else None
    with options.session() as session:
        state = session.cluster.run(read_state(session.cluster.routing, taken_at_ms=int(time.time() * 1000)))
        try:
            plan = moves_within(state, broker, source=source, target=target, only=only, topics=topic)
            plan = try_out(plan, state, throttle)
        except DocumentError as error:
            raise Refused([str(error)]) from None
        except PlanRefused as error:
            raise Refused(error.reasons) from None
        if options.output is Form.TABLE:
            print_table(
                ("Replica", "From", "To", "#Bytes"),
                [
                    (each.key, former, path, size(each.size or 0))
                    for each in plan.moves
                    for _, former, path in each.within
                ],
            )
        if out is not None:
            write_plan_file(out, plan)
        if not dry_run and out is None:
            with alone(session):
                finish(session, session.execution.run(plan, throttle=throttle), options.output)


def cordon(
    paths: Paths,
    broker: BrokerId,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Put no new replicas into directories of a broker (cordoned.log.dirs, Kafka 4.3). What lies there stays."""
    _cordon(bootstrap, timeout, broker, paths, on=True)
    for path in paths:
        print(f"broker {broker}: {path} is cordoned: it gets no new replicas")


def uncordon(
    paths: Paths,
    broker: BrokerId,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Let directories of a broker get new replicas again."""
    _cordon(bootstrap, timeout, broker, paths, on=False)
    for path in paths:
        print(f"broker {broker}: {path} gets new replicas again")


def _cordon(bootstrap: str, timeout_s: float, broker: int, paths: list[str], *, on: bool) -> None:
    with connect("log-dirs", bootstrap, timeout_s) as cluster:
        try:
            cluster.run(cordon_directories(cluster.routing, broker, paths, on=on))
        except NoCordons as error:
            raise Refused([str(error)]) from None


def _replica(text: str) -> TopicPartition:
    topic, dash, partition = text.rpartition("-")
    if not (topic and dash and partition.isascii() and partition.isdigit()):
        raise WrongUsage(f"{text!r} is not TOPIC-PARTITION, as in flights-0")
    return TopicPartition(topic, int(partition))
