"""Unchanged kafka-python against tidelog."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.support import CODECS, DEADLINE_S, START_MS, Sent, records, topic_name
from tests.scenarios.consumers import KAFKA_PYTHON_WARNS
from tests.waiting import until
from tidelog.testing import Cluster

with warnings.catch_warnings():
    # It reads its schemas by a function that Python is about to drop; that is the client's affair.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType
    from kafka.errors import (
        InvalidPartitionsError,
        InvalidReplicationFactorError,
        MessageSizeTooLargeError,
        OffsetOutOfRangeError,
        TopicAlreadyExistsError,
        UnknownTopicOrPartitionError,
    )
    from kafka.structs import OffsetAndMetadata

NAME = "python"
RECORDS = records(without_both=False)
"""This client sends no record that has neither key nor value."""

pytestmark = [*KAFKA_PYTHON_WARNS]


@pytest.fixture(scope="module")
def admin(broker: Cluster) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


@pytest.fixture
def consumer(broker: Cluster) -> Iterator[KafkaConsumer]:
    client = KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        group_id=topic_name(f"{NAME}-group"),
        enable_auto_commit=False,
        auto_offset_reset="none",
        fetch_max_wait_ms=100,
    )
    yield client
    client.close()


def create(admin: KafkaAdminClient, partitions: int = 1, **configs: str) -> str:
    topic = topic_name(NAME)
    admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1, "configs": configs}})
    return topic


def produce(broker: Cluster, topic: str, sent: list[Sent], **settings: Any) -> list[int]:
    """Sends to partition 0; the offsets that were acknowledged, -1 without acknowledgement."""
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, **settings)
    try:
        futures = [
            producer.send(
                topic,
                record.value,
                record.key,
                headers=[(name, value or b"") for name, value in record.headers],
                partition=0,
                timestamp_ms=record.timestamp_ms,
            )
            for record in sent
        ]
        return [future.get(DEADLINE_S).offset for future in futures]
    finally:
        producer.close()


def consume(consumer: KafkaConsumer, topic: str, count: int, offset: int | None = None) -> list[Any]:
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    if offset is None:
        consumer.seek_to_beginning(partition)
    else:
        consumer.seek(partition, offset)
    messages: list[Any] = []

    def enough() -> bool:
        for batch in consumer.poll(200).values():
            messages.extend(batch)
        return len(messages) >= count

    until(enough, f"{count} records")
    return messages


def content(message: Any) -> Sent:
    return Sent(message.key, message.value, list(message.headers), message.timestamp)


@pytest.mark.row("R37")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_what_is_produced_is_consumed(
    broker: Cluster, admin: KafkaAdminClient, consumer: KafkaConsumer, acks: object, codec: str
) -> None:
    """Keys, values, nulls, headers and timestamps come back, whatever the codec and the acknowledgements."""
    topic = create(admin)
    offsets = produce(
        broker,
        topic,
        RECORDS,
        acks=acks,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=acks == "all",
    )
    assert acks == 0 or offsets == list(range(len(RECORDS)))
    assert list(map(content, consume(consumer, topic, len(RECORDS)))) == RECORDS


def test_consuming_from_any_offset_or_timestamp(
    broker: Cluster, admin: KafkaAdminClient, consumer: KafkaConsumer
) -> None:
    """A number, a time, both ends."""
    topic = create(admin)
    produce(broker, topic, RECORDS)
    partition = TopicPartition(topic, 0)
    assert consume(consumer, topic, 2, offset=5)[0].offset == 5
    assert consumer.offsets_for_times({partition: START_MS + 2500})[partition].offset == 3
    assert consumer.offsets_for_times({partition: START_MS + 100_000})[partition] is None
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: len(RECORDS)}
    consumer.seek(partition, 1000)
    with pytest.raises(OffsetOutOfRangeError):
        until(lambda: consumer.poll(200), "an error")


def test_offsets_are_committed_without_membership(admin: KafkaAdminClient, consumer: KafkaConsumer) -> None:
    """And the admin client sees them too."""
    topic = create(admin, 2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    consumer.assign([first, second])
    consumer.commit({first: OffsetAndMetadata(3, "a note", -1)})
    assert consumer.committed(first, metadata=True)[:2] == (3, "a note")
    assert consumer.committed(second) is None
    group = consumer.config["group_id"]
    listed = admin.list_group_offsets({group: None})[group]
    assert {partition: found.offset for partition, found in listed.items()} == {first: 3}


def test_topics_are_created_described_and_deleted(admin: KafkaAdminClient) -> None:
    """Refusals carry Kafka's errors."""
    topic = create(admin, 3)
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})
    with pytest.raises(InvalidReplicationFactorError):
        admin.create_topics({topic_name(NAME): {"num_partitions": 1, "replication_factor": 2}})
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 3
    admin.create_partitions({topic: 5})
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({topic: 4})
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([topic])


def value_of(admin: KafkaAdminClient, topic: str, name: str) -> str:
    described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all")
    value: str = described["topic"][topic][name]["value"]
    return value


@pytest.mark.row("R07")
def test_settings_take_effect_at_once(broker: Cluster, admin: KafkaAdminClient) -> None:
    """Of a topic, and cluster-wide ones below it."""
    topic = create(admin)
    produce(broker, topic, [Sent(None, bytes(5000), [], START_MS)])
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"max.message.bytes": "1000"})])
    assert value_of(admin, topic, "max.message.bytes") == "1000"
    with pytest.raises(MessageSizeTooLargeError):
        produce(broker, topic, [Sent(None, bytes(5000), [], START_MS)])
    admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, topic, ["max.message.bytes"])])
    produce(broker, topic, [Sent(None, bytes(5000), [], START_MS)])
    told = admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "soon"})])
    assert "Invalid value soon for configuration retention.ms" in str(told)


@pytest.mark.row("R34")
def test_records_are_deleted(broker: Cluster, admin: KafkaAdminClient, consumer: KafkaConsumer) -> None:
    """The first offset moves up."""
    topic = create(admin)
    produce(broker, topic, RECORDS)
    partition = TopicPartition(topic, 0)
    deleted = admin.delete_records({partition: 3})
    assert deleted[partition]["low_watermark"] == 3
    assert consumer.beginning_offsets([partition]) == {partition: 3}
    assert consume(consumer, topic, 1)[0].offset == 3


@pytest.mark.row("R03")
def test_log_directories_are_described(broker: Cluster, admin: KafkaAdminClient) -> None:
    """With the sizes of the partitions and of the file system."""
    topic = create(admin, 2)
    produce(broker, topic, RECORDS)
    (described,) = admin.describe_log_dirs({topic: [0, 1]})
    (directory,) = described["log_dirs"]
    assert directory["log_dir"] == os.path.join(broker.data, "broker-0")
    assert directory["total_bytes"] >= directory["usable_bytes"] > 0
    ((name, partitions),) = [(found["name"], found["partitions"]) for found in directory["topics"]]
    assert name == topic
    sizes = {partition["partition_index"]: partition["partition_size"] for partition in partitions}
    assert sizes[0] > 50_000
    assert sizes[1] == 0


def test_what_has_settings_is_listed(admin: KafkaAdminClient) -> None:
    """Topics and brokers."""
    topic = create(admin)
    listed = admin.list_config_resources(["TOPIC", "BROKER"])
    assert topic in listed["topic"]
    assert listed["broker"] == ["0"]
