"""`tidelog reassign`: carries a plan out and watches it, pauses, cancels, takes it back, verifies it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from tidelog.cli.errors import Refused
from tidelog.cli.option_groups import with_option_groups
from tidelog.cli.options import Form
from tidelog.cli.reassign_output import print_ended, print_standing, print_started_as_kafka, print_verified
from tidelog.cli.reassign_session import (
    LookOptions,
    PlaceOptions,
    RunOptions,
    Session,
    Throttle,
    alone,
    finish,
    here_or_asked,
    last_run,
    unfinished_run,
)
from tidelog.operator.files import write_plan_file
from tidelog.operator.journal import Asked, RunKind, RunStatus, Wish
from tidelog.operator.progress import Progress, Standing, is_for_another_cluster
from tidelog.operator.reading import read_placement
from tidelog.placement.plan.documents import DocumentError
from tidelog.placement.plan.goals import PlanRefused
from tidelog.placement.plan.kafka_json import listed_targets, load_kafka
from tidelog.placement.plan.plan import Plan
from tidelog.placement.plan.plan_file import is_plan, load_plan
from tidelog.placement.plan.planner import try_out
from tidelog.placement.plan.state import ClusterState

INVERSE_SUFFIX = ".inverse"

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Carry out plans of moves, and undo them.")

PlanFile: TypeAlias = Annotated[
    Path,
    typer.Argument(metavar="PLAN", help="What `tidelog plan --out` has kept, or a list of kafka-reassign-partitions."),
]
OptionalPlanFile: TypeAlias = Annotated[
    Path | None, typer.Argument(metavar="[PLAN]", help="The plan; without it, the last run on this cluster.")
]


@app.command("run")
@with_option_groups
def run_plan(
    *,
    plan: PlanFile,
    throttle: Throttle = None,
    options: RunOptions,
) -> None:
    """Carry out a plan, and wait until all is done.

    A run that was interrupted goes on where it stands. What was, is kept in PLAN.inverse and in the journal:
    `tidelog reassign rollback` goes back.
    """
    with options.session() as session, alone(session):
        chosen = _plan(session, plan, throttle=throttle)
        _keep_inverse(session, plan, chosen)
        if options.output is Form.KAFKA:
            session.tell_begun = lambda: print_started_as_kafka(chosen)
        operation = session.execution.run(chosen, throttle=throttle, plan_path=str(plan.absolute()))
        finish(session, operation, options.output)


@app.command()
@with_option_groups
def rollback(
    *,
    plan: OptionalPlanFile = None,
    throttle: Throttle = None,
    options: RunOptions,
) -> None:
    """Undo what is done of a plan, and wait until all is as it was."""
    with options.session() as session, alone(session):
        path = None if plan is None else str(plan.absolute())
        if plan is not None:
            operation = session.execution.rollback(_former_plan(session, plan), throttle=throttle, plan_path=path)
        else:
            last = last_run(session)
            if last.kind is RunKind.ROLLBACK and last.undone:
                session.say("nothing to undo: the last run on this cluster was undone already")
                return
            rate = last.throttle if throttle is None else throttle
            if last.kind is RunKind.ROLLBACK:
                operation = session.execution.run(last.plan, kind=last.kind, throttle=rate)
            else:
                operation = session.execution.rollback(last.plan, throttle=throttle, plan_path=last.plan_path)
        finish(session, operation, options.output)


@app.command()
@with_option_groups
def resume(
    *,
    throttle: Throttle = None,
    options: RunOptions,
) -> None:
    """Go on with a run that was paused, or interrupted: then this process carries it out, and waits."""
    with options.session() as session:

        def carry_on() -> None:
            last = unfinished_run(session, "go on with")
            rate = last.throttle if throttle is None else throttle
            finish(session, session.execution.run(last.plan, kind=last.kind, throttle=rate), options.output)

        if here_or_asked(
            session,
            carry_on,
            Asked(Wish.RESUME, throttle),
            lambda run: run.status is not RunStatus.PAUSED and not session.files.has_wish(),
            options.timeout,
        ):
            session.say("resumed")


@app.command()
@with_option_groups
def pause(*, options: PlaceOptions) -> None:
    """Let moves under way end, and begin no other one until `resume`."""
    with options.session() as session:

        def stay() -> None:
            session.tidy()
            unfinished_run(session, "pause")
            session.say("no process carries the run out: nothing is begun until `tidelog reassign resume`")

        if here_or_asked(
            session, stay, Asked(Wish.PAUSE), lambda run: run.status is not RunStatus.RUNNING, options.timeout
        ):
            session.say("paused: moves under way go on to their ends, no other one is begun")


@app.command()
@with_option_groups
def cancel(*, options: RunOptions) -> None:
    """Take back the moves that are under way, and begin no other one. What is done stays; `rollback` undoes it."""
    with options.session() as session:

        def take_back() -> None:
            if not last_run(session).status.unfinished:
                session.tidy()
            last = unfinished_run(session, "cancel")
            print_ended(session.do(session.execution.cancel(last)), options.output, session.display)

        if here_or_asked(
            session, take_back, Asked(Wish.CANCEL), lambda run: not run.status.unfinished, options.patience
        ):
            session.say("cancelled")


@app.command()
@with_option_groups
def status(*, options: LookOptions) -> None:
    """Show how far the last run is, which throttles of ours are set, and what others move."""
    with options.session() as session:
        with session.files.locked(looking=True) as free:
            if free:
                session.tidy()
        known = session.reload()
        print_standing(known, session.cluster.run(read_placement(session.cluster.routing)), not free, options.output)


@app.command()
@with_option_groups
def verify(
    *,
    plan: OptionalPlanFile = None,
    options: LookOptions,
) -> None:
    """Tell whether each move of a plan is done; exit code 0 if all are."""
    with options.session() as session:
        with session.files.locked(looking=True) as free:
            if free:
                session.tidy()
        chosen = last_run(session).plan if plan is None else _former_plan(session, plan, unchanged=True)
        state = session.cluster.run(read_placement(session.cluster.routing))
        elsewhere = is_for_another_cluster(chosen, state)
        if elsewhere:
            raise Refused([elsewhere])
        progress = Progress.of(chosen, state)
        print_verified(progress, state, options.output)
        open_moves = [each for each in progress.moves if each.standing is not Standing.DONE]
        if open_moves:
            raise Refused([f"{len(open_moves)} of {len(progress.moves)} moves are not done"])


def _plan(session: Session, path: Path, *, throttle: int | None = None) -> Plan:
    """The plan of a file, to be carried out; Kafka's list is one from the present state, unless it is under way."""
    with _told(path):
        text = path.read_bytes()
        if is_plan(text):
            return load_plan(text)
        state = session.cluster.run(read_placement(session.cluster.routing))
        last = session.reload().run
        goes_on = last is not None and last.kind is RunKind.RUN and last.status.unfinished
        if last is not None and goes_on and _is_list_of(last.plan, text, state):
            return last.plan
        return try_out(load_kafka(text, state), state, throttle)


def _former_plan(session: Session, path: Path, *, unchanged: bool = False) -> Plan:
    """The plan of a file, to be looked at or undone; Kafka's list is that of the last run, or rollback, if it was its.

    `unchanged`: where it was not, with the partitions that are as the list wants them.
    """
    with _told(path):
        text = path.read_bytes()
        if is_plan(text):
            return load_plan(text)
        state = session.cluster.run(read_placement(session.cluster.routing))
        last = session.reload().run
        if last is not None:
            run_plan = last.plan if last.kind is RunKind.RUN else last.plan.inverse()
            if _is_list_of(run_plan, text, state, whole=last.kind is RunKind.RUN):
                return run_plan
        return load_kafka(text, state, unchanged=unchanged)


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """Errors of a plan's file name it."""
    try:
        yield
    except DocumentError as error:
        raise Refused([f"{path}: {error}"]) from None
    except PlanRefused as error:
        raise Refused(error.reasons) from None


def _is_list_of(plan: Plan, text: bytes, state: ClusterState, *, whole: bool = True) -> bool:
    """Whether a plan that was run was one of Kafka's list: what it leaves out of it is where the list wants it.

    Not `whole`: it is what a rollback has undone of that plan, which may be less.
    """
    if not plan.moves:
        return False
    listed = listed_targets(text)
    for move in plan.moves:
        topic = state.topics.get(move.topic)
        made_again = topic is not None and None not in (move.topic_id, topic.id) and move.topic_id != topic.id
        if listed.get(move.key) != move.replicas_to or made_again:
            return False
    left_out = listed.keys() - {move.key for move in plan.moves} if whole else ()
    return all((now := state.partitions.get(key)) is not None and now.replicas == listed[key] for key in left_out)


def _keep_inverse(session: Session, path: Path, plan: Plan) -> None:
    """Writes the way back; that of an earlier run stays where all that a list wants is done already."""
    if not plan.moves:
        return
    inverse = path.with_name(path.name + INVERSE_SUFFIX)
    try:
        write_plan_file(inverse, plan.inverse())
    except OSError as error:
        session.say(f"{inverse} could not be written ({error.strerror}); the journal has what it takes to go back")
