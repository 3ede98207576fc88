"""Two brokers on two cores beside one broker of Apache Kafka on the same two: what filling a machine gives.

    python -m bench.cores [--kafka DIR] [--rounds 3] [--seconds 2] [--cores 2]

A broker of tidelog is one event loop; Apache Kafka's threads use all cores by themselves. `tidelog start --brokers
auto`, held to two cores by its processor affinity, starts two brokers; beside them one broker of tidelog that may use
the same cores, and with --kafka one of Apache Kafka: DIR is a folder in which `bench/peers/kafka.sh jars DIR` has put
it. They take turns; the load generator of `bench/load` runs on the machine's other cores, or shares the two where there
are no others, and then it takes from all sides alike. Requests of four shapes, 16 partitions without replicas, which
the brokers lead in turn; the medians of the rounds count, with the CPU time of all brokers' processes for a request.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.peers.kafka import KafkaCluster, free_ports
from bench.produce import PARTITIONS, Server, Shape, build, create_topic, load
from bench.scratch import scratch_folder
from bench.started import Started
from confluent_kafka.admin import AdminClient, NewTopic

SHAPES: Final = (
    Shape("1 MB, 4 connections, 2 in flight", 4, 2, "s1kx1000", "MB_s", 0),
    Shape("15 KB, 16 connections, 2 in flight", 16, 2, "s1kx15", "req_s", 0),
    Shape("100 B, 16 connections, 1 in flight", 16, 1, "s100x1", "req_s", 0),
    Shape("100 B, 16 connections, 16 in flight", 16, 16, "s100x1", "req_s", 0),
)
SETTINGS: Final = {"log.retention.check.interval.ms": 600_000}


@contextlib.contextmanager
def held_to(cores: set[int]) -> Iterator[None]:
    """What this thread starts meanwhile runs on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def tidelog(data: Path, cores: set[int], brokers: str) -> Iterator[Server]:
    """`tidelog start --brokers N` on these cores, N a number or auto, with the topic made."""
    first = free_ports(len(cores))
    with held_to(cores):
        cluster = Started(data, "--brokers", brokers, "--port", str(first), settings=SETTINGS)
        cluster.__enter__()
    try:
        if "brokers" in cluster.said:
            print(f"  tidelog start --brokers {brokers} said: brokers: {cluster.said['brokers']}")
        create_led_in_turn(",".join(cluster.addresses), len(cluster.addresses))
        yield Server(first, cluster.pids[0], tuple(cluster.pids[1:]))
    finally:
        cluster.stop()


def create_led_in_turn(bootstrap: str, brokers: int) -> None:
    """The topic, its partitions led by brokers 0, 1, ... in turn, as the load generator expects."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    places = [[partition % brokers] for partition in range(PARTITIONS)]
    admin.create_topics([NewTopic("t", PARTITIONS, replica_assignment=places)], request_timeout=120)["t"].result(120)


@contextlib.contextmanager
def kafka(jars: Path, data: Path, cores: set[int]) -> Iterator[Server]:
    cluster = KafkaCluster(jars, data, SETTINGS, nodes=1)
    with held_to(cores):
        cluster.start()
    try:
        create_topic(cluster.bootstrap)
        yield Server(int(cluster.bootstrap.rpartition(":")[2]), cluster.pid(1))
    finally:
        cluster.destroy()


def measure(work: Path, servers: dict[str, Server], shape: Shape, options: argparse.Namespace) -> None:
    """Runs one shape in turns and prints a line for each side, beside the last of them."""
    rounds = [
        {name: load(work, server, shape, options.seconds) for name, server in servers.items()}
        for _ in range(options.rounds)
    ]
    print(f"\n{shape.name}")
    peer = list(servers)[-1]
    unit = "MB/s" if shape.unit == "MB_s" else "req/s"
    for name in servers:

        def median(figure: str, name: str = name) -> float:
            return statistics.median(figures[name][figure] for figures in rounds)

        ratio = statistics.median(figures[name][shape.unit] / figures[peer][shape.unit] for figures in rounds)
        print(
            f"  {name:22} {median(shape.unit):10,.0f} {unit:5}  p50 {median('p50_us'):7,.0f} us"
            f"  p99 {median('p99_us'):8,.0f} us  {median('cpu_us'):7,.1f} us of CPU each   {ratio:5.2f} of {peer}'s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kafka", type=Path, metavar="DIR", help="where `kafka.sh jars DIR` put Apache Kafka")
    parser.add_argument("--rounds", type=int, default=3, help="of each shape (%(default)s)")
    parser.add_argument("--seconds", type=float, default=2, help="of each run (%(default)s)")
    parser.add_argument("--cores", type=int, default=2, help="that the brokers may use (%(default)s)")
    options = parser.parse_args()
    # Told to end, it ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < options.cores:
        raise SystemExit(f"{options.cores} cores are asked for, and there are {len(usable)}")
    cores, others = set(usable[: options.cores]), set(usable[options.cores :])
    with scratch_folder() as work:
        build(work)
        with contextlib.ExitStack() as stack:
            print(
                f"brokers on cores {sorted(cores)}, load on {sorted(others) or 'the same'}; "
                "acks=1, no fsync, CRC checked"
            )
            many = f"tidelog, {options.cores} brokers"
            servers = {many: stack.enter_context(tidelog(work / "many", cores, "auto"))}
            servers["tidelog, 1 broker"] = stack.enter_context(tidelog(work / "one", cores, "1"))
            if options.kafka is not None:
                servers["Apache Kafka, 1 broker"] = stack.enter_context(kafka(options.kafka, work / "kafka", cores))
            with held_to(others or cores):
                for shape in SHAPES:
                    measure(work, servers, shape, options)


if __name__ == "__main__":
    main()
