"""Clients: our own producer and consumer beside aiokafka and librdkafka, over a long way, and with idle partitions.

    python -m bench.clients [--rounds 3] [--megabytes 40] [--only throughput distance idle latency outage]

throughput  one partition, values of 100 and 1,000 bytes, uncompressed, acks=all, idempotent: sent one by one and
            flushed; then read from the beginning, one record object each. The same settings for all, by their names.
            The clients take turns, in random order; the median of the rounds' ratios counts.
distance    one partition, idempotent, 20 ms of round trip added by a proxy that delays and does not limit: five batches
            in flight against one.
idle        a consumer of 1,000 partitions without news: bytes of a fetch request, against one that names them all.
latency     one record at a time, acknowledged, beside a consumer that waits for another topic on the same `Cluster`.
outage      two partitions on brokers of their own, one of which is killed, or stands still: of the other partition the
            longest time between two acknowledgements, and between two batches that a member of a group reads.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import socket
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import aiokafka
import confluent_kafka

from tidelog.client import admin
from tidelog.client.admin import NewTopic
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import AutoOffsetReset, Consumer, ConsumerSettings
from tidelog.client.exchange import Exchange
from tidelog.client.fetching import FetchSettings
from tidelog.client.producer import Producer, ProducerSettings
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol.apis import ApiKey
from tidelog.records.columns import Column
from tidelog.testing import Cluster as Brokers
from tidelog.testing import ProcessBroker

LINGER_MS: Final = 5
BATCH_BYTES: Final = 256 << 10
PARTITION_BYTES: Final = 1 << 20
TURN: Final = 500
"""Records after which a sender lets its event loop do other things, where its client does not by itself."""
ROUND_TRIP_S: Final = 0.02
IDLE_PARTITIONS: Final = 1_000
OUTAGE_S: Final = 15.0
"""Longer than old metadata is used, so that the broker which is away may be asked for it."""
GOALS: Final = {"aiokafka": 3.0, "librdkafka": 0.5}
"""Our rate by that of each: three times the one, half of the other."""


async def make(cluster: Cluster, *topics: NewTopic) -> None:
    """Creates topics, and waits for their leaders."""
    created = await cluster.run(admin.create_topics(cluster.routing, list(topics)))
    for outcome in created.values():
        if isinstance(outcome, Exception):
            raise outcome
    while True:
        await cluster.run(cluster.routing.refresh([topic.name for topic in topics], cluster.routing.deadline()))
        partitions = [TopicPartition(topic.name, number) for topic in topics for number in range(topic.partitions)]
        if all(cluster.routing.leader(each) for each in partitions):
            return
        await asyncio.sleep(0.05)


# Sending and reading, by each client: [what it is called] -> how.


async def send_tidelog(bootstrap: str, topic: str, values: list[bytes]) -> None:
    settings = ProducerSettings(linger_ms=LINGER_MS, batch_size=BATCH_BYTES)
    async with Cluster(bootstrap) as cluster, Producer(cluster, settings) as producer:
        for value in values:
            await producer.send(topic, value)
        await producer.flush()


async def send_aiokafka(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap, linger_ms=LINGER_MS, max_batch_size=BATCH_BYTES, enable_idempotence=True
    )
    await producer.start()
    try:
        for value in values:
            await producer.send(topic, value)
        await producer.flush()
    finally:
        await producer.stop()


async def send_librdkafka(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    for number, value in enumerate(values):
        producer.produce(topic, value)
        if not number % TURN:
            producer.poll(0)
    assert producer.flush(120) == 0


async def read_tidelog(bootstrap: str, topic: str, count: int) -> int:
    size = 0
    async with Cluster(bootstrap) as cluster, Consumer(cluster, settings=_reading()) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while count > 0:
            batch = await consumer.poll()
            assert batch is not None
            for record in batch:
                size += len(record.value or b"")
                count -= 1
    return size


async def read_columns(bootstrap: str, topic: str, count: int) -> int:
    size = 0
    async with Cluster(bootstrap) as cluster, Consumer(cluster, settings=_reading()) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while count > 0:
            batch = await consumer.poll()
            assert batch is not None
            for columns in batch.columns(Column.VALUE):
                assert columns.value is not None
                size += memoryview(columns.value.data or b"").nbytes
                count -= columns.rows
    return size


async def read_aiokafka(bootstrap: str, topic: str, count: int) -> int:
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", max_partition_fetch_bytes=PARTITION_BYTES
    )
    await consumer.start()
    size = 0
    try:
        consumer.assign([aiokafka.TopicPartition(topic, 0)])
        while count > 0:
            for records in (await consumer.getmany(timeout_ms=1_000)).values():
                for record in records:
                    size += len(record.value)
                count -= len(records)
    finally:
        await consumer.stop()
    return size


async def read_librdkafka(bootstrap: str, topic: str, count: int) -> int:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "max.partition.fetch.bytes": PARTITION_BYTES,
            "fetch.queue.backoff.ms": 10,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    size = 0
    while count > 0:
        messages = consumer.consume(10_000, 1.0)
        for message in messages:
            size += len(message.value())
        count -= len(messages)
    consumer.close()
    return size


def _reading() -> ConsumerSettings:
    return ConsumerSettings(
        auto_offset_reset=AutoOffsetReset.EARLIEST, fetch=FetchSettings(partition_max_bytes=PARTITION_BYTES)
    )


Send = Callable[[str, str, list[bytes]], Awaitable[None]]
Read = Callable[[str, str, int], Awaitable[int]]
SENDERS: Final[dict[str, Send]] = {
    "tidelog": send_tidelog,
    "aiokafka": send_aiokafka,
    "librdkafka": send_librdkafka,
}
READERS: Final[dict[str, Read]] = {
    "tidelog": read_tidelog,
    "tidelog, columns": read_columns,
    "aiokafka": read_aiokafka,
    "librdkafka": read_librdkafka,
}


def throughput(rounds: int, megabytes: int) -> None:
    """Records a second by each client, and our rate by theirs."""
    for value_bytes in (100, 1_000):
        count = megabytes * 1_000_000 // (1_000 if value_bytes > 100 else 400)
        values = [random.randbytes(value_bytes) for _ in range(1_000)] * (count // 1_000)
        sent: dict[str, list[float]] = {name: [] for name in SENDERS}
        read: dict[str, list[float]] = {name: [] for name in READERS}
        with ProcessBroker() as broker:
            for number in range(rounds + 1):
                for name in random.sample(list(SENDERS), len(SENDERS)):
                    topic = f"{name}-{number}"
                    asyncio.run(_prepare(broker.bootstrap, topic))
                    sent[name].append(len(values) / _seconds(SENDERS[name](broker.bootstrap, topic, values)))
                for name in random.sample(list(READERS), len(READERS)):
                    topic = f"tidelog-{number}"
                    read[name].append(len(values) / _seconds(_read_all(READERS[name], broker.bootstrap, topic, values)))
        for verb, rates in (("send", sent), ("read", read)):
            _tell(f"{verb} {value_bytes:5} B", {name: each[1:] for name, each in rates.items()})


async def _read_all(read: Read, bootstrap: str, topic: str, values: list[bytes]) -> None:
    size = await read(bootstrap, topic, len(values))
    assert size == sum(map(len, values)), "not what was sent"


async def _prepare(bootstrap: str, topic: str) -> None:
    async with Cluster(bootstrap) as cluster:
        await make(cluster, NewTopic(topic, 1, 1))


def _seconds(work: Any) -> float:
    began = time.perf_counter()
    asyncio.run(work)
    return time.perf_counter() - began


def _tell(what: str, rates: dict[str, list[float]]) -> None:
    for name, each in rates.items():
        line = f"{what}  {name:17} {statistics.median(each):10,.0f} records/s"
        ratios = {
            peer: statistics.median(ours / theirs for ours, theirs in zip(each, rates[peer], strict=True))
            for peer in GOALS
            if name.startswith("tidelog")
        }
        for peer, ratio in ratios.items():
            line += f"   {ratio:.2f} x {peer} (goal {GOALS[peer]:g})"
        print(line, flush=True)


# Over a long way


class Proxy:
    """Passes bytes to and from a broker, each `delay_s` later; as many on the way as there are."""

    def __init__(self, broker: tuple[str, int], delay_s: float) -> None:
        self._broker = broker
        self._delay_s = delay_s
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, listener: socket.socket) -> asyncio.Server:
        return await asyncio.start_server(self._accept, sock=listener)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._broker)
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._pass_on(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while data := await source.read(1 << 20):
            loop.call_later(self._delay_s, sink.write, data)
        loop.call_later(self._delay_s, sink.close)


@contextlib.asynccontextmanager
async def far_away() -> AsyncIterator[str]:
    """A broker that is `ROUND_TRIP_S` away."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    broker = ProcessBroker({"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"})
    await asyncio.to_thread(broker.start)
    host, _, behind = broker.bootstrap.rpartition(":")
    try:
        if int(behind) == port:
            raise RuntimeError("the broker advertises what it listens on")
        server = await Proxy((host, int(behind)), ROUND_TRIP_S / 2).serve(listener)
        yield f"127.0.0.1:{port}"
        server.close()
    finally:
        await asyncio.to_thread(broker.stop)


async def distance(rounds: int) -> None:
    """Five in flight against one."""
    rates: dict[int, list[float]] = {1: [], 5: []}
    values = [random.randbytes(1_000)] * 20_000
    async with far_away() as bootstrap:
        for number in range(rounds):
            for in_flight in random.sample((1, 5), 2):
                topic = f"far-{number}-{in_flight}"
                settings = ProducerSettings(linger_ms=LINGER_MS, batch_size=64 << 10, in_flight_max=in_flight)
                async with Cluster(bootstrap) as cluster:
                    await make(cluster, NewTopic(topic, 1, 1))
                    async with Producer(cluster, settings) as producer:
                        await producer.send(topic, b"the connection is there")
                        await producer.flush()
                        began = time.perf_counter()
                        for value in values:
                            await producer.send(topic, value)
                        await producer.flush()
                        rates[in_flight].append(len(values) / (time.perf_counter() - began))
    ratio = statistics.median(five / one for one, five in zip(rates[1], rates[5], strict=True))
    print(
        f"send 1000 B, {ROUND_TRIP_S * 1000:g} ms away, one partition, idempotent: one in flight"
        f" {statistics.median(rates[1]):,.0f} records/s, five {statistics.median(rates[5]):,.0f}:"
        f" {ratio:.2f} x (goal 4)",
        flush=True,
    )


# Idle partitions


async def idle(bootstrap: str) -> None:
    """Bytes of fetch requests without news."""
    sizes: list[int] = []
    encode = Exchange._encode

    def noting(exchange: Exchange, key: ApiKey, version: int, message: Any) -> tuple[int, bytes, bool]:
        result = encode(exchange, key, version, message)
        if key is ApiKey.FETCH:
            sizes.append(len(result[1]))
        return result

    Exchange._encode = noting  # type: ignore[method-assign]  # The bench looks at what goes out.
    try:
        async with Cluster(bootstrap) as cluster, Consumer(cluster, settings=_reading()) as consumer:
            await make(cluster, NewTopic("idle", IDLE_PARTITIONS, 1))
            consumer.assign([TopicPartition("idle", number) for number in range(IDLE_PARTITIONS)])
            await consumer.poll(6.0)
    finally:
        Exchange._encode = encode  # type: ignore[method-assign]
    later = sizes[2:]
    mean = statistics.mean(later)
    print(
        f"{IDLE_PARTITIONS} idle partitions: a fetch that names them {max(sizes):,} B, {len(later)} of a session"
        f" {mean:,.0f} B each: {mean / max(sizes):.3f} (goal 0.1)",
        flush=True,
    )


# Latency


async def latency(bootstrap: str, records: int = 2_000) -> None:
    """Acknowledgements beside a consumer that waits."""
    async with Cluster(bootstrap) as cluster, Consumer(cluster, settings=_reading()) as consumer:
        await make(cluster, NewTopic("waited-for", 1, 1), NewTopic("written", 1, 1))
        consumer.assign([TopicPartition("waited-for", 0)])
        waiting = asyncio.create_task(consumer.poll())
        took: list[float] = []
        async with Producer(cluster, ProducerSettings(linger_ms=0)) as producer:
            for number in range(records + 100):
                began = time.perf_counter()
                await (await producer.send("written", b"x" * 100)).place()
                if number >= 100:
                    took.append(time.perf_counter() - began)
                await asyncio.sleep(0.001)
        waiting.cancel()
    took.sort()
    print(
        f"produce beside an idle consumer: p50 {took[len(took) // 2] * 1000:.1f} ms,"
        f" p99 {took[len(took) * 99 // 100] * 1000:.1f} ms (goal 20 ms)",
        flush=True,
    )


# A leader that is away


class Gaps:
    """The longest time between two events from `begin` on."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.longest_s = 0.0
        self._last = time.perf_counter()

    def happened(self) -> None:
        now = time.perf_counter()
        self.longest_s = max(self.longest_s, now - self._last)
        self._last = now


async def outage(*, dies: bool) -> None:
    """What one partition notices of another one's leader."""
    with Brokers(brokers=3, processes=True) as brokers:
        here, there = (TopicPartition("outage", number) for number in (0, 1))
        acknowledged, read = Gaps(), Gaps()
        # The coordinator and the store's leader are not what is measured.
        internal = NewTopic("__consumer_offsets", assignment={0: [0]}, configs={"cleanup.policy": "compact"})
        async with Cluster(brokers.bootstrap) as cluster:
            await make(cluster, internal, NewTopic(here.topic, assignment={0: [1], 1: [2]}))
            async with Producer(cluster) as producer, Consumer(cluster, "outage", _reading()) as consumer:
                consumer.subscribe([here.topic])

                async def send() -> None:
                    while True:
                        await producer.send(there.topic, b"x" * 100, partition=there.partition)
                        await (await producer.send(here.topic, b"x" * 100, partition=here.partition)).place()
                        acknowledged.happened()
                        await asyncio.sleep(0.01)

                async def follow() -> None:
                    async for batch in consumer:
                        if batch.topic_partition == here:
                            read.happened()

                tasks = [asyncio.create_task(send()), asyncio.create_task(follow())]
                await asyncio.sleep(5.0)
                acknowledged.begin()
                read.begin()
                await asyncio.to_thread(brokers.kill if dies else brokers.pause, 2)
                await asyncio.wait(tasks, timeout=OUTAGE_S, return_when=asyncio.FIRST_COMPLETED)
                seen = acknowledged.longest_s, read.longest_s
                await asyncio.to_thread(brokers.start if dies else brokers.resume, 2)
                for task in tasks:
                    assert not task.done(), task.exception()
                    task.cancel()
    print(
        f"one of two leaders {'is killed' if dies else 'stands still'}, within {OUTAGE_S:g} s: longest time between two"
        f" acknowledgements of the other {seen[0] * 1000:,.0f} ms, between two reads {seen[1] * 1000:,.0f} ms"
        " (goal 1,000 ms)",
        flush=True,
    )


def main() -> None:
    """Prints what was measured."""
    figures = ("throughput", "distance", "idle", "latency", "outage")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=40)
    parser.add_argument("--only", nargs="+", choices=figures, default=figures)
    arguments = parser.parse_args()
    if "throughput" in arguments.only:
        throughput(arguments.rounds, arguments.megabytes)
    if "distance" in arguments.only:
        asyncio.run(distance(arguments.rounds))
    with ProcessBroker() as broker:
        if "idle" in arguments.only:
            asyncio.run(idle(broker.bootstrap))
        if "latency" in arguments.only:
            asyncio.run(latency(broker.bootstrap))
    if "outage" in arguments.only:
        for dies in (True, False):
            asyncio.run(outage(dies=dies))


if __name__ == "__main__":
    main()
