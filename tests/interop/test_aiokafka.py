"""Unchanged aiokafka against tidelog."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import MessageSizeTooLargeError, OffsetOutOfRangeError
from aiokafka.structs import OffsetAndMetadata

from tests.interop.support import CODECS, DEADLINE_S, START_MS, Sent, records, topic_name
from tests.keeping import KEEPING
from tidelog.testing import Cluster

NAME = "aio"
RECORDS = records(without_both=False)
"""This client sends no record that has neither key nor value."""
T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 3 * DEADLINE_S))


async def create(broker: Cluster, partitions: int = 1) -> str:
    topic = topic_name(NAME)
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        response = await admin.create_topics([NewTopic(topic, partitions, 1)])
        assert [error[:2] for error in response.topic_errors] == [(topic, 0)]
    finally:
        await admin.close()
    return topic


async def produce(broker: Cluster, topic: str, sent: list[Sent], **settings: Any) -> list[int]:
    """Sends to partition 0; the offsets that were acknowledged."""
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, **settings) as producer:
        futures = [
            await producer.send(
                topic,
                record.value,
                record.key,
                partition=0,
                timestamp_ms=record.timestamp_ms,
                headers=record.headers,
            )
            for record in sent
        ]
        told = [await future for future in futures]
        return [-1 if found is None else found.offset for found in told]


def reader(broker: Cluster) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        group_id=topic_name(f"{NAME}-group"),
        enable_auto_commit=False,
        auto_offset_reset="none",
        fetch_max_wait_ms=100,
    )


async def consume(consumer: AIOKafkaConsumer, topic: str, count: int, offset: int = 0) -> list[Any]:
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, offset)
    return [await consumer.getone() for _ in range(count)]


def content(message: Any) -> Sent:
    return Sent(message.key, message.value, list(message.headers), message.timestamp)


@pytest.mark.row("R37")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_what_is_produced_is_consumed(broker: Cluster, acks: object, codec: str) -> None:
    """Keys, values, nulls, headers and timestamps come back, whatever the codec and the acknowledgements."""

    async def work() -> None:
        topic = await create(broker)
        offsets = await produce(
            broker,
            topic,
            RECORDS,
            acks=acks,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=acks == "all",
        )
        assert acks == 0 or offsets == list(range(len(RECORDS)))
        async with reader(broker) as consumer:
            assert list(map(content, await consume(consumer, topic, len(RECORDS)))) == RECORDS

    run(work())


def test_consuming_from_any_offset_or_timestamp(broker: Cluster) -> None:
    """A number, a time, both ends; an offset that is not there is told."""

    async def work() -> None:
        topic = await create(broker)
        await produce(broker, topic, RECORDS)
        partition = TopicPartition(topic, 0)
        async with reader(broker) as consumer:
            assert (await consume(consumer, topic, 1, offset=5))[0].offset == 5
            found = await consumer.offsets_for_times({partition: START_MS + 2500})
            assert found[partition].offset == 3
            assert await consumer.beginning_offsets([partition]) == {partition: 0}
            assert await consumer.end_offsets([partition]) == {partition: len(RECORDS)}
            consumer.seek(partition, 1000)
            with pytest.raises(OffsetOutOfRangeError):
                await consumer.getone()

    run(work())


def test_offsets_are_committed_without_membership(broker: Cluster) -> None:
    """With their metadata."""

    async def work() -> None:
        topic = await create(broker, 2)
        first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
        async with reader(broker) as consumer:
            consumer.assign([first, second])
            await consumer.commit({first: OffsetAndMetadata(3, "a note")})
            assert await consumer.committed(first) == 3
            assert await consumer.committed(second) is None

    run(work())


@pytest.mark.row("R07")
@pytest.mark.row("R09")
def test_topics_are_administered(broker: Cluster) -> None:
    """Created, grown, altered with effect at once, emptied, deleted."""

    async def work() -> None:
        topic = await create(broker)
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            await admin.create_partitions({topic: NewPartitions(2)})
            (described,) = await admin.describe_topics([topic])
            assert len(described["partitions"]) == 2
            await produce(broker, topic, RECORDS)
            await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"max.message.bytes": "1000"})])
            with pytest.raises(MessageSizeTooLargeError):
                await produce(broker, topic, [Sent(None, bytes(5000), [], START_MS)])
            (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
            entries = {entry[0]: entry[1] for entry in answer.resources[0][4]}
            assert entries["max.message.bytes"] == "1000"
            await admin.delete_topics([topic])
            assert topic not in await admin.list_topics()
        finally:
            await admin.close()

    run(work())


def test_a_broker_that_does_not_coordinate_is_no_reset_of_offsets() -> None:
    """aiokafka reads the errors of partitions only: where they were missing it began at `auto_offset_reset`."""

    async def work(cluster: Cluster) -> None:
        topic = await create(cluster)
        await produce(cluster, topic, RECORDS)
        partition = TopicPartition(topic, 0)
        async with reader(cluster) as consumer:
            consumer.assign([partition])
            await consumer.commit({partition: 3})
            coordinator = consumer._coordinator
            # What a member holds that asks while its coordinator moves: an address of which the lookup told too early.
            coordinator.coordinator_id = 1 - coordinator.coordinator_id
            assert await consumer.committed(partition) == 3

    with Cluster({**KEEPING, "auto.create.topics.enable": False}, brokers=2) as cluster:
        run(work(cluster))
