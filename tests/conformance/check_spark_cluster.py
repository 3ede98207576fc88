"""Jobs on a cluster of Spark's own whose executors have no tidelog, while a worker dies: each record exactly once.

What is typed here is in docs/spark.md, "On a cluster". Speculation is on, and a worker with its executors is killed by
SIGKILL in the middle of each run.
"""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer
from confluent_kafka import TopicPartition as AssignedPartition
from deltalake import DeltaTable

from tests.conformance.standalone_spark import CONNECT_SITE, DEADLINE_S, Standalone, from_page
from tests.unit.pyspark_tidelog.spark_fixtures import Broker
from tests.waiting import until
from tidelog.model.identifiers import TopicPartition
from tidelog.testing import Cluster

PARTITIONS = 4
RECORDS = 8_000
SMALL_BATCHES = "2000"
"""Offsets a batch: a run has some, and a worker dies between the first and the last."""


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Standalone]:
    started = Standalone(tmp_path)
    yield started
    started.end()


@pytest.fixture
def broker() -> Iterator[Broker]:
    """With the topic flights, whose values are numbers, and an empty topic sample."""
    with Cluster() as cluster:
        tester = Broker(cluster.bootstrap)
        tester.topic(PARTITIONS, "flights")
        tester.topic(PARTITIONS, "sample")
        for start in range(0, RECORDS, 1_000):
            values = [b"%d" % number for number in range(start, start + 1_000)]
            tester.produce("flights", values, partition=start // 1_000 % PARTITIONS)
        yield tester
        tester.client.close()


def read_committed(broker: Broker, topic: str, expected: int) -> Counter[bytes]:
    """How often librdkafka's consumer of committed records sees each value."""
    broker.settle(topic)
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "judge",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.assign([AssignedPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    seen: Counter[bytes] = Counter()
    ended: set[int] = set()

    def is_read() -> bool:
        message = consumer.poll(1)
        if message is not None and message.error() is not None:
            ended.add(message.partition())
        elif message is not None:
            seen[message.value()] += 1
        return len(ended) == PARTITIONS and seen.total() >= expected

    try:
        until(is_read, lambda: f"{expected} records, {seen.total()} seen", limit_s=60, every_s=0)
    finally:
        consumer.close()
    return seen


def is_written(broker: Broker) -> bool:
    """Whether a batch of a sink is committed: its private topic has a mark."""
    names = [name for name in broker.client.topics() if name.startswith("tidelog-sink-")]
    marks = [TopicPartition(name, 0) for name in names]
    return any(found.offset > 0 for found in broker.client.offsets(dict.fromkeys(marks, -1)).values())


def finish(standalone: Standalone, name: str, job: subprocess.Popen[bytes]) -> None:
    """Until a job whose output is of no more use has ended well."""
    assert job.stdout is not None
    reading = threading.Thread(target=job.stdout.read)
    reading.start()
    code = job.wait(DEADLINE_S)
    reading.join()
    assert code == 0, standalone.log(name)[-6000:]


def kill_after_first_batch(
    job: subprocess.Popen[bytes], standalone: Standalone, worker: int
) -> list[dict[str, object]]:
    """Reads what `tidelog table -o json` says to its end."""
    events: list[dict[str, object]] = []
    assert job.stdout is not None
    for line in job.stdout:
        if not line.startswith(b"{"):
            continue
        events.append(json.loads(line))
        if [each["event"] for each in events].count("batch") == 1 and events[-1]["event"] == "batch":
            standalone.kill(worker)
    return events


def rows_of(table: Path) -> list[tuple[int, int]]:
    rows = DeltaTable(str(table)).to_pyarrow_table(columns=["partition", "offset"]).to_pylist()
    return sorted((row["partition"], row["offset"]) for row in rows)


ALL = [(number, offset) for number in range(PARTITIONS) for offset in range(RECORDS // PARTITIONS)]


def test_a_table(standalone: Standalone, broker: Broker) -> None:
    """`tidelog table --master spark://...`."""
    names = {
        "s3://lake": str(standalone.folder),
        "broker:9092": broker.bootstrap,
        "spark://master:7077": standalone.master,
        "--once": f"--once --max-offsets {SMALL_BATCHES} -o json",
    }
    job = standalone.type("table", from_page("table on a cluster", names), standalone.environment())
    events = kill_after_first_batch(job, standalone, 0)
    finish(standalone, "table", job)
    assert rows_of(standalone.folder / "flights") == ALL
    assert [each["event"] for each in events].count("batch") > 3


def test_a_job_of_spark_submit(standalone: Standalone, broker: Broker) -> None:
    """It reads, writes and makes a table; its driver's Python has no tidelog either."""
    program = from_page(
        "job", {"broker:9092": broker.bootstrap, "/lake": str(standalone.folder), "1000000": SMALL_BATCHES}
    )
    (standalone.folder / "job.py").write_text(program)
    text = from_page("spark-submit", {"spark://master:7077": standalone.master})
    job = standalone.type("submit", text, standalone.environment(standalone.python))
    until(lambda: is_written(broker) or job.poll() is not None, "a batch", limit_s=DEADLINE_S)
    standalone.kill(1)
    finish(standalone, "submit", job)
    sample = read_committed(broker, "sample", RECORDS // 2)
    assert sample == {b"%d" % number: 1 for number in range(RECORDS) if number % 2}
    table = DeltaTable(str(standalone.folder / "sample")).to_pyarrow_table(columns=["value"])
    assert Counter(table["value"].to_pylist()) == sample


@pytest.mark.skipif(CONNECT_SITE is None, reason="the libraries of Spark Connect are not here: tests/conformance/run")
def test_spark_connect(standalone: Standalone, broker: Broker) -> None:
    """A client without tidelog reads and writes; `tidelog table` makes a table. A worker dies in each."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = f"sc://127.0.0.1:{port}"
    names = {
        "start-connect-server.sh": f"start-connect-server.sh --wait --conf spark.connect.grpc.binding.port={port}",
        "spark://master:7077": standalone.master,
    }
    started = standalone.type("connect", from_page("connect server", names), standalone.environment(standalone.python))
    threading.Thread(target=started.stdout.read, daemon=True).start()  # type: ignore[union-attr]  # It is a pipe.

    def listens() -> bool:
        assert started.poll() is None, standalone.log("connect")[-6000:]
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    until(listens, "Spark Connect's server", limit_s=DEADLINE_S, every_s=0.5)
    program = from_page(
        "connect client",
        {
            "sc://server:15002": server,
            "broker:9092": broker.bootstrap,
            "/lake": str(standalone.folder),
            "1000000": SMALL_BATCHES,
        },
    )
    (standalone.folder / "client.py").write_text(program)
    job = standalone.type("client", f"{standalone.python} client.py", standalone.environment(standalone.python))
    until(lambda: is_written(broker) or job.poll() is not None, "a batch", limit_s=DEADLINE_S)
    standalone.kill(0)
    finish(standalone, "client", job)
    sample = read_committed(broker, "sample", RECORDS // 2)
    assert sample == {b"%d" % number: 1 for number in range(RECORDS) if number % 2}
    standalone.replace(0)
    names = {
        "sc://server:15002": server,
        "broker:9092": broker.bootstrap,
        "/lake": str(standalone.folder),
        "--once": f"--once --max-offsets {SMALL_BATCHES} -o json",
    }
    environment = standalone.environment() | {"PYTHONPATH": str(CONNECT_SITE)}
    job = standalone.type("table", from_page("table by connect", names), environment)
    events = kill_after_first_batch(job, standalone, 1)
    finish(standalone, "table", job)
    assert rows_of(standalone.folder / "flights") == ALL
    batches = [each for each in events if each["event"] == "batch"]
    assert len(batches) > 3
    assert events[-1] == {"event": "done", "rows": RECORDS, "batches": len(batches)}
