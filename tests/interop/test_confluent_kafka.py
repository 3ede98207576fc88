"""Unchanged confluent-kafka (librdkafka) against tidelog."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from tests.interop.support import CODECS, DEADLINE_S, START_MS, Sent, records, topic_name
from tests.waiting import until
from tidelog.testing import Cluster

NAME = "confluent"


@pytest.fixture(scope="module")
def admin(broker: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def outcome(futures: dict[Any, Any]) -> Any:
    """The result of the only future."""
    (future,) = futures.values()
    return future.result(DEADLINE_S)


def failure(futures: dict[Any, Any]) -> KafkaError:
    """The error of the only future."""
    with pytest.raises(KafkaException) as refused:
        outcome(futures)
    error: KafkaError = refused.value.args[0]
    return error


def create(admin: AdminClient, partitions: int = 1, **config: str) -> str:
    topic = topic_name(NAME)
    outcome(admin.create_topics([NewTopic(topic, partitions, 1, config=config)]))
    return topic


def produce(broker: Cluster, topic: str, sent: list[Sent], **settings: Any) -> list[Message]:
    """Sends to partition 0 and returns what the broker acknowledged."""
    delivered: list[Message] = []

    def told(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        delivered.append(message)

    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, **settings})
    for record in sent:
        producer.produce(
            topic,
            record.value,
            record.key,
            partition=0,
            timestamp=record.timestamp_ms,
            headers=record.headers,
            on_delivery=told,
        )
    assert producer.flush(DEADLINE_S) == 0
    return delivered


@pytest.fixture
def consumer(broker: Cluster) -> Iterator[Consumer]:
    client = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": topic_name(f"{NAME}-group"),
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100,
        }
    )
    yield client
    client.close()


def consume(consumer: Consumer, topic: str, offset: int, count: int) -> list[Message]:
    consumer.assign([TopicPartition(topic, 0, offset)])
    messages: list[Message] = []
    until(lambda: messages.extend(consumer.consume(count, 0.2)) or len(messages) >= count, f"{count} records")
    for message in messages:
        assert message.error() is None, message.error()
    return messages


def content(message: Message) -> Sent:
    return Sent(message.key(), message.value(), message.headers() or [], message.timestamp()[1])


@pytest.mark.row("R37")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_what_is_produced_is_consumed(
    broker: Cluster, admin: AdminClient, consumer: Consumer, acks: str, codec: str
) -> None:
    """Keys, values, nulls, headers and timestamps come back, whatever the codec and the acknowledgements."""
    topic = create(admin)
    delivered = produce(broker, topic, records(), acks=acks, **{"compression.type": codec, "batch.num.messages": 3})
    if acks != "0":
        assert [message.offset() for message in delivered] == list(range(len(records())))
    messages = consume(consumer, topic, OFFSET_BEGINNING, len(records()))
    assert list(map(content, messages)) == records()
    assert [message.offset() for message in messages] == list(range(len(records())))


def test_an_idempotent_producer(broker: Cluster, admin: AdminClient, consumer: Consumer) -> None:
    """Gets an id and sends in order, several requests in flight."""
    topic = create(admin)
    sent = [Sent(None, b"%d" % number, [], START_MS) for number in range(500)]
    delivered = produce(broker, topic, sent, **{"enable.idempotence": True, "batch.num.messages": 50})
    assert [message.offset() for message in delivered] == list(range(500))
    assert [message.value() for message in consume(consumer, topic, 0, 500)] == [record.value for record in sent]


def test_consuming_from_any_offset_or_timestamp(broker: Cluster, admin: AdminClient, consumer: Consumer) -> None:
    """A number, the end, a time; a time past the last record is the end."""
    topic = create(admin)
    produce(broker, topic, records())
    assert [message.offset() for message in consume(consumer, topic, 5, 2)][:2] == [5, 6]
    times = [TopicPartition(topic, 0, START_MS + 2500), TopicPartition(topic, 0, START_MS + 3000)]
    for asked in times:
        assert consumer.offsets_for_times([asked], DEADLINE_S)[0].offset == 3
    late = TopicPartition(topic, 0, START_MS + 100_000)
    assert consumer.offsets_for_times([late], DEADLINE_S)[0].offset == OFFSET_END
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), DEADLINE_S) == (0, len(records()))
    listed = outcome(admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.max_timestamp()}))
    assert listed.offset == len(records()) - 1


def test_an_offset_out_of_range_is_told(broker: Cluster, admin: AdminClient, consumer: Consumer) -> None:
    """Nothing is skipped silently."""
    topic = create(admin)
    produce(broker, topic, records())
    consumer.assign([TopicPartition(topic, 0, 1000)])
    message = until(lambda: consumer.poll(0.2), "an error")
    assert message.error().code() == KafkaError._AUTO_OFFSET_RESET


def test_offsets_are_committed_without_membership(broker: Cluster, admin: AdminClient, consumer: Consumer) -> None:
    """With their metadata and leader epoch; a partition without one has none."""
    topic = create(admin, 2)
    committed = consumer.commit(offsets=[TopicPartition(topic, 0, 3, "a note")], asynchronous=False)
    assert [(partition.offset, partition.error) for partition in committed] == [(3, None)]
    asked = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    first, second = consumer.committed(asked, DEADLINE_S)
    assert (first.offset, first.metadata) == (3, "a note")
    assert second.offset < 0


def test_creation_is_validated(admin: AdminClient) -> None:
    """The reasons are Kafka's."""
    topic = create(admin)
    assert failure(admin.create_topics([NewTopic(topic, 1, 1)])).code() == KafkaError.TOPIC_ALREADY_EXISTS
    error = failure(admin.create_topics([NewTopic(topic_name(NAME), 1, 3)]))
    assert error.code() == KafkaError.INVALID_REPLICATION_FACTOR
    assert "replication factor of 3 cannot be reached because only 1 broker(s) are registered" in error.str()
    error = failure(admin.create_topics([NewTopic(topic_name(NAME), 1, 1, config={"nonsense": "1"})]))
    assert (error.code(), error.str()) == (KafkaError.INVALID_CONFIG, "Unknown topic config name: nonsense")
    assert failure(admin.create_topics([NewTopic("a/b", 1, 1)])).code() == KafkaError.TOPIC_EXCEPTION
    name = topic_name(NAME)
    outcome(admin.create_topics([NewTopic(name, 1, 1)], validate_only=True))
    assert name not in admin.list_topics(timeout=DEADLINE_S).topics


@pytest.mark.row("R06")
def test_a_topic_is_described(admin: AdminClient) -> None:
    """Partitions with leader, replicas and ISR."""
    topic = create(admin, 3)
    described = admin.list_topics(topic, DEADLINE_S).topics[topic]
    assert {
        index: (partition.leader, partition.replicas, partition.isrs)
        for index, partition in described.partitions.items()
    } == {index: (0, [0], [0]) for index in range(3)}


@pytest.mark.row("R09")
def test_partitions_only_grow(broker: Cluster, admin: AdminClient, consumer: Consumer) -> None:
    """More are added, the data stays; fewer are refused."""
    topic = create(admin)
    produce(broker, topic, records())
    outcome(admin.create_partitions([NewPartitions(topic, 3)]))
    assert len(admin.list_topics(topic, DEADLINE_S).topics[topic].partitions) == 3
    assert failure(admin.create_partitions([NewPartitions(topic, 2)])).code() == KafkaError.INVALID_PARTITIONS
    assert len(consume(consumer, topic, 0, len(records()))) == len(records())


@pytest.mark.row("R08")
def test_a_deleted_topic_is_gone(admin: AdminClient) -> None:
    """And one that does not exist cannot be deleted."""
    topic = create(admin)
    outcome(admin.delete_topics([topic]))
    assert topic not in admin.list_topics(timeout=DEADLINE_S).topics
    assert failure(admin.delete_topics([topic])).code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def settings_of(admin: AdminClient, kind: str, name: str) -> dict[str, ConfigEntry]:
    described: dict[str, ConfigEntry] = outcome(admin.describe_configs([ConfigResource(kind, name)]))
    return described


def alter(admin: AdminClient, kind: str, name: str, operation: AlterConfigOpType, **values: str | None) -> Any:
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=operation) for key, value in values.items()
    ]
    return admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=entries)])


@pytest.mark.row("R07")
def test_settings_of_a_topic_take_effect_at_once(broker: Cluster, admin: AdminClient) -> None:
    """A smaller max.message.bytes refuses what was accepted a moment ago; deleted again, the default is back."""
    topic = create(admin)
    large = [Sent(None, bytes(5000), [], START_MS)]
    produce(broker, topic, large)
    outcome(alter(admin, "topic", topic, AlterConfigOpType.SET, max_message_bytes="1000", retention_ms="86400000"))
    entry = settings_of(admin, "topic", topic)["max.message.bytes"]
    assert (entry.value, entry.source, entry.is_default) == ("1000", 1, False)
    assert {name: synonym.value for name, synonym in entry.synonyms.items()} == {
        "max.message.bytes": "1000",
        "message.max.bytes": "1048588",
    }
    errors: list[int] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    producer.produce(topic, bytes(5000), on_delivery=lambda error, _: errors.append(error.code()))
    assert producer.flush(DEADLINE_S) == 0
    assert errors == [KafkaError.MSG_SIZE_TOO_LARGE]
    outcome(alter(admin, "topic", topic, AlterConfigOpType.DELETE, max_message_bytes=None))
    assert settings_of(admin, "topic", topic)["max.message.bytes"].value == "1048588"
    produce(broker, topic, large)


@pytest.mark.row("R07")
def test_lists_are_appended_to_and_subtracted_from(admin: AdminClient) -> None:
    """cleanup.policy, as the document alters it."""
    topic = create(admin)
    outcome(alter(admin, "topic", topic, AlterConfigOpType.APPEND, cleanup_policy="compact"))
    assert set(settings_of(admin, "topic", topic)["cleanup.policy"].value.split(",")) == {"delete", "compact"}
    outcome(alter(admin, "topic", topic, AlterConfigOpType.SUBTRACT, cleanup_policy="delete"))
    assert settings_of(admin, "topic", topic)["cleanup.policy"].value == "compact"


@pytest.mark.row("R07")
def test_bad_settings_are_refused(admin: AdminClient) -> None:
    """In Kafka's words, and nothing changes."""
    topic = create(admin)
    error = failure(alter(admin, "topic", topic, AlterConfigOpType.SET, retention_ms="soon"))
    assert error.code() == KafkaError.INVALID_CONFIG
    assert "Invalid value soon for configuration retention.ms: Not a number of type LONG" in error.str()
    assert failure(alter(admin, "topic", topic, AlterConfigOpType.SET, foo="1")).code() == KafkaError.INVALID_CONFIG
    error = failure(alter(admin, "topic", topic_name(NAME), AlterConfigOpType.SET, retention_ms="1"))
    assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    error = failure(alter(admin, "broker", "0", AlterConfigOpType.SET, log_dirs="/x"))
    assert error.code() in (KafkaError.INVALID_REQUEST, KafkaError.INVALID_CONFIG)
    assert settings_of(admin, "topic", topic)["retention.ms"].value == "604800000"


@pytest.mark.row("R07")
def test_settings_of_a_broker_take_effect_at_once(admin: AdminClient) -> None:
    """What a broker is told is its topics' default from then on."""
    topic = create(admin)
    outcome(alter(admin, "broker", "0", AlterConfigOpType.SET, log_segment_bytes="1048578"))
    entry = settings_of(admin, "topic", topic)["segment.bytes"]
    assert (entry.value, entry.source) == ("1048578", 2)
    described = settings_of(admin, "broker", "0")
    assert described["log.segment.bytes"].value == "1048578"
    assert described["log.dirs"].is_read_only
    assert not described["log.segment.bytes"].is_read_only
    assert described["ssl.keystore.password"].is_sensitive
    outcome(alter(admin, "broker", "0", AlterConfigOpType.DELETE, log_segment_bytes=None))
    assert settings_of(admin, "topic", topic)["segment.bytes"].value == "1073741824"


@pytest.mark.row("R34")
def test_records_are_deleted(broker: Cluster, admin: AdminClient, consumer: Consumer) -> None:
    """Up to an offset, or all; beyond the end is refused."""
    topic = create(admin)
    produce(broker, topic, records())
    assert outcome(admin.delete_records([TopicPartition(topic, 0, 3)])).low_watermark == 3
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), DEADLINE_S) == (3, len(records()))
    assert consume(consumer, topic, OFFSET_BEGINNING, 1)[0].offset() == 3
    error = failure(admin.delete_records([TopicPartition(topic, 0, 100)]))
    assert error.code() == KafkaError.OFFSET_OUT_OF_RANGE
    assert outcome(admin.delete_records([TopicPartition(topic, 0, OFFSET_END)])).low_watermark == len(records())


def test_read_committed_reads_to_the_end(broker: Cluster, admin: AdminClient) -> None:
    """Without transactions the last stable offset is the high watermark."""
    topic = create(admin)
    produce(broker, topic, records())
    listed = outcome(
        admin.list_offsets(
            {TopicPartition(topic, 0): OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_COMMITTED
        )
    )
    assert listed.offset == len(records())
