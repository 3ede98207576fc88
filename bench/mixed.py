"""Small producers and consumers at the same time: how late records are, and how many a broker delivers.

    python -m bench.mixed [--kafka DIR] [--rounds 3] [--seconds 5]

Latency: 128 producers and 128 consumers, a connection each, 16 partitions; a record of 100 B in each request, each
record read by eight consumers, whose requests wait at the log's end. First each producer sends the next record when the
one before is acknowledged (acks=1): what the broker can carry. Then, at half of what Apache Kafka carries, records are
due evenly, whether those before are acknowledged or not: percentiles of the time from when a record is due until it is
acknowledged, and until each consumer has it.

Tail: 16 producers and 100 consumers of one partition; records delivered a second, and for a second of the broker's CPU.

`bench/load/mixed.c` (C, needs gcc) is all clients, on one core. With --kafka, DIR is a folder in which
`bench/peers/kafka.sh jars DIR` has put Apache Kafka: the two take turns; medians of the rounds count.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from bench.peers.kafka import KafkaCluster, until
from bench.replication import cpu_seconds
from bench.scratch import scratch_folder
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tidelog.testing.process import ProcessBroker

HERE: Final = Path(__file__).parent
TOPIC: Final = "t"
"""Its name is in the requests that mkreq.py makes."""


class Load(NamedTuple):
    """A workload of `mixed`."""

    producers: int
    consumers: int
    partitions: int


LATENCY: Final = Load(128, 128, 16)
TAIL: Final = Load(16, 100, 1)


class Broker(NamedTuple):
    """A broker that is measured."""

    name: str
    bootstrap: str
    pid: int


class Figures(NamedTuple):
    """Of one run."""

    requests_s: float
    delivered_s: float
    cpu_s: float
    """CPU seconds of the broker for a second of the run."""
    acknowledged_us: tuple[float, float]
    """The median and the 99th percentile."""
    delivered_us: tuple[float, float]


def build(work: Path) -> None:
    """Compiles the clients and makes their requests."""
    subprocess.run(["gcc", "-O2", "-o", work / "mixed", HERE / "load/mixed.c"], check=True)
    command = [sys.executable, str(HERE / "load/mkreq.py"), str(work / "requests")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def brokers(work: Path, jars: Path | None) -> Iterator[list[Broker]]:
    """tidelog, and Apache Kafka where its jars are given; both with their default settings."""
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(ProcessBroker(data=str(work / "tidelog")))
        found = [Broker("tidelog", ours.bootstrap, ours.pid)]
        if jars is not None:
            kafka = stack.enter_context(KafkaCluster(jars, work / "kafka", {}, nodes=1))
            found.append(Broker("Apache Kafka", kafka.bootstrap, kafka.pid(1)))
        yield found


def make_topic(broker: Broker, partitions: int) -> None:
    """A new topic of the name that the requests have; their records are of 2023, which no retention is to take."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})
    if TOPIC in admin.list_topics(timeout=60).topics:
        admin.delete_topics([TOPIC])[TOPIC].result(60)
        until(lambda: TOPIC not in admin.list_topics(timeout=10).topics, "the topic is deleted")
    topic = NewTopic(TOPIC, partitions, 1, config={"retention.ms": "-1"})
    admin.create_topics([topic])[TOPIC].result(60)


def run(work: Path, broker: Broker, load: Load, rate: float, seconds: float) -> Figures:
    """Runs the clients against one broker; `rate` requests a second, 0: as many as it carries.

    Exits where a request failed.
    """
    meta = json.loads((work / "requests/meta.json").read_text())
    produce, fetch = meta["s100x1"], meta["tail"]
    port = broker.bootstrap.rpartition(":")[2]
    command = [work / "mixed", port, load.producers, load.consumers, rate, seconds, load.partitions]
    command += [work / "requests/s100x1", produce["poff"]]
    command += [work / "requests/tail", fetch["wait"], fetch["poff"], fetch["ooff"], fetch["fix"]]
    before_s = cpu_seconds(broker.pid)
    output = subprocess.run(
        [str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True, timeout=seconds + 60
    ).stdout
    cpu_s = (cpu_seconds(broker.pid) - before_s) / (seconds + 1)  # It warms up for a second.
    found = json.loads(output)
    if found["errors"]:
        raise SystemExit(f"{broker.name}: {found['errors']} requests failed")
    return Figures(
        found["requests_s"],
        found["delivered_s"],
        cpu_s,
        (found["acknowledged_p50_us"], found["acknowledged_p99_us"]),
        (found["delivered_p50_us"], found["delivered_p99_us"]),
    )


def rounds(
    work: Path, servers: list[Broker], load: Load, rate: float, options: argparse.Namespace
) -> dict[str, Figures]:
    """[broker] -> medians of rounds in turns."""
    taken: dict[str, list[Figures]] = {each.name: [] for each in servers}
    for _ in range(options.rounds):
        for broker in servers:
            taken[broker.name].append(run(work, broker, load, rate, options.seconds))
    return {name: median(each) for name, each in taken.items()}


def median(taken: list[Figures]) -> Figures:
    def of(values: list[tuple[float, float]]) -> tuple[float, float]:
        return statistics.median(each[0] for each in values), statistics.median(each[1] for each in values)

    return Figures(
        statistics.median(each.requests_s for each in taken),
        statistics.median(each.delivered_s for each in taken),
        statistics.median(each.cpu_s for each in taken),
        of([each.acknowledged_us for each in taken]),
        of([each.delivered_us for each in taken]),
    )


def show_latency(found: dict[str, Figures]) -> None:
    for name, each in found.items():
        print(
            f"  {name:13} {each.requests_s:8,.0f} requests/s  acknowledged p50 {each.acknowledged_us[0]:7,.0f} us"
            f"  p99 {each.acknowledged_us[1]:8,.0f} us   delivered p50 {each.delivered_us[0]:7,.0f} us"
            f"  p99 {each.delivered_us[1]:8,.0f} us   {each.cpu_s:.2f} cores"
        )


def show_tail(found: dict[str, Figures]) -> None:
    for name, each in found.items():
        print(
            f"  {name:13} {each.delivered_s:9,.0f} records delivered a second  {each.cpu_s:.2f} cores"
            f"  {each.delivered_s / max(each.cpu_s, 0.01):9,.0f} for a second of CPU"
        )
    if len(found) > 1:
        ours, theirs = (each.delivered_s / max(each.cpu_s, 0.01) for each in found.values())
        print(f"  for a second of CPU, {ours / theirs:.2f} of Apache Kafka (goal 1.5)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kafka", type=Path, metavar="DIR", help="where `kafka.sh jars DIR` put Apache Kafka")
    parser.add_argument("--rounds", type=int, default=3, help="of each measurement (%(default)s)")
    parser.add_argument("--seconds", type=float, default=5, help="of each run (%(default)s)")
    options = parser.parse_args()
    with scratch_folder() as work:
        build(work)
        with brokers(work, options.kafka) as servers:
            print(f"default settings, acks=1, no fsync; load of the machine {os.getloadavg()[0]:.1f}")
            for broker in servers:
                make_topic(broker, LATENCY.partitions)
                run(work, broker, LATENCY, 0, options.seconds)  # A JVM compiles what it runs often.
            print("\n128 producers and 128 consumers, each record sent when the one before is acknowledged")
            carried = rounds(work, servers, LATENCY, 0, options)
            show_latency(carried)
            half = carried[servers[-1].name].requests_s / 2
            print(f"\nthe same at {half:,.0f} requests a second, half of what {servers[-1].name} carries")
            show_latency(rounds(work, servers, LATENCY, half, options))
            for broker in servers:
                make_topic(broker, TAIL.partitions)
            print("\n16 producers and 100 consumers of one partition's tail")
            show_tail(rounds(work, servers, TAIL, 0, options))


if __name__ == "__main__":
    main()
