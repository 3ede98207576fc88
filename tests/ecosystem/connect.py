"""Kafka Connect: lines of a file into a topic exactly once, while the worker is killed in the middle (KIP-618)."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from tests.ecosystem.java import jars
from tests.ecosystem.judge import DEADLINE_S, PARTITIONS, RECORDS, Wrong, judge, make_topic
from tidelog.launcher.plan import HOST
from tidelog.launcher.ports import ReservedPort

NAME: Final = "connect"
TITLE: Final = "Kafka Connect 4.3, file source exactly once"
TOPIC: Final = "connect-out"
_WORKER: Final = """\
bootstrap.servers={bootstrap}
group.id=connect
exactly.once.source.support=enabled
listeners=http://{rest}
config.storage.topic=connect-configs
offset.storage.topic=connect-offsets
status.storage.topic=connect-status
config.storage.replication.factor=3
offset.storage.replication.factor=3
status.storage.replication.factor=3
offset.storage.partitions=3
status.storage.partitions=3
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
session.timeout.ms=10000
heartbeat.interval.ms=1000
scheduled.rebalance.max.delay.ms=0
"""


class Worker:
    """A process of Connect, and its REST interface."""

    def __init__(self, bootstrap: str, classpath: Path, work: Path) -> None:
        port = ReservedPort(HOST, 0, "")
        self._rest = f"{HOST}:{port.number}"
        port.close()
        properties = work / "worker.properties"
        properties.write_text(_WORKER.format(bootstrap=bootstrap, rest=self._rest))
        self._log = (work / "log").open("ab")
        self.process = subprocess.Popen(
            [
                "java",
                "-Xmx256m",
                "-cp",
                f"{classpath}/*",
                "org.apache.kafka.connect.cli.ConnectDistributed",
                properties,
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def configure(self, name: str, config: dict[str, str]) -> None:
        """Makes the connector, as soon as the worker answers; Wrong where it does not in time."""
        request = urllib.request.Request(
            f"http://{self._rest}/connectors/{name}/config",
            json.dumps(config).encode(),
            {"Content-Type": "application/json"},
            method="PUT",
        )
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with urllib.request.urlopen(request, timeout=30):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.5)  # A worker that starts answers nothing yet, and sends no event when it does.
        raise Wrong("the worker does not take its connector")

    def end(self, *, kill: bool) -> None:
        if kill:
            self.process.kill()
        else:
            self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._log.close()


def run(bootstrap: str, folder: Path) -> None:
    """Half of the file, a kill, the other half and another worker. Wrong, java.Absent."""
    classpath = jars(folder) / "libs"
    work = folder / "connect-work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    make_topic(bootstrap, TOPIC)
    file = work / "lines"
    half = RECORDS // 2
    _append(file, range(half))
    config = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(file),
        "topic": TOPIC,
        "exactly.once.support": "required",
    }
    worker = Worker(bootstrap, classpath, work)
    try:
        worker.configure("lines", config)
        _wait_for_records(bootstrap)
        worker.end(kill=True)
        _append(file, range(half, RECORDS))
        worker = Worker(bootstrap, classpath, work)
        judge(bootstrap, TOPIC, lambda: worker.process.poll() is None)
    except Wrong:
        print("\n".join((work / "log").read_text(errors="replace").splitlines()[-30:]))
        raise
    finally:
        worker.end(kill=False)


def _append(file: Path, numbers: range) -> None:
    with file.open("a") as lines:
        lines.writelines(f"{2 * number}\n" for number in numbers)


def _wait_for_records(bootstrap: str) -> None:
    """Until some lines are in the topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "looks"})
    deadline = time.monotonic() + DEADLINE_S
    try:
        while time.monotonic() < deadline:
            ends = [consumer.get_watermark_offsets(TopicPartition(TOPIC, each), 30)[1] for each in range(PARTITIONS)]
            if sum(ends) > 0:
                return
            time.sleep(0.1)  # Offsets are asked for again: no client is told when a topic gets its first record.
    finally:
        consumer.close()
    raise Wrong("no line came into the topic")
