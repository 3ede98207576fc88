"""`tidelog brokers` and `tidelog log-dirs move`: shown, cordoned, emptied; honoured by creation and by plans."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Outcome, Tidelog
from tests.waiting import until, until_equal

from tidelog import cli
from tidelog.testing import Cluster


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[str]]]:
    """Three brokers in two racks, the first of which with two log directories."""
    folder = tmp_path_factory.mktemp("disks")
    directories = [str(folder / name) for name in ("a", "b")]
    of_broker = {
        0: {"log.dirs": ",".join(directories), "broker.rack": "x"},
        1: {"broker.rack": "x"},
        2: {"broker.rack": "y"},
    }
    with Cluster({"auto.create.topics.enable": "false"}, brokers=3, of_broker=of_broker) as cluster:
        yield cluster.bootstrap, directories


@pytest.fixture
def tidelog(
    brokers: tuple[str, list[str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Tidelog:
    """Runs a command in this process."""
    monkeypatch.setenv("TIDELOG_BOOTSTRAP", brokers[0])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments: str) -> Outcome:
        capsys.readouterr()
        code = cli.run(arguments)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


def places(tidelog: Tidelog, topic: str) -> dict[str, int]:
    """[directory of broker 0] -> replicas of the topic."""
    [shown] = tidelog("log-dirs", "--broker", "0", "--topic", topic, "-o", "json").json
    return {each["logDir"]: sum(not found["isFuture"] for found in each["partitions"]) for each in shown["logDirs"]}


@pytest.mark.row("R04")
def test_brokers_are_shown_and_cordoned(tidelog: Tidelog, topic: str, tmp_path: Path) -> None:
    """A cordoned broker is seen, gets no new replica, no partition of a growing topic, and none by a plan."""
    shown = tidelog("brokers", "-o", "json").json
    assert [(each["broker"], each["rack"], each["cordoned"], each["online"]) for each in shown] == [
        (0, "x", False, True),
        (1, "x", False, True),
        (2, "y", False, True),
    ]
    assert len(shown[0]["logDirs"]) == 2
    assert shown[0]["kafka"] == "4.1"
    assert tidelog("brokers", "cordon", "1").out == "broker 1 is cordoned: it gets no new replicas\n"
    assert [each["cordoned"] for each in tidelog("brokers", "-o", "json").json] == [False, True, False]
    assert "cordoned" in tidelog("brokers").out
    assert tidelog("topics", "create", topic, "-p", "4", "-r", "2").code == 0
    assert tidelog("topics", "alter", topic, "-p", "6").code == 0
    until_equal(lambda: [each["replicas"] for each in tidelog("brokers", "-o", "json").json], [6, 0, 6])
    refused = tidelog("topics", "create", f"{topic}-3", "-p", "1", "-r", "3")
    assert refused.code == 1
    assert "1 of them cordoned" in refused.err
    planned = tidelog("plan", "--balance", "counts", "-o", "json")
    assert all(1 not in move["replicas_to"] for move in planned.json["plan"])
    assert tidelog("brokers", "uncordon", "1").code == 0
    planned = tidelog("plan", "--balance", "counts", "-o", "json")
    assert any(1 in move["replicas_to"] for move in planned.json["plan"])
    assert tidelog("topics", "delete", topic).code == 0


@pytest.mark.row("R03")
def test_a_disk_is_emptied_and_closed(tidelog: Tidelog, brokers: tuple[str, list[str]], topic: str) -> None:
    """All replicas leave the directory, which gets no new ones while it is cordoned; one command undoes the move."""
    first, second = brokers[1]
    assert tidelog("topics", "create", topic, "--replica-assignment", "0,0,0,0").code == 0
    until(lambda: sum(places(tidelog, topic).values()) == 4)
    before = places(tidelog, topic)
    assert before[first]
    assert tidelog("log-dirs", "cordon", first, "--broker", "0").code == 0
    [shown] = [each for each in tidelog("brokers", "-o", "json").json if each["broker"] == 0]
    assert [(each["logDir"], each["cordoned"]) for each in shown["logDirs"]] == [(first, True), (second, False)]
    dry = tidelog("log-dirs", "move", "--broker", "0", "--from", first, "--dry-run")
    assert (dry.code, places(tidelog, topic)) == (0, before)
    moved = tidelog("log-dirs", "move", "--broker", "0", "--from", first, "--throttle", "1000000", "-o", "json")
    assert (moved.code, moved.json["status"]) == (0, "done"), moved
    assert places(tidelog, topic) == {first: 0, second: 4}
    assert tidelog("topics", "create", f"{topic}-new", "--replica-assignment", "0,0").code == 0
    until(lambda: places(tidelog, f"{topic}-new") == {first: 0, second: 2})
    assert tidelog("reassign", "rollback").code == 0
    assert places(tidelog, topic) == before
    assert tidelog("log-dirs", "uncordon", first, "--broker", "0").code == 0
    one = tidelog("log-dirs", "move", f"{topic}-0", "--broker", "0", "--to", second)
    assert one.code == 0, one
    for name in (topic, f"{topic}-new"):
        tidelog("topics", "delete", name)


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("move", "--broker", "0"), 2, "--from"),
        (("move", "t-0", "--broker", "0"), 2, "--to"),
        (("move", "t", "--broker", "0", "--to", "/x"), 2, "TOPIC-PARTITION"),
        (("move", "--broker", "0", "--from", "/nowhere"), 1, "has no log directory /nowhere"),
        (("move", "--broker", "9", "--from", "/x"), 1, "no live broker 9"),
        (("move", "--broker", "1", "--from", "BROKER-1"), 1, "no other log directory"),
    ],
)
def test_what_cannot_be_moved(tidelog: Tidelog, arguments: tuple[str, ...], code: int, reason: str) -> None:
    """Exit code 2 for what makes no sense, 1 for what is not there."""
    [shown] = tidelog("log-dirs", "--broker", "1", "-o", "json").json
    outcome = tidelog("log-dirs", *(each.replace("BROKER-1", shown["logDirs"][0]["logDir"]) for each in arguments))
    assert outcome.code == code, outcome
    assert reason in outcome.err
