"""`tidelog consume` while what reads its output takes its time."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.client.group_broker import GroupBroker

from tidelog.cli import consumption
from tidelog.cli.consumption import GroupConsumption, Plan, Printer, Start
from tidelog.client.consumed import ConsumedRecord
from tidelog.client.consumer import ConsumerSettings
from tidelog.client.fetching import READ_UNCOMMITTED
from tidelog.model.errors import ErrorCode, KafkaError
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


WAIT_S = 60.0

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


class Full(Stuck):
    """A pipe that takes nothing while the test has not ended."""

    def __init__(self) -> None:
        self.is_writing, self.takes = threading.Event(), threading.Event()

    def write(self, data: bytes) -> int:
        """Blocks."""
        self.is_writing.set()
        self.takes.wait(WAIT_S)
        return len(data)


@pytest.mark.parametrize("printed", [False, True])
def test_a_run_that_is_told_to_end_leaves_what_reads_nothing(printed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while the loop ends, and the process is left at once: its end would wait for the write."""
    monkeypatch.setattr(consumption, "PRINTING_S_MAX", WAIT_S if printed else 0.001)
    out = Full()
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=out))
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    printer, told = Printer(PLAN), list[int]()

    async def end() -> None:
        task = asyncio.create_task(printer.print_beside(map(record, range(3)), told.append))
        await asyncio.to_thread(out.is_writing.wait, WAIT_S)
        task.cancel()
        if printed:
            out.takes.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    try:
        with printer.leaving():
            asyncio.run(end())
        assert (left, told) == (([], [3]) if printed else ([0], []))
        for error, code in ((KeyboardInterrupt(), 130), (KafkaError(ErrorCode.NOT_COORDINATOR, "moved"), 1)):
            with pytest.raises(type(error)), printer.leaving():
                raise error
            assert left[1:] == ([] if printed else [code])
            del left[1:]
    finally:
        out.takes.set()


def test_what_goes_wrong_beside_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a pipe whose reader has gone."""

    class Gone(Stuck):
        def __init__(self) -> None:
            """Nothing to keep."""

        def write(self, data: bytes) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=Gone()))
    with pytest.raises(BrokenPipeError):
        asyncio.run(Printer(PLAN).print_beside(map(record, range(3)), lambda offset: None))


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
