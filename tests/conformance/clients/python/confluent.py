"""A worker with confluent-kafka (librdkafka)."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.conformance.clients.python.speech import grouped, leaving, options, say, values_of

POLL_S = 0.1
CALL_S = 30.0
STUCK_S = 12.0
"""More than a call's own timeout, which a transaction's of 10 s cuts short."""


class Generations(logging.Handler):
    """Listens to librdkafka's debug lines: its API does not tell the generation."""

    def __init__(self) -> None:
        super().__init__()
        self.last: int | None = None

    def emit(self, record: logging.LogRecord) -> None:
        found = re.search(r"JoinGroup response: GenerationId (\d+)", record.getMessage())
        if found:
            self.last = int(found[1])


def plain(partitions: list[TopicPartition]) -> list[tuple[str, int]]:
    return [(each.topic, each.partition) for each in partitions]


def positions(messages: list[Message]) -> list[tuple[str, int, int]]:
    return [(message.topic(), message.partition(), message.offset()) for message in messages]  # type: ignore[misc]


def after(messages: list[Message]) -> list[TopicPartition]:
    """The offsets to commit."""
    last = {(topic, partition): offset for topic, partition, offset in positions(messages)}
    return [TopicPartition(topic, partition, offset + 1) for (topic, partition), offset in sorted(last.items())]


def joined(given: dict[str, str]) -> Consumer:
    """A consumer that has subscribed, and says what it is given."""
    generations = Generations()
    logger = logging.getLogger("librdkafka")
    logger.addHandler(generations)
    logger.setLevel(logging.DEBUG)
    logger.propagate = "TIDELOG_WORKERS_DEBUG" in os.environ
    session_ms = int(given.get("session_timeout_ms", "10000"))
    settings: dict[str, Any] = {
        "bootstrap.servers": given["bootstrap"],
        "group.id": given["group"],
        "client.id": given.get("name", "confluent-kafka"),
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 100,
        "reconnect.backoff.max.ms": 500,
        "isolation.level": "read_committed",
        "debug": "cgrp",
        "logger": logger,
    }
    if given.get("protocol") == "consumer":
        settings["group.protocol"] = "consumer"
    else:
        settings["partition.assignment.strategy"] = given.get("assignor", "range")
        settings["session.timeout.ms"] = session_ms
        settings["heartbeat.interval.ms"] = min(500, session_ms // 3)
    if "instance" in given:
        settings["group.instance.id"] = given["instance"]
    consumer = Consumer(settings)

    def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        generation = generations.last if given.get("protocol") != "consumer" else None
        say("assigned", partitions=plain(partitions), generation=generation, member=consumer.memberid())

    def revoked(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        say("revoked", partitions=plain(partitions))

    def lost(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        say("lost", partitions=plain(partitions))

    consumer.subscribe([given["topic"]], on_assign=assigned, on_revoke=revoked, on_lost=lost)
    return consumer


def take(consumer: Consumer) -> list[Message]:
    """What there is to be consumed; errors are told."""
    messages = []
    for message in consumer.consume(500, POLL_S):
        error = message.error()
        if error is None:
            messages.append(message)
        else:
            say("error", error=str(error))
    return messages


def consume(given: dict[str, str]) -> None:
    told = leaving()
    consumer = joined(given)
    while not told.is_set():
        messages = take(consumer)
        if not messages:
            continue
        say("consumed", records=grouped(positions(messages)))
        offsets = after(messages)
        try:
            if given.get("commit") == "async":
                consumer.commit(offsets=offsets, asynchronous=True)
                continue
            done = consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as refused:
            say("refused", error=refused.args[0].name())
            continue
        say("committed", offsets=[(each.topic, each.partition, each.offset) for each in done if each.error is None])
        for each in done:
            if each.error is not None:
                say("refused", error=each.error.name())
    consumer.close()


def producer_of(given: dict[str, str]) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": given["bootstrap"],
            "transactional.id": given["transactional_id"],
            "transaction.timeout.ms": int(given.get("transaction_timeout_ms", "20000")),
            "linger.ms": 1,
            "reconnect.backoff.max.ms": 500,
            **({"debug": "eos"} if "TIDELOG_WORKERS_DEBUG" in os.environ else {"log_level": 0}),
        }
    )
    while True:
        try:
            producer.init_transactions(CALL_S)
            return producer
        except KafkaException as failed:
            say("error", error=str(failed))
            if not failed.args[0].retriable():
                raise


def commit(producer: Producer) -> None:
    """Commits; what may be repeated is."""
    while True:
        try:
            producer.commit_transaction(CALL_S)
            return
        except KafkaException as failed:
            say("error", error=str(failed))
            if not failed.args[0].retriable():
                raise


def abort(producer: Producer) -> None:
    while True:
        try:
            producer.abort_transaction(CALL_S)
            return
        except KafkaException as failed:
            say("error", error=str(failed))
            if not failed.args[0].retriable():
                raise


@contextmanager
def returning(call: str) -> Iterator[None]:
    """Says that a call is stuck, and ends the process, where it does not return.

    send_offsets_to_transaction of librdkafka 2.16 forgets its timeout while it waits for a connection to the group's
    coordinator, and waits for one that is dead until another connection is made or breaks (its issues 5456 and 5511).
    """

    def stuck() -> None:
        say("stuck", call=call)
        os._exit(1)

    timer = threading.Timer(STUCK_S, stuck)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def copy(given: dict[str, str]) -> None:
    told = leaving()
    producer = producer_of(given)
    consumer = joined(given)
    while not told.is_set():
        messages = take(consumer)
        if not messages:
            continue
        outcome = "committed"
        try:
            producer.begin_transaction()
            for message in messages:
                key = f"{message.topic()}-{message.partition()}-{message.offset()}"
                producer.produce(given["output"], message.value(), key)
            with returning("send_offsets_to_transaction"):
                producer.send_offsets_to_transaction(after(messages), consumer.consumer_group_metadata(), CALL_S)
            commit(producer)
        except KafkaException as failed:
            error: KafkaError = failed.args[0]
            say("error", error=str(error))
            if error.fatal() or not error.txn_requires_abort():
                raise
            abort(producer)
            outcome = "aborted"
            rewind(consumer)
        say("copied", outcome=outcome, records=grouped(positions(messages)))
    consumer.close()


def rewind(consumer: Consumer) -> None:
    """What an aborted transaction has consumed is consumed again."""
    while True:
        try:
            for each in consumer.committed(consumer.assignment(), CALL_S):
                if each.offset < 0:
                    each.offset = confluent_kafka.OFFSET_BEGINNING
                consumer.seek(each)
            return
        except KafkaException as failed:
            say("error", error=str(failed))
            if not failed.args[0].retriable() and failed.args[0].code() != KafkaError._STATE:
                raise


def transact(given: dict[str, str]) -> None:
    producer = producer_of(given)
    every = int(given.get("abort_every", "0"))
    for number in range(int(given["transactions"])):
        values = values_of(given["name"], number, int(given["records"]))
        say("begin", number=number)
        outcome = "aborted" if every and number % every == every - 1 else "committed"
        try:
            producer.begin_transaction()
            for value in values:
                producer.produce(given["topic"], value, value)
            if outcome == "committed":
                commit(producer)
            else:
                producer.flush(CALL_S)
                abort(producer)
        except KafkaException as failed:
            error: KafkaError = failed.args[0]
            say("error", error=str(error))
            if error.fatal() or not error.txn_requires_abort():
                raise
            abort(producer)
            outcome = "aborted"
        say("transaction", number=number, outcome=outcome)


if __name__ == "__main__":
    arguments = options()
    say("ready", client="librdkafka", version=confluent_kafka.libversion()[0])
    try:
        {"consume": consume, "copy": copy, "transact": transact}[arguments["role"]](arguments)
    except Exception as error:
        say("fatal", error=repr(error))
        raise
    say("left")
