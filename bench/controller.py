"""What 10,000 partitions x 3 cost a controller, and what the death of that controller costs the cluster.

    python -m bench.controller [--zookeeper] [--kafka DIR] [--shape one|many ...] [--partitions N]

Three brokers each: tidelog on its embedded store (`tidelog start --brokers 3`); with --zookeeper tidelog on Debian's
ZooKeeper; with --kafka Apache Kafka 3.9.1 in ZooKeeper mode, on such a ZooKeeper too. DIR is a folder in which
`KAFKA_VERSION=3.9.1 bench/peers/kafka.sh jars DIR` has put it. They take turns, one cluster at a time:

    created    one CreateTopics request: its answer; all states written; every broker's Metadata names a leader and
               three replicas in sync for all partitions; a record acknowledged by 100 of them, acks=all, for which
               every broker must have made its logs
    resigned   /controller is deleted: another one elected; the next CreateTopics answered, for which it must have
               loaded everything
    deleted    one DeleteTopics request: its answer; gone from the store, and from every Metadata
    killed     SIGKILL of the controller: another one elected; then all states written; the survivors' Metadata names
               live leaders everywhere; a record acknowledged by each of 100 partitions

What a kill costs depends on who notices: the supervisor sees its child end; on ZooKeeper the session has to expire
(zookeeper.session.timeout.ms, 18 s by default). So what follows is counted from the election. When states were written
the store itself tells, by their times. The shape `one` is a topic of N partitions, `many` are N/10 topics of 10.

`slowest answer` is that of ApiVersions, asked of every broker 50 times a second by a process beside: what a client may
have to wait for a broker's event loop. With so many processes on two cores some tens of milliseconds are the machine's.
`CPU` is what the brokers took together, which tells more than seconds on a machine that does other things as well.
A broker whose session was lost on the way, so that it had to register anew, is named: that is a failure.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from bench.peers.kafka import until
from bench.peers.zookeeper import TIDELOG, Brokers, OnZooKeeper, Supervised, ZooKeeper, kafka
from bench.replication import cpu_seconds, resident_mib, say
from bench.replication_load import Unmeasured, producer
from bench.scratch import scratch_folder
from confluent_kafka import KafkaError
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import ZnodeStat

from tidelog.client.addresses import parse_bootstrap
from tidelog.client.blocking import BlockingConnection
from tidelog.client.errors import ClientError
from tidelog.metadata.znodes import (
    CONTROLLER,
    DELETE_TOPICS,
    TOPICS,
    broker_path,
    decode_controller,
    decode_state,
    state_path,
)
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import BrokerId
from tidelog.protocol import messages

PARTITIONS: Final = 10_000
REPLICATION_FACTOR: Final = 3
SAMPLE: Final = 100
"""Partitions that are produced to after a failover."""
WAIT_S_MAX: Final = 600.0
"""Apache Kafka writes its states one by one."""
LOOK_S: Final = 0.1
"""Between two questions for all metadata, which cost the brokers something too."""
PING_S: Final = 0.02
SETTLING_S: Final = 5.0
"""After a creation: what it left to do is not what comes next costs."""
SETTINGS: Final = {"auto.create.topics.enable": "false", "auto.leader.rebalance.enable": "false"}


class Store:
    """A client of the metadata store."""

    def __init__(self, hosts: str) -> None:
        self._client = KazooClient(hosts, timeout=30.0)
        self._client.start(timeout=WAIT_S_MAX)

    def close(self) -> None:
        self._client.stop()
        self._client.close()

    def get(self, paths: Iterable[str]) -> list[tuple[bytes, ZnodeStat] | None]:
        """Data and stat of each; None for what is not there."""
        found: list[tuple[bytes, ZnodeStat] | None] = []
        for outcome in [self._client.get_async(path) for path in paths]:
            try:
                found.append(outcome.get(timeout=WAIT_S_MAX))
            except NoNodeError:
                found.append(None)
        return found

    def children(self, path: str) -> list[str]:
        names: list[str] = self._client.get_children(path)
        return names

    def delete(self, path: str) -> None:
        self._client.delete(path)

    def controller(self) -> tuple[int, float]:
        """Who is the controller, and since when (seconds since 1970); -1 for nobody."""
        (found,) = self.get([CONTROLLER])
        return (-1, 0.0) if found is None else (decode_controller(found[0]), found[1].ctime / 1000)


class Pinger:
    """A process that asks every broker again and again, and knows how long the slowest answer took."""

    def __init__(self, addresses: Iterable[str]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_ping, args=(theirs, list(addresses)), daemon=True)
        self._process.start()

    def slowest_ms(self) -> float:
        """Since it was asked last."""
        self._pipe.send(None)
        slowest: float = self._pipe.recv()
        return slowest * 1000

    def close(self) -> None:
        self._process.kill()
        self._process.join()


def _ping(pipe: Connection, addresses: list[str]) -> None:
    connections = [BlockingConnection(parse_bootstrap(address)[0]) for address in addresses]
    slowest = 0.0
    while True:
        if pipe.poll(PING_S):
            pipe.recv()
            pipe.send(slowest)
            slowest = 0.0
        for connection in list(connections):
            started = time.monotonic()
            try:
                connection.request(
                    messages.ApiVersionsRequest(client_software_name="bench", client_software_version="1"),
                    timeout_s=WAIT_S_MAX,
                )
            except ClientError:
                connections.remove(connection)  # The one that was killed.
            else:
                slowest = max(slowest, time.monotonic() - started)


class Cluster:
    """A running cluster as a client sees it, and as its store does."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self.store = Store(brokers.store)
        self.live = {id: parse_bootstrap(address)[0] for id, address in brokers.addresses.items()}
        self.connections: dict[int, BlockingConnection] = {}
        self.pinger = Pinger(brokers.addresses.values())
        self.sessions: dict[int, int] = {}
        """czxid of every registration."""
        self._cpu: dict[int, float] = {}

    def __enter__(self) -> Cluster:
        until(lambda: len(self._registrations()) == REPLICATION_FACTOR, "all brokers are registered", WAIT_S_MAX)
        until(lambda: self.store.controller()[0] >= 0, "there is a controller", WAIT_S_MAX)
        self.sessions = self._registrations()
        return self

    def __exit__(self, *_: object) -> None:
        self.pinger.close()
        self.store.close()
        for connection in self.connections.values():
            connection.close()

    def _registrations(self) -> dict[int, int]:
        ids = list(self.live)
        found = self.store.get([broker_path(BrokerId(id)) for id in ids])
        return {id: node[1].czxid for id, node in zip(ids, found, strict=True) if node is not None}

    def lost_sessions(self) -> list[int]:
        """Brokers that live and are not registered as they were at first."""
        now = self._registrations()
        return [id for id in self.live if now.get(id) != self.sessions[id]]

    def kill(self, broker_id: int) -> None:
        del self.live[broker_id]
        os.kill(self._brokers.pid(broker_id), signal.SIGKILL)

    def begin(self) -> None:
        """CPU time and slowest answer count from now on."""
        self.pinger.slowest_ms()
        self._cpu = {id: cpu_seconds(self._brokers.pid(id)) for id in self.live}

    def cpu_s(self) -> float:
        """CPU seconds that the live brokers took since `begin`."""
        return sum(cpu_seconds(self._brokers.pid(id)) - self._cpu[id] for id in self.live)

    def memory_mib(self) -> list[float]:
        return [resident_mib(self._brokers.pid(id)) for id in self.live]

    def connection(self, broker_id: int) -> BlockingConnection:
        known = self.connections.get(broker_id)
        if known is None or known.closed:
            known = self.connections[broker_id] = BlockingConnection(self.live[broker_id], timeout_s=WAIT_S_MAX)
        return known

    def ask_controller(self, message: Any) -> Any:
        """Asks it, and whoever follows it, until one answers that it is the controller; errors of others are raised."""
        deadline = time.monotonic() + WAIT_S_MAX
        while time.monotonic() < deadline:
            controller = self.store.controller()[0]
            if controller in self.live:
                with contextlib.suppress(ClientError):
                    response = self.connection(controller).request(message, timeout_s=WAIT_S_MAX)
                    outcomes = getattr(response, "topics", None) or response.responses
                    codes = {outcome.error_code for outcome in outcomes}
                    if not codes & {ErrorCode.NOT_CONTROLLER}:
                        if codes - {ErrorCode.NONE}:
                            raise Unmeasured(f"{type(message).__name__}: errors {sorted(codes)}")
                        return response
            time.sleep(0.02)
        raise Unmeasured("no controller answers")

    def partitions(self, broker_id: int) -> dict[tuple[str, int], Any]:
        """All partitions, as a broker's Metadata tells them."""
        answer = self.connection(broker_id).request(messages.MetadataRequest(topics=None), timeout_s=WAIT_S_MAX)
        return {
            (topic.name, partition.partition_index): partition
            for topic in answer.topics
            if topic.error_code == 0
            for partition in topic.partitions
        }

    def until_everywhere(self, holds: Callable[[dict[tuple[str, int], Any]], bool], what: str) -> None:
        """Waits until the Metadata of every live broker is as it should be."""
        for broker_id in self.live:
            until(partial(self._holds, holds, broker_id), f"broker {broker_id}: {what}", WAIT_S_MAX, LOOK_S)

    def _holds(self, holds: Callable[[dict[tuple[str, int], Any]], bool], broker_id: int) -> bool:
        return holds(self.partitions(broker_id))

    def states(self, topics: Sequence[messages.CreateTopicsRequest.CreatableTopic]) -> list[tuple[bytes, ZnodeStat]]:
        """All states of these topics. Unmeasured: some are missing."""
        paths = [state_path(topic.name, index) for topic in topics for index in range(topic.num_partitions)]
        found = [node for node in self.store.get(paths) if node is not None]
        if len(found) != len(paths):
            raise Unmeasured(f"{len(paths) - len(found)} states are missing in the store")
        return found


# Figures


def created(name: str, cluster: Cluster, topics: Sequence[Any]) -> None:
    wanted = {(topic.name, index) for topic in topics for index in range(topic.num_partitions)}
    cluster.begin()
    started, wall = time.monotonic(), time.time()
    cluster.ask_controller(messages.CreateTopicsRequest(topics=list(topics), timeout_ms=int(WAIT_S_MAX * 1000)))
    answered = time.monotonic() - started

    def whole(partitions: dict[tuple[str, int], Any]) -> bool:
        return wanted <= partitions.keys() and all(
            partitions[each].leader_id >= 0 and len(partitions[each].isr_nodes) == REPLICATION_FACTOR for each in wanted
        )

    cluster.until_everywhere(whole, "all partitions are led and in sync")
    known = time.monotonic() - started
    acknowledge(cluster, sample_of(wanted))
    acknowledged = time.monotonic() - started
    written = max(stat.mtime for _, stat in cluster.states(topics)) / 1000 - wall
    say(
        name,
        "created",
        f"answered {answered:.2f} s, states written {written:.2f} s, known everywhere {known:.2f} s, "
        f"{SAMPLE} records acknowledged {acknowledged:.2f} s",
    )
    tell_slowest(name, cluster)
    time.sleep(SETTLING_S)
    say(name, "memory a broker", "  ".join(f"{mib:5.0f}" for mib in cluster.memory_mib()) + "  MiB")


def resigned(name: str, cluster: Cluster, topics: Sequence[Any]) -> None:
    cluster.begin()
    former = cluster.store.controller()
    started, wall = time.monotonic(), time.time()
    cluster.store.delete(CONTROLLER)
    until(lambda: cluster.store.controller() not in (former, (-1, 0.0)), "another controller is elected", WAIT_S_MAX)
    cluster.ask_controller(messages.CreateTopicsRequest(topics=[new_topic("next", 1)], timeout_ms=60_000))
    seconds = time.monotonic() - started
    elected = cluster.store.controller()[1] - wall
    say(name, "controller resigned", f"another elected {elected:.2f} s, next creation answered {seconds:.2f} s")
    tell_slowest(name, cluster)
    cluster.ask_controller(
        messages.DeleteTopicsRequest(
            topics=[messages.DeleteTopicsRequest.DeleteTopicState(name="next")], topic_names=["next"], timeout_ms=60_000
        )
    )


def killed(name: str, cluster: Cluster, topics: Sequence[Any]) -> None:
    victim = cluster.store.controller()[0]
    wanted = {(topic.name, index) for topic in topics for index in range(topic.num_partitions)}
    sample = sample_of(wanted)
    cluster.begin()
    led = sum(partition.leader_id == victim for partition in cluster.partitions(victim).values())
    started, wall = time.monotonic(), time.time()
    cluster.kill(victim)
    until(lambda: cluster.store.controller()[0] not in (victim, -1), "another controller is elected", WAIT_S_MAX)
    elected = cluster.store.controller()[1] - wall

    def whole(partitions: dict[tuple[str, int], Any]) -> bool:
        return wanted <= partitions.keys() and all(partitions[each].leader_id in cluster.live for each in wanted)

    cluster.until_everywhere(whole, "all partitions are led")
    known = time.monotonic() - started
    acknowledge(cluster, sample)
    acknowledged = time.monotonic() - started
    states = cluster.states(topics)
    for data, _ in states:
        state = decode_state("", 0, data)
        if state.leader not in cluster.live or victim in state.isr:
            raise Unmeasured(f"a state in the store still has the dead broker: {data!r}")
    written = max(stat.mtime for _, stat in states) / 1000 - wall
    say(
        name,
        f"controller killed, which led {led:,}",
        f"another elected {elected:.2f} s; from then on states written {written - elected:.2f} s, known everywhere "
        f"{known - elected:.2f} s, {len(sample)} records acknowledged {acknowledged - elected:.2f} s",
    )
    tell_slowest(name, cluster)


def sample_of(partitions: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Some of them, always the same ones."""
    known = sorted(partitions)
    return random.Random(1).sample(known, min(SAMPLE, len(known)))


def acknowledge(cluster: Cluster, sample: Sequence[tuple[str, int]]) -> None:
    """Returns when each of these partitions has acknowledged a record."""
    client = producer(
        ",".join(str(address) for address in cluster.live.values()),
        {"linger.ms": 0, "retry.backoff.ms": 20, "topic.metadata.refresh.fast.interval.ms": 20},
    )
    failed: list[str] = []

    def delivered(error: KafkaError | None, _: Any) -> None:
        if error is not None:
            failed.append(error.str())

    for topic, partition in sample:
        client.produce(topic, b"after", partition=partition, on_delivery=delivered)
    if client.flush(WAIT_S_MAX) or failed:
        raise Unmeasured(f"records were not acknowledged: {failed[:1]}")


def deleted(name: str, cluster: Cluster, topics: Sequence[Any]) -> None:
    cluster.begin()
    names = {topic.name for topic in topics}
    started = time.monotonic()
    states = [messages.DeleteTopicsRequest.DeleteTopicState(name=topic.name) for topic in topics]
    cluster.ask_controller(
        messages.DeleteTopicsRequest(topics=states, topic_names=sorted(names), timeout_ms=int(WAIT_S_MAX * 1000))
    )
    answered = time.monotonic() - started
    until(
        lambda: not names.intersection(cluster.store.children(DELETE_TOPICS) + cluster.store.children(TOPICS)),
        "the topics are gone from the store",
        WAIT_S_MAX,
        LOOK_S,
    )
    gone = time.monotonic() - started
    cluster.until_everywhere(lambda partitions: not partitions, "no partition is known")
    unknown = time.monotonic() - started
    say(
        name,
        "deleted",
        f"answered {answered:.2f} s, gone from the store {gone:.2f} s, unknown everywhere {unknown:.2f} s",
    )
    tell_slowest(name, cluster)


def tell_slowest(name: str, cluster: Cluster) -> None:
    lost = cluster.lost_sessions()
    complaint = f"  SESSIONS LOST: brokers {lost}" if lost else ""
    slowest, cpu = cluster.pinger.slowest_ms(), cluster.cpu_s()
    say(name, "    meanwhile", f"slowest answer {slowest:.0f} ms, CPU {cpu:.2f} s{complaint}")


def new_topic(name: str, partitions: int) -> messages.CreateTopicsRequest.CreatableTopic:
    return messages.CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=REPLICATION_FACTOR
    )


def topics_of(shape: str, partitions: int) -> list[messages.CreateTopicsRequest.CreatableTopic]:
    if shape == "one":
        return [new_topic("large", partitions)]
    return [new_topic(f"small-{index}", 10) for index in range(partitions // 10)]


# Sides


@contextlib.contextmanager
def embedded() -> Iterator[Brokers]:
    with scratch_folder() as data, Supervised(data, SETTINGS) as brokers:
        yield brokers


@contextlib.contextmanager
def on_zookeeper(command: Sequence[str]) -> Iterator[Brokers]:
    with (
        scratch_folder() as data,
        scratch_folder() as store,
        ZooKeeper(store) as hosts,
        OnZooKeeper(command, data, hosts, SETTINGS) as brokers,
    ):
        yield brokers


def measure(name: str, start: Callable[[], contextlib.AbstractContextManager[Brokers]], topics: Sequence[Any]) -> None:
    try:
        with start() as brokers, Cluster(brokers) as cluster:
            created(name, cluster, topics)
            resigned(name, cluster, topics)
            killed(name, cluster, topics)
        # A dead broker would keep the deletion waiting.
        with start() as brokers, Cluster(brokers) as cluster:
            created(name, cluster, topics)
            deleted(name, cluster, topics)
    except (Unmeasured, TimeoutError, ClientError) as error:
        say(name, "NOT MEASURED from here on", str(error))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zookeeper", action="store_true", help="measure tidelog on Debian's ZooKeeper too")
    parser.add_argument("--kafka", type=Path, metavar="DIR", help="measure Apache Kafka 3.9 from DIR as well")
    parser.add_argument("--shape", nargs="+", choices=("one", "many"), default=("one", "many"))
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help="in all (%(default)s)")
    parser.add_argument("--skip-embedded", action="store_true", help="measure the others alone")
    arguments = parser.parse_args()
    # Told to end, it ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    for shape in arguments.shape:
        topics = topics_of(shape, arguments.partitions)
        print(f"{len(topics):,} topics, {arguments.partitions:,} partitions x {REPLICATION_FACTOR}")
        if not arguments.skip_embedded:
            measure("tidelog", embedded, topics)
        if arguments.zookeeper:
            measure("tidelog on ZK", partial(on_zookeeper, TIDELOG), topics)
        if arguments.kafka is not None:
            measure("Kafka 3.9", partial(on_zookeeper, kafka(arguments.kafka)), topics)


if __name__ == "__main__":
    main()
