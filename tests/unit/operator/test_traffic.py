"""Traffic between two readings, by partition: what came in, and what a group has read."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from tests.keeping import KEEPING

from tidelog.client import admin
from tidelog.client.blocking import BlockingCluster
from tidelog.client.offsets import CommittedOffset
from tidelog.client.operations import Pause
from tidelog.model.identifiers import TopicPartition
from tidelog.operator.traffic import read_with_traffic
from tidelog.placement.plan.state import ClusterState
from tidelog.records.batch import Record, build_batch
from tidelog.testing import Cluster

BUSY, IDLE = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(records: int, size: int = 100) -> bytes:
    return bytes(build_batch([Record(index, 1, b"k", b"v" * size) for index in range(records)]))


def with_traffic(client: BlockingCluster, ticks: list[float]) -> Generator[Any, Any, ClusterState]:
    """The operation, in whose pause twenty records come and ten are committed, and ten seconds pass, none elsewhere."""
    routing = client.routing
    original = routing.now
    began = original()
    routing.now = lambda: began + ticks[0]
    operation = read_with_traffic(routing, seconds=10, taken_at_ms=1)
    step = next(operation)
    while True:
        if isinstance(step, Pause) and step.seconds == 10:
            client.produce(BUSY, batch(20))
            client.commit_offsets("g", {BUSY: CommittedOffset(30)})
            ticks[0] += 10
            outcomes: Any = ()
        else:
            outcomes = yield step
        try:
            step = operation.send(outcomes)
        except StopIteration as stop:
            routing.now = original
            return stop.value  # type: ignore[no-any-return]


def test_rates_follow_from_two_readings() -> None:
    """Twenty records of 100 bytes in ten seconds, beside older ones that are larger; a group that read ten: half."""
    with Cluster(KEEPING) as cluster, BlockingCluster(cluster.bootstrap) as client:
        client.run(admin.create_topics(client.routing, [admin.NewTopic("t", 2, 1)]))
        client.produce(BUSY, batch(40, 1000))
        client.produce(IDLE, batch(5))
        client.commit_offsets("g", {BUSY: CommittedOffset(20)})
        state = client.run(with_traffic(client, [0.0]))
    busy, idle = state.partitions[BUSY], state.partitions[IDLE]
    assert busy.bytes_in_per_s == pytest.approx(len(batch(20)) / 10, rel=0.02)
    assert busy.bytes_out_per_s == pytest.approx(len(batch(20)) / 2 / 10, rel=0.02)
    assert (idle.bytes_in_per_s, idle.bytes_out_per_s) == (0.0, 0.0)
