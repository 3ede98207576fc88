"""Starting, resting and holding: what a broker costs before anybody sends it records.

    python bench/lifecycle.py [--kafka DIR]

Start to the first answered Metadata, memory at rest and for each further partition, the time for 1,000 partitions, CPU
when idle, 3,000 partitions under a soft limit of 1,024 files, and what 200 hostile connections do to memory and to the
others' latency. DIR is a folder in which `bench/peers/kafka.sh jars DIR` has put Apache Kafka: it is then measured in
the same run.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import resource
import selectors
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

HOSTILE_CONNECTIONS = 200
HERE = Path(__file__).parent
METADATA_V1 = struct.pack(">ihhihi", 14, 3, 1, 7, -1, 0)
"""Asks for no topics: the smallest question that only a serving broker answers."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ask_metadata(port: int, timeout: float = 1.0) -> bool:
    """Whether a broker on `port` answered one Metadata request."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout) as connection:
            connection.sendall(METADATA_V1)
            return len(connection.recv(4)) == 4
    except OSError:
        return False


def until_answered(port: int, process: subprocess.Popen[bytes], limit: float = 30) -> None:
    deadline = time.monotonic() + limit
    while not ask_metadata(port):
        if process.poll() is not None:
            raise SystemExit(f"the broker ended with {process.returncode} before it answered")
        if time.monotonic() > deadline:
            raise SystemExit(f"no answer within {limit} s")
        time.sleep(0.002)


@contextlib.contextmanager
def tidelog_broker(directory: str, *, soft_files: int | None = None) -> Iterator[tuple[int, int, float]]:
    """A broker process: (pid, port, seconds from exec to the first answer)."""
    port = free_port()

    def limit_files() -> None:
        if soft_files is not None:
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft_files, hard))

    command = [str(Path(sys.executable).parent / "tidelog"), "start", "--data", directory, "--port", str(port)]
    # Installed packages have bytecode; a checkout whose sources are compiled at every start would be another program.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    started = time.monotonic()
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=limit_files,
        env=environment,
    )
    try:
        until_answered(port, process)
        yield process.pid, port, time.monotonic() - started
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def resident_bytes(pid: int) -> int:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * resource.getpagesize()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def create(port: int, name: str, partitions: int) -> float:
    """Seconds for one CreateTopics of one topic."""
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
    admin.list_topics(timeout=10)
    started = time.monotonic()
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result()
    return time.monotonic() - started


def starts(work: str, runs: int = 7) -> None:
    seconds = []
    for run in range(runs):
        with tidelog_broker(f"{work}/start{run}") as (_, _, took):
            seconds.append(took)
    print(
        f"start to first Metadata      {statistics.median(seconds):6.2f} s   median of {runs} (min {min(seconds):.2f})"
    )


def partitions(work: str) -> None:
    with tidelog_broker(f"{work}/partitions") as (pid, port, _):
        time.sleep(1)
        rest = resident_bytes(pid)
        print(f"memory at rest               {rest / 2**20:6.1f} MiB")
        warm = create(port, "warm", 1)
        before = resident_bytes(pid)
        took = create(port, "many", 1000)
        time.sleep(1)
        grown = resident_bytes(pid)
        create(port, "more", 1000)
        time.sleep(1)
        first, next_ones = (grown - before) / 1000, (resident_bytes(pid) - grown) / 1000
        print(f"1,000 partitions created in  {took:6.2f} s   (a first topic of one: {warm:.2f} s)")
        print(
            f"memory a partition           {next_ones / 1024:6.2f} KiB in the second 1,000;"
            f" {first / 1024:.2f} in the first, with what the request itself made the heap grow"
        )
        cpu = cpu_seconds(pid)
        time.sleep(10)
        print(f"idle CPU, 2,000 partitions   {(cpu_seconds(pid) - cpu) * 10:6.2f} % of a core over 10 s")


def many_files(work: str) -> None:
    with tidelog_broker(f"{work}/files", soft_files=1024) as (_, port, _):
        took = sum(create(port, f"t{index}", 1000) for index in range(3))
        from confluent_kafka import Producer

        failed: list[object] = []
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "linger.ms": 5})
        for index in range(3):
            for partition in range(1000):
                producer.produce(
                    f"t{index}", b"x", partition=partition, on_delivery=lambda error, _: error and failed.append(error)
                )
            producer.poll(0)
        unsent = producer.flush(60)
        print(f"3,000 partitions, 1,024 files  created in {took:.2f} s, written to: {3000 - unsent - len(failed)}")


def attack(port: int, seconds: float) -> None:
    """Half of the connections promise 100 MB and send it as fast as it is taken; half ask and never read."""
    deadline = time.monotonic() + seconds
    promise = struct.pack(">ihhih", 100_000_000, 0, 8, 1, -1)
    block, questions = bytes(1 << 20), METADATA_V1 * 1000
    attackers = []
    for index in range(HOSTILE_CONNECTIONS):
        connection = socket.create_connection(("127.0.0.1", port), 10)
        connection.setblocking(False)
        if index % 2:
            connection.send(promise)
        attackers.append((connection, block if index % 2 else questions))
    with selectors.DefaultSelector() as selector:
        for connection, data in attackers:
            selector.register(connection, selectors.EVENT_WRITE, data)
        while time.monotonic() < deadline:
            for ready, _ in selector.select(0.1):
                try:
                    ready.fileobj.send(ready.data)  # type: ignore[union-attr]
                except BlockingIOError:
                    continue
                except OSError:  # The broker closed it, which is its good right.
                    selector.unregister(ready.fileobj)
            time.sleep(0.001)  # Leaves the machine's second core to the client that is measured.


def hostile(work: str) -> None:
    """What 200 hostile connections do to memory, and to the latency of one client that goes on."""
    with tidelog_broker(f"{work}/hostile") as (pid, port, _):
        create(port, "t", 1)
        rest = peak = resident_bytes(pid)
        latencies: list[float] = []
        attackers = multiprocessing.get_context("spawn").Process(target=attack, args=(port, 10.0))
        attackers.start()
        with socket.create_connection(("127.0.0.1", port), 10) as connection:
            connection.settimeout(30)
            while attackers.is_alive():
                started = time.perf_counter()
                connection.sendall(METADATA_V1)
                size = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
                connection.recv(size, socket.MSG_WAITALL)
                latencies.append(time.perf_counter() - started)
                peak = max(peak, resident_bytes(pid))
                time.sleep(0.002)
        attackers.join()
        p99 = statistics.quantiles(latencies, n=100)[98] * 1000
        print(
            f"200 hostile connections      {(peak - rest) / 2**20:6.0f} MiB above rest;"
            f" another client's p99 {p99:.1f} ms over {len(latencies):,} requests"
        )


def kafka(directory: str) -> None:
    port = free_port()
    script = str(HERE / "peers/kafka.sh")
    started = time.monotonic()
    subprocess.run([script, "start", directory, "1", str(port)], check=True)
    try:
        deadline = time.monotonic() + 60
        while not ask_metadata(port) and time.monotonic() < deadline:
            time.sleep(0.01)
        took = time.monotonic() - started
        pid = int(Path(f"{directory}/pids").read_text().split()[0])
        time.sleep(2)
        print(f"Apache Kafka: start and format {took:6.2f} s, at rest {resident_bytes(pid) / 2**20:.0f} MiB")
        with contextlib.suppress(KafkaException):
            print(f"Apache Kafka: 1,000 partitions {create(port, 'many', 1000):6.2f} s")
    finally:
        subprocess.run([script, "stop", directory], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kafka", metavar="DIR", help="measure Apache Kafka from DIR as well")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        starts(work)
        partitions(work)
        many_files(work)
        hostile(work)
    if arguments.kafka:
        kafka(arguments.kafka)


if __name__ == "__main__":
    main()
