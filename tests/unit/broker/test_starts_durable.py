"""First offsets are written down before anybody is told of them, whatever the disk refuses meanwhile."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.harness import Broker
from tests.unit.storage.support import FaultyDisk

from tidelog.broker.deferred import Deferred
from tidelog.broker.shell import InDirectories
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey


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
        durable = broker.node.disk_scheduler.starts_durable([str(tmp_path)])
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
        durable = broker.node.disk_scheduler.starts_durable([str(tmp_path)])
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


def test_a_directory_that_hangs_holds_up_no_other(tmp_path: Path) -> None:
    """DeleteRecords of a partition there is in time; in one request with a partition that hangs, too."""
    broker = Broker(f"{tmp_path}/a,{tmp_path}/b")
    try:
        broker.lead("t", 3)
        broker.produce("t", partition=0)
        broker.produce("t", partition=1)
        broker.produce("t", partition=1)
        logs = [replica.log for replica in broker.node.replicas.of_topic("t")]
        assert logs[0].owner.path != logs[1].owner.path
        hung, run_at_once = logs[0].owner.path, broker.shell.in_pool

        def in_pool(work: Callable[[], Any]) -> Deferred[Any]:
            hangs = isinstance(work, InDirectories) and hung in work.directories
            return Deferred() if hangs else run_at_once(work)

        broker.shell.in_pool = in_pool  # type: ignore[method-assign]
        assert delete_records(broker, {0: 1}) == [(ErrorCode.REQUEST_TIMED_OUT, -1)]
        assert delete_records(broker, {1: 1}) == [(ErrorCode.NONE, 1)]
        assert delete_records(broker, {0: 1, 1: 2}) == [(ErrorCode.REQUEST_TIMED_OUT, -1), (ErrorCode.NONE, 2)]
        assert (logs[0].log_start_offset, logs[1].log_start_offset) == (0, 2)
    finally:
        broker.close()


def delete_records(broker: Broker, offsets: dict[int, int]) -> list[tuple[int, int]]:
    """Error code and low watermark of each partition, after two seconds at most."""
    kind = messages.DeleteRecordsRequest
    partitions = [kind.DeleteRecordsPartition(partition_index=index, offset=at) for index, at in offsets.items()]
    request = kind(topics=[kind.DeleteRecordsTopic(name="t", partitions=partitions)], timeout_ms=1_000)
    answer = broker.send(ApiKey.DELETE_RECORDS, 2, request)
    broker.shell.advance(2_000)
    found = broker.decode(ApiKey.DELETE_RECORDS, 2, answer.result() if isinstance(answer, Deferred) else answer)
    return [(each.error_code, each.low_watermark) for each in found.topics[0].partitions]
