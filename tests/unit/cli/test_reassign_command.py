"""`tidelog reassign` on three brokers: run, watched and steered by another process, killed, gone on with, undone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.keeping import KEEPING
from tests.unit.cli.conftest import Outcome, Tidelog
from tests.waiting import DEADLINE_S, until, until_equal

from tidelog import cli
from tidelog.client import admin
from tidelog.client.blocking import BlockingCluster
from tidelog.model.identifiers import TopicPartition
from tidelog.operator.journal import Journal, JournalFiles, Run, RunKind, RunStatus
from tidelog.operator.reading import read_state
from tidelog.placement.plan.plan import Move, Plan
from tidelog.placement.plan.state import ClusterState
from tidelog.records.batch import Record, build_batch
from tidelog.testing import Cluster

PARTITIONS = 2
BATCHES = 3
"""In each partition, so that its copy needs several answers."""
CRAWL = "1"
"""Bytes a second: an answer brings one batch, the next would come hours later. So no copy ends by itself."""
FULL_SPEED = "100000000"


@pytest.fixture(scope="module")
def brokers() -> Iterator[str]:
    """Three brokers, the first of which with two directories."""
    with Cluster({**KEEPING, "auto.create.topics.enable": "false"}, brokers=3) as cluster:
        yield cluster.bootstrap


@pytest.fixture
def reassign(
    brokers: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Tidelog:
    """Runs a command in this process, with a journal of the test's own."""
    monkeypatch.setenv("TIDELOG_BOOTSTRAP", brokers)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments: str) -> Outcome:
        capsys.readouterr()
        code = cli.run(arguments)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


def state_of(bootstrap: str) -> ClusterState:
    with BlockingCluster(bootstrap) as client:
        return client.run(read_state(client.routing, taken_at_ms=0))


def make(bootstrap: str, topic: str, *, filled: bool = False) -> None:
    """A topic of two partitions on the brokers 0 and 1."""
    with BlockingCluster(bootstrap) as client:
        client.run(admin.create_topics(client.routing, [admin.NewTopic(topic, assignment={0: (0, 1), 1: (1, 0)})]))
        for partition in range(PARTITIONS if filled else 0):
            for _ in range(BATCHES):
                client.produce(TopicPartition(topic, partition), build_batch([Record(0, 0, None, bytes(10_000))]))


def write_list(path: Path, topic: str, *replicas: tuple[int, ...]) -> str:
    """Kafka's own list."""
    entries = [{"topic": topic, "partition": index, "replicas": list(each)} for index, each in enumerate(replicas)]
    path.write_text(json.dumps({"version": 1, "partitions": entries}))
    return str(path)


def until_on(bootstrap: str, topic: str, *replicas: tuple[int, ...]) -> None:
    """A broker that is asked may hear of a move's end a moment after the one that told the command."""
    until_equal(lambda: replicas_of(state_of(bootstrap), topic), list(replicas))


def replicas_of(state: ClusterState, topic: str) -> list[tuple[int, ...]]:
    return [each.replicas for key, each in state.partitions.items() if key.topic == topic]


def throttles_of(state: ClusterState) -> list[Any]:
    return [each.throttles for each in (*state.brokers.values(), *state.topics.values()) if each.throttles]


@contextlib.contextmanager
def process(bootstrap: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command as a process of its own."""
    command = [sys.executable, "-c", "from tidelog.cli import main; main()", *arguments, "-b", bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=dict(os.environ)) as started:
        try:
            yield started
        finally:
            started.kill()


@pytest.mark.row("R13")
def test_a_list_of_kafkas_is_run_verified_and_undone(
    reassign: Tidelog, brokers: str, topic: str, tmp_path: Path
) -> None:
    """One command there, one command back; the inverse lies beside the plan, and nothing is throttled at the end."""
    make(brokers, topic)
    plan = write_list(tmp_path / "plan.json", topic, (2, 1), (1, 2))
    ran = reassign("reassign", "run", plan, "--throttle", "1000000", "-o", "json")
    assert (ran.code, ran.json["status"], ran.json["done"], ran.json["left"]) == (0, "done", 2, [])
    assert ran.json["predicted_seconds"] > 0
    until_on(brokers, topic, (2, 1), (1, 2))
    assert throttles_of(state_of(brokers)) == []
    completed = [
        "Status of partition reassignment:",
        f"Reassignment of partition {topic}-0 is completed.",
        f"Reassignment of partition {topic}-1 is completed.",
    ]
    until_equal(lambda: reassign("reassign", "verify", plan, "-o", "kafka").lines, completed)
    assert json.loads((tmp_path / "plan.json.inverse").read_text())["moves"][0]["replicas_to"] == [0, 1]
    assert reassign("reassign", "rollback").code == 0
    until_on(brokers, topic, (0, 1), (1, 0))
    until_equal(lambda: reassign("reassign", "verify", plan).code, 1)
    again = reassign("reassign", "rollback")
    assert (again.code, again.out) == (0, "nothing to undo: the last run on this cluster was undone already\n")


def test_a_list_is_that_of_the_last_run_only_if_it_is_the_same(
    reassign: Tidelog, brokers: str, topic: str, tmp_path: Path
) -> None:
    """A list that asks for what is there already is verified in Kafka's words, and undoes no other run."""
    make(brokers, topic)
    other = f"{topic}-other"
    make(brokers, other)
    plan = write_list(tmp_path / "plan.json", topic, (2, 1), (1, 2))
    satisfied = write_list(tmp_path / "other.json", other, (0, 1), (1, 0))
    assert reassign("reassign", "run", plan).code == 0
    assert reassign("reassign", "verify", satisfied, "-o", "kafka").lines == [
        "Status of partition reassignment:",
        f"Reassignment of partition {other}-0 is completed.",
        f"Reassignment of partition {other}-1 is completed.",
    ]
    assert reassign("reassign", "rollback", satisfied).code == 0
    until_on(brokers, topic, (2, 1), (1, 2))
    assert reassign("reassign", "rollback", plan).code == 0
    until_on(brokers, topic, (0, 1), (1, 0))
    until_equal(
        lambda: reassign("reassign", "verify", plan, "-o", "kafka").lines[1],
        f"There is no active reassignment of partition {topic}-0, but replica set is 0,1 rather than 2,1.",
    )
    assert reassign("reassign", "status", "-o", "kafka").lines == ["No partition reassignments found."]


@pytest.mark.row("R13")
def test_a_run_is_steered_from_elsewhere(reassign: Tidelog, brokers: str, topic: str, tmp_path: Path) -> None:
    """Status, pause, resume with another throttle, by other processes; it ends whole."""
    make(brokers, topic, filled=True)
    plan = write_list(tmp_path / "plan.json", topic, (2, 1), (1, 2))
    with process(brokers, "reassign", "run", plan, "--throttle", CRAWL) as running:
        until(lambda: (reassign("reassign", "status", "-o", "json").json["run"] or {}).get("under_way"))
        seen = reassign("reassign", "status", "-o", "json").json
        assert (seen["run"]["status"], seen["run"]["alive"], seen["others"]) == ("running", True, [])
        assert seen["throttles"]["brokers"]
        listed = reassign("reassign", "status", "-o", "kafka").lines
        assert listed[0] == "Current partition reassignments:"
        assert f"{topic}-0: replicas: 2,1,0. adding: 2. removing: 0." in listed
        assert reassign("reassign", "run", plan).code == 1
        assert reassign("reassign", "pause").code == 0
        assert reassign("reassign", "status", "-o", "json").json["run"]["status"] == "paused"
        assert reassign("reassign", "resume", "--throttle", FULL_SPEED).code == 0
        output, _ = running.communicate(timeout=DEADLINE_S)
    assert running.returncode == 0, output
    until_on(brokers, topic, (2, 1), (1, 2))
    assert throttles_of(state_of(brokers)) == []


@pytest.mark.row("R13")
@pytest.mark.parametrize("then", ["resume", "cancel", "rollback"])
def test_a_run_that_was_killed(reassign: Tidelog, brokers: str, topic: str, tmp_path: Path, then: str) -> None:
    """SIGKILL in the middle: it is seen, gone on with or taken back, and no throttle is left."""
    make(brokers, topic, filled=True)
    plan = write_list(tmp_path / "plan.json", topic, (2, 1), (1, 2))
    with process(brokers, "reassign", "run", plan, "--throttle", CRAWL) as running:
        until(lambda: (reassign("reassign", "status", "-o", "json").json["run"] or {}).get("under_way"))
        running.send_signal(signal.SIGKILL)
        running.wait(DEADLINE_S)
    seen = reassign("reassign", "status", "-o", "json").json["run"]
    assert (seen["status"], seen["alive"]) == ("interrupted", False)
    assert throttles_of(state_of(brokers))
    arguments = [then, "--throttle", FULL_SPEED] if then != "cancel" else [then]
    assert reassign("reassign", *arguments).code == 0
    assert throttles_of(state_of(brokers)) == []
    until_on(brokers, topic, *([(2, 1), (1, 2)] if then == "resume" else [(0, 1), (1, 0)]))


def test_what_has_changed_is_told(reassign: Tidelog, brokers: str, topic: str, tmp_path: Path) -> None:
    """A plan for replicas that are others by now: exit code 1, a line for each change, nothing begun."""
    make(brokers, topic)
    plan = write_list(tmp_path / "list.json", topic, (2, 1), (1, 2))
    assert reassign("plan", "--list", plan, "--out", str(tmp_path / "plan.json")).code == 0
    with BlockingCluster(brokers) as client:
        client.run(admin.alter_reassignments(client.routing, {TopicPartition(topic, 0): (1, 2)}))
    until(lambda: replicas_of(state_of(brokers), topic)[0] == (1, 2))
    refused = reassign("reassign", "run", str(tmp_path / "plan.json"))
    assert refused.code == 1
    assert f"partition {topic}-0: its replicas are [1, 2], the plan is for [0, 1]" in refused.err
    assert reassign("reassign", "run", str(tmp_path / "plan.json"), "-o", "kafka").out == ""
    assert replicas_of(state_of(brokers), topic)[1] == (1, 0)


@pytest.mark.parametrize("status", [RunStatus.RUNNING, RunStatus.CANCELLED])
def test_a_rollback_of_a_list_that_was_interrupted_goes_on(
    reassign: Tidelog, brokers: str, topic: str, tmp_path: Path, status: RunStatus
) -> None:
    """One partition is back when it is killed, or cancelled: the same command brings the other one back."""
    make(brokers, topic)
    listed = write_list(tmp_path / "list.json", topic, (2, 1), (1, 2))
    assert reassign("reassign", "run", listed).code == 0
    files = JournalFiles(tmp_path / "tidelog", state_of(brokers).cluster_id)
    done = files.load().run
    assert done is not None
    files.save(Journal(Run(RunKind.ROLLBACK, done.plan.inverse(), status, plan_path=listed)))
    with BlockingCluster(brokers) as client:
        client.run(admin.alter_reassignments(client.routing, {TopicPartition(topic, 0): (0, 1)}))
    until_on(brokers, topic, (0, 1), (1, 2))
    assert reassign("reassign", "rollback", listed).code == 0
    until_on(brokers, topic, (0, 1), (1, 0))


@pytest.mark.parametrize("gone", ["topic", "broker"])
def test_a_list_is_known_whose_topic_or_broker_is_gone(
    reassign: Tidelog, brokers: str, topic: str, tmp_path: Path, gone: str
) -> None:
    """One partition was moved; a topic of the list was deleted since, or the broker that was to get the other died."""
    make(brokers, topic)
    lost = TopicPartition(f"{topic}-gone" if gone == "topic" else topic, 0 if gone == "topic" else 1)
    moves = [
        Move(topic, 0, (0, 1), (2, 1), (None, None), (None, None)),
        Move(*lost, (1, 0), (1, 2 if gone == "topic" else 9), (None, None), (None, None)),
    ]
    entries = [{"topic": each.topic, "partition": each.partition, "replicas": each.replicas_to} for each in moves]
    listed = tmp_path / "list.json"
    listed.write_text(json.dumps({"version": 1, "partitions": entries}))
    files = JournalFiles(tmp_path / "tidelog", state_of(brokers).cluster_id)
    files.save(Journal(Run(RunKind.RUN, Plan.of(moves), RunStatus.INCOMPLETE, plan_path=str(listed))))
    with BlockingCluster(brokers) as client:
        client.run(admin.alter_reassignments(client.routing, {TopicPartition(topic, 0): (2, 1)}))
    until_on(brokers, topic, (2, 1), (1, 0))
    verified = reassign("reassign", "verify", str(listed), "-o", "json")
    assert [each["status"] for each in verified.json] == ["done", "changed" if gone == "topic" else "not begun"]
    assert reassign("reassign", "rollback", str(listed)).code == 0
    until_on(brokers, topic, (0, 1), (1, 0))


def test_the_way_back_of_a_list_is_kept_when_it_is_run_again(
    reassign: Tidelog, brokers: str, topic: str, tmp_path: Path
) -> None:
    """All that it wants is done already: what leads back from before the first run stays beside the list."""
    make(brokers, topic)
    listed = write_list(tmp_path / "list.json", topic, (2, 1), (1, 2))
    inverse = tmp_path / "list.json.inverse"
    assert reassign("reassign", "run", listed).code == 0
    kept = inverse.read_text()
    assert reassign("reassign", "run", listed).code == 0
    assert inverse.read_text() == kept
    assert reassign("reassign", "run", str(inverse)).code == 0
    until_on(brokers, topic, (0, 1), (1, 0))


@pytest.mark.parametrize("command", ["run", "rollback", "verify"])
def test_a_plan_for_another_cluster(reassign: Tidelog, brokers: str, topic: str, tmp_path: Path, command: str) -> None:
    """Topics of the same names are none of its: it is refused, and the reason is told."""
    make(brokers, topic)
    plan = tmp_path / "plan.json"
    listed = write_list(tmp_path / "list.json", topic, (2, 1), (1, 2))
    assert reassign("plan", "--list", listed, "--out", str(plan)).code == 0
    plan.write_text(json.dumps(json.loads(plan.read_text()) | {"cluster_id": "other"}))
    refused = reassign("reassign", command, str(plan))
    assert refused.code == 1
    assert "the plan is for cluster other, this is" in refused.err


def test_a_throttle_that_no_setting_holds(reassign: Tidelog, brokers: str, topic: str, tmp_path: Path) -> None:
    """It is refused before anything is begun, and the journal can still be read."""
    make(brokers, topic)
    plan = write_list(tmp_path / "list.json", topic, (2, 1), (1, 2))
    assert reassign("reassign", "run", plan, "--throttle", str(2**63)).code == 2
    assert reassign("plan", "--list", plan, "--throttle", "9" * 400).code == 2
    assert reassign("reassign", "status").code == 0
    assert replicas_of(state_of(brokers), topic) == [(0, 1), (1, 0)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ('{"version": 2, "partitions": []}', "this program reads version 1"),
        ('{"version": 1, "partitions": [{"topic": "nobody", "partition": 0, "replicas": [0]}]}', "no such topic"),
        ('{"format": "tidelog-plan", "version": 9, "moves": []}', "version"),
    ],
)
def test_files_that_are_no_plan(reassign: Tidelog, tmp_path: Path, text: str, reason: str) -> None:
    """Exit code 1, one line with the file and what is wrong."""
    path = tmp_path / "plan.json"
    path.write_text(text)
    refused = reassign("reassign", "run", str(path))
    assert refused.code == 1
    assert str(path) in refused.err
    assert reason in refused.err


def test_nothing_was_run(reassign: Tidelog, tmp_path: Path) -> None:
    """Status says so; what needs a run says where it looked."""
    assert reassign("reassign", "status").out == "nothing was run on this cluster from here\n"
    commands: list[Callable[[], Outcome]] = [
        lambda: reassign("reassign", "rollback"),
        lambda: reassign("reassign", "verify"),
        lambda: reassign("reassign", "cancel"),
    ]
    for command in commands:
        outcome = command()
        assert outcome.code == 1
        assert str(tmp_path) in outcome.err
    (tmp_path / "tidelog").mkdir(exist_ok=True)
    journals = list((tmp_path / "tidelog").glob("*.lock"))
    assert journals
    journals[0].with_suffix(".json").write_text("{]")
    broken = reassign("reassign", "status")
    assert broken.code == 1
    assert "not JSON" in broken.err
