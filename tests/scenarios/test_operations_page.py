"""docs/operations.md: each command of the tables under "Plans" and "Carrying a plan out", typed as it stands there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.scenarios.test_moving_partitions import Traffic
from tests.waiting import until

from tidelog import cli
from tidelog.client import admin
from tidelog.client.blocking import BlockingCluster
from tidelog.model.identifiers import TopicPartition
from tidelog.operator.reading import read_state
from tidelog.placement.plan.state import ClusterState
from tidelog.testing import Cluster

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
BROKERS = 5
"""The page names brokers 3 and 7, which is the last one here."""


def jobs(title: str) -> list[tuple[str, list[list[str]]]]:
    """The rows of the first table below a title: what is to be done, and its commands."""
    section = PAGE.split(f"{title}\n")[1]
    table = section[section.index("|---|---|\n") + 10 :].split("\n\n")[0]
    found = []
    for line in table.splitlines():
        job, cell = line.strip("| ").split(" | ", 1)
        commands = [shlex.split(each)[1:] for each in re.findall(r"`(tidelog [^`]+)`", cell)]
        found.append((job, commands))
    return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Five brokers in four racks; broker 3 has a second directory."""
    of_broker: dict[int, dict[str, object]] = {id: {"broker.rack": f"r{min(id, 3)}"} for id in range(BROKERS)}
    of_broker[3]["log.dirs"] = f"{tmp_path}/disk1,{tmp_path}/disk2"
    with Cluster(
        {"auto.create.topics.enable": False, "auto.leader.rebalance.enable": False},
        brokers=BROKERS,
        of_broker=of_broker,
    ) as cluster:
        yield cluster


def state_of(cluster: Cluster) -> ClusterState:
    with BlockingCluster(cluster.bootstrap) as client:
        return client.run(read_state(client.routing, taken_at_ms=0))


def replicas(cluster: Cluster) -> list[tuple[int, ...]]:
    return [each.replicas for key, each in state_of(cluster).partitions.items() if key.topic == "clicks"]


@pytest.mark.thorough
@pytest.mark.row("R12")
@pytest.mark.row("R13")
def test_each_job_of_the_page(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All commands succeed, clients see nothing of it, and at the end no throttle is left.

    Partition 2 lies twice in a rack, as after a change of racks.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDELOG_BOOTSTRAP", cluster.bootstrap)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assignment = {0: (3, 0), 1: (2, 3), 2: (4, 3)}
    with BlockingCluster(cluster.bootstrap) as client:
        client.run(admin.create_topics(client.routing, [admin.NewTopic("clicks", assignment=assignment)]))
    until(lambda: all(len(each.isr) == 2 for each in state_of(cluster).partitions.values()))

    def type_in(arguments: list[str]) -> None:
        capsys.readouterr()
        here = {"7": str(BROKERS - 1), "/disk2": f"{tmp_path}/disk2", "60": "1"}
        code = cli.run([here.get(each, each) for each in arguments])
        assert code == 0, (arguments, capsys.readouterr())

    type_in(["plan", "--balance", "counts", "-o", "kafka"])
    (tmp_path / "reassignment.json").write_text(capsys.readouterr().out)
    asked = [command for _, commands in jobs("## Plans") for command in commands]
    for command in asked:
        type_in(command)
    assert len(asked) > 14
    done = {}
    with Traffic(cluster, "clicks", 3) as traffic:
        for job, commands in jobs("### Carrying a plan out"):
            dead = "dead" in job
            if dead:
                cluster.stop(3)
                until(lambda: not state_of(cluster).brokers[3].online)
            for command in commands:
                type_in(command)
            done[job] = replicas(cluster)
            if dead:
                cluster.start(3)
            type_in(["brokers", "uncordon", "3"])
            type_in(["reassign", "rollback"])
    traffic.check()
    assert len(done) == 11
    for job, after in done.items():
        if "shrink" in job or "replace broker" in job or "dead" in job:
            assert not any(3 in each for each in after), job
        if "factor" in job:
            assert {len(each) for each in after} == {3 if "raise" in job else 1}, job
        if "racks" in job:
            assert all(len({min(id, 3) for id in each}) == 2 for each in after), job
    state = state_of(cluster)
    assert [each.throttles for each in (*state.brokers.values(), *state.topics.values()) if each.throttles] == []
    assert state.partitions[TopicPartition("clicks", 0)].replicas == assignment[0]
    assert replicas(cluster) == list(assignment.values())
