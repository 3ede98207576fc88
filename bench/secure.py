"""Security: what TLS, logins and ACLs cost a broker, beside Apache Kafka with the same certificates and mechanism.

    python -m bench.secure [--kafka DIR] [--rounds N] [--seconds S] [--only PART]...

    produce    over SASL_SSL: requests of 1 MB and of 1 KB; rates, and the broker's CPU time for a GB
    read       over SASL_SSL: a topic of values of 1,000 B by librdkafka; the same
    acls       requests of 100 B, plaintext: a broker with an authorizer that has started with 10,000 ACLs, and one
               that was just sent them, beside one without; goal 0.95
    storm      1,000 new SASL_SSL connections: how long another client's requests take meanwhile; goal p99 50 ms

Both brokers show the same certificate (EC, P-256) of the same CA, and clients log in by PLAIN. They take turns; medians
count. Clients are `bench/load/secured.py`, a process for each connection, and librdkafka; they share the machine with
the broker, and a small machine is busy with them as well. With --kafka, DIR is a folder in which `bench/peers/kafka.sh
jars DIR` has put Apache Kafka.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.peers.kafka import KafkaCluster, serves, until
from bench.scratch import scratch_folder
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tidelog.client import admin
from tidelog.client.blocking import BlockingCluster
from tidelog.launcher.certificates import issue, make_authority
from tidelog.security.access import Operation, ResourceType
from tidelog.security.acls import AclBinding, AclEntry, PatternType, Permission, ResourcePattern
from tidelog.testing import ProcessBroker

HERE: Final = Path(__file__).parent
PARTS: Final = ("produce", "read", "acls", "storm")
USER, PASSWORD = "alice", "alice-secret"
PARTITIONS: Final = 4
SHAPES: Final = (("1 MB", "s1kx1000", 2, 2), ("1 KB", "s1kx1", 2, 8))
"""Name, request, connections, requests in flight on each."""
READ_BYTES: Final = 200_000_000
VALUE_BYTES: Final = 1_000
ACLS: Final = 10_000
ACLS_PER_REQUEST: Final = 500
ACLS_GOAL: Final = 0.95
STORM: Final = 1_000
STORM_AT_ONCE: Final = 100
STORM_P99_MS: Final = 50.0
_JAAS: Final = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}";'
)


class Server(NamedTuple):
    """A broker that clients log in to."""

    name: str
    address: str
    pid: int
    ca: Path

    def cpu_s(self) -> float:
        """Seconds of CPU that its process has used, user and system."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def client(self) -> dict[str, Any]:
        """librdkafka's settings."""
        return {
            "bootstrap.servers": self.address,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(self.ca),
        }

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        """One of our own clients."""
        environment = {"ADDRESS": self.address, "CA": str(self.ca), "SASL_USER": USER, "SASL_PASSWORD": PASSWORD}
        return subprocess.Popen(
            [sys.executable, str(HERE / "load/secured.py"), *map(str, arguments)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )


def outcome(process: subprocess.Popen[str]) -> Any:
    output, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"a client has failed: {process.args!r}")
    return json.loads(output)


# The brokers.


def make_certificates(work: Path) -> tuple[Path, Path]:
    """The CA, and a file with key and certificate of 127.0.0.1."""
    now = datetime.datetime.now(datetime.UTC)
    authority = make_authority("bench", now)
    issued = issue(authority, "127.0.0.1", now)
    ca, broker = work / "ca.pem", work / "broker.pem"
    ca.write_text(authority.certificate)
    broker.write_text(issued.key + issued.certificate)
    return ca, broker


def security(broker: Path, ca: Path) -> dict[str, object]:
    """Settings of both brokers."""
    return {
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": _JAAS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": broker,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": ca,
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def tidelog(work: Path, ca: Path, broker: Path) -> Iterator[Server]:
    """One broker from a file, its store in its process."""
    address = f"127.0.0.1:{free_port()}"
    settings = {"broker.id": 1, "listeners": f"SASL_SSL://{address}", "log.dirs": work / "tidelog"}
    file = work / "tidelog.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in {**settings, **security(broker, ca)}.items()))
    with (work / "tidelog.log").open("ab") as log:
        command = [sys.executable, "-c", "import sys, tidelog.cli; sys.exit(tidelog.cli.run(sys.argv[1:]))"]
        process = subprocess.Popen([*command, "broker", str(file)], stdout=log, stderr=log, start_new_session=True)
    try:
        until(lambda: process.poll() is not None or serves(address), f"tidelog starts; see {log.name}")
        yield Server("tidelog", address, process.pid, ca)
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def kafka(jars: Path, work: Path, ca: Path, broker: Path) -> Iterator[Server]:
    cluster = KafkaCluster(jars, work / "kafka", security(broker, ca), nodes=1, protocol="SASL_SSL")
    with cluster:
        yield Server("Apache Kafka", cluster.bootstrap, cluster.pid(1), ca)


def create_topic(server: Server, name: str, partitions: int) -> None:
    client = AdminClient(server.client | {"log_level": 2})
    client.create_topics([NewTopic(name, partitions, 1)], request_timeout=60)[name].result(60)


# The parts.


def produce(servers: list[Server], work: Path, rounds: int, seconds: float, warm_up_s: float) -> None:
    meta = json.loads((work / "requests/meta.json").read_text())
    for name, request, connections, in_flight in SHAPES:
        found: dict[str, list[tuple[float, float]]] = {server.name: [] for server in servers}
        for index in range(rounds + 1):
            for server in servers:
                before_s = server.cpu_s()
                arguments = ("produce", work / "requests" / request, meta[request]["poff"], PARTITIONS, in_flight)
                lasting = seconds if index else warm_up_s
                clients = [server.start(*arguments, lasting) for _ in range(connections)]
                results = [outcome(client) for client in clients]
                size = sum(result["requests"] for result in results) * meta[request]["payload"]
                rate = sum(result["requests"] / result["seconds"] for result in results) * meta[request]["payload"]
                if index:  # The first one lets Java compile.
                    found[server.name].append((rate / 1e6, (server.cpu_s() - before_s) / size * 1e9))
        print(f"\nproduce over SASL_SSL, requests of {name}, {connections} connections, {in_flight} in flight")
        show(found)


def read(servers: list[Server], rounds: int) -> None:
    records = READ_BYTES // VALUE_BYTES
    for server in servers:
        create_topic(server, "r", 1)
        producer = Producer(server.client | {"linger.ms": 20, "acks": 1, "queue.buffering.max.messages": 1_000_000})
        value = os.urandom(VALUE_BYTES)
        for number in range(records):
            producer.produce("r", value, partition=0)
            if number % 10_000 == 0:
                producer.poll(0)
        if producer.flush(120):
            raise SystemExit(f"{server.name} has not taken all records")
    found: dict[str, list[tuple[float, float]]] = {server.name: [] for server in servers}
    for index in range(rounds + 1):
        for server in servers:
            before_s = server.cpu_s()
            seconds = by_librdkafka(server, records)
            if index:
                cpu = (server.cpu_s() - before_s) / READ_BYTES * 1e9
                found[server.name].append((READ_BYTES / seconds / 1e6, cpu))
    print(f"\nread over SASL_SSL by librdkafka, consume(10000), {records:,} values of {VALUE_BYTES} B")
    show(found)


def by_librdkafka(server: Server, records: int) -> float:
    """Seconds from the first records to the last."""
    settings = {"group.id": "bench", "enable.auto.commit": False, "fetch.queue.backoff.ms": 10}
    consumer = Consumer(server.client | settings)
    try:
        consumer.assign([TopicPartition("r", 0, 0)])
        count = 0
        start = 0.0
        while count < records:
            messages = consumer.consume(10_000, timeout=10)
            if not messages:
                raise SystemExit(f"{server.name} gives no more after {count} records")
            start = start or time.perf_counter()
            for message in messages:
                if message.error() is not None:
                    raise KafkaException(message.error())
            count += len(messages)
        return time.perf_counter() - start
    finally:
        consumer.close()


def show(found: dict[str, list[tuple[float, float]]]) -> None:
    """[broker] -> (MB/s, CPU seconds a GB) of each round."""
    for name, rounds in found.items():
        rate, cpu = (statistics.median(each[column] for each in rounds) for column in (0, 1))
        line = f"  {name:13} {rate:8,.1f} MB/s   broker {cpu:7.2f} CPU s/GB"
        if name == "tidelog" and len(found) > 1:
            others = found["Apache Kafka"]
            ratio = statistics.median(own[0] / other[0] for own, other in zip(rounds, others, strict=True))
            line += f"   {ratio:5.2f} of Apache Kafka, goal 1.0: {'reached' if ratio >= 1 else 'missed'}"
        print(line, flush=True)


def acls(work: Path, rounds: int, seconds: float) -> None:
    """The generator in C, plaintext: nothing else is to hide what an authorizer costs."""
    from bench import produce as small

    small.build(work)
    shape = next(each for each in small.SHAPES if each.name.startswith("100 B, 16 connections, 16"))
    with contextlib.ExitStack() as stack:
        servers: dict[str, ProcessBroker] = {}
        authorizer = {
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "allow.everyone.if.no.acl.found": True,  # Until there are ACLs.
        }
        for name, settings in (("without", {}), ("just sent", authorizer), ("with", authorizer)):
            broker = ProcessBroker(settings, data=str(work / f"acls-{name.replace(' ', '-')}"))
            servers[name] = stack.enter_context(broker)
        for name, broker in servers.items():
            if name != "without":
                fill_with_acls(broker.bootstrap)
            small.create_topic(broker.bootstrap)
        # As it is for all of its life but the first minutes: what was made is read at the start.
        servers["with"].stop()
        servers["with"].start()
        found: dict[str, list[dict[str, float]]] = {name: [] for name in servers}
        for index in range(2 * rounds + 1):
            for name, broker in random.sample(list(servers.items()), len(servers)):
                port = int(broker.bootstrap.rpartition(":")[2])
                figures = small.load(work, small.Server(port, broker.pid), shape, seconds / 2)
                if index:
                    found[name].append(figures)
    print(f"\nauthorizer with {ACLS:,} ACLs, {shape.name}, plaintext")
    for name, rows in found.items():
        rate, cpu = (statistics.median(row[key] for row in rows) for key in ("req_s", "cpu_us"))
        ratios = [own["req_s"] / other["req_s"] for own, other in zip(rows, found["without"], strict=True)]
        ratio = statistics.median(ratios)
        verdict = (
            f"   {ratio:.3f} of the rate without, goal {ACLS_GOAL}: {'reached' if ratio >= ACLS_GOAL else 'missed'}"
        )
        line = f"  {name:9} {rate:10,.0f} req/s   broker {cpu:6.1f} CPU us a request"
        print(line + verdict * (name != "without"))


def fill_with_acls(bootstrap: str) -> None:
    """One that lets everybody write to the topic, after it thousands about others, half of them by prefixes."""
    everybody = AclEntry("User:*", "*", Operation.ALL, Permission.ALLOW)
    first = [
        AclBinding(ResourcePattern(ResourceType.CLUSTER, "kafka-cluster"), everybody),
        AclBinding(ResourcePattern(ResourceType.TOPIC, "t"), everybody),
    ]
    kinds = tuple(PatternType)
    others = [
        AclBinding(
            ResourcePattern(ResourceType.TOPIC, f"topic-{number // 5}", kinds[number // 5 % 2]),
            AclEntry(f"User:u{number}", "*", Operation.READ, Permission.ALLOW),
        )
        for number in range(ACLS - len(first))
    ]
    with BlockingCluster(bootstrap) as client:
        for begin in range(0, ACLS, ACLS_PER_REQUEST):
            part = [*first, *others][begin : begin + ACLS_PER_REQUEST]
            errors = client.run(admin.create_acls(client.routing, part, timeout_s=120))
            if any(errors.values()):
                raise SystemExit(f"an ACL was refused: {next(filter(None, errors.values()))}")


def storm(servers: list[Server], work: Path) -> None:
    meta = json.loads((work / "requests/meta.json").read_text())["s100x1"]
    print(f"\n{STORM:,} new SASL_SSL connections, {STORM_AT_ONCE} at once; another one sends 100 B every 2 ms")
    for server in servers:
        outcome(server.start("storm", 200, STORM_AT_ONCE))  # The first ones let Java compile.
        probe = server.start("probe", work / "requests/s100x1", meta["poff"], 12, 2)
        time.sleep(2)  # Over which the other client is measured without the storm.
        before_s = server.cpu_s()
        stormed = outcome(server.start("storm", STORM, STORM_AT_ONCE))
        cpu_s = server.cpu_s() - before_s
        latencies: list[tuple[float, float]] = outcome(probe)
        begun, ended = stormed["begun"], stormed["begun"] + stormed["seconds"]
        during = sorted(took * 1e3 for at, took in latencies if begun <= at <= ended)
        quiet = sorted(took * 1e3 for at, took in latencies if at < begun)
        p99 = during[int(len(during) * 0.99)]
        line = (
            f"  {server.name:13} {stormed['seconds']:5.1f} s ({cpu_s * 1e3 / STORM:.2f} ms CPU each)   p50 "
            f"{statistics.median(during):6.1f} ms, p99 {p99:6.1f} ms, max {during[-1]:6.1f} ms "
            f"(before: p99 {quiet[int(len(quiet) * 0.99)]:.1f} ms)"
        )
        if server.name == "tidelog":
            line += f"   goal p99 {STORM_P99_MS:g} ms: {'reached' if p99 <= STORM_P99_MS else 'missed'}"
        print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kafka", type=Path, metavar="DIR", help="measure Apache Kafka from DIR as well")
    parser.add_argument("--rounds", type=int, default=3, help="that count (%(default)s)")
    parser.add_argument("--seconds", type=float, default=3, help="of each run (%(default)s)")
    parser.add_argument("--warm-up", type=float, default=10, help="seconds that do not count, for Java (%(default)s)")
    parser.add_argument("--only", action="append", choices=PARTS, help="this part; may be repeated")
    options = parser.parse_args()
    parts = options.only or PARTS
    with scratch_folder() as work:
        subprocess.run([sys.executable, HERE / "load/mkreq.py", work / "requests"], check=True, capture_output=True)
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; default settings, no fsync")
        if set(parts) - {"acls"}:
            with contextlib.ExitStack() as stack:
                ca, broker = make_certificates(work)
                servers = [stack.enter_context(tidelog(work, ca, broker))]
                if options.kafka:
                    servers.append(stack.enter_context(kafka(options.kafka, work, ca, broker)))
                else:
                    print("Apache Kafka is left out: it needs --kafka DIR.")
                for server in servers:
                    create_topic(server, "t", PARTITIONS)
                if "produce" in parts:
                    produce(servers, work, options.rounds, options.seconds, options.warm_up)
                if "read" in parts:
                    read(servers, options.rounds)
                if "storm" in parts:
                    storm(servers, work)
        if "acls" in parts:
            acls(work, options.rounds, options.seconds)


if __name__ == "__main__":
    main()
