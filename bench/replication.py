"""Three brokers: what replication costs, what a broker's death costs, and what thousands of replicas cost.

    python -m bench.replication [--kafka DIR] [--only FIGURE ...] [--rounds N] [--seconds S]

Each figure is a function of its own, and can be run alone:

    throughput     MB/s and records/s, 1,000 B and 100 B, replication factor 3, acks=all
    throughput-c   the same by a generator in C (`bench/load`, gcc needed): librdkafka's thread may be the limit
    one-at-a-time  p50 and p99 of a record that is sent when the last one was acknowledged; the brokers' CPU time for it
    failover       from SIGKILL of a leader, and of the controller, to the next acknowledgement
    stop           a clean stop of a broker: failed deliveries, and the longest pause in any partition that it led
    many           2,000 partitions x 3: creation, memory, idle CPU, and a dead broker's leaders elsewhere
    start          a cluster of `tidelog.testing`, in one process and in three (tidelog alone)

Both sides are three processes on this machine, with their defaults but for min.insync.replicas=2 (neither flushes
before it acknowledges) and for how soon a deleted topic's files go. The client is librdkafka with the same settings.
With --kafka, DIR is a folder in which `bench/peers/kafka.sh jars DIR` has put Apache Kafka; the two take turns, one
cluster at a time. What a dead broker costs depends on who notices: tidelog's supervisor sees its child end, Kafka's
controller waits for a heartbeat (broker.session.timeout.ms, 9 s by default).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import shutil
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from bench.peers.kafka import KafkaCluster, until
from bench.replication_load import (
    AGAIN_S_MAX,
    BATCH_BYTES,
    IN_FLIGHT,
    PARTITIONS,
    QUICK,
    Prober,
    Unmeasured,
    build_lg,
    producer,
    send,
    send_by_lg,
)
from bench.scratch import scratch_folder
from confluent_kafka import KafkaError

from tidelog.client import admin
from tidelog.client.blocking import BlockingCluster
from tidelog.client.errors import ClientError
from tidelog.model.errors import KafkaError as Refused
from tidelog.testing import Cluster

BROKERS: Final = 3
MANY: Final = 2000
DELETION_MS: Final = 1000
"""log.segment.delete.delay.ms: the files of a topic are gone so long after its deletion."""
SETTINGS: Final = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "auto.create.topics.enable": "false",
    "log.segment.delete.delay.ms": DELETION_MS,
}
WARM_UP_ROUNDS: Final = {"tidelog": 1, "Apache Kafka": 10}
"""Rounds of throughput that do not count, 1,000 B: Apache Kafka's three virtual machines compile for a minute of load,
in which they become three times as fast. Of 100 B one follows."""
REST_S: Final = 3.0
"""From the deletion of a topic to the next round."""


class Brokers(Protocol):
    """A running cluster."""

    bootstrap: str
    ids: tuple[int, ...]

    def pid(self, broker_id: int) -> int: ...
    def kill(self, broker_id: int) -> None: ...
    def restart(self, broker_id: int) -> None: ...
    def stop_one(self, broker_id: int) -> None: ...
    def controller(self) -> int: ...


class Tidelog:
    """Three processes, as `tidelog start --brokers 3` runs them; a dead one stays dead until it is brought back."""

    ids = tuple(range(BROKERS))

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.bootstrap = cluster.bootstrap
        self.pid: Callable[[int], int] = cluster.pid
        self.kill: Callable[[int], None] = cluster.kill
        self.restart: Callable[[int], None] = cluster.restart
        self.stop_one: Callable[[int], None] = cluster.stop

    def controller(self) -> int:
        with View(self.bootstrap) as view:
            return view.look("").controller


@contextlib.contextmanager
def tidelog() -> Iterator[Brokers]:
    with Cluster(SETTINGS, brokers=BROKERS, processes=True) as cluster:
        yield Tidelog(cluster)


@contextlib.contextmanager
def kafka(jars: Path) -> Iterator[Brokers]:
    with scratch_folder() as folder, KafkaCluster(jars, folder, SETTINGS, BROKERS) as cluster:
        yield cluster


# What the cluster says of itself


class View:
    """Asks brokers for Metadata, over one connection after another until one answers."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._cluster = BlockingCluster(bootstrap, call_timeout_s=5.0, operation_timeout_s=AGAIN_S_MAX)
        self.leaders: list[int] = []
        self.in_sync: list[int] = []
        """How many replicas of each partition are."""
        self.controller = -1

    def create(self, topic: str, partitions: int) -> float:
        """Seconds until the brokers had created it; when this returns, every replica is in sync."""
        new = admin.NewTopic(topic, partitions, BROKERS)
        with BlockingCluster(self._bootstrap, call_timeout_s=AGAIN_S_MAX) as patient:
            started = time.monotonic()
            for created in patient.run(admin.create_topics(patient.routing, [new], timeout_s=AGAIN_S_MAX)).values():
                if isinstance(created, Refused):
                    raise created
            seconds = time.monotonic() - started
        self.leaders, self.in_sync = [], []  # What is known is of another topic, and stays where nobody answers.
        self.until_in_sync(topic)
        return seconds

    def delete(self, topic: str) -> None:
        self._cluster.run(admin.delete_topics(self._cluster.routing, [topic]))

    def look(self, topic: str) -> View:
        """Asks once; what was known before stays where nobody answers."""
        routing = self._cluster.routing
        with contextlib.suppress(ClientError, Refused):
            self._cluster.run(routing.refresh([topic] if topic else [], routing.deadline()))
            self.controller = routing.controller_id
            if topic in routing.topics:
                views = routing.topics[topic].partitions.values()
                self.leaders = [view.leader for view in views]
                self.in_sync = [len(view.isr) for view in views]
        return self

    def until_in_sync(self, topic: str) -> None:
        def whole() -> bool:
            self.look(topic)
            return bool(self.in_sync) and min(self.in_sync) == BROKERS and min(self.leaders) >= 0

        until(whole, "every replica is in sync", AGAIN_S_MAX, 0.02)

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.close()


# Figures: (name of the peer, its cluster, arguments) -> lines


class Round(NamedTuple):
    """One round of throughput."""

    records_s: float
    cpu_s_mb: float
    """CPU seconds of all brokers for 10^6 bytes."""
    sender: float
    """The share of the time for which the thread that sends ran, or waited for a processor: at 1 it is the limit."""


def wanted_s() -> float:
    """Seconds for which this thread has run, or waited for a processor."""
    ran, waited = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat").read_text().split()[:2]
    return (int(ran) + int(waited)) / 1e9


def throughput(name: str, brokers: Brokers, arguments: argparse.Namespace) -> None:
    say_throughput(name, "acks=all, RF 3", lambda size, index: fill(brokers, size, index, arguments.seconds), arguments)


def throughput_c(name: str, brokers: Brokers, arguments: argparse.Namespace) -> None:
    if shutil.which("gcc") is None:
        raise Unmeasured("it needs gcc")
    with scratch_folder() as folder:
        lg = build_lg(folder)
        say_throughput(
            name,
            f"by the generator in C, {IN_FLIGHT} x {BATCH_BYTES // 1000} kB",
            lambda size, index: fill_by_lg(brokers, lg, size, index, arguments.seconds),
            arguments,
        )


def say_throughput(name: str, how: str, fill_once: Callable[[int, int], Round], arguments: argparse.Namespace) -> None:
    """`fill_once` is told the bytes of a value, and which round it is."""
    for size, warm_up in ((1000, WARM_UP_ROUNDS[name]), (100, 1)):
        rounds = [fill_once(size, index) for index in range(warm_up + arguments.rounds)]
        counted = rounds[warm_up:]
        rate = statistics.median(each.records_s for each in counted)
        used = statistics.median(each.cpu_s_mb for each in counted)
        sender = statistics.median(each.sender for each in counted)
        say(
            name,
            f"{size:,} B, {how}",
            f"{rate * size / 1e6:8.1f} MB/s  {rate:11,.0f} records/s, CPU of all brokers {used * 1e3:.1f} ms a MB,"
            f" sender {sender:.2f}  (rounds: {' '.join(f'{each.records_s * size / 1e6:.0f}' for each in rounds)} MB/s)",
        )


def fill(brokers: Brokers, size: int, index: int, seconds: float) -> Round:
    """A round with a topic of its own.

    The topic is deleted afterwards. Else page after page of memory would be one that was not used before, and a virtual
    machine has to be given each by its host, which took more than all that the brokers did for what is in it.
    """
    topic = f"throughput-{size}-{index}"
    with View(brokers.bootstrap) as view:
        view.create(topic, PARTITIONS)
        used = sum(cpu_seconds(brokers.pid(broker_id)) for broker_id in brokers.ids)
        wanted, started = wanted_s(), time.monotonic()
        rate = send(brokers.bootstrap, topic, size, seconds)
        took = time.monotonic() - started
        wanted = wanted_s() - wanted
        used = sum(cpu_seconds(brokers.pid(broker_id)) for broker_id in brokers.ids) - used
        view.delete(topic)
    time.sleep(REST_S)  # The brokers remove the deleted topic's files meanwhile, not beside the next round.
    return Round(rate, used / (rate * size * took / 1e6), wanted / took)


def fill_by_lg(brokers: Brokers, lg: Path, size: int, index: int, seconds: float) -> Round:
    """As `fill`; six topics of one partition, a generator each: it takes one leader's port."""
    topics = [f"throughput-c-{size}-{index}-{number}" for number in range(PARTITIONS)]
    ports = dict(
        zip(brokers.ids, (address.rpartition(":")[2] for address in brokers.bootstrap.split(",")), strict=True)
    )
    leaders = {}
    with View(brokers.bootstrap) as view:
        for topic in topics:
            view.create(topic, 1)
            leaders[topic] = ports[view.leaders[0]]
        used = sum(cpu_seconds(brokers.pid(broker_id)) for broker_id in brokers.ids)
        sent = send_by_lg(lg, leaders, size, seconds)
        used = sum(cpu_seconds(brokers.pid(broker_id)) for broker_id in brokers.ids) - used
        for topic in topics:
            view.delete(topic)
    time.sleep(REST_S)  # As in `fill`: the brokers remove the deleted topics' files meanwhile.
    return Round(sent.records_s, used / (sent.records_s * size * sent.seconds / 1e6), sent.busiest)


def one_at_a_time(name: str, brokers: Brokers, arguments: argparse.Namespace) -> None:
    with View(brokers.bootstrap) as view:
        view.create("single", 1)
    client = producer(brokers.bootstrap, QUICK)
    latencies: list[float] = []
    answers: list[KafkaError | None] = []

    def delivered(error: KafkaError | None, _: Any) -> None:
        answers.append(error)

    deadline = time.monotonic() + arguments.seconds * arguments.rounds
    used = sum(cpu_seconds(brokers.pid(broker_id)) for broker_id in brokers.ids)
    while time.monotonic() < deadline:
        started = time.perf_counter()
        client.produce("single", bytes(100), partition=0, on_delivery=delivered)
        while len(answers) == len(latencies):
            client.poll(1)
        latencies.append((time.perf_counter() - started) * 1000)
        if answers[-1] is not None:
            raise Unmeasured(f"a record was not delivered: {answers[-1].str()}")
    used = (sum(cpu_seconds(brokers.pid(broker_id)) for broker_id in brokers.ids) - used) / len(latencies)
    latencies = latencies[len(latencies) // 5 :]  # The first ones warm everything up.
    cuts = statistics.quantiles(latencies, n=100)
    say(
        name,
        "one at a time, 100 B",
        f"p50 {cuts[49]:6.2f} ms  p99 {cuts[98]:6.2f} ms  ({len(latencies):,} records), CPU of all brokers"
        f" {used * 1e6:,.0f} us a record",
    )


def failover(name: str, brokers: Brokers, arguments: argparse.Namespace) -> None:
    """Until every partition that the dead broker led has acknowledged a record that was sent after its death."""
    topic = "failover"
    with View(brokers.bootstrap) as view, Prober(brokers.bootstrap, create(view, topic), PARTITIONS) as prober:
        for who in ("leader", "controller"):
            pauses: list[float] = []
            for _ in range(max(arguments.rounds, 3)):
                view.until_in_sync(topic)
                victim = brokers.controller() if who == "controller" else other_leader(view, brokers)
                led = [p for p, leader in enumerate(view.leaders) if leader == victim]
                prober.mark(led or range(PARTITIONS))
                brokers.kill(victim)
                seconds = prober.wait()
                if seconds is None:
                    raise Unmeasured(f"partitions of broker {victim} acknowledge nothing any more")
                pauses.append(seconds)
                brokers.restart(victim)
            say(
                name,
                f"SIGKILL of {'a leader' if who == 'leader' else 'the controller'}, next acknowledgement",
                f"median {statistics.median(pauses):6.2f} s  max {max(pauses):6.2f} s  ({len(pauses)} times)",
            )


def other_leader(view: View, brokers: Brokers) -> int:
    """A broker that leads, not the controller if that can be."""
    controller = brokers.controller()
    return next((leader for leader in view.leaders if leader != controller), view.leaders[0])


def stop(name: str, brokers: Brokers, arguments: argparse.Namespace) -> None:
    topic = "stop"
    with View(brokers.bootstrap) as view, Prober(brokers.bootstrap, create(view, topic), PARTITIONS) as prober:
        pauses, failed = [], 0
        for _ in range(max(arguments.rounds, 3)):
            view.until_in_sync(topic)
            victim = other_leader(view, brokers)
            led = [p for p, leader in enumerate(view.leaders) if leader == victim]
            prober.forget()
            brokers.stop_one(victim)
            prober.mark(range(PARTITIONS))
            if prober.wait() is None:
                raise Unmeasured(f"after the clean stop of broker {victim} something was not acknowledged any more")
            pauses.append(max(prober.longest[partition] for partition in led))
            failed += prober.failed
            brokers.restart(victim)
        say(
            name,
            "clean stop of a leader, longest pause",
            f"median {statistics.median(pauses) * 1000:6.0f} ms  max {max(pauses) * 1000:6.0f} ms;"
            f" {failed} deliveries failed",
        )


def many(name: str, brokers: Brokers, arguments: argparse.Namespace) -> None:
    topic = "many"
    with View(brokers.bootstrap) as view:
        seconds = view.create(topic, MANY)
        say(name, f"{MANY:,} partitions x {BROKERS} created", f"{seconds:6.2f} s")
        time.sleep(5)  # What the creation left to do is not what idling costs.
        before = {broker: cpu_seconds(brokers.pid(broker)) for broker in brokers.ids}
        time.sleep(arguments.idle_seconds)
        idle = [
            (cpu_seconds(brokers.pid(broker)) - before[broker]) / arguments.idle_seconds * 100 for broker in brokers.ids
        ]
        say(name, "idle CPU a broker", "  ".join(f"{share:5.2f}" for share in idle) + "  % of a core")
        memory = [resident_mib(brokers.pid(broker)) for broker in brokers.ids]
        say(name, "memory a broker", "  ".join(f"{mib:5.0f}" for mib in memory) + "  MiB")
        view.look(topic)
        victim = other_leader(view, brokers)
        count = view.leaders.count(victim)
        started = time.monotonic()
        brokers.kill(victim)

        def elsewhere() -> bool:
            view.look(topic)
            return victim not in view.leaders and -1 not in view.leaders

        until(elsewhere, "all partitions are led again", AGAIN_S_MAX, 0.02)
        say(name, f"a dead broker's {count} leaders elsewhere", f"{time.monotonic() - started:6.2f} s")
        started = time.monotonic()
        brokers.restart(victim)
        view.until_in_sync(topic)
        say(name, "that broker back, all replicas in sync", f"{time.monotonic() - started:6.2f} s")


def start(arguments: argparse.Namespace) -> None:
    for processes in (False, True):
        seconds = []
        for _ in range(max(arguments.rounds, 5)):
            began = time.monotonic()
            with Cluster(brokers=BROKERS, processes=processes):
                seconds.append(time.monotonic() - began)
        where = "three processes" if processes else "one process"
        say(
            "tidelog",
            f"testing.Cluster(brokers=3) ready, {where}",
            f"median {statistics.median(seconds):6.2f} s  max {max(seconds):6.2f} s",
        )


def create(view: View, topic: str) -> str:
    view.create(topic, PARTITIONS)
    return topic


def say(name: str, what: str, figure: str) -> None:
    print(f"{name:13} {what:52} {figure}", flush=True)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


FIGURES: Final[dict[str, Callable[[str, Brokers, argparse.Namespace], None]]] = {
    "throughput": throughput,
    "throughput-c": throughput_c,
    "one-at-a-time": one_at_a_time,
    "failover": failover,
    "stop": stop,
    "many": many,
}


@contextlib.contextmanager
def unless_unmeasured(name: str, figure: str) -> Iterator[None]:
    """Says what kept a figure from being measured, and goes on."""
    try:
        yield
    except (Unmeasured, TimeoutError) as error:
        say(name, f"{figure}: NOT MEASURED", str(error))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kafka", type=Path, metavar="DIR", help="measure Apache Kafka from DIR as well")
    parser.add_argument("--only", nargs="+", choices=[*FIGURES, "start"], help="these figures (all)")
    parser.add_argument("--rounds", type=int, default=3, help="of each measurement (%(default)s)")
    parser.add_argument("--seconds", type=float, default=5, help="of load in each (%(default)s)")
    parser.add_argument("--idle-seconds", type=float, default=20, help="over which idle CPU is taken (%(default)s)")
    parser.add_argument("--skip-tidelog", action="store_true", help="measure the peer alone")
    arguments = parser.parse_args()
    # Told to end, it ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # tidelog's supervisor is a thread of this process, beside the load: it must not wait long for its turn.
    sys.setswitchinterval(0.0005)
    wanted = arguments.only or [*FIGURES, "start"]
    for figure, measure in FIGURES.items():
        if figure in wanted:
            # A cluster of its own for each figure: what one leaves behind does not slow the next.
            if not arguments.skip_tidelog:
                with unless_unmeasured("tidelog", figure), tidelog() as brokers:
                    measure("tidelog", brokers, arguments)
            if arguments.kafka is not None:
                with unless_unmeasured("Apache Kafka", figure), kafka(arguments.kafka) as brokers:
                    measure("Apache Kafka", brokers, arguments)
    if "start" in wanted:
        start(arguments)


if __name__ == "__main__":
    main()
