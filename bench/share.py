"""Sixteen members of a share group on one partition, each record acknowledged by itself, beside Apache Kafka.

    python -m bench.share [--kafka DIR] [--rounds N] [--seconds S] [--rate N]

One broker process, one partition, records of 100 B. Every member fetches up to 100 records, and its next fetch takes
along what it says of each of them: it accepts them, and releases one in a hundred when it gets it for the first time.

    paced     --rate records a second come in: records acknowledged a second, milliseconds from a release to the
              record's delivery to the next member (p50 and p99), CPU seconds of the broker
    backlog   --rate times --seconds records are there already: how many a second the members get through

All members and the producer are one process, which speaks the protocol by itself and is the same for both brokers.
With --kafka, DIR is a folder in which `bench/peers/kafka.sh jars DIR` has put Apache Kafka; the two take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.peers.kafka import KafkaCluster
from bench.replication import cpu_seconds

from tidelog.client.addresses import Address
from tidelog.client.connection import Connection
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicId
from tidelog.protocol import messages
from tidelog.records.batch import build_batch
from tidelog.records.record import Record
from tidelog.testing.process import ProcessBroker

MEMBERS: Final = 16
RECORDS_MAX: Final = 100
"""Of a fetch: with 2,000 records in flight at most, all members have work."""
SIZE: Final = 100
BATCH: Final = 100
"""Records that the producer sends at once."""
RELEASED_EVERY: Final = 100
ACCEPT: Final = 1
RELEASE: Final = 2
WAIT_MS: Final = 100
GROUP_RESOURCE: Final = 32
PATIENCE_S: Final = 60.0


class Figures(NamedTuple):
    """Of one round."""

    paced: float
    """Records acknowledged a second."""
    releases_ms: list[float]
    """From each release to the next delivery."""
    cpu_s: float
    """Of the broker, over the paced part."""
    backlog: float
    """Records acknowledged a second."""
    backlog_cpu_s: float


class Work:
    """What all members do together."""

    def __init__(self) -> None:
        self.accepted = 0
        self.released: dict[int, float] = {}
        """[offset] -> when the release was sent."""
        self.releases_ms: list[float] = []
        self.progress = asyncio.Event()


class Member:
    """One consumer: a fetch that takes the last one's acknowledgements along, and so on."""

    def __init__(self, connection: Connection, group: str, name: str, topic_id: TopicId, work: Work) -> None:
        self._connection = connection
        self._group = group
        self._name = name
        self._topic_id = topic_id
        self._work = work
        self._epoch = 0

    async def join(self, topic: str) -> None:
        """Until the group has given it the partition."""
        request = messages.ShareGroupHeartbeatRequest
        epoch, deadline = 0, time.monotonic() + PATIENCE_S
        while True:
            topics = [topic] if epoch == 0 else None
            answer = await self._connection.request(
                request(group_id=self._group, member_id=self._name, member_epoch=epoch, subscribed_topic_names=topics)
            )
            if not answer.error_code:
                epoch = answer.member_epoch
                if answer.assignment is not None and answer.assignment.topic_partitions:
                    return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._name} has no partition: {answer}")
            await asyncio.sleep(0.2)

    async def run(self) -> None:
        told: list[tuple[int, int, list[int]]] = []
        while True:
            now = time.perf_counter()
            for first, last, kinds in told:
                for offset, kind in zip(range(first, last + 1), kinds, strict=True):
                    if kind == RELEASE:
                        self._work.released[offset] = now
            answer = await self._connection.request(self._fetch(told))
            data = self._check(answer)
            if told:
                self._work.accepted += sum(kinds.count(ACCEPT) for _, _, kinds in told)
                self._work.progress.set()
            told = [] if data is None else list(map(self._take, data.acquired_records))

    def _fetch(self, told: list[tuple[int, int, list[int]]]) -> messages.ShareFetchRequest:
        request = messages.ShareFetchRequest
        batches = [
            request.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=kinds)
            for first, last, kinds in told
        ]
        # Of a session that goes on only what has changed is named.
        named = [request.FetchPartition(partition_index=0, acknowledgement_batches=batches)]
        topics = [request.FetchTopic(topic_id=self._topic_id, partitions=named)] if told or self._epoch == 0 else []
        return request(
            group_id=self._group,
            member_id=self._name,
            share_session_epoch=self._epoch,
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=RECORDS_MAX,
            batch_size=RECORDS_MAX,
            topics=topics,
        )

    def _check(self, answer: Any) -> Any:
        """What the partition gave; None: nothing."""
        if answer.error_code:
            raise RuntimeError(f"{self._name}: {ErrorCode(answer.error_code).name}")
        self._epoch += 1
        for topic in answer.responses:
            for data in topic.partitions:
                for code in (data.error_code, data.acknowledge_error_code):
                    if code:
                        raise RuntimeError(f"{self._name}: {ErrorCode(code).name}")
                return data
        return None

    def _take(self, acquired: Any) -> tuple[int, int, list[int]]:
        first, last = acquired.first_offset, acquired.last_offset
        kinds = [ACCEPT] * (last - first + 1)
        if acquired.delivery_count == 1:
            for offset in range(first + -first % RELEASED_EVERY, last + 1, RELEASED_EVERY):
                kinds[offset - first] = RELEASE
        else:
            now = time.perf_counter()
            for offset in range(first, last + 1):
                sent = self._work.released.pop(offset, None)
                if sent is not None:
                    self._work.releases_ms.append((now - sent) * 1000)
        return first, last, kinds


class Bench:
    """One topic and its group, on one broker."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._address = Address(host, int(port))
        self._topic = topic
        self._group = f"{topic}-group"
        self._topic_id = TopicId(bytes(16))

    async def _connect(self) -> Connection:
        return await Connection.connect(self._address, client_id="bench", timeout_s=PATIENCE_S)

    async def prepare(self) -> None:
        """The topic, the group's setting, and a coordinator."""
        connection = await self._connect()
        create, configs = messages.CreateTopicsRequest, messages.IncrementalAlterConfigsRequest
        new = create.CreatableTopic(name=self._topic, num_partitions=1, replication_factor=1)
        answer = await connection.request(create(topics=[new], timeout_ms=30_000))
        _require(answer.topics[0].error_code)
        self._topic_id = TopicId(bytes(answer.topics[0].topic_id))
        entry = configs.AlterableConfig(name="share.auto.offset.reset", value="earliest")
        resource = configs.AlterConfigsResource(
            resource_type=GROUP_RESOURCE, resource_name=self._group, configs=[entry]
        )
        _require((await connection.request(configs(resources=[resource]))).responses[0].error_code)
        find = messages.FindCoordinatorRequest(key_type=0, coordinator_keys=[self._group])
        deadline = time.monotonic() + PATIENCE_S
        while (await connection.request(find)).coordinators[0].error_code:
            if time.monotonic() > deadline:
                raise TimeoutError("the group has no coordinator")
            await asyncio.sleep(0.05)
        connection.close()

    @contextlib.asynccontextmanager
    async def members(self, work: Work) -> AsyncIterator[list[asyncio.Task[None]]]:
        """Sixteen of them at work; one that fails is told by `_until`."""
        connections = [await self._connect() for _ in range(MEMBERS)]
        members = [
            Member(connection, self._group, f"{self._group}-{number}", self._topic_id, work)
            for number, connection in enumerate(connections)
        ]
        await asyncio.gather(*(member.join(self._topic) for member in members))
        tasks = [asyncio.create_task(member.run()) for member in members]
        try:
            yield tasks
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for connection in connections:
                connection.close()

    async def produce(self, count: int, rate: float | None) -> None:
        """`rate` records a second; None: as fast as they are acknowledged."""
        connection = await self._connect()
        request = messages.ProduceRequest
        started = time.monotonic()
        for sent in range(0, count, BATCH):
            if rate is not None:
                await asyncio.sleep(max(0.0, started + sent / rate - time.monotonic()))
            now_ms = int(time.time() * 1000)
            records = build_batch([Record(offset, now_ms, None, b"x" * SIZE) for offset in range(BATCH)])
            partition = request.PartitionProduceData(index=0, records=records)
            topic = request.TopicProduceData(name=self._topic, topic_id=self._topic_id, partition_data=[partition])
            answer = await connection.request(request(acks=-1, timeout_ms=30_000, topic_data=[topic]))
            _require(answer.responses[0].partition_responses[0].error_code)
        connection.close()


def _require(code: int) -> None:
    if code:
        raise RuntimeError(ErrorCode(code).name)


async def _until(work: Work, count: int, tasks: list[asyncio.Task[None]]) -> None:
    """Until so many records are accepted; fails with a task that does."""
    deadline = time.monotonic() + PATIENCE_S
    while work.accepted < count:
        for task in tasks:
            if task.done():
                task.result()
        if time.monotonic() > deadline:
            raise TimeoutError(f"{work.accepted} of {count} records are accepted")
        work.progress.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(work.progress.wait(), 1.0)


async def paced(bootstrap: str, pid: int, name: str, rate: int, seconds: float) -> tuple[float, list[float], float]:
    """Records acknowledged a second; milliseconds from releases to deliveries; the broker's CPU seconds."""
    bench, work = Bench(bootstrap, name), Work()
    await bench.prepare()
    count = int(rate * seconds) // BATCH * BATCH
    async with bench.members(work) as tasks:
        cpu_s, started = cpu_seconds(pid), time.monotonic()
        await bench.produce(count, rate)
        await _until(work, count, tasks)
        took_s = time.monotonic() - started
        return count / took_s, work.releases_ms, cpu_seconds(pid) - cpu_s


async def backlog(bootstrap: str, pid: int, name: str, rate: int, seconds: float) -> tuple[float, float]:
    """Records acknowledged a second; the broker's CPU seconds."""
    bench, work = Bench(bootstrap, name), Work()
    await bench.prepare()
    count = int(rate * seconds) // BATCH * BATCH
    await bench.produce(count, None)
    async with bench.members(work) as tasks:
        cpu_s, started = cpu_seconds(pid), time.monotonic()
        await _until(work, count, tasks)
        return count / (time.monotonic() - started), cpu_seconds(pid) - cpu_s


def measure(bootstrap: str, pid: int, name: str, options: argparse.Namespace) -> Figures:
    rate, releases_ms, cpu_s = asyncio.run(paced(bootstrap, pid, f"{name}-paced", options.rate, options.seconds))
    through, backlog_cpu_s = asyncio.run(backlog(bootstrap, pid, f"{name}-backlog", options.rate, options.seconds))
    return Figures(rate, releases_ms, cpu_s, through, backlog_cpu_s)


@contextlib.contextmanager
def tidelog() -> Iterator[tuple[str, int]]:
    with ProcessBroker() as broker:
        yield broker.bootstrap, broker.pid


@contextlib.contextmanager
def kafka(jars: Path) -> Iterator[tuple[str, int]]:
    folder = Path(tempfile.mkdtemp(prefix="tidelog-bench-kafka-"))
    try:
        with KafkaCluster(jars, folder, {}, nodes=1) as cluster:
            yield cluster.bootstrap, cluster.pid(1)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def say(name: str, rounds: list[Figures], options: argparse.Namespace) -> None:
    """The medians of a broker's rounds, but for releases: those of all rounds together."""
    releases_ms = sorted(each for figures in rounds for each in figures.releases_ms)

    def median(field: str) -> float:
        return float(statistics.median(getattr(figures, field) for figures in rounds))

    p50, p99 = (releases_ms[int(len(releases_ms) * part)] for part in (0.5, 0.99))
    print(f"{name}, {options.rate:,} records/s come in: {median('paced'):,.0f} records/s acknowledged")
    print(f"    delivered after a release: p50 {p50:.1f} ms, p99 {p99:.1f} ms, of {len(releases_ms)}")
    print(f"    broker: {median('cpu_s'):.2f} CPU s in {options.seconds:g} s")
    print(f"{name}, a backlog: {median('backlog'):,.0f} records/s acknowledged")
    print(
        f"    broker: {median('backlog_cpu_s'):.2f} CPU s for {options.rate * options.seconds:,.0f} records", flush=True
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kafka", type=Path, metavar="DIR", help="Apache Kafka's jars, to be measured beside us")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="of the paced part")
    parser.add_argument("--rate", type=int, default=10_000, help="records a second that come in")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        servers = {"tidelog": stack.enter_context(tidelog())}
        if options.kafka is not None:
            servers["Apache Kafka"] = stack.enter_context(kafka(options.kafka))
        else:
            print("Apache Kafka is left out: it needs --kafka DIR.")
        rounds: dict[str, list[Figures]] = {name: [] for name in servers}
        for bootstrap, pid in servers.values():
            # A JVM compiles what it runs often: nothing of the first seconds is measured.
            asyncio.run(paced(bootstrap, pid, "warm", options.rate, 3.0))
        for number in range(options.rounds):
            for name, (bootstrap, pid) in servers.items():
                rounds[name].append(measure(bootstrap, pid, f"round{number}", options))
        for name, figures in rounds.items():
            say(name, figures, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
