"""Where a consumer goes, and how far it is behind, against a broker of this process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from tests.unit.client.test_fetcher_on_clusters import make, put, settings, values

from tidelog.client import admin
from tidelog.client.admin import NewTopic
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import AutoOffsetReset, Consumer, ConsumerSettings
from tidelog.client.errors import TopicChanged
from tidelog.client.offsets import CommittedOffset, committed_offsets
from tidelog.client.producer import Producer, ProducerSettings
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.records.columns import Column
from tidelog.testing import Cluster as Brokers

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture(scope="module")
def running() -> Iterator[Brokers]:
    """One broker."""
    with Brokers() as brokers:
        yield brokers


@pytest.fixture
def with_topic(running: Brokers) -> Callable[[Callable[[Cluster], Awaitable[None]]], None]:
    """Runs a test's coroutine with topic `t` of two partitions, and deletes it."""

    def run(test: Callable[[Cluster], Awaitable[None]]) -> None:
        async def within() -> None:
            async with Cluster(running.bootstrap) as cluster:
                await make(cluster, NewTopic("t", 2, 1))
                try:
                    await test(cluster)
                finally:
                    await cluster.run(admin.delete_topics(cluster.routing, ["t"]))

        asyncio.run(within())

    return run


Run = Callable[[Callable[[Cluster], Awaitable[None]]], None]


def test_seeks_to_the_beginning_and_the_end(with_topic: Run) -> None:
    """Whatever was committed or fetched ahead; a paused partition stays paused; records that come later are read."""

    async def test(cluster: Cluster) -> None:
        await put(cluster, T0, b"0", b"1")
        await put(cluster, T1, b"a")
        async with Consumer(cluster, "seeks", settings(auto_offset_reset=AutoOffsetReset.NONE)) as consumer:
            consumer.assign({T0: 1, T1: 0})
            assert sorted(await values(consumer, 2)) == [b"1", b"a"]
            await consumer.commit()
            consumer.seek_to_beginning([T0])
            assert consumer.position(T0) is None
            assert await values(consumer, 2) == [b"0", b"1"]
            consumer.pause([T1])
            consumer.seek_to_beginning()
            assert await values(consumer, 2) == [b"0", b"1"]
            assert consumer.paused == {T1}
            consumer.seek_to_end([T0])
            consumer.resume([T1])
            assert await values(consumer, 1) == [b"a"]
            while consumer.position(T0) is None:
                assert await consumer.poll(0.01) is None
            await put(cluster, T0, b"2")
            assert await values(consumer, 1) == [b"2"]
            with pytest.raises(KeyError, match="other-0 is not assigned"):
                consumer.seek_to_end([TopicPartition("other", 0)])

    with_topic(test)


def test_asks_for_offsets(with_topic: Run) -> None:
    """By time, first and last, of partitions that are not assigned as well."""

    async def test(cluster: Cluster) -> None:
        await put(cluster, T0, b"0", b"1")
        async with Consumer(cluster) as consumer:
            found = await consumer.offsets_for_times({T0: 500, T1: 500})
            assert found[T1] is None
            assert found[T0] is not None
            assert (found[T0].offset, found[T0].timestamp) == (0, 1_000)
            assert await consumer.offsets_for_times({T0: 1_001}) == {T0: None}
            assert await consumer.beginning_offsets([T0, T1]) == {T0: 0, T1: 0}
            assert await consumer.end_offsets([T0, T1]) == {T0: 2, T1: 0}
            with pytest.raises(KafkaError, match="no partition 9"):
                await consumer.end_offsets([TopicPartition("t", 9)])

    with_topic(test)


def test_a_batch_has_as_many_records_as_its_caller_wants(with_topic: Run) -> None:
    """Each record comes once, also where a partition is paused or sought in the middle of a batch."""

    async def test(cluster: Cluster) -> None:
        await put(cluster, T0, *(b"%d" % number for number in range(10)))
        async with Consumer(cluster, settings=settings(max_poll_records=3)) as consumer:
            consumer.assign([T0])
            seen: list[list[int]] = []
            while not seen or seen[-1][-1] < 9:
                batch = await consumer.poll(30)
                assert batch is not None
                seen.append([record.offset for record in batch])
                assert sum(part.rows for part in batch.columns(Column.VALUE)) == len(seen[-1])
                if len(seen) == 1:
                    consumer.pause([T0])
                    consumer.resume([T0])
                if len(seen) == 2:
                    assert consumer.lag(T0) == 4
            assert seen == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
            consumer.seek(T0, 8)
            assert await values(consumer, 2) == [b"8", b"9"]

    with_topic(test)
    with pytest.raises(ValueError, match="max_poll_records is 0"):
        ConsumerSettings(max_poll_records=0)


def test_a_lag_in_time_is_that_of_the_next_record(with_topic: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """None while the record is not here yet, 0 at the end."""
    monkeypatch.setattr("tidelog.client.consumer.consumer.time.time", lambda: 31.0)

    async def test(cluster: Cluster) -> None:
        await put(cluster, T0, b"0", b"1")
        async with Consumer(cluster, settings=settings(max_poll_records=1)) as consumer:
            consumer.assign([T0])
            assert consumer.time_lag_s(T0) is None
            assert await values(consumer, 1) == [b"0"]
            assert (consumer.lag(T0), consumer.time_lag_s(T0)) == (1, 30.0)
            assert await values(consumer, 1) == [b"1"]
            assert (consumer.lag(T0), consumer.time_lag_s(T0)) == (0, 0.0)

    with_topic(test)


async def remake(cluster: Cluster, topic: str) -> None:
    """Deletes a topic of one partition, and makes another one of its name."""
    await cluster.run(admin.delete_topics(cluster.routing, [topic]))
    while True:
        try:
            await make(cluster, NewTopic(topic, 1, 1))
            return
        except KafkaError:
            await asyncio.sleep(0.02)


def test_a_deleted_topic_keeps_no_other_from_being_begun(running: Brokers) -> None:
    """Their leader is asked for both at once, by a consumer that has not heard of the deletion."""
    gone, stays = TopicPartition("gone", 0), TopicPartition("stays", 0)

    async def test() -> None:
        async with Cluster(running.bootstrap) as cluster, Cluster(running.bootstrap) as other:
            await make(cluster, NewTopic(gone.topic, 1, 1), NewTopic(stays.topic, 1, 1))
            await put(other, stays, b"0")
            await other.run(admin.delete_topics(other.routing, [gone.topic]))
            async with Consumer(cluster, settings=settings()) as consumer:
                consumer.assign([gone, stays])
                assert await values(consumer, 1) == [b"0"]

    asyncio.run(test())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("reset", [AutoOffsetReset.EARLIEST, AutoOffsetReset.NONE])
def test_a_topic_made_again_is_begun_anew_by_its_group(running: Brokers, protocol: str, reset: AutoOffsetReset) -> None:
    """Former positions and commits mean nothing in it; without a policy the error names both ids."""
    topic = f"again-{protocol}-{reset}"
    partition = TopicPartition(topic, 0)

    async def test() -> None:
        async with Cluster(running.bootstrap) as cluster, Cluster(running.bootstrap) as other:
            await make(cluster, NewTopic(topic, 1, 1))
            await put(cluster, partition, b"0", b"1", b"2")
            chosen = settings(auto_offset_reset=reset, protocol=protocol, heartbeat_interval_s=0.1)
            async with Consumer(cluster, topic, chosen) as consumer:
                consumer.subscribe([topic])
                while partition not in consumer.assignment:
                    try:
                        await consumer.poll(0.05)
                    except KafkaError:
                        assert reset is AutoOffsetReset.NONE
                if reset is AutoOffsetReset.NONE:
                    consumer.seek_to_beginning()
                    assert await values(consumer, 3) == [b"0", b"1", b"2"]
                await consumer.commit({partition: CommittedOffset(3)})
                former = cluster.routing.topic_id(topic)
                await remake(other, topic)
                await put(other, partition, b"n0", b"n1")
                if reset is AutoOffsetReset.NONE:
                    with pytest.raises(TopicChanged, match=former.hex()) as told:
                        await values(consumer, 1)
                    assert other.routing.topic_id(topic).hex() in str(told.value)
                    consumer.seek_to_beginning()
                    assert await values(consumer, 2) == [b"n0", b"n1"]
                else:
                    found: list[Any] = []
                    while b"n1" not in found:
                        found += await values(consumer, 1)
                    assert [value for value in found if value.startswith(b"n")] == [b"n0", b"n1"]
                await consumer.commit()
                assert (await other.run(committed_offsets(other.routing, topic)))[partition].offset == 2

    asyncio.run(test())


def test_a_transaction_commits_no_offset_of_a_topic_that_was_made_again(running: Brokers) -> None:
    """The new topic has an offset of the group in the end only where one of its own records was read."""
    topic = "again-in-transactions"
    partition = TopicPartition(topic, 0)

    async def test() -> None:
        producing = ProducerSettings(transactional_id=topic)
        async with (
            Cluster(running.bootstrap) as cluster,
            Cluster(running.bootstrap) as other,
            Producer(cluster, producing) as producer,
        ):
            await make(cluster, NewTopic(topic, 1, 1))
            await put(cluster, partition, b"0", b"1", b"2")
            async with Consumer(cluster, topic, settings(auto_commit=False)) as consumer:
                consumer.subscribe([topic])
                batch = await consumer.poll()
                assert batch is not None
                member = consumer.member
                await remake(other, topic)
                await producer.begin()
                with pytest.raises(KafkaError, match="made again") as refused:
                    await producer.send_offsets({partition: batch.next_offset}, member)
                assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_ID
                await producer.abort()
                assert await other.run(committed_offsets(other.routing, topic)) == {}
                await put(other, partition, b"n0")
                assert await values(consumer, 1) == [b"n0"]
                async with producer.transaction():
                    await producer.send_offsets({partition: 1}, consumer.member)
            assert (await other.run(committed_offsets(other.routing, topic)))[partition].offset == 1

    asyncio.run(test())
