"""`tidelog reassign`: carries a plan out and watches it, pauses, cancels, takes it back, verifies it.

One process at a time carries out a plan on a cluster; the others ask it. They share the journal, on this machine.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from tidelog.cli.cluster import connect
from tidelog.cli.errors import Refused
from tidelog.cli.options import DEFAULT_TIMEOUT_S, Bootstrap, Form, Output, TimeoutS
from tidelog.cli.reassign_output import (
    Display,
    print_ended,
    print_standing,
    print_started_as_kafka,
    print_verified,
)
from tidelog.client import admin
from tidelog.client.addresses import DEFAULT_BOOTSTRAP
from tidelog.client.blocking import BlockingCluster
from tidelog.client.errors import ClientError, UnsupportedByBroker
from tidelog.client.operations import Operation
from tidelog.model.errors import KafkaError
from tidelog.operator.execution import PATIENCE_S, Changed, Ended, Execution
from tidelog.operator.files import write_plan_file
from tidelog.operator.journal import Asked, Journal, JournalFiles, Run, RunKind, RunStatus, Wish, default_folder
from tidelog.operator.progress import Progress, Standing
from tidelog.operator.reading import read_placement
from tidelog.operator.surroundings import Sight
from tidelog.placement.plan.documents import DocumentError
from tidelog.placement.plan.goals import PlanRefused
from tidelog.placement.plan.kafka_json import load_kafka
from tidelog.placement.plan.plan import Plan
from tidelog.placement.plan.plan_file import is_plan, load_plan
from tidelog.placement.plan.planner import try_out
from tidelog.placement.plan.state import ClusterState

LOOK_S = 0.2
"""How often a command looks whether the process that it asked has obeyed."""
INVERSE_SUFFIX = ".inverse"

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Carry out plans of moves, and undo them.")

PlanFile: TypeAlias = Annotated[
    Path,
    typer.Argument(metavar="PLAN", help="What `tidelog plan --out` has kept, or a list of kafka-reassign-partitions."),
]
OptionalPlanFile: TypeAlias = Annotated[
    Path | None, typer.Argument(metavar="[PLAN]", help="The plan; without it, the last run on this cluster.")
]
Throttle: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--throttle",
        min=1,
        metavar="BYTES/S",
        help="What moves may copy into and out of each broker in a second; less while followers cannot keep up.",
        show_default="none",
    ),
]
Folder: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--journal",
        metavar="FOLDER",
        help="Where it is noted what was run and which throttles were set, a file for each cluster.",
        show_default="$XDG_STATE_HOME/tidelog",
    ),
]
Patience: TypeAlias = Annotated[
    float,
    typer.Option(
        "--patience", min=0, metavar="SECONDS", help="How long brokers may be away before it ends without them."
    ),
]


class Session:
    """A cluster, the journal about it, and what to show; the surroundings of an `Execution`."""

    def __init__(self, cluster: BlockingCluster, files: JournalFiles, display: Display, patience_s: float) -> None:
        self.cluster = cluster
        self.files = files
        self.display = display
        self.patience_s = patience_s
        self._journal = files.load()

    @property
    def execution(self) -> Execution:
        """What carries plans out here."""
        return Execution(self.cluster.routing, self, patience_s=self.patience_s)

    def do(self, operation: Operation[Ended]) -> Ended:
        """Carries an operation of `execution` out, and leaves no throttle behind where it fails."""
        try:
            return self.cluster.run(operation)
        except Changed as error:
            self.tidy()
            raise Refused(error.changes) from None
        except UnsupportedByBroker as error:
            self.tidy()
            raise Refused([f"the cluster cannot be told so by this protocol: {error}", *_WITHOUT_THE_API]) from None
        except KeyboardInterrupt:
            self.display.say(
                "interrupted: moves under way go on in the cluster, throttled as they are. `tidelog reassign resume` "
                "goes on, `cancel` takes them back"
            )
            raise
        except (KafkaError, ClientError) as error:
            self.tidy()
            raise Refused([str(error), "what is under way goes on: see `tidelog reassign status`"]) from None

    def tidy(self) -> None:
        """Removes throttles that a killed run has left, where nothing of it is under way."""
        try:
            self.cluster.run(self.execution.tidy())
        except (KafkaError, ClientError) as error:
            self.say(f"throttles of an interrupted run are left, and could not be removed now: {error}")

    def reload(self) -> Journal:
        """The journal as it is now; another process may write it."""
        self._journal = self.files.load()
        return self._journal

    # Surroundings

    def journal(self) -> Journal:
        return self._journal

    def save(self, journal: Journal) -> None:
        self.files.save(journal)
        self._journal = journal

    def wish(self) -> Asked | None:
        return self.files.take_wish()

    def has_wish(self) -> bool:
        return self.files.has_wish()

    def wall_ms(self) -> int:
        return int(time.time() * 1000)

    def show(self, sight: Sight) -> None:
        self.display.show(sight)

    def say(self, text: str) -> None:
        self.display.say(text)


_WITHOUT_THE_API = (
    "moves between brokers need Kafka 2.4 or later. Without it `tidelog plan -o kafka` prints the list for that "
    "cluster's own kafka-reassign-partitions; moves between log directories need Kafka 1.1",
)


@app.command("run")
def run_plan(
    plan: PlanFile,
    throttle: Throttle = None,
    output: Output = Form.TABLE,
    journal: Folder = None,
    patience: Patience = PATIENCE_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Carry out a plan, and wait until all is done.

    A run that was interrupted goes on where it stands. What was, is kept in PLAN.inverse and in the journal:
    `tidelog reassign rollback` goes back.
    """
    with open_session(bootstrap, timeout, journal, patience, output) as session, alone(session):
        chosen = _plan(session, plan, throttle=throttle)
        _keep_inverse(session, plan, chosen)
        if output is Form.KAFKA:
            print_started_as_kafka(chosen)
        finish(session, session.execution.run(chosen, throttle=throttle, plan_path=str(plan.absolute())), output)


@app.command()
def rollback(
    plan: OptionalPlanFile = None,
    throttle: Throttle = None,
    output: Output = Form.TABLE,
    journal: Folder = None,
    patience: Patience = PATIENCE_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Undo what is done of a plan, and wait until all is as it was."""
    with open_session(bootstrap, timeout, journal, patience, output) as session, alone(session):
        path = None if plan is None else str(plan.absolute())
        if plan is not None:
            operation = session.execution.rollback(_plan(session, plan, back=True), throttle=throttle, plan_path=path)
        else:
            last = _last_run(session)
            if last.kind is RunKind.ROLLBACK and not last.status.unfinished:
                session.say("nothing to undo: the last run on this cluster was undone already")
                return
            rate = last.throttle if throttle is None else throttle
            if last.kind is RunKind.ROLLBACK:
                operation = session.execution.run(last.plan, kind=last.kind, throttle=rate)
            else:
                operation = session.execution.rollback(last.plan, throttle=throttle, plan_path=last.plan_path)
        finish(session, operation, output)


@app.command()
def resume(
    throttle: Throttle = None,
    output: Output = Form.TABLE,
    journal: Folder = None,
    patience: Patience = PATIENCE_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Go on with a run that was paused, or interrupted: then this process carries it out, and waits."""
    with open_session(bootstrap, timeout, journal, patience, output) as session:

        def carry_on() -> None:
            last = _unfinished_run(session, "go on with")
            rate = last.throttle if throttle is None else throttle
            finish(session, session.execution.run(last.plan, kind=last.kind, throttle=rate), output)

        if _here_or_asked(
            session,
            carry_on,
            Asked(Wish.RESUME, throttle),
            lambda run: run.status is not RunStatus.PAUSED and not session.files.has_wish(),
            timeout,
        ):
            session.say("resumed")


@app.command()
def pause(
    journal: Folder = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Let moves under way end, and begin no other one until `resume`."""
    with open_session(bootstrap, timeout, journal, timeout, Form.TABLE) as session:

        def stay() -> None:
            session.tidy()
            _unfinished_run(session, "pause")
            session.say("no process carries the run out: nothing is begun until `tidelog reassign resume`")

        if _here_or_asked(session, stay, Asked(Wish.PAUSE), lambda run: run.status is not RunStatus.RUNNING, timeout):
            session.say("paused: moves under way go on to their ends, no other one is begun")


@app.command()
def cancel(
    output: Output = Form.TABLE,
    journal: Folder = None,
    patience: Patience = PATIENCE_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Take back the moves that are under way, and begin no other one. What is done stays; `rollback` undoes it."""
    with open_session(bootstrap, timeout, journal, patience, output) as session:

        def take_back() -> None:
            if not _last_run(session).status.unfinished:
                session.tidy()
            last = _unfinished_run(session, "cancel")
            print_ended(session.do(session.execution.cancel(last)), output, session.display)

        if _here_or_asked(session, take_back, Asked(Wish.CANCEL), lambda run: not run.status.unfinished, patience):
            session.say("cancelled")


@app.command()
def status(
    output: Output = Form.TABLE,
    journal: Folder = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Show how far the last run is, which throttles of ours are set, and what others move."""
    with open_session(bootstrap, timeout, journal, timeout, output) as session:
        with session.files.locked() as free:
            if free:
                session.tidy()
        known = session.reload()
        print_standing(known, session.cluster.run(read_placement(session.cluster.routing)), not free, output)


@app.command()
def verify(
    plan: OptionalPlanFile = None,
    output: Output = Form.TABLE,
    journal: Folder = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Tell whether each move of a plan is done; exit code 0 if all are."""
    with open_session(bootstrap, timeout, journal, timeout, output) as session:
        with session.files.locked() as free:
            if free:
                session.tidy()
        chosen = _last_run(session).plan if plan is None else _plan(session, plan, back=True)
        progress = Progress.of(chosen, session.cluster.run(read_placement(session.cluster.routing)))
        print_verified(progress, output)
        open_moves = [each for each in progress.moves if each.standing is not Standing.DONE]
        if open_moves:
            raise Refused([f"{len(open_moves)} of {len(progress.moves)} moves are not done"])


@contextlib.contextmanager
def open_session(
    bootstrap: str, timeout_s: float, folder: Path | None, patience_s: float, output: Form
) -> Iterator[Session]:
    with connect("reassign", bootstrap, timeout_s) as cluster:
        view = cluster.run(admin.describe_cluster(cluster.routing))
        files = JournalFiles(default_folder(os.environ) if folder is None else folder, view.cluster_id)
        display = Display(quiet=output is not Form.TABLE)
        try:
            yield Session(cluster, files, display, patience_s)
        except DocumentError as error:
            raise Refused([str(error)]) from None
        finally:
            display.end()


@contextlib.contextmanager
def alone(session: Session) -> Iterator[None]:
    """For commands that carry plans out: one at a time on a cluster."""
    with session.files.locked() as free:
        if not free:
            raise Refused(
                [
                    "another `tidelog reassign` is at work on this cluster: `tidelog reassign status` shows it, "
                    "`pause`, `resume` and `cancel` are for it"
                ]
            )
        session.reload()
        session.files.take_wish()  # One for a process that has ended.
        yield


def finish(session: Session, operation: Operation[Ended], output: Form) -> None:
    ended = session.do(operation)
    print_ended(ended, output, session.display)
    if ended.status is not RunStatus.DONE:
        raise Refused([f"{len(ended.left)} of {ended.moves} moves are not done: the run is {ended.status}"])


def _last_run(session: Session) -> Run:
    run = session.reload().run
    if run is None:
        raise Refused([f"nothing was run on this cluster from here: {session.files.path} does not exist"])
    return run


def _unfinished_run(session: Session, what_for: str) -> Run:
    last = _last_run(session)
    if not last.status.unfinished:
        raise Refused([f"the last run on this cluster has ended: there is nothing to {what_for}"])
    return last


def _here_or_asked(
    session: Session, here: Callable[[], None], wish: Asked, obeyed: Callable[[Run], bool], timeout_s: float
) -> bool:
    """Does it by `here` where no process carries a run out; else asks that process, waits for it, and returns true."""
    with session.files.locked() as free:
        if free:
            here()
            return False
    session.files.ask(wish)
    _await(session, obeyed, timeout_s)
    return True


def _await(session: Session, obeyed: Callable[[Run], bool], timeout_s: float) -> None:
    """Until the process that carries out a plan has done what it was asked, or has ended."""
    deadline = time.monotonic() + timeout_s
    while True:
        run = session.reload().run
        if run is None or obeyed(run):
            return
        with session.files.locked() as free:
            if free:
                raise Refused(["the process that carried out the plan has ended: see `tidelog reassign status`"])
        if time.monotonic() >= deadline:
            raise Refused([f"the process that carries out the plan has not answered within {timeout_s:g} s"])
        time.sleep(LOOK_S)


def _plan(session: Session, path: Path, *, back: bool = False, throttle: int | None = None) -> Plan:
    """The plan of a file; Kafka's list is one from the cluster's present state, or from that of its own last run."""
    text = path.read_bytes()
    try:
        if is_plan(text):
            return load_plan(text)
        state = session.cluster.run(read_placement(session.cluster.routing))
        return _plan_of_list(session, text, state, back=back, throttle=throttle)
    except DocumentError as error:
        raise Refused([f"{path}: {error}"]) from None
    except PlanRefused as error:
        raise Refused(error.reasons) from None


def _plan_of_list(session: Session, text: bytes, state: ClusterState, *, back: bool, throttle: int | None) -> Plan:
    wanted = load_kafka(text, state)
    last = session.reload().run
    if last is not None and last.kind is RunKind.RUN and (last.status.unfinished or back):
        known = {move.key: (move.replicas_to, move.directories_to) for move in last.plan.moves}
        if all(known.get(move.key, (None,))[0] == move.replicas_to for move in wanted.moves):
            return last.plan
    return wanted if back else try_out(wanted, state, throttle)


def _keep_inverse(session: Session, path: Path, plan: Plan) -> None:
    inverse = path.with_name(path.name + INVERSE_SUFFIX)
    try:
        write_plan_file(inverse, plan.inverse())
    except OSError as error:
        session.say(f"{inverse} could not be written ({error.strerror}); the journal has what it takes to go back")
