"""First offsets are written down before anybody is told of them, whatever the disk refuses meanwhile."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.unit.broker.harness import Broker
from tests.unit.storage.support import FaultyDisk


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
