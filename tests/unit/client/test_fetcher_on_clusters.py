"""The fetcher and the consumer against brokers of this process: sessions, followers in the rack, logs that were cut."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tidelog.client import admin
from tidelog.client.admin import NewTopic
from tidelog.client.cluster import Cluster
from tidelog.client.connection import Connection
from tidelog.client.consumer import AutoOffsetReset, Consumer, ConsumerSettings
from tidelog.client.errors import LogTruncated
from tidelog.client.fetching import FetchSettings
from tidelog.client.producing import produce_batches
from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol.apis import ApiKey
from tidelog.records.batch import Record, build_batch
from tidelog.testing import Cluster as Brokers

TP = TopicPartition("t", 0)


class Sent:
    """The Fetch requests that go out: their bytes, how many partitions each names, and to which port."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fetches: list[tuple[int, int, int]] = []
        plain = Connection.request

        async def request(connection: Connection, message: Any, *arguments: Any, **options: Any) -> Any:
            if getattr(message, "key", None) is ApiKey.FETCH:
                built = message.build(connection.versions[ApiKey.FETCH][1])
                named = sum(len(topic.partitions) for topic in built.topics)
                size = len(connection._exchange.encode(built)[1])
                self.fetches.append((size, named, connection.address.port))
                message = built
            return await plain(connection, message, *arguments, **options)

        monkeypatch.setattr(Connection, "request", request)


async def make(cluster: Cluster, *topics: NewTopic) -> None:
    """Creates topics, and waits until each partition has a leader."""
    await cluster.run(admin.create_topics(cluster.routing, list(topics)))
    while True:
        await cluster.run(cluster.routing.refresh([topic.name for topic in topics], cluster.routing.deadline()))
        views = cluster.routing.topics
        if all(
            topic.name in views and len(views[topic.name].partitions) == max(1, topic.partitions) for topic in topics
        ) and all(
            cluster.routing.leader(TopicPartition(topic.name, partition))
            for topic in topics
            for partition in cluster.routing.topics[topic.name].partitions
        ):
            return
        await asyncio.sleep(0.02)


async def put(cluster: Cluster, topic_partition: TopicPartition, *values: bytes, acks: int = -1) -> None:
    """Appends one batch."""
    batch = build_batch([Record(i, 1_000, None, value) for i, value in enumerate(values)])
    results = await cluster.run(produce_batches(cluster.routing, {topic_partition: bytes(batch)}, acks=acks))
    for result in results.values():
        if isinstance(result, KafkaError):
            raise result


async def values(consumer: Consumer, count: int) -> list[bytes | None]:
    """The next records, of any partition."""
    found: list[bytes | None] = []
    while len(found) < count:
        batch = await consumer.poll(30)
        assert batch is not None
        found += [record.value for record in batch]
    return found


def settings(**fields: Any) -> ConsumerSettings:
    """From the beginning, with short waits."""
    fields = {"auto_offset_reset": AutoOffsetReset.EARLIEST, "fetch": FetchSettings(max_wait_ms=50)} | fields
    return ConsumerSettings(**fields)


@contextlib.contextmanager
def brokers(of_broker: Mapping[int, Mapping[str, object]] | None = None, **fields: object) -> Iterator[Brokers]:
    """Two brokers."""
    with Brokers(fields, brokers=2, of_broker=of_broker) as running:
        yield running


def test_idle_partitions_cost_next_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of a session name a partition again when its position has changed, and only then."""
    sent = Sent(monkeypatch)
    partitions = 100

    async def run(bootstrap: str) -> None:
        async with Cluster(bootstrap) as cluster, Consumer(cluster, settings=settings()) as consumer:
            await make(cluster, NewTopic("t", partitions, 1))
            consumer.assign([TopicPartition("t", partition) for partition in range(partitions)])
            await put(cluster, TopicPartition("t", 7), b"one")
            assert await values(consumer, 1) == [b"one"]
            while len(sent.fetches) < 6:
                assert await consumer.poll(0.01) is None
            whole = max(size for size, _, _ in sent.fetches)
            assert max(named for _, named, _ in sent.fetches) == partitions
            assert [named for _, named, _ in sent.fetches[-3:]] == [0, 0, 0]
            assert max(size for size, _, _ in sent.fetches[-3:]) * 10 < whole
            await put(cluster, TopicPartition("t", 3), b"two")
            assert await values(consumer, 1) == [b"two"]
            consumer.pause([TopicPartition("t", 3)])
            await put(cluster, TopicPartition("t", 3), b"three")
            await put(cluster, TopicPartition("t", 4), b"four")
            assert await values(consumer, 1) == [b"four"]
            consumer.resume([TopicPartition("t", 3)])
            assert await values(consumer, 1) == [b"three"]
            assert consumer.lag(TopicPartition("t", 3)) == 0

    with Brokers() as running:
        asyncio.run(run(running.bootstrap))


def test_sessions_end_with_their_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that starts again knows none, or has a small cache: all is named again, nothing is lost."""
    sent = Sent(monkeypatch)

    async def run(running: Brokers) -> None:
        async with Cluster(running.bootstrap) as cluster, Consumer(cluster, settings=settings()) as consumer:
            await make(cluster, NewTopic("t", 3, 1))
            consumer.assign([TopicPartition("t", partition) for partition in range(3)])
            await put(cluster, TP, b"one")
            assert await values(consumer, 1) == [b"one"]
            await asyncio.to_thread(running.restart, 0)
            del sent.fetches[:]
            await put(cluster, TP, b"two")
            assert await values(consumer, 1) == [b"two"]
            assert max(named for _, named, _ in sent.fetches) == 3
            sessions = running.runtimes[0].node.fetch_sessions._sessions
            await asyncio.to_thread(running.call, sessions.clear)
            await put(cluster, TP, b"three")
            assert await values(consumer, 1) == [b"three"]

    with Brokers() as running:
        asyncio.run(run(running))


def test_a_consumer_reads_from_the_follower_in_its_rack_and_goes_back_to_the_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the follower is there; when it stops, the leader is read, and nothing is lost or read twice."""
    sent = Sent(monkeypatch)

    async def run(running: Brokers) -> None:
        ports = [int(running.address(broker).rpartition(":")[2]) for broker in (0, 1)]
        async with Cluster(running.bootstrap) as cluster:
            await make(cluster, NewTopic("t", assignment={0: (0, 1)}))
            async with Consumer(cluster, settings=settings(rack="b")) as consumer:
                consumer.assign([TP])
                await put(cluster, TP, b"0")
                assert await values(consumer, 1) == [b"0"]
                del sent.fetches[:]
                await put(cluster, TP, b"1", b"2")
                assert await values(consumer, 2) == [b"1", b"2"]
                assert {port for _, _, port in sent.fetches} == {ports[1]}
                await asyncio.to_thread(running.stop, 1)
                await put(cluster, TP, b"3")
                assert await values(consumer, 1) == [b"3"]
                assert sent.fetches[-1][2] == ports[0]
            assert cluster.routing.leader(TP) is not None

    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    racks = {0: {"broker.rack": "a"}, 1: {"broker.rack": "b"}}
    with brokers(racks, **{"replica.selector.class": selector}) as running:
        asyncio.run(run(running))


@pytest.mark.parametrize("reset", [AutoOffsetReset.LATEST, AutoOffsetReset.NONE])
def test_a_log_that_was_cut_is_found_and_told(reset: AutoOffsetReset) -> None:
    """After an unclean election: with auto_offset_reset the consumer goes on where the logs part, else it is told."""

    async def run(running: Brokers) -> None:
        async with Cluster(running.bootstrap) as cluster:
            await make(cluster, NewTopic("t", assignment={0: (0, 1)}))
            async with Consumer(cluster, settings=settings(auto_offset_reset=reset)) as consumer:
                consumer.assign({TP: 0})
                await put(cluster, TP, b"0", b"1", b"2")
                await asyncio.to_thread(running.stop, 1)
                await put(cluster, TP, b"3", b"4", acks=1)
                assert await values(consumer, 5) == [b"0", b"1", b"2", b"3", b"4"]
                await asyncio.to_thread(running.stop, 0)
                await asyncio.to_thread(running.start, 1)
                await put(cluster, TP, b"n3", b"n4", b"n5", acks=1)
                if reset is AutoOffsetReset.NONE:
                    with pytest.raises(LogTruncated, match=r"t-0 was cut at offset 3, before the position 5") as told:
                        await values(consumer, 1)
                    assert (told.value.topic_partition, told.value.offset, told.value.divergent) == (TP, 5, 3)
                    consumer.seek(TP, 3)
                assert await values(consumer, 3) == [b"n3", b"n4", b"n5"]

    with brokers(**{"unclean.leader.election.enable": "true"}) as running:
        asyncio.run(run(running))
