"""`tidelog plan`: from a file and from a cluster, for people, programs and Kafka's tool; and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import Tidelog

SIZE = 1000


def write_state(path: Path, **changes: Any) -> str:
    """Three brokers, of which the last is empty, with six partitions of two replicas."""
    document: dict[str, Any] = {
        "version": 1,
        "brokers": [{"id": broker, "log_dirs": [{"path": "/d"}]} for broker in range(3)],
        "topics": [
            {
                "name": "t",
                "partitions": [
                    {"partition": number, "replicas": [0, 1], "log_dirs": ["/d", "/d"], "bytes": [SIZE, SIZE]}
                    for number in range(6)
                ],
            }
        ],
    }
    path.write_text(json.dumps(document | changes))
    return str(path)


def test_a_plan_for_programs(tidelog: Tidelog, tmp_path: Path) -> None:
    """Moves beside the least as integers, bytes, gap, seconds, and the list; the plan is kept, and so is the state."""
    state, out, kept = write_state(tmp_path / "state"), tmp_path / "plan", tmp_path / "kept"
    command = ("plan", "--from", state, "--balance", "counts", "--balance", "leaders")
    outcome = tidelog(*command, "--out", str(out), "--save-state", str(kept), "-o", "json")
    assert outcome.code == 0, outcome.err
    found = outcome.json
    assert (found["moves"], found["moves_least"], found["bytes"], found["gap"]) == (4, 4, 4 * SIZE, 0.0)
    assert found["seconds"] >= 0
    assert found["simulation"]["lowest_isr"]["replicas"] == 2
    counts = dict.fromkeys(range(3), 0)
    leaders = dict.fromkeys(range(3), 0)
    after = {number: [0, 1] for number in range(6)} | {each["partition"]: each["replicas_to"] for each in found["plan"]}
    for replicas in after.values():
        leaders[replicas[0]] += 1
        for broker in replicas:
            counts[broker] += 1
    assert set(counts.values()) == {4}
    assert set(leaders.values()) == {2}
    assert json.loads(out.read_text())["moves"] == found["plan"]
    again = tidelog(*command[:2], str(kept), *command[3:], "-o", "json").json
    assert again["plan"] == found["plan"]


def test_a_plan_for_people(tidelog: Tidelog, tmp_path: Path) -> None:
    """One screen: what is wrong, the plan beside the least, what it does, how long it takes, what is at stake."""
    state = write_state(tmp_path / "state")
    outcome = tidelog("plan", "--from", state, "--drain", "0", "--throttle", "1000", "--out", str(tmp_path / "plan"))
    assert outcome.code == 0, outcome.err
    assert "broker 2 holds no replica" in outcome.out
    assert "6 replicas to copy, the proven least; 1 wave" in outcome.out
    assert "6 -> 0" in outcome.out
    assert "at 1000 B/s for each broker: 7 s" in outcome.out
    assert "at least 2 replicas in sync" in outcome.out
    assert f"tidelog reassign run {tmp_path / 'plan'}" in outcome.out
    assert len(outcome.lines) < 40


def test_a_plan_without_moves_says_what_it_does_not_reach(tidelog: Tidelog, tmp_path: Path) -> None:
    """It is no plan for a goal that is reached where a limit, or a rule, lets nothing be moved."""
    state = write_state(tmp_path / "state")
    limited = tidelog("plan", "--from", state, "--balance", "counts", "--max-bytes", "1").out
    assert "nothing to move" in limited
    assert "reached" not in limited
    assert "but 4 moves more reach the goals: this plan is limited" in limited
    reached = tidelog("plan", "--from", state, "--balance", "racks").out
    assert "nothing to move: racks is reached" in reached


def test_a_plan_for_kafkas_tool_and_back(tidelog: Tidelog, tmp_path: Path) -> None:
    """What -o kafka prints is a list that --list reads."""
    state = write_state(tmp_path / "state")
    listed = tidelog("plan", "--from", state, "--drain", "1", "-o", "kafka").out
    assert json.loads(listed)["partitions"][0] == {
        "topic": "t",
        "partition": 0,
        "replicas": [0, 2],
        "log_dirs": ["any", "any"],
    }
    (tmp_path / "list").write_text(listed)
    found = tidelog("plan", "--from", state, "--list", str(tmp_path / "list"), "-o", "json").json
    assert (found["moves"], found["moves_least"]) == (6, None)


def test_a_live_cluster_is_read(tidelog: Tidelog, tmp_path: Path) -> None:
    tidelog("topics", "create", "planned", "--partitions", "2")
    state = tmp_path / "state"
    assert tidelog("plan", "--save-state", str(state)).code == 0
    document = json.loads(state.read_text())
    assert "planned" in [topic["name"] for topic in document["topics"]]
    assert document["brokers"][0]["log_dirs"][0]["total_bytes"] > 0
    outcome = tidelog("plan", "--balance", "counts", "-o", "json")
    assert (outcome.json["moves"], outcome.json["moves_least"]) == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "changes", "complaint"),
    [
        (("--balance", "counts"), {"version": 2}, "the document has 2"),
        (("--drain", "9"), {}, "--drain 9: there is no broker 9; there are 0, 1, 2"),
        (("--fill", "1", "--drain", "1"), {}, "--drain 1 contradicts --fill 1"),
        (("--balance", "counts", "--topic", "u"), {}, "--topic u: there is no such topic"),
        (("--factor", "4", "--topic", "t"), {}, "Replication factor: 4 larger than available brokers: 3."),
        (("--drain", "0", "--drain", "1"), {}, "t-0 needs 2 replicas and can have 1, on [2]"),
        (("--drain", "0", "--drain", "1", "--drain", "2"), {}, "no broker is left that may hold replicas"),
        (("--balance", "traffic"), {}, "the state has no traffic"),
        (("--balance", "counts", "--max-disks", "2"), {}, "--max-disks goes with --balance bytes"),
        (
            ("--balance", "counts"),
            {"brokers": [{"id": 0, "rack": "a"}, {"id": 1, "rack": "b"}, {"id": 2}]},
            "Not all brokers have rack information for replica rack aware assignment: brokers 2 have none",
        ),
    ],
)
def test_what_is_refused(
    tidelog: Tidelog, tmp_path: Path, arguments: tuple[str, ...], changes: dict[str, Any], complaint: str
) -> None:
    """Exit code 1, each reason on a line of its own that names the rules."""
    outcome = tidelog("plan", "--from", write_state(tmp_path / "state", **changes), *arguments)
    assert outcome.code == 1
    assert complaint in outcome.err


@pytest.mark.parametrize(
    "arguments",
    [(), ("--factor", "2"), ("--list", "x", "--drain", "1"), ("--balance", "beauty"), ("--max-moves", "0")],
)
def test_wrong_usage(tidelog: Tidelog, arguments: tuple[str, ...]) -> None:
    assert tidelog("plan", *arguments).code == 2


def test_files_that_cannot_be_read(tidelog: Tidelog, tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("{")
    assert "not JSON" in tidelog("plan", "--from", str(tmp_path / "broken"), "--drain", "0").err
    missing = tidelog("plan", "--from", str(tmp_path / "missing"), "--drain", "0")
    assert (missing.code, "No such file" in missing.err) == (1, True)
