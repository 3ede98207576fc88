"""`tidelog consume --share` and `tidelog groups` of share groups."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.cli.conftest import Tidelog

from tidelog.cli import share_consumption
from tidelog.cli.group_offsets import Reset, Target, planned, progress
from tidelog.client.addresses import Address
from tidelog.client.admin import ShareOffset
from tidelog.client.offsets import OffsetFound
from tidelog.client.routing import Routing
from tidelog.client.views import TopicView
from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicPartition


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
    [
        ((), "the group has given this member no partition"),
        ((0,), "others may hold the records that are left, or the group begins behind them (share.auto.offset.reset)"),
    ],
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


def test_a_partition_that_a_share_group_has_not_begun_in_is_shown() -> None:
    """Apache Kafka stores where a group begins with its first acknowledgement. Until then the partition is the group's,
    as Kafka's own tool shows it: without an offset and a lag."""
    begun, other = TopicPartition("t", 0), TopicPartition("t", 1)
    told = {begun: ShareOffset(3, 0, 2), other: ShareOffset(-1, 0, -1)}
    ends = {tp: OffsetFound(offset, 0, -1) for tp, offset in ((begun, 5), (other, 7))}
    answers = iter([told, {}, ends])
    routing = Routing([Address("h", 1)], now=lambda: 0.0, draw=lambda: 0.5)
    routing.topics["t"] = TopicView("t", ZERO_TOPIC_ID, internal=False, partitions={})
    cluster: Any = SimpleNamespace(routing=routing, run=lambda operation: next(answers))
    group: Any = SimpleNamespace(type="Share", group="g", members=())
    rows = [(each.topic_partition, each.committed, each.end, each.lag) for each in progress(cluster, group)]
    assert rows == [(begun, 3, 5, 2), (other, None, 7, None)]
    answers = iter([told, {}, ends, ends])
    assert planned(cluster, "g", Reset(Target.LATEST), None, shared=True) == {begun: 5, other: 7}


def test_what_a_share_group_cannot_be_told_is_refused(tidelog: Tidelog, topic: str) -> None:
    for option in (("--group", "g"), ("--from", "end"), ("-p", "0"), ("--read-committed",), ("--from-beginning",)):
        refused = tidelog("consume", topic, "--share", "s", *option)
        assert (refused.code, "--share goes with none of" in refused.err) == (2, True), option
    missing = tidelog("consume", topic, "--share", "s")
    assert (missing.code, "does not exist" in missing.err) == (1, True)
