"""What the commands of `tidelog reassign` share: who carries a plan out, and what was asked of another process."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.cli.options import Form
from tidelog.cli.reassign_output import Display, print_standing, print_verified
from tidelog.cli.reassign_session import Session, here_or_asked
from tidelog.model.identifiers import TopicPartition
from tidelog.operator.journal import Asked, Journal, JournalFiles, Run, RunKind, RunStatus, Wish
from tidelog.operator.progress import Progress
from tidelog.operator.surroundings import Sight, Stage
from tidelog.placement.plan.plan import Move, Plan
from tidelog.placement.plan.state import (
    BrokerState,
    ClusterState,
    DirectoryState,
    PartitionState,
    ReassignmentState,
    TopicState,
)


@pytest.mark.parametrize("wish", [Wish.CANCEL, Wish.PAUSE])
def test_what_was_asked_of_a_process_that_has_ended_is_not_for_the_next_one(tmp_path: Path, wish: Wish) -> None:
    """It was killed before it looked: who goes on with the run has asked for something else."""
    files = JournalFiles(tmp_path, "c")
    files.ask(Asked(wish))
    session: Any = SimpleNamespace(files=files)
    found: list[Asked | None] = []
    asked = here_or_asked(session, lambda: found.append(files.take_wish()), Asked(Wish.RESUME), lambda run: True, 1.0)
    assert (asked, found) == (False, [None])


def test_a_command_that_looks_tidies_by_the_journal_as_it_is(tmp_path: Path) -> None:
    """The run has ended, and another one, between the command's start and its turn: they must not be forgotten."""
    files = JournalFiles(tmp_path, "c")
    plan = Plan.of([Move("t", 0, (0,), (1,), (None,), (None,))])
    files.save(Journal(Run(RunKind.RUN, plan), broker_throttles={(0, "leader.replication.throttled.rate"): ("7",)}))
    asked: list[object] = []

    def run(operation: Any) -> None:
        """Tells of what the cluster is asked, and that all went well."""
        with pytest.raises(StopIteration):
            asked.append(next(operation))

    cluster: Any = SimpleNamespace(routing=SimpleNamespace(now=lambda: 0.0), run=run)
    session = Session(cluster, files, Display(quiet=True), 1.0)
    ended = Journal(Run(RunKind.RUN, plan, RunStatus.DONE, ended_at_ms=1))
    files.save(ended)
    session.tidy()
    assert asked == []
    assert (session.journal(), files.load()) == (ended, ended)


def test_what_others_move_is_shown_of_partitions_of_the_last_run_too(capsys: pytest.CaptureFixture[str]) -> None:
    """A run is done, and another tool has begun to move one of its partitions on."""
    state = ClusterState.of(
        brokers=[BrokerState(id) for id in range(3)],
        topics=[TopicState("t")],
        partitions=[PartitionState("t", 0, (2, 1), 1, (1,)), PartitionState("t", 1, (0, 1), 1, (1,))],
        reassignments={
            TopicPartition("t", 0): ReassignmentState((2,), ()),
            TopicPartition("t", 1): ReassignmentState((0,), ()),
        },
    )
    moves = [Move("t", 0, (0,), (1,), (None,), (None,)), Move("t", 1, (1,), (0, 1), (None,), (None, None))]
    print_standing(Journal(Run(RunKind.RUN, Plan.of(moves))), state, alive=False, output=Form.JSON)
    assert [each["partition"] for each in json.loads(capsys.readouterr().out)["others"]] == [0]


@pytest.mark.parametrize(
    ("form", "told"),
    [
        (Form.JSON, '"status": "in another directory"'),
        (Form.KAFKA, "Partition t-0 on broker 1 is not being moved from log dir /a to /b."),
    ],
)
def test_a_replica_in_another_directory_is_not_under_way(
    capsys: pytest.CaptureFixture[str], form: Form, told: str
) -> None:
    """Its broker has refused the directory, or forgotten what it was asked: nothing is copied, and it is not done."""
    state = ClusterState.of(
        brokers=[BrokerState(id, directories=(DirectoryState("/a"), DirectoryState("/b"))) for id in range(2)],
        topics=[TopicState("t")],
        partitions=[PartitionState("t", 0, (1,), 1, (1,), ("/a",), (5,))],
    )
    plan = Plan.of([Move("t", 0, (0,), (1,), ("/a",), ("/b",))])
    print_verified(Progress.of(plan, state), state, form)
    printed = capsys.readouterr().out
    assert told in printed
    assert "in progress" not in printed


def test_a_run_goes_on_where_nobody_reads_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """`| head` has seen enough: moves that were begun, and their throttles, must not be left behind for that."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as nobody:
        monkeypatch.setattr("sys.stdout", nobody)
        display = Display()
        display.say("moves are begun")
        display.show(Sight(Stage.MOVING, 1, 1, 0, 1, 10, 10, 0.0, 5))
        display.end()
        print("what else is told", flush=True)
