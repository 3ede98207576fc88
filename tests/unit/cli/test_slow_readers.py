"""`tidelog consume` while what reads its output takes its time."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.client.group_broker import GroupBroker

from tidelog.cli.consumption import GroupConsumption, Plan, Printer, Start
from tidelog.client.consumed import ConsumedRecord
from tidelog.client.consumer import ConsumerSettings
from tidelog.client.fetching import READ_UNCOMMITTED
from tidelog.protocol.apis import ApiKey
from tidelog.records.columns import ALL


class Stuck:
    """A pipe that takes nothing before the broker has heard of its reader's member twice more."""

    def __init__(self, broker: GroupBroker) -> None:
        self._broker = broker
        self.lines = b""
        self.is_alive = False

    def write(self, data: bytes) -> int:
        """Blocks, as a pipe does that is full."""
        seen = len(self._broker.asked(ApiKey.HEARTBEAT))
        pause = threading.Event()
        for _ in range(1000):
            self.is_alive = len(self._broker.asked(ApiKey.HEARTBEAT)) > seen + 1
            if self.is_alive:
                break
            pause.wait(0.01)
        self.lines += data
        return len(data)

    def flush(self) -> None:
        """Nothing is kept back."""


PLAN = Plan(
    topics=("t",),
    partitions=None,
    start=Start("committed"),
    follow=False,
    count_max=3,
    isolation=READ_UNCOMMITTED,
    rack="",
    group="g",
    membership=None,
    lag=False,
    columns=ALL,
    line=lambda record: b"%d\n" % record.offset,
)


def record(offset: int) -> ConsumedRecord:
    return ConsumedRecord("t", 0, offset, 0, 0, None, b"", ())


class Interrupted(Stuck):
    """A pipe of an interpreter without buffers (PYTHONUNBUFFERED): a signal ends a write in the middle."""

    def __init__(self) -> None:
        self.lines = b""

    def write(self, data: bytes) -> int:
        """Takes three bytes of it."""
        self.lines += bytes(data[:3])
        return min(3, len(data))


def test_a_write_that_a_signal_cut_short_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is told as printed, and committed, is printed to its end."""
    out, told = Interrupted(), list[int]()
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=out))
    assert not Printer(PLAN).print(map(record, range(10, 15)), told.append)
    assert (out.lines, told) == (b"10\n11\n12\n", [13])


def test_a_member_whose_output_is_full_stays_a_member(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its heartbeats go on. Without them the group would give it up, refuse the commit of what it has printed, and have
    it print the same again, without end where the reader is that slow."""
    settings: dict[str, Any] = {"auto_offset_reset": "earliest", "heartbeat_interval_s": 0.02}
    with GroupBroker(partitions=1) as broker:
        broker.append(0, 3)
        stuck = Stuck(broker)
        monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=stuck))
        plan = dataclasses.replace(PLAN, membership=ConsumerSettings(**settings))
        assert plan.membership is not None
        assert asyncio.run(GroupConsumption(plan, plan.membership).run(broker.bootstrap, 180)) == 3
        assert (stuck.lines, stuck.is_alive) == (b"0\n1\n2\n", True)
        assert broker.committed == {0: 3}
