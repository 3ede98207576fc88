"""What is made larger, piece by piece, and what each size costs a broker."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from bench import produce
from bench.growth import clients
from bench.growth.requests import asking, cpu_us, create, decoded, drive, metadata
from bench.load import mkreq
from bench.started import Started

from tidelog.protocol.apis import ApiKey

FLAT: Final = 0.0
IN_PROPORTION: Final = 1.0
IDLE_S: Final = 3.0
"""Over which the CPU time of a broker that is asked nothing is measured."""
SENDING: Final = produce.Shape("100 B, 16 connections, 1 in flight", 16, 1, "s100x1", "req_s", 0)
"""What is sent while something else is large."""
SETTINGS: Final = {
    "log.retention.check.interval.ms": 3_600_000,
    "group.initial.rebalance.delay.ms": 0,
    "auto.create.topics.enable": "false",
}


class Figure(NamedTuple):
    """One curve of a piece."""

    name: str
    unit: str
    grows: float
    """The power of the size that is its cause: FLAT for what should cost the same, IN_PROPORTION for what is made of
    as many parts."""


class Piece(NamedTuple):
    """What is made larger."""

    of: str
    """The word for its sizes."""
    sizes: tuple[int, ...]
    quick: tuple[int, ...]
    figures: Mapping[str, Figure]
    measure: Callable[[int, Path], dict[str, float]]
    """A size and a folder for this run -> [key of a figure] -> value. What cannot be had is missing."""


class Load:
    """`lg` and its requests; nothing where there is no gcc."""

    def __init__(self) -> None:
        self.work: Path | None = None

    def build(self, work: Path) -> None:
        """Compiles it into a folder."""
        if shutil.which("gcc"):
            produce.build(work)
            self.work = work

    def run(self, broker: Started, shape: produce.Shape = SENDING) -> dict[str, float]:
        """Its figures for a second; none where it cannot be had."""
        if self.work is None:
            return {}
        return produce.load(self.work, produce.Server(broker.port, broker.pids[0]), shape, 1.0)


LOAD: Final = Load()


def sending(broker: Started) -> dict[str, float]:
    """CPU time of a produce request of 100 B to the topic `t`."""
    found = LOAD.run(broker)
    return {"produce": found["cpu_us"]} if found else {}


def idle(broker: Started) -> float:
    """Thousandths of a core that the brokers take while nothing is asked of them."""
    before = broker.cpu_s()
    time.sleep(IDLE_S)
    return (broker.cpu_s() - before) / IDLE_S * 1000


# Partitions, and topics.


def _many_partitions(sizes: dict[str, int], work: Path) -> dict[str, float]:
    count = sum(sizes.values())
    found: dict[str, float] = {}
    with Started(work / "data", settings=SETTINGS) as broker:
        create(broker, {"t": 16})
        before = broker.cpu_s()
        create(broker, sizes)
        found["create"] = (broker.cpu_s() - before) / count * 1e6
        broker.settle()
        found["memory"] = broker.memory_mib()
        found["metadata"] = cpu_us(broker, [[metadata(None)]], in_flight=1)
        found["one"] = cpu_us(broker, [[metadata(["t"])]], in_flight=1)
        found |= sending(broker)
        found["idle"] = idle(broker)
    with Started(work / "data", settings=SETTINGS) as broker:
        found["start"] = broker.start_cpu_s
    return found


def partitions(size: int, work: Path) -> dict[str, float]:
    per_topic = min(size, 1000)
    return _many_partitions({f"p{index}": per_topic for index in range(size // per_topic)}, work)


def topics(size: int, work: Path) -> dict[str, float]:
    return _many_partitions({f"p{index}": 1 for index in range(size)}, work)


_OF_PARTITIONS: Final = {
    "create": Figure("created: CPU for each", "us", FLAT),
    "memory": Figure("memory", "MiB", IN_PROPORTION),
    "metadata": Figure("Metadata of all: CPU", "us", IN_PROPORTION),
    "one": Figure("Metadata of one topic: CPU", "us", FLAT),
    "produce": Figure("a produce request: CPU", "us", FLAT),
    "idle": Figure("idle", "thousandths of a core", IN_PROPORTION),
    "start": Figure("start after a clean stop: CPU", "s", IN_PROPORTION),
}


# Connections.


def connections(size: int, work: Path) -> dict[str, float]:
    found: dict[str, float] = {}
    with Started(work / "data", settings=SETTINGS) as broker:
        create(broker, {"t": 16})
        rest, before = broker.memory_mib(), broker.cpu_s()
        with clients.crowd(broker.port, size):
            found["connect"] = (broker.cpu_s() - before) / size * 1e6
            found["memory"] = broker.memory_mib() - rest
            found |= sending(broker)
            found["idle"] = idle(broker)
        # lg stops at errors: one for each connection that the broker has no place for.
        active = LOAD.run(broker, produce.Shape(f"{size} connections", size, 1, "s100x1", "req_s", 0))
        if active:
            found["active"], found["late"] = active["cpu_us"], active["p99_us"] / 1000
    return found


_OF_CONNECTIONS: Final = {
    "connect": Figure("connected and asked once: CPU for each", "us", FLAT),
    "memory": Figure("memory above rest", "MiB", IN_PROPORTION),
    "produce": Figure("a produce request by 16 others: CPU", "us", FLAT),
    "active": Figure("a produce request, each connection with one in flight: CPU", "us", FLAT),
    "late": Figure("its p99", "ms", IN_PROPORTION),
    "idle": Figure("idle", "thousandths of a core", IN_PROPORTION),
}


# Groups.


def groups(size: int, work: Path) -> dict[str, float]:
    found: dict[str, float] = {}
    with Started(work / "data", settings=SETTINGS) as broker:
        create(broker, {"t": 16})
        rest = clients.offsets_topic(broker)
        before = broker.cpu_s()
        members = clients.join(broker, [f"g{index}" for index in range(size)])
        found["join"] = (broker.cpu_s() - before) / size * 1e6
        found["commit"] = cpu_us(broker, clients.spread(clients.commits(members)), count=max(size, 5_000))
        broker.settle()
        found["memory"] = broker.memory_mib() - rest
        found["heartbeat"] = cpu_us(broker, clients.spread(clients.heartbeats(members)))
        found["list"] = cpu_us(broker, [[clients.LIST]], in_flight=1)
        found["one"] = cpu_us(broker, [[clients.describe("g0")]], in_flight=1)
        found |= sending(broker)
    with Started(work / "data", settings=SETTINGS) as broker:
        clients.until_loaded(broker, "g0")
        found["start"] = broker.cpu_s()
    return found


_OF_GROUPS: Final = {
    "join": Figure("a group of one member, joined and synchronized: CPU for each", "us", FLAT),
    "commit": Figure("a commit: CPU", "us", FLAT),
    "heartbeat": Figure("a heartbeat: CPU", "us", FLAT),
    "list": Figure("ListGroups: CPU", "us", IN_PROPORTION),
    "one": Figure("DescribeGroups of one: CPU", "us", FLAT),
    "memory": Figure("memory above rest", "MiB", IN_PROPORTION),
    "produce": Figure("a produce request: CPU", "us", FLAT),
    "start": Figure("start and load: CPU", "s", IN_PROPORTION),
}


# Segments of a log.


def segments(size: int, work: Path) -> dict[str, float]:
    found: dict[str, float] = {}
    requests = clients.batches_of_100(size)
    # A segment ends before the batch that would make it larger.
    small = {"segment.bytes": str(len(mkreq.batch(1, 100)))}
    with Started(work / "data", settings=SETTINGS) as broker:
        create(broker, {"t": 1}, small)
        before = broker.cpu_s()
        drive(broker.port, [requests], in_flight=8, count=size)
        found["roll"] = (broker.cpu_s() - before) / size * 1e6
        with asking(broker) as ask:
            ask(clients.keep_large_segments("t"))
        broker.settle()
        # The segment of many batches that is active now is what is produced to from here on.
        found["produce"] = cpu_us(broker, [requests[-1:]], in_flight=1)
        found["fetch"] = cpu_us(broker, clients.spread(clients.fetches("t", size)))
        found["by time"] = cpu_us(broker, clients.spread(clients.looks_by_time("t", size)))
        found["memory"] = broker.memory_mib()
    with Started(work / "data", settings=SETTINGS) as broker:
        found["start"] = broker.start_cpu_s
    return found


_OF_SEGMENTS: Final = {
    "roll": Figure("a batch that begins a segment: CPU", "us", FLAT),
    "produce": Figure("a produce request into the last one: CPU", "us", FLAT),
    "fetch": Figure("a fetch at any offset: CPU", "us", FLAT),
    "by time": Figure("ListOffsets by a time: CPU", "us", FLAT),
    "memory": Figure("memory", "MiB", IN_PROPORTION),
    "start": Figure("start after a clean stop: CPU", "s", IN_PROPORTION),
}


# Brokers.


def brokers(size: int, work: Path) -> dict[str, float]:
    found: dict[str, float] = {}
    factor = min(3, size)
    with Started(work / "data", "--brokers", str(size), settings=SETTINGS) as cluster:
        found["start"], found["ready"] = cluster.start_cpu_s, cluster.ready_s
        before = cluster.cpu_s()
        create(cluster, {"t": 16})
        create(cluster, {f"p{index}": 100 for index in range(size)}, factor=factor)
        clients.until_led(cluster, {f"p{index}": 100 for index in range(size)})
        found["create"] = (cluster.cpu_s() - before) / (size * 100 * factor) * 1e6
        cluster.settle()
        found["memory"] = cluster.memory_mib()
        found["idle"] = idle(cluster)
        found["metadata"] = cpu_us(cluster, [[metadata(["t"])]], in_flight=1)
        _, (answer,) = drive(cluster.port, [[metadata(["t"])]], in_flight=1, count=1)
        led = {
            each.partition_index: each.leader_id for each in decoded(ApiKey.METADATA, 9, answer).topics[0].partitions
        }
        found["produce"] = clients.produce_to_leaders(cluster, "t", led)
    return found


_OF_BROKERS: Final = {
    "start": Figure("start: CPU of all", "s", IN_PROPORTION),
    "ready": Figure("start: until all are ready", "s", IN_PROPORTION),
    "create": Figure("created, three replicas at most: CPU of all for each replica", "us", FLAT),
    "memory": Figure("memory of all", "MiB", IN_PROPORTION),
    "idle": Figure("idle, 100 partitions each: all", "thousandths of a core", IN_PROPORTION),
    "metadata": Figure("Metadata of one topic: CPU", "us", FLAT),
    "produce": Figure("a produce request to its leader, one replica: CPU of all", "us", FLAT),
}

PIECES: Final = {
    "partitions": Piece("partitions", (10, 100, 1_000, 10_000, 50_000), (10, 100), _OF_PARTITIONS, partitions),
    "connections": Piece("connections", (1, 10, 100, 1_000, 10_000), (1, 100), _OF_CONNECTIONS, connections),
    "topics": Piece("topics", (10, 100, 1_000, 10_000), (10, 100), _OF_PARTITIONS, topics),
    "groups": Piece("groups", (1, 10, 100, 1_000, 10_000), (1, 100), _OF_GROUPS, groups),
    "segments": Piece("segments", (1, 10, 100, 1_000, 10_000), (1, 100), _OF_SEGMENTS, segments),
    "brokers": Piece("brokers", (1, 2, 3, 5, 7), (1, 2), _OF_BROKERS, brokers),
}
