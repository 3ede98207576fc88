"""`tidelog consume --share` and `tidelog groups` of share groups."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.cli.conftest import Tidelog

from tidelog.cli import share_consumption
from tidelog.model.identifiers import TopicPartition


def test_records_are_taken_and_groups_shown_and_forgotten(
    tidelog: Tidelog, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records are printed, as many as are wanted; the group is listed, described, reset and deleted."""
    monkeypatch.setattr(share_consumption, "QUIET_S", 60)  # The count ends the run, on a slow machine too.
    group = f"{topic}-group"
    tidelog("topics", "create", topic)
    (tmp_path / "lines").write_text("".join(f"{number}\n" for number in range(5)))
    tidelog("produce", topic, str(tmp_path / "lines"))
    assert tidelog("configs", "alter", "--group", group, "--set", "share.auto.offset.reset=earliest").code == 0
    assert tidelog("consume", topic, "--share", group, "-n", "2").lines == ["0", "1"]

    assert {"group": group, "type": "Share", "state": "Empty"} in tidelog("groups", "list", "-o", "json").json
    assert group in tidelog("groups", "list", "--type", "share", "-o", "kafka").out
    assert group not in tidelog("groups", "list", "-o", "kafka").lines, "as kafka-consumer-groups"
    assert [each["group"] for each in tidelog("groups", "describe", group, "-o", "json").json] == [group]
    assert "simple" in tidelog("groups", "describe", group, "--state").out

    reset = ("groups", "reset-offsets", group, "--topic", topic, "--to-offset", "3")
    assert [each["offset"] for each in tidelog(*reset, "-o", "json").json] == [3]
    assert tidelog(*reset, "--execute").code == 0
    assert tidelog("groups", "delete-offsets", group, "--topic", f"{topic}:0").code == 2
    assert tidelog("groups", "delete-offsets", group, "--topic", topic).code == 0
    assert tidelog("groups", "delete", group).code == 0
    assert group not in tidelog("groups", "list").out
    refused = tidelog("groups", "describe", group)
    assert (refused.code, "does not exist" in refused.err) == (1, True)


def test_quiet_does_not_end_a_run_while_records_are_left(
    tidelog: Tidelog, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A share partition may be loading, its coordinator moving, or another member have held the records and gone."""
    monkeypatch.setattr(share_consumption, "QUIET_S", 0.001)
    tidelog("topics", "create", topic)
    (tmp_path / "lines").write_text("0\n1\n2\n")
    tidelog("produce", topic, str(tmp_path / "lines"))
    assert tidelog("configs", "alter", "--group", topic, "--set", "share.auto.offset.reset=earliest").code == 0
    consume = ("consume", topic, "--share", topic, "--timeout", "180")
    assert tidelog(*consume).lines == ["0", "1", "2"]
    assert tidelog(*consume).lines == []


@pytest.mark.parametrize(
    ("partitions", "reason"),
    [((), "the group has given this member no partition"), ((0,), "others may hold the records that are left")],
)
def test_a_run_that_gives_up_says_why(
    partitions: tuple[int, ...], reason: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has printed nothing, or not all."""

    async def is_left(*_: object) -> bool:
        return True

    async def poll(timeout_s: float) -> None:
        """Nothing comes."""

    monkeypatch.setattr(share_consumption, "_is_left", is_left)
    plan: Any = SimpleNamespace(count_max=None)
    assignment = frozenset(TopicPartition("t", partition) for partition in partitions)
    consumer: Any = SimpleNamespace(assignment=assignment, poll=poll)
    cluster: Any = None
    run = share_consumption.ShareConsumption(plan, "workers")
    asyncio.run(run._print_what_is_left(cluster, consumer, 0.01))
    assert f"share group 'workers' gave nothing for 0.01 s: {reason}" in capsys.readouterr().err


def test_what_a_share_group_cannot_be_told_is_refused(tidelog: Tidelog, topic: str) -> None:
    for option in (("--group", "g"), ("--from", "end"), ("-p", "0"), ("--read-committed",), ("--from-beginning",)):
        refused = tidelog("consume", topic, "--share", "s", *option)
        assert (refused.code, "--share goes with none of" in refused.err) == (2, True), option
    missing = tidelog("consume", topic, "--share", "s")
    assert (missing.code, "does not exist" in missing.err) == (1, True)
