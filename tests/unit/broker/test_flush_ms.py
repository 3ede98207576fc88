"""flush.ms: how old a record may become before it is on the device."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.broker.harness import Broker

from tidelog.model.identifiers import TopicPartition
from tidelog.storage.log_config import LogConfig


@pytest.mark.row("R36")
@pytest.mark.parametrize("flush_ms", [1, 50, 500, 1700])
def test_flush_ms_is_kept_whenever_the_record_comes(start_broker: Callable[..., Broker], flush_ms: int) -> None:
    """A broker that was idle does not wait for its next look at the disk."""
    broker = start_broker()
    broker.settings.topics["t"] = {"flush.ms": str(flush_ms)}
    broker.lead("t")
    broker.node.disk_scheduler.tick()
    log = broker.replica("t").log
    for pause_ms in (1, 700, 4_999, 12_345):
        broker.shell.advance(pause_ms)
        broker.produce("t", [b"value"])
        broker.shell.advance(flush_ms - 1)
        assert log.flushed_offset == log.log_end_offset - 1
        broker.shell.advance(10)
        assert log.flushed_offset == log.log_end_offset


def test_flush_ms_set_while_records_wait_counts_from_the_oldest(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker()
    broker.lead("t")
    broker.node.disk_scheduler.tick()
    log = broker.replica("t").log
    broker.produce("t", [b"value"])
    broker.shell.advance(300)
    broker.logs.set_config(TopicPartition("t", 0), LogConfig(flush_ms=400))
    broker.shell.advance(99)
    assert log.flushed_offset == 0
    broker.shell.advance(1)
    assert log.flushed_offset == 1


def test_a_roll_does_not_make_records_younger(start_broker: Callable[..., Broker]) -> None:
    """The closed segment is flushed at once; what is in the next one counts from its append."""
    broker = start_broker()
    broker.settings.topics["t"] = {"flush.ms": "500", "segment.bytes": "1000"}
    broker.lead("t")
    broker.node.disk_scheduler.tick()
    log = broker.replica("t").log
    broker.shell.pool_waits = True
    for _ in range(2):
        broker.produce("t", [bytes(800)])
    broker.shell.advance(300)
    broker.shell.run_pool()
    broker.shell.run_turns()
    assert log.flushed_offset == log.active.base_offset == 1
    broker.shell.pool_waits = False
    broker.shell.advance(200)
    assert log.flushed_offset == 2
