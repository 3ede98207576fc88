"""A worker with kafka-python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import kafka
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError, ProducerFencedError, RetriableError

from tests.conformance.clients.python.speech import grouped, leaving, options, say, values_of

T = TypeVar("T")

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self) -> None:
        self.consumer: Any = None

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        found = self.consumer.group_metadata()
        say("assigned", partitions=plain(assigned), generation=found.generation_id, member=found.member_id)

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        say("revoked", partitions=plain(revoked))

    def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        say("lost", partitions=plain(lost))


def plain(partitions: Any) -> list[tuple[str, int]]:
    return sorted((each.topic, each.partition) for each in partitions)


def positions(records: list[Any]) -> list[tuple[str, int, int]]:
    return [(record.topic, record.partition, record.offset) for record in records]


def after(records: list[Any]) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offsets to commit."""
    return {
        TopicPartition(record.topic, record.partition): OffsetAndMetadata(record.offset + 1, "", -1)
        for record in records
    }


def made(make: Callable[[dict[str, str]], T], given: dict[str, str]) -> T:
    """A client; made anew where it gives up because the broker that it asks first is down."""
    while True:
        try:
            return make(given)
        except RetriableError as failed:
            say("error", error=repr(failed))


def member(given: dict[str, str]) -> KafkaConsumer:
    session_ms = int(given.get("session_timeout_ms", "10000"))
    listener = Listener()
    consumer = KafkaConsumer(
        bootstrap_servers=given["bootstrap"],
        client_id=given.get("name", "kafka-python"),
        group_id=given["group"],
        group_instance_id=given.get("instance"),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=100,
        isolation_level="read_committed",
        partition_assignment_strategy=[ASSIGNORS[given.get("assignor", "range")]],
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=min(500, session_ms // 3),
        reconnect_backoff_max_ms=500,
    )
    listener.consumer = consumer
    consumer.subscribe([given["topic"]], listener=listener)
    return consumer


def take(consumer: KafkaConsumer) -> list[Any]:
    """What a poll gives; nothing where a broker that is down fails it: an application polls again."""
    try:
        found = consumer.poll(timeout_ms=100)
    except RetriableError as failed:
        say("error", error=repr(failed))
        return []
    return [record for records in found.values() for record in records]


def consume(given: dict[str, str]) -> None:
    told = leaving()
    consumer = made(member, given)
    while not told.is_set():
        records = take(consumer)
        if not records:
            continue
        say("consumed", records=grouped(positions(records)))
        offsets = after(records)
        if given.get("commit") == "async":
            consumer.commit_async(offsets, callback=committed)
            continue
        try:
            consumer.commit(offsets)
        except KafkaError as refused:
            say("refused", error=type(refused).__name__)
            continue
        committed(offsets, None)
    consumer.close()


def committed(offsets: dict[TopicPartition, OffsetAndMetadata], failed: Any) -> None:
    if isinstance(failed, Exception):
        say("refused", error=type(failed).__name__)
    else:
        say("committed", offsets=[(each.topic, each.partition, done.offset) for each, done in offsets.items()])


def connected(given: dict[str, str]) -> KafkaProducer:
    return KafkaProducer(
        bootstrap_servers=given["bootstrap"],
        transactional_id=given["transactional_id"],
        transaction_timeout_ms=int(given.get("transaction_timeout_ms", "20000")),
        reconnect_backoff_max_ms=500,
    )


def producer_of(given: dict[str, str]) -> KafkaProducer:
    producer = made(connected, given)
    producer.init_transactions()
    return producer


def copy(given: dict[str, str]) -> None:
    told = leaving()
    producer = producer_of(given)
    consumer = made(member, given)
    while not told.is_set():
        records = take(consumer)
        if not records:
            continue
        outcome = "committed"
        producer.begin_transaction()
        try:
            for record in records:
                key = f"{record.topic}-{record.partition}-{record.offset}"
                producer.send(given["output"], record.value, key.encode())
            producer.send_offsets_to_transaction(after(records), consumer.group_metadata())
            producer.commit_transaction()
        except ProducerFencedError:
            raise
        except KafkaError as failed:
            say("error", error=repr(failed))
            producer.abort_transaction()
            outcome = "aborted"
            rewind(consumer)
        say("copied", outcome=outcome, records=grouped(positions(records)))
    consumer.close()
    producer.close()


def rewind(consumer: KafkaConsumer) -> None:
    """What an aborted transaction has consumed is consumed again."""
    for partition in consumer.assignment():
        offset = consumer.committed(partition)
        if offset is None:
            consumer.seek_to_beginning(partition)
        else:
            consumer.seek(partition, offset)


def transact(given: dict[str, str]) -> None:
    producer = producer_of(given)
    every = int(given.get("abort_every", "0"))
    for number in range(int(given["transactions"])):
        values = values_of(given["name"], number, int(given["records"]))
        say("begin", number=number)
        outcome = "aborted" if every and number % every == every - 1 else "committed"
        producer.begin_transaction()
        try:
            for value in values:
                producer.send(given["topic"], value.encode(), value.encode())
            if outcome == "committed":
                producer.commit_transaction()
            else:
                producer.flush()
                producer.abort_transaction()
        except ProducerFencedError:
            raise
        except KafkaError as failed:
            say("error", error=repr(failed))
            producer.abort_transaction()
            outcome = "aborted"
        say("transaction", number=number, outcome=outcome)
    producer.close()


if __name__ == "__main__":
    arguments = options()
    say("ready", client="kafka-python", version=kafka.__version__)
    try:
        {"consume": consume, "copy": copy, "transact": transact}[arguments["role"]](arguments)
    except Exception as error:
        say("fatal", error=repr(error))
        raise
    say("left")
