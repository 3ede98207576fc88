"""First offsets are written down before anybody is told of them, whatever the disk refuses meanwhile."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.unit.broker.harness import Broker
from tests.unit.storage.support import FaultyDisk

from tidelog.model.errors import KafkaError


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOMEM])
def test_a_start_that_could_not_be_written_is_not_told(tmp_path: Path, code: int) -> None:
    """Without descriptors or memory the checkpoint is written again a moment later; then it is told."""
    disk = FaultyDisk()
    broker = Broker(str(tmp_path), disk=disk)
    try:
        broker.lead("t")
        broker.produce("t")
        log = next(iter(broker.node.replicas.of_topic("t"))).log
        log.update_high_watermark(log.log_end_offset)
        log.announce_start(1)
        disk.fail("open", "log-start-offset-checkpoint", code)
        durable = broker.node.disk_scheduler.starts_durable()
        broker.shell.run_turns()
        broker.shell.advance(2_000)
        assert not durable.done
        disk.fault = lambda _operation, _path: None
        broker.shell.advance(2_000)
        assert durable.done
        assert "t 0 1" in (tmp_path / "log-start-offset-checkpoint").read_text()
        assert broker.logs.offline_directories == []
    finally:
        broker.close()


def test_a_log_made_anew_at_the_same_time_hides_no_failure(tmp_path: Path) -> None:
    """Its checkpoints were to be newer than those under way, and the disk refused them: the older ones are written."""
    disk = FaultyDisk()
    broker = Broker(str(tmp_path), disk=disk)
    try:
        broker.lead("gone")
        broker.lead("t")
        broker.produce("t")
        log = next(iter(broker.node.replicas.of_topic("t"))).log
        log.update_high_watermark(log.log_end_offset)
        gone = next(iter(broker.node.replicas.of_topic("gone"))).log.topic_partition
        broker.logs.delete(gone)
        log.announce_start(1)
        broker.shell.pool_waits = True
        durable = broker.node.disk_scheduler.starts_durable()
        disk.fail("open", "recovery-point-offset-checkpoint", errno.EMFILE)
        with pytest.raises(KafkaError):
            broker.logs.create(gone, None)
        disk.fault = lambda _operation, _path: None
        broker.shell.pool_waits = False
        broker.shell.run_pool()
        broker.shell.run_turns()
        assert durable.done
        assert "t 0 1" in (tmp_path / "log-start-offset-checkpoint").read_text()
        assert broker.logs.offline_directories == []
    finally:
        broker.close()
