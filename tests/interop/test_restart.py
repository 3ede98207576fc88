"""Everything is there after a restart: clean, or after kill -9."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from tests.interop.support import DEADLINE_S
from tests.waiting import until
from tidelog.testing import ProcessBroker

COUNT = 2000


def outcome(futures: dict[object, object]) -> object:
    (future,) = futures.values()
    return future.result(DEADLINE_S)  # type: ignore[attr-defined]


def consumer_of(broker: ProcessBroker) -> Consumer:
    return Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False})


def fill(broker: ProcessBroker) -> None:
    """A topic with a setting, acknowledged records in all its partitions, committed offsets."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    outcome(admin.create_topics([NewTopic("t", 3, 1, config={"segment.bytes": "20000"})]))
    entry = ConfigEntry("retention.ms", "-1", incremental_operation=AlterConfigOpType.SET)
    outcome(admin.incremental_alter_configs([ConfigResource("topic", "t", incremental_configs=[entry])]))
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 1})
    for number in range(COUNT):
        producer.produce(
            "t",
            b"%d" % number,
            b"k",
            partition=number % 3,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(DEADLINE_S) == 0
    assert failed == []
    consumer = consumer_of(broker)
    consumer.commit(offsets=[TopicPartition("t", 1, 42, "note")], asynchronous=False)
    consumer.close()


def check(broker: ProcessBroker) -> None:
    """All of it, in order, once."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert len(admin.list_topics("t", DEADLINE_S).topics["t"].partitions) == 3
    described = outcome(admin.describe_configs([ConfigResource("topic", "t")]))
    assert isinstance(described, dict)
    assert (described["segment.bytes"].value, described["retention.ms"].value) == ("20000", "-1")
    consumer = consumer_of(broker)
    try:
        consumer.assign([TopicPartition("t", partition, OFFSET_BEGINNING) for partition in range(3)])
        messages: list[Message] = []
        until(lambda: messages.extend(consumer.consume(COUNT, 0.5)) or len(messages) >= COUNT, "all records")
        assert sorted((message.partition(), message.offset(), message.value()) for message in messages) == sorted(
            (number % 3, number // 3, b"%d" % number) for number in range(COUNT)
        )

        def committed() -> TopicPartition | None:
            try:
                return consumer.committed([TopicPartition("t", 1)], 2)[0]
            except KafkaException:
                return None  # The coordinator is loading.

        found = until(committed, "committed offsets")
        assert (found.offset, found.metadata) == (42, "note")
    finally:
        consumer.close()


@pytest.mark.parametrize("kill", [False, True], ids=["clean", "kill -9"])
def test_everything_is_there_after_a_restart(kill: bool, tmp_path: Path) -> None:
    """Topics, settings, acknowledged records, committed offsets; and the broker takes more."""
    with ProcessBroker({"offsets.topic.num.partitions": 4}, data=str(tmp_path)) as broker:
        fill(broker)
        if kill:
            broker.kill()
        else:
            broker.stop()
        broker.start()
        check(broker)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("t", b"more")
        assert producer.flush(DEADLINE_S) == 0
