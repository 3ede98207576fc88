"""What the disk is asked to do goes on whatever becomes of one request that waited for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.broker.harness import Broker

from tidelog.broker.replicas.delayed_produce import ACKS_ALL


class Failing:
    """An append that waits, and whose request a fault of the broker ends."""

    last_offset = 0

    def try_complete(self) -> bool:
        raise AssertionError("a fault")


def test_a_request_that_fails_at_a_flush_stops_no_other_flush(
    start_broker: Callable[..., Broker], caplog: pytest.LogCaptureFixture
) -> None:
    """Of the same log directory: a flush that does not end would let none of the next begin."""
    broker = start_broker()
    broker.settings.topics["t"] = {"flush.messages": "1"}
    broker.lead("t")
    replica = broker.replica("t")
    replica.delayed().add(Failing(), ACKS_ALL)
    broker.produce("t", [b"first"])
    broker.shell.run_turns()
    assert "a fault" in caplog.text
    assert not broker.node.disk_scheduler.flushing
    broker.produce("t", [b"second"])
    broker.shell.run_turns()
    assert replica.log.flushed_offset == replica.high_watermark == 2


def test_a_look_that_fails_is_not_the_last(
    start_broker: Callable[..., Broker], caplog: pytest.LogCaptureFixture
) -> None:
    """Retention, checkpoints and the removal of files are due with the same timer."""
    broker = start_broker()
    looks = []

    def look() -> None:
        looks.append(broker.clock.monotonic_ms())
        raise AssertionError("a fault")

    broker.node.disk_scheduler.on_tick.insert(0, look)
    broker.node.disk_scheduler.tick()
    broker.shell.advance(600_000)
    assert len(looks) > 1
    assert "a fault" in caplog.text
