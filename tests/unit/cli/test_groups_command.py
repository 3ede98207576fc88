"""`tidelog groups` against a cluster, and its texts and plans by themselves."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Tidelog
from tests.waiting import until

from tidelog.cli import group_text
from tidelog.cli.durations import parse_duration
from tidelog.cli.errors import WrongUsage
from tidelog.cli.group_offsets import Progress, parse_moment, parse_topic, read_plan
from tidelog.cli.options import Form
from tidelog.client.addresses import Address
from tidelog.client.admin import GroupDescription, GroupListing, MemberDescription
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer, ConsumerSettings
from tidelog.client.views import Broker
from tidelog.model.identifiers import TopicPartition


@pytest.fixture
def filled(tidelog: Tidelog, topic: str, tmp_path: Path) -> str:
    """A topic of two partitions with three records each."""
    tidelog("topics", "create", topic, "--partitions", "2")
    lines = tmp_path / "lines"
    lines.write_text("a\nb\nc\n")
    for partition in ("0", "1"):
        tidelog("produce", topic, str(lines), "--partition", partition)
    return topic


@pytest.fixture
def group(tidelog: Tidelog, filled: str) -> str:
    """A group of the topic's name without members, which has read two records of partition 0 and all of 1."""
    tidelog("consume", filled, "--group", filled)
    tidelog("groups", "reset-offsets", filled, "--topic", f"{filled}:0", "--to-offset", "2", "--execute")
    return filled


@contextlib.contextmanager
def member(bootstrap: str, group: str, topic: str) -> Iterator[None]:
    """A member of the group that has joined, in a thread."""
    leaving = threading.Event()
    joined = threading.Event()

    async def consume() -> None:
        settings = ConsumerSettings(assignors=("range",), instance_id="i")
        async with Cluster(bootstrap, client_id="me") as cluster, Consumer(cluster, group, settings) as consumer:
            consumer.subscribe([topic])
            while not leaving.is_set():
                await consumer.poll(0.05)
                if consumer.assignment:
                    joined.set()

    thread = threading.Thread(target=lambda: asyncio.run(consume()))
    thread.start()
    try:
        assert joined.wait(180)
        yield
    finally:
        leaving.set()
        thread.join(180)


def test_groups_are_listed(tidelog: Tidelog, group: str) -> None:
    """With type and state; Kafka's text has names alone unless it is asked for more."""
    assert {"group": group, "type": "Classic", "state": "Empty"} in tidelog("groups", "list", "-o", "json").json
    assert group in tidelog("groups", "list", "-o", "kafka").lines
    assert group in tidelog("groups", "list", "--state", "Empty", "--type", "classic").out
    assert group not in tidelog("groups", "list", "--state", "Stable").out


def test_progress_of_a_group_without_members(tidelog: Tidelog, group: str) -> None:
    """Committed, end and lag of each partition; that nobody reads is said on stderr."""
    outcome = tidelog("groups", "describe", group)
    assert [line.split() for line in outcome.lines[2:]] == [
        [group, group, "0", "2", "3", "1", "-", "-", "-"],
        [group, group, "1", "3", "3", "0", "-", "-", "-"],
    ]
    assert outcome.err == f"group '{group}' has no members now\n"
    (described,) = tidelog("groups", "describe", group, "-o", "json").json
    assert [row["lag"] for row in described["partitions"]] == [1, 0]
    text = tidelog("groups", "describe", group, "-o", "kafka")
    assert text.lines[1].split() == [
        "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID",
    ]  # fmt: skip
    assert text.err == f"\nConsumer group '{group}' has no active members.\n"


def test_a_group_with_a_member(tidelog: Tidelog, bootstrap: str, group: str) -> None:
    """Who has what, since when it may not be reset or deleted, nor forgotten what it reads."""
    with member(bootstrap, group, group):
        (described,) = tidelog("groups", "describe", group, "-o", "json").json
        assert described["state"] == "Stable"
        assert {row["clientId"] for row in described["partitions"]} == {"me"}
        (described,) = tidelog("groups", "describe", group, "--members", "-o", "json").json
        (only,) = described["members"]
        assert (only["instance"], len(only["partitions"])) == ("i", 2)
        assert f"{group}:0,1" in tidelog("groups", "describe", group, "--members", "--verbose").out
        (state,) = tidelog("groups", "describe", group, "--state", "-o", "json").json
        assert (state["assignor"], state["members"], state["coordinator"]["address"]) == ("range", 1, bootstrap)
        for arguments in (
            ("reset-offsets", group, "--all-topics", "--to-earliest", "--execute"),
            ("delete", group),
            ("delete-offsets", group, "--topic", group),
        ):
            refused = tidelog("groups", *arguments)
            assert refused.code == 1
            assert "stop them first" in refused.err or "stop its members first" in refused.err


def test_resets(tidelog: Tidelog, group: str, tmp_path: Path) -> None:
    """Each target; shown until --execute; what lies outside is moved to the nearer end, with a warning."""

    def reset(*arguments: str) -> list[int]:
        rows = tidelog("groups", "reset-offsets", group, *arguments, "-o", "json").json
        return [row["offset"] for row in rows]

    assert reset("--all-topics", "--to-earliest") == [0, 0]
    assert reset("--all-topics", "--to-latest") == [3, 3]
    assert reset("--all-topics", "--to-current", "--dry-run") == [2, 3]
    assert reset("--all-topics", "--shift-by", "-1") == [1, 2]
    assert reset("--topic", group, "--to-offset", "1") == [1, 1]
    assert reset("--topic", f"{group}:1", "--to-datetime", "2020-01-01T00:00:00.000") == [0]
    assert reset("--topic", f"{group}:1", "--to-datetime", "2999-01-01") == [3]
    assert reset("--all-topics", "--by-duration", "P1D") == [0, 0]
    outside = tidelog("groups", "reset-offsets", group, "--topic", f"{group}:0", "--to-offset", "99")
    assert "offset 99 is behind the last: 3 is taken" in outside.err
    assert "nothing was changed: --execute does it" in outside.err
    plan = tidelog("groups", "reset-offsets", group, "--all-topics", "--shift-by", "-1", "--export")
    assert plan.out == f"{group},0,1\n{group},1,2\n\n"
    (tmp_path / "plan.csv").write_text(plan.out)
    assert reset("--from-file", str(tmp_path / "plan.csv"), "--execute") == [1, 2]
    assert reset("--all-topics", "--to-current") == [1, 2]


def test_what_a_reset_cannot_be(tidelog: Tidelog, group: str) -> None:
    """Wrong usage is 2, what is not there is 1; both say what to do."""
    assert "say to what, once" in tidelog("groups", "reset-offsets", group, "--all-topics").err
    assert tidelog("groups", "reset-offsets", group, "--all-topics", "--to-latest", "--to-earliest").code == 2
    assert tidelog("groups", "reset-offsets", group, "--to-latest").code == 2
    assert tidelog("groups", "reset-offsets", group, "--all-topics", "--by-duration", "1h", "--execute").code == 2
    missing = tidelog("groups", "reset-offsets", group, "--topic", "nope", "--to-latest")
    assert (missing.code, missing.err) == (1, "tidelog: topic 'nope' does not exist\n")
    missing = tidelog("groups", "reset-offsets", "new", "--topic", f"{group}:0", "--shift-by", "1")
    assert "the group has committed nothing for it" in missing.err


def test_a_reset_of_several_groups_is_planned_before_any_is_done(tidelog: Tidelog, group: str) -> None:
    """One for which it cannot be leaves the others as they were."""

    def offsets() -> list[int]:
        (described,) = tidelog("groups", "describe", group, "-o", "json").json
        return [row["lag"] for row in described["partitions"]]

    before = offsets()
    done = tidelog("groups", "reset-offsets", group, "new", "--topic", f"{group}:0", "--shift-by", "-1", "--execute")
    assert done.code == 1
    assert "cannot be shifted" in done.err
    assert offsets() == before


def test_the_first_offsets_of_a_group(tidelog: Tidelog, filled: str) -> None:
    """A group that is not there yet can be told where to begin."""
    done = tidelog("groups", "reset-offsets", f"{filled}-new", "--topic", filled, "--to-latest", "--execute")
    assert done.code == 0
    assert tidelog("consume", filled, "--group", f"{filled}-new").lines == []


def test_offsets_are_forgotten_and_groups_deleted(tidelog: Tidelog, group: str) -> None:
    """Each by itself; what is not there is told."""
    assert "Successful" in tidelog("groups", "delete-offsets", group, "--topic", f"{group}:0").out
    (described,) = tidelog("groups", "describe", group, "-o", "json").json
    assert [row["partition"] for row in described["partitions"]] == [1]
    outcome = tidelog("groups", "delete", group, "nobodys")
    assert (outcome.code, outcome.out) == (1, f"Deleted group {group}.\n")
    assert outcome.err == "tidelog: group 'nobodys' does not exist\n"
    gone = tidelog("groups", "describe", group)
    assert (gone.code, gone.err) == (1, f"tidelog: group '{group}' does not exist\n")


def test_members_of_a_group_by_the_command_line(tidelog: Tidelog, filled: str, bootstrap: str) -> None:
    """`consume --group` is a member: with an assignor, a lasting name, the lag told; it commits and leaves."""
    outcome = tidelog("consume", filled, "--group", filled, "--assignor", "cooperative-sticky", "--lag")
    assert sorted(outcome.lines) == ["a", "a", "b", "b", "c", "c"]
    assert outcome.err.splitlines()[-1] == "lag 0"
    assert tidelog("consume", filled, "--group", filled).lines == []
    assert len(tidelog("consume", filled, "--group", f"{filled}-2", "-n", "4").lines) == 4
    assert len(tidelog("consume", filled, "--group", f"{filled}-2", "--instance-id", "me").lines) == 2
    assert len(tidelog("consume", filled, "--group", f"{filled}-3", "--group-protocol", "consumer").lines) == 6
    assert tidelog("consume", filled, "--assignor", "range").code == 2
    assert tidelog("consume", filled, "--group", "g", "--assignor", "rang").code == 2
    with member(bootstrap, f"{filled}-4", filled):
        assert tidelog("consume", filled, "--group", f"{filled}-4", "--assignor", "sticky").code == 1


def test_an_assignor_of_the_users_own(
    tidelog: Tidelog, filled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MODULE:NAME, from the folder where the command is typed."""
    (tmp_path / "own_assignor.py").write_text(
        "from tidelog.assignors.assignor import Assignment\n"
        "from tidelog.model.identifiers import TopicPartition\n"
        "class OnlyFirst:\n"
        "    name = 'only-first'\n"
        "    def assign(self, members, topics):\n"
        "        first = tuple(TopicPartition(name, 0) for name in topics)\n"
        "        return {member: Assignment(first if member == min(members) else ()) for member in members}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    own = tidelog("consume", filled, "--group", filled, "--assignor", "own_assignor:OnlyFirst", "-o", "json")
    assert {json.loads(line)["partition"] for line in own.lines} == {0}
    (state,) = until(lambda: tidelog("groups", "describe", filled, "--state", "-o", "json").json)
    assert state["state"] == "Empty"


# Texts and plans

TP = TopicPartition("orders", 0)
MEMBER = MemberDescription("m-1", "client", "/10.0.0.1", (TP,), instance_id="i")
BROKER = Broker(1, Address("127.0.0.1", 9092), None)


def described(**changes: object) -> GroupDescription:
    """A stable classic group of one member."""
    fields = {"group": "g", "type": "Classic", "protocol_type": "consumer", "state": "Stable", "assignor": "range"}
    return GroupDescription(**fields | {"coordinator": BROKER, "members": (MEMBER,)} | changes)  # type: ignore[arg-type]


def test_kafkas_text_of_offsets(capsys: pytest.CaptureFixture[str]) -> None:
    """Columns of names are 15 wide or as wide as they must be; a line begins with its newline."""
    rows = {"g": [Progress(TP, 1, 0, 3, MEMBER), Progress(TopicPartition("orders", 1), None, None, None, None)]}
    group_text.print_offsets([described()], rows, Form.KAFKA, verbose=False)
    assert capsys.readouterr().out.split("\n") == [
        "",
        "GROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG             CONSUMER-ID     "
        "HOST            CLIENT-ID",
        "g               orders          0          1               3               2               m-1             "
        "/10.0.0.1       client",
        "g               orders          1          -               -               -               -               "
        "-               -",
        "",
    ]


def test_kafkas_text_of_members_and_states(capsys: pytest.CaptureFixture[str]) -> None:
    """The blank at the end of a line of members is Kafka's."""
    group_text.print_members([described()], Form.KAFKA, verbose=False)
    assert capsys.readouterr().out.split("\n") == [
        "",
        "GROUP           CONSUMER-ID     GROUP-INSTANCE-ID HOST            CLIENT-ID       #PARTITIONS     ",
        "g               m-1             i                 /10.0.0.1       client          1               ",
        "",
    ]
    group_text.print_states([described(state="PreparingRebalance")], Form.KAFKA, verbose=False)
    printed = capsys.readouterr()
    assert printed.out.split("\n")[2] == (
        "g               127.0.0.1:9092  (1)       range                PreparingRebalance   1"
    )
    assert printed.err == "\nWarning: Consumer group 'g' is rebalancing.\n"


def test_kafkas_text_of_a_list() -> None:
    """Ten blanks more than the longest name, and columns of twenty."""
    groups = [GroupListing("g", "consumer", "Empty", "Classic")]
    assert group_text.listed(groups, with_state=False, with_type=False) == "g\n"
    assert group_text.listed(groups, with_state=True, with_type=True).splitlines() == [
        "GROUP                     TYPE                 STATE               ",
        "g                         Classic              Empty               ",
    ]


def test_moments_durations_topics() -> None:
    """ISO 8601; a moment without a zone is UTC."""
    assert parse_moment("1970-01-01T00:00:01.5") == 1500
    assert parse_moment("1970-01-01T01:00+01:00") == 0
    assert parse_duration("P1DT2H3M4.5S") == ((26 * 60) + 3) * 60_000 + 4500
    assert parse_topic("orders:0,2") == ("orders", [0, 2])
    # No record is older than 1970, and nobody means a time that no number holds.
    assert parse_moment("1800-01-01T00:00") == 0
    assert parse_moment("0001-01-01T00:00+23:59") == 0
    with pytest.raises(WrongUsage, match="longer than all time"):
        parse_duration(f"P{'9' * 400}D")
    for parse, text in ((parse_moment, "soon"), (parse_duration, "P"), (parse_duration, "1H"), (parse_topic, "t:x")):
        with pytest.raises(WrongUsage):
            parse(text)


@pytest.mark.parametrize("content", [b"\xff\xfe", b'"' + bytes(200_000), b"t,0,\0"])
def test_what_is_no_plan(tmp_path: Path, content: bytes) -> None:
    """Bytes that are no UTF-8, or no lines of values."""
    (tmp_path / "plan").write_bytes(content)
    with pytest.raises(WrongUsage):
        read_plan(str(tmp_path / "plan"), ["g"])


def test_plans(tmp_path: Path) -> None:
    """Lines with the group where there are several; what is none is told by its line."""
    path = tmp_path / "plan"
    path.write_text("orders,0,5\n\norders,1,6\n")
    assert read_plan(str(path), ["g"]) == {"g": {TP: 5, TopicPartition("orders", 1): 6}}
    path.write_text("g,orders,0,5\nh,orders,0,6\n")
    assert read_plan(str(path), ["g", "h"]) == {"g": {TP: 5}, "h": {TP: 6}}
    path.write_text("orders,0\n")
    with pytest.raises(WrongUsage, match="plan:1: not topic,partition,offset"):
        read_plan(str(path), ["g"])
