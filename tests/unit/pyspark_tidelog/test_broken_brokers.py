"""A leader that is lost in the middle of a task, and brokers whose disks are full: each row is read or written once, or
the error names the partition and nothing is half visible."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.amount import thorough
from tests.unit.pyspark_tidelog.sink.site import Site, rows_of, values
from tests.unit.pyspark_tidelog.spark_fixtures import Broker

from pyspark_tidelog.connections import close_idle
from pyspark_tidelog.errors import ReadFailed
from pyspark_tidelog.offsets import OffsetRange
from pyspark_tidelog.options import parse_options
from pyspark_tidelog.reading import read_batches
from pyspark_tidelog.sink import copying
from pyspark_tidelog.sink.errors import NotWritten
from pyspark_tidelog.sink.options import Delivery
from pyspark_tidelog.sink.staged import Decision
from pyspark_tidelog.sink.task import append
from tidelog.testing import Cluster, ProcessBroker

pytestmark = [pytest.mark.row("R38")]

SETTINGS = {"transaction.state.log.num.partitions": 1, "transaction.state.log.min.isr": 1}
IMPATIENT = {"kafka.request.timeout.ms": "1500", "kafka.delivery.timeout.ms": "3000"}
"""Of tests in which the time passes."""
LIMIT = 1 << 20
"""Bytes that a file may have on a full disk."""


class Pair:
    """Two brokers; one can be lost and found again."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.tester = Broker(cluster.bootstrap)

    def topic(self, replicas: int) -> str:
        return Site(self.tester, 1, replicas=replicas).topic

    def leader(self, topic: str, partition: int = 0) -> int:
        self.tester.client.start_afresh()
        return self.tester.client.topics([topic])[topic].partitions[partition].leader

    def lose_leader(self, topic: str, partition: int = 0) -> int:
        leader = self.leader(topic, partition)
        self.cluster.stop(leader)
        return leader


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(SETTINGS, brokers=2) as started:
        yield started


@pytest.fixture
def pair(cluster: Cluster) -> Iterator[Pair]:
    found = Pair(cluster)
    yield found
    close_idle()
    found.tester.client.close()


def offsets(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def small_fetches(pair: Pair, topic: str, **options: str) -> Any:
    """A read with a fetch for each batch."""
    given = pair.tester.options(topic, **{"kafka.max.partition.fetch.bytes": "100"} | options)
    return read_batches(parse_options(given, streaming=False), OffsetRange(topic, 0, 0, 20, ""), ("offset",))


def test_a_read_goes_on_with_the_next_leader(pair: Pair) -> None:
    """Each offset once."""
    topic = pair.topic(replicas=2)
    for _ in range(10):
        pair.tester.produce(topic, [b"x" * 100] * 2)
    reading = small_fetches(pair, topic)
    first = next(reading)
    lost = pair.lose_leader(topic)
    try:
        assert [*first.column("offset").to_pylist(), *offsets(reading)] == list(range(20))
    finally:
        pair.cluster.start(lost)


@thorough
def test_a_read_whose_leader_stays_away_names_the_offset(pair: Pair) -> None:
    """Where it stood; another attempt reads all of it, once the leader is back."""
    topic = pair.topic(replicas=1)
    for _ in range(10):
        pair.tester.produce(topic, [b"x" * 100] * 2)
    reading = small_fetches(pair, topic, **{"kafka.request.timeout.ms": "1500"})
    next(reading)
    lost = pair.lose_leader(topic)
    try:
        with pytest.raises(ReadFailed, match=rf"^{topic}-0 cannot be read from offset \d+ on: "):
            list(reading)
    finally:
        pair.cluster.start(lost)
    assert offsets(small_fetches(pair, topic)) == list(range(20))


def test_a_write_goes_on_with_the_next_leaders(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is lost while a task stages, one while the driver copies: each row once."""
    site = Site(
        pair.tester,
        1,
        replicas=2,
        stagingPartitions="1",
        stagingReplicationFactor="2",
        **{"kafka.buffer.memory": "1000"},
    )
    rows = values("a" * 100, 60)
    private = site.options.staging_prefix + site.query
    lost: list[int] = []

    def losing() -> Iterator[pa.RecordBatch]:
        for start in range(0, 60, 20):
            yield rows_of(rows[start : start + 20])
            if not lost:
                lost.append(pair.lose_leader(private, 1))

    write = site.attempt_of(0, losing())
    pair.cluster.start(lost.pop())
    real = copying.append_batches

    def append_batches(routing: Any, identity: Any, batches: Any) -> Any:
        if not lost:
            lost.append(pair.lose_leader(site.topic))
        return real(routing, identity, batches)

    monkeypatch.setattr(copying, "append_batches", append_batches)
    try:
        assert site.commit(0, write) is Decision.WRITE
        assert site.committed() == rows
    finally:
        pair.cluster.start(lost.pop())


@thorough
def test_a_write_whose_leader_stays_away_names_the_partition(pair: Pair) -> None:
    """Nothing of the batch is visible; once the leader is back it is written, once."""
    site = Site(pair.tester, 1, stagingReplicationFactor="2", **IMPATIENT)
    before, rows = values("a", 20), values("b", 20)
    assert site.commit(0, site.attempt(0, *before)) is Decision.WRITE  # Both brokers make the transactions' topic.
    write = site.attempt(1, *rows)
    lost = pair.lose_leader(site.topic)
    try:
        with pytest.raises(NotWritten, match=rf"^rows were not written to {site.topic}-0: "):
            site.commit(1, write)
        at_least_once = replace(site.options, delivery=Delivery.AT_LEAST_ONCE)
        with pytest.raises(NotWritten, match=rf"^rows were not written to {site.topic}-0: "):
            append(at_least_once, ("value",), [rows_of(rows)])
    finally:
        pair.cluster.start(lost)
    assert site.commit(1, site.attempt(1, *rows)) is Decision.WRITE
    assert site.committed() == before + rows


@thorough
def test_a_full_disk_names_the_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The staged rows find no room, and later the copy: nothing is visible; with room the batch is written, once."""
    monkeypatch.setattr(copying, "ABORT_S_MAX", 0.1)  # Its coordinator may be in the directory that is full.
    directories = ",".join(str(tmp_path / name) for name in ("one", "two"))
    settings = SETTINGS | {"log.dirs": directories, "log.index.size.max.bytes": 4096}
    rows = values("a" * 3000, 500)
    options = {"kafka.batch.size": "100000", "stagingPartitions": "1"}
    with ProcessBroker(settings, data=str(tmp_path / "data")) as process:
        tester = Broker(process.bootstrap)
        site = Site(tester, 1, **IMPATIENT, **options)
        patient = replace(site.options, delivery_timeout_ms=60_000, request_timeout_ms=30_000)
        private = site.options.staging_prefix + site.query
        limit = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (LIMIT, limit[1]))
        with pytest.raises(NotWritten, match=rf"^rows were not written to {private}-1: "):
            site.attempt(0, *rows)
        process.restart()
        write = site.attempt(0, *rows, options=patient)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (LIMIT, limit[1]))
        with pytest.raises(NotWritten, match=rf"^rows were not written to {site.topic}-0: "):
            site.commit(0, write)
        process.restart()
        assert copying.commit_micro_batch(patient, [site.attempt(0, *rows, options=patient)], 0) is Decision.WRITE
        tester.settle(site.topic)
        assert site.committed() == rows
        tester.client.close()
