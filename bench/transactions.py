"""Three brokers: what transactions cost beside plain idempotent sending, and how long a commit takes.

    python -m bench.transactions [--kafka DIR] [--rounds N] [--seconds S] [--records N]

A producer sends transactions of 1,000 records, one after another, to six partitions with three replicas, of which two
must be in sync (those of `__transaction_state` too). For each size, in turns of the same cluster:

    idempotent     records a second without transactions
    transactions   records a second in transactions, and their share of the former
    commit         p50 and p99 of `commit_transaction`, of a transaction whose records have all been acknowledged
    next           p50 and p99 from a commit's answer to the first acknowledged record of the next transaction, which
                   has to wait for the markers of the one before

Both sides are three processes on this machine; the client is librdkafka with the same settings. With --kafka, DIR is
a folder in which `bench/peers/kafka.sh jars DIR` has put Apache Kafka; the two take turns, one cluster at a time.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bench.peers.kafka import KafkaCluster
from bench.replication import BROKERS, SETTINGS, View, say
from bench.replication_load import PARTITIONS, Unmeasured
from bench.scratch import scratch_folder
from confluent_kafka import KafkaError, Producer

from tidelog.testing import Cluster

SIZES: Final = (100, 1_000)
WAIT_S: Final = 60
TRANSACTION_SETTINGS: Final = {
    **SETTINGS,
    "transaction.state.log.replication.factor": BROKERS,
    "transaction.state.log.min.isr": 2,
}
_CLIENT: Final = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 5,
    "queue.buffering.max.messages": 200_000,
    "log_level": 0,
}


class Failures:
    """Records that were not delivered."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, error: KafkaError | None, _: Any) -> None:
        self.count += error is not None

    def check(self) -> None:
        if self.count:
            raise Unmeasured(f"{self.count} records were not delivered")


def idempotent(bootstrap: str, topic: str, size: int, seconds: float) -> float:
    """Records a second without transactions."""
    failures = Failures()
    client = Producer({"bootstrap.servers": bootstrap, "delivery.report.only.error": True, **_CLIENT})
    chunk = [{"value": os.urandom(size)} for _ in range(100)]
    sent = 0
    started = time.monotonic()
    while time.monotonic() < started + seconds:
        if len(client) > 20_000:
            client.poll(0.001)
            continue
        sent += client.produce_batch(topic, list(chunk), partition=sent // 100 % PARTITIONS, on_delivery=failures)
    failures.count += client.flush(WAIT_S)
    rate = sent / (time.monotonic() - started)
    failures.check()
    return rate


def transactional(
    bootstrap: str, topic: str, size: int, records: int, seconds: float
) -> tuple[float, list[float], list[float]]:
    """Records a second in transactions, milliseconds of each commit, and until the next one's first record."""
    failures = Failures()
    client = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"bench-{size}", **_CLIENT})
    client.init_transactions(WAIT_S)
    chunk = [{"value": os.urandom(size)} for _ in range(records // 10)]
    sent = 0
    commits: list[float] = []
    started = time.monotonic()
    while time.monotonic() < started + seconds:
        client.begin_transaction()
        for part in range(10):
            sent += client.produce_batch(topic, list(chunk), partition=part % PARTITIONS, on_delivery=failures)
        client.flush(WAIT_S)
        ended = time.perf_counter()
        client.commit_transaction(WAIT_S)
        commits.append((time.perf_counter() - ended) * 1000)
    rate = sent / (time.monotonic() - started)
    following: list[float] = []
    for _ in range(50):
        client.begin_transaction()
        begun = time.perf_counter()
        client.produce(topic, chunk[0]["value"], partition=0, on_delivery=failures)
        client.flush(WAIT_S)
        following.append((time.perf_counter() - begun) * 1000)
        client.commit_transaction(WAIT_S)
    failures.check()
    return rate, commits, following


def measure(name: str, bootstrap: str, arguments: argparse.Namespace) -> None:
    for size in SIZES:
        topic = f"transactions-{size}"
        with View(bootstrap) as view:
            view.create(topic, PARTITIONS)
        plain: list[float] = []
        rates: list[float] = []
        commits: list[float] = []
        following: list[float] = []
        # The first round warms up whoever compiles as it runs.
        for number in range(arguments.rounds + 1):
            without = idempotent(bootstrap, topic, size, arguments.seconds)
            rate, ends, nexts = transactional(bootstrap, topic, size, arguments.records, arguments.seconds)
            if number:
                plain.append(without)
                rates.append(rate)
                commits += ends
                following += nexts
        without, rate = statistics.median(plain), statistics.median(rates)
        what = f"{size:,} B, {arguments.records:,} a transaction"
        say(name, f"{what}: idempotent", f"{without:11,.0f} records/s")
        say(name, f"{what}: transactions", f"{rate:11,.0f} records/s  {rate / without:6.0%}")
        for label, latencies in (("commit", commits), ("next", following)):
            cuts = statistics.quantiles(latencies, n=100)
            say(name, f"{what}: {label}", f"p50 {cuts[49]:6.2f} ms  p99 {cuts[98]:6.2f} ms  ({len(latencies):,})")


@contextlib.contextmanager
def kafka(jars: Path) -> Iterator[str]:
    with scratch_folder() as folder, KafkaCluster(jars, folder, TRANSACTION_SETTINGS, BROKERS) as cluster:
        yield cluster.bootstrap


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kafka", type=Path, metavar="DIR", help="measure Apache Kafka from DIR as well")
    parser.add_argument("--rounds", type=int, default=3, help="of each measurement (%(default)s)")
    parser.add_argument("--seconds", type=float, default=5, help="of load in each (%(default)s)")
    parser.add_argument("--records", type=int, default=1_000, help="of a transaction (%(default)s)")
    parser.add_argument("--skip-tidelog", action="store_true", help="measure the peer alone")
    arguments = parser.parse_args()
    sys.setswitchinterval(0.0005)
    if not arguments.skip_tidelog:
        with Cluster(TRANSACTION_SETTINGS, brokers=BROKERS, processes=True) as cluster:
            measure("tidelog", cluster.bootstrap, arguments)
    if arguments.kafka is not None:
        with kafka(arguments.kafka) as bootstrap:
            measure("Apache Kafka", bootstrap, arguments)


if __name__ == "__main__":
    main()
