"""A reassignment in throttled waves: how long it takes beside what was predicted, and what a client feels of it.

    python -m bench.waves [--kafka DIR] [--megabytes N] [--throttle BYTES/S] [--seconds S]

Four brokers on this machine, a topic of eight partitions with two replicas on the first two of them, and a producer
with acks=all, a record of 1 KB every 10 ms. `tidelog plan --balance counts --traffic` and `tidelog reassign run` spread
it over all four. Printed are the seconds measured and predicted, and the 50th and 99th percentile of acknowledgements
before and meanwhile. Exits with 1 where the prediction is more than 20 % off, or the 99th percentile more than doubles.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.peers.kafka import KafkaCluster, until
from confluent_kafka import Producer

from tidelog.client import admin
from tidelog.client.blocking import BlockingCluster
from tidelog.testing import Cluster

TOPIC: Final = "moved"
PARTITIONS: Final = 8
BROKERS: Final = 4
EVERY_S: Final = 0.01
ERROR_MAX: Final = 0.2
SLOWER_MAX: Final = 2.0
RECORD: Final = bytes(1000)


class Found(NamedTuple):
    """Seconds of the run; percentiles of acknowledgements in ms, (50th, 99th)."""

    measured: float
    predicted: float
    before: tuple[float, float]
    meanwhile: tuple[float, float]

    @property
    def error(self) -> float:
        """How far the prediction was off, of what was predicted."""
        return (self.measured - self.predicted) / self.predicted

    @property
    def slower(self) -> float:
        """The 99th percentile meanwhile, of that before."""
        return self.meanwhile[1] / self.before[1]


class Client:
    """A producer with acks=all at an even pace; how long each acknowledgement took."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._produce)
        self.taken: list[float] = []
        self.errors: list[str] = []

    def __enter__(self) -> Client:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.flush(60)

    def _produce(self) -> None:
        number, due = 0, time.monotonic()
        while not self._stop.is_set():
            sent = time.monotonic()
            self._producer.produce(
                TOPIC,
                RECORD,
                partition=number % PARTITIONS,
                on_delivery=lambda error, _, sent=sent: self._told(error, sent),
            )
            number, due = number + 1, due + EVERY_S
            while (left := due - time.monotonic()) > 0:
                self._producer.poll(left)
            self._producer.poll(0)

    def _told(self, error: Any, sent: float) -> None:
        if error is not None:
            self.errors.append(str(error))
        self.taken.append((time.monotonic() - sent) * 1000)


def percentiles(taken: list[float]) -> tuple[float, float]:
    """The 50th and the 99th."""
    ordered = sorted(taken)
    return ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]


def tidelog(bootstrap: str, folder: Path, *arguments: str) -> Any:
    """A command's JSON."""
    environment = {**os.environ, "TIDELOG_BOOTSTRAP": bootstrap, "XDG_STATE_HOME": str(folder)}
    command = [sys.executable, "-c", "from tidelog.cli import main; main()", *arguments, "-o", "json"]
    return json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout)


def fill(bootstrap: str, first: tuple[int, int], size: int) -> None:
    """The topic on two brokers, with `size` bytes in all of one replica of each partition."""
    with BlockingCluster(bootstrap, operation_timeout_s=120) as client:
        assignment = {index: (first if index % 2 else first[::-1]) for index in range(PARTITIONS)}
        outcome = client.run(admin.create_topics(client.routing, [admin.NewTopic(TOPIC, assignment=assignment)]))
        assert isinstance(outcome[TOPIC], admin.CreatedTopic), outcome

        def has_leaders() -> bool:
            # Kafka answers before every broker knows of the topic.
            view = client.run(admin.list_topics(client.routing)).get(TOPIC)
            return view is not None and all(each.leader >= 0 for each in view.partitions.values())

        until(has_leaders, "the topic has leaders", every_s=0.2)
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 1_000_000})
    for number in range(size // 10_000):
        producer.produce(TOPIC, bytes(10_000), partition=number % PARTITIONS)
        if number % 100 == 0:
            producer.poll(0)
    assert not producer.flush(120)


def measure(bootstrap: str, first: tuple[int, int], size: int, throttle: int, seconds: float) -> Found:
    """Runs it on a cluster that is there; `first` are two of its brokers, `seconds` how long it is watched before."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill(bootstrap, first, size)
        with Client(bootstrap) as client:
            time.sleep(3)  # What comes before is the client's own beginning.
            client.taken.clear()
            time.sleep(seconds)  # As long as the p99 before the waves is measured.
            before, plan = percentiles(client.taken), str(folder / "plan")
            goals = ("--balance", "counts", "--topic", TOPIC, "--traffic", "5", "--throttle", str(throttle))
            tidelog(bootstrap, folder, "plan", *goals, "--out", plan)
            client.taken.clear()
            ended = tidelog(bootstrap, folder, "reassign", "run", plan, "--throttle", str(throttle))
            meanwhile = percentiles(client.taken)
        assert not client.errors, client.errors
    return Found(ended["seconds"], ended["predicted_seconds"], before, meanwhile)


@contextlib.contextmanager
def ours() -> Iterator[str]:
    """Four brokers of tidelog, each a process."""
    with Cluster({"auto.create.topics.enable": False}, brokers=BROKERS, processes=True) as cluster:
        yield cluster.bootstrap


@contextlib.contextmanager
def kafka(jars: Path) -> Iterator[str]:
    """Four nodes of Apache Kafka."""
    settings = {"auto.create.topics.enable": "false", "auto.leader.rebalance.enable": "false"}
    with tempfile.TemporaryDirectory() as data, KafkaCluster(jars, Path(data), settings, nodes=BROKERS) as cluster:
        yield cluster.bootstrap


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kafka", type=Path, metavar="DIR", help="where `kafka.sh jars DIR` put Apache Kafka")
    parser.add_argument("--megabytes", type=int, default=60, help="of one replica of all partitions")
    parser.add_argument("--throttle", type=int, default=1_000_000, help="bytes a second of each broker")
    parser.add_argument("--seconds", type=float, default=20, help="how long the client is watched before")
    options = parser.parse_args()
    print(f"{'':<14}{'measured':>10}{'predicted':>11}{'off':>8}   p50, p99 before      p50, p99 meanwhile")
    peers = [("tidelog", ours(), (0, 1))]
    if options.kafka is not None:
        peers.append(("Apache Kafka", kafka(options.kafka), (1, 2)))
    kept = True
    for name, peer, first in peers:
        with peer as bootstrap:
            found = measure(bootstrap, first, options.megabytes * 1_000_000, options.throttle, options.seconds)
        good = abs(found.error) <= ERROR_MAX and found.slower <= SLOWER_MAX
        kept = kept and good
        print(
            f"{name:<14}{found.measured:>8.1f} s{found.predicted:>9.1f} s{found.error:>8.0%}   "
            f"{found.before[0]:.1f}, {found.before[1]:.1f} ms        "
            f"{found.meanwhile[0]:.1f}, {found.meanwhile[1]:.1f} ms ({found.slower:.2f} x)  "
            f"{'kept' if good else 'MISSED'}",
            flush=True,
        )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
