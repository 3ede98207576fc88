"""What the commands of `tidelog reassign` share: the cluster with its journal, one process at a time, the options.

One process at a time carries out a plan on a cluster; the others ask it. They share the journal, on this machine.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from tidelog.cli.cluster import connect
from tidelog.cli.errors import Refused
from tidelog.cli.option_groups import OptionGroup
from tidelog.cli.options import COUNT_MAX, DEFAULT_TIMEOUT_S, Bootstrap, Form, Output, TimeoutS
from tidelog.cli.reassign_output import Display, print_ended
from tidelog.client import admin
from tidelog.client.addresses import DEFAULT_BOOTSTRAP
from tidelog.client.blocking import BlockingCluster
from tidelog.client.errors import ClientError, UnsupportedByBroker
from tidelog.client.operations import Operation
from tidelog.model.errors import KafkaError
from tidelog.operator.execution import PATIENCE_S, Changed, Ended, Execution
from tidelog.operator.journal import Asked, Journal, JournalFiles, Run, RunStatus, default_folder
from tidelog.operator.surroundings import Sight
from tidelog.placement.plan.documents import DocumentError

LOOK_S = 0.2
"""How often a command looks whether the process that it asked has obeyed."""

Throttle: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--throttle",
        min=1,
        max=COUNT_MAX,
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
        self.tell_begun: Callable[[], None] | None = None
        """Called once when a run was accepted: nothing is to be said of one that is refused."""
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
        """Removes throttles that a killed run has left, where nothing of it is under way; for who has the lock.

        The journal is read again: the run may have ended since, and another one, which it would be written over.
        """
        self.reload()
        try:
            self.cluster.run(self.execution.tidy())
        except (KafkaError, ClientError) as error:
            self.say(f"throttles of an interrupted run are left, and could not be removed now: {error}")

    def begun(self) -> None:
        """The run was accepted."""
        tell, self.tell_begun = self.tell_begun, None
        if tell is not None:
            tell()

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
        self.begun()
        self.display.show(sight)

    def say(self, text: str) -> None:
        self.display.say(text)


_WITHOUT_THE_API = (
    "moves between brokers need Kafka 2.4 or later. Without it `tidelog plan -o kafka` prints the list for that "
    "cluster's own kafka-reassign-partitions; moves between log directories need Kafka 1.1",
)


@dataclass(frozen=True)
class PlaceOptions(OptionGroup):
    """Which cluster, how long a call takes at most, and where it is noted what is run on it."""

    journal: Folder = None
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP
    timeout: TimeoutS = DEFAULT_TIMEOUT_S

    def session(self) -> contextlib.AbstractContextManager[Session]:
        """The cluster, for a command that carries nothing out."""
        return self._session(self.timeout, Form.TABLE)

    @contextlib.contextmanager
    def _session(self, patience_s: float, output: Form) -> Iterator[Session]:
        with connect("reassign", self.bootstrap, self.timeout) as cluster:
            view = cluster.run(admin.describe_cluster(cluster.routing))
            folder = default_folder(os.environ) if self.journal is None else self.journal
            display = Display(quiet=output is not Form.TABLE)
            try:
                yield Session(cluster, JournalFiles(folder, view.cluster_id), display, patience_s)
            except DocumentError as error:
                raise Refused([str(error)]) from None
            finally:
                display.end()


@dataclass(frozen=True)
class LookOptions(PlaceOptions):
    """Those of a command that tells something."""

    output: Output = Form.TABLE

    def session(self) -> contextlib.AbstractContextManager[Session]:
        """As that of `PlaceOptions`."""
        return self._session(self.timeout, self.output)


@dataclass(frozen=True)
class RunOptions(LookOptions):
    """Those of a command that carries moves out and waits for them."""

    patience: Patience = PATIENCE_S

    def session(self) -> contextlib.AbstractContextManager[Session]:
        """The cluster, for a command that waits."""
        return self._session(self.patience, self.output)


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
    session.begun()  # One that finds all done, or has no moves, shows nothing.
    print_ended(ended, output, session.display)
    if ended.status is not RunStatus.DONE:
        raise Refused([f"{len(ended.left)} of {ended.moves} moves are not done: the run is {ended.status}"])


def last_run(session: Session) -> Run:
    run = session.reload().run
    if run is None:
        raise Refused([f"nothing was run on this cluster from here: {session.files.path} does not exist"])
    return run


def unfinished_run(session: Session, what_for: str) -> Run:
    last = last_run(session)
    if not last.status.unfinished:
        raise Refused([f"the last run on this cluster has ended: there is nothing to {what_for}"])
    return last


def here_or_asked(
    session: Session, here: Callable[[], None], wish: Asked, obeyed: Callable[[Run], bool], timeout_s: float
) -> bool:
    """Does it by `here` where no process carries a run out; else asks that process, waits for it, and returns true."""
    with session.files.locked() as free:
        if free:
            session.files.take_wish()  # One for a process that has ended.
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
        with session.files.locked(looking=True) as free:
            if free:
                raise Refused(["the process that carried out the plan has ended: see `tidelog reassign status`"])
        if time.monotonic() >= deadline:
            raise Refused([f"the process that carries out the plan has not answered within {timeout_s:g} s"])
        time.sleep(LOOK_S)  # The other process speaks through the journal, a file, which sends no event.
