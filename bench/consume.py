"""Consume: a topic read from its beginning by librdkafka, and by a reader in C that does the least that can be done.

    python bench/consume.py [--kafka DIR] [--megabytes 400] [--rounds 5]

librdkafka's Python client with `consume(10000)` is what users have. Beside its rate stands for which share of the time
its thread that calls `consume` ran or waited for a processor: at 1 that thread is the limit, and no broker can be told
from another by it. `lg fetch` (`bench/load`) only counts batches: the broker's own limit. Topics of 1 and 4 partitions
with values of 1,000 and 100 bytes are filled by librdkafka, uncompressed, and lie in the page cache. `lg fetch` reads
from a C server too (`bench/load/source.c`), which knows where each batch stands and does nothing but sendfile(2): what
the machine gives at most.

With --kafka, DIR is a folder in which `bench/peers/kafka.sh jars DIR` has put Apache Kafka (mvn and a JDK needed): it
gets the same records from the same producer. Each broker is read from for WARM_UP_S seconds before anything counts.
Then the two take turns, in random order, so that what else the machine does hits both; the median of the rounds' ratios
counts. Both brokers get a session of their own, since Linux shares the processors by session (autogroup) before it
looks at processes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tidelog.testing import ProcessBroker

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "load"))

import mkreq  # noqa: E402  # Where the requests for `lg` are made: no package, so it needs its folder first.

GOAL = 0.9
"""Of Apache Kafka's rate by librdkafka, values of 1,000 bytes."""
# Of batches of a megabyte, librdkafka's default, a fetch of a megabyte may get one and a useless part of the next: how
# the producer happened to cut them on each broker would be what is measured.
PRODUCER: dict[str, Any] = {
    "linger.ms": 20,
    "acks": 1,
    "batch.size": 100_000,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 1 << 20,
}
# librdkafka's own backoff of 1 s, taken whenever its queue is full, would be all that is measured.
CONSUMER: dict[str, Any] = {"group.id": "bench", "enable.auto.commit": False, "fetch.queue.backoff.ms": 10}
PEER = "Apache Kafka"
C_READER = "C, lg fetch"
PARTITION_BYTES = 1 << 20
"""librdkafka's default of fetch.message.max.bytes; `lg fetch` asks for as much."""

WARM_UP_S = 20.0
"""Seconds for which each broker is read from before anything counts: Apache Kafka's virtual machine compiles meanwhile,
and is twice as fast in the end."""
WARM_UP_ROUNDS = 2
"""Rounds of each reader and shape that do not count."""
LG_BYTES = 1_000_000_000
"""What `lg fetch` reads in a round, again and again from the beginning: once takes less than a tenth of a second."""


class Shape(NamedTuple):
    topic: str
    value_bytes: int
    partitions: int


SHAPES = (
    Shape("k1", 1000, 1),
    Shape("k4", 1000, 4),
    Shape("h1", 100, 1),
    Shape("h4", 100, 4),
)


class Server(NamedTuple):
    name: str
    port: int
    pid: int

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cpu_s(self) -> float:
        """CPU time used until now, of all its threads: its clock, as clock_getcpuclockid(3) names it."""
        return time.clock_gettime((~self.pid << 3) | 2)


class Run(NamedTuple):
    mb_s: float
    """10^6 bytes a second: of values for librdkafka, of batches for `lg fetch`."""
    cpu_s_gb: float
    """CPU seconds of the broker for 10^9 bytes."""
    reader: float
    """The share of the time for which the reader's thread ran, or waited for a processor; of `lg fetch`: ran."""
    answer_kb: float = 0
    """10^3 bytes of whole batches in each answer to `lg fetch`."""


def wanted_s() -> float:
    """Seconds for which this thread has run, or waited for a processor."""
    ran, waited = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat").read_text().split()[:2]
    return (int(ran) + int(waited)) / 1e9


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def tidelog(work: Path) -> Iterator[Server]:
    with ProcessBroker(data=str(work / "tidelog")) as broker:
        yield Server("tidelog", int(broker.bootstrap.rpartition(":")[2]), broker.pid)


@contextlib.contextmanager
def kafka(directory: Path) -> Iterator[Server]:
    port = free_port()
    script = HERE / "peers/kafka.sh"
    shutil.rmtree(directory / "data1", ignore_errors=True)
    command = ["bash", script, "start", directory, "1", str(port)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 2})
        deadline = time.monotonic() + 60
        while True:
            try:
                admin.list_topics(timeout=2)
                break
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
        yield Server(PEER, port, int((directory / "pids").read_text().split()[0]))
    finally:
        subprocess.run(["bash", script, "stop", directory], check=True, stdout=subprocess.DEVNULL)


def fill(server: Server, shape: Shape, records: int) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(shape.topic, shape.partitions, 1)])[shape.topic].result(30)
    producer = Producer({"bootstrap.servers": server.bootstrap, **PRODUCER})
    pool = os.urandom(1 << 20)
    for index in range(records):
        start = index * 7919 % (len(pool) - shape.value_bytes)
        value = pool[start : start + shape.value_bytes]
        while True:
            try:
                producer.produce(shape.topic, value, partition=index // 1000 % shape.partitions)
                break
            except BufferError:
                producer.poll(0.05)
        if index % 1000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise SystemExit(f"{server.name}: not every record of {shape.topic} was acknowledged")


def by_librdkafka(server: Server, shape: Shape, records: int) -> Run:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, **CONSUMER})
    consumer.assign([TopicPartition(shape.topic, partition, 0) for partition in range(shape.partitions)])
    count = size = 0
    cpu_s, wanted, started = server.cpu_s(), wanted_s(), time.perf_counter()
    while count < records:
        messages = consumer.consume(10_000, 10)
        if not messages:
            raise SystemExit(f"{server.name}: {count} of {records} records of {shape.topic}, then none for 10 s")
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
            size += len(message)
        count += len(messages)
    took = time.perf_counter() - started
    cpu_s, wanted = server.cpu_s() - cpu_s, wanted_s() - wanted
    consumer.close()
    return Run(size / took / 1e6, cpu_s / (size / 1e9), wanted / took)


@contextlib.contextmanager
def c_source(work: Path, shape: Shape) -> Iterator[Server]:
    """The C server, with tidelog's logs of the shape's topic."""
    logs = []
    for partition in range(shape.partitions):
        (log,) = work.glob(f"tidelog/**/{shape.topic}-{partition}/*.log")  # One segment: a topic has less than 1 GiB.
        logs.append(log)
    port = free_port()
    _, places = mkreq.fetch(PARTITION_BYTES)
    command = [work / "source", port, shape.topic, places["poff"], places["ooff"], PARTITION_BYTES, *logs]
    with subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield Server("C source", port, process.pid)
        finally:
            process.terminate()


def by_lg(server: Server, shape: Shape, work: Path) -> Run:
    mkreq.TOPIC = shape.topic.encode()
    request, places = mkreq.fetch(PARTITION_BYTES)
    (work / "fetch").write_bytes(request)
    command = [work / "lg", "fetch", server.port, shape.partitions, 60, work / "fetch"]
    command += [places["poff"], places["ooff"], places["fix"], shape.partitions]
    size, took, ran, requests, cpu_s = 0, 0.0, 0.0, 0.0, server.cpu_s()
    while size < LG_BYTES:
        output = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout
        figures = json.loads(output)
        size += figures["bytes"]
        took += figures["secs"]
        ran += figures["cli_cpu"]
        requests += figures["req_s"] * figures["secs"]
    cpu_s = server.cpu_s() - cpu_s
    return Run(size / took / 1e6, cpu_s / (size / 1e9), ran / took, size / requests / 1e3)


def measure(servers: list[Server], shape: Shape, arguments: argparse.Namespace, work: Path, warm_up_s: float) -> None:
    records = arguments.megabytes * 1_000_000 // shape.value_bytes
    if shape.value_bytes < 1000:
        records //= 4  # The client needs as long for them as for the others.
    for server in servers:
        fill(server, shape, records)
    readers = {"librdkafka, consume(10000)": lambda server: by_librdkafka(server, shape, records)}
    if (work / "lg").exists():
        readers[C_READER] = lambda server: by_lg(server, shape, work)
    for server in servers:
        until = time.monotonic() + warm_up_s
        while time.monotonic() < until:
            for read in readers.values():
                read(server)
    print(f"\n{records:,} values of {shape.value_bytes} B, {shape.partitions} partition(s)")
    for reader, read in readers.items():
        print(f"  {reader}")
        with contextlib.ExitStack() as stack:
            sources = list(servers)
            if reader == C_READER:
                sources.append(stack.enter_context(c_source(work, shape)))
            rounds: list[dict[str, Run]] = []
            for index in range(WARM_UP_ROUNDS + arguments.rounds):
                figures = {source.name: read(source) for source in random.sample(sources, len(sources))}
                if index >= WARM_UP_ROUNDS:
                    rounds.append(figures)
        for source in sources:
            say(source.name, shape, reader, rounds)


def say(name: str, shape: Shape, reader: str, rounds: list[dict[str, Run]]) -> None:
    runs = [figures[name] for figures in rounds]
    line = f"    {name:13} {statistics.median(run.mb_s for run in runs):7,.0f} MB/s"
    line += f"   best {max(run.mb_s for run in runs):7,.0f}"
    line += f"   broker {statistics.median(run.cpu_s_gb for run in runs):5.2f} CPU s/GB"
    line += f"   reader {statistics.median(run.reader for run in runs):4.2f}"
    if answer_kb := statistics.median(run.answer_kb for run in runs):
        line += f"   {answer_kb:5,.0f} kB an answer"
    if name != PEER and PEER in rounds[0]:
        ratio = statistics.median(figures[name].mb_s / figures[PEER].mb_s for figures in rounds)
        line += f"   {ratio:5.2f} of {PEER}"
        if name == "tidelog" and reader != C_READER and shape.value_bytes == 1000:
            line += f", goal {GOAL}: {'reached' if ratio >= GOAL else 'missed'}"
    print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kafka", type=Path, metavar="DIR", help="measure Apache Kafka from DIR as well")
    parser.add_argument("--megabytes", type=int, default=400, help="in each topic of large values (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="that count (%(default)s)")
    parser.add_argument("--shapes", nargs="*", default=[shape.topic for shape in SHAPES], help="of %(default)s")
    arguments = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="tidelog-bench-"))
    try:
        if shutil.which("gcc"):
            for name in ("lg", "source"):
                command = ["gcc", "-O2", "-march=native", "-w", "-pthread", "-o", work / name, HERE / f"load/{name}.c"]
                subprocess.run(command, check=True)
        else:
            print("The reader in C is left out: it needs gcc.")
        with contextlib.ExitStack() as stack:
            servers = [stack.enter_context(tidelog(work))]
            if arguments.kafka:
                servers.append(stack.enter_context(kafka(arguments.kafka.absolute())))
            else:
                print("Apache Kafka is left out: it needs --kafka DIR.")
            print(f"producer {PRODUCER}; consumer {CONSUMER}, else librdkafka's defaults")
            print("brokers: default settings, no fsync; Apache Kafka with a heap of 1 GB")
            warm_up_s = WARM_UP_S
            for shape in SHAPES:
                if shape.topic in arguments.shapes:
                    measure(servers, shape, arguments, work, warm_up_s)
                    warm_up_s = 0.0
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
