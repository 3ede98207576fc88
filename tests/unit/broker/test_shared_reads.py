"""Small reads at a log's end are kept for the consumers that want the same, within bounds."""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.unit.broker.harness import Broker

from tidelog.broker.fetches.shared_reads import BYTES_MAX, READS_MAX, SHARED_MS, SharedReads


def take(broker: Broker, shared: SharedReads, offset: int, limit: int, max_bytes: int = 1 << 20) -> bytes | None:
    """Reads one of the logs, and hands the read over; what is not taken is released."""
    log = broker.replica("t").log
    result = log.read(offset, max_bytes, up_to_offset=limit)
    data = shared.take(log, offset, limit, result)
    if data is None:
        for file_range in result.ranges:
            file_range.release()
    return data


def test_a_read_is_found_by_those_who_want_the_same(broker: Broker) -> None:
    """From the same offset to below the same one, of the same log."""
    for _ in range(3):
        broker.produce("t", [b"value"])
    shared, log = broker.node.shared_reads, broker.replica("t").log
    assert shared.find(log, 0, 2) is None
    data = take(broker, shared, 0, 2)
    assert data is not None
    assert shared.find(log, 0, 2) == data
    assert [shared.find(log, 0, 3), shared.find(log, 1, 2), shared.find(broker.replica("t", 1).log, 0, 2)] == [None] * 3
    assert broker.logs.environment.pool.held_count == 0


def test_what_was_read_before_a_truncation_is_not_found(broker: Broker) -> None:
    """Other records may have the same offsets."""
    broker.produce("t", [b"value"])
    shared, log = broker.node.shared_reads, broker.replica("t").log
    take(broker, shared, 0, 1)
    log.truncate_to(0)
    assert shared.find(log, 0, 1) is None


def test_reads_of_compacted_logs_are_not_kept(broker: Broker) -> None:
    """The cleaner may take records that were read before, also of a log that is compacted only since then."""
    broker.produce("t", [b"value"])
    shared, log = broker.node.shared_reads, broker.replica("t").log
    assert take(broker, shared, 0, 1) is not None
    log.config = dataclasses.replace(log.config, cleanup_policy=("compact",))
    assert shared.find(log, 0, 1) is None
    assert take(broker, shared, 0, 1) is None


def test_reads_are_kept_for_a_moment(broker: Broker) -> None:
    """The bytes of an idle topic are not kept."""
    broker.produce("t", [b"value"])
    shared, log = broker.node.shared_reads, broker.replica("t").log
    take(broker, shared, 0, 1)
    broker.clock.now_ms += SHARED_MS
    assert shared.find(log, 0, 1) is None
    assert not shared._reads


def test_reads_that_are_kept_are_bounded(broker: Broker) -> None:
    """In number, and each of them in bytes; one that `max_bytes` cuts short is not kept at all."""
    for size in [1] * 2 * READS_MAX:
        broker.produce("t", [bytes(size)])
    shared = broker.node.shared_reads
    for offset in range(2 * READS_MAX):
        assert take(broker, shared, offset, 2 * READS_MAX) is not None
        assert len(shared._reads) <= READS_MAX
    assert take(broker, shared, 0, 2 * READS_MAX, max_bytes=100) is None
    broker.produce("t", [bytes(BYTES_MAX)])
    assert take(broker, shared, 2 * READS_MAX, 2 * READS_MAX + 1) is None


def test_what_is_not_in_memory_stays_in_its_file(broker: Broker, monkeypatch: Any) -> None:
    """The loop reads nothing that it would have to wait for."""
    broker.produce("t", [b"value"])
    log = broker.replica("t").log
    result = log.read(0, 1 << 20, up_to_offset=1)
    with log.active.log_file as file:
        monkeypatch.setattr(type(file), "probe", lambda *_: None)
    assert broker.node.shared_reads.take(log, 0, 1, result) is None
    assert broker.logs.environment.pool.held_count == 1
    result.ranges[0].release()
