"""A broker whose process may open few files, and more connections than that."""

from __future__ import annotations

import contextlib
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

LIMIT = 256
IDLE = 300
PARTITIONS = 30
RECORDS = 600


@contextlib.contextmanager
def broker(data: Path, limit: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`tidelog start` under a limit on open files, and its address; stopped cleanly at the end."""
    command = [sys.executable, "-m", "tidelog", "start", "--data", str(data), "--port", "0", "--store-port", "0"]
    process = subprocess.Popen(
        [*command, "--log-level", "info"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
    )
    try:
        assert process.stdout is not None
        ready = next((line for line in process.stdout if line.startswith("ready: ")), "")
        yield process, ready.removeprefix("ready: ").strip()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=180)


def read(bootstrap: str) -> list[bytes]:
    """The values of all partitions."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition("t", partition, 0) for partition in range(PARTITIONS)])
        values: list[bytes] = []
        while len(values) < RECORDS:
            messages = consumer.consume(RECORDS - len(values), 10)
            assert messages, f"{len(values)} of {RECORDS} values came"
            values += [message.value() for message in messages]
        return values
    finally:
        consumer.close()


def test_more_idle_connections_than_descriptors(tmp_path: Path) -> None:
    """New clients are served all the while, what is acknowledged is kept, and no directory goes offline."""
    values = [str(index).encode() for index in range(RECORDS)]
    with broker(tmp_path, LIMIT) as (process, bootstrap), contextlib.ExitStack() as idle:
        host, port = bootstrap.split(":")
        for _ in range(IDLE):
            idle.enter_context(socket.create_connection((host, int(port)), 180))
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(180)
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
        errors: list[object] = []
        for index, value in enumerate(values):
            producer.produce(
                "t", value, partition=index % PARTITIONS, on_delivery=lambda error, _: errors.append(error)
            )
        assert producer.flush(180) == 0
        assert errors == [None] * RECORDS
        assert sorted(read(bootstrap)) == sorted(values)
        # Checkpoints are written, and folders synced, every few seconds, and last when it stops.
        process.send_signal(signal.SIGTERM)
        log, _ = process.communicate(timeout=180)
        assert process.returncode == 0, log
        assert "offline" not in log
        assert log.count("connections_full: ") == 1, log
    with broker(tmp_path, LIMIT) as (_, bootstrap):
        assert sorted(read(bootstrap)) == sorted(values)


@pytest.mark.parametrize("brokers", [1, 3])
def test_a_limit_that_cannot_do_is_refused(tmp_path: Path, brokers: int) -> None:
    """In one sentence, before anything is touched."""
    data = tmp_path / "data"
    command = [sys.executable, "-m", "tidelog", "start", "--data", str(data), "--port", "0", "--store-port", "0"]
    done = subprocess.run(
        [*command, "--brokers", str(brokers)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32)),
    )
    assert done.returncode == 1
    assert done.stderr.startswith("tidelog: the limit on open files is 32, and a broker needs at least 96: raise it")
    assert not (data / "broker-0").exists()
