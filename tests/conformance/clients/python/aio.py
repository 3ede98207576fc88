"""A worker with aiokafka."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import IllegalStateError, KafkaError, ProducerFenced

from tests.conformance.clients.python.speech import grouped, leaving, options, say, values_of

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class Listener(ConsumerRebalanceListener):
    def __init__(self) -> None:
        self.consumer: Any = None

    def on_partitions_revoked(self, revoked: Any) -> None:
        # It is called before the first join too, with nothing.
        if revoked:
            say("revoked", partitions=plain(revoked))

    def on_partitions_assigned(self, assigned: Any) -> None:
        # No public name tells the generation.
        coordinator = self.consumer._coordinator
        say("assigned", partitions=plain(assigned), generation=coordinator.generation, member=coordinator.member_id)


def plain(partitions: Any) -> list[tuple[str, int]]:
    return sorted((each.topic, each.partition) for each in partitions)


def positions(records: list[Any]) -> list[tuple[str, int, int]]:
    return [(record.topic, record.partition, record.offset) for record in records]


def after(records: list[Any]) -> dict[TopicPartition, int]:
    """The offsets to commit."""
    return {TopicPartition(record.topic, record.partition): record.offset + 1 for record in records}


async def joined(given: dict[str, str]) -> AIOKafkaConsumer:
    session_ms = int(given.get("session_timeout_ms", "10000"))
    listener = Listener()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=given["bootstrap"],
        client_id=given.get("name", "aiokafka"),
        group_id=given["group"],
        group_instance_id=given.get("instance"),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=100,
        isolation_level="read_committed",
        partition_assignment_strategy=[ASSIGNORS[given.get("assignor", "range")]],
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=min(500, session_ms // 3),
    )
    listener.consumer = consumer
    consumer.subscribe([given["topic"]], listener=listener)
    await consumer.start()
    return consumer


async def leave(consumer: AIOKafkaConsumer) -> None:
    """It calls no listener then."""
    if consumer.assignment():
        say("revoked", partitions=plain(consumer.assignment()))
    await consumer.stop()


async def take(consumer: AIOKafkaConsumer) -> list[Any]:
    found = await consumer.getmany(timeout_ms=100, max_records=500)
    return [record for records in found.values() for record in records]


async def consume(given: dict[str, str], told: threading.Event) -> None:
    consumer = await joined(given)
    while not told.is_set():
        records = await take(consumer)
        if not records:
            continue
        say("consumed", records=grouped(positions(records)))
        offsets = after(records)
        try:
            await consumer.commit(offsets)
        except (KafkaError, IllegalStateError) as refused:
            say("refused", error=type(refused).__name__)
            continue
        say("committed", offsets=[(each.topic, each.partition, offset) for each, offset in offsets.items()])
    await leave(consumer)


async def producer_of(given: dict[str, str]) -> AIOKafkaProducer:
    producer = AIOKafkaProducer(
        bootstrap_servers=given["bootstrap"],
        transactional_id=given["transactional_id"],
        transaction_timeout_ms=int(given.get("transaction_timeout_ms", "20000")),
    )
    await producer.start()
    return producer


async def copy(given: dict[str, str], told: threading.Event) -> None:
    producer = await producer_of(given)
    consumer = await joined(given)
    while not told.is_set():
        records = await take(consumer)
        if not records:
            continue
        outcome = "committed"
        await producer.begin_transaction()
        try:
            for record in records:
                key = f"{record.topic}-{record.partition}-{record.offset}"
                await producer.send(given["output"], record.value, key.encode())
            await producer.send_offsets_to_transaction(after(records), given["group"])
            await producer.commit_transaction()
        except ProducerFenced:
            raise
        except KafkaError as failed:
            say("error", error=repr(failed))
            await producer.abort_transaction()
            outcome = "aborted"
            await consumer.seek_to_committed()
        say("copied", outcome=outcome, records=grouped(positions(records)))
    await leave(consumer)
    await producer.stop()


async def transact(given: dict[str, str], told: threading.Event) -> None:
    producer = await producer_of(given)
    every = int(given.get("abort_every", "0"))
    for number in range(int(given["transactions"])):
        values = values_of(given["name"], number, int(given["records"]))
        say("begin", number=number)
        outcome = "aborted" if every and number % every == every - 1 else "committed"
        await producer.begin_transaction()
        try:
            for value in values:
                await producer.send(given["topic"], value.encode(), value.encode())
            if outcome == "committed":
                await producer.commit_transaction()
            else:
                await producer.flush()
                await producer.abort_transaction()
        except ProducerFenced:
            raise
        except KafkaError as failed:
            say("error", error=repr(failed))
            await producer.abort_transaction()
            outcome = "aborted"
        say("transaction", number=number, outcome=outcome)
    await producer.stop()


if __name__ == "__main__":
    arguments = options()
    say("ready", client="aiokafka", version=aiokafka.__version__)
    roles = {"consume": consume, "copy": copy, "transact": transact}
    try:
        asyncio.run(roles[arguments["role"]](arguments, leaving()))
    except Exception as error:
        say("fatal", error=repr(error))
        raise
    say("left")
