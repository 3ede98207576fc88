"""Produce: requests of five shapes against tidelog and against a C server that does the least that can be done.

    python bench/produce.py [--seconds S] [--rounds N] [--small] [--kafka DIR] [--port P]

The load generator (`bench/load`, C) sends prebuilt Produce v10 requests over some connections, with some in flight on
each. The sink reads the same frames, computes their CRC, appends them to a file and answers: the limit of this
machine. The two take turns, so that what else the machine does hits both; the median of the ratios counts. With
--kafka, DIR is a folder in which `bench/peers/kafka.sh jars DIR` has put Apache Kafka, which then takes its turns too.
Each shape ends with the CPU time of each server's process for a request, user and system: on a machine that does other
work as well, it says more than the requests a second.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from tidelog.testing import ProcessBroker

HERE = Path(__file__).parent
PARTITIONS = 16
WARM_UP_S = 0.5
"""What `lg` sends before it counts."""
SETTINGS = {
    "C sink": "one thread; takes the CRC of each batch, appends it to a file, answers",
    "tidelog": "one broker as `tidelog start` runs it; default settings",
    "Apache Kafka": "one node (KRaft), default settings; -Xms1G -Xmx1G -XX:+UseG1GC",
}


class Shape(NamedTuple):
    """What is sent, and what is asked of tidelog."""

    name: str
    connections: int
    in_flight: int
    requests: str
    unit: str
    """Of the figure that counts: MB_s or req_s."""
    goal: float
    """Share of the sink's figure that the Python path must reach."""


SHAPES = (
    Shape("1 MB, 2 connections, 2 in flight", 2, 2, "s1kx1000", "MB_s", 0.95),
    Shape("15 KB, 1 connection, 8 in flight", 1, 8, "s1kx15", "req_s", 0.85),
    Shape("100 B, 1 connection, 1 in flight", 1, 1, "s100x1", "req_s", 0.6),
    Shape("100 B, 16 connections, 1 in flight", 16, 1, "s100x1", "req_s", 0.5),
    Shape("100 B, 16 connections, 16 in flight", 16, 16, "s100x1", "req_s", 0.6),
)


class Server(NamedTuple):
    """Who is measured."""

    port: int
    pid: int | None
    """None where that is not known: no CPU time is shown."""
    further: tuple[int, ...] = ()
    """Processes of the cluster's further brokers, on the ports that follow; all lead the partitions in turn."""

    def cpu_s(self) -> float:
        """Seconds of CPU that its processes have used, user and system."""
        return sum(map(_cpu_s, (self.pid, *self.further)))


def _cpu_s(pid: int | None) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def build(work: Path) -> None:
    """Compiles generator and sink, makes the requests."""
    for name in ("lg", "sink"):
        subprocess.run(
            ["gcc", "-O2", "-march=native", "-w", "-o", work / name, HERE / "load" / f"{name}.c"], check=True
        )
    subprocess.run(
        [sys.executable, HERE / "load" / "mkreq.py", work / "requests"], check=True, stdout=subprocess.DEVNULL
    )


def load(work: Path, server: Server, shape: Shape, seconds: float) -> dict[str, float]:
    """One run of the generator: its own figures, and `cpu_us` of the server for a request."""
    meta = json.loads((work / "requests/meta.json").read_text())[shape.requests]
    command = [work / "lg", "produce", server.port, shape.connections, shape.in_flight, seconds]
    command += [work / "requests" / shape.requests, meta["poff"], PARTITIONS, meta["payload"], meta["recs"]]
    command.append(1 + len(server.further))
    before_s = server.cpu_s() if server.pid is not None else 0
    output = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout
    figures: dict[str, float] = json.loads(output)
    if figures.get("err"):
        raise SystemExit(f"{shape.name}: {figures['err']} requests failed")
    if server.pid is not None:
        requests = figures["req_s"] * (seconds + WARM_UP_S)
        figures["cpu_us"] = (server.cpu_s() - before_s) * 1e6 / max(requests, 1)
    return figures


def create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    admin.create_topics([NewTopic("t", PARTITIONS, 1)], request_timeout=120)["t"].result(120)


@contextlib.contextmanager
def sink(work: Path) -> Iterator[Server]:
    port = free_port()
    folder = work / "sink-data"
    folder.mkdir()
    process = subprocess.Popen([work / "sink", str(port), "2", folder], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield Server(port, process.pid)
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]


@contextlib.contextmanager
def tidelog(work: Path) -> Iterator[Server]:
    with ProcessBroker({"log.retention.check.interval.ms": 600_000}, data=str(work / "tidelog")) as broker:
        create_topic(broker.bootstrap)
        yield Server(int(broker.bootstrap.rpartition(":")[2]), broker.pid)


@contextlib.contextmanager
def kafka(directory: str) -> Iterator[Server]:
    port = free_port()
    script = HERE / "peers/kafka.sh"
    subprocess.run(["bash", script, "start", directory, "1", str(port)], check=True, stdout=subprocess.DEVNULL)
    try:
        create_topic(f"127.0.0.1:{port}")
        yield Server(port, int((Path(directory) / "pids").read_text().split()[0]))
    finally:
        subprocess.run(["bash", script, "stop", directory], check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2, help="of each run (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each shape (%(default)s)")
    parser.add_argument("--small", action="store_true", help="only the shapes of 100 B")
    parser.add_argument("--kafka", metavar="DIR", help="measure Apache Kafka from DIR as well")
    parser.add_argument(
        "--port", type=int, help="of a running broker with a topic t of 16 partitions, to be measured instead"
    )
    arguments = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="tidelog-bench-"))
    try:
        build(work)
        with contextlib.ExitStack() as stack:
            servers = {"C sink": stack.enter_context(sink(work))}
            if arguments.port:
                servers["tidelog"] = Server(arguments.port, None)
            else:
                servers["tidelog"] = stack.enter_context(tidelog(work))
            if arguments.kafka:
                servers["Apache Kafka"] = stack.enter_context(kafka(arguments.kafka))
            print(
                "tidelog and the sink: acks=1, no fsync, CRC32C checked; "
                f"{arguments.rounds} rounds of {arguments.seconds} s"
            )
            for name in servers:
                print(f"  {name}: {SETTINGS[name]}")
            for shape in SHAPES:
                if arguments.small and not shape.name.startswith("100 B"):
                    continue
                measure(work, servers, shape, arguments)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def measure(work: Path, servers: dict[str, Server], shape: Shape, arguments: argparse.Namespace) -> None:
    rounds = []
    for _ in range(arguments.rounds):
        rounds.append({name: load(work, server, shape, arguments.seconds) for name, server in servers.items()})
        time.sleep(0.2)
    print(f"\n{shape.name}")
    for name in servers:
        rate = statistics.median(figures[name][shape.unit] for figures in rounds)
        ratio = statistics.median(figures[name][shape.unit] / figures["C sink"][shape.unit] for figures in rounds)
        p50 = statistics.median(figures[name]["p50_us"] for figures in rounds)
        p99 = statistics.median(figures[name]["p99_us"] for figures in rounds)
        unit = "MB/s" if shape.unit == "MB_s" else "req/s"
        goal = f"   goal {shape.goal}: {'reached' if ratio >= shape.goal else 'missed'}" if name == "tidelog" else ""
        print(
            f"  {name:14} {rate:10,.0f} {unit:5}  p50 {p50:8,.0f} us  p99 {p99:8,.0f} us"
            f"   {ratio:5.2f} of the sink{goal}"
        )
    cpu = {name: [figures[name]["cpu_us"] for figures in rounds if "cpu_us" in figures[name]] for name in servers}
    shares = [f"{name} {statistics.median(each):,.1f} us" for name, each in cpu.items() if each]
    print(f"  CPU time a request: {', '.join(shares)}")


if __name__ == "__main__":
    main()
