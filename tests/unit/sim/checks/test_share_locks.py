"""Locks that are looked at where they are (invariant 24)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from sim.checks.share_locks import ShareLocks
from sim.invariants import InvariantBrokenError

from tidelog.sharing.partition import ReadBatch, SharePartition
from tidelog.sharing.settings import ShareSettings


class Broker:
    """A broker that leads one share partition, of which member a holds ten records until 2.0 s."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.share = SharePartition(0, settings=ShareSettings(record_lock_duration_ms=2000))
        self.share.acquire(0, "a", [ReadBatch(0, 9)], 10)
        led: Any = SimpleNamespace(key="g:t:0", is_current=True, machine=self.share)
        clock = SimpleNamespace(monotonic_ms=lambda: int(self.now_s * 1000))
        node: Any = SimpleNamespace(clock=clock, _sharing=SimpleNamespace(partitions=[led]))
        self.process = SimpleNamespace(runs=True)
        machine: Any = SimpleNamespace(name="broker1", generation=1, node=node, process=self.process)
        self.locks = ShareLocks([machine], lambda: self.now_s, 2000)

    def look(self, *times_s: float) -> None:
        for self.now_s in times_s:
            self.locks.check()


def test_a_lock_ends_within_a_second_of_its_time() -> None:
    broker = Broker()
    broker.look(0.0, 0.5, 2.0, 2.5, 3.0)
    with pytest.raises(InvariantBrokenError, match="1500 ms after its time"):
        broker.look(3.5)


def test_a_lock_that_is_ended_is_no_matter() -> None:
    broker = Broker()
    broker.look(2.5, 3.0)
    broker.share.time_passed(3000)
    broker.look(3.5, 4.0)


def test_a_machine_that_stands_still_ends_nothing() -> None:
    broker = Broker()
    broker.look(2.5, 3.0)
    broker.process.runs = False
    broker.look(3.5, 4.0)
    broker.process.runs = True
    broker.look(4.5, 5.0)
    with pytest.raises(InvariantBrokenError):
        broker.look(5.5)


def test_no_lock_is_given_for_longer_than_the_group_says() -> None:
    broker = Broker()
    next(iter(broker.share.runs)).deadline_ms = 9000
    with pytest.raises(InvariantBrokenError, match="locked for another"):
        broker.look(0.5)
